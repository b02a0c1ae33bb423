"""`python -m tests.standalone.nccl`: is the `loop us` of `collective` what nccl-tests would print?

A C++ program measures NCCL's all-reduce as nccl-tests does, launched by the host and by graphs
(-G), with the library that the tool takes, and once more in a stream that is held back until all
calls are in it; it and `cudareduce collective all-reduce --engine nccl` take turns. The tool's
calls wait behind a gate as well, so it is these that they are compared with; where a call takes
longer than its launch, nccl-tests prints the same. It needs two GPUs and nvcc.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from statistics import median

from cudareduce.collectives.nccl import FILE_NAME
from cudareduce.machine import packaged
from tests.conftest import read_result
from tests.standalone.programs import HERE, compiled, ran

SIZES = tuple(2**k for k in range(10, 29, 2))
#: What the C++ program prints of a size, in us.
WAYS = ("by host", "by graphs", "held back")
#: How far apart the last of them and the tool may be.
LIMIT = 0.03


def program(folder: Path, library: Path) -> Path:
    """The C++ program, linked with that library."""
    headers = library.parents[1] / "include"
    return compiled(HERE / "nccl_loop.cu", folder / "nccl_loop", "-I", headers,
                    f"-Xlinker={library},-rpath={library.parent}")  # fmt: skip


def by_tool(folder: Path, library: Path) -> dict[int, float]:
    """The `loop us` of each size."""
    path = folder / "run.json"
    ran([
        sys.executable, "-m", "cudareduce", "collective", "all-reduce", "--engine", "nccl",
        "--nccl", library, "--n", ",".join(map(str, SIZES)), "--quiet", "--json", path,
    ])  # fmt: skip
    return {r["n"]: r["loop_us"] for r in read_result(path.read_text())["records"] if r["loop_us"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="processes of each")
    asked = parser.parse_args()
    library = next(iter(packaged(f"lib/{FILE_NAME}")), None)
    if library is None:
        sys.exit("no NCCL with headers was found: pip install nvidia-nccl-cu13")
    taken: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = program(folder, library)
        for _ in range(asked.runs):
            lines = [line.split() for line in ran([made, *SIZES]).splitlines() if line[0].isdigit()]
            for n, *found in lines:
                for name, us in zip(WAYS, found, strict=True):
                    taken.setdefault((name, int(n)), []).append(float(us))
            for size, loop_us in by_tool(folder, library).items():
                taken.setdefault(("loop", size), []).append(loop_us)
    print("".join(f"{name:>12}" for name in ("n", *WAYS, "loop", "ratio")))
    near = 0
    for n in SIZES:
        medians = [median(taken[name, n]) for name in (*WAYS, "loop")]
        ratio = medians[-1] / medians[-2]
        near += abs(ratio - 1) <= LIMIT
        print(f"{n:12}" + "".join(f"{each:12.2f}" for each in medians) + f"{ratio:12.4f}")
    print(f"{near} of {len(SIZES)} within {LIMIT:.0%}")


if __name__ == "__main__":
    main()
