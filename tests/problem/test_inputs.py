"""Patterns by their names: those that a user may ask for, those that verify, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from cudareduce.problem.inputs import make
from cudareduce.problem.nets import patterns_for
from cudareduce.problem.operators import reduction_of
from cudareduce.problem.patterns import PATTERNS


def test_every_name_makes_elements() -> None:
    total, least = reduction_of("sum", "float32"), reduction_of("min", "float32")
    made = [make(pattern, total, 100) for pattern in PATTERNS]
    made += [make(pattern, least, 100) for pattern in patterns_for(least, 100, 32)]
    assert {data.size for data in made} == {100}
    assert np.array_equal(make("random", total, 9, 2, 3), make("random", total, 9, 2, 3))


@pytest.mark.parametrize("pattern", ["randum", "", "Random", "random:3", "extremum", "extremum:x"])
def test_another_name_is_an_error_of_the_program(pattern: str) -> None:
    with pytest.raises(ValueError):
        make(pattern, reduction_of("min", "float32"), 9)
