"""`sweep`: the times of kernels over a range of sizes, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import log2
from typing import Any

from cudareduce.columns import label
from cudareduce.errors import UsageError
from cudareduce.figures import DASH, measured_text, size_text, time_text
from cudareduce.model import MIN_SIZES, Crossover, Line, Model, crossovers, fit, lines
from cudareduce.record import Run
from cudareduce.report import Section
from cudareduce.run import timed_run, write

#: A line this far off a time has the reader told where.
_MISFIT_PCT = 10.0
#: More crossings than this are left to the JSON.
_MOST_CROSSINGS = 20


def run_sweep(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Time a range, fit, print, store."""
    if options["backend"] == "cpu":
        raise UsageError("sweep fits times, and the CPU emulator has none: use --backend cuda")
    if len([n for n in options["n"] if n]) < MIN_SIZES:
        raise UsageError(f"sweep fits a line: give --n at least {MIN_SIZES} sizes, as 2^10..2^30")
    run, code = timed_run(names, {**options, "backend": "cuda"})
    found = lines(run.records)
    models = [fit(line) for line in found]
    crossed = sorted(crossovers(found), key=lambda crossing: crossing.n)
    protocol = {
        **run.protocol,
        "models": [asdict(model) for model in models],
        "crossovers": [asdict(crossing) for crossing in crossed],
    }
    write(replace(run, protocol=protocol), sweep_sections(run, found, models, crossed), options)
    return code


def sweep_sections(
    run: Run, found: Sequence[Line], models: Sequence[Model], crossed: Sequence[Crossover]
) -> list[Section]:
    """Times by size, then the models with what they show."""
    if not found:
        skipped = dict.fromkeys(
            f"{label(r)}: {r.reason}" for r in run.records if r.verdict != "pass" or r.reason
        )
        notes = (*skipped, *(run.protocol.get("remarks") or ()))
        return [Section(f"Nothing was timed at {MIN_SIZES} sizes", ("kernel",), (), tuple(notes))]
    return [_times(run, found, models), _models(run, models, crossed)]


def _times(run: Run, found: Sequence[Line], models: Sequence[Model]) -> Section:
    sizes = sorted({r.n for line in found for r in line})
    cells = [
        {r.n: time_text(r.time_us, r.time_us_low, r.time_us_high) for r in line} for line in found
    ]
    rows = tuple((f"2^{log2(n):g}", *(cell.get(n, DASH) for cell in cells)) for n in sizes)
    named = ", ".join(f"{k + 1} {_name(model)}" for k, model in enumerate(models))
    skipped = dict.fromkeys(
        f"{label(r)} at {size_text(r.n)}: {r.reason}" for r in run.records if r.time_us is None
    )
    header = ("n", *(str(k + 1) for k in range(len(models))))
    first = found[0][0]
    title = f"{first.op} of {first.dtype}, us, {run.device.name}"
    return Section(title, header, rows, (named, *skipped))


def _models(run: Run, models: Sequence[Model], crossed: Sequence[Crossover]) -> Section:
    header = ("kernel", "floor us", "GB/s", "half at n", "worst fit")
    rows = tuple(
        (
            f"{k + 1} {_name(m)}",
            measured_text(m.launch_us, m.launch_us_low, m.launch_us_high),
            measured_text(m.gb_s, m.gb_s_low, m.gb_s_high),
            f"2^{log2(m.half_n):.1f}" if m.half_n else DASH,
            f"{m.misfit_pct:.0f}% at 2^{log2(m.misfit_n):.3g}",
        )
        for k, m in enumerate(models)
    )
    notes = [
        "T = a + V / b: floor is a, GB/s is b, which is reached by half where V = a b; worst fit: "
        "how far the line lies off the worst time"
    ]
    if any(m.misfit_pct > _MISFIT_PCT for m in models):
        notes.append(
            "a line is a coarse model of a range that crosses the cache: trust the times above "
            "where it lies far off, or sweep a part of the range"
        )
    if any(m.gb_s is None for m in models):
        notes.append("no GB/s: times hardly grow over this range; sweep to larger sizes")
    if any(m.launch_us_low is None for m in models):
        notes.append("no intervals: they take at least 6 rounds")
    notes += [crossing_text(crossing) for crossing in crossed[:_MOST_CROSSINGS]]
    if len(crossed) > _MOST_CROSSINGS:
        notes.append(f"{len(crossed) - _MOST_CROSSINGS} more crossings are in the JSON")
    if len(models) > 1 and not crossed:
        notes.append("no kernel overtakes another within this range")
    return Section("Model", header, rows, (*notes, *(run.protocol.get("remarks") or ())))


def crossing_text(crossing: Crossover) -> str:
    """Where one kernel overtakes another, in words."""
    kind = "" if crossing.timing == "cold" else f" ({crossing.timing})"
    return (
        f"{crossing.faster} overtakes {crossing.slower}{kind} at about n = "
        f"2^{log2(crossing.n):.1f}, between 2^{log2(crossing.low_n):g} and "
        f"2^{log2(crossing.high_n):g}"
    )


def _name(model: Model) -> str:
    return model.kernel if model.timing == "cold" else f"{model.kernel}, {model.timing}"
