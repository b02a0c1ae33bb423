"""Runs Nsight Compute on the first launch of each case, and reads the counters.

It profiles a process that launches nothing else. It restores memory and flushes caches before each
of its passes, and leaves the clocks as they are.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from cudareduce.backends.protocol import TimedBackend
from cudareduce.backends.selection import BackendSpec, open_timed
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError, EnvironmentProblem, KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.launch.plan import Plan
from cudareduce.reduction.inputs import Array, make_all
from cudareduce.temporary import temporary_folder
from cudareduce.workers import python_command, running_tool

#: Results of `counters`: unknown to the driver, or restricted to root.
UNKNOWN, ADMINISTRATORS = "not found", "for administrators only"
INSTALL_NCU = "Nsight Compute (Debian: apt-get install nsight-compute)"
ALLOW = (
    "hardware counters are for administrators only: run as root (in a container with "
    "--cap-add=SYS_ADMIN), or write 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' to "
    "/etc/modprobe.d/nvidia.conf and reload the driver"
)
_PARAMETERS = Path("/proc/driver/nvidia/params")


def counters() -> str:
    """Who may read hardware counters, according to the driver."""
    try:
        text = _PARAMETERS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return UNKNOWN
    return ADMINISTRATORS if "RmProfilingAdminOnly: 1" in text else "for all users"


#: Utilization of the busiest part of the memory system, including caches and shared memory, in
#: percent of peak.
MEMORY_PCT = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"

_OF_PEAK = "avg.pct_of_peak_sustained_elapsed"
_WAITS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_LOADS = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
#: The metrics by short name: times in ns, sizes in bytes, fractions in percent.
METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "dram_pct": f"gpu__dram_throughput.{_OF_PEAK}",
    "l2_pct": f"lts__throughput.{_OF_PEAK}",
    "sm_pct": f"sm__throughput.{_OF_PEAK}",
    "memory_pct": MEMORY_PCT,
    "warps_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps_possible_pct": "sm__maximum_warps_per_active_cycle_pct",
    "threads": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "lanes": "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "sectors": _LOADS.format("sectors"),
    "requests": _LOADS.format("requests"),
    "barrier_cycles": _WAITS.format("barrier"),
    "memory_cycles": _WAITS.format("long_scoreboard"),
    "cycles": "smsp__average_warp_latency_per_inst_issued.ratio",
    "instructions": "smsp__inst_executed.sum",
    "registers": "launch__registers_per_thread",
    "adds_a_cycle": "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained",
    "sm_cycles_a_s": "sm__cycles_elapsed.avg.per_second",
    "dram_bytes_a_cycle": "dram__bytes.sum.peak_sustained",
    "dram_cycles_a_s": "dram__cycles_elapsed.avg.per_second",
}
SECTOR_BYTES = 32


def launch_values(plan: Plan, counted: Mapping[str, float]) -> dict[str, float]:
    """The values of a plan's first launch by short name: counters, and values derived from them as
    far as possible. Empty without a launch."""
    if not plan.passes or not counted:
        return {}
    problem = plan.problem
    short = {key: counted[name] for key, name in METRICS.items() if name in counted}
    return short | dict(_derived(short, problem.elements, problem.input_bytes, _results(plan)))


def _results(plan: Plan) -> int:
    """Bytes that the first launch writes: partial results and results."""
    reduction = plan.problem.reduction
    if len(plan.passes) > 1:
        return plan.passes[0].grid * reduction.acc_size
    return plan.scratch.get("partials", 0) + plan.outputs * reduction.result_size


def _derived(
    got: Mapping[str, float], elements: int, needed: float, results: float
) -> Iterator[tuple[str, float]]:
    def have(*names: str) -> bool:
        return all(got.get(name) is not None for name in names)

    if have("read"):
        yield "read_share", got["read"] / needed
    if have("written"):
        yield "written_share", got["written"] / results
    if have("wavefronts", "conflicts") and 0 < got["wavefronts"] > got["conflicts"]:
        yield "turns", got["wavefronts"] / (got["wavefronts"] - got["conflicts"])
    if have("sectors", "requests") and got["requests"]:
        yield "sectors_a_request", got["sectors"] / got["requests"]
        yield "sector_share", got["sectors"] * SECTOR_BYTES / needed
    if have("cycles") and got["cycles"]:
        for what in ("barrier", "memory"):
            if have(f"{what}_cycles"):
                yield f"{what}_wait_pct", 100 * got[f"{what}_cycles"] / got["cycles"]
    if have("instructions"):
        yield "instructions_a_warp_of_elements", 32 * got["instructions"] / elements
    if have("time_ns") and got["time_ns"]:
        yield "gb_s", needed / got["time_ns"]


@dataclass(frozen=True, slots=True)
class Task:
    """The launches to profile: each case on `rows` rows of `n` elements of a pattern."""

    spec: BackendSpec
    cases: tuple[Case, ...]
    n: int
    rows: int
    pattern: str = "random"


def launch_all(job: tuple[Task, Path]) -> None:
    """Launch each case of a task once. Writes a line with number and reason to the job's file for
    each case that could not be launched."""
    task, failures = job
    failed = []
    inputs = {
        reduction: make_all(task.pattern, reduction, task.n, task.rows)
        for reduction in dict.fromkeys(case.reduction for case in task.cases)
    }
    with open_timed(task.spec) as backend:
        for number, case in enumerate(task.cases):
            try:
                _launch(backend, case, task, inputs[case.reduction])
            except CudareduceError as error:
                failed.append(f"{number} {' '.join(str(error).split())}\n")
                if isinstance(error, KernelFault):  # this process cannot launch any more
                    break
    failures.write_text("".join(failed), encoding="utf-8")


def _launch(backend: TimedBackend, case: Case, task: Task, inputs: tuple[Array, ...]) -> None:
    plan = case.plan(task.n, task.rows, backend.limits())
    programs = programs_of(backend, {case: plan})[case]
    buffers = [backend.upload(array) for array in inputs]
    bound = Bound(backend, plan, programs, buffers[0], other=buffers[1] if buffers[1:] else None)
    bound.run_before()
    bound.run_first()
    backend.synchronize()
    bound.release()
    backend.free(*buffers)


_DENIED, _UNKNOWN, _NONE = "ERR_NVGPUCTRPERM", "Failed to find metric", "No kernels were profiled"
#: Columns of a wide table that are not metrics. (A long table has one row per metric.)
_NAME, _METRIC, _VALUE, _UNIT = "Kernel Name", "Metric Name", "Metric Value", "Metric Unit"
#: Larger values are invalid.
_MOST = 1e30
#: Units that ncu may print in spite of --print-units base, in ns and bytes.
_SCALES = {
    "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9,
    "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launch:
    """Counters of one launch by the name of the metric."""

    kernel: str
    counted: dict[str, float]


@dataclass(frozen=True, slots=True)
class Profiled:
    """A launch for each case, or None and the reason; and metrics unknown to this ncu."""

    launches: tuple[Launch | None, ...]
    reasons: tuple[str, ...]
    unknown: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Output:
    """The output of ncu, and why some cases, by number, could not be launched."""

    text: str
    failed: dict[int, str] = field(default_factory=dict)


def find_ncu() -> str:
    """The path of ncu. Raises EnvironmentProblem if it is not installed."""
    path = shutil.which("ncu")
    if path is None:
        raise EnvironmentProblem(
            f"ncu was not found: install {INSTALL_NCU} and put its folder on the PATH"
        )
    return path


def count_metrics(task: Task, metrics: Collection[str], deadline: Deadline) -> Profiled:
    """Count metrics of the first launch of each case. If ncu does not know some, it runs again
    without them. Raises EnvironmentProblem if it counts nothing."""
    ncu, unknown = find_ncu(), set[str]()
    while True:
        supported = [metric for metric in metrics if metric not in unknown]
        output = _run(ncu, task, supported, deadline)
        launches = list(parse(output.text))
        refused = unknown_metrics(output.text, supported)
        unknown |= refused
        if launches or not refused or len(refused) == len(supported):
            break
    if not launches and len(output.failed) < len(task.cases):
        raise EnvironmentProblem(_why_no_counts(output.text))
    by_case = _by_case(task, launches)
    reasons = [
        output.failed.get(k, "ncu profiled no launch of it") if one is None else ""
        for k, one in enumerate(by_case)
    ]
    return Profiled(tuple(by_case), tuple(reasons), frozenset(unknown))


def _run(ncu: str, task: Task, metrics: Sequence[str], deadline: Deadline) -> _Output:
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
        return _Output(
            log.read_text(encoding="utf-8", errors="replace"),
            {int(number): reason for number, _, reason in pairs},
        )


def parse(text: str) -> Iterator[Launch]:
    """The launches in ncu's CSV, which follows its log: one row per launch below a row of units, or
    one row per metric. Values that are not numbers, such as `n/a`, are omitted."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    start = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    launches: dict[str, Launch] = {}
    units: dict[str, str] = {}
    for row in csv.DictReader(lines[start:]):
        number, name = row.get("ID") or "", row.get(_NAME) or ""
        if not number:
            units = {key: str(value) for key, value in row.items() if isinstance(key, str)}
            continue
        launch = launches.setdefault(number, Launch(name.partition("(")[0].strip(), {}))
        cells = dict(row)
        if _METRIC in row:
            metric = str(row[_METRIC])
            cells, units = {metric: row.get(_VALUE)}, {metric: str(row.get(_UNIT))}
        for metric, cell in cells.items():
            value = _number(cell) if isinstance(metric, str) and "__" in metric else None
            if value is not None:
                launch.counted[metric] = value * _SCALES.get(units.get(metric, ""), 1.0)
    yield from launches.values()


def _number(cell: object) -> float | None:
    try:
        value = float(str(cell).replace(",", ""))
    except ValueError:
        return None
    return value if 0 <= value < _MOST else None


def _by_case(task: Task, launches: Sequence[Launch]) -> list[Launch | None]:
    """The launch of each case, in order; each case is launched once."""
    left, matched = list(launches), list[Launch | None]()
    for case in task.cases:
        entry = case.kernel.entry
        index = next((k for k, each in enumerate(left) if each.kernel == entry), None)
        matched.append(None if index is None else left.pop(index))
    return matched


def unknown_metrics(text: str, metrics: Sequence[str]) -> set[str]:
    """The metrics that ncu does not know. It names them in full, or as a pattern of the part before
    the first dot."""
    unknown = set()
    for line in text.splitlines():
        if _UNKNOWN in line:
            name = line.partition(_UNKNOWN)[2].strip().removeprefix("regex:^")
            base = "".join(takewhile(lambda letter: letter.isalnum() or letter == "_", name))
            whole = {metric for metric in metrics if metric == name}
            unknown |= whole or {metric for metric in metrics if metric.partition(".")[0] == base}
    return unknown


def _why_no_counts(text: str) -> str:
    """Why ncu counted nothing, and the remedy."""
    if _DENIED in text:
        return ALLOW
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if "==ERROR==" in line]
    if not errors and _NONE in text:
        return "ncu saw no launch: see whether cudareduce bench runs this kernel on this GPU"
    first_error = (errors or [line for line in reversed(lines) if not line.startswith("==")])[:1]
    why = first_error[0].rstrip(".") if first_error else "it printed nothing"
    return f"ncu counted nothing: {why}; cudareduce info says what this machine can run"


_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class MemoryThroughput:
    """Memory throughput in percent of peak by kernel, or the reason why there is none."""

    throughput_pct: dict[str, float]
    why_not: str = ""


def memory_throughput(
    spec: BackendSpec, cases: Sequence[Case], n: int, rows: int, pattern: str
) -> MemoryThroughput:
    """Profile the first launch of each case on `rows` rows of `n` elements. Errors are part of the
    result."""
    task = Task(spec, tuple(cases), n, rows, pattern)
    try:
        done = count_metrics(task, [MEMORY_PCT], Deadline(_LIMIT_S))
    except EnvironmentProblem as problem:
        return MemoryThroughput({}, str(problem))
    counted = {
        launch.kernel: launch.counted[MEMORY_PCT]
        for launch in reversed(done.launches) if launch and MEMORY_PCT in launch.counted
    }  # fmt: skip
    return MemoryThroughput(
        counted, "" if counted else next(filter(None, done.reasons), "no figures")
    )
