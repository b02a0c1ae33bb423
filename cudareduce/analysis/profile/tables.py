"""Profiles as tables: one per kernel, or two kernels side by side; and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cudareduce.analysis.profile.lines import BUSY, Line, Profile, Values
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import steps_of
from cudareduce.report.numbers import DASH
from cudareduce.report.section import Section

#: Smaller relative changes are noise between launches of one kernel.
_MIN_CHANGE = 0.05
_UNITS = {
    "dram_pct": "DRAM", "l2_pct": "the L2", "sm_pct": "the SMs",
    "memory_pct": "a cache or shared memory",
}  # fmt: skip


def kernel_sections(
    profiles: Sequence[Profile], what: str, kernels: Mapping[str, Kernel], notes: Sequence[str]
) -> list[Section]:
    """A table for each profiled kernel (at least one), with its bottleneck above and the next steps
    of the ladder below. General notes are below the last table."""
    tables = [_section(profile, what, kernels) for profile in profiles if not profile.reason]
    left = [f"{p.kernel.id}: skipped, {p.reason}" for p in profiles if p.reason]
    tables[-1] = replace(tables[-1], notes=(*tables[-1].notes, *left, *notes))
    return tables


def _section(profile: Profile, what: str, kernels: Mapping[str, Kernel]) -> Section:
    rows = tuple(_row(profile, line) for line in profile.lines)
    limit = () if profile.static else tuple(filter(None, [limited_by(profile.values)]))
    return Section(
        f"{profile.kernel.id}: {what}", ("counter", "value", "meaning"), rows,
        tuple(next_steps(profile.kernel, kernels)), 3, head=limit,
    )  # fmt: skip


def _row(profile: Profile, line: Line) -> tuple[str, str, str]:
    if line.key not in profile.values:
        return line.heading, DASH, profile.why_none(line.key)
    return line.heading, line.cell(profile.values), line.meaning(profile.values)


def limited_by(v: Values) -> str:
    """A sentence about the bottleneck of a kernel; empty if it was not measured."""
    busy = [(key, name) for key, name in _UNITS.items() if v.get(key, 0.0) >= BUSY]
    if busy:
        key, name = busy[0]
        return f"Limited by {name}, at {v[key]:.0f} % of the peak."
    waits = {"for memory": v.get("memory_wait_pct"), "at barriers": v.get("barrier_wait_pct")}
    shares = [f"{words} {share:.0f} %" for words, share in waits.items() if share is not None]
    if "dram_pct" not in v or not shares:
        return ""
    return f"No unit is at its limit: warps wait {' and '.join(shares)} of the time."


def diff_section(old: Profile, new: Profile, what: str, notes: Sequence[str]) -> Section:
    """Two kernels side by side: what changed and why it matters; the rest in a note."""
    rows, same = [], []
    for line in old.lines:
        cells = _row(old, line)[1], _row(new, line)[1]
        if line.key not in old.values or line.key not in new.values:
            if cells != (DASH, DASH):
                rows.append((line.heading, *cells, ""))
        elif _differ(old.values[line.key], new.values[line.key]):
            rows.append((line.heading, *cells, _change(line, old.values, new.values)))
        else:
            same.append(f"{line.heading} ({cells[1]})")
    head = (f"A is {old.kernel.id}", f"B is {new.kernel.id}")
    all_notes = (
        f"about the same: {', '.join(same)}" if same else "",
        between(old.kernel, new.kernel), between(new.kernel, old.kernel), *notes,
    )  # fmt: skip
    return Section(
        f"From A to B: {what}", ("counter", "A", "B", "why it matters"), tuple(rows),
        tuple(filter(None, all_notes)), 4, head=head,
    )  # fmt: skip


def _differ(old: float, new: float) -> bool:
    return abs(new - old) > _MIN_CHANGE * max(abs(old), abs(new))


def _change(line: Line, old: Values, new: Values) -> str:
    if line.better is None:
        return line.meaning(new)
    better = (new[line.key] < old[line.key]) == (line.better == "less")
    return f"{'better' if better else 'worse'}: {line.matters}"


def to_json(profiles: Sequence[Profile], about: Mapping[str, Any], notes: Sequence[str]) -> str:
    """The values, in the units of their names, and the explained lines."""
    objects = [
        {
            "kernel": profile.kernel.id, "reason": profile.reason, "values": dict(profile.values),
            "lines": list(_lines(profile)),
        }
        for profile in profiles
    ]  # fmt: skip
    return json.dumps({**about, "profiles": objects, "notes": list(notes)}, indent=1) + "\n"


def _lines(profile: Profile) -> Iterator[dict[str, str]]:
    if not profile.reason:
        for line in profile.lines:
            yield dict(zip(("what", "here", "means"), _row(profile, line), strict=True))


#: The headings of the lines that a technique improves.
_IMPROVES = {
    "no_divergence": ("active lanes",),
    "no_bank_conflict": ("shared memory",),
    "first_add": ("waits for memory", "instructions"),
    "warp_unroll": ("waits at barriers", "instructions"),
    "template_unroll": ("instructions",),
    "multi_add": ("waits for memory", "instructions"),
    "wide_load": ("loads in flight", "instructions"),
    "shuffle": ("shared memory", "waits at barriers"),
    "last_block": ("launches",),
}
#: The most next steps that are listed.
_MOST = 4


def next_steps(kernel: Kernel, kernels: Mapping[str, Kernel]) -> Iterator[str]:
    """A line for each successor of a kernel: its change, and the counters it improves."""
    steps = steps_of(kernels).get(kernel.id, [])
    for step in steps[:_MOST]:
        new = [word for word in step.techniques if word not in kernel.techniques]
        about = dict.fromkeys(heading for word in new for heading in _IMPROVES.get(word, ()))
        counters = f" (improves {', '.join(about)})" if about else ""
        yield f"next: {step.id}{counters}: {step.change}"
    if len(steps) > _MOST:
        yield f"and {len(steps) - _MOST} more: see cudareduce show {kernel.id}"


def between(before: Kernel, after: Kernel) -> str:
    """The change of a direct successor; empty for other kernels."""
    return f"{after.id} succeeds {before.id}: {after.change}" * (after.after == before.id)
