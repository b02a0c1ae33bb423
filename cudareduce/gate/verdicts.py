"""Comparison rows as people and CI services read them: tables, a count in words, findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import expm1, log
from statistics import median

from cudareduce.gate.compare import VERDICTS, Row
from cudareduce.gate.controls import Controls
from cudareduce.gate.policy import Policy
from cudareduce.problem.patterns import GIVEN
from cudareduce.problem.sizes import counted
from cudareduce.report.ci import Finding
from cudareduce.report.columns import way_text
from cudareduce.report.numbers import (
    DASH,
    change_text,
    share_text,
    short_size,
    sms_text,
    time_text,
)
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few
from cudareduce.results.record import Record

#: More rows than this are too many to look through, so those that are SAME are only counted.
_SHOW_ALL_UP_TO = 60
#: More rows than this of what only one run holds would drown the others, so they are summed up.
_ONE_SIDED_UP_TO = 8
#: So many kernels, and so many problems, stand for all in a line that sums up.
_FIRST_FEW = 4


def called(record: Record) -> str:
    """The kernel, and of a collective which engine did it."""
    return f"{record.kernel} {record.engine or ''}".rstrip()


def problem_text(record: Record) -> str:
    """What a record reduces, and how it is measured where that is not the usual way."""
    return f"{reduction_text(record)} {shape_text(record)}"


def reduction_text(record: Record) -> str:
    """What a record reduces, of whatever size."""
    acc = f" in {record.acc}" if record.acc != record.dtype and record.op != "mean" else ""
    return f"{record.reduced} {record.dtype}{acc}"


def shape_text(record: Record) -> str:
    """Of which size it is, and how it is measured where that is not the usual way."""
    rows = f" x {short_size(record.rows)} rows" if record.rows != 1 else ""
    usual = {"timing": "cold", "region": "total", "pattern": "random"}
    ways = [value for key, word in usual.items() if (value := getattr(record, key)) != word]
    if record.ranks is not None:  # which are timed in one way only
        ways = [record.engine or "", f"{record.ranks} ranks"]
    ways = ["from a file" if way == GIVEN else way for way in ways]
    ways += ["beside libraries"] if record.context else []
    ways += [f"starting {record.offset} off"] if record.offset else []
    ways += [f"on {sms_text(record.sms)}"] if record.sms else []
    ways += [way] if (way := way_text(record)) else []
    how = f", {' '.join(ways)}" if ways else ""
    return f"{short_size(record.n)}{rows}{how}"


def _moved_text(row: Row) -> str:
    change = row.change
    return change_text(change.ratio, change.low, change.high) if change else ""


def row_cells(row: Row, shares: bool) -> tuple[str, str, str]:
    """Old, new and the change; `shares` are per cent of each card's ceiling in place of us."""
    return _figure(row.old, shares), _figure(row.new, shares), _moved_text(row) or DASH


def counts_text(rows: Sequence[Row]) -> str:
    """`24 compared: 1 SLOWER, 23 SAME`."""
    counts = Counter(row.verdict for row in rows)
    found = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    return f"{len(rows)} compared: {found or 'nothing'}"


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """By verdict, then by how much slower."""

    def key(row: Row) -> tuple[int, float]:
        return VERDICTS.index(row.verdict), -(row.change.ratio if row.change else 0.0)

    return sorted(rows, key=key)


def verdict_sections(
    rows: Sequence[Row], title: str, notes: Sequence[str], *, shares: bool, everything: bool,
    machine: Controls | None = None,
) -> list[Section]:  # fmt: skip
    """The table, worst first; a long one leaves out what is the same, and says so, but for
    `everything`. `shares` shows per cent of each card's ceiling in place of us; `machine` is what
    kernels that did not change show of it, where that decides."""
    shown, told = (worst_first(rows), []) if everything else _worth_showing(worst_first(rows))
    told += notes
    # What holds for every row stands in the title, so that the table fits 80 columns.
    kinds = dict.fromkeys(reduction_text(row.record) for row in shown)
    limits = dict.fromkeys(_limit_text(row) for row in shown if row.threshold is not None)
    what = shape_text if len(kinds) == 1 else problem_text
    title = ", ".join([title, *(kinds if len(kinds) == 1 else ())])
    size = "n x rows" if any(row.record.rows != 1 for row in shown) else "n"
    subject = size if len(kinds) == 1 else "what"
    unit = "%ceil" if shares else "us"
    header = ["verdict", "kernel", subject, f"old {unit}", f"new {unit}", "change"]
    table = [
        [
            row.verdict, row.record.kernel, in_short(what(row.record)), *row_cells(row, shares),
        ]
        for row in shown
    ]  # fmt: skip
    if len(limits) == 1:
        title += f", limit {next(iter(limits))}"
    elif limits:
        header.append("limit")
        table = [[*cells, _limit_text(row)] for cells, row in zip(table, shown, strict=True)]
    alike = sum(row.same_code and (row.verdict == "SAME" or row.change is not None) for row in rows)
    if alike:
        told.append(f"{alike} ran the same machine code, launched the same way{_noise(rows)}")
    if any(row.record.context for row in shown):
        told.append("beside: in the rounds of libraries; off: where the input starts, in elements")
    if machine:
        title = f"MACHINE: {title}"
        told = [machine_text(machine), *told]
    notes = (counts_text(rows), *_reasons(shown, what), *told)
    return [Section(title, tuple(header), tuple(map(tuple, table)), notes, 3)]


def machine_text(machine: Controls) -> str:
    """What decides where the machine has changed, and what to do."""
    return (
        f"MACHINE: {machine.text}: a clock, a driver, a neighbour or the card has changed, so no "
        "kernel is called slower or faster; look at `cudareduce info`, then measure again or make "
        "a new baseline"
    )


def in_short(what: str) -> str:
    """The same in the words of a narrow column."""
    return what.replace(" rows", "").replace("beside libraries", "beside").replace("starting ", "")


def _worth_showing(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows of a table that can be read through, and what stands for the others: problems that
    only one run has, and in a long table what is the same. A kernel that is missing among others
    that were compared stays a row."""
    told = []
    compared = {_problem(row.record) for row in rows if row.old and row.new}
    shown = list(rows)
    for verdict, side in (("GONE", "old"), ("NEW", "new")):
        single = [row for row in rows if row.verdict == verdict and not (row.old and row.new)]
        apart = [row for row in single if _problem(row.record) not in compared]
        if len(single) - len(apart) > _ONE_SIDED_UP_TO:
            apart = single
        if len(apart) > _ONE_SIDED_UP_TO:
            hidden = {id(row) for row in apart}
            shown = [row for row in shown if id(row) not in hidden]
            sizes: dict[str, list[str]] = {}
            for row in apart:
                sizes.setdefault(reduction_text(row.record), []).append(_size_text(row.record))
            what = "; ".join(
                f"{reduction} {first_few(found, _FIRST_FEW)}" for reduction, found in sizes.items()
            )
            kernels = first_few((row.record.kernel for row in apart), _FIRST_FEW)
            told.append(
                f"{verdict}: {len(apart)} are only in the {side} run ({what}): {kernels}; --all "
                "shows them"
            )
    same = sum(row.verdict == "SAME" for row in shown)
    if len(shown) > _SHOW_ALL_UP_TO and same:
        shown = [row for row in shown if row.verdict != "SAME"]
        these = counted(same, "that is the SAME is", "that are the SAME are")
        told.append(f"{these} not shown; --all shows {'it' if same == 1 else 'them'}")
    return shown, told


def _problem(record: Record) -> str:
    return f"{reduction_text(record)} {_size_text(record)}"


def _size_text(record: Record) -> str:
    """All elements, however a kernel divides them into rows."""
    return short_size(record.n * record.rows)


def _reasons(rows: Sequence[Row], what: Callable[[Record], str]) -> Iterator[str]:
    """Why, once for all rows of a verdict; where reasons differ, whose they are, but for most."""
    verdicts: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        verdicts.setdefault(row.verdict, {}).setdefault(reason_text(row), []).append(row)
    for verdict, reasons in verdicts.items():
        *smaller, _ = sorted(map(len, reasons.values()))
        for why, members in reasons.items():
            names = ", ".join(f"{row.record.kernel} {what(row.record)}" for row in members)
            if len(members) not in smaller:
                names = f"the other {len(members)}"
            if why and (verdict != "SAME" or any(map(_other_code, members))):
                yield f"{verdict}: {why}" + (f": {names}" if len(reasons) > 1 else "")


def _other_code(row: Row) -> bool:
    """Whether it compares two versions of a library, or two kernels that `auto` took."""
    old, new = row.old, row.new
    return bool(old and new and (old.version, old.chosen) != (new.version, new.chosen))


def reason_text(row: Row) -> str:
    """The reason for a verdict, and whether a second measurement bears it out."""
    if row.verdict != "SLOWER":
        return row.reason
    sure = "confirmed in a fresh process" if row.confirmed else "unconfirmed"
    return "; ".join(part for part in (sure, row.reason) if part)


def _limit_text(row: Row) -> str:
    return DASH if row.threshold is None else f"{100 * row.threshold:g}%"


def _figure(record: Record | None, shares: bool) -> str:
    if record is None:
        return DASH
    if shares:
        return share_text(record.pct_ceiling if record.ranks is None else record.pct_link)
    return time_text(record.time_us, record.time_us_low, record.time_us_high)


def _noise(rows: Sequence[Row]) -> str:
    """How far times of identical code moved, and what of that was taken out of the others."""
    moves = [abs(log(row.change.ratio)) for row in rows if row.same_code and row.change]
    if not moves:
        return ""
    taken = any(row.taken_out for row in rows)
    return (
        f"; their times, this comparison's own noise, moved by {100 * expm1(median(moves)):.2f} % "
        f"in the middle and {100 * expm1(max(moves)):.2f} % at most"
        + (", and what they show together is taken out of the others' changes" if taken else "")
    )


def sentence(row: Row) -> str:
    """What happened, in words."""
    limit = f"limit {_limit_text(row)}" if row.verdict == "SLOWER" else ""
    return (
        ", ".join(part for part in (_moved_text(row), limit, reason_text(row)) if part)
        or "as it was"
    )


def findings(rows: Iterable[Row], policy: Policy, machine: Controls | None = None) -> list[Finding]:
    """What a CI service is told of each row, worst first. Nothing was tested where nothing can be
    told, and where what is gone may be gone. A machine that has changed comes before all."""
    found = []
    if machine:
        text = machine_text(machine).removeprefix("MACHINE: ")
        found.append(Finding("the machine", "unchanged kernels", "MACHINE", text, "failed"))
    for row in worst_first(rows):
        untested = row.verdict in ("UNCERTAIN", "GONE")
        found.append(
            Finding(
                called(row.record),
                problem_text(row.record),
                row.verdict,
                sentence(row),
                "failed" if policy.code(row) else "skipped" if untested else "passed",
                (row.new.time_us or 0.0) / 1e6 if row.new else 0.0,
            )
        )
    return found
