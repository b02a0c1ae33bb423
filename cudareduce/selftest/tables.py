"""The tables of a selftest, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    measured_text,
    plain_text,
    short_size,
    size_text,
)
from cudareduce.report.section import Section
from cudareduce.selftest.findings import THRESHOLD, Figure, Findings, sentences, trustworthy
from cudareduce.selftest.settings import settings_section


def as_json(findings: Findings) -> dict[str, Any]:
    """The findings with what follows from them."""
    slow = {
        f"{100 * share:g}%": dict(
            zip(("caught", "of"), findings.caught(share, THRESHOLD), strict=True)
        )
        for share in findings.shares
    }  # fmt: skip
    return {
        "verdict": trustworthy(findings),
        "words": sentences(findings),
        "threshold": THRESHOLD,
        "comparisons": len(findings.judged),
        "undecided": findings.undecided,
        "false_verdicts": findings.false_verdicts,
        "quiet_threshold": findings.quiet_threshold,
        "caught": slow,
        "detectable": findings.detectable,
        **asdict(findings),
    }


def selftest_sections(findings: Findings, device: str) -> Iterator[Section]:
    """The verdict first, then what it rests on."""
    yield Section(f"Selftest of {device}", (), (), (*sentences(findings), *findings.remarks))
    if findings.flushes:
        yield _flushes(findings)
    if findings.floors:
        yield _floors(findings)
    if findings.spreads:
        yield _spreads(findings)
    if findings.settings:
        yield settings_section(findings.settings)
    if findings.peers:
        yield _peers(findings)


def _floors(findings: Findings) -> Section:
    header = ("what", "timing", "us", "host us", "batch")
    rows = tuple(
        (floor.what, floor.how, _text(floor), plain_text(floor.host_us, 2), str(floor.batch))
        for floor in findings.floors
    )
    note = "host us: what the host needs to enqueue one, beside the time on the device"
    return Section("Floors", header, rows, (note,), 2)


def _spreads(findings: Findings) -> Section:
    header = ("what differs", "shortest us", "longest us", "apart")
    rows = tuple(
        (
            spread.what,
            f"{min(spread.us):.2f}",
            f"{max(spread.us):.2f}",
            f"{100 * spread.share:.1f}%",
        )
        for spread in findings.spreads
    )
    first = findings.spreads[0]
    return Section(f"{first.kernel}, n = {size_text(first.n)}, cold", header, rows, (), 1)


def _peers(findings: Findings) -> Section:
    header = ("kernel", "n", "by reading", "by writing", "+ queue", "NVBench", "apart")
    rows = tuple(
        (
            peer.kernel, short_size(peer.n), _text(peer.read), _text(peer.write),
            _text(peer.nvbench), plain_text(peer.nvbench_us), f"{100 * peer.difference:+.1f}%",
        )
        for peer in findings.peers
    )  # fmt: skip
    note = (
        "us. NVBench flushes by writing as much as the L2 holds, and queues work on both sides of "
        "its events; so does this tool in the columns by writing and, with the queue too, + queue"
    )
    return Section("Beside NVBench", header, rows, (note,), 2)


def _flushes(findings: Findings) -> Section:
    ways = list(dict.fromkeys(figure.how for figure in findings.flushes))
    cells = {(f.what, f.n, f.how): _text(f) for f in findings.flushes}
    keys = dict.fromkeys((figure.what, figure.n) for figure in findings.flushes)
    rows = tuple(
        (what, short_size(n), *(cells.get((what, n, way), DASH) for way in ways))
        for what, n in keys
    )
    return Section("Cache before each sample, us", ("kernel", "n", *ways), rows, (), 2)


def _text(figure: Figure) -> str:
    low, high = figure.interval_us or (None, None)
    return measured_text(figure.us, low, high, HALF_TICK_US / figure.batch)
