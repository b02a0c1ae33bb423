"""The tables of a sweep: times by size, and the lines fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2

from cudareduce.report.columns import COLUMNS, condition_notes, label
from cudareduce.report.launched import choice_notes
from cudareduce.report.numbers import DASH, HALF_TICK_US, measured_text, short_size, size_text
from cudareduce.report.section import Section
from cudareduce.report.sections import listed
from cudareduce.results.record import Record, Run
from cudareduce.sweep.latency import (
    HOLDS,
    MIN_SIZES,
    Crossover,
    Line,
    Model,
    elements,
    pairs,
    undecided,
)

#: More crossings than this are left to the JSON.
_MOST_CROSSINGS = 20
#: So many kernels beside each other fit 80 columns, each time with its interval.
_ABREAST = 5


def sweep_sections(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> list[Section]:
    """Times by size, then the models with what they show."""
    if not lines:
        skipped = dict.fromkeys(
            f"{label(r)}{_kind(run, r)}: {r.reason}"
            for r in run.records
            if r.verdict != "pass" or r.reason
        )
        notes = (*skipped, *(run.protocol.get("remarks") or ()))
        return [Section(f"Nothing was timed at {MIN_SIZES} sizes", ("kernel",), (), tuple(notes))]
    return [*_times(run, lines), _models(run, lines, models, crossed)]


def _times(run: Run, lines: Sequence[Line]) -> list[Section]:
    """As many tables as it takes for every time to have room for its interval."""
    title, sizes = _title(run, lines), sorted({elements(r) for line in lines for r in line})
    tables = []
    for start in range(0, len(lines), _ABREAST):
        shown = list(enumerate(lines[start : start + _ABREAST], start + 1))
        cells = [{elements(r): COLUMNS["time"].cell(r) for r in line} for _, line in shown]
        rows = tuple((short_size(n), *(cell.get(n, DASH) for cell in cells)) for n in sizes)
        named = ", ".join(f"{k} {label(line[0])}{_kind(run, line[0])}" for k, line in shown)
        tables.append(Section(title, ("n", *(str(k) for k, _ in shown)), rows, (named,)))
    last = tables[-1]
    timed = [r for line in lines for r in line]
    told = (*choice_notes(timed), *condition_notes(timed))
    notes = (*last.notes, *_row_notes(run, lines), *told, *_missing(run))
    tables[-1] = replace(last, notes=notes)
    return tables


def _missing(run: Run) -> Iterator[str]:
    """What has no time on the device, and at which sizes."""
    found: dict[tuple[str, str], list[int]] = {}
    for r in run.records:
        if r.time_us is None and r.reason:
            kind = "WRONG: " if r.verdict == "fail" else ""
            found.setdefault((label(r) + _kind(run, r), kind + r.reason), []).append(elements(r))
    for (name, why), sizes in found.items():
        more = f" and {len(sizes) - 1} more sizes" if len(sizes) > 1 else ""
        yield f"{name} at {size_text(sizes[0])}{more}: {why}"
    called = [r for r in run.records if r.verdict == "pass" and r.time_us is None and r.host_us]
    if called:
        yield (
            f"no line, since only the host's time is known, which --json stores: "
            f"{', '.join(dict.fromkeys(label(r) for r in called))}"
        )


def _title(run: Run, lines: Sequence[Line]) -> str:
    """What was timed, in the words of the tables of `bench`."""
    first = [line[0] for line in lines]
    title = f"{listed(r.reduced for r in first)} of {listed(r.dtype for r in first)}"
    if _asked_rows(run) != 1:
        title += f" x {size_text(_asked_rows(run))} rows"
    if len({r.acc for r in first}) == 1 and any(r.acc != r.dtype for r in first):
        title += f", accumulated in {first[0].acc}"
    title += f", us, {run.device.name}"
    return f"{title}, first pass only" if first[0].region == "first-pass" else title


def _asked_rows(run: Run) -> int:
    return int(run.protocol.get("rows", 1))


def _row_notes(run: Run, lines: Sequence[Line]) -> Iterator[str]:
    """What n counts where there are rows, and which kernels make rows of one array."""
    if _asked_rows(run) != 1:
        yield "n: the elements of all rows"
    for line in lines:
        if line[-1].rows != _asked_rows(run):
            yield f"{label(line[0])}{_kind(run, line[0])}: n elements are rows of {line[-1].n}"


def _models(
    run: Run, lines: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> Section:
    header = ("kernel", "floor us", "a us", "GB/s", "half at n", "line from")
    rows = tuple(
        (
            f"{k} {m.kernel}{_kind(run, m)}",
            measured_text(m.floor_us, m.floor_us_low, m.floor_us_high, _tick_us(line[0])),
            _rest_text(m, line),
            _rate_text(m, line),
            _half_text(m),
            short_size(m.from_n),
        )
        for k, (m, line) in enumerate(zip(models, lines, strict=True), 1)
    )
    notes = [
        "floor: the shortest time; T = a + V / b from the size line from on: GB/s is b, which is "
        "reached by half where V = a b",
        *_model_notes(models),
        *(crossing_text(crossing, _kind(run, crossing)) for crossing in crossed[:_MOST_CROSSINGS]),
    ]
    if len(crossed) > _MOST_CROSSINGS:
        notes.append(f"{len(crossed) - _MOST_CROSSINGS} more crossings are in the JSON")
    if undecided(lines):
        notes.append(
            "no crossover where the ratio of two times has no interval: it takes at least 6 "
            "rounds, as many of the one kernel as of the other"
        )
    elif pairs(lines) and not crossed:
        notes.append("no kernel overtakes another within this range")
    return Section("Model", header, rows, (*notes, *(run.protocol.get("remarks") or ())))


def _rest_text(model: Model, line: Line) -> str:
    """No finer than the event clock at the smallest size, where it weighs most."""
    if not model.a_us:
        return DASH
    return measured_text(model.a_us, model.a_us_low, model.a_us_high, _tick_us(line[0]))


def _rate_text(model: Model, line: Line) -> str:
    """No finer than the event clock at the largest size, where the bandwidth shows."""
    share = _tick_us(line[-1]) / (line[-1].time_us or 1.0)
    finest = share * (model.gb_s or 0.0)
    return measured_text(model.gb_s, model.gb_s_low, model.gb_s_high, finest)


def _half_text(model: Model) -> str:
    if not model.half_n:
        return DASH
    low, high = model.half_n_low, model.half_n_high
    if not low or not high:
        return f"2^{log2(model.half_n):.1f}"
    return f"2^{measured_text(log2(model.half_n), log2(low), log2(high), 0.01)}"


def _tick_us(record: Record) -> float:
    return HALF_TICK_US / (record.batch or 1)


def _model_notes(models: Sequence[Model]) -> Iterator[str]:
    """What must be known of lines that are not what they should be."""
    for m in models:
        if m.misfit_pct > 100 * HOLDS:
            yield (
                f"{m.kernel}: no {MIN_SIZES} sizes lie on a line; the last {MIN_SIZES} lie up to "
                f"{m.misfit_pct:.0f} % off theirs, at {short_size(m.misfit_n)}: sweep to larger "
                "sizes"
            )
    if any(not m.a_us for m in models):
        yield "no a where times grow faster than a line; sweep from smaller sizes"
    if any(m.gb_s is None for m in models):
        yield "no GB/s: times hardly grow over this range; sweep to larger sizes"
    if any(m.a_us_low is None for m in models):
        yield "no intervals: they take at least 6 rounds"


def crossing_text(crossing: Crossover, kind: str) -> str:
    """Where one kernel overtakes another, in words."""
    return (
        f"{crossing.faster} overtakes {crossing.slower}{kind} at about n = "
        f"2^{log2(crossing.n):.1f}, between {short_size(crossing.low_n)} and "
        f"{short_size(crossing.high_n)}"
    )


def _kind(run: Run, of: Record | Model | Crossover) -> str:
    """What tells a line from others of the same kernel, as far as the run has several kinds."""
    several_ops = len({r.reduced for r in run.records}) > 1
    several_types = len({r.dtype for r in run.records}) > 1
    op = of.reduced if isinstance(of, Record) else of.op
    what = [op] * several_ops + [of.dtype] * several_types
    kinds = [" of ".join(what), "" if of.timing == "cold" else of.timing]
    said = ", ".join(filter(None, kinds))
    return f" ({said})" if said else ""
