"""`python -m tests.standalone.files FOLDER`: is the time that `bench FILE` prints that of the file?

FOLDER holds other people's files as they were found, in `files/`, and `launches.tsv`, which says
how the author of each launches it: a line with tabs, under a head that has `file`, `options` (what
`bench` is told besides), `in` and `out` (types), `n` and `launch`, in the words of `launched.cuh`.
Each becomes a program that measures just that; the tool and the programs take turns.
It needs a GPU and nvcc.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

from tests.conftest import read_result
from tests.standalone.programs import HERE, compiled, ran

Line = Mapping[str, str]
#: How far apart the two may be.
LIMIT = 0.02


#: A program: the author's file as it is, but for its entry point, and a launch.
TEXT = """#include "{here}/timed.cuh"
#define main author_main
#include "{file}"
#undef main
#define IN {in}
#define OUT {out}
#define COUNT {n}
#define LAUNCH {launch}
#include "{here}/launched.cuh"
"""


def program(line: Line, files: Path, folder: Path) -> Path:
    """The program of a file."""
    source = folder / line["file"].replace("/", "_")
    told = {**line, "here": HERE, "file": files / line["file"]}
    source.write_text(TEXT.format_map(told))
    return compiled(source, source.with_suffix(""))


def by_tool(line: Line, files: Path, folder: Path) -> float | None:
    """What `bench` prints of the file; None if there is no time."""
    path = folder / "run.json"
    ran([
        sys.executable, "-m", "cudareduce", "bench", files / line["file"], "--n", line["n"],
        "--quiet", "--json", path, *shlex.split(line["options"]),
    ])  # fmt: skip
    records = read_result(path.read_text())["records"]
    times = [r["time_us"] for r in records if r["time_us"] and r["aligned_n"] is None]
    return float(times[0]) if times else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="processes of each")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no file after these")
    asked = parser.parse_args()
    files = (asked.folder / "files").resolve()
    with (asked.folder / "launches.tsv").open(newline="") as text:
        lines = list(csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
    near, began = 0, monotonic()
    print(f"{'file':60}{'n':>12}{'alone us':>10}{'bench us':>10}{'ratio':>8}", flush=True)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor() as pool:
        folder = Path(temporary)
        programs = list(pool.map(partial(program, files=files, folder=folder), lines))
        for line, made in zip(lines, programs, strict=True):
            if monotonic() - began < asked.seconds:
                near += is_near(line, made, files, folder, asked.runs)
    print(f"{near} of {len(lines)} within {LIMIT:.0%}, {monotonic() - began:.0f} s")


def is_near(line: Line, made: Path, files: Path, folder: Path, runs: int) -> bool:
    """Whether the two agree about a file, of which a line is printed."""
    alone: list[float] = []
    ours: list[float] = []
    for _ in range(runs):
        alone.append(float(ran([made])))
        us = by_tool(line, files, folder)
        ours += [us] if us else []
    where = f"{line['file'][-59:]:60}{line['n']:>12}{median(alone):10.2f}"
    if not ours:
        print(f"{where} nothing was timed", flush=True)
        return False
    ratio = median(ours) / median(alone)
    print(f"{where}{median(ours):10.2f}{ratio:8.4f}", flush=True)
    return abs(ratio - 1) <= LIMIT


if __name__ == "__main__":
    main()
