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
import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

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
    records = json.loads(path.read_text())["records"]
    times = [r["time_us"] for r in records if r["time_us"] and r["aligned_n"] is None]
    return float(times[0]) if times else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="processes of each")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no turn after these")
    asked = parser.parse_args()
    files = (asked.folder / "files").resolve()
    with (asked.folder / "launches.tsv").open(newline="") as text:
        lines = list(csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE))
    alone: list[list[float]] = [[] for _ in lines]
    ours: list[list[float]] = [[] for _ in lines]
    began = monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ThreadPoolExecutor() as pool:
            programs = list(pool.map(partial(program, files=files, folder=folder), lines))
        for _ in range(asked.runs):
            if monotonic() - began > asked.seconds:
                break
            for line, made, of_it, of_ours in zip(lines, programs, alone, ours, strict=True):
                of_it.append(float(ran([made])))
                us = by_tool(line, files, folder)
                of_ours += [us] if us else []
    report(lines, alone, ours)
    print(f"{monotonic() - began:.0f} s")


def report(lines: Sequence[Line], alone: list[list[float]], ours: list[list[float]]) -> None:
    """A line for each file, and how many are near enough."""
    near = 0
    print(f"{'file':60}{'n':>12}{'alone us':>10}{'bench us':>10}{'ratio':>8}")
    for line, of_it, of_ours in zip(lines, alone, ours, strict=True):
        where = f"{line['file'][-59:]:60}{line['n']:>12}"
        if not of_ours:
            print(f"{where} nothing was timed")
            continue
        ratio = median(of_ours) / median(of_it)
        near += abs(ratio - 1) <= LIMIT
        print(f"{where}{median(of_it):10.2f}{median(of_ours):10.2f}{ratio:8.4f}")
    print(f"{near} of {len(lines)} within {LIMIT:.0%}")


if __name__ == "__main__":
    main()
