"""Published experiments: sizes and order of their authors, their figures beside ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cudareduce.analysis.profile.ncu import MemoryThroughput
from cudareduce.analysis.reproduce import experiments, fastcuda_lines, section
from cudareduce.catalog.registry import Registry
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Record, Run

Call = Callable[..., tuple[int, str, str]]


def record(suite: str, name: str, kernel: str, n: int, rows: int = 1, **more: object) -> Record:
    blank = Record(
        kernel, "sum", "float32", "float32", n, rows, 256, 1, 1, 1, "cuda", "grid", "cold",
        "total", "random", "pass", "", suite=suite, name=name,
    )  # fmt: skip
    return replace(blank, **more)  # type: ignore[arg-type]


def run_of(registry: Registry, suite: str, **more: object) -> Run:
    records = tuple(
        record(suite, c.name or "", c.kernel.id, e.n, e.rows, **more)
        for e in experiments(registry.suites[suite], registry.kernels)
        for c in e.choices
    )
    return Run({}, DeviceInfo(name="Some GPU", peak_gb_s=2000.0), {}, records)


@pytest.mark.parametrize(
    ("suite", "shapes"),
    [
        ("five-steps", [(2**25, 1)]),
        ("stackoverflow", [(10_000, 1), (1_000_000, 1), (100_000_000, 1), (32, 1048576)]),
        ("leimao", [(262144, 2048)]),
        ("fastcuda", [(2**20, 1)]),
        ("gpumode", [(51200 * 2**k, 1) for k in range(5, 11)]),
        ("bbuf", [(2**25, 1)]),
    ],
)
def test_sizes_are_the_authors(
    registry: Registry, suite: str, shapes: list[tuple[int, int]]
) -> None:
    found = experiments(registry.suites[suite], registry.kernels)
    assert [(e.n, e.rows) for e in found] == shapes
    versions = {choice.name for e in found for choice in e.choices}
    assert versions == {row.name for row in registry.suites[suite].rows}


def test_reproduce_bbuf_compares_its_figures_with_ours(registry: Registry) -> None:
    run = run_of(registry, "bbuf", time_us=100.0, gb_s=1342.0, pct_peak=67.1, speedup=1.0)
    found = section(registry.suites["bbuf"], run, MemoryThroughput({"reduce_v0_baseline": 91.5}))
    assert found.header == ("published as", "us", "GB/s", "%peak", "x", "(us)", "(GB/s)",
                            "(%peak)", "(x)", "(util.)", "ncu %")  # fmt: skip
    assert found.rows[0] == ("reduce_baseline", "100", "1342", "67.1", "1.00", "990.66", "135",
                             "8.7", "-", "39.6", "91.5")  # fmt: skip
    shares = [row[7] for row in found.rows]
    assert shares == ["8.7", "18.0", "18.7", "35.4", "51.7", "54.4", "81.8"]  # recomputed by hand
    text = " ".join(found.notes)
    assert "NVIDIA A100-PCIE-40GB; (%peak) is of its 1555 GB/s" in text
    assert "shared memory in v0 to v3. So v4 is faster and seems to use less bandwidth." in text


def test_without_a_profiler_a_dash_and_the_reason(registry: Registry) -> None:
    run = run_of(registry, "bbuf", time_us=100.0, gb_s=1342.0)
    found = section(registry.suites["bbuf"], run, MemoryThroughput({}, "ncu was not found"))
    assert {row[-1] for row in found.rows} == {"-"}
    assert "none here: ncu was not found" in " ".join(found.notes)


def test_leimao_is_compared_by_shares_of_two_peaks(registry: Registry) -> None:
    run = run_of(registry, "leimao", time_us=1000.0, gb_s=1800.0, pct_peak=90.0)
    found = section(registry.suites["leimao"], run, MemoryThroughput({}))
    v1 = dict(zip(found.header, found.rows[0], strict=True))
    assert (v1["(us)"], v1["(GB/s)"], v1["(%peak)"], v1["%peak"]) == (
        "2429.76",
        "884",
        "94.4",
        "90.0",
    )
    assert found.rows[2][found.header.index("(us)")] == "-"


def test_a_publication_without_figures_is_reported_as_such(registry: Registry) -> None:
    found = section(
        registry.suites["five-steps"], run_of(registry, "five-steps"), MemoryThroughput({})
    )
    assert found.header == ("published as", "result")
    assert "The publication prints no figures." in found.notes


def test_fastcuda_prints_its_own_lines(registry: Registry) -> None:
    run = run_of(registry, "fastcuda", time_us=20.5, gb_s=204.6, error=1e-6)
    lines = fastcuda_lines(run).splitlines()
    assert lines[:6] == [
        "n=1048576",
        "device=Some GPU",
        "algorithm=baseline_v0",
        "elapsed_ms=0.0205",
        "bandwidth_gb_s=204.60",
        "abs_error=1.000e-06",
    ]
    assert lines[-1] == "status=ok"
    names = [line.split("=")[1] for line in lines if line.startswith("algorithm=")]
    assert names == ["baseline_v0", "no_divergence_v1", "no_bank_conflict_v2",
                     "add_during_load_v3", "unroll_last_warp_v4", "completely_unroll_v5",
                     "multi_add_v6", "shuffle_v7"]  # fmt: skip
    wrong = replace(run, records=(replace(run.records[0], verdict="fail"),))
    assert fastcuda_lines(wrong).endswith("status=wrong\n")


@pytest.mark.long
def test_reproduce_on_the_cpu_verifies_results(
    cudareduce: Call, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fewer elements than the author's: those take the emulator ten seconds."""
    whole = registry.suite("fastcuda")
    small = replace(whole, experiment={**whole.experiment, "n": [2**16]})
    monkeypatch.setattr(Registry, "suite", lambda self, name: small)
    code, out, _ = cudareduce("reproduce", "fastcuda", "--backend", "cpu", "--quiet")
    assert code == 0
    assert sum(line.endswith(" right") for line in out.splitlines()) == 8


def test_an_unknown_suite_is_named_with_the_known_ones(cudareduce: Call) -> None:
    code, _, err = cudareduce("reproduce", "slowcuda")
    assert code == 2
    assert "there is no suite 'slowcuda'; the suites are: bbuf, fastcuda, five-steps" in err
