"""The selftest: judgements from known numbers, and all its parts on a GPU that is none."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from random import Random
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import Registry
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import Conditions
from cudareduce.timing.rounds import Measurement, WarmUp
from cudareduce.timing.selftest import findings as judging
from cudareduce.timing.selftest import nvbench, parts
from cudareduce.timing.selftest.command import KERNELS
from cudareduce.timing.selftest.findings import (
    NOTHING,
    Comparison,
    Figure,
    Findings,
    Peer,
    Setting,
    Spread,
    as_json,
    selftest_sections,
    sentences,
    trustworthy,
)
from tests.conftest import ROOT
from tests.fake_gpu import CALM, FakeGpu, FakeMonitor, use

Call = Callable[..., tuple[int, str, str]]


def comparisons(share: float, count: int, noise: float, rounds: int = 9) -> list[Comparison]:
    random = Random(round(1000 * share))
    return [
        Comparison(
            "A", 2**24, share,
            tuple(1 + share + random.gauss(0, noise) for _ in range(rounds)),
        )
        for _ in range(count)
    ]  # fmt: skip


def findings(noise: float, rounds: int = 9) -> Findings:
    slow = [c for share in (0.01, 0.02, 0.03, 0.05) for c in comparisons(share, 100, noise, rounds)]
    return Findings(tuple(comparisons(0, 204, noise, rounds)), tuple(slow))


def test_a_quiet_machine_is_good_for_two_per_cent() -> None:
    found = findings(0.003)
    assert trustworthy(found)
    assert found.false_verdicts == 0
    assert found.caught(0.03, 0.02)[0] >= 95
    assert found.caught(0.05, 0.02) == (100, 100)
    assert found.caught(0.01, 0.02) == (0, 100)
    assert found.detectable == 0.01
    assert 0 < (found.quiet_threshold or 0) < 0.01
    said = sentences(found)
    assert said[0] == "This machine measures well enough for a threshold of 2 %."
    assert said[1].startswith("A/A: 0 of 204 comparisons of a kernel with itself called it changed")
    assert "5 % (measured 5.0 %) 100 of 100" in said[2]
    quiet = f"At {100 * (found.quiet_threshold or 0):.2f} %, the smallest threshold without false"
    assert said[3].startswith(quiet)
    assert "1 % is the smallest injected slowdown" in said[3]


def test_a_noisy_machine_fails_the_selftest() -> None:
    found = findings(0.08)
    assert trustworthy(found) is False
    assert "does NOT measure well enough" in sentences(found)[0]
    assert found.detectable is None
    assert "none of the injected slowdowns is caught 95 times" in " ".join(sentences(found))


def test_detected_slowdowns_are_reported_with_their_threshold() -> None:
    """At 2 % all of 5 % are caught; at the 6 % that one odd comparison needs, none is."""
    odd = Comparison("A", 1, 0.0, (1.06,) * 9)
    quiet = findings(0.003)
    said = sentences(replace(quiet, aa=(*quiet.aa, odd)))
    assert "5 % (measured 5.0 %) 100 of 100" in said[2]
    assert said[3] == (
        "At 6.00 %, the smallest threshold without false verdicts, none of the injected slowdowns "
        "is caught 95 times in 100."
    )


def test_too_little_for_a_verdict() -> None:
    assert trustworthy(Findings()) is None
    assert trustworthy(findings(0.003, rounds=5)) is None
    assert sentences(Findings(problems=("no time",))) == [
        "Too little was measured for a verdict on this machine.", "no time",
    ]  # fmt: skip
    few = Findings(tuple(comparisons(0, 20, 0.003)))
    assert "fewer than the 200 needed for a rate" in sentences(few)[1]


def test_comparisons_with_too_few_rounds_do_not_count() -> None:
    quiet, cut = findings(0.003), findings(0.003, rounds=4)
    said = sentences(replace(quiet, injected=cut.injected))
    assert said[0] == "Too little was measured for a verdict on this machine."
    assert not any("caught" in text for text in said)
    assert said[-1].startswith("400 of 604 comparisons are undecided and not counted")
    json_of = as_json(cut)
    assert (json_of["verdict"], json_of["comparisons"], json_of["undecided"]) == (None, 0, 604)
    assert json_of["caught"] == {}
    assert json_of["detectable"] is json_of["quiet_threshold"] is None
    assert len(sentences(cut)) == 2


def test_rounds_are_counted_in_each_comparison() -> None:
    """The first size had time for nine rounds, the others for four, and those are noisy."""
    quiet = findings(0.003)
    mixed = (*comparisons(0, 51, 0.003), *comparisons(0, 153, 0.08, rounds=4))
    found = replace(quiet, aa=mixed)
    said = sentences(found)
    assert trustworthy(found) is None
    assert said[1].startswith("A/A: 0 of 51 comparisons of a kernel with itself called it changed")
    assert "fewer than the 200 needed for a rate" in said[1]
    assert "smallest" not in " ".join(said)
    assert (found.quiet_threshold or 0) < 0.01
    assert said[3].startswith("153 of 604 comparisons are undecided")


def test_a_few_that_lost_rounds_leave_a_verdict() -> None:
    quiet = findings(0.003)
    found = replace(quiet, aa=(*quiet.aa[2:], *comparisons(0, 2, 0.003, rounds=5)))
    assert trustworthy(found)
    assert sentences(found)[4].startswith("2 of 604 comparisons are undecided")
    few = replace(quiet, injected=tuple(c for c in quiet.injected if c.injected < 0.05))
    assert trustworthy(few) is None


def test_the_stored_result_says_what_its_numbers_say() -> None:
    path = ROOT / "results" / "nvidia-h200" / "selftest.json"
    stored = json.loads(path.read_text())["protocol"]["selftest"]

    def made(key: str) -> tuple[Comparison, ...]:
        return tuple(Comparison(**{**one, "ratios": tuple(one["ratios"])}) for one in stored[key])

    again = as_json(Findings(made("aa"), made("injected")))
    for key in ("verdict", "comparisons", "false_verdicts", "quiet_threshold", "caught"):
        assert again[key] == stored[key]
    assert again["detectable"] == stored["detectable"]
    assert again["undecided"] == 0
    assert again["words"][:3] == stored["words"][:3]


def test_a_verdict_takes_the_threshold_and_the_interval() -> None:
    sure = Comparison("A", 1, 0.0, (1.03,) * 9)
    unsure = Comparison("A", 1, 0.0, (0.9, 0.95, 1.03, 1.03, 1.03, 1.1, 1.1, 1.2, 0.9))
    faster = Comparison("A", 1, 0.0, (0.96,) * 9)
    assert sure.slower(0.02) and not sure.slower(0.04)
    assert not unsure.slower(0.02)
    assert faster.changed(0.02) and not faster.slower(0.02)


def figure(how: str, us: float) -> Figure:
    return Figure("A", how, 2**25, us, (us * 0.999, us * 1.001), 5.0)


def test_differences_between_flush_methods_and_nvbench_are_described() -> None:
    found = Findings(
        flushes=(figure("none", 30), figure("write", 45.6), figure("read", 36.7)),
        peers=(Peer("A", 2**25, 46.5, *(figure(how, us) for how, us in
                                        (("read", 36.7), ("write", 45.6), ("nvbench", 46.2)))),),
    )  # fmt: skip
    said = " ".join(sentences(found))
    assert "flush by writing makes A at n = 33554432 look 24 % slower" in said
    assert "NVBench and this tool agree" in said
    assert "0.6 % apart (A, n = 33554432)" in said


def test_spreads_as_sentences() -> None:
    found = Findings(spreads=(
        Spread("A", 2**24, "its position among launches", (25.0, 26.0)),
        Spread("A", 2**24, NOTHING, (25.4, 25.5)),
        Spread("A", 2**24, "its context", (25.4, 25.6, 25.5)),
    ))  # fmt: skip
    said = " ".join(sentences(found))
    assert "time of A at n = 16777216 also depends on: its position among" in said
    assert "launches 4.0 %, its context 0.8 %; repeated without a change, 0.4 %." in said


def test_contexts_in_words_and_in_a_table() -> None:
    found = Findings(settings=(
        Setting("A", 2**24, (25.6, 25.7, 25.8), (25.8, 25.957, 26.3)),
        Setting("A", 2**25, (36.0, 36.0), (36.0, 36.01)),
    ))  # fmt: skip
    assert sentences(found)[1] == (
        "The primary context, which libraries need, measures A at n = 16777216 1.0 % slower than "
        "fresh contexts with 2.5 times the range, at n = 33554432 as fast as fresh contexts: "
        "compare times of one kind of context only."
    )
    table = list(selftest_sections(found, "a GPU"))[-1]
    assert table.rows[1] == ("2^24", "primary", "25.96", "25.80", "26.30", "1.9%")


def test_the_kernels_of_the_selftest_exist(registry: Registry) -> None:
    assert all(name in registry.kernels for name in KERNELS)


@pytest.fixture
def gpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    made = FakeGpu(cache, emulates=False)
    use(monkeypatch, made)
    for name, value in {
        "_AA_SIZES": (2**14, 2**15), "_SLOW_SIZES": (2**15,), "_FLUSH_SIZES": (2**14,),
        "_PEER_SIZES": (2**14,), "_SLOW_PAIRS": 10, "ENOUGH": 12, "_SPREAD_SIZE": 2**15,
        "_SETS": 3, "_CONTEXTS": 2,
    }.items():  # fmt: skip
        monkeypatch.setattr(parts, name, value)
    monkeypatch.setattr(parts, "SIZES", (2**14,))
    monkeypatch.setattr(judging, "ENOUGH", 12)
    monkeypatch.setattr(judging, "ENOUGH_SLOWED", 10)
    return made


@pytest.mark.long
def test_a_selftest_prints_and_stores_all_of_its_parts(
    cudareduce: Call, gpu: FakeGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "why_no_nvbench", lambda: None)
    monkeypatch.setattr(
        parts, "measure_cold_times", lambda spec, cases, seed, deadline: [50.0] * len(cases)
    )
    path = tmp_path / "selftest.json"
    code, out, err = cudareduce("selftest", "--json", path, "--max-time", 600)
    assert code == 0, err
    assert "selftest: injected slowdowns" in err
    found = json.loads(path.read_text())["protocol"]["selftest"]
    assert found["comparisons"] == 12
    assert found["false_verdicts"] == 0
    assert found["caught"]["5%"] == {"caught": 10, "of": 10}
    assert found["caught"]["3%"] == {"caught": 10, "of": 10}
    assert found["caught"]["1%"] == {"caught": 0, "of": 10}
    ways = {(figure["what"], figure["how"]) for figure in found["flushes"]}
    assert ways == {(name, how) for name in KERNELS for how in ("none", "write", "read")}
    assert [f["how"] for f in found["floors"]].count("warm graph") == 2
    assert len(found["peers"]) == 3
    assert [len(spread["us"]) for spread in found["spreads"]] == [8, 3, 3, 2]
    assert [(s["n"], len(s["fresh_us"]), len(s["primary_us"])) for s in found["settings"]] == [
        (2**14, 10, 10)
    ]
    assert found["words"][0] == "This machine measures well enough for a threshold of 2 %."
    assert "Selftest of Fake GPU" in out and "Floors" in out and "Comparison with NVBench" in out
    assert "nan" not in out.lower()


def test_a_missing_part_is_reported_and_the_others_run(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object) -> None:
        raise EnvironmentProblem("the driver refuses cuStreamWaitValue32_v2 (801)")

    monkeypatch.setattr("tests.fake_gpu.FakeGate.close", refuse)
    monkeypatch.setattr(parts, "why_no_nvbench", lambda: "NVBench is missing: pip install it")
    code, out, _ = cudareduce("selftest", KERNELS[-1], "--quiet", "--format", "json")
    found = json.loads(out)["protocol"]["selftest"]
    assert code == 0
    assert [f["how"] for f in found["floors"]] == ["cold"] * 3
    assert found["problems"] == [
        "floors: the driver refuses cuStreamWaitValue32_v2 (801)",
        "NVBench is missing: pip install it",
    ]
    assert found["peers"] == []


@pytest.mark.long
def test_a_machine_that_is_not_good_enough_can_fail_a_script(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.noise = 0.3
    monkeypatch.setattr(parts, "why_no_nvbench", lambda: "no NVBench")
    assert cudareduce("selftest", KERNELS[-1], "--quiet", "--strict")[0] == 4
    code, out, _ = cudareduce("selftest", KERNELS[-1], "--quiet")
    assert code == 0
    assert "does NOT measure well enough" in out


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.05])
def test_too_little_time_is_no_verdict(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(parts, "why_no_nvbench", lambda: "no NVBench")
    code, out, _ = cudareduce(
        "selftest", KERNELS[-1], "--quiet", "--strict", "--max-time", seconds, "--format", "json"
    )
    found = json.loads(out)["protocol"]["selftest"]
    assert code == 4
    assert found["verdict"] is found["detectable"] is None
    assert found["words"][0] == "Too little was measured for a verdict on this machine."
    assert f"--max-time {seconds:g} s cut rounds" in " ".join(found["words"])


def short(cudareduce: Call, monkeypatch: pytest.MonkeyPatch, *more: object) -> tuple[Any, str]:
    """The stored and the printed result of a selftest of one kernel."""
    monkeypatch.setattr(parts, "why_no_nvbench", lambda: "no NVBench")
    with NamedTemporaryFile(suffix=".json") as file:
        code, out, _ = cudareduce("selftest", KERNELS[-1], "--quiet", "--json", file.name, *more)
        assert code == 0
        return json.loads(Path(file.name).read_text())["protocol"]["selftest"], out


def test_a_calm_gpu_needs_no_remarks(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert short(cudareduce, monkeypatch)[0]["remarks"] == []


@pytest.mark.long
def test_throttling_and_other_processes_are_reported_once(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.states = FakeMonitor([Conditions(1980.0, 3201.0, 700.0, 40.0, 0x4)])
    gpu.states.others, gpu.noise = 2, 0.2
    found, out = short(cudareduce, monkeypatch)
    throttled, others = found["remarks"]
    assert "throttled (power cap)" in throttled and "cool it" in throttled
    assert re.match(r"2 other processes used this GPU; noise reaches [1-9]\d?\.\d %", others)
    assert out.count("the GPU was throttled") == out.count("other processes used") == 1
    assert out.index("no NVBench") < out.index("the GPU was throttled")


@pytest.mark.long
def test_a_changing_clock_is_reported_once(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.states = FakeMonitor([*[CALM] * 40, Conditions(1500.0, 3201.0, 300.0, 40.0, 0)])
    found, out = short(cudareduce, monkeypatch)
    [clock] = found["remarks"]
    assert clock.startswith("the SM clock moved between 1500 and 1980 MHz")
    assert out.count("the SM clock moved") == 1


def test_missing_nvml_is_reported_once(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.states = FakeMonitor([Conditions()], "nvidia-ml-py is not installed")
    found, out = short(cudareduce, monkeypatch)
    assert found["remarks"] == ["nvidia-ml-py is not installed"]
    assert out.count("nvidia-ml-py is not installed") == 1


def test_unsteady_times_are_reported_unless_time_ran_out(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cudareduce.timing.rounds.warm_up",
        lambda timer, entrants, deadline: WarmUp(dict.fromkeys(entrants, 10.0), steady=False),
    )
    [said] = short(cudareduce, monkeypatch)[0]["remarks"]
    assert said.startswith("times had not come to rest after 3 s of warm-up")
    assert short(cudareduce, monkeypatch, "--max-time", 0.001)[0]["remarks"] == []


@pytest.mark.parametrize("strict", [[], ["--strict"]])
def test_ctrl_c_keeps_what_was_found(
    cudareduce: Call,
    gpu: FakeGpu,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    strict: list[str],
) -> None:
    def stop(self: object, deadline: object) -> Iterator[Spread]:
        yield Spread("A", 2**15, "the address of its buffers", (25.0, 26.0))
        raise KeyboardInterrupt

    monkeypatch.setattr(parts.Selftest, "spreads", stop)
    path = tmp_path / "selftest.json"
    code, out, _ = cudareduce("selftest", KERNELS[-1], "--quiet", "--json", path, *strict)
    assert code == 130
    found = json.loads(path.read_text())["protocol"]["selftest"]
    assert found["interrupted"] is True
    assert found["verdict"] is True
    assert found["comparisons"] == 12
    assert found["floors"] and len(found["spreads"]) == 1 and not found["peers"]
    assert found["problems"] == ["interrupted: the remaining measurements are missing"]
    assert "interrupted: the remaining measurements" in out and "Floors" in out


def test_ctrl_c_at_once_leaves_no_verdict(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> Measurement:
        return Measurement(planned=9, interrupted=True)

    monkeypatch.setattr(parts, "measure", stop)
    code, out, _ = cudareduce("selftest", KERNELS[-1], "--quiet")
    assert code == 130
    assert "Too little was measured" in out and "interrupted" in out
    assert "cut rounds" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nobody"], 2, "nobody"),
        (["--json", "/nowhere/x.json"], 2, "the folder /nowhere does not exist"),
        (["--max-time", "-1"], 2, "Invalid value for '--max-time'"),
        (["--device", "99"], 6, ""),
    ],
)
def test_a_wrong_option_of_selftest_is_an_error(
    cudareduce: Call, arguments: list[str], code: int, message: str
) -> None:
    got, out, err = cudareduce("selftest", *arguments)
    assert (got, out) == (code, "")
    assert message in err


def test_nvbench_results_are_read() -> None:
    def state(tag: str, value: str) -> dict[str, object]:
        data = [{"name": "value", "type": "float64", "value": value}]
        return {"summaries": [{"tag": tag, "data": data}]}

    result = {
        "benchmarks": [
            {"name": "case1", "states": [state("nv/cold/time/gpu/mean", "3.6e-05")]},
            {"name": "case0", "states": [state("nv/cold/time/gpu/median", "1.2e-05")]},
        ]
    }
    assert nvbench.times(result, 2) == pytest.approx([12, 36])
    result["benchmarks"][0]["states"] = [{"summaries": [], "skip_reason": "no GPU"}]
    with pytest.raises(RuntimeError, match="no time of case 1: no GPU"):
        nvbench.times(result, 2)


def test_without_nvbench_the_pip_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'cudareduce[nvbench]'" in (nvbench.why_no_nvbench() or "")


def hang(*_: object) -> None:
    time.sleep(3600)


def test_nvbench_runs_only_within_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvbench, "_measured", hang)
    with pytest.raises(EnvironmentProblem, match=r"failed: no result after 0\.\d s"):
        nvbench.measure_cold_times(BackendSpec("cuda"), [], 1, Deadline(0.5))
    assert not active_children()
    monkeypatch.setattr(nvbench, "WorkerPool", None)  # no child is started for nothing
    with pytest.raises(EnvironmentProblem, match="no time was left"):
        nvbench.measure_cold_times(BackendSpec("cuda"), [], 1, Deadline(0))


def test_one_figure_is_no_spread(
    cudareduce: Call, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_SETS", 1)
    monkeypatch.setattr(parts, "_CONTEXTS", 1)
    found, _ = short(cudareduce, monkeypatch)
    assert [spread["what"] for spread in found["spreads"]] == ["its position among launches"]


def test_the_json_of_a_selftest_has_no_nan() -> None:
    json.dumps(as_json(findings(0.003)), allow_nan=False)
