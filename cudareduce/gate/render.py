"""Renders verdicts as text: tables, notes, findings for CI services."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import expm1, log
from statistics import median

from cudareduce.gate.compare import VERDICTS, ControlGroup, Row, Rules, host_only
from cudareduce.gate.decide import Policy
from cudareduce.gate.statistics import found_from
from cudareduce.library.kernel import Kernel
from cudareduce.problem.patterns import GIVEN
from cudareduce.problem.sizes import counted
from cudareduce.report.ci import Finding
from cudareduce.report.columns import way_text
from cudareduce.report.numbers import (
    DASH,
    change_text,
    plain_text,
    share_text,
    short_size,
    sms_text,
    time_text,
)
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few
from cudareduce.results.record import Record, Run

#: The most rows of a table that still shows SAME rows.
_SHOW_ALL_UP_TO = 60
#: The most rows that only one run has before they are summed up.
_ONE_SIDED_UP_TO = 8
#: The most names in a summary line.
_FIRST_FEW = 4


def called(record: Record) -> str:
    """The kernel, with the engine of a collective."""
    return f"{record.kernel} {record.engine or ''}".rstrip()


def problem_text(record: Record) -> str:
    """What a record reduces, with unusual ways of measuring."""
    return f"{reduction_text(record)} {shape_text(record)}"


def reduction_text(record: Record) -> str:
    """Operator and types of a record."""
    acc = f" in {record.acc}" if record.acc != record.dtype and record.op != "mean" else ""
    return f"{record.reduced} {record.dtype}{acc}"


def shape_text(record: Record) -> str:
    """Size of a record, with unusual ways of measuring."""
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
    """Old, new and the change; with `shares` as percentages of each card's ceiling, not us."""
    return _figure(row.old, shares), _figure(row.new, shares), _moved_text(row) or DASH


def counts_text(rows: Sequence[Row]) -> str:
    """The number of rows per verdict: `24 compared: 1 SLOWER, 23 SAME`."""
    counts = Counter(row.verdict for row in rows)
    found = ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
    return f"{len(rows)} compared: {found or 'nothing'}"


def worst_first(rows: Iterable[Row]) -> list[Row]:
    """Rows by verdict, then by slowdown."""

    def key(row: Row) -> tuple[int, float]:
        return VERDICTS.index(row.verdict), -(row.change.ratio if row.change else 0.0)

    return sorted(rows, key=key)


def verdict_sections(
    rows: Sequence[Row], title: str, notes: Sequence[str], *, shares: bool, everything: bool,
    machine: ControlGroup | None = None,
) -> list[Section]:  # fmt: skip
    """The table, worst rows first; a long one omits SAME rows unless `everything`. `shares` shows
    percentages of each card's ceiling instead of us. `machine` is the control group that shows a
    changed machine."""
    shown, told = (worst_first(rows), []) if everything else _worth_showing(worst_first(rows))
    told += notes
    # What all rows share goes into the title, so that the table fits 80 columns.
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


def machine_text(machine: ControlGroup) -> str:
    """Why the verdict is MACHINE, and what to do."""
    return (
        f"MACHINE: {machine.text}: a clock, a driver, a neighbour or the card has changed, so no "
        "kernel is called slower or faster; look at `cudareduce info`, then measure again or make "
        "a new baseline"
    )


def in_short(what: str) -> str:
    """Abbreviated for a narrow column."""
    return what.replace(" rows", "").replace("beside libraries", "beside").replace("starting ", "")


def _worth_showing(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The rows to show, and notes on those omitted: problems that only one run has, and SAME rows
    of a long table. A kernel missing among compared ones stays a row."""
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
    """The total number of elements."""
    return short_size(record.n * record.rows)


def _reasons(rows: Sequence[Row], what: Callable[[Record], str]) -> Iterator[str]:
    """The reasons of each verdict, with the rows they apply to where they differ."""
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
    """Whether a row compares two versions of a library, or two choices of `auto`."""
    old, new = row.old, row.new
    return bool(old and new and (old.version, old.chosen) != (new.version, new.chosen))


def reason_text(row: Row) -> str:
    """The reason of a verdict, and whether it is confirmed."""
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
    """How far identical code moved, and whether that was subtracted from other rows."""
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
    """The change, limit and reason of a row."""
    limit = f"limit {_limit_text(row)}" if row.verdict == "SLOWER" else ""
    return (
        ", ".join(part for part in (_moved_text(row), limit, reason_text(row)) if part)
        or "as it was"
    )


def findings(
    rows: Iterable[Row], policy: Policy, machine: ControlGroup | None = None
) -> list[Finding]:
    """Findings for a CI service, worst first. UNCERTAIN and GONE rows count as skipped unless they
    fail the check."""
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


#: A skew is reported if it more than doubled, and grew by so many us and this share of the time.
_GROWN_US, _GROWN = 0.5, 0.02


def power_notes(rows: Sequence[Row], rules: Rules) -> list[str]:
    """The smallest slowdown found 95 times in 100: of the median row and of the noisiest."""
    judged = [row for row in rows if not (rules.same_code and row.same_code)] or rows
    found = sorted(
        found_from(row.change.half_width, max(row.threshold, _scatter(row)))
        for row in judged if row.change and row.threshold
    )  # fmt: skip
    if not found:
        return []
    middle, most = (100 * found[k] for k in (len(found) // 2, -1))
    noisiest = f", of the noisiest row from {most:.2g} %" if most > 1.1 * middle else ""
    return [f"slowdowns from {middle:.2g} % are found 95 times in 100{noisiest}"]


def _scatter(row: Row) -> float:
    """How far identical code scatters, as a share."""
    return expm1(row.taken_out.scatter) if row.taken_out else 0.0


def host_notes(old: Sequence[Record], new: Sequence[Record]) -> list[str]:
    """Library calls that are not compared, with the host times that differ most."""
    calls: dict[str, list[tuple[float, float, int]]] = {}
    for before, now in host_only(old, new):
        assert before.host_us
        assert now.host_us
        calls.setdefault(called(now), []).append((before.host_us, now.host_us, now.n))
    told = []
    for name, times in calls.items():
        old_us, new_us, n = max(times, key=lambda time: abs(log(time[1] / time[0])))
        furthest = f", the furthest apart of {len(times)}" if len(times) > 1 else ""
        text = f"{plain_text(old_us, 2)}, now {plain_text(new_us, 2)} at n = {short_size(n)}"
        told.append(f"{name} {text}{furthest}")
    if not told:
        return []
    return [f"not compared, as of these only the host's time in us is known: {'; '.join(told)}"]


def base_notes(rows: Sequence[Row], stored: Run, base: Mapping[str, Kernel]) -> list[str]:
    """A note if the second measurement ran alongside the kernels of the baseline."""
    looked = {row.record.kernel for row in rows if row.confirmed is not None}
    if not looked & base.keys():
        return []
    revision = stored.tool.get("git")
    return [f"measured again in the same rounds as the kernels of {revision}, in a fresh process"]


def skew_notes(rows: Sequence[Row]) -> list[str]:
    """Engines whose ranks end much further apart than before; a note, not a verdict."""
    grown: dict[str, list[tuple[float, Record, float]]] = {}
    for row in rows:
        if not row.old or not row.new or row.old.skew_us is None or row.new.skew_us is None:
            continue
        before, by = row.old.skew_us, row.new.skew_us - row.old.skew_us
        if by > max(before, _GROWN_US, _GROWN * (row.new.time_us or 0.0)):
            grown.setdefault(row.new.engine or row.new.kernel, []).append((by, row.new, before))
    told = []
    for engine, some in grown.items():
        by, record, before = max(some, key=lambda one: one[0])
        furthest = f", the most of {len(some)}" if len(some) > 1 else ""
        text = f"{plain_text(before, 2)}, now {plain_text(before + by, 2)} us"
        told.append(f"{engine} {text} at n = {short_size(record.n)}{furthest}")
    if not told:
        return []
    return [f"ranks lie further apart than before, which is no verdict: skew of {'; '.join(told)}"]
