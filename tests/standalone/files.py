"""Compare `bench FILE.cu` with a program that only makes the author's launches.

`python -m tests.standalone.files FOLDER` takes external kernel files in FOLDER/files and the
launches of each author in FOLDER/launches.tsv, a table with tabs and these columns:

- file: its path in FOLDER/files
- kernel: its name in the table that `bench` prints
- options: more options of `bench`
- n: elements
- in, out: C++ types of the elements and of the results
- launch: everything that the host code enqueues for one reduction, in C++: kernel launches,
  memsets and copies on the device. It may use `in`, `in2`, `out`, the arrays `a` and `b` (n
  results each), `n`, `sms` (multiprocessors of the GPU) and `stream`.

Programs and `bench` take turns in fresh processes; their medians are compared. Needs a GPU and
nvcc. Exits with 1 if a file is further apart than 2 %.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic

from tests.conftest import read_result
from tests.standalone.programs import HERE, compiled, ran

#: The largest difference that is accepted.
LIMIT = 0.02

#: The author's file, unchanged but for the name of main(), and a main() that times the launches.
PROGRAM = """#include "{timed}"
#define main author_main
#include "{path}"
#undef main

int main()
{{
    int sms = 0;
    alone::checked(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    const float us = alone::timed([sms](alone::Memory &memory, cudaStream_t stream) {{
        const int n = {n};
        {type_in} *in = memory.filled<{type_in}>(n, stream);
        {type_in} *in2 = memory.filled<{type_in}>(n, stream);
        {type_out} *out = memory.of<{type_out}>(n);
        {type_out} *a = memory.of<{type_out}>(n), *b = memory.of<{type_out}>(n);
        return [=] {{ {launch}; }};
    }});
    printf("%.4f\\n", us);
    return 0;
}}
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of launches.tsv; `file` is the whole path."""

    file: Path
    kernel: str
    options: str
    n: int
    type_in: str
    type_out: str
    launch: str


def read_lines(folder: Path) -> list[Line]:
    """The lines of FOLDER/launches.tsv."""
    with (folder / "launches.tsv").open(newline="") as text:
        return [
            Line(
                (folder / "files" / row["file"]).resolve(), row["kernel"], row["options"],
                int(row["n"]), row["in"], row["out"], row["launch"],
            )
            for row in csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]  # fmt: skip


def program(line: Line, folder: Path) -> Path:
    """Compile the program of a line."""
    source = folder / line.file.name
    source.write_text(
        PROGRAM.format(
            timed=HERE / "timed.cuh", path=line.file, n=line.n, type_in=line.type_in,
            type_out=line.type_out, launch=line.launch,
        )
    )  # fmt: skip
    return compiled(source, source.with_suffix(""))


def bench(
    lines: Sequence[Line], folder: Path, rounds: int, seconds: float
) -> dict[str, float]:  # fmt: skip
    """The times in us that one `bench` of these lines reports, by kernel. They have the same n and
    options; `seconds` is the time limit."""
    path = folder / "run.json"
    path.unlink(missing_ok=True)
    command = [
        sys.executable, "-m", "cudareduce", "bench", *dict.fromkeys(line.file for line in lines),
        "--n", lines[0].n, "--rounds", rounds, "--max-time", f"{max(5.0, seconds):.0f}",
        "--quiet", "--json", path, *shlex.split(lines[0].options),
    ]  # fmt: skip
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if not path.exists():
        print((done.stderr or done.stdout).strip()[-500:], flush=True)
        return {}
    kernels = {line.kernel for line in lines}
    times: dict[str, float] = {}
    for record in read_result(path.read_text())["records"]:
        if record["kernel"] not in kernels or record["aligned_n"] is not None:
            continue
        if record["time_us"]:
            times[record["kernel"]] = record["time_us"]
        else:
            print(record["kernel"], record["verdict"], record["reason"], flush=True)
    return times


def report(
    lines: Sequence[Line], alone: Mapping[str, list[float]], ours: Mapping[str, list[float]]
) -> int:
    """Print a line for each file; the number of files whose two times are near."""
    near = 0
    print(f"{'file':40}{'n':>12}{'program us':>12}{'bench us':>12}{'ratio':>8}")
    for line in lines:
        name = f"{line.file.name[-39:]:40}{line.n:12}{median(alone[line.kernel]):12.2f}"
        if not ours[line.kernel]:
            print(f"{name} not timed by bench")
            continue
        ratio = median(ours[line.kernel]) / median(alone[line.kernel])
        near += abs(ratio - 1) <= LIMIT
        print(f"{name}{median(ours[line.kernel]):12.2f}{ratio:8.4f}")
    return near


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=3, help="processes of each")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each `bench`")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of the whole run")
    options = parser.parse_args()
    lines = read_lines(options.folder)
    groups: dict[tuple[int, str], list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.n, line.options].append(line)
    alone: dict[str, list[float]] = defaultdict(list)
    ours: dict[str, list[float]] = defaultdict(list)
    start, turns, longest = monotonic(), 0, 0.0
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor() as pool:
        folder = Path(temporary)
        programs = list(pool.map(partial(program, folder=folder), lines))
        print(f"compiled after {monotonic() - start:.0f} s", flush=True)
        while turns < options.runs:
            begin = monotonic()
            if turns and begin - start + longest > options.seconds:
                break
            for line, made in zip(lines, programs, strict=True):
                alone[line.kernel].append(float(ran([made])))
            print(f"programs run after {monotonic() - start:.0f} s", flush=True)
            for group in groups.values():
                left = options.seconds - (monotonic() - start)
                for kernel, us in bench(group, folder, options.rounds, left).items():
                    ours[kernel].append(us)
            turns, longest = turns + 1, max(longest, monotonic() - begin)
            print(f"turn {turns} ended after {monotonic() - start:.0f} s", flush=True)
    near = report(lines, alone, ours)
    print(f"{near} of {len(lines)} within {LIMIT:.0%}: medians of {turns} processes each")
    sys.exit(near < len(lines))


if __name__ == "__main__":
    main()
