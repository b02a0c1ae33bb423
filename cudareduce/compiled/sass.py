"""Instruction counts of machine code, by cuobjdump: what really loads, shuffles, waits and spills.

cuobjdump and nvdisasm need no GPU and no driver; both are in the CUDA toolkit and on PyPI.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import EnvironmentProblem
from cudareduce.host import installed
from cudareduce.temporary import temporary_folder

#: What is counted, by the opcodes that stand for it on all architectures from sm_75 to sm_121.
KINDS = {
    "wide_loads": r"LDG?\..*(128|256)",
    "global_loads": r"(LDG|LDGSTS|UBLKCP)(\.|$)",
    "shuffles": r"SHFL",
    "warp_reductions": r"REDUX|CREDUX",
    "barriers": r"BAR(\.|$)",
    "fences": r"MEMBAR",
    "atomics": r"(ATOMG?|REDG?)(\.|$)",
    "local": r"(LDL|STL)(\.|$)",
}
_FUNCTION = re.compile(r"^\s*Function : (\S+)")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in KINDS.items()}


@dataclass(frozen=True, slots=True)
class Disassembler:
    """cuobjdump; it finds nvdisasm beside itself or on the PATH."""

    path: str
    version: str

    def count(self, cubin: bytes, entry: str) -> dict[str, int]:
        """Instructions of an entry point: all, and those of each kind. Raises EnvironmentProblem if
        it cannot read the machine code."""
        with temporary_folder() as folder:
            file = Path(folder, "kernel.cubin")
            file.write_bytes(cubin)
            command = [self.path, "-sass", str(file)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        counts = count_instructions(done.stdout, entry)
        if done.returncode or not counts["all"]:  # an older one does not know a newer architecture
            why = (done.stderr.strip().splitlines() or ["it lists no instructions"])[0]
            raise EnvironmentProblem(
                f"{self.path} {self.version} cannot read {entry}: {why}; take it off the PATH and "
                "pip install 'cudareduce[compile]', or off the machine to go without counts"
            )
        return counts


def count_instructions(text: str, entry: str) -> dict[str, int]:
    """Count in what cuobjdump printed: the instructions of an entry point, all and by kind."""
    opcodes: Counter[str] = Counter()
    inside = False
    for line in text.splitlines():
        function = _FUNCTION.match(line)
        if function:
            inside = function[1] == entry
        instruction = _INSTRUCTION.match(line) if inside else None
        if instruction and instruction[1] != "NOP":  # padding at the end
            opcodes[instruction[1]] += 1
    counts = {"all": opcodes.total()}
    for kind, pattern in _PATTERNS.items():
        counts[kind] = sum(n for opcode, n in opcodes.items() if pattern.match(opcode))
    return counts


def find_disassembler() -> Disassembler | None:
    """cuobjdump from the PATH, else from its PyPI package; None without it or without nvdisasm."""
    for path, version in installed("cuobjdump"):
        if Path(path).with_name("nvdisasm").exists() or shutil.which("nvdisasm"):
            return Disassembler(path, version)
    return None
