"""What draws problems for `auto`, and reads its regret off their records."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cudareduce.problem.operators import OPERATORS
from tests.simulate import record, rounds
from tests.tune.regret import CELLS, SEED, UNSEEN, Cell, Regret, drawn, regret_of, summary, winners

CELL = Cell("sum", "float32", 2**20, 1, True)


def test_cells_are_drawn_by_the_seed() -> None:
    cells = drawn(CELLS, UNSEEN, SEED)
    assert cells == drawn(CELLS, UNSEEN, SEED) != drawn(CELLS, UNSEEN, SEED + 1)
    assert len(set(cells)) == CELLS
    assert sum(not cell.seen for cell in cells) == UNSEEN
    assert {cell.op for cell in cells} == set(OPERATORS)
    assert any(cell.rows > 1 for cell in cells)
    assert all(cell.n and cell.n * cell.rows <= 2**31 for cell in cells)
    powers = [cell.n & (cell.n - 1) == 0 for cell in cells]
    assert all(power for power, cell in zip(powers, cells, strict=True) if cell.seen)


def test_a_regret_is_against_the_best_round_by_round() -> None:
    rng = np.random.default_rng(1)
    auto = replace(record("auto", 2**20, rounds(rng, 36.0)), chosen="reduce_tiles")
    best = record("reduce_tiles_ring", 2**20, rounds(rng, 35.0))
    found = regret_of(CELL, [auto, best, record("reduce_fill", 2**20, rounds(rng, 40.0))])
    assert found is not None
    assert (found.took, found.best) == ("reduce_tiles", "reduce_tiles_ring")
    assert found.percent == pytest.approx(100 / 35, abs=1)
    assert regret_of(CELL, [best]) is None
    alone = regret_of(CELL, [auto, record("reduce_fill", 2**20, rounds(rng, 40.0))])
    assert alone is not None and (alone.best, alone.percent) == ("reduce_tiles", 0)


def test_what_is_said_of_all_and_who_wins_where() -> None:
    regrets = [
        Regret(CELL, "a", "a", 0.4), Regret(replace(CELL, n=2**24), "a", "b", 3.0),
        Regret(replace(CELL, n=1500, seen=False), "a", "a", 0.9),
    ]  # fmt: skip
    assert list(summary(regrets)) == [
        "all: 2 of 3 within 1 %, at most 3.0 % (sum float32 2^24)",
        "of sizes in no table: 1 of 1 within 1 %, at most 0.9 % (sum float32 1500)",
    ]
    lines = list(winners(regrets))
    assert lines[1].split() == ["sum", "float32", "A", *"....", "A", ".", "B", *"..."]
    assert lines[2:] == ["A: a", "B: b"]
