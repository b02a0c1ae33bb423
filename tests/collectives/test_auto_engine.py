"""Which kernel is taken for which array, and that a record and a table say so."""

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


#: Times in us of an all-reduce by number of float32 elements and kernel, on two H200 with 18
#: NVLinks.
MEASURED = {
    2**10: {"packets": 6.24, "one_shot": 9.54, "two_shot": 9.81},
    2**14: {"packets": 6.82, "one_shot": 10.48, "two_shot": 11.20},
    2**16: {"packets": 8.03, "one_shot": 11.62, "two_shot": 11.70},
    2**18: {"one_shot": 13.41, "two_shot": 12.93},
    2**20: {"one_shot": 22.93, "two_shot": 21.84},
    2**22: {"one_shot": 60.2, "two_shot": 58.5},
    2**28: {"one_shot": 3186.0, "two_shot": 3128.0},
}


@pytest.mark.parametrize("n", MEASURED)
def test_auto_selects_the_fastest_measured_kernel(n: int) -> None:
    known = ("packets", "one_shot", "two_shot")
    assert fastest_kernel("all-reduce", known, 2, n, 4) == min(
        MEASURED[n], key=MEASURED[n].__getitem__
    )


@pytest.mark.parametrize("name", ["all-reduce", "reduce-scatter"])
def test_auto_selects_the_fastest_kernel_of_a_stored_run(name: str) -> None:
    """Or one that is equally fast within the scatter of two measurements."""
    measured: dict[int, dict[str, float]] = {}
    for r in load(RESULTS / f"ranks-{name}.json").records:
        kind, _, short = (r.engine or "").partition(":")
        if kind == "peer" and short != "auto" and r.time_us:
            measured.setdefault(r.n, {})[short] = r.time_us
    assert len(measured) >= 5
    for n, us in measured.items():
        assert us[fastest_kernel(name, us, 2, n, 4)] <= 1.03 * min(us.values()), n


def taken(ranks: int, n: int, size: int = 4) -> str:
    return fastest_kernel("all-reduce", KNOWN, ranks, n, size)


def test_two_shot_is_selected_at_smaller_sizes_with_more_ranks() -> None:
    """The bytes that one-shot sends grow with the ranks, those of two-shot hardly do."""
    from_here = [
        next(n for n in range(2**8, 2**20, 2**8) if taken(ranks, n) == "two_shot")
        for ranks in (2, 4, 8)
    ]
    assert from_here == sorted(from_here, reverse=True)
    assert taken(8, 2**10) == "packets"


def test_small_types_use_a_whole_ll_slot() -> None:
    assert taken(8, 2**14) == taken(8, 2**13, 8) == "packets"
    assert taken(8, 2**15) != "packets"
    assert taken(8, 2**15, 1) != "packets"


def test_auto_knows_all_kernels_of_the_package() -> None:
    """The package's kernels of a collective: with known costs, or alone."""
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
