"""How much slower `auto` is than the best of all kernels, on problems that a seed draws.

`python -m tests.tune.regret`, on a GPU, measures `auto` beside every kernel at the limit of the
memory, and for rows beside those of rows, in the same rounds. Most problems are of sizes that
`tune` takes by default, the others of sizes between, which no table holds. It prints each with its
regret, the share within 1 %, and a map of who wins where.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from cudareduce.backends import choose_backend, open_timed
from cudareduce.bench.records import Recorder
from cudareduce.bench.runner import measured
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.intervals import paired
from cudareduce.library.registry import AUTO, load_registry
from cudareduce.problem.operators import OPERATORS, reduction_of
from cudareduce.progress import phase, say
from cudareduce.report.numbers import short_size
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import to_json, write_text
from cudareduce.tune.candidates import kernels_named

CELLS, UNSEEN, SEED = 200, 50, 20261122
#: Elements in all: a problem is drawn up to this.
_LEAST, _MOST = 10, 30
#: A type's largest input: larger ones take longer to make than to measure.
_MOST_BYTES = 2**32


@dataclass(frozen=True, order=True)
class Cell:
    """A problem, and whether a table can hold its size."""

    op: str
    dtype: str
    n: int
    rows: int
    seen: bool

    @property
    def text(self) -> str:
        rows = f" x {short_size(self.rows)} rows" if self.rows != 1 else ""
        return f"{self.op} {self.dtype} {short_size(self.n)}{rows}"


def drawn(count: int, unseen: int, seed: int) -> list[Cell]:
    """So many different problems, of which the last `unseen` are of sizes between; the same for a
    seed."""
    random = Random(seed)
    found: dict[Cell, None] = {}
    while len(found) < count:
        op = random.choice(list(OPERATORS))
        reduction = reduction_of(op, random.choice(OPERATORS[op].only))
        exponent, seen = random.randrange(_LEAST, _MOST + 1, 2), len(found) < count - unseen
        elements = 2**exponent if seen else round(2 ** (exponent + random.uniform(0.3, 0.7)))
        rows = 1
        if OPERATORS[op].commutative and random.random() < 0.25:
            rows = 2 ** random.randrange(1, exponent - 2)
        if elements * reduction.dtype.size <= _MOST_BYTES:
            found[Cell(op, reduction.dtype.name, elements // rows, rows, seen)] = None
    return list(found)


@dataclass(frozen=True)
class Regret:
    """What `auto` took for a problem, what was best, and by how much it is slower, in per cent; by
    chance the best of equals is ahead, so 0 is not to be expected."""

    cell: Cell
    took: str
    best: str
    percent: float


def regret_of(cell: Cell, records: Sequence[Record]) -> Regret | None:
    """The regret that records of one problem show; None where they are not enough."""
    timed = {r.kernel: r for r in records if r.time_us is not None}
    if AUTO not in timed or len(timed) < 2:
        return None
    mine = timed[AUTO]
    best = min(timed.values(), key=lambda r: r.time_us or 0.0)
    ratios = paired(mine.rounds_us, best.rounds_us)
    name = best.chosen or best.kernel
    return Regret(cell, mine.chosen or "", name, 100 * (median(ratios) - 1) if ratios else 0.0)


def summary(regrets: Sequence[Regret]) -> Iterator[str]:
    """What share is within 1 %, and the worst, of all and of the unseen."""
    for name, some in (
        ("all", regrets), ("of sizes in no table", [r for r in regrets if not r.cell.seen])
    ):  # fmt: skip
        if some:
            within = sum(r.percent <= 1 for r in some)
            worst = max(some, key=lambda r: r.percent)
            yield (
                f"{name}: {within} of {len(some)} within 1 %, at most {worst.percent:.1f} % "
                f"({worst.cell.text})"
            )


def winners(regrets: Iterable[Regret]) -> Iterator[str]:
    """A map of who wins where: a line for each operator and type of arrays, a column for each power
    of four, a letter for each kernel."""
    arrays = [r for r in regrets if r.cell.rows == 1]
    letters = {name: chr(65 + k) for k, name in enumerate(sorted({r.best for r in arrays}))}
    columns = range(_LEAST, _MOST + 1, 2)
    yield " " * 20 + " ".join(f"{k:>2}" for k in columns)
    lines: dict[tuple[str, str], dict[int, str]] = {}
    for r in arrays:
        column = min(columns, key=lambda k: abs(k - r.cell.n.bit_length() + 1))
        lines.setdefault((r.cell.op, r.cell.dtype), {})[column] = letters[r.best]
    for (op, dtype), line in sorted(lines.items()):
        yield f"{op:<8} {dtype:<10} " + " ".join(f"{line.get(k, '.'):>2}" for k in columns)
    yield from (f"{letter}: {name}" for name, letter in letters.items())


def main() -> None:
    """Draw, measure, print; what is not reached in time is left out and counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--first", type=int, default=0, help="skip so many of them")
    parser.add_argument("--max-time", type=float, default=550.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    deadline, registry = Deadline(given.max_time), load_registry()
    spec, _ = choose_backend("cuda", 0, True)
    cells = drawn(CELLS, UNSEEN, SEED)[given.first : given.first + given.cells]
    regrets: list[Regret] = []
    kept: list[Record] = []
    with open_timed(spec) as backend:
        info = backend.info()
        for k, cell in enumerate(cells):
            if deadline.left_s < 5:
                say(f"not reached: {len(cells) - k}, go on with --first {given.first + k}")
                break
            settings = Settings(
                reductions=(reduction_of(cell.op, cell.dtype),), sizes=(cell.n,), rows=cell.rows,
                rounds=given.rounds, deadline=deadline,
            )  # fmt: skip
            names = [kernel.id for kernel in kernels_named([AUTO], registry, cell.rows)]
            session = Session(backend, spec, settings, partial(phase, quiet=True))
            try:
                parts = measured(session, registry.choose([AUTO, *names], auto=True))
            finally:
                session.close()
            recorder = Recorder(backend.name, info.peak_gb_s, settings, registry)
            records = recorder.all_records(parts)
            kept += [record for record in records if record.verdict != "skip"]
            regret = regret_of(cell, records)
            if regret is not None:
                regrets.append(regret)
                print(f"{cell.text:<44} {regret.percent:6.2f} %  {regret.took}, {regret.best}")
    print(*summary(regrets), *winners(regrets), sep="\n")
    if given.json:
        protocol = {"seed": SEED, "cells": CELLS, "rounds": given.rounds}
        write_text(given.json, to_json(Run(tool(()), info, protocol, tuple(kept))))


if __name__ == "__main__":
    main()
