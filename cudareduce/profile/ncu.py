"""Nsight Compute over the first launch of each case: what it was asked to count, or why not.

It watches a child process that launches nothing else, restores memory and empties the caches before
each of its passes, and leaves the clocks as they are.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.profile.child import Task, launch_all
from cudareduce.profile.permission import ALLOW, INSTALL_NCU
from cudareduce.temporary import temporary_folder
from cudareduce.workers import python_command, running_tool

_DENIED, _UNKNOWN, _NONE = "ERR_NVGPUCTRPERM", "Failed to find metric", "No kernels were profiled"
#: Of a wide table the columns that are no metrics; in a long one a metric is a row.
_NAME, _METRIC, _VALUE, _UNIT = "Kernel Name", "Metric Name", "Metric Value", "Metric Unit"
#: More is no count.
_MOST = 1e30
#: Units that it prints where it is not asked for plain ones, in ns and bytes.
_SCALES = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launch:
    """What was counted of one launch, by the metrics' own names."""

    kernel: str
    counted: dict[str, float]


@dataclass(frozen=True, slots=True)
class Profiled:
    """A launch for each case, or None and the reason; and metrics that this ncu does not know."""

    launches: tuple[Launch | None, ...]
    reasons: tuple[str, ...]
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Said:
    """What a run of ncu printed, and why its child could not launch some cases, by their
    numbers."""

    text: str
    failed: dict[int, str] = field(default_factory=dict)


def find_ncu() -> str:
    """Where it is. Raises EnvironmentProblem."""
    found = shutil.which("ncu")
    if found is None:
        raise EnvironmentProblem(
            f"ncu was not found: install {INSTALL_NCU} and put its folder on the PATH"
        )
    return found


def profiled(task: Task, metrics: Collection[str], deadline: Deadline) -> Profiled:
    """Count metrics of the first launch of each case; without those that ncu does not know it is
    asked again. Raises EnvironmentProblem if it counts nothing."""
    ncu, unknown = find_ncu(), set[str]()
    while True:
        asked = [metric for metric in metrics if metric not in unknown]
        said = _run(ncu, task, asked, deadline)
        launches = list(parse(said.text))
        refused = refused_in(said.text, asked)
        unknown |= refused
        if launches or not refused or len(refused) == len(asked):
            break
    if not launches and len(said.failed) < len(task.cases):
        raise EnvironmentProblem(_why_nothing(said.text))
    found = _by_case(task, launches)
    reasons = [
        said.failed.get(k, "ncu profiled no launch of it") if one is None else ""
        for k, one in enumerate(found)
    ]
    return Profiled(tuple(found), tuple(reasons), frozenset(unknown))


def _run(ncu: str, task: Task, metrics: Sequence[str], deadline: Deadline) -> _Said:
    names = "|".join(dict.fromkeys(case.kernel.entry for case in task.cases))
    with temporary_folder() as folder:
        log, failed = Path(folder, "log"), Path(folder, "task.failed")
        command = [
            ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
            "--cache-control", "all", "--kernel-name-base", "function",
            "--kernel-name", f"regex:^({names})$", "--metrics", ",".join(metrics),
            *python_command(launch_all, (task, failed), Path(folder, "task")),
        ]  # fmt: skip
        try:
            with (
                log.open("wb") as out,
                running_tool(command, out, subprocess.STDOUT, LC_ALL="C.UTF-8") as process,
            ):
                process.wait(None if deadline.seconds is None else deadline.left_s)
        except subprocess.TimeoutExpired:
            raise EnvironmentProblem(
                f"ncu did not end within {deadline.seconds:g} s: give a larger --max-time, a "
                "smaller --n or fewer kernels"
            ) from None
        lines = failed.read_text(encoding="utf-8").splitlines() if failed.exists() else []
        pairs = (line.partition(" ") for line in lines)
        return _Said(
            log.read_text(encoding="utf-8", errors="replace"),
            {int(number): reason for number, _, reason in pairs},
        )


def parse(text: str) -> Iterator[Launch]:
    """The launches in ncu's CSV, which follows lines of its own: a launch a row, below a row of
    units, or a metric a row. What is no number, as `n/a`, is left out."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    found: dict[str, Launch] = {}
    units: dict[str, str] = {}
    for row in csv.DictReader(lines[start:]):
        number, name = row.get("ID") or "", row.get(_NAME) or ""
        if not number:
            units = {key: str(value) for key, value in row.items() if isinstance(key, str)}
            continue
        launch = found.setdefault(number, Launch(name.partition("(")[0].strip(), {}))
        cells = dict(row)
        if _METRIC in row:
            metric = str(row[_METRIC])
            cells, units = {metric: row.get(_VALUE)}, {metric: str(row.get(_UNIT))}
        for metric, cell in cells.items():
            value = _number(cell) if isinstance(metric, str) and "__" in metric else None
            if value is not None:
                launch.counted[metric] = value * _SCALES.get(units.get(metric, ""), 1.0)
    yield from found.values()


def _number(cell: object) -> float | None:
    try:
        value = float(str(cell).replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < _MOST else None


def _by_case(task: Task, launches: Sequence[Launch]) -> list[Launch | None]:
    """Cases are launched in their order, once each."""
    left, found = list(launches), list[Launch | None]()
    for case in task.cases:
        entry = case.kernel.entry
        mine = next((k for k, each in enumerate(left) if each.kernel == entry), None)
        found.append(None if mine is None else left.pop(mine))
    return found


def refused_in(text: str, metrics: Sequence[str]) -> set[str]:
    """The metrics that ncu says it does not know; it names them whole, or as a pattern of what
    stands before the first point."""
    found = set()
    for line in text.splitlines():
        if _UNKNOWN in line:
            said = line.partition(_UNKNOWN)[2].strip().removeprefix("regex:^")
            base = "".join(takewhile(lambda letter: letter.isalnum() or letter == "_", said))
            whole = {metric for metric in metrics if metric == said}
            found |= whole or {metric for metric in metrics if metric.partition(".")[0] == base}
    return found


def _why_nothing(text: str) -> str:
    """A sentence on why nothing was counted, and what to do about it."""
    if _DENIED in text:
        return ALLOW
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if "==ERROR==" in line]
    if not errors and _NONE in text:
        return "ncu saw no launch: see whether cudareduce bench runs this kernel on this GPU"
    said = (errors or [line for line in reversed(lines) if not line.startswith("==")])[:1]
    why = said[0].rstrip(".") if said else "it printed nothing"
    return f"ncu counted nothing: {why}; cudareduce info says what this machine can run"
