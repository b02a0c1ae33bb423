"""Detection rates and false-positive rates of change points: `python -m tests.compare.change_points
[--series N]`.

Series of runs are simulated in the ways in which machines misbehave from run to run, and divided by
what `history` uses, by ranks (Pettitt's test, each side again), by distances with permutations
(E-divisive, Matteson and James) and, where it is installed, by Apache Otava. A kernel counts as
slower where its last level lies further above the best one than the threshold.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from math import exp, expm1, log1p

import numpy as np
from tabulate import tabulate

from cudareduce.compare.change_points import HOLDS, change_points

Series = np.ndarray
Make = Callable[[np.random.Generator], Series]
Divide = Callable[[Series], Sequence[int]]
_RUNS, _LEVEL, _PERMUTATIONS = 40, 1e-3, 999


def _noise(rng: np.random.Generator, scatter: float, runs: int = _RUNS) -> Series:
    return np.asarray(rng.normal(0, scatter, runs))


def _odd(rng: np.random.Generator) -> Series:
    logs = _noise(rng, 0.003)
    logs[rng.integers(len(logs))] += log1p(0.3)
    return logs


def _clocks(rng: np.random.Generator) -> Series:
    return np.asarray(_noise(rng, 0.002) + log1p(0.03) * (rng.random(_RUNS) < 0.5))


def _following(rng: np.random.Generator) -> Series:
    logs = _noise(rng, 0.005)
    for k in range(1, len(logs)):
        logs[k] = 0.6 * logs[k - 1] + 0.8 * logs[k]
    return logs


def _step_change(held: int, scatter: float, by: float = 0.03, runs: int = _RUNS) -> Make:
    def made(rng: np.random.Generator) -> Series:
        logs = _noise(rng, scatter, runs)
        logs[runs - held :] += log1p(by)
        return logs

    return made


def _creeping(scatter: float) -> Make:
    """Twelve times 0.4 %, over sixty runs."""

    def made(rng: np.random.Generator) -> Series:
        at = np.sort(rng.choice(np.arange(5, 56), 12, replace=False))
        creeps = np.searchsorted(at, np.arange(60), "right")
        return np.asarray(_noise(rng, scatter, 60) + log1p(0.004) * creeps)

    return made


#: What has no step that held for two runs, and what has one.
FLAT: Mapping[str, Make] = {
    "0.3 % between runs": lambda rng: _noise(rng, 0.003),
    "1 % between runs": lambda rng: _noise(rng, 0.01),
    "1 %, ten runs": lambda rng: _noise(rng, 0.01, 10),
    "heavy tails": lambda rng: 0.003 * rng.standard_t(2, _RUNS),
    "one run 30 % off": _odd,
    "runs like their neighbours": _following,
    "two clocks, 3 % apart": _clocks,
    "3 % slower in the last run": _step_change(1, 0.003),
}
SLOWER: Mapping[str, Make] = {
    "3 % in the last two, 0.3 %": _step_change(2, 0.003),
    "3 % in the last two of ten, 0.3 %": _step_change(2, 0.003, runs=10),
    "3 % in the last two, 1 %": _step_change(2, 0.01),
    "3 % in the last five, 1 %": _step_change(5, 0.01),
    "3 % in the last twenty, 1 %": _step_change(20, 0.01),
    "twelve times 0.4 %, 0.3 %": _creeping(0.003),
    "twelve times 0.4 %, 1 %": _creeping(0.01),
}


def _bisected(series: Series, find: Callable[[Series], tuple[int, float]]) -> list[int]:
    """Splits each side again while the split is significant."""
    found: list[int] = []
    todo = [(0, len(series))]
    while todo:
        first, end = todo.pop()
        if end - first < 2 * HOLDS + 1:
            continue
        at, chance = find(series[first:end])
        if chance < _LEVEL:
            found.append(first + at)
            todo += [(first, first + at), (first + at, end)]
    return sorted(found)


def _pettitt(part: Series) -> tuple[int, float]:
    count = len(part)
    ranks = part.argsort().argsort() + 1
    sums = np.abs(2 * np.cumsum(ranks) - np.arange(1, count + 1) * (count + 1))[:-1]
    at = int(np.argmax(sums))
    return at + 1, 2 * exp(-6 * float(sums[at]) ** 2 / (count**3 + count**2))


def _energy(parts: Series) -> Series:
    """The largest energy statistic of each row's divisions, and where it is."""
    count = parts.shape[1]
    apart = np.abs(parts[:, :, None] - parts[:, None, :])
    found = []
    for at in range(HOLDS, count - HOLDS + 1):
        between = apart[:, :at, at:].mean(axis=(1, 2))
        left = apart[:, :at, :at].sum(axis=(1, 2)) / (at * (at - 1))
        rest = count - at
        right = apart[:, at:, at:].sum(axis=(1, 2)) / (rest * (rest - 1))
        found.append(at * rest / count * (2 * between - left - right))
    return np.array(found)


def _divisive(part: Series) -> tuple[int, float]:
    rng = np.random.default_rng(0)
    here = _energy(part[None, :])[:, 0]
    others = rng.permuted(np.tile(part, (_PERMUTATIONS, 1)), axis=1)
    largest = _energy(others).max(axis=0)
    chance = (1 + int((largest >= here.max()).sum())) / (1 + _PERMUTATIONS)
    return HOLDS + int(here.argmax()), chance * 0.999  # the least there is counts as below


def _otava() -> Mapping[str, Divide]:
    """Apache Otava as it is by default, if it is installed."""
    try:
        analysis = import_module("otava.analysis")
    except ImportError:
        return {}

    def divided(series: Series) -> list[int]:
        found, _ = analysis.compute_change_points([float(x) for x in 100 * np.exp(series)])
        return [point.index for point in found]

    return {"Otava": divided}


WAYS: Mapping[str, Divide] = {
    "history": lambda series: change_points(list(series)),
    "ranks": lambda series: _bisected(series, _pettitt),
    "distances": lambda series: _bisected(series, _divisive),
}


def slower(series: Series, divide: Divide, threshold: float) -> bool:
    """The verdict of `history check`, with the steps that a way finds."""
    begins = [0, *divide(series), len(series)]
    parts = [series[a:b] for a, b in pairwise(begins)]
    held = [float(np.median(part)) for part in parts if len(part) >= HOLDS]
    return expm1(float(np.median(parts[-1])) - min(held)) > threshold


def share(make: Make, divide: Divide, count: int, threshold: float) -> float:
    """How many of so many series are called slower, in per cent."""
    rng = np.random.default_rng(1)
    return 100 * sum(slower(make(rng), divide, threshold) for _ in range(count)) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=2000)
    parser.add_argument("--threshold", type=float, default=0.02)
    asked = parser.parse_args()
    ways = {**WAYS, **_otava()}
    for title, makes in (("called slower, and is not", FLAT), ("found", SLOWER)):
        rows = []
        for name, make in makes.items():
            cells = []
            for way, divide in ways.items():
                count = asked.series if way == "history" else max(asked.series // 10, 1)
                cells.append(f"{share(make, divide, count, asked.threshold):.1f} %")
            rows.append([name, *cells])
        print(tabulate(rows, [title, *ways], tablefmt="github", disable_numparse=True), end="\n\n")


if __name__ == "__main__":
    main()
