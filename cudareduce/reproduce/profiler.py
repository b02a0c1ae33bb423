"""The profiler's own figure for a kernel: Nsight Compute's memory throughput, where it is at hand.

It is the share of its peak that the busiest part of the memory system reaches, shared memory and
caches among them: a measure of how hard memory works, not of how many useful bytes arrive.
"""

from __future__ import annotations

import csv
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backends import BackendSpec, open_timed
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make
from cudareduce.temporary import temporary_folder

_METRIC = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
_CHILD = (
    "import sys; from cudareduce.reproduce.profiler import launch_first_passes as run; "
    "run(sys.argv[1])"
)
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Profile:
    """Memory throughput in per cent by kernel, or why there is none."""

    throughput_pct: dict[str, float]
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class _Task:
    spec: BackendSpec
    cases: tuple[Case, ...]
    n: int
    rows: int
    pattern: str


def profile(spec: BackendSpec, cases: Sequence[Case], n: int, rows: int, pattern: str) -> Profile:
    """Profile the first launch of each case, on `rows` of `n` elements, in a process of its own;
    what goes wrong is in the answer."""
    ncu = shutil.which("ncu")
    if ncu is None:
        return Profile({}, "Nsight Compute (ncu) was not found")
    with temporary_folder() as folder:
        task = Path(folder, "task")
        task.write_bytes(pickle.dumps(_Task(spec, tuple(cases), n, rows, pattern)))
        names = "|".join(case.kernel.entry for case in cases)
        command = [ncu, "--csv", "--clock-control", "none", "--metrics", _METRIC,
                   "--kernel-name", f"regex:^({names})$", sys.executable, "-c", _CHILD,
                   str(task)]  # fmt: skip
        root = str(Path(__file__).resolve().parent.parent.parent)
        path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S,
                env=os.environ | {"PYTHONPATH": path},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Profile({}, f"Nsight Compute did not answer within {_TIMEOUT_S} s")
    found = parse(done.stdout)
    if found:
        return Profile(found)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "ERR" in line.upper()]
    return Profile({}, f"Nsight Compute gave no figures: {said[0] if said else 'no reason given'}")


def parse(text: str) -> dict[str, float]:
    """The metric in per cent of each kernel's first launch in ncu's CSV, which follows lines of its
    own."""
    lines = text.splitlines()
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, float] = {}
    for row in csv.DictReader(lines[start:]):
        if row.get("Metric Name") == _METRIC:
            name = row["Kernel Name"].partition("(")[0].strip()
            found.setdefault(name, float(row["Metric Value"].replace(",", "")))
    return found


def launch_first_passes(path: str) -> None:
    """The child: launch the first pass of each case once."""
    task: _Task = pickle.loads(Path(path).read_bytes())
    with open_timed(task.spec) as backend:
        limits = backend.limits()
        data = make(task.pattern, task.cases[0].reduction, task.n, task.rows)
        given = backend.upload(data)
        plans = {case: case.plan(task.n, task.rows, limits) for case in task.cases}
        for case, programs in programs_of(backend, plans).items():
            Bound(backend, plans[case], programs, given).run_first()
        backend.synchronize()
