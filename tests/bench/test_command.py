"""The whole way from options to table, on a GPU that is none: methods, hygiene, budgets, words."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cudareduce.bench.jobs import Jobs
from cudareduce.bench.records import Group
from cudareduce.bench.session import Session, Verified
from cudareduce.bench.trial import Trial
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.launch.bound import Bound
from cudareduce.machine import Conditions
from cudareduce.results.store import load
from cudareduce.verify.verdict import RIGHT
from tests.conftest import ROOT, read_result
from tests.fake_gpu import CALM, FakeGpu, FakeMonitor, use

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
TWO = ("reduce_v6_multi_add", "reduce_v7_shuffle")


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    monkeypatch.setattr(Jobs, "emulator", None)  # what watches files of a user is tried elsewhere
    made = FakeGpu(cache, factors={"reduce_v6_multi_add": 2.0}, lazy=True)
    use(monkeypatch, made)
    return made


def bench(call: Call, *more: object, names: tuple[str, ...] = TWO) -> tuple[int, Any, str]:
    code, out, err = call(
        "bench", *names, "--n", "2^12", "--format", "json", "--quiet", "--debug", *more
    )
    return code, read_result(out) if out else None, err


def test_a_cold_bench_has_times_intervals_and_conditions(cudareduce: Call, gpu: FakeGpu) -> None:
    code, run, _ = bench(cudareduce)
    assert code == 0
    first, second = run["records"]
    assert (first["timing"], first["batch"]) == ("cold", 1)
    assert first["time_us_low"] <= first["time_us"] <= first["time_us_high"]
    assert first["gb_s_low"] <= first["gb_s"] <= first["gb_s_high"]
    assert second["speedup_prev"] is None or second["speedup_prev"] > 1
    assert first["host_us"] > 0
    assert (first["sm_mhz"], first["power_w"], first["event_reasons"]) == (1980, 300, "none")
    assert (first["distinct"], first["launches"]) == (1, 10)
    assert 0 <= first["pct_bound"] <= 100
    assert first["error_ulp"] is not None
    [story] = run["protocol"]["measured"]
    assert (story["timing"], len(story["rounds"]), story["steady"]) == ("cold", 9, True)
    assert story["contexts"] == 2 * 9
    assert run["protocol"]["remarks"] == []


def test_a_large_input_stays_in_one_context_which_is_left_before_verifying_again(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify, places = Session.verify, []

    def watched(self: Session, *arguments: Any, **options: Any) -> Verified:
        places.append(gpu.elsewhere)
        return verify(self, *arguments, **options)

    monkeypatch.setattr("cudareduce.bench.trial._RENEWED_BYTES", 0)
    monkeypatch.setattr("cudareduce.verify.result_monitor.judge", lambda *_: None)  # undecided
    monkeypatch.setattr(Session, "verify", watched)
    code, run, _ = bench(cudareduce)
    assert code == 0
    assert [story["contexts"] for story in run["protocol"]["measured"]] == [1]
    assert places == [False] * 3  # at edges, at this size, and again after timing
    assert all(r["time_us"] for r in run["records"])


def test_cold_and_warm_times_are_in_one_table(cudareduce: Call, gpu: FakeGpu) -> None:
    code, run, _ = bench(cudareduce, "--timing", "cold,warm")
    assert code == 0
    assert [(r["kernel"], r["timing"]) for r in run["records"]] == [
        (name, kind) for name in TWO for kind in ("cold", "warm")
    ]
    assert [r["batch"] > 1 for r in run["records"]] == [False, True] * 2
    _, out, _ = cudareduce("bench", *TWO, "--n", "2^12", "--timing", "cold,warm", "--quiet")
    assert "float32, cold and warm, Fake GPU" in out
    assert "batch: launches between two events" in out
    number = r"\d+\.\d\d us"
    pair = f"two events {number}, an empty kernel {number}"
    assert re.search(f"\nfloor, not subtracted: {pair}; warm: {pair}\n", out)
    rows = [line.split() for line in out.splitlines() if "±" in line]
    assert [row[:2] for row in rows] == [
        [TWO[0], "cold"], ["warm", rows[1][1]], [TWO[1], "cold"], ["warm", rows[3][1]],
    ]  # fmt: skip


def test_energy_is_measured_on_request(cudareduce: Call, gpu: FakeGpu) -> None:
    gpu.lazy, gpu.states = True, FakeMonitor(watts=350.0)
    _, run, _ = bench(cudareduce, "--rounds", "1", names=TWO[1:])
    assert [r["joules_per_gb"] for r in run["records"]] == [None]
    code, out, _ = cudareduce(
        "bench", TWO[1], "--n", "2^20", "--energy", "--rounds", "1", "--quiet"
    )
    assert code == 0
    head, _, row = (line.split() for line in out.splitlines()[2:5])
    assert head[-1] == "J/GB"
    assert float(row[-1]) == pytest.approx(350.0 / float(row[head.index("GB/s")]), rel=0.02)


def test_a_graph_is_a_row_of_its_own_with_the_hosts_cost(cudareduce: Call, gpu: FakeGpu) -> None:
    _, run, _ = bench(cudareduce, "--timing", "warm", "--graph")
    assert [r["timing"] for r in run["records"]] == ["warm", "warm graph"] * 2
    plain, graph = run["records"][:2]
    assert graph["host_us"] < plain["host_us"]
    _, out, _ = cudareduce("bench", *TWO, "--n", "2^12", "--graph", "--quiet")
    assert "host us" in out
    assert "graph: the launches were captured once" in out


def test_columns_on_request(cudareduce: Call, gpu: FakeGpu) -> None:
    _, out, _ = cudareduce("bench", *TWO, "--n", 999, "--columns", "ulp,distinct,clock", "--quiet")
    assert "ulp" in out and "1/10" in out and "1980" in out
    code, _, err = cudareduce("bench", "--columns", "colour")
    assert code == 2
    assert "'colour' is not one of: batch, host" in err


def test_without_nvml_columns_are_empty_with_one_remark(cudareduce: Call, gpu: FakeGpu) -> None:
    gpu.states = FakeMonitor([Conditions()], "nvidia-ml-py is not installed: clocks are not known")
    code, run, _ = bench(cudareduce, "--timing", "cold,warm")
    assert code == 0
    assert run["protocol"]["remarks"] == [gpu.states.problem]
    assert {r["sm_mhz"] for r in run["records"]} == {None}
    _, out, _ = cudareduce("bench", *TWO, "--n", "100,200", "--quiet", "--columns", "clock,reasons")
    assert out.count("nvidia-ml-py is not installed") == 1


def test_other_processes_on_the_gpu_are_reported_with_advice(
    cudareduce: Call, gpu: FakeGpu
) -> None:
    gpu.states.others = 2
    gpu.noise = 0.2
    _, run, _ = bench(cudareduce)
    [said] = [text for text in run["protocol"]["remarks"] if "other process" in text]
    assert "2 other processes used this GPU; noise reaches" in said
    assert "--device" in said


def test_wide_intervals_are_reported_with_advice(cudareduce: Call, gpu: FakeGpu) -> None:
    assert not bench(cudareduce)[1]["protocol"]["remarks"]
    gpu.noise = 1.0
    said = " ".join(bench(cudareduce)[1]["protocol"]["remarks"])
    assert re.search(r"cold, n = \d+: intervals of up to ±\d+ %: look for what else uses", said)


def test_a_changing_clock_is_reported(cudareduce: Call, gpu: FakeGpu) -> None:
    slow = Conditions(1500.0, 3201.0, 300.0, 40.0, 0)
    gpu.states = FakeMonitor([*[CALM] * 15, slow])
    _, run, _ = bench(cudareduce)
    assert any(
        "the SM clock moved between 1500 and 1980 MHz" in text
        for text in run["protocol"]["remarks"]
    )


def test_throttling_is_reported(cudareduce: Call, gpu: FakeGpu) -> None:
    gpu.states = FakeMonitor([Conditions(1980.0, 3201.0, 700.0, 40.0, 0x4)])
    _, run, _ = bench(cudareduce)
    assert any(
        "throttled (power cap) in 9 of 9 rounds, after 3 had been repeated" in text
        for text in run["protocol"]["remarks"]
    )
    assert run["records"][0]["event_reasons"] == "power cap"


@pytest.mark.parametrize(("rounds", "told"), [(1, "1 round"), (5, "5 rounds")])
def test_too_few_rounds_for_an_interval_are_reported(
    cudareduce: Call, gpu: FakeGpu, rounds: int, told: str
) -> None:
    _, run, _ = bench(cudareduce, "--rounds", rounds)
    assert run["records"][0]["time_us_low"] is None
    _, out, _ = cudareduce("bench", *TWO, "--n", 999, "--rounds", rounds, "--quiet")
    assert f"\n{told}: no interval; it takes at least 6" in out
    assert "±" not in out and "nan" not in out.lower()


def test_lost_rounds_are_empty_and_reported(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The host is too slow for the second kernel in every other round."""
    reached = gpu.reached

    def late(event: float) -> bool:
        of_round = (gpu.contexts - 1) // 2  # each half has a context of its own
        return (gpu.last == TWO[1] and of_round in (1, 3, 5, 7)) or reached(event)

    monkeypatch.setattr(gpu, "reached", late)
    path = tmp_path / "run.json"
    code, out, _ = cudareduce("bench", *TWO, "--n", "2^12", "--json", path, "--quiet")
    assert code == 0
    whole, torn = load(path).records
    assert len(whole.medians_us) == len(torn.rounds_us) == 9
    assert [k for k, us in enumerate(torn.rounds_us) if us is None] == [1, 3, 5, 7]
    assert len(torn.medians_us) == 5
    assert "\nreduce_v7_shuffle: 5 rounds: no interval; it takes at least 6\n" in out


def use_clock_of(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a run may take be told by the clock of the device."""
    on_device = partial(Deadline, clock=lambda: gpu.clock / 1e6)
    monkeypatch.setattr("cudareduce.bench.request.Deadline", on_device)


def test_max_time_shorter_than_a_round_is_inconclusive(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_clock_of(gpu, monkeypatch)
    code, run, _ = bench(cudareduce, "--max-time", "0.1")
    assert code == 4
    assert {r["verdict"] for r in run["records"]} == {"pass"}
    assert {r["time_us"] for r in run["records"]} == {None}
    assert "--max-time 0.1 s left no time for one round" in run["protocol"]["remarks"][0]


def test_max_time_reports_how_many_rounds_it_cut(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_clock_of(gpu, monkeypatch)
    code, run, _ = bench(cudareduce, "--max-time", "0.5")
    assert code == 0
    rounds = len(run["records"][0]["rounds_us"])
    assert 0 < rounds < 9
    assert f"--max-time 0.5 s cut 9 rounds to {rounds}" in run["protocol"]["remarks"][0]


def test_a_cold_time_below_the_roofline_is_an_alarm_and_no_record(
    cudareduce: Call, gpu: FakeGpu
) -> None:
    code, run, _ = bench(cudareduce, "--peak-gb-s", "0.1")
    assert code == 3
    for record in run["records"]:
        assert (record["verdict"], record["time_us"], record["gb_s"]) == ("fail", None, None)
        assert "alarm:" in record["reason"] and "--peak-gb-s" in record["reason"]
    code, run, _ = bench(cudareduce, "--peak-gb-s", "0.1", "--timing", "warm")
    assert code == 0
    assert run["records"][0]["pct_peak"] > 100
    _, out, _ = cudareduce(
        "bench", *TWO, "--n", 9999, "--peak-gb-s", 0.1, "--timing", "warm", "--quiet"
    )
    assert "these bytes came from the cache" in out
    assert "%peak: of 0.1 GB/s, set by --peak-gb-s" in out


def test_unfinished_work_after_the_end_event_is_wrong(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finish() -> None:
        gpu.host += 5000 if gpu.last == TWO[0] else 1
        gpu.last = ""

    monkeypatch.setattr(gpu, "finish", finish)
    code, run, _ = bench(cudareduce)
    assert code == 3
    assert "the device worked for" in run["records"][0]["reason"]
    assert run["records"][0]["time_us"] is None


def test_a_write_outside_a_buffer_is_wrong(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "damage", lambda buffer: "3 bytes behind a buffer of 4")
    code, run, _ = bench(cudareduce, names=TWO[:1])
    assert code == 3
    assert "it wrote outside 'in': 3 bytes behind a buffer of 4" in run["records"][0]["reason"]


STALE = ROOT / "tests" / "wrong_kernels" / "stale_counter.cu"


@pytest.mark.long
def test_only_the_first_launch_is_right_and_timing_sees_it(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first answer stays where it was written: looked at without poison, it is right."""
    monkeypatch.setattr(Session, "_isolated", lambda *_: False)
    monkeypatch.setattr("cudareduce.verify.verification.judge", lambda *_: RIGHT)
    monkeypatch.setattr(Bound, "damage", lambda _: None)
    code, run, _ = bench(cudareduce, names=(str(STALE),))
    assert code == 3
    [record] = run["records"]
    assert (record["verdict"], record["time_us"]) == ("fail", None)
    assert re.match("after timing: timed launch \\d+: got", record["reason"])


def test_only_the_first_launch_is_right_and_verifying_a_large_size_sees_it(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.lazy = False  # what it leaves behind is what tells
    monkeypatch.setattr(Session, "_isolated", lambda *_: False)
    monkeypatch.setattr("cudareduce.verify.verification.SMALL", 0)
    code, out, _ = cudareduce("verify", STALE, "--n", 4096, "--format", "json", "--quiet")
    assert code == 3
    assert "n = 4096, exact: got 2.3" in read_result(out)["records"][0]["reason"]


def test_a_nearly_cancelling_sum(cudareduce: Call, gpu: FakeGpu) -> None:
    code, run, _ = bench(cudareduce, "--pattern", "cancel")
    assert code == 0
    record = run["records"][0]
    assert record["condition"] > 1e5
    assert record["error_ulp"] > 10  # that of the input timed, and not of those verified with
    assert record["pattern"] == "cancel"
    code, _, err = cudareduce("bench", "--pattern", "cancel", "--op", "max", "--quiet")
    assert code == 2
    assert "--pattern cancel is for sum and mean of floats, not max of float32" in err
    code, out, _ = cudareduce("verify", TWO[1], "--n", 4097, "--pattern", "cancel", "--quiet")
    assert code == 0
    assert "1/" in out


def test_a_driver_without_gates_still_times_cold(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object) -> None:
        raise EnvironmentProblem("the driver refuses cuStreamWaitValue32 (801)")

    monkeypatch.setattr("tests.fake_gpu.FakeGate.close", refuse)
    code, run, _ = bench(cudareduce, "--timing", "cold,warm")
    assert code == 0
    assert [r["timing"] for r in run["records"]] == ["cold", "cold"]
    assert run["protocol"]["remarks"] == ["warm: the driver refuses cuStreamWaitValue32 (801)"]
    code, run, _ = bench(cudareduce, "--timing", "warm")
    assert code == 6
    assert {r["time_us"] for r in run["records"]} == {None}


@pytest.mark.long
def test_a_first_pass_is_a_pass_of_the_kernel(cudareduce: Call, gpu: FakeGpu) -> None:
    """Not what sets the identity before it."""
    gpu.lazy = False  # it adds to what its output holds
    names = ("reduce_block_atomic",)
    code, first, _ = bench(cudareduce, "--region", "first-pass", names=names)
    _, whole, _ = bench(cudareduce, names=names)
    assert code == 0
    assert first["records"][0]["time_us"] > 0.8 * whole["records"][0]["time_us"]


@pytest.mark.long
def test_a_suite_begins_anew(cudareduce: Call, gpu: FakeGpu) -> None:
    _, run, _ = bench(cudareduce, names=("reduce_atomic", "fastcuda"))
    first = next(r for r in run["records"] if r["suite"] == "fastcuda")
    assert (first["speedup"], first["speedup_prev"]) == (1, None)


def test_nothing_is_compared_with_a_time_that_cannot_be(cudareduce: Call, gpu: FakeGpu) -> None:
    code, run, _ = bench(
        cudareduce, "--baseline-kernel", "v7_shuffle", "--peak-gb-s", "1.5"
    )  # between the two
    six, seven = run["records"]
    assert (code, seven["verdict"], seven["time_us"]) == (3, "fail", None)
    assert "than the 1.5 GB/s that theory allows" in seven["reason"]
    assert six["time_us"] and six["speedup"] is None


@pytest.mark.parametrize("name", ["reduce_v0_baseline", "fastcuda"])
def test_a_baseline_kernel_must_be_measured_too(cudareduce: Call, gpu: FakeGpu, name: str) -> None:
    code, _, err = bench(cudareduce, "--baseline-kernel", name)
    assert code == 2
    assert f"--baseline-kernel {name} is not measured here: name it too" in err


def test_a_kernel_of_which_no_sample_is_left_is_named(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "reached", lambda event: True)
    code, run, _ = bench(cudareduce)
    assert code == 6
    assert any(
        f"every launch of {', '.join(TWO)} too late to be timed" in text
        for text in run["protocol"]["remarks"]
    )


def test_an_interrupted_run_has_only_times_of_verified_kernels(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Trial, group: Group, *, hurried: bool) -> Group:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "verify_after_timing", interrupt)
    code, run, _ = bench(cudareduce)
    assert code == 130
    assert {r["time_us"] for r in run["records"]} == {None}
    assert run["protocol"]["remarks"] == ["interrupted: what is missing was not measured"]


def test_rounds_that_were_whole_when_it_was_interrupted_are_kept(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = gpu.mark

    def interrupted() -> float:
        if gpu.contexts > 7:  # two a round
            raise KeyboardInterrupt
        return mark()

    monkeypatch.setattr(gpu, "mark", interrupted)
    code, run, _ = bench(cudareduce, "--timing", "cold,warm")
    assert code == 130
    assert [r["timing"] for r in run["records"]] == ["cold", "cold"]
    assert [len(r["rounds_us"]) for r in run["records"]] == [3, 3]
    assert run["protocol"]["remarks"] == ["interrupted: what is missing was not measured"]
