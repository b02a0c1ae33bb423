"""Machine code read by cuobjdump: opcodes by kind, registers and shared memory, resident warps.

cuobjdump and nvdisasm need neither a GPU nor a driver; both are in the CUDA toolkit and on PyPI. An
opcode has different modifiers on different architectures (`LDG.E.SYS`, `LDG.E.CONSTANT`); those
without an effect on time are dropped, so that histograms can be compared.
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

from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import installed
from cudareduce.temporary import temporary_folder

#: Modifiers that are kept: the width of memory accesses, and all modifiers of these opcodes.
_MEMORY = re.compile(r"(LD|ST|ATOM|RED)(?!UX)[A-Z]*(\.|$)")
_WIDTH = re.compile(r"(U8|S8|U16|S16|64|128|256)$")
_WHOLE = re.compile(r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND|MEMBAR|MUFU)(\.|$)")

#: Kinds of instructions.
KINDS = {
    "wide_loads": r"LDG\.(128|256)|LD\.(128|256)",
    "global_loads": r"(LDG|LDGSTS|UBLKCP)(\.|$)",
    "shuffles": r"SHFL",
    "warp_reductions": r"C?REDUX",
    "barriers": r"BAR$",
    "fences": r"MEMBAR",
    "sleeps": r"NANOSLEEP",
    "calls": r"CALL",
    "atomics": r"(ATOMG?|REDG?)(\.|$)",
    "local": r"(LDL|STL)(\.|$)",
    "double": r"(DADD|DMUL|DFMA|DSETP|DMNMX|DMMA)$|MUFU\..*64H",
    "conversions": r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND)(\.|$)",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


def shortened(opcode: str) -> str:
    """An opcode without the modifiers that do not affect time."""
    if _WHOLE.match(opcode):
        return opcode
    name, *words = opcode.split(".")
    if not _MEMORY.match(opcode):
        return name
    return ".".join([name, *(word for word in words if _WIDTH.match(word))])


def counts_of(opcodes: Mapping[str, int]) -> dict[str, int]:
    """The number of instructions in a histogram: all, and by kind."""
    counts = {"all": sum(opcodes.values())}
    for kind, pattern in _PATTERNS.items():
        counts[kind] = sum(n for opcode, n in opcodes.items() if pattern.match(opcode))
    return counts


def histogram_text(opcodes: Mapping[str, int]) -> str:
    """The stored form of a histogram: `FADD:14 LDG:8`."""
    return " ".join(f"{opcode}:{opcodes[opcode]}" for opcode in sorted(opcodes))


def read_histogram(text: str) -> dict[str, int]:
    """Parse `histogram_text`. Raises ValueError."""
    opcodes: dict[str, int] = {}
    for part in text.split():
        opcode, _, count = part.rpartition(":")
        if not re.fullmatch(r"[A-Z][\w.]*", opcode) or not re.fullmatch(r"[1-9]\d{0,8}", count):
            raise ValueError(part)
        opcodes[opcode] = int(count)
    return opcodes


def differences(old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[str]:
    """The opcodes whose counts differ, largest difference first: `+8 LDG`."""
    moved = {name: new.get(name, 0) - old.get(name, 0) for name in {*old, *new}}
    for name in sorted(moved, key=lambda name: (-abs(moved[name]), name)):
        if moved[name]:
            yield f"{moved[name]:+d} {name}"


#: Length of a stored hash.
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
    """The machine code of an entry point: a hash of its instructions, a histogram of its opcodes,
    and the bytes of global memory a thread has in flight before it uses any."""

    sha: str
    opcodes: Mapping[str, int]
    in_flight: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction as cuobjdump prints it, with its address."""

    address: str
    text: str
    opcode: str
    operands: str


@dataclass(frozen=True, slots=True)
class Disassembler:
    """cuobjdump, which needs nvdisasm next to it or on the PATH."""

    path: str
    version: str

    def read(self, cubin: bytes, entry: str) -> Code:
        """Disassemble an entry point and count its instructions. Raises EnvironmentProblem."""
        return code_of(self.listed(cubin, entry), entry)

    def listed(self, cubin: bytes, entry: str) -> list[Instruction]:
        """Disassemble an entry point. Raises EnvironmentProblem if cuobjdump cannot read it."""
        with temporary_folder() as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(cubin)
            command = [self.path, "-sass", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        instructions = list(parse_instructions(done.stdout, entry))
        if done.returncode or not instructions:  # an older one does not know a newer architecture
            why = (done.stderr.strip().splitlines() or ["it lists no instructions"])[0]
            raise EnvironmentProblem(
                f"{self.path} {self.version} cannot read {entry}: {why}; take it off the PATH and "
                "pip install 'cudareduce[compile]', or off the machine to go without counts"
            )
        return instructions


def code_of(instructions: Sequence[Instruction], entry: str) -> Code:
    """Hash, histogram and bytes in flight of instructions; the name of the entry point has no
    influence."""
    text = "\n".join(each.text.replace(entry, "") for each in instructions)
    return Code(
        sha=hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS],
        opcodes=dict(Counter(shortened(each.opcode) for each in instructions)),
        in_flight=_in_flight(instructions),
    )


def parse_instructions(printed: str, entry: str) -> Iterator[Instruction]:
    """The instructions of an entry point in the output of cuobjdump."""
    inside = False
    for line in printed.splitlines():
        function = _FUNCTION.match(line)
        if function:
            inside = function[1] == entry
        match = _INSTRUCTION.match(line) if inside else None
        if match and match["opcode"] != "NOP":  # padding at the end
            yield Instruction(
                match["address"], " ".join(match["text"].split()), match["opcode"], match["rest"]
            )


def _in_flight(instructions: Iterable[Instruction]) -> int:
    """The most bytes that a thread has requested from global memory and not used yet, reading the
    code from top to bottom. A load ends when its register is used."""
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


@dataclass(frozen=True, slots=True)
class Resources:
    """Per thread: registers, stack and spills; per block: shared memory and barriers."""

    registers: int
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0
    barriers: int = 0

    @property
    def spill_bytes(self) -> int:
        return self.spill_store_bytes + self.spill_load_bytes


@dataclass(frozen=True, slots=True)
class SmLimits:
    """The limits of one SM; the system reserves `reserved_bytes` of shared memory per block."""

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = 1024


_KIB = 1024
#: CUDA C++ Programming Guide, technical specifications per compute capability.
_SM = {
    75: SmLimits(32, 16, 64 * _KIB, 0),
    80: SmLimits(64, 32, 164 * _KIB),
    86: SmLimits(48, 16, 100 * _KIB),
    87: SmLimits(48, 16, 164 * _KIB),
    89: SmLimits(48, 24, 100 * _KIB),
    90: SmLimits(64, 32, 228 * _KIB),
    100: SmLimits(64, 32, 228 * _KIB),
    103: SmLimits(64, 32, 228 * _KIB),
    120: SmLimits(48, 24, 100 * _KIB),
    121: SmLimits(48, 24, 100 * _KIB),
}
#: 64 Ki registers per SM, allocated to warps in units of 256, on all of these.
_REGISTERS, _REGISTER_UNIT, _PARTITIONS = 65536, 256, 4


def parse_resources(messages: str, entry: str) -> Resources:
    """Parse the output of ptxas -v for an entry point. Raises ValueError."""
    begin = re.search(rf"Compiling entry function '{re.escape(entry)}'", messages)
    if begin is None:
        raise ValueError(f"ptxas reports nothing on {entry}")
    text = messages[begin.end() :]

    def number(pattern: str) -> int:
        match = re.search(pattern, text)
        return int(match[1]) if match else 0

    return Resources(
        registers=number(r"Used (\d+) registers"),
        stack_bytes=number(r"(\d+) bytes stack frame"),
        spill_store_bytes=number(r"(\d+) bytes spill stores"),
        spill_load_bytes=number(r"(\d+) bytes spill loads"),
        shared_bytes=number(r"(\d+) bytes smem"),
        barriers=number(r"used (\d+) barriers"),
    )


def resident_warps(used: Resources, block: int, arch: int) -> int | None:
    """The number of warps that an SM of sm_`arch` holds in blocks of `block` threads; None for an
    unknown architecture."""
    limits = _SM.get(arch)
    if limits is None:
        return None
    warps = -(-block // 32)
    unit = -(-max(used.registers, 1) * 32 // _REGISTER_UNIT) * _REGISTER_UNIT
    shared = used.shared_bytes + limits.reserved_bytes
    blocks = min(
        limits.blocks,
        limits.warps // warps,
        _PARTITIONS * (_REGISTERS // _PARTITIONS // unit) // warps,  # a warp lies within one
        limits.shared_bytes // shared if shared else limits.blocks,
    )
    return blocks * warps


def most_warps(arch: int) -> int | None:
    """The most warps that an SM of sm_`arch` holds; None for an unknown architecture."""
    limits = _SM.get(arch)
    return limits.warps if limits else None
