"""Parsing the output of ncu, and the process that it profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.analysis.profile.ncu import (
    MEMORY_PCT,
    METRICS,
    Task,
    launch_all,
    launch_values,
    memory_throughput,
    parse,
    unknown_metrics,
)
from cudareduce.backends.selection import BackendSpec
from cudareduce.catalog.registry import Registry
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import reduction_of
from tests.analysis.profile.fakes import V0, fake_ncu
from tests.fake_gpu import FakeGpu, use

WIDE = """==PROF== Connected to process 1 (/usr/bin/python3)
==PROF== Profiling "reduce_v0_baseline" - 0: 0%....50%....100% - 9 passes
"ID","Kernel Name","Block Size","dram__bytes_read.sum","gpu__time_duration.sum","lts__x.avg"
"","","","Mbyte","us","%"
"0","reduce_v0_baseline(const float *, float *)","(256, 1, 1)","134.2","1,205.5","n/a"
"1","reduce_v0_baseline","(256, 1, 1)","nan","-3","inf"
==PROF== Disconnected from process 1
"""
LONG = f"""==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","reduce_v0_baseline","{MEMORY_PCT}","%","91.52"
"1","reduce_v0_baseline","{MEMORY_PCT}","%","12.00"
"""


def case_of(registry: Registry, name: str) -> Case:
    kernel = registry.kernels[name]
    return Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)


def test_a_wide_table_has_units_below_its_head() -> None:
    first, second = parse(WIDE)
    assert first.kernel == "reduce_v0_baseline"
    assert first.counted == {
        "dram__bytes_read.sum": pytest.approx(134.2e6), "gpu__time_duration.sum": 1_205_500.0,
    }  # fmt: skip
    assert second.counted == {}


def test_a_long_table_has_a_metric_a_row() -> None:
    assert [launch.counted[MEMORY_PCT] for launch in parse(LONG)] == [91.52, 12.0]


@pytest.mark.parametrize(
    "text", ["", "==ERROR== ERR_NVGPUCTRPERM\n", '"ID"', '"ID","Kernel Name"\n"0"\n', '"0","x"\n'],
)  # fmt: skip
def test_other_output_than_a_table_has_no_values(text: str) -> None:
    assert not any(launch.counted for launch in parse(text))


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("dram__bytes_read.sum", {"dram__bytes_read.sum"}),
        (
            r"regex:^dram__bytes_read\.(sum|min|max|avg|pct|ratio|max_rate)$",
            {"dram__bytes_read.sum"},
        ),
        (r"regex:^dram__bytes(\.|$)", {"dram__bytes.sum.peak_sustained"}),
        ("regex:^of_nobody$", set()),
    ],
)
def test_metrics_that_ncu_refuses(said: str, refused: set[str]) -> None:
    text = f"==PROF== Connected\n==ERROR== Failed to find metric {said}\n"
    assert unknown_metrics(text, list(METRICS.values())) == refused


def test_values_derived_from_counts(registry: Registry) -> None:
    plan = case_of(registry, "reduce_v0_baseline").plan(640)

    def found(**counted: float) -> dict[str, float]:
        return launch_values(plan, {METRICS[key]: value for key, value in counted.items()})

    some = found(wavefronts=300.0, conflicts=100.0, sectors=80.0, requests=20.0, written=24.0)
    assert (some["turns"], some["sectors_a_request"], some["sector_share"]) == (1.5, 4.0, 1.0)
    assert some["written_share"] == 2.0  # three blocks leave a partial of four bytes each
    assert "read_share" not in some
    assert "turns" not in found(wavefronts=5.0, conflicts=5.0)
    assert "sectors_a_request" not in found(sectors=0.0, requests=0.0)
    assert found() == {}


def test_a_last_block_writes_partials_and_a_result(registry: Registry) -> None:
    case = case_of(registry, "reduce_last_block")
    plan = case.plan(2**20)
    left = 4 * plan.passes[0].grid + 4
    assert launch_values(plan, {METRICS["written"]: 2.0 * left})["written_share"] == 2.0


def test_the_child_launches_each_case_once(
    registry: Registry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeGpu(cache))
    cases = (case_of(registry, "reduce_v0_baseline"), case_of(registry, "reduce_rows_tree"))
    failed = tmp_path / "failed"
    launch_all((Task(BackendSpec("cuda"), cases, 1000, 1), failed))
    assert failed.read_text() == ""
    launch_all((Task(BackendSpec("cuda"), cases, 1000, 4), failed))
    assert failed.read_text() == "0 reduce_v0_baseline reduces one array, not 4 rows\n"


def test_the_share_that_publications_print(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu = fake_ncu(tmp_path / "bin", monkeypatch)
    cases = [case_of(registry, "reduce_v0_baseline"), case_of(registry, "reduce_v7_shuffle")]
    ncu.tells({"reduce_v0_baseline": V0})
    found = memory_throughput(BackendSpec("cuda"), cases, 1000, 1, "random")
    assert found.throughput_pct == {"reduce_v0_baseline": V0["memory_pct"]}
    assert found.why_not == ""
    ncu.troubled(denied=True)
    denied = memory_throughput(BackendSpec("cuda"), cases, 1000, 1, "random")
    assert denied.throughput_pct == {}
    assert "for administrators only" in denied.why_not


def test_every_metric_has_one_short_name() -> None:
    assert len(set(METRICS.values())) == len(METRICS)
