"""Races on times that are made up, or recorded: the fastest comes through, with few rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from cudareduce.analysis.tune.search import successive_halving
from cudareduce.results.store import load
from tests.conftest import ROOT


class Track:
    """Times with noise within rounds and drift between them; counts what was measured."""

    def __init__(self, us: Mapping[str, float], seed: int, noise: float = 0.004) -> None:
        self.us, self.noise = us, noise
        self.random = np.random.default_rng(seed)
        self.candidate_timer: list[tuple[int, int]] = []

    def measure(self, names: Sequence[str], rounds: int) -> dict[str, tuple[float | None, ...]]:
        self.candidate_timer.append((len(names), rounds))
        drift = np.exp(self.random.normal(0, 0.02, rounds))
        return {
            name: tuple(self.us[name] * drift * np.exp(self.random.normal(0, self.noise, rounds)))
            for name in names
        }


@pytest.mark.parametrize("seed", range(20))
def test_the_fastest_of_hundreds_is_among_the_last(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(300)
    track = Track({f"{k}": 5.0 * (1 + 0.003 * place) for k, place in enumerate(order)}, seed)
    last = successive_halving(list(track.us), track.measure, 4)
    fastest = min(track.us, key=lambda name: track.us[name])
    assert 1 < len(last) <= 4
    assert track.us[last[0]] < 1.01 * track.us[fastest]
    assert any(track.us[name] <= 1.006 * track.us[fastest] for name in last)
    assert sum(count * rounds for count, rounds in track.candidate_timer) < 8 * len(order)
    counts = [count for count, _ in track.candidate_timer]
    assert counts[0] == 300 and counts == sorted(counts, reverse=True)
    assert [rounds for _, rounds in track.candidate_timer][:3] == [1, 2, 4]


def test_shapes_whose_times_were_recorded_are_ranked_as_they_were() -> None:
    """All kernels of a run on an H200; those that are far behind do not fill the last places."""
    run = load(ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json")
    recorded = {
        r.kernel: r.rounds_us for r in run.records if r.rounds_us and r.kernel.startswith("reduce_")
    }
    turn = iter(range(100))

    def measure(names: Sequence[str], rounds: int) -> dict[str, tuple[float | None, ...]]:
        turns = [next(turn) for _ in range(rounds)]
        return {
            name: tuple(recorded[name][k % len(recorded[name])] for k in turns) for name in names
        }

    best = sorted((r.time_us, r.kernel) for r in run.records if r.time_us and r.kernel in recorded)
    last = successive_halving(list(recorded), measure, 3)
    assert len(last) > 1
    assert last == [kernel for _, kernel in best[: len(last)]]


def test_what_is_clearly_slower_does_not_fill_the_last_places() -> None:
    track = Track({"slow": 9.0, "fast": 5.0, "slower": 12.0, "near": 5.01, "slowest": 20.0}, 1)
    assert set(successive_halving(list(track.us), track.measure, 4)) <= {
        "fast",
        "near",
        "slow",
        "slower",
    }
    six = Track({f"{k}": 5.0 if k < 2 else 9.0 + k for k in range(64)}, 1)
    assert set(successive_halving(list(six.us), six.measure, 4)) == {"0", "1"}


def test_without_time_candidates_keep_their_given_order() -> None:
    assert successive_halving(["a", "b", "c"], lambda names, rounds: {}, 2) == []
    assert successive_halving(["a"], lambda names, rounds: {}, 2) == ["a"]
    assert successive_halving([], lambda names, rounds: {}, 2) == []


def test_a_candidate_that_loses_all_samples_is_dropped() -> None:
    track = Track({"a": 1.0, "b": 5.0, "c": 5.1, "d": 5.2}, 1)

    def measure(names: Sequence[str], rounds: int) -> dict[str, tuple[float | None, ...]]:
        found = track.measure(names, rounds)
        return {name: times for name, times in found.items() if name != "a"} | (
            {"d": (None,) * rounds} if "d" in names else {}
        )

    assert successive_halving(list(track.us), measure, 1) in (["b"], ["c"])
