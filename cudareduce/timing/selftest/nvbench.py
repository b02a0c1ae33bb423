"""Times launches with NVIDIA's NVBench, if the `cuda-bench` package is installed.

It runs in a child process, since its library prints and ends the process on errors.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudareduce.backends.selection import BackendSpec, open_timed
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.reduction.inputs import make
from cudareduce.workers import Exited, Limit, Parent, Raised, Returned, WorkerPool

#: Samples per benchmark; number and duration in s of warm-up launches. After the default of one
#: warm-up launch the clock of an idle GPU is still low.
_SAMPLES, _WARM_UPS, _WARM_UP_S = 300, 2000, 0.5
#: Time limit of the child process.
_LIMIT_S = 120.0
#: Keys of the cold time in result files, in order of preference.
_TAGS = ("nv/cold/time/gpu/median", "nv/cold/time/gpu/mean")


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream with the protocol that NVBench expects."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def why_no_nvbench() -> str | None:
    """Why NVBench cannot run, or None."""
    if importlib.util.find_spec("cuda") and importlib.util.find_spec("cuda.bench"):
        return None
    return "NVBench is missing, times are not compared with it: pip install 'cudareduce[nvbench]'"


def measure_cold_times(
    spec: BackendSpec, cases: Sequence[tuple[Case, int]], seed: int, deadline: Deadline
) -> list[float]:
    """NVBench's cold time in us of each case and size. Raises EnvironmentProblem if no time is
    left, or if it fails."""
    if deadline.passed:
        raise EnvironmentProblem("no time was left for NVBench")
    limit_s = min(_LIMIT_S, deadline.left_s)
    with WorkerPool(Parent.itself, fresh=True) as pool:
        job = spec, tuple(cases), seed
        event = pool.worker().call(_measured, job, Limit(limit_s))
    match event:
        case Returned(times):
            return list(times)
        case Raised(error):
            why = str(error).removeprefix("internal error: ")
        case Exited(code):
            why = f"its process ended with code {code}"
        case _:
            why = f"no result after {limit_s:.1f} s"
    raise EnvironmentProblem(f"NVBench failed: {why}")


def _measured(
    parent: Parent, job: tuple[BackendSpec, tuple[tuple[Case, int], ...], int]
) -> list[float]:
    spec, cases, seed = job
    with open_timed(spec) as backend, tempfile.TemporaryDirectory() as folder:
        import cuda.bench

        for k, (case, n) in enumerate(cases):
            plan = case.plan(n, 1, backend.limits())
            programs = programs_of(backend, {case: plan})[case]
            data = make("random", case.reduction, n, 1, seed)
            bound = Bound(backend, plan, programs, backend.upload(data))
            bound.run()  # loads the kernel, which would wait forever for NVBench's blocking kernel
            backend.synchronize()
            benchmark = cuda.bench.register(_benchmark(bound, _Stream(backend.stream_handle)))
            benchmark.set_name(f"case{k}")
            benchmark.set_stopping_criterion("sample-count")
            benchmark.set_criterion_param_int64("target-samples", _SAMPLES)
            benchmark.set_cold_warmup_runs(_WARM_UPS)
            benchmark.set_cold_max_warmup_walltime(_WARM_UP_S)
        path = Path(folder, "result.json")
        device = str(spec.device)
        cuda.bench.run_all_benchmarks(["nvbench", "--devices", device, "--json", str(path)])
        return times(json.loads(path.read_text(encoding="utf-8")), len(cases))


def _benchmark(bound: Bound, stream: _Stream) -> Callable[[Any], None]:
    def benchmark(state: Any) -> None:
        state.set_stream(stream)
        state.exec(lambda launch: bound.run(), batched=False)

    return benchmark


def times(result: dict[str, Any], count: int) -> list[float]:
    """The time in us of each of `count` cases in a result file. Raises RuntimeError if one is
    missing."""
    states = {entry["name"]: entry["states"][0] for entry in result["benchmarks"]}
    times_us = []
    for k in range(count):
        summaries = {one["tag"]: one["data"] for one in states[f"case{k}"].get("summaries") or ()}
        tag = next((tag for tag in _TAGS if tag in summaries), None)
        if tag is None:
            reason = states[f"case{k}"].get("skip_reason") or "it accepted no sample"
            raise RuntimeError(f"it has no time of case {k}: {reason}")
        seconds = next(item["value"] for item in summaries[tag] if item["name"] == "value")
        times_us.append(1e6 * float(seconds))
    return times_us
