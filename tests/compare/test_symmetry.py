"""What got slower one way got faster the other way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.compare.request import Thresholds
from cudareduce.compare.verdicts import Rules, compare
from tests.simulate import record, rounds

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
