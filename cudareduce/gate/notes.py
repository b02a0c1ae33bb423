"""What is said below the verdicts: what a comparison finds, and what it does not judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, log

from cudareduce.gate.compare import Row, Rules, host_only
from cudareduce.gate.significance import found_from
from cudareduce.gate.verdicts import called
from cudareduce.library.kernel import Kernel
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.results.record import Record, Run

#: A skew has grown much that is twice what it was, and by so many us, and this share of the time.
_GROWN_US, _GROWN = 0.5, 0.02


def power_notes(rows: Sequence[Row], rules: Rules) -> list[str]:
    """Which slowdowns a comparison finds, by how noisy it was: of its rows in the middle, and of
    the noisiest."""
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
    """The share that a change must exceed besides: how far identical code lies apart."""
    return expm1(row.taken_out.scatter) if row.taken_out else 0.0


def host_notes(old: Sequence[Record], new: Sequence[Record]) -> list[str]:
    """The calls of libraries that are not compared, each with the host's times that lie furthest
    apart."""
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


def beside_notes(rows: Sequence[Row], stored: Run, base: Mapping[str, Kernel]) -> list[str]:
    """Beside what the second measurement was made, where that was not the stored run."""
    looked = {row.record.kernel for row in rows if row.confirmed is not None}
    if not looked & base.keys():
        return []
    revision = stored.tool.get("git")
    return [f"measured again in the same rounds as the kernels of {revision}, in a fresh process"]


def skew_notes(rows: Sequence[Row]) -> list[str]:
    """The engines whose ranks lie much further apart than before: no verdict, since what they take
    is that of the slowest, but it says where to look."""
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
