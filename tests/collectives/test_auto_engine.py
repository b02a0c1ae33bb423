"""`peer:auto`: which kernel it selects for an array, and how records and tables name it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.collectives.engines import COSTS, engine_record, fastest_kernel, record_choice
from cudareduce.collectives.kernels import kernels_of, load_kernels
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.ranks import rank_sections
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load

RESULTS = Path(__file__).parents[2] / "results" / "nvidia-h100"
KNOWN = tuple(COSTS["all-reduce"])


@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter"])
def test_auto_selects_the_fastest_kernel_of_a_stored_run(name: str) -> None:
    """Or one that is as fast, within the scatter of two measurements."""
    measured: dict[int, dict[str, float]] = {}
    for r in load(RESULTS / f"ranks-{name}.json").records:
        kind, _, short = (r.engine or "").partition(":")
        if kind == "peer" and short != "auto" and r.time_us:
            measured.setdefault(r.n, {})[short] = r.time_us
    assert len(measured) >= 5
    for n, us in measured.items():
        assert us[fastest_kernel(name, us, 2, n, 4)] <= 1.03 * min(us.values()), n


def selected(ranks: int, n: int, size: int = 4) -> str:
    return fastest_kernel("all-reduce", KNOWN, ranks, n, size)


def test_two_shot_is_selected_at_smaller_sizes_with_more_ranks() -> None:
    """One-shot sends `ranks - 1` times the array's bytes; two-shot always less than twice."""
    first_sizes = [
        next(n for n in range(2**8, 2**20, 2**8) if selected(ranks, n) == "two_shot")
        for ranks in (2, 4, 8)
    ]
    assert first_sizes == sorted(first_sizes, reverse=True)
    assert selected(8, 2**10) == "packets"


def test_small_types_use_a_whole_ll_slot() -> None:
    assert selected(8, 2**14) == selected(8, 2**13, 8) == "packets"
    assert selected(8, 2**15) != "packets"
    assert selected(8, 2**15, 1) != "packets"


def test_auto_knows_all_kernels_of_the_package() -> None:
    """Each collective has a cost model of every correct kernel, or only one correct kernel."""
    for name in ("all-reduce", "reduce-scatter", "reduce"):
        kernels = kernels_of(load_kernels(), name)
        right = [short for short, kernel in kernels.items() if kernel.wrong is None]
        assert len(right) == 1 or set(right) == COSTS[name].keys()
        assert fastest_kernel(name, right, 2, 2**30, 1) in right


def record(engine: str, us: float | None, n: int = 1000, half: float = 0.1) -> Record:
    plain = engine_record("all-reduce", reduction_of("sum", "float32"), 2, "cuda", engine, n)
    if us is None:
        return plain
    return replace(plain, time_us=us, time_us_low=us - half, time_us_high=us + half, bytes=4 * n)


def notes(*records: Record) -> tuple[str, ...]:
    found = [record_choice(r, KNOWN) for r in records]
    (section,) = rank_sections(Run({}, DeviceInfo("GPU"), {}, tuple(found), "now"))
    return section.notes


def test_a_record_names_the_chosen_kernel() -> None:
    assert record_choice(record("peer:auto", 6.0), KNOWN).chosen == "peer:packets"
    assert record_choice(record("peer:packets", 6.0), KNOWN).chosen is None
    assert "peer:auto took peer:packets" in notes(record("peer:auto", 6.0))


def test_a_table_names_the_fastest_kernel() -> None:
    one, two = record("peer:packets", 6.0), record("peer:one_shot", 9.5)
    assert "fastest at this size: peer:packets" in notes(two, one, record("peer:auto", 5.9))
    nccl = record("nccl", 9.0)
    assert "fastest at this size: peer:auto" in notes(record("peer:auto", 5.9), nccl)
    near = record("peer:two_shot", 6.15)
    assert "fastest at this size: peer:packets; peer:two_shot may be as fast" in notes(
        one, two, near
    )
    assert not any("fastest" in note for note in notes(one))
    assert not any("fastest" in note for note in notes(record("peer:packets", None), two))
