"""The tables of a selftest, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cudareduce.report.numbers import DASH, measured_text, plain_text, short_size, size_text
from cudareduce.report.sections import Section
from cudareduce.selftest.findings import THRESHOLD, Figure, Findings, sentences, trustworthy


def as_json(found: Findings) -> dict[str, Any]:
    """The findings with what follows from them."""
    slow = {
        f"{100 * share:g}%": {
            "caught": found.caught(share, THRESHOLD)[0], "of": found.caught(share, THRESHOLD)[1],
        }
        for share in found.shares
    }  # fmt: skip
    return {
        "verdict": trustworthy(found),
        "words": sentences(found),
        "threshold": THRESHOLD,
        "comparisons": len(found.judged),
        "undecided": found.undecided,
        "false_verdicts": found.false_verdicts,
        "quiet_threshold": found.quiet_threshold,
        "caught": slow,
        "detectable": found.detectable,
        **asdict(found),
    }


def selftest_sections(found: Findings, device: str) -> Iterator[Section]:
    """The verdict first, then what it rests on."""
    yield Section(f"Selftest of {device}", (), (), (*sentences(found), *found.remarks))
    if found.flushes:
        yield _flushes(found)
    if found.floors:
        yield _floors(found)
    if found.spreads:
        yield _spreads(found)
    if found.peers:
        yield _peers(found)


def _floors(found: Findings) -> Section:
    header = ("what", "timing", "us", "host us", "batch")
    rows = tuple(
        (floor.what, floor.how, _text(floor), plain_text(floor.host_us, 2), str(floor.batch))
        for floor in found.floors
    )
    note = "host us: what the host needs to enqueue one, beside the time on the device"
    return Section("Floors", header, rows, (note,), 2)


def _spreads(found: Findings) -> Section:
    header = ("what differs", "shortest us", "longest us", "apart")
    rows = tuple(
        (
            spread.what,
            f"{min(spread.us):.2f}",
            f"{max(spread.us):.2f}",
            f"{100 * spread.share:.1f}%",
        )
        for spread in found.spreads
    )
    first = found.spreads[0]
    return Section(f"{first.kernel}, n = {size_text(first.n)}, cold", header, rows, (), 1)


def _peers(found: Findings) -> Section:
    header = ("kernel", "n", "by reading", "by writing", "+ queue", "NVBench", "apart")
    rows = tuple(
        (
            peer.kernel, short_size(peer.n), _text(peer.read), _text(peer.write),
            _text(peer.nvbench), plain_text(peer.nvbench_us), f"{100 * peer.difference:+.1f}%",
        )
        for peer in found.peers
    )  # fmt: skip
    note = (
        "us. NVBench flushes by writing as much as the L2 holds, and queues work on both sides of "
        "its events; so does this tool in the columns by writing and, with the queue too, + queue"
    )
    return Section("Beside NVBench", header, rows, (note,), 2)


def _flushes(found: Findings) -> Section:
    ways = list(dict.fromkeys(figure.how for figure in found.flushes))
    cells = {(f.what, f.n, f.how): _text(f) for f in found.flushes}
    keys = dict.fromkeys((figure.what, figure.n) for figure in found.flushes)
    rows = tuple(
        (what, short_size(n), *(cells.get((what, n, way), DASH) for way in ways))
        for what, n in keys
    )
    return Section("Cache before each sample, us", ("kernel", "n", *ways), rows, (), 2)


def _text(figure: Figure) -> str:
    low, high = figure.interval_us or (None, None)
    return measured_text(figure.us, low, high, 0.016 / figure.batch)
