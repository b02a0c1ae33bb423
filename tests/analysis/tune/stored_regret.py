"""The regret of `auto` on the stored cells of the H100 and the H200, without a GPU.

`python -m tests.analysis.tune.stored_regret` prints it for the shipped tables and for the default
rule alone. The regret of a cell is known if the launch is the one whose time `results/*/regret.csv`
holds, or the best one there; other launches were not timed beside the best one and are counted as
unknown, with the kernel only if that is the same.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.catalog.registry import AUTO, Registry, load_registry
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.rule import Facts
from cudareduce.launch.auto.table import file_name, read_table, shipped_folder
from cudareduce.machine import DeviceInfo, DeviceLimits
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.store import load
from tests.conftest import ROOT

CARDS = ("nvidia-h100", "nvidia-h200")


@dataclass(frozen=True)
class StoredCell:
    """A problem with the launch that `auto` chose when it was measured, and that launch's regret
    against `best` in per cent; `chosen` is what it chooses now, `percent` the regret of that, None
    if unknown."""

    what: str
    measured: str
    best: str
    chosen: str
    percent: float | None


def stored_cells(card: str, registry: Registry, *, with_tables: bool) -> list[StoredCell]:
    """The cells of a card, with what `auto` chooses by the shipped table or the rule alone."""
    device = device_of(card)
    assert device.sm_count and device.threads_per_sm
    facts = Facts(DeviceLimits(device.sm_count, device.threads_per_sm), device)
    table = read_table(shipped_folder() / file_name(device)).holding(registry.kernels)
    tables = (table,) if with_tables else ()
    chooser = Chooser(AUTO, registry.kernels, facts, tables)
    with (ROOT / "results" / card / "regret.csv").open() as file:
        return [_cell(row, chooser) for row in csv.DictReader(file)]


def device_of(card: str) -> DeviceInfo:
    """The card as its results describe it."""
    path: Path = ROOT / "results" / card / "bench-2p25-float32.json"
    return load(path).device


def _cell(row: dict[str, str], chooser: Chooser) -> StoredCell:
    n, rows = int(row["n"]), int(row["rows"])
    case = chooser.choose(reduction_of(row["op"], row["dtype"]), n, rows)
    assert case is not None
    chosen = f"{case.kernel.entry}, {case.block} x {case.items} {case.kernel.grid}"
    regrets = {row["best"]: 0.0, row["auto"]: float(row["regret_pct"])}
    what = f"{row['op']} {row['dtype']} {n} x {rows}"
    return StoredCell(what, row["auto"], row["best"], chosen, regrets.get(chosen))


def summary(cells: Sequence[StoredCell]) -> str:
    """How many cells are within 1 % of the best, how many are not, and how many are unknown."""
    known = [cell.percent for cell in cells if cell.percent is not None]
    unknown = [cell for cell in cells if cell.percent is None]
    alike = sum(cell.chosen.split(",")[0] == cell.measured.split(",")[0] for cell in unknown)
    return (
        f"{sum(percent <= 1 for percent in known)} of {len(cells)} within 1 % of the best, "
        f"{sum(percent > 1 for percent in known)} not (at most {max(known):.1f} %), "
        f"{len(unknown)} unknown ({alike} of them the same kernel in another shape)"
    )


def main() -> None:
    """Print the summaries, and the cells whose launch was not measured."""
    registry = load_registry()
    for card in CARDS:
        for with_tables in (True, False):
            cells = stored_cells(card, registry, with_tables=with_tables)
            print(f"{card}, {'table' if with_tables else 'rule alone'}: {summary(cells)}")
            for cell in cells:
                if cell.percent is None:
                    print(f"  {cell.what}: {cell.chosen}; measured {cell.measured}")


if __name__ == "__main__":
    main()
