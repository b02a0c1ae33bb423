"""Machine code, by cuobjdump: what really loads, shuffles, waits and spills.

cuobjdump and nvdisasm need no GPU and no driver; both are in the CUDA toolkit and on PyPI.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.compiled.opcodes import shortened
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine.host import installed
from cudareduce.temporary import temporary_folder

#: Hexadecimal digits of a hash that are kept.
HASH_DIGITS = 16
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_INSTRUCTION = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<text>(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)(?P<rest>[^;]*))"
)
_REGISTER = re.compile(r"\bR(\d+)\b")
_LOAD = re.compile(r"LDG?(\.|$)")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


@dataclass(frozen=True, slots=True)
class Code:
    """The machine code of an entry point: a hash of its instructions with their operands, how often
    each opcode stands there, and how many bytes of global memory a thread asks for before it needs
    any of them."""

    sha: str
    opcodes: Mapping[str, int]
    in_flight: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of them, as it is printed, and its address in the entry point."""

    address: str
    text: str
    opcode: str
    operands: str


@dataclass(frozen=True, slots=True)
class Disassembler:
    """cuobjdump; it finds nvdisasm beside itself or on the PATH."""

    path: str
    version: str

    def read(self, cubin: bytes, entry: str) -> Code:
        """The code of an entry point. Raises EnvironmentProblem if it cannot be read."""
        return code_of(self.listed(cubin, entry), entry)

    def listed(self, cubin: bytes, entry: str) -> list[Instruction]:
        """Its instructions from top to bottom. Raises EnvironmentProblem likewise."""
        with temporary_folder() as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(cubin)
            command = [self.path, "-sass", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        instructions = list(_instructions(done.stdout, entry))
        if done.returncode or not instructions:  # an older one does not know a newer architecture
            why = (done.stderr.strip().splitlines() or ["it lists no instructions"])[0]
            raise EnvironmentProblem(
                f"{self.path} {self.version} cannot read {entry}: {why}; take it off the PATH and "
                "pip install 'cudareduce[compile]', or off the machine to go without counts"
            )
        return instructions


def read_code(printed: str, entry: str) -> Code:
    """An entry point in what cuobjdump printed."""
    return code_of(list(_instructions(printed, entry)), entry)


def code_of(instructions: Sequence[Instruction], entry: str) -> Code:
    """What is judged of instructions; the entry point's own name counts for nothing."""
    text = "\n".join(each.text.replace(entry, "") for each in instructions)
    return Code(
        sha=hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS],
        opcodes=dict(Counter(shortened(each.opcode) for each in instructions)),
        in_flight=_in_flight(instructions),
    )


def _instructions(printed: str, entry: str) -> Iterator[Instruction]:
    inside = False
    for line in printed.splitlines():
        function = _FUNCTION.match(line)
        if function:
            inside = function[1] == entry
        found = _INSTRUCTION.match(line) if inside else None
        if found and found["opcode"] != "NOP":  # padding at the end
            yield Instruction(
                found["address"], " ".join(found["text"].split()), found["opcode"], found["rest"]
            )


def _in_flight(instructions: Iterable[Instruction]) -> int:
    """Bytes that are on their way at most, from top to bottom: a load is on its way until any of
    the registers that it fills is named again."""
    waiting: dict[int, int] = {}  # bytes, by the first register
    filled: dict[int, int] = {}  # the first register of the load, by each that it fills
    most = 0
    for each in instructions:
        named = [int(number) for number in _REGISTER.findall(each.operands)]
        for register in named:
            waiting.pop(filled.pop(register, -1), None)
        if not _LOAD.match(each.opcode) or not named:
            continue
        size = next((_BYTES[w] for w in each.opcode.split(".") if w in _BYTES), 4)
        target = named[0]
        filled |= dict.fromkeys(range(target, target + max(1, size // 4)), target)
        waiting[target] = size
        most = max(most, sum(waiting.values()))
    return most


def find_disassembler() -> Disassembler | None:
    """cuobjdump from the PATH, else from its PyPI package; None without it or without nvdisasm."""
    for path, version in installed("cuobjdump"):
        if Path(path).with_name("nvdisasm").exists() or shutil.which("nvdisasm"):
            return Disassembler(path, version)
    return None
