"""What counts as a gain, on rounds that are made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cudareduce.analysis.tune.search import faster
from cudareduce.results.record import Record
from tests.simulate import record, rounds


def timed(us: float, rng: np.random.Generator, count: int = 9) -> Record:
    return record("reduce_tiles", 2**20, rounds(rng, us, count))


def test_the_best_of_equals_hardly_ever_gains() -> None:
    rng, gained, trials = np.random.default_rng(1), 0, 400
    for _ in range(trials):
        first, *others = (timed(35.0, rng) for _ in range(7))
        gained += faster(min(others, key=lambda r: r.time_us or 0.0), first)
    assert gained <= trials * 0.02


def test_what_is_faster_in_every_round_gains() -> None:
    rng = np.random.default_rng(2)
    assert faster(timed(34.0, rng), timed(35.0, rng))
    assert not faster(timed(35.0, rng), timed(34.0, rng))


def test_few_rounds_decide_nothing() -> None:
    rng = np.random.default_rng(3)
    assert not faster(timed(10.0, rng, 5), timed(35.0, rng, 5))
    lost = replace(timed(10.0, rng), rounds_us=(None,) * 4 + (10.0,) * 5)
    assert not faster(lost, timed(35.0, rng))
