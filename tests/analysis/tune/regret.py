"""How much slower `auto` is than the best of all kernels, on problems that a seed draws.

`python -m tests.analysis.tune.regret`, on a GPU, compares `auto` with every kernel of families
`limit` and `rows` in its default launch shape; the fastest few and `auto` are then measured in
fresh contexts. `--rule-alone` leaves out tables. Most problems have sizes that `tune` takes by
default, the others sizes in between. Prints the regret of each, the share within 1 %, and a map of
the winners.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from cudareduce.analysis.tune.search import (
    CandidateTimer,
    Problem,
    candidate_timer,
    case_of,
    kernels_named,
    own_case,
    successive_halving,
)
from cudareduce.backends.protocol import TimedBackend
from cudareduce.backends.selection import choose_backend, open_timed
from cudareduce.bench.cases import facts_of
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import AUTO, Registry, load_registry
from cudareduce.intervals import known, paired
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.table import Table, tables_of
from cudareduce.launch.case import Case, build
from cudareduce.progress import phase, say
from cudareduce.reduction.operators import OPERATORS, reduction_of
from cudareduce.report.numbers import short_size

CELLS, UNSEEN, SEED = 200, 50, 20261122
#: Elements in all: a problem is drawn up to this. Larger ones take longer to make than to measure.
_LEAST, _MOST = 10, 28
#: The fastest of a race, contexts that they are measured in, and rounds in each: an even number, as
#: of each two rounds one says who is best and the other by how much.
_FINALISTS, _CONTEXTS, _ROUNDS = 3, 3, 4
#: A problem of so many bytes takes so long that what a context changes is nothing.
_LONG = 2**28
_COLUMNS = ("op", "dtype", "n", "rows", "in_tables", "auto", "us", "best", "regret_pct")


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
        if elements <= 2**_MOST:
            found[Cell(op, reduction.dtype.name, elements // rows, rows, seen)] = None
    return list(found)


@dataclass(frozen=True)
class Regret:
    """What `auto` took for a problem, what was best, and by how much it is slower, in per cent."""

    cell: Cell
    took: str
    best: str
    us: float
    percent: float


def regret_of(cell: Cell, took: str, rounds: Mapping[str, Sequence[float | None]]) -> Regret | None:
    """The regret that medians of rounds show, in each of which all took turns; None where they are
    not enough. Every other round says who is best and the rest by how much, since the best of
    equals is ahead in the rounds that made it so."""
    medians = {name: median(known(us[::2])) for name, us in rounds.items() if known(us[::2])}
    if took not in medians:
        return None
    best = min(medians, key=lambda name: medians[name])
    ratios = paired(rounds[took][1::2], rounds[best][1::2])
    if not ratios:
        return None
    return Regret(cell, took, best, medians[took], 100 * (median(ratios) - 1))


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


def cases_of(
    cell: Cell, backend: TimedBackend, registry: Registry, tables: tuple[Table, ...] = ()
) -> tuple[Case, list[Case]]:
    """What `auto` takes for a problem, and every kernel that takes it in its own shape."""
    facts, reduction = facts_of(backend), reduction_of(cell.op, cell.dtype)
    chosen = Chooser(AUTO, registry.kernels, facts, tables).choose(reduction, cell.n, cell.rows)
    assert chosen is not None, cell.text
    kernel = registry.kernels[chosen.kernel.entry]
    taken = case_of(kernel, reduction, chosen.block, chosen.items, chosen.kernel.grid)
    others = [
        own_case(kernel, reduction) for kernel in kernels_named([AUTO], registry, cell.rows)
        if not kernel.why_not(reduction) and not kernel.why_not_shape(cell.n, cell.rows)
        and facts.run(kernel) and (cell.rows > 1 or not kernel.id.startswith("reduce_rows"))
    ]  # fmt: skip
    return taken, [case for case in others if case.name != taken.name]


def measured(
    cell: Cell, backend: TimedBackend, taken: Case, others: Sequence[Case]
) -> Regret | None:
    """The regret of `auto` for a problem: a race of all, then those that are ahead and what it
    takes, in fresh contexts."""
    problem = Problem(reduction=reduction_of(cell.op, cell.dtype), n=cell.n, rows=cell.rows)
    rounds: dict[str, list[float | None]] = {}

    @contextmanager
    def running(cases: Sequence[Case]) -> Iterator[CandidateTimer]:
        with (
            phase("", 0, quiet=True) as progress,
            candidate_timer(
                backend, backend.monitor(), problem, cases, Deadline(), progress
            ) as found,
        ):
            yield found

    with running([taken, *others]) as all_of_them:
        ahead = successive_halving(all_of_them.names, all_of_them.measure, _FINALISTS)
        last = [case for case in (taken, *others) if case is taken or case.name in ahead]
        if cell.n * cell.rows * problem.reduction.dtype.size >= _LONG:
            rounds |= all_of_them.measure([str(case.name) for case in last], _CONTEXTS * _ROUNDS)
    for _ in range(0 if rounds else _CONTEXTS):
        with running(last) as few:
            for name, us in few.measure(few.names, _ROUNDS).items():
                rounds.setdefault(name, []).extend(us)
    return regret_of(cell, str(taken.name), rounds)


def main() -> None:
    """Draw, measure, print; what is not reached in time is left out and counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--first", type=int, default=0, help="skip so many of them")
    parser.add_argument("--max-time", type=float, default=550.0)
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--rule-alone", action="store_true", help="without tables")
    parser.add_argument("--compile", action="store_true", help="only that, for a later run")
    given = parser.parse_args()
    deadline, registry = Deadline(given.max_time), load_registry()
    spec, _ = choose_backend("cuda", 0, True)
    cells = drawn(CELLS, UNSEEN, SEED)
    Random(SEED).shuffle(cells)  # so that what is reached in time is a sample of all
    cells = cells[given.first : given.first + given.cells]
    regrets: list[Regret] = []
    with open_timed(spec) as backend:
        tables = () if given.rule_alone else tables_of(backend.info(), registry.kernels)
        for k, cell in enumerate(cells):
            if deadline.left_s < 10:
                say(f"not reached: {len(cells) - k}, go on with --first {given.first + k}")
                break
            taken, others = cases_of(cell, backend, registry, tables)
            if given.compile:
                limits = backend.limits()
                plans = {c: [c.plan(cell.n, cell.rows, limits)] for c in (taken, *others)}
                build(backend, plans, deadline=deadline)
                continue
            regret = measured(cell, backend, taken, others)
            if regret is not None:
                regrets.append(regret)
                print(f"{cell.text:<34}{regret.us:9.2f}{regret.percent:7.2f} %  {regret.took}; "
                      f"{regret.best}", flush=True)  # fmt: skip
    print(*summary(regrets), *winners(regrets), sep="\n")
    if given.csv:
        with given.csv.open("w", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(_COLUMNS)
            for r in regrets:
                c = r.cell
                lines.writerow([
                    c.op, c.dtype, c.n, c.rows, c.seen, r.took, round(r.us, 3), r.best,
                    round(r.percent, 2),
                ])  # fmt: skip


if __name__ == "__main__":
    main()
