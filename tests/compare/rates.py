"""How often verdicts are wrong: `python -m tests.compare.rates [--comparisons N]`.

Rounds are simulated, pairs of runs in each of several ways in which machines misbehave, and judged
by means alone (Welch), by trimmed means alone (Yuen), and by the rule that `compare` has
between them, before a second measurement. Another table has what that leaves of identical code that
is called slower: made in the same process, in a fresh one, and in a fresh one beside the base.
`--runs` compares whole runs of twelve kernels of two sizes with the functions of `compare` and
`check`, with six unchanged kernels as the control group and without one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log1p
from statistics import median

import numpy as np
from tabulate import tabulate

from cudareduce.compare import statistics
from cudareduce.compare.check import confirm_rows
from cudareduce.compare.request import Thresholds
from cudareduce.compare.statistics import shift_of_means
from cudareduce.compare.verdicts import Rules, compare, require_evidence
from cudareduce.results.record import Record
from tests.simulate import record

Rounds = np.ndarray
Make = Callable[[np.random.Generator, tuple[int, int]], Rounds]
_US, _TICK_US = 4.0, 0.032  # a small kernel, whose times have few steps


def _plain(rng: np.random.Generator, shape: tuple[int, int]) -> Rounds:
    return rng.normal(0, 0.003, shape)


def _odd(rng: np.random.Generator, shape: tuple[int, int]) -> Rounds:
    logs = _plain(rng, shape)
    logs[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] += log1p(0.3)
    return logs


def _drifting(rng: np.random.Generator, shape: tuple[int, int]) -> Rounds:
    slope = rng.normal(0, 0.01, (shape[0], 1))
    return np.asarray(_plain(rng, shape) + slope * np.linspace(-1, 1, shape[1]))


def _states(rng: np.random.Generator, shape: tuple[int, int], stays: float) -> Rounds:
    """Two clocks 3 % apart; with this chance a round has that of the round before."""
    high = rng.random(shape) < 0.5
    kept = rng.random(shape) < stays
    for k in range(1, shape[1]):
        high[:, k] = np.where(kept[:, k], high[:, k - 1], high[:, k])
    return np.asarray(rng.normal(0, 0.002, shape) + log1p(0.03) * high)


def _following(rng: np.random.Generator, shape: tuple[int, int]) -> Rounds:
    logs = _plain(rng, shape)
    for k in range(1, shape[1]):
        logs[:, k] = 0.6 * logs[:, k - 1] + 0.8 * logs[:, k]
    return logs


SCENARIOS: Mapping[str, Make] = {
    "0.3 % of noise": _plain,
    "1 % of noise": lambda rng, shape: rng.normal(0, 0.01, shape),
    "heavy tails": lambda rng, shape: 0.003 * rng.standard_t(2, shape),
    "one round 30 % off": _odd,
    "drift within a run": _drifting,
    "drift between runs, 1 %": lambda rng, shape: (
        _plain(rng, shape) + rng.normal(0, 0.01, (shape[0], 1))
    ),
    "drift between runs, 2 %": lambda rng, shape: (
        _plain(rng, shape) + rng.normal(0, 0.02, (shape[0], 1))
    ),
    "two clocks": lambda rng, shape: _states(rng, shape, 0.0),
    "two sticky clocks": lambda rng, shape: _states(rng, shape, 0.6),
    "steps of 0.8 %": lambda rng, shape: np.log(
        np.round(_US * np.exp(_plain(rng, shape)) / _TICK_US) * _TICK_US / _US
    ),
    "rounds like their neighbours": _following,
}
Judge = Callable[[Rounds, Rounds], tuple[np.ndarray, np.ndarray, np.ndarray]]


WAYS: Mapping[str, Judge] = {
    "means": lambda old, new: shift_of_means([old, new]),
    "trimmed": lambda old, new: shift_of_means([old, new], trimmed=True),
    "rule": lambda old, new: statistics._shifts(old, new, False),
}


#: A second measurement of what looks slower, with twice the rounds: from the same process as the
#: first, from a fresh one, and from a fresh one that has the base in the same rounds.
CONFIRMATIONS = ("none", "same process", "fresh process", "beside the base")


def confirmed(
    name: str, how: str, *, comparisons: int, rounds: int, threshold: float, slowdown: float
) -> float:
    """Of comparisons of code that takes so much longer, the share that is called slower."""
    rng = np.random.default_rng(len(name))
    make, limit = SCENARIOS[name], log1p(threshold)
    old = make(rng, (comparisons, rounds))
    process, fresh, base = (make(rng, (comparisons, 3 * rounds)) for _ in range(3))

    def above(old: Rounds, new: Rounds, paired: bool = False) -> np.ndarray:
        middle, low, _ = statistics._shifts(old, new + log1p(slowdown), paired)
        return np.asarray((middle > limit) & (low > 0))

    found = above(old, process[:, :rounds])
    if how == "same process":
        found &= above(old, process[:, rounds:])
    elif how == "fresh process":
        found &= above(old, fresh[:, rounds:])
    elif how == "beside the base":  # what belongs to the run is in both; rounds are each side's own
        own = base - base.mean(axis=1, keepdims=True) + fresh.mean(axis=1, keepdims=True)
        found &= above(fresh[:, rounds:], own[:, rounds:], paired=True)
    return float(found.mean())


def confirmation_table(comparisons: int, rounds: int, slowdown: float) -> str:
    """Rates for drift between runs by threshold, as Markdown."""
    rows = []
    for name in ("drift between runs, 1 %", "drift between runs, 2 %", "two sticky clocks"):
        for threshold in (0.02, 0.03, 0.05):
            cells = []
            for how in CONFIRMATIONS:
                ask = {"comparisons": comparisons, "rounds": rounds}
                false, right = (
                    confirmed(name, how, threshold=threshold, slowdown=by, **ask)
                    for by in (0.0, threshold + slowdown)
                )  # fmt: skip
                cells.append(f"{100 * false:.2f} % {right:.2f}")
            rows.append([name, f"{100 * threshold:g} %", *cells])
    header = ["", "threshold", *CONFIRMATIONS]
    return tabulate(rows, header, tablefmt="github", disable_numparse=True)


@dataclass(frozen=True, slots=True)
class Rates:
    """Shares of comparisons: of identical code those called the same and those called slower, and
    those found of a kernel that became slower by so much."""

    same: float
    slower: float
    found: float


def rates(
    name: str, way: str, *, comparisons: int, rounds: int, threshold: float, slowdown: float
) -> Rates:
    """The rates of a method of judging in one scenario."""
    rng = np.random.default_rng(len(name))
    old, new = (SCENARIOS[name](rng, (comparisons, rounds)) for _ in range(2))
    limit, half_tick = log1p(threshold), _TICK_US / 2 / 40.0 * 2  # of a kernel of 40 us

    def judged(by: float) -> tuple[float, float]:
        middle, low, high = WAYS[way](old, new + log1p(by))
        low, high = low - half_tick, high + half_tick
        same = (low >= -limit) & (high <= limit)
        return float(same.mean()), float(((middle > limit) & (low > 0) & ~same).mean())

    same, slower = judged(0.0)
    return Rates(same, slower, judged(slowdown)[1])


def table(comparisons: int, rounds: int, threshold: float, slowdown: float) -> str:
    """All scenarios by all ways, in Markdown."""
    rows = []
    for name in SCENARIOS:
        cells = []
        for way in WAYS:
            found = rates(name, way, comparisons=comparisons, rounds=rounds, threshold=threshold,
                          slowdown=slowdown)  # fmt: skip
            cells.append(f"{found.same:.2f} {100 * found.slower:.2f} % {found.found:.2f}")
        rows.append([name, *cells])
    return tabulate(rows, ["", *WAYS], tablefmt="github", disable_numparse=True)


_KERNELS, _SIZES, _ROUNDS = 12, 2, 9
Machine = Callable[[np.random.Generator], Rounds]


def _noise(rng: np.random.Generator, scatter: float = 0.003) -> Rounds:
    """Noise of one run: kernels x sizes x rounds, as logarithms."""
    return rng.normal(0, scatter, (_KERNELS, _SIZES, _ROUNDS))


def _alike(rng: np.random.Generator, scatter: float, stays: float) -> Rounds:
    """Rounds of each row that follow the round before (AR(1)), of this standard deviation."""
    logs = _noise(rng, scatter)
    for k in range(1, _ROUNDS):
        logs[..., k] = stays * logs[..., k - 1] + (1 - stays**2) ** 0.5 * logs[..., k]
    return logs


def _sticky(rng: np.random.Generator, apart: float, stays: float, by_row: bool) -> Rounds:
    """Rounds in one of two states of a clock, that of the round before with this chance: one clock
    per row, or one for all, to which each kernel responds by another share."""
    shape = (_KERNELS, _SIZES) if by_row else (1, 1)
    high = rng.random((*shape, _ROUNDS)) < 0.5
    kept = rng.random(high.shape) < stays
    for k in range(1, _ROUNDS):
        high[..., k] = np.where(kept[..., k], high[..., k - 1], high[..., k])
    response = 1.0 if by_row else np.linspace(0, 1, _KERNELS)[_ORDER][:, None, None]
    return np.asarray(_noise(rng) + apart * high * response)


#: Kernels of both halves respond to clocks alike.
_ORDER = np.argsort([*range(0, _KERNELS, 2), *range(1, _KERNELS, 2)])
MACHINES: Mapping[str, Machine] = {
    "0.3 % of noise": _noise,
    "1 % of noise": lambda rng: _noise(rng, 0.01),
    "heavy tails": lambda rng: 0.003 * rng.standard_t(2, (_KERNELS, _SIZES, _ROUNDS)),
    "rounds like their neighbours": lambda rng: _alike(rng, 0.024, 0.9),
    "a sticky clock per row": lambda rng: _sticky(rng, 0.06, 0.9, True),
    "a sticky clock of the GPU": lambda rng: _sticky(rng, 0.10, 0.9, False),
    "2 % per kernel and process": lambda rng: (
        _noise(rng) + rng.normal(0, 0.02, (_KERNELS, 1, 1))
    ),
    "2 % per process": lambda rng: _noise(rng) + rng.normal(0, 0.02),
}  # fmt: skip


def run_records(logs: Rounds, side: str, controls: int) -> list[Record]:
    """The records of a run; the code of all but the first `controls` kernels differs by side."""
    return [
        replace(
            _TEMPLATE, kernel=f"k{k}", n=2 ** (25 + 2 * j), rounds_us=tuple(times),
            time_us=median(times), cubin_sha=f"{k}" if k < controls else f"{k} {side}",
        )
        for k, sizes in enumerate((40 * np.exp(logs)).tolist()) for j, times in enumerate(sizes)
    ]  # fmt: skip


_TEMPLATE = record("k", 2**25, [40.0] * _ROUNDS)


@dataclass(frozen=True, slots=True)
class RunRates:
    """Shares of the rows of changed kernels: of kernels that are equal those that are SAME, SLOWER,
    FASTER, and SLOWER after a confirmation run; of kernels that are slower those found."""

    same: float
    slower: float
    faster: float
    confirmed: float
    found: tuple[float, ...]


def run_rates(
    machine: str, *, runs: int, controls: int, threshold: float = 0.05,
    slowdowns: Sequence[float] = (), seed: int = 1,
) -> RunRates:  # fmt: skip
    """Compare pairs of whole runs of one simulated machine."""
    rng, make = np.random.default_rng(seed), MACHINES[machine]
    rules, counts = Rules(Thresholds(threshold)), Counter[str]()
    changed = (_KERNELS - controls) * _SIZES * runs
    for _ in range(runs):
        old_logs, new_logs, again = make(rng), make(rng), make(rng)
        old = run_records(old_logs, "old", controls)
        rows = compare(old, run_records(new_logs, "new", controls), rules)
        judged = require_evidence(rows, rules)
        counts.update(row.verdict for row in judged if not row.same_code)
        if any(row.verdict == "SLOWER" for row in rows):
            second = compare(old, run_records(again, "new", controls), rules)
            agreed = confirm_rows(rows, second, rules)
            counts["confirmed"] += sum(row.verdict == "SLOWER" for row in agreed)
        for by in slowdowns:
            slow = new_logs.copy()
            slow[controls::3] += log1p(by)  # a third of the changed kernels
            slow_rows = compare(old, run_records(slow, "new", controls), rules)
            judged = require_evidence(slow_rows, rules)
            at = {f"k{k}" for k in range(controls, _KERNELS, 3)}
            counts[f"found {by}"] += sum(
                row.verdict == "SLOWER" for row in judged if row.record.kernel in at
            )
    slowed = len(range(controls, _KERNELS, 3)) * _SIZES * runs
    same, slower, faster, confirmed = (
        counts[word] / changed for word in ("SAME", "SLOWER", "FASTER", "confirmed")
    )
    found = tuple(counts[f"found {by}"] / slowed for by in slowdowns)
    return RunRates(same, slower, faster, confirmed, found)


def run_table(runs: int, controls: int, slowdowns: Sequence[float]) -> str:
    """All machines in Markdown."""
    rows = []
    for name in MACHINES:
        found = run_rates(name, runs=runs, controls=controls, slowdowns=slowdowns)
        shares = (found.same, found.slower, found.faster, found.confirmed, *found.found)
        rows.append([name, *(f"{100 * share:.1f} %" for share in shares)])
    header = ["", "SAME", "SLOWER", "FASTER", "confirmed",
              *(f"+{100 * by:g} % found" for by in slowdowns)]  # fmt: skip
    return tabulate(rows, header, tablefmt="github", disable_numparse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--runs", type=int, help="compare so many pairs of whole runs")
    asked = parser.parse_args()
    if asked.runs:
        for controls in (_KERNELS // 2, 0):
            print(f"\n{controls} unchanged kernels\n")
            print(run_table(asked.runs, controls, (0.05, 0.08, 0.15)))
        return
    for threshold, slowdown in ((0.02, 0.03), (0.05, 0.08)):
        print(f"\nthreshold {100 * threshold:g} %: SAME, SLOWER of identical code; "
              f"{100 * slowdown:g} % slower found\n")  # fmt: skip
        print(table(asked.comparisons, asked.rounds, threshold, slowdown))
    print("\nSLOWER of identical code, and found of what is 3 % above the threshold\n")
    print(confirmation_table(asked.comparisons, asked.rounds, 0.03))


if __name__ == "__main__":
    main()
