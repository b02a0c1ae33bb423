"""`selftest` from options to verdict: words, tables, and a JSON that holds all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from cudareduce.backends import BackendSpec, open_cuda
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.execute import Case
from cudareduce.figures import DASH, measured_text, plain_text, short_size, size_text
from cudareduce.operators import reduction
from cudareduce.progress import say
from cudareduce.provenance import tool
from cudareduce.record import Run
from cudareduce.registry import load_registry
from cudareduce.report import Section
from cudareduce.run import write
from cudareduce.selftest.findings import THRESHOLD, Figure, Findings, sentences, trustworthy
from cudareduce.selftest.parts import Selftest
from cudareduce.store import check_outputs

#: One relaunch with a first addition, one with many items, one with shuffles: all fast enough for
#: the flush, and not the kernel, to take most of the time.
KERNELS = ("reduce_v3_add_during_load", "reduce_v6_multi_add", "reduce_v7_shuffle")


def run_selftest(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Test, print, store; 0, with --strict 4 unless the machine was seen to be good enough, and 130
    after Ctrl-C, with what there was by then."""
    check_outputs(options)
    deadline = Deadline(options["max_time"])
    what = reduction("sum", "float32")
    choices = load_registry().choose(list(names) or list(KERNELS))
    for choice in choices:
        reason = choice.kernel.why_not(what)
        if reason or choice.kernel.scope != "grid":
            raise UsageError(
                f"selftest sums float32 over the grid, which {choice.kernel.id} does not"
            )
    cases = [Case(c.kernel, what, c.kernel.block, c.kernel.items) for c in choices]
    spec = BackendSpec("cuda", options["device"], use_cache=not options["no_cache"])
    with open_cuda(spec) as backend:
        device = backend.info()
        found = Selftest(backend, spec, cases, deadline).run(
            lambda text: say(text, options["quiet"])
        )
    protocol = {"rounds": 9, "max_time_s": deadline.seconds, "selftest": as_json(found)}
    run = Run(tool(options["argv"]), device, protocol, ())
    write(run, list(selftest_sections(found, device.name)), {**options, "csv": None})
    if found.interrupted:
        return 130
    return 4 if options["strict"] and not trustworthy(found) else 0


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
