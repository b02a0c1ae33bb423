"""Intervals and verdicts on simulated rounds: error rates and detection rates."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.compare.check import confirm_rows
from cudareduce.compare.request import Thresholds
from cudareduce.compare.statistics import (
    autocorrelation,
    changes,
    detectable_slowdown,
    shift_of_means,
)
from cudareduce.compare.verdicts import Rules, compare
from cudareduce.machine import EVENT_TICK_US
from cudareduce.results.record import Record
from tests.compare.rates import MACHINES, run_rates, run_records
from tests.simulate import record, rounds

N = 2**25
#: No same-code guard: the statistics alone decide.
RULES = Rules(Thresholds(0.02), same_code=False)


def verdict(rng: np.random.Generator, factor: float, drift: float, rules: Rules) -> str:
    """The verdict of `check` on a kernel that takes `factor` times as long, after the second
    measurement."""

    def measured(us: float, count: int) -> list[Record]:
        return [record("reduce_v7_shuffle", N, rounds(rng, us, count, drift))]

    old = measured(43.0, 9)

    rows = compare(old, measured(43.0 * factor, 9), rules)
    if any(row.verdict == "SLOWER" for row in rows):
        rows = confirm_rows(rows, compare(old, measured(43.0 * factor, 18), rules), rules)
    [row] = rows
    return row.verdict


@pytest.mark.parametrize("drift", [0.0, 0.003, 0.01])
def test_identical_code_is_rarely_called_slower_or_faster(
    drift: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 comparisons of identical code, with the guard off, at a threshold of 2 %."""
    rng = np.random.default_rng(1)
    found = Counter(verdict(rng, 1.0, drift, RULES) for _ in range(200))
    with capsys.disabled():
        print(f"\n  A/A, drift {100 * drift:g} %, threshold 2 %: {dict(found)}")
    assert found["SLOWER"] == found["FASTER"] == 0
    if drift <= 0.003:
        assert found["SAME"] == 200


@pytest.mark.parametrize("drift", [0.0, 0.003, 0.01])
@pytest.mark.parametrize("slowdown", [0.01, 0.03, 0.05, 0.10])
def test_slowdowns_are_caught(
    slowdown: float, drift: float, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(2)
    found = Counter(verdict(rng, 1 + slowdown, drift, RULES) for _ in range(100))
    with capsys.disabled():
        print(f"\n  {100 * slowdown:g} % slower, drift {100 * drift:g} %: {dict(found)}")
    if slowdown == 0.01:
        assert found["SLOWER"] <= 1
    if slowdown >= 0.03 and drift <= 0.003:
        assert found["SLOWER"] >= 95
    if slowdown == 0.10:
        assert found["SLOWER"] == 100


@pytest.mark.slow
@pytest.mark.parametrize("drift", [0.0, 0.003, 0.01])
def test_false_verdicts_in_thousands(drift: float, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates that 200 comparisons cannot show."""
    rng = np.random.default_rng(3)
    for threshold in (0.01, 0.02, 0.05):
        rules = Rules(Thresholds(threshold), same_code=False)
        found = Counter(verdict(rng, 1.0, drift, rules) for _ in range(3000))
        wrong = found["SLOWER"] + found["FASTER"]
        with capsys.disabled():
            print(f"\n  A/A x 3000, drift {100 * drift:g} %, threshold {100 * threshold:g} %: "
                  f"{100 * wrong / 3e3:.2f} % false, {dict(found)}")  # fmt: skip
        # a threshold no larger than the drift is one that `compare` and `check` refuse
        assert found["SLOWER"] <= (6 if threshold <= drift else 0)


def test_paired_rounds_see_through_what_moves_both() -> None:
    rng = np.random.default_rng(4)
    shift = np.exp(rng.normal(0, 0.05, 9))
    old = tuple(40 * shift * np.exp(rng.normal(0, 0.001, 9)))
    new = tuple(41.2 * shift * np.exp(rng.normal(0, 0.001, 9)))
    [paired] = changes([(old, new)], paired=True)
    [apart] = changes([(old, new)])
    assert 1.025 < paired.low < 1.03 < paired.high < 1.035
    assert apart.low < 1 < apart.high


def test_the_interval_is_scipys_widened_by_the_clocks_step() -> None:
    from scipy import stats  # here: it takes long to load

    rng = np.random.default_rng(5)
    old, new = rng.normal(40, 0.2, 9), rng.normal(42, 0.4, 12)
    [change] = changes([(tuple(old), tuple(new))])
    expected = stats.ttest_ind(np.log(new), np.log(old), equal_var=False).confidence_interval(0.98)
    step = EVENT_TICK_US / 2 * (np.mean(1 / old) + np.mean(1 / new))
    assert np.log(change.low) == pytest.approx(expected.low - step)
    assert np.log(change.high) == pytest.approx(expected.high + step)
    new = new[:9]
    [change] = changes([(tuple(old), tuple(new))], paired=True)
    expected = stats.ttest_rel(np.log(new), np.log(old)).confidence_interval(0.98)
    step = EVENT_TICK_US / 2 * (np.mean(1 / old) + np.mean(1 / new))
    assert np.log(change.low) == pytest.approx(expected.low - step)
    assert np.log(change.high) == pytest.approx(expected.high + step)


def test_pairs_of_every_length_keep_their_order() -> None:
    pairs = [((10.0,) * 9, (20.0,) * 9), ((10.0,) * 6, (30.0,) * 7), ((10.0,) * 9, (5.0,) * 9)]
    assert [round(change.ratio, 6) for change in changes(pairs)] == [2, 3, 0.5]


def test_rounds_without_spread_are_known_to_a_step_of_the_clock() -> None:
    [change] = changes([((3.2,) * 9, (3.2,) * 9)])
    assert change.ratio == 1
    assert change.high - 1 == pytest.approx(EVENT_TICK_US / 3.2, rel=0.01)


@pytest.mark.parametrize("drift", [0.003, 0.01, 0.02])
def test_the_smallest_detectable_slowdown_is_detected(drift: float) -> None:
    rng = np.random.default_rng(6)
    promised: list[float] = []
    for _ in range(200):
        [change] = changes([(rounds(rng, 43.0, 9, drift), rounds(rng, 43.0, 9, drift))])
        promised.append(detectable_slowdown(change.half_width, 0.02))
    slowdown = float(np.median(promised))
    found = Counter(
        compare(
            [record("k", N, rounds(rng, 43.0, 9, drift))],
            [record("k", N, rounds(rng, 43.0 * (1 + slowdown), 9, drift))], RULES,
        )[0].verdict for _ in range(400)
    )  # fmt: skip
    assert found["SLOWER"] >= 0.93 * 400


@pytest.mark.parametrize(("size", "other"), [(8, 8), (9, 9), (9, 18), (7, 30)])
def test_the_interval_of_trimmed_means_is_scipys(size: int, other: int) -> None:
    from scipy import stats  # here: it takes long to load

    rng = np.random.default_rng(size * other)
    old, new = rng.normal(0, 1, (1, size)), rng.normal(0.5, 1, (1, other))
    if size == other:
        _, low, high = shift_of_means([old, new], trimmed=True)
        found = stats.ttest_ind(new[0], old[0], equal_var=False, trim=1 / size)
        expected = found.confidence_interval(0.98)
        assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))
    middle, _, _ = shift_of_means([old, new], trimmed=True)
    means = [
        np.sort(side[0])[cut:-cut].mean() for side, cut in ((new, max(1, other // 8)), (old, 1))
    ]
    assert middle[0] == pytest.approx(means[0] - means[1])


def test_intervals_of_trimmed_means_have_their_stated_coverage() -> None:
    rng = np.random.default_rng(1)
    old, new = rng.standard_t(2, (4000, 9)), rng.standard_t(2, (4000, 9))
    for sides in ([old, new], [new - old]):
        _, low, high = shift_of_means(sides, trimmed=True)
        assert 0.98 <= ((low <= 0) & (high >= 0)).mean() < 0.995


@pytest.mark.parametrize("paired", [False, True])
def test_one_odd_round_does_not_hide_a_change(paired: bool) -> None:
    rng = np.random.default_rng(2)
    old = 40 * np.exp(rng.normal(0, 0.003, 9))
    new = 1.1 * 40 * np.exp(rng.normal(0, 0.003, 9))
    new[4] *= 1.3
    [change] = changes([(tuple(old), tuple(new))], paired=paired)
    assert 1.09 < change.low < 1.1 < change.high
    assert change.ratio == pytest.approx(1.1, rel=0.003)
    assert paired or change.high < 1.115  # of nine pairs one reaches into the interval's end
    new[2:4] *= 1.3  # three of nine are no odd round, but a state of the machine
    [change] = changes([(tuple(old), tuple(new))], paired=paired)
    assert change.low < 1.09 < 1.2 < change.high


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.long
def test_a_misbehaving_machine_calls_under_one_percent_slower_or_faster(machine: str) -> None:
    found = run_rates(machine, runs=150, controls=6, slowdowns=(0.15,))
    assert found.slower < 0.01
    assert found.faster < 0.01
    if machine in ("0.3 % of noise", "1 % of noise", "heavy tails"):
        assert found.same > 0.95
        assert found.found[0] > 0.99


def test_autocorrelated_rounds_and_shifts_per_kernel_are_not_called_changes() -> None:
    for machine in ("rounds like their neighbours", "2 % per kernel and process"):
        found = run_rates(machine, runs=30, controls=6, seed=2)
        assert found.slower + found.faster < 0.02


def test_autocorrelated_rounds_widen_the_interval_and_are_named() -> None:
    rng = np.random.default_rng(3)
    old, new = (MACHINES["rounds like their neighbours"](rng) for _ in range(2))
    rows = compare(run_records(old, "old", 0), run_records(new, "new", 0), Rules(Thresholds()))
    doubtful = [row for row in rows if row.verdict == "UNCERTAIN"]
    assert len(doubtful) >= 23
    for row in doubtful:
        assert "rounds resemble the ones before (autocorrelation 0." in row.reason
        assert row.in_doubt


def test_scatter_of_unchanged_kernels_is_the_reason_of_uncertain() -> None:
    rng = np.random.default_rng(3)
    old, new = (MACHINES["2 % per kernel and process"](rng) for _ in range(2))
    rows = compare(run_records(old, "old", 6), run_records(new, "new", 6), Rules(Thresholds()))
    reasons = {row.reason for row in rows if not row.same_code and row.verdict == "UNCERTAIN"}
    [reason] = {reason for reason in reasons if "scatter" in reason}
    assert re.fullmatch(
        r"changes of unchanged kernels scatter by \d\.\d % \(standard deviation\) between these "
        r"runs: measure both again", reason,
    )  # fmt: skip


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6, 0.9])
def test_the_autocorrelation_of_short_series_is_estimated_without_bias(rho: float) -> None:
    rng = np.random.default_rng(4)
    series = rng.normal(0, 1, (2000, 9))
    for k in range(1, 9):
        series[:, k] = rho * series[:, k - 1] + (1 - rho**2) ** 0.5 * series[:, k]
    assert autocorrelation(list(series)) == pytest.approx(rho, abs=0.05)


def test_two_series_show_no_autocorrelation_by_chance() -> None:
    rng = np.random.default_rng(5)
    assert not any(autocorrelation(list(rng.normal(0, 1, (2, 9)))) for _ in range(500))


MIRROR = {"SLOWER": "FASTER", "FASTER": "SLOWER", "SAME": "SAME", "UNCERTAIN": "UNCERTAIN"}


@pytest.mark.parametrize("paired", [False, True])
@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32), us=st.floats(5, 5e4), change=st.floats(0.8, 1.25),
    count=st.integers(6, 20), drift=st.floats(0, 0.02),
    threshold=st.sampled_from([0.01, 0.02, 0.05, 0.1]),
)  # fmt: skip
def test_swapping_the_sides_mirrors_the_verdict(
    paired: bool, seed: int, us: float, change: float, count: int, drift: float, threshold: float
) -> None:
    rng = np.random.default_rng(seed)
    old = record("a", 2**20, rounds(rng, us, count, drift), cubin_sha="before")
    new = record("a", 2**20, rounds(rng, us * change, count, drift), cubin_sha="after")
    rules = Rules(Thresholds(threshold), paired=paired)
    [there], [back] = compare([old], [new], rules), compare([new], [old], rules)
    assert back.verdict == MIRROR[there.verdict]
    assert there.change is not None and back.change is not None
    assert there.change.ratio * back.change.ratio == pytest.approx(1)
    assert there.change.low * back.change.high == pytest.approx(1)
