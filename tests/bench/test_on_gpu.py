"""What measuring claims, shown on a GPU. Skipped, with the reason, where there is none."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from cudareduce.backends.cuda import driver
from cudareduce.backends.cuda.cuda import CudaBackend
from cudareduce.backends.protocol import Launch
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.bench.jobs import Jobs
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import load_kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, Prepared, planned, programs_of
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.inputs import make
from cudareduce.reduction.operators import reduction_of
from cudareduce.timing.rounds import Context, measure, same_context, warm_up
from cudareduce.timing.sampling import COLD, Method
from cudareduce.timing.timer import DeviceTimer, find_unfinished_work
from cudareduce.verify.jobs import Job
from cudareduce.verify.result_monitor import OwnBuffers, ResultMonitor, TimedData, TimedInput
from cudareduce.verify.sanitizer import sanitized
from tests.cli.test_main import MINE
from tests.conftest import ROOT, read_result
from tests.verify.test_result_monitor import COOPERATIVE, RIGHT_KERNEL

pytestmark = pytest.mark.gpu
Call = Callable[..., tuple[int, str, str]]
V7 = "reduce_v7_shuffle"
SHARED = RIGHT_KERNEL.format(name="mine", besides="", before="")
WARM = Method(cold=False)


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaBackend]:
    with open_cuda(BackendSpec("cuda")) as backend:
        yield backend


@pytest.fixture(scope="module")
def timer(gpu: CudaBackend) -> DeviceTimer:
    return DeviceTimer(gpu, gpu.monitor())


def bound(gpu: CudaBackend, n: int, kernel: str = V7) -> Bound:
    found = load_registry().kernels[kernel]
    case = Case(found, reduction_of("sum", "float32"), found.block, found.items)
    plan = case.plan(n, 1, gpu.limits())
    programs = programs_of(gpu, {case: plan})[case]
    return Bound(gpu, plan, programs, gpu.upload(make("random", case.reduction, n)))


def medians(
    timer: DeviceTimer, entrants: Mapping[str, Launch], method: Method = COLD
) -> dict[str, float]:
    found = measure(same_context(Context(timer, entrants)), 7, method, alone=("events",))
    assert found.rounds == 7
    return {name: timing.median_us for name, timing in found.timings.items()}


def records(call: Call, *arguments: object) -> list[dict[str, Any]]:
    code, out, err = call("bench", *arguments, "--format", "json", "--quiet")
    assert code == 0, err or out
    found: list[dict[str, Any]] = read_result(out)["records"]
    return found


def test_warming_up_comes_to_rest(timer: DeviceTimer, gpu: CudaBackend) -> None:
    warm = warm_up(timer, {"empty": timer.empty(), "sum": bound(gpu, 2**24).run}, Deadline())
    assert warm.steady
    assert warm.costs_us["empty"] < 5


def test_nvml_tells_the_state_under_load(timer: DeviceTimer) -> None:
    state = timer.conditions()
    assert (state.sm_mhz or 0) > 1000
    assert (state.memory_mhz or 0) > 1000
    assert (state.power_w or 0) > 50
    assert 10 < (state.temperature_c or 0) < 100
    assert state.reasons is not None


def test_a_gate_keeps_the_host_out_of_warm_times(timer: DeviceTimer, gpu: CudaBackend) -> None:
    entrants = {"events": lambda: None, "empty": timer.empty(), "small": bound(gpu, 2**22).run}
    cold, warm = medians(timer, entrants), medians(timer, entrants, WARM)
    # Behind a flush the host is always ahead. 1.3 us on one machine with H200s, 2.9 on another.
    assert warm["events"] == pytest.approx(cold["events"], rel=0.1)
    assert warm["empty"] < cold["empty"]  # a launch in a batch, its events shared
    assert warm["small"] < cold["small"]  # 16 MiB stay in the L2 of an H200


def test_a_graph_replays_faster_than_the_host_launches(cudareduce: Call) -> None:
    plain, graph = records(cudareduce, V7, "--n", "2^10", "--timing", "warm", "--graph")
    assert (plain["timing"], graph["timing"]) == ("warm", "warm graph")
    assert graph["batch"] > 1
    assert graph["time_us"] < plain["time_us"]
    assert graph["host_us"] < plain["host_us"] / 3
    assert 0.5 < graph["time_us"] < 10


def test_cold_and_warm_in_one_table(cudareduce: Call) -> None:
    cold, warm = records(cudareduce, V7, "--n", "2^22", "--timing", "cold,warm")
    assert warm["time_us"] < cold["time_us"]
    assert cold["pct_peak"] < 100
    assert cold["time_us_low"] <= cold["time_us"] <= cold["time_us_high"]


def test_two_processes_agree(tmp_path: Path) -> None:
    """Within half a per cent from 2^25 on. At 2^24, where a context matters most, one pair of
    processes in fifty lies farther apart (up to 1.0 % on H200s, 0.74 % the last time)."""
    runs = []
    for k in range(2):
        path = tmp_path / f"{k}.json"
        command = [sys.executable, "-m", "cudareduce", "bench", V7, "--n", "2^24,2^25", "--json",
                   str(path), "--quiet"]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)
        runs.append([r["time_us"] for r in read_result(path.read_text())["records"]])
    for one, other, share in zip(*runs, (0.01, 0.005), strict=True):
        assert one == pytest.approx(other, rel=share)


def test_a_flush_by_writing_distorts(timer: DeviceTimer, gpu: CudaBackend) -> None:
    entrants = {"sum": bound(gpu, 2**25).run}
    read, write = medians(timer, entrants), medians(timer.with_flush("write"), entrants)
    assert write["sum"] > 1.1 * read["sum"]  # a quarter on an H200


@pytest.mark.parametrize("late_us", [90, 3000])
def test_late_work_is_seen(timer: DeviceTimer, gpu: CudaBackend, late_us: int) -> None:
    run = bound(gpu, 2**20).run
    assert find_unfinished_work(timer, run, 8.0) is None
    aside = copy(gpu)
    aside.stream = driver.load().Stream()
    idle = DeviceTimer(aside).idle(late_us)
    idle()  # a kernel is loaded when it first runs
    gpu.finish()

    def leaves_work() -> None:
        run()
        idle()

    assert "after its end event" in (find_unfinished_work(timer, leaves_work, 8.0) or "")
    gpu.finish()


def test_a_write_behind_a_buffer_is_seen(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "emulator", None)  # which sees it first
    mine = tmp_path / "mine.cu"
    mine.write_text(
        MINE.replace(
            "out[blockIdx.x] = Op::finish(value);",
            "out[blockIdx.x] = Op::finish(value);\n"
            "        if (gridDim.x == 1) out[3] = Op::finish(value);",
        )
    )
    code, out, _ = cudareduce("verify", mine, "--n", 1000, "--format", "json", "--quiet")
    assert code == 3
    assert "it wrote outside 'out'" in read_result(out)["records"][0]["reason"]


def test_atomics_differ_and_trees_do_not(cudareduce: Call) -> None:
    atomic, tree = records(cudareduce, "reduce_atomic", V7, "--n", "2^18")
    assert atomic["distinct"] > 1
    assert (tree["distinct"], tree["launches"]) == (1, 10)
    assert 0 <= tree["pct_bound"] <= 100


def test_a_nearly_cancelling_sum(cudareduce: Call) -> None:
    [record] = records(cudareduce, V7, "--n", "2^22", "--pattern", "cancel")
    assert record["condition"] > 1e6
    assert record["error_ulp"] > 1


def test_a_cold_time_above_theory_is_an_alarm(cudareduce: Call) -> None:
    code, out, err = cudareduce(
        "bench", V7, "--n", "2^25", "--peak-gb-s", 1000, "--format", "json", "--quiet"
    )
    assert out, err
    [record] = read_result(out)["records"]
    assert code == 3
    assert "alarm:" in record["reason"]
    assert record["time_us"] is None


def test_a_run_ends_within_max_time(cudareduce: Call) -> None:
    began = time.monotonic()
    code, out, _ = cudareduce(
        "bench", "all", "--n", "2^26", "--max-time", 6, "--rounds", 99, "--format", "json",
        "--quiet",
    )  # fmt: skip
    assert time.monotonic() - began < 60  # so many rounds take minutes
    assert code in (0, 4), out
    assert "--max-time 6" in out


def test_a_sweep_finds_floor_and_bandwidth(cudareduce: Call) -> None:
    code, out, err = cudareduce(
        "sweep", V7, "reduce_v3_add_during_load", "--n", "2^10,2^14,2^18,2^20,2^22,2^24,2^26",
        "--max-time", 45, "--format", "json", "--quiet",
    )  # fmt: skip
    assert code == 0, err or out
    fast, slow = read_result(out)["protocol"]["models"]
    assert 2 < fast["floor_us"] < fast["a_us"] < 20
    assert slow["gb_s"] < fast["gb_s"] < 6000
    assert fast["gb_s_low"] <= fast["gb_s"] <= fast["gb_s_high"]


@pytest.mark.parametrize("name", ["trusts_the_output", "counts_launches"])
def test_what_cheats_while_it_is_timed_is_wrong(cudareduce: Call, name: str) -> None:
    path = ROOT / "tests" / "cheats" / f"{name}.cu"
    code, out, err = cudareduce("bench", path, "--n", "2^20", "--format", "json", "--quiet")
    assert code == 3, err
    [record] = read_result(out)["records"]
    assert record["time_us"] is None
    assert "timed launch" in record["reason"]


def test_being_watched_changes_no_time(timer: DeviceTimer, gpu: CudaBackend) -> None:
    """Rounds of V7 with its launches judged, and without, on the same buffers."""
    found = load_registry().kernels[V7]
    case = Case(found, reduction_of("sum", "float32"), found.block, found.items)
    for n in (2**20, 2**24, 2**25):
        plan = case.plan(n, 1, gpu.limits())
        data = TimedData("random", case.reduction, n, 1, 5, [plan])
        given = TimedInput(gpu, timer, data)
        tied = Bound(gpu, plan, programs_of(gpu, {case: plan})[case], given.buffer)
        memory = OwnBuffers({case: tied}, timer)
        watch = ResultMonitor(case, tied, given, memory, timer, keep_cache=False)
        plain, watched = list[float](), list[float]()
        for _ in range(3):  # in turn: the clock may drift
            for context, times in (
                (Context(timer, {"V7": tied.run}), plain),
                (Context(timer, {"V7": tied.run}, {"V7": watch}), watched),
            ):
                times.append(measure(same_context(context), 7).timings["V7"].median_us)
        print(n, plain, watched)
        assert median(watched) == pytest.approx(median(plain), rel=0.01)
        assert (watch.verdict.outcome, watch.undecided) == ("pass", False)


def test_warm_times_and_graphs_are_judged_too(cudareduce: Call) -> None:
    for record in records(cudareduce, V7, "reduce_atomic", "--n", "2^20", "--timing", "cold,warm",
                          "--graph"):  # fmt: skip
        assert record["verdict"] == "pass", record["reason"]


@pytest.mark.parametrize("misalign", range(4))
def test_a_digest_sees_every_byte(timer: DeviceTimer, gpu: CudaBackend, misalign: int) -> None:
    for nbytes in (1, 3, 4, 5, 4096, 10**6 + 7):
        values = np.arange(nbytes, dtype=np.uint8)
        seen = set()
        for place in (None, 0, nbytes // 2, nbytes - 1):
            changed = values.copy()
            if place is not None:
                changed[place] ^= 1 + place % 100
            seen.add(timer.content_hashes([gpu.upload(changed, misalign)])()[0])
        assert len(seen) == min(4, nbytes + 1)
        assert timer.content_hashes([gpu.upload(values, misalign)])()[0] in seen


def test_lines_that_persist_are_reset(gpu: CudaBackend) -> None:
    assert driver.library().cuCtxResetPersistingL2Cache() == 0


def test_a_kernel_may_wait_for_its_grid(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "waits.cu"
    path.write_text(COOPERATIVE.format(grid=64))
    [record] = records(cudareduce, path, "--n", "2^22")
    assert record["time_us"] > 0
    path.write_text(COOPERATIVE.format(grid=1200))
    code, out, _ = cudareduce("bench", path, "--n", "2^22", "--format", "json", "--quiet")
    [record] = read_result(out)["records"]
    assert record["verdict"] == "skip", record["reason"]
    assert "at one time: launch fewer" in record["reason"]
    assert code == 6


@pytest.mark.skipif(
    shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not installed"
)
def test_what_the_sanitizer_finds(cudareduce: Call, tmp_path: Path) -> None:
    code, out, err = cudareduce("verify", V7, "--n", 1000, "--sanitize", "--format", "json")
    assert code == 0, err
    assert [r["reason"] for r in read_result(out)["records"]] == [""]
    for name, old, new, says in (
        ("memcheck", "    __syncthreads();", "    (void)*(volatile const In *)(in + n + 40000);"
         "    __syncthreads();", "Invalid __global__ read"),
        ("racecheck", "    __syncthreads();", "", "Race reported"),
    ):  # fmt: skip
        path = tmp_path / "mine.cu"
        assert old in SHARED
        path.write_text(SHARED.replace(old, new, 1))
        kernel = load_kernel(path)
        case = Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)
        plans, refusals = planned(case, [(700, 1)], DEFAULT_LIMITS)
        job = Job(spec=BackendSpec("cuda", bare=True), prepared=Prepared(case, plans, refusals, {}),
                  shapes=((700, 1),), limit_s=60, level="some")  # fmt: skip
        verdict = sanitized(job, Deadline())
        assert verdict.outcome == "fail", verdict.reason
        assert f"--tool {name}: " in verdict.reason
        assert says in verdict.reason


@pytest.mark.slow
def test_this_machine_measures_well(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "selftest.json"
    began = time.monotonic()
    code, out, err = cudareduce("selftest", "--json", path)
    assert code == 0, err
    assert time.monotonic() - began < 120
    found = read_result(path.read_text())["protocol"]["selftest"]
    print(out)
    assert found["comparisons"] >= 200
    assert found["false_verdicts"] == 0
    assert found["caught"]["3%"]["caught"] >= 0.95 * found["caught"]["3%"]["of"]
    assert found["caught"]["5%"]["caught"] == found["caught"]["5%"]["of"] >= 100
    for share in (0.03, 0.05):  # what was injected is what was measured
        real = [median(c["ratios"]) - 1 for c in found["injected"] if c["injected"] == share]
        assert median(real) == pytest.approx(share, abs=0.006)
