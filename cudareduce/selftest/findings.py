"""What a selftest found, and what follows from it: pure, from numbers to judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

from cudareduce.backend import TimedBackend
from cudareduce.intervals import MIN_ROUNDS, Interval, interval, paired
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make
from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    measured_text,
    plain_text,
    short_size,
    size_text,
)
from cudareduce.report.section import Section
from cudareduce.timing.rounds import Context, Timing
from cudareduce.timing.timer import DeviceTimer

#: Where a launch is short enough for a context to show, and the default size of bench.
SIZES = (2**24, 2**25)
#: Of each of the two, taking turns.
TURNS = 10
_STEPS, _STEP_BYTES = 2048, 512

Enter = Callable[[], AbstractContextManager[Context[DeviceTimer]]]


@dataclass(frozen=True, slots=True)
class Setting:
    """Medians of one kernel in us: each in a fresh context, and each in the primary one, where
    buffers lay elsewhere."""

    kernel: str
    n: int
    fresh_us: tuple[float, ...]
    primary_us: tuple[float, ...]

    @property
    def slower(self) -> float:
        """By which share the primary context reads longer times."""
        return median(self.primary_us) / median(self.fresh_us) - 1

    @property
    def scatter(self) -> float | None:
        """How many times further its times lie apart; None where those of fresh ones are alike."""
        fresh = max(self.fresh_us) - min(self.fresh_us)
        return (max(self.primary_us) - min(self.primary_us)) / fresh if fresh else None


def taken_in_turns(
    kernel: str, n: int, fresh: Enter, primary: Enter, time: Callable[[Enter, int], float | None]
) -> Iterator[Setting]:
    """The times of both, every other turn the other way round; `time` is told how many there are
    yet to come."""
    taken: tuple[list[float], list[float]] = [], []
    for turn in range(TURNS):
        for k in (0, 1) if turn % 2 else (1, 0):
            us = time((fresh, primary)[k], 2 * (TURNS - turn))
            taken[k].extend([us] if us is not None else [])
    if min(map(len, taken)) > 1:  # one alone does not scatter
        yield Setting(kernel, n, tuple(taken[0]), tuple(taken[1]))


@contextmanager
def at_home(
    backend: TimedBackend, timer: DeviceTimer, case: Case, n: int
) -> Iterator[Context[DeviceTimer]]:
    """One reduction in the context that the process began with, the primary one, its buffers at
    other addresses each time."""
    with ExitStack() as stack:
        step = backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        stack.callback(backend.free, step)
        given = backend.upload(make("random", case.reduction, n, 1, 1))
        stack.callback(backend.free, given)
        plan = case.plan(n, 1, backend.limits())
        bound = Bound(backend, plan, programs_of(backend, {case: plan})[case], given)
        stack.callback(bound.release)
        yield Context(timer, {case.kernel.id: bound.run})


def on_settings(settings: Sequence[Setting]) -> list[str]:
    """What they show, in words."""
    said = []
    for one in settings:
        share = 100 * one.slower
        word = f"{abs(share):.1f} % {'slower' if share > 0 else 'faster'} than"
        look = word if abs(share) >= 0.1 else "as fast as"
        apart = f" and scatters {one.scatter:.1f} times as much" if one.scatter else ""
        said.append(f"n = {one.n} {look} fresh ones{apart}")
    if not said:
        return []
    return [
        f"The primary context, which libraries insist on, reads {settings[0].kernel} at "
        f"{', at '.join(said)}: compare times within one of the two."
    ]


def settings_section(settings: Sequence[Setting]) -> Section:
    """Both, size by size."""
    rows = tuple(
        (short_size(one.n), name, f"{median(us):.2f}", f"{min(us):.2f}", f"{max(us):.2f}",
         f"{100 * (max(us) / min(us) - 1):.1f}%")
        for one in settings
        for name, us in (("fresh", one.fresh_us), ("primary", one.primary_us))
    )  # fmt: skip
    header = ("n", "context", "median us", "shortest us", "longest us", "apart")
    count = max(len(one.fresh_us) for one in settings)
    note = f"up to {count} of each, taking turns, with buffers at other addresses each time"
    title = f"{settings[0].kernel} in fresh contexts and in the primary one, cold"
    return Section(title, header, rows, (note,), 2)


#: The threshold that a machine should be good for, and how often it must catch what lies above.
THRESHOLD = 0.02
_CAUGHT = 0.95
#: The slowdowns that it is judged by: one to be caught so often, one always.
_JUDGED_SHARES = (0.03, 0.05)
#: As far as two tools may differ on one kernel once both do the same.
_AGREE = 0.03
#: Comparisons that a rate takes: of kernels with themselves, and of each injected slowdown.
ENOUGH, ENOUGH_SLOWED = 200, 100
#: The share of them that a verdict takes: single ones may lose rounds to a slow host.
_DECIDED = 0.95


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two entrants in the same rounds: how many times longer the second takes, round by round.

    `injected` is the share by which it was made longer; 0 where both are the same code.
    """

    kernel: str
    n: int
    injected: float
    ratios: tuple[float, ...]

    @classmethod
    def of(
        cls, timings: Mapping[str, Timing], kernel: str, n: int, share: float, old: str, new: str
    ) -> Iterator[Comparison]:
        """Two entrants by their names, if they have rounds in common."""
        if old in timings and new in timings:
            ratios = paired(timings[new].by_round, timings[old].by_round)
            if ratios:
                yield cls(kernel, n, share, tuple(ratios))

    @property
    def ratio(self) -> float:
        """The median over rounds."""
        return median(self.ratios)

    @property
    def decided(self) -> bool:
        """True if there are rounds enough for an interval; without one it can only come out well,
        so it counts nowhere."""
        return len(self.ratios) >= MIN_ROUNDS

    def slower(self, threshold: float) -> bool:
        """The verdict: beyond the threshold, a share, and sure that it is slower at all."""
        low, _ = interval(self.ratios) or (0.0, 0.0)
        return low > 1 and self.ratio > 1 + threshold

    def changed(self, threshold: float) -> bool:
        """The same, either way."""
        _, high = interval(self.ratios) or (0.0, 2.0)
        return self.slower(threshold) or (high < 1 and self.ratio < 1 - threshold)


@dataclass(frozen=True, slots=True)
class Figure:
    """A time with its interval, under some heading; `host_us` where that was of interest."""

    what: str
    how: str
    n: int
    us: float
    interval_us: Interval | None
    host_us: float | None = None
    batch: int = 1

    @classmethod
    def of(cls, what: str, how: str, n: int, timing: Timing) -> Figure:
        """From what was measured."""
        return cls(what, how, n, timing.median_us, timing.interval_us, timing.host_us, timing.batch)


#: What differs where the same is measured again: what is left is noise.
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kernel that differ in one thing, which is none of the kernel's."""

    kernel: str
    n: int
    what: str
    us: tuple[float, ...]

    @property
    def share(self) -> float:
        """How far the longest lies above the shortest, as a share."""
        return max(self.us) / min(self.us) - 1


@dataclass(frozen=True, slots=True)
class Peer:
    """What NVBench says of a kernel beside what we say of it, by our method and by its own."""

    kernel: str
    n: int
    nvbench_us: float
    read: Figure
    write: Figure
    nvbench: Figure

    @property
    def difference(self) -> float:
        """How far our figure by its method lies from its own, as a share."""
        return self.nvbench.us / self.nvbench_us - 1


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything a selftest found; `problems` are parts it could not do, and why; `remarks` say how
    the GPU did meanwhile."""

    aa: tuple[Comparison, ...] = ()
    injected: tuple[Comparison, ...] = ()
    flushes: tuple[Figure, ...] = ()
    floors: tuple[Figure, ...] = ()
    spreads: tuple[Spread, ...] = ()
    peers: tuple[Peer, ...] = ()
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    interrupted: bool = False
    settings: tuple[Setting, ...] = ()

    @property
    def judged(self) -> list[Comparison]:
        """Comparisons of a kernel with itself that were decided."""
        return [one for one in self.aa if one.decided]

    @property
    def undecided(self) -> int:
        """How many comparisons, of both kinds, had too few rounds to be decided."""
        return sum(not one.decided for one in (*self.aa, *self.injected))

    @property
    def false_verdicts(self) -> int:
        """How many comparisons of a kernel with itself called it changed."""
        return sum(one.changed(THRESHOLD) for one in self.judged)

    @property
    def quiet_threshold(self) -> float | None:
        """The least threshold, a share, at which none did: the noise of this machine."""
        if not self.judged:
            return None
        return max((abs(one.ratio - 1) for one in self.judged if one.changed(0)), default=0.0)

    def slowed(self, share: float) -> list[Comparison]:
        """Slowdowns by a share that were decided."""
        return [one for one in self.injected if one.injected == share and one.decided]

    def caught(self, share: float, threshold: float) -> tuple[int, int]:
        """How many slowdowns by a share were found at a threshold, and of how many."""
        some = self.slowed(share)
        return sum(one.slower(threshold) for one in some), len(some)

    @property
    def shares(self) -> list[float]:
        """The slowdowns injected, as shares, where one at least was decided, the least first."""
        return sorted({one.injected for one in self.injected if one.decided})

    @property
    def enough(self) -> bool:
        """True if as much was decided as a verdict takes."""
        return len(self.judged) >= _DECIDED * ENOUGH and all(
            len(self.slowed(share)) >= _DECIDED * ENOUGH_SLOWED
            for share in {*_JUDGED_SHARES, *self.shares}
        )

    @property
    def detectable(self) -> float | None:
        """The least injected slowdown, a share, found 95 times in 100 without one false verdict."""
        quiet = self.quiet_threshold
        if quiet is None or not self.enough:
            return None
        for share in self.shares:
            caught, of = self.caught(share, quiet)
            if caught >= _CAUGHT * of:
                return share
        return None


def sentences(findings: Findings) -> list[str]:
    """The verdict in words, then what it rests on, then what could not be done."""
    said = [
        *_on_noise(findings), *_on_power(findings), *_on_undecided(findings),
        *_on_flushes(findings.flushes), *_on_spreads(findings.spreads),
        *on_settings(findings.settings), *_on_peers(findings),
    ]  # fmt: skip
    good = trustworthy(findings)
    head = {
        True: "This machine measures well enough for a threshold of 2 %.",
        False: "This machine does NOT measure well enough for a threshold of 2 %.",
        None: "Too little was measured for a verdict on this machine.",
    }[good]
    return [head, *said, *findings.problems]


def trustworthy(findings: Findings) -> bool | None:
    """No false verdict at 2 %, 3 % caught 95 times in 100, 5 % always; None if it was not seen."""
    if not findings.enough:
        return None
    often, always = _JUDGED_SHARES
    three, of_three = findings.caught(often, THRESHOLD)
    five, of_five = findings.caught(always, THRESHOLD)
    return findings.false_verdicts == 0 and three >= _CAUGHT * of_three and five == of_five


def _on_noise(findings: Findings) -> list[str]:
    count, wrong = len(findings.judged), findings.false_verdicts
    if not count:
        return []
    said = f"A/A: {wrong} of {count} comparisons of a kernel with itself called it changed at 2 %"
    if count < ENOUGH:
        said += f" (fewer than the {ENOUGH} that a rate takes)"
    quiet = findings.quiet_threshold
    return [f"{said}; none did above {100 * quiet:.2f} %." if quiet else f"{said}."]


def _on_power(findings: Findings) -> list[str]:
    rates = []
    for share in findings.shares:
        caught, of = findings.caught(share, THRESHOLD)
        real = median(one.ratio - 1 for one in findings.slowed(share))
        rates.append(f"{100 * share:g} % (measured {100 * real:.1f} %) {caught} of {of}")
    few = any(len(findings.slowed(share)) < ENOUGH_SLOWED for share in findings.shares)
    note = f" (fewer than the {ENOUGH_SLOWED} each that a rate takes)" if few else ""
    said = [f"Slowdowns caught at a threshold of 2 %: {', '.join(rates)}{note}."] if rates else []
    quiet, least = findings.quiet_threshold, findings.detectable
    if quiet is None or not findings.enough:
        return said
    at = f"At {100 * quiet:.2f} %, the smallest threshold without false verdicts,"
    which = "none of the injected slowdowns is"
    if least is not None:
        which = f"{100 * least:g} % is the smallest injected slowdown that is"
    return [*said, f"{at} {which} caught 95 times in 100."]


def _on_undecided(findings: Findings) -> list[str]:
    if not findings.undecided:
        return []
    count = len(findings.aa) + len(findings.injected)
    return [
        f"{findings.undecided} of {count} comparisons are undecided and count nowhere: they had "
        f"fewer than the {MIN_ROUNDS} rounds that an interval takes."
    ]


def _on_flushes(figures: Sequence[Figure]) -> list[str]:
    said = []
    for what, n in dict.fromkeys((figure.what, figure.n) for figure in figures):
        us = {figure.how: figure.us for figure in figures if (figure.what, figure.n) == (what, n)}
        if "read" in us and "write" in us:
            share = 100 * (us["write"] / us["read"] - 1)
            word = "slower" if share > 0 else "faster"
            look = f"{abs(share):.0f} % {word}" if abs(share) >= 1 else "no slower"
            said.append(
                f"A flush by writing makes {what} at n = {n} look {look} than one by reading."
            )
    return said[-1:]  # the largest size tells it


def _on_spreads(spreads: Sequence[Spread]) -> list[str]:
    if not spreads:
        return []
    shares = {spread.what: f"{100 * spread.share:.1f} %" for spread in spreads}
    still = shares.pop(NOTHING, None)
    causes = ", ".join(f"{what} {share}" for what, share in shares.items())
    noise = f"; measured again with nothing changed, {still}" if still else ""
    return [
        f"What changes a time of {spreads[0].kernel} at n = {spreads[0].n} without being the "
        f"kernel's: {causes}{noise}. Rounds take place in many contexts, so that this shows as "
        "noise."
    ]


def _on_peers(findings: Findings) -> list[str]:
    if not findings.peers:
        return []
    worst = max(findings.peers, key=lambda peer: abs(peer.difference))
    verdict = "agree" if abs(worst.difference) <= _AGREE else "do NOT agree"
    return [
        f"NVBench and this tool {verdict} once both flush and queue alike: at most "
        f"{100 * abs(worst.difference):.1f} % apart ({worst.kernel}, n = {worst.n})."
    ]


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
