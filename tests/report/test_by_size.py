"""Tables with a column for each size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.report.sections import by_size
from cudareduce.results.store import load
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
RUN = load(ROOT / "results" / "nvidia-h200" / "libraries-float32.json")


def test_tables_of_all_sizes() -> None:
    found = by_size(RUN)
    sizes = ("", *(f"2^{k}" for k in (10, 12, 14, 16, 18, 20, 22, 24, 25, 26, 28, 30)))
    assert [section.header for section in found] == [sizes] * 4
    assert [section.title.split(", ")[1] for section in found] == [
        "us", "% of the bandwidth of a read-only kernel",
        "speed-up", "host us for a call",
    ]  # fmt: skip
    times, shares, ratios, host = ({row[0]: row[1:] for row in section.rows} for section in found)
    assert set(times) == set(shares) == set(ratios) < set(host)
    assert "peer:jax" in set(host) - set(times)
    assert {r.kernel for r in RUN.records if r.context and r.time_us} == set(times)
    for k in range(len(sizes) - 1):
        assert sum(row[k] == "1" for row in ratios.values()) == 1


def test_kernels_without_times() -> None:
    untimed = tuple(
        replace(r, verdict="skip", reason="no time", time_us=None, host_us=None, speedup=None,
                pct_ceiling=None)
        for r in RUN.records if r.n == 1024
    )  # fmt: skip
    (host,) = by_size(replace(RUN, records=untimed))
    assert host.rows == ()
    assert "no time" in " ".join(host.notes)


def test_one_table_by_size_is_selected_by_name() -> None:
    assert by_size(RUN, "ratios") == [by_size(RUN)[2]]
    with pytest.raises(UsageError, match="no table rates by size: name one of us, ceiling, ratios"):
        by_size(RUN, "rates")


def test_the_shortest_time_of_each_size_is_bold() -> None:
    times = by_size(RUN)[0]
    for k, n in enumerate(times.header[1:], 1):
        timed = [r for r in RUN.records if r.context and f"2^{r.n.bit_length() - 1}" == n]
        best = min((r for r in timed if r.time_us), key=lambda r: r.time_us or 0)
        assert [row[0] for row in times.rows if row[k].startswith("**")] == [best.kernel]


def test_a_wrong_result_has_no_time() -> None:
    times = by_size(RUN)[0]
    [row] = [row for row in times.rows if row[0] == "peer:cub:gpu_to_gpu"]
    assert row[-1] == "WRONG"
    assert any("gpu_to_gpu at 2^30: WRONG: n = " in note for note in by_size(RUN)[-1].notes)


def test_odd_layouts_have_tables_of_their_own() -> None:
    some = [r for r in RUN.records if r.context and r.time_us and r.n == 4096]
    odd = [replace(r, n=4097, aligned_n=4096, slowdown=1.5, slowdown_low=1.4, slowdown_high=1.6)
           for r in some]  # fmt: skip
    off = [replace(r, n=4096, aligned_n=4096, offset=1, slowdown=2.0, slowdown_low=2.0,
                   slowdown_high=2.0) for r in some]  # fmt: skip
    *_, more, start = by_size(replace(RUN, records=(*some, *odd, *off)))
    assert "with one element more: how many times longer" in more.title
    assert "starting one element off: how many times longer" in start.title
    assert more.header == start.header == ("", "2^12")
    assert {row[1] for row in more.rows} == {"1.5±.1"}
    assert len(start.rows) == len(some)


def test_a_run_without_libraries_has_no_table_by_size(cudareduce: Call, tmp_path: Path) -> None:
    bench = ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json"
    page = tmp_path / "page.md"
    page.write_text(f"<!-- cudareduce: {bench}, by size -->\n<!-- /cudareduce -->\n")
    code, _, err = cudareduce("report", page)
    assert code == 2
    assert re.search(r"page.md:1: this run has no libraries to compare with", err)


def test_each_timing_has_a_table_of_its_own() -> None:
    graphs = tuple(replace(r, timing="cold graph") for r in RUN.records)
    found = by_size(replace(RUN, records=(*RUN.records, *graphs)), "us")
    assert found[0] == by_size(RUN, "us")[0]
    assert [", cold, " in found[0].title, ", cold graph, " in found[1].title] == [True, True]
    assert found[1].rows == found[0].rows


def test_engines_of_a_collective() -> None:
    run = load(ROOT / "results" / "nvidia-h100" / "ranks-all-reduce.json")
    us, busbw, link, loop = by_size(run)
    assert us.title == (
        "all-reduce of float32, sum, 2 ranks, us of the slowest rank, NVIDIA H100 80GB HBM3"
    )
    assert us.header[:3] == ("", "1", "2^10")
    names = ["peer:one_shot", "peer:packets", "peer:two_shot", "peer:writes", "peer:auto", "nccl",
             "nccl-symm"]  # fmt: skip
    assert [row[0] for row in us.rows] == names
    for k in range(1, len(us.header)):
        n = sorted({r.n for r in run.records})[k - 1]
        times = {r.engine: r.time_us for r in run.records if r.n == n and r.time_us}
        fastest = [name for name in names if times.get(name) == min(times.values())]
        assert [row[0] for row in us.rows if row[k].startswith("**")] == fastest
    assert busbw.rows[1][-1] == link.rows[1][-1] == loop.rows[1][-1] == "-"  # too long for mail
    with pytest.raises(UsageError, match="no table ratios by size: name one of us, busbw"):
        by_size(run, "ratios")
