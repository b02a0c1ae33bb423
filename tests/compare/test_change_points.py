"""Steps in series of runs: found where there are any, and rarely where there are none."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from cudareduce.compare.change_points import change_points
from tests.compare.change_points import FLAT, SLOWER, WAYS, share


@pytest.mark.parametrize("name", FLAT)
def test_false_change_points_are_rare(name: str) -> None:
    most = 5.0 if "clocks" in name else 1.0
    assert share(FLAT[name], WAYS["history"], 300, 0.02) <= most


@pytest.mark.parametrize("name", SLOWER)
def test_lasting_slowdowns_are_found(name: str) -> None:
    least = {"3 % in the last two, 1 %": 20.0, "3 % in the last five, 1 %": 80.0}.get(name, 97.0)
    assert share(SLOWER[name], WAYS["history"], 300, 0.02) >= least


@pytest.mark.parametrize("count", range(8))
def test_too_few_runs_have_no_change_point(count: int) -> None:
    assert change_points([log(40.0)] * count) == []


def test_a_step_without_any_noise() -> None:
    assert change_points([0.0] * 10 + [0.03] * 2) == [10]
    assert change_points([0.0] * 10 + [0.03] + [0.0] * 10) == []
    assert change_points([0.0] * 10 + [0.03]) == []
    assert change_points([0.0] * 5 + [0.05] * 5 + [0.0] * 5) == [5, 10]
    assert change_points([0.0] * 20 + [0.05] * 2 + [0.0] * 20) == []


def test_a_return_to_the_old_level_is_a_change_point() -> None:
    rng = np.random.default_rng(1)
    logs = rng.normal(0, 0.003, 60)
    logs[20:40] += 0.05
    assert change_points(list(logs)) == [20, 40]


def test_other_methods_find_the_same_obvious_step() -> None:
    rng = np.random.default_rng(2)
    logs = rng.normal(0, 0.003, 24)
    logs[12:] += 0.05
    assert [list(divide(logs)) for divide in WAYS.values()] == [[12]] * len(WAYS)
