"""Who wins where: a map of types and sizes, with the fastest in each place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudareduce.plot.chosen import Problem, elements, short, who
from cudareduce.plot.figure import Cell, Grid
from cudareduce.plot.over_sizes import size_name, told
from cudareduce.results.record import Record


def winners(problems: Sequence[Problem]) -> Grid | None:
    """The map; None where there is only one place to win, or nobody to win against."""
    rows: dict[str, dict[int, list[Record]]] = {}
    for problem in problems:
        sizes = rows.setdefault(_row(problem, problems), {})
        for r in problem.records:
            if r.sms is None:
                sizes.setdefault(elements(r), []).append(r)
    rows = {
        name: {n: rs for n, rs in sizes.items() if len({short(r) for r in rs}) > 1}
        for name, sizes in rows.items()
    }
    rows = {name: sizes for name, sizes in rows.items() if sizes}
    columns = sorted({n for sizes in rows.values() for n in sizes})
    if len(rows) * len(columns) < 2:
        return None
    cells = tuple(
        _cell(name, n, records) for name, sizes in rows.items() for n, records in sizes.items()
    )
    notes = ("~: the interval of at least one other reaches into that of the fastest",)
    device = problems[0].device.name
    return Grid(
        f"Who is fastest where, {device}", "n (elements)", tuple(rows),
        tuple(map(size_name, columns)), cells,
        notes if any(cell.close for cell in cells) else (),
    )  # fmt: skip


def _row(problem: Problem, problems: Iterable[Problem]) -> str:
    """What tells a reduction from the others of the map."""
    r = problem.records[0]
    firsts = [p.records[0] for p in problems]
    parts = [r.dtype]
    if len({f.reduced for f in firsts}) > 1:
        parts.insert(0, r.reduced)
    if any(f.acc != f.dtype for f in firsts) and r.acc != r.dtype:
        parts.append(f"in {r.acc}")
    if len({f.rows == 1 for f in firsts}) > 1 and r.rows != 1:
        parts.append("rows")
    if len({f.timing for f in firsts}) > 1:
        parts.append(r.timing)
    return " ".join(parts)


def _cell(row: str, n: int, records: Sequence[Record]) -> Cell:
    ranked = sorted(records, key=lambda r: r.time_us or 0.0)
    first = ranked[0]
    end = first.time_us_high or first.time_us or 0.0
    close = tuple(short(r) for r in ranked[1:] if (r.time_us_low or r.time_us or 0.0) <= end)
    second = f"; then {short(ranked[1])}, {(ranked[1].time_us or 0) / (first.time_us or 1):.2f} x"
    return Cell(
        row, size_name(n), short(first), who(first), close, f"{short(first)}: {told(first)}{second}"
    )
