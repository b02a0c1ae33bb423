"""`python -m tests.standalone.libraries`: is a library's time here what its users would measure?

CUB by a C++ program, PyTorch by a script, each with the same flush and the same events as the tool
and with other code between launches, as a table has it; and `cudareduce bench --peers cub,torch`:
fresh processes of each, taking turns, medians compared.
It needs a GPU, nvcc and PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

from cudareduce.libraries import cccl
from tests.conftest import read_result
from tests.standalone.programs import HERE, compiled, ran

#: What stands for whom: rows of the tool, and the programs beside it.
ROWS = {"peer:cub:run_to_run": "C++", "peer:torch": "script"}
Found = dict[tuple[str, int], float]


def told(name: str, command: Sequence[object], sizes: Sequence[int]) -> Found:
    """Medians by a program that prints them."""
    lines = ran([*command, *sizes]).split("\n")
    return {(name, int(n)): float(us) for n, us in (line.split() for line in lines if line)}


def by_tool(folder: Path, sizes: Sequence[int], rounds: int) -> Found:
    """Medians of the tool's rows in the primary context."""
    path = folder / "run.json"
    ran([
        sys.executable, "-m", "cudareduce", "bench", "reduce_v7_shuffle", "--quiet", "--peers",
        "cub,torch", "--rounds", rounds, "--json", path, "--n", ",".join(map(str, sizes)),
    ])  # fmt: skip
    records = read_result(path.read_text())["records"]
    return {
        (r["kernel"], r["n"]): r["time_us"] for r in records
        if r["kernel"] in ROWS and r["time_us"] and r["aligned_n"] is None
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes of each")
    parser.add_argument("--n", default="33554432,268435456", help="elements")
    parser.add_argument("--rounds", type=int, default=6, help="of the tool")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no turn after these")
    asked = parser.parse_args()
    sizes = [int(n) for n in asked.n.split(",")]
    began, turns, longest = monotonic(), 0, 0.0
    taken: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        headers = cccl.newest_headers().folders[0]
        program = compiled(HERE / "cub.cu", folder / "cub", "-I", headers)
        ways: list[Callable[[], Found]] = [
            partial(told, "C++", [program], sizes),
            partial(told, "script", [sys.executable, HERE / "with_torch.py"], sizes),
            partial(by_tool, folder, sizes, asked.rounds),
        ]
        while turns < asked.runs:
            start = monotonic()
            if start - began + longest > asked.seconds:
                break
            for way in ways[:: -1 if turns % 2 else 1]:
                for key, us in way().items():
                    taken.setdefault(key, []).append(us)
            longest, turns = max(longest, monotonic() - start), turns + 1
    report(taken, sizes)
    if turns < asked.runs:
        print(f"{turns} processes of each, there was no time for {asked.runs}")
    print(f"{monotonic() - began:.0f} s")


def report(taken: dict[tuple[str, int], list[float]], sizes: Sequence[int]) -> None:
    """A line for each library and size."""
    print(f"{'library':22}{'n':>12}{'alone us':>10}{'low':>8}{'high':>8}{'bench us':>10}{'low':>8}"
          f"{'high':>8}{'ratio':>8}")  # fmt: skip
    for n in sizes:
        for row, program in ROWS.items():
            alone, ours = taken.get((program, n)), taken.get((row, n))
            if not alone or not ours:
                print(f"{row:22}{n:12} nothing was timed")
                continue
            cells = "".join(
                f"{median(us):10.2f}{min(us):8.2f}{max(us):8.2f}" for us in (alone, ours)
            )
            print(f"{row:22}{n:12}{cells}{median(ours) / median(alone):8.4f}")


if __name__ == "__main__":
    main()
