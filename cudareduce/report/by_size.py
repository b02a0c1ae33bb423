"""What was timed beside libraries over many sizes, and engines of collectives: a row for each, a
column for each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from cudareduce.errors import UsageError
from cudareduce.report.columns import COLUMNS, label
from cudareduce.report.numbers import DASH, short_size
from cudareduce.report.section import Section
from cudareduce.report.sections import library_notes, skips, what_text
from cudareduce.results.record import Record, Run

#: The tables of a reduction by their names: what each shows, and the column of a record that fills
#: it.
_TABLES = {
    "us": ("us", "time"),
    "ceiling": ("% of what a kernel that only reads reached", "ceiling"),
    "ratios": ("speed-up, by rounds", "speedup"),
    "host": ("us of the host for a call", "host"),
}
#: And those of a collective, which holds them in one unit each.
_OF_COLLECTIVES = {
    "us": ("us of the slowest rank", "time"),
    "busbw": ("busbw, GB/s", "busbw"),
    "link": ("busbw, % of what writes reach both ways", "link"),
    "loop": ("us of one of several back to back", "loop"),
}
_FASTEST = "the shortest time of each size stands out"


def by_size(run: Run, one: str | None = None) -> list[Section]:
    """Tables for each reduction of a run with libraries: times, shares of the ceiling, ratios, the
    host's times, and how much longer odd layouts take; of a collective its times, rates and shares
    of the link; or the `one` of that name. A run with neither is a UsageError, and so is a name
    that no table has."""
    together = [r for r in run.records if r.ranks and r.engine and r.time_us is not None]
    known = _OF_COLLECTIVES if together else _TABLES
    if one not in (None, *known):
        raise UsageError(f"there is no table {one} by size: take one of {', '.join(known)}")
    if together:
        return list(_of_collectives(run, together, one))
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in run.records:
        if r.context:
            cell = (r.op, r.map, r.dtype, r.acc, r.rows, r.timing, r.sms)
            groups.setdefault(cell, []).append(r)
    if not groups:
        raise UsageError("this run was timed beside no library: name one of bench --peers")
    return [section for group in groups.values() for section in _tables(run, group, one)]


def _of_collectives(run: Run, records: Sequence[Record], one: str | None) -> Iterator[Section]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    for r in records:
        groups.setdefault((r.kernel, r.op, r.dtype, r.ranks), []).append(r)
    for (kernel, op, dtype, ranks), some in groups.items():
        for name, (unit, column) in _OF_COLLECTIVES.items():
            if one in (None, name):
                title = f"{kernel} of {dtype}, {op}, {ranks} ranks, {unit}, {run.device.name}"
                notes = [_FASTEST] if column == "time" else []
                yield _matrix(title, some, _cell(column, some), notes, lambda r: r.engine or "")


def _tables(run: Run, records: Sequence[Record], one: str | None) -> Iterator[Section]:
    first, even = records[0], [r for r in records if r.aligned_n is None]
    what = what_text(first, None)
    about = f"{first.timing}, {run.device.name}, beside libraries"
    for name, (unit, column) in _TABLES.items():
        if one not in (None, name):
            continue
        shown = [r for r in even if r.verdict == "fail" or COLUMNS[column].cell(r) != DASH]
        if not shown and column != "host":
            continue  # none was timed; the last table says why
        notes = [_FASTEST] if column == "time" else []
        if column == "speedup":
            notes = ["against the kernel that has 1; what is below 1 is slower"]
        if column == "host":
            notes = [*_wrong(even), *skips(even), *library_notes(even)]
        yield _matrix(f"{what}, {unit}, {about}", shown, _cell(column, even), notes)
    odd = [r for r in records if one is None and r.aligned_n is not None and r.slowdown is not None]
    for side, some in (
        ("with one element more", [r for r in odd if not r.offset]),
        ("starting one element off", [r for r in odd if r.offset]),
    ):
        if some:
            title = f"{what}, {side}: how many times longer, {about}"
            yield _matrix(title, some, COLUMNS["slowdown"].cell, [])


def _cell(column: str, records: Sequence[Record]) -> Callable[[Record], str]:
    """What stands for a record; of times the shortest of each size in bold."""
    text = COLUMNS[column].cell
    best: dict[int, float] = {}
    for r in records:
        if column == "time" and r.time_us is not None:
            best[r.n] = min(r.time_us, best.get(r.n, r.time_us))

    def cell(r: Record) -> str:
        if r.verdict == "fail":
            return "WRONG"
        return f"**{text(r)}**" if r.time_us is not None and best.get(r.n) == r.time_us else text(r)

    return cell


def _matrix(
    title: str, records: Sequence[Record], cell: Callable[[Record], str], notes: Sequence[str],
    name: Callable[[Record], str] = label,
) -> Section:  # fmt: skip
    sizes = sorted({r.aligned_n or r.n for r in records})
    cells = {(name(r), r.aligned_n or r.n): cell(r) for r in records}
    rows = tuple(
        (each, *(cells.get((each, n), DASH) for n in sizes))
        for each in dict.fromkeys(map(name, records))
    )
    return Section(title, ("", *map(short_size, sizes)), rows, tuple(notes))


def _wrong(records: Sequence[Record]) -> list[str]:
    return [
        f"{label(r)} at {short_size(r.n)}: WRONG: {r.reason}"
        for r in records
        if r.verdict == "fail"
    ]
