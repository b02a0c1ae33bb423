"""What draws problems for `auto`, and reads its regret off their records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.launch.auto.table import file_name, read_table, shipped_folder
from cudareduce.machine import Conditions
from cudareduce.reduction.operators import OPERATORS
from tests.analysis.tune import stored_regret
from tests.analysis.tune.regret import (
    CELLS,
    SEED,
    UNSEEN,
    Cell,
    Regret,
    drawn,
    main,
    regret_of,
    summary,
    winners,
)  # fmt: skip
from tests.fake_gpu import FakeGpu, FakeMonitor
from tests.simulate import H200

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
    rounds = {"a": [36.0, 36.0] * 6, "b": [35.0, 35.0] * 6, "c": [40.0] * 12}
    found = regret_of(CELL, "a", rounds)
    assert found is not None
    assert (found.took, found.best, found.us) == ("a", "b", 36)
    assert found.percent == pytest.approx(100 / 35)
    assert regret_of(CELL, "d", rounds) is None
    alone = regret_of(CELL, "a", {"a": [36.0] * 12, "c": [40.0] * 12})
    assert alone is not None and (alone.best, alone.percent) == ("a", 0)


def test_equals_are_not_ahead_of_one_another() -> None:
    """Of six equals the luckiest is chosen by some rounds, and tried in others."""
    rng = np.random.default_rng(1)
    regrets = [
        regret_of(CELL, "a", {name: list(36 * rng.normal(1, 0.01, 12)) for name in "abcdef"})
        for _ in range(300)
    ]
    percents = [regret.percent for regret in regrets if regret]
    assert abs(np.mean(percents)) < 0.15


def test_what_is_said_of_all_and_who_wins_where() -> None:
    regrets = [
        Regret(CELL, "a", "a", 6.4, 0.4), Regret(replace(CELL, n=2**24), "a", "b", 20, 3.0),
        Regret(replace(CELL, n=1500, seen=False), "a", "a", 5, 0.9),
    ]  # fmt: skip
    assert list(summary(regrets)) == [
        "all: 2 of 3 within 1 %, at most 3.0 % (sum float32 2^24)",
        "of sizes in no table: 1 of 1 within 1 %, at most 0.9 % (sum float32 1500)",
    ]
    lines = list(winners(regrets))
    assert lines[1].split() == ["sum", "float32", "A", *"....", "A", ".", "B", *".."]
    assert lines[2:] == ["A: a", "B: b"]


@pytest.mark.long
def test_a_regret_is_measured(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = FakeGpu(
        cache, 1, H200, floor_us=2.7, bytes_per_us=4e6, event_us=0.0, noise=0.005, lazy=True,
        states=FakeMonitor([Conditions()]),
    )  # fmt: skip
    monkeypatch.setattr("tests.analysis.tune.regret.choose_backend", lambda *asked: (None, ""))
    monkeypatch.setattr("tests.analysis.tune.regret.open_timed", lambda spec: gpu)
    out = tmp_path / "regret.csv"
    cells = [CELL, Cell("max", "int32", 3000, 40, False)]
    monkeypatch.setattr("tests.analysis.tune.regret.drawn", lambda *asked: list(cells))
    monkeypatch.setattr("sys.argv", ["regret", "--csv", str(out)])
    main()
    printed = capsys.readouterr().out
    assert "\nall: " in printed and " of 2 within 1 %" in printed
    head, *lines = out.read_text().splitlines()
    assert head.startswith("op,dtype,n,rows,in_tables,auto,us,best")
    assert {tuple(line.split(",")[:4]) for line in lines} == {
        ("sum", "float32", "1048576", "1"), ("max", "int32", "3000", "40"),
    }  # fmt: skip


@pytest.mark.parametrize("card", stored_regret.CARDS)
def test_the_shipped_tables_are_within_a_percent_on_the_stored_cells(
    registry: Registry, card: str
) -> None:
    cells = stored_regret.stored_cells(card, registry, with_tables=True)
    within = [cell for cell in cells if cell.percent is not None and cell.percent <= 1]
    assert len(within) >= 0.95 * len(cells)


@pytest.mark.parametrize("card", stored_regret.CARDS)
def test_the_default_rule_is_within_a_percent_where_its_choice_was_measured(
    registry: Registry, card: str
) -> None:
    cells = stored_regret.stored_cells(card, registry, with_tables=False)
    within = [cell for cell in cells if cell.percent is not None and cell.percent <= 1]
    assert len(within) >= 0.95 * len(cells)


@pytest.mark.parametrize("card", stored_regret.CARDS)
def test_every_entry_of_a_shipped_table_applies(registry: Registry, card: str) -> None:
    device = stored_regret.device_of(card)
    table = read_table(shipped_folder() / file_name(device)).holding(registry.kernels)
    assert table.entries and not table.left_out
