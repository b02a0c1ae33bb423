"""How much of a corpus of kernels is judged as it must be: `python -m tests.corpus [verify|bench]`.

Kernels under tests/wrong_kernels are each wrong in a way in which real ones are, those under
tests/right_kernels right in an unusual way; their comments say how. Each is given to a command as a
user gives it, in a process of its own. A wrong one is caught when the command ends with 3 or, of a
kernel that no GPU would take, with 2; a right one may also be left undecided, which is 4 or 6.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WRONG, RIGHT = ROOT / "tests" / "wrong_kernels", ROOT / "tests" / "right_kernels"
#: What exit codes of `verify` and `bench` say of one kernel.
_SAYS = {0: "right", 2: "refused", 3: "wrong", 4: "undecided", 6: "undecided"}


@dataclass(frozen=True, slots=True)
class Judged:
    """What a command has said of a kernel: a word, its last line of standard error, seconds."""

    path: Path
    says: str
    line: str
    seconds: float


def judge(path: Path, command: str = "verify") -> Judged:
    """Give one kernel to a command, with its defaults but for the backend."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cudareduce", command, str(path), "--backend", "cpu", "--quiet"],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    said = [line for line in (done.stdout + done.stderr).splitlines() if path.stem in line]
    says = _SAYS.get(done.returncode, f"exit code {done.returncode}")
    return Judged(path, says, said[-1] if said else "", time.monotonic() - began)


def as_it_must_be(judged: Judged) -> bool:
    """Whether a wrong kernel was caught, or a right one found right."""
    wanted = ("wrong", "refused") if judged.path.parent == WRONG else ("right",)
    return judged.says in wanted


def _tell(name: str, judged: Iterable[Judged]) -> None:
    judged = list(judged)
    counts = Counter(one.says for one in judged)
    met = sum(map(as_it_must_be, judged))
    print(f"{name}: {met} of {len(judged)} as they must be; {dict(counts)}")
    for one in judged:
        if not as_it_must_be(one):
            print(f"  {one.path.stem}: {one.says}, {one.seconds:.1f} s: {one.line[:200]}")


def main() -> None:
    """Judge both folders, or the files named, and print figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", default="verify", choices=("verify", "bench"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    wanted = parser.parse_args()
    with ThreadPoolExecutor(wanted.jobs) as pool:
        for folder in (WRONG, RIGHT):
            files = [path for path in sorted(folder.glob("*.cu")) if not wanted.files]
            files += [path.resolve() for path in wanted.files if path.resolve().parent == folder]
            if files:
                _tell(folder.name, pool.map(lambda path: judge(path, wanted.command), files))


if __name__ == "__main__":
    main()
