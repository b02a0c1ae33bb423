"""Figures of result files: kinds, contents and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.report.plot.figure import Bars, Grid, Lines
from cudareduce.report.plot.kinds import all_figures, figures
from cudareduce.results.store import load
from tests.report.plot.runs import (
    AFTER,
    BEFORE,
    BENCH,
    H100,
    PEERS,
    SWEEP,
    TYPES,
    collectives,
    many,
    over_sms,
    with_records,
)


@pytest.mark.parametrize(
    ("files", "titles"),
    [
        ((SWEEP,), ["Bandwidth over n: sum of float32, cold", "Time over n"]),
        ((PEERS,), ["Bandwidth over n: sum of float32, cold", "Time over n"]),
        ((BENCH,), ["Bandwidth at n = 33 554 432 (2^25): sum of float32, cold",
                    "Bandwidth at n = 33 554 432 (2^25): sum of float32, rows of 32"]),
        ((TYPES,), ["Who is fastest where"]),
        ((BEFORE, AFTER), ["Change of time"]),
        ((PEERS, H100 / "libraries-float32.json"), ["Share of each GPU's ceiling at n = "]),
    ],
    ids=str,
)  # fmt: skip
def test_the_kind_fits_what_the_files_hold(files: tuple[Path, ...], titles: list[str]) -> None:
    found = figures([load(path) for path in files], None)
    assert len(found) == len(titles)
    assert all(f.title.startswith(title) for f, title in zip(found, titles, strict=True))


def test_bandwidth_over_n_is_that_of_the_records_below_theory_and_ceiling() -> None:
    run = load(SWEEP)
    rates, times = figures([run], None)
    assert isinstance(rates, Lines) and isinstance(times, Lines)
    ceiling, *series = rates.series
    assert [each.name for each in series] == list(
        dict.fromkeys(r.kernel.removeprefix("reduce_") for r in run.records)
    )
    first = [r for r in run.records if r.kernel == run.records[0].kernel]
    assert [(p.x, p.y) for p in series[0].points] == [(r.n, r.gb_s) for r in first]
    assert [(p.x, p.y) for p in times.series[0].points] == [(r.n, r.time_us) for r in first]
    assert series[0].points[-1].text.startswith("4")
    marks = {line.label: (line.axis, line.value) for line in rates.references}
    assert marks == {
        "theory 4814 GB/s": ("y", run.device.peak_gb_s),
        "L2: 60 MiB": ("x", pytest.approx(15 * 2**20)),
    }
    assert (ceiling.points[-1].x, ceiling.points[-1].y) == (2**30, first[-1].ceiling_gb_s)


def test_of_many_curves_few_have_names_kernels_first_and_a_library_once() -> None:
    rates = figures([load(PEERS)], None)[0]
    assert isinstance(rates, Lines)
    strong = {s.name for s in rates.highlighted if s.role != "limit"}
    assert {"auto", "auto:fixed", "v7_shuffle"} < strong
    assert len([name for name in strong if name.startswith("torch")]) == 1
    assert rates.notes == (
        f"grey, without labels: {len(rates.series) - 1 - len(strong)} more",
        "wrong, not drawn: cub:gpu_to_gpu at 2^30",
        "skipped: cub:packed at 12 sizes, compute at 12 sizes, compute:not_guaranteed at 12 sizes, "
        "cutile at 12 sizes, numba at 12 sizes",
    )


def test_of_many_over_sms_few_have_names_too() -> None:
    run = over_sms()
    records = [replace(r, kernel=f"{r.kernel}_{k}") for k in range(20) for r in run.records]
    [lines] = figures([with_records(run, records)], "sms")
    assert isinstance(lines, Lines)
    assert len(lines.highlighted) == 7
    assert lines.notes == ("grey, without labels: 33 more",)


def test_wrong_and_skipped_kernels_are_notes_of_the_ladder() -> None:
    run = load(BENCH)
    first, second, third, *others = run.records
    records = [replace(first, verdict="fail"), replace(second, verdict="fail"),
               replace(third, verdict="skip"), *others]  # fmt: skip
    ladder, rows = figures([with_records(run, records)], "ladder")
    names = [r.kernel.removeprefix("reduce_") for r in (first, second, third)]
    assert ladder.notes[-2:] == (
        f"wrong, not drawn: {names[0]}, {names[1]}", f"skipped: {names[2]}"
    )  # fmt: skip
    assert not any("wrong" in note for note in rows.notes)
    wrong = [replace(r, verdict="fail") for r in run.records]
    with pytest.raises(UsageError, match="every result in these files is wrong"):
        figures([with_records(run, wrong)], None)


def test_two_runs_of_one_day_are_labelled_by_time() -> None:
    [bars] = figures([load(BEFORE), load(AFTER)], "change")
    assert bars.title == "Change of time, 2026-01-01 00:00 to 2026-01-01 00:00, NVIDIA H200"


def test_missing_sizes_are_reported_with_the_present_ones() -> None:
    with pytest.raises(UsageError, match=r"no times at n = 5; they have n = 2\^25$"):
        figures([load(BENCH)], "ladder", (), (5,))


def test_the_ladder_has_every_kernel_in_its_order_with_its_interval() -> None:
    run = load(BENCH)
    ladder = figures([run], "ladder")[0]
    assert isinstance(ladder, Bars)
    ours = [r for r in run.records if r.rows == 1]
    assert [(bar.name, bar.value, bar.low, bar.high) for bar in ladder.bars] == [
        (r.kernel.removeprefix("reduce_"), r.gb_s, r.gb_s_low, r.gb_s_high) for r in ours
    ]
    assert ladder.bars[7].label == "3340±10 GB/s, 81.6 %"
    assert [line.label for line in ladder.references] == ["ceiling 4088 GB/s", "theory 4814 GB/s"]
    assert [f.title for f in figures([load(SWEEP)], "ladder", sizes=(2**12, 2**20))] == [
        "Bandwidth at n = 4 096 (2^12): sum of float32, cold, NVIDIA H200",
        "Bandwidth at n = 1 048 576 (2^20): sum of float32, cold, NVIDIA H200",
    ]


def test_a_speed_up_is_against_the_fastest_library_of_each_size() -> None:
    run = load(PEERS)
    lines = figures([run], "speedup")[0]
    assert isinstance(lines, Lines)
    assert {series.name for series in lines.series} == {"auto", "auto:fixed", "v7_shuffle"}
    timed = [r for r in run.records if r.context and r.time_us and r.n == 2**25]
    best = min((r for r in timed if r.scope == "library"), key=lambda r: r.time_us or 0)
    ours = next(r for r in timed if r.kernel == "auto")
    point = next(p for c in lines.series if c.name == "auto" for p in c.points if p.x == 2**25)
    assert point.y == pytest.approx((best.time_us or 0) / (ours.time_us or 1), rel=0.02)
    assert point.low is not None and point.low <= point.y <= (point.high or 0)
    assert point.text.endswith(f"times as fast as {best.kernel.removeprefix('peer:')}")


def test_the_map_names_the_fastest_and_who_is_too_close_to_tell() -> None:
    grid = figures([load(TYPES)], None)[0]
    assert isinstance(grid, Grid)
    assert grid.columns == ("2^20", "2^25", "2^28")
    assert "float16 in float32" in grid.rows
    assert len(grid.cells) == len(grid.rows) * len(grid.columns)
    libraries = {(c.row, c.column): c.name for c in grid.cells if c.name.startswith("cub:")}
    assert libraries == {("int32", "2^28"): "cub:not_guaranteed"}


def test_collectives_are_drawn_over_bytes_with_their_intervals() -> None:
    [lines] = figures([collectives()], None)
    assert isinstance(lines, Lines)
    assert lines.title.startswith("Bus bandwidth over bytes: all-reduce, sum of float32, 2 ranks")
    assert [series.name for series in lines.series] == ["one_shot", "nccl"]
    assert [series.role for series in lines.series] == ["kernel", "library"]
    assert {point.x for point in lines.series[0].points} == {2.0**k for k in range(12, 31, 2)}
    last = lines.series[0].points[-1]
    assert last.y == pytest.approx(337, rel=0.01)
    assert last.low is not None and last.high is not None and last.low < last.y < last.high
    assert last.text.endswith(" % of the link")
    assert [line.label for line in lines.references] == ["link 365 GB/s"]
    assert lines.notes == ("wrong, not drawn: no_barrier at 40",)
    assert [f.title for f in all_figures(collectives())["busbw"]] == [lines.title]


def test_collectives_are_drawn_by_themselves() -> None:
    """Collectives and reductions on one GPU are never in the same figure."""
    both = with_records(load(SWEEP), [*load(SWEEP).records, *collectives().records])
    assert figures([both], "sizes") == figures([load(SWEEP)], "sizes")
    assert figures([both], "busbw") == figures([collectives()], "busbw")
    with pytest.raises(UsageError, match="nothing to draw as busbw: it shows bus bandwidth"):
        figures([load(SWEEP)], "busbw")


def test_a_sweep_over_sms_is_drawn_over_active_sms() -> None:
    lines = figures([over_sms()], None)[0]
    assert isinstance(lines, Lines)
    assert lines.x.title == "active SMs"
    assert [[p.x for p in series.points] for series in lines.series] == [[8, 16, 32, 64, 132]] * 2


def test_a_change_is_sure_where_its_interval_says_so() -> None:
    old = load(BENCH)
    slower = [
        replace(r, time_us=1.5 * (r.time_us or 0), time_us_low=1.5 * (r.time_us_low or 0),
                time_us_high=1.5 * (r.time_us_high or 0))
        if r.kernel == "reduce_v7_shuffle" else r
        for r in old.records
    ]  # fmt: skip
    bars = figures([old, with_records(old, slower)], None)[0]
    assert isinstance(bars, Bars)
    found = {bar.name: bar for bar in bars.bars}
    assert found["v7_shuffle"].value == pytest.approx(50)
    assert (found["v7_shuffle"].low or 0) > 40
    assert found["v6_multi_add"].value == 0
    assert found["v7_shuffle"].text.startswith("+50") and "to 61." in found["v7_shuffle"].text


def test_of_many_bars_the_fastest_are_kept() -> None:
    bars = figures([many(5000)], "ladder")[0]
    assert isinstance(bars, Bars)
    assert len(bars.bars) == 120
    assert "the 119 slowest are left out" in bars.notes


@pytest.mark.parametrize("name", ["reduce_v7_shuffle", "v7_shuffle", "v7"])
def test_curves_are_selected_by_name(name: str) -> None:
    rates = figures([load(PEERS)], None, only=("cub:*", name))[0]
    assert isinstance(rates, Lines)
    assert {c.name for c in rates.series} == {
        "ceiling: read only", "cub:run_to_run", "cub:not_guaranteed", "cub:gpu_to_gpu",
        "v7_shuffle",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("files", "kind", "only", "said"),
    [
        ((BENCH,), "sizes", (), "nothing to draw as sizes: it shows bandwidth and time over n"),
        ((BENCH,), "speedup", (), "nothing to draw as speedup: it shows kernels against the"),
        ((BENCH,), "sms", (), "nothing to draw as sms"),
        ((BENCH,), "gpus", (), "nothing to draw as gpus"),
        ((BENCH,), "change", (), "--kind change compares two results: name two files"),
        ((BENCH, TYPES), "change", (), "have no time of the same kernel and problem"),
        ((BEFORE, AFTER), "ladder", (), "hold several times of v0_baseline for one problem|hold "),
        ((SWEEP, H100 / "libraries-float32.json"), "sizes", (), "NVIDIA H200 and NVIDIA H100"),
        ((SWEEP,), None, ("v9",), "no timed kernel is called v9: there are reduce_last_block"),
        ((H100.parent / "nvidia-h200" / "selftest.json",), None, (), "hold no records: bench"),
    ],
)
def test_kinds_that_cannot_be_drawn_are_errors(
    files: tuple[Path, ...], kind: str | None, only: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        figures([load(path) for path in files], kind, only)


def test_a_missing_time_is_explained() -> None:
    run = load(BENCH)
    skipped = [replace(r, verdict="skip", reason="too old", time_us=None) for r in run.records]
    with pytest.raises(UsageError, match=r"no times on a GPU.*\(the first reason: too old\)"):
        figures([with_records(run, skipped)], None)


def test_implausible_values_are_not_drawn() -> None:
    run = load(BENCH)
    first = run.records[0]
    odd = [
        replace(first, kernel="a", gb_s=1e300), replace(first, kernel="b", time_us=-1.0),
        replace(first, kernel="c", n=2**200), replace(first, kernel="d", gb_s_low=9e9),
        replace(first, kernel="e\x1b[2J", ceiling_gb_s=-3.0, pct_ceiling=1e30),
    ]  # fmt: skip
    device = replace(run.device, peak_gb_s=1e300, l2_bytes=-4, name="A\x1b[2J")
    bars = figures([replace(with_records(run, odd), device=device)], None)[0]
    assert isinstance(bars, Bars)
    assert [(bar.name, bar.low) for bar in bars.bars] == [
        ("d", None),
        ("e\\x1b[2J", first.gb_s_low),
    ]
    assert bars.references == (bars.references[0],) and bars.references[0].label.startswith(
        "ceiling"
    )
    assert "\x1b" not in bars.title
