"""The findings of a selftest, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from random import Random
from statistics import median
from typing import Any

from cudareduce.backends.protocol import TimedBackend
from cudareduce.intervals import MIN_ROUNDS, Interval, interval, paired
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.reduction.inputs import make
from cudareduce.report.numbers import (
    DASH,
    HALF_TICK_US,
    change_text,
    measured_text,
    plain_text,
    short_size,
    size_text,
)
from cudareduce.report.section import Section
from cudareduce.timing.rounds import Context, Timing
from cudareduce.timing.timer import DeviceTimer

#: Sizes at which contexts are compared: a short launch, and the default size of bench.
SIZES = (2**24, 2**25)
#: Measurements in each kind of context, alternating.
TURNS = 10
_STEPS, _STEP_BYTES = 2048, 512

Enter = Callable[[], AbstractContextManager[Context]]


@dataclass(frozen=True, slots=True)
class Setting:
    """Medians of one kernel in us, in fresh CUDA contexts and in the primary one. Each has buffers
    at new addresses."""

    kernel: str
    n: int
    fresh_us: tuple[float, ...]
    primary_us: tuple[float, ...]

    @property
    def slower(self) -> float:
        """Relative difference of the primary context's median."""
        return median(self.primary_us) / median(self.fresh_us) - 1

    @property
    def scatter(self) -> float | None:
        """Ratio of the ranges of times, primary to fresh; None if the fresh times are equal."""
        fresh = max(self.fresh_us) - min(self.fresh_us)
        return (max(self.primary_us) - min(self.primary_us)) / fresh if fresh else None


def alternate(
    kernel: str, n: int, fresh: Enter, primary: Enter, time: Callable[[Enter, int], float | None]
) -> Iterator[Setting]:
    """Measure alternately in both kinds of context, with their order swapped in each repetition.
    `time` gets the number of measurements left."""
    medians: tuple[list[float], list[float]] = [], []
    for turn in range(TURNS):
        for k in (0, 1) if turn % 2 else (1, 0):
            us = time((fresh, primary)[k], 2 * (TURNS - turn))
            medians[k].extend([us] if us is not None else [])
    if min(map(len, medians)) > 1:  # a range needs two
        yield Setting(kernel, n, tuple(medians[0]), tuple(medians[1]))


@contextmanager
def primary_context(
    backend: TimedBackend, timer: DeviceTimer, case: Case, n: int
) -> Iterator[Context]:
    """One reduction in the primary context, with buffers at a new address each time."""
    with ExitStack() as stack:
        step = backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
        stack.callback(backend.free, step)
        source = backend.upload(make("random", case.reduction, n, 1, 1))
        stack.callback(backend.free, source)
        plan = case.plan(n, 1, backend.limits())
        bound = Bound(backend, plan, programs_of(backend, {case: plan})[case], source)
        stack.callback(bound.release)
        yield Context(timer, {case.kernel.id: bound.run})


def _on_settings(settings: Sequence[Setting]) -> Iterator[str]:
    texts = []
    for setting in settings:
        share = 100 * setting.slower
        word = f"{abs(share):.1f} % {'slower' if share > 0 else 'faster'} than"
        compared = word if abs(share) >= 0.1 else "as fast as"
        wider = f" with {setting.scatter:.1f} times the range" if setting.scatter else ""
        texts.append(f"n = {setting.n} {compared} fresh contexts{wider}")
    if texts:
        yield (
            f"The primary context, which libraries need, measures {settings[0].kernel} at "
            f"{', at '.join(texts)}: compare times of one kind of context only."
        )


#: The tested threshold, and the fraction of slowdowns above it that must be detected.
THRESHOLD = 0.02
_CAUGHT = 0.95
#: The slowdowns that decide the verdict: the first must be detected at that rate, the second
#: always.
_JUDGED_SHARES = (0.03, 0.05)
#: Largest accepted difference from NVBench with the same method.
_AGREE = 0.03
#: Comparisons needed for a rate: of kernels with themselves, and of each injected slowdown.
ENOUGH, ENOUGH_SLOWED = 200, 100
#: Fraction of decided comparisons needed for a verdict: a slow host may invalidate some.
_DECIDED = 0.95


@dataclass(frozen=True, slots=True)
class Comparison:
    """The time ratio of candidate to baseline in each round. `injected` is the known slowdown of
    the candidate; 0 if both are the same code."""

    kernel: str
    n: int
    injected: float
    ratios: tuple[float, ...]

    @classmethod
    def of(
        cls, timings: Mapping[str, Timing], kernel: str, n: int, share: float, old: str, new: str
    ) -> Iterator[Comparison]:
        """The comparison of two entrants by name, if they have rounds in common."""
        if old in timings and new in timings:
            ratios = paired(timings[new].by_round, timings[old].by_round)
            if ratios:
                yield cls(kernel, n, share, tuple(ratios))

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def decided(self) -> bool:
        """True if there are enough rounds for an interval."""
        return len(self.ratios) >= MIN_ROUNDS

    def slower(self, threshold: float) -> bool:
        """True if slower by more than the threshold, with an interval above 1."""
        low, _ = interval(self.ratios) or (0.0, 0.0)
        return low > 1 and self.ratio > 1 + threshold

    def changed(self, threshold: float) -> bool:
        """True if slower or faster by more than the threshold."""
        _, high = interval(self.ratios) or (0.0, 2.0)
        return self.slower(threshold) or (high < 1 and self.ratio < 1 - threshold)


@dataclass(frozen=True, slots=True)
class Figure:
    """A time with its interval, of a kernel or floor (`what`) by one method (`how`)."""

    what: str
    how: str
    n: int
    us: float
    interval_us: Interval | None
    host_us: float | None = None
    batch: int = 1

    @classmethod
    def of(cls, what: str, how: str, n: int, timing: Timing) -> Figure:
        return cls(what, how, n, timing.median_us, timing.interval_us, timing.host_us, timing.batch)


#: Label of repeated measurements without a varied property, which show the noise.
NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kernel while one property outside of the kernel (`what`) varies."""

    kernel: str
    n: int
    what: str
    us: tuple[float, ...]

    @property
    def share(self) -> float:
        """The range relative to the shortest time."""
        return max(self.us) / min(self.us) - 1


@dataclass(frozen=True, slots=True)
class Peer:
    """The time of a kernel by NVBench, and by this tool with three methods."""

    kernel: str
    n: int
    nvbench_us: float
    read: Figure
    write: Figure
    nvbench: Figure

    @property
    def difference(self) -> float:
        """Relative difference of this tool, with NVBench's method, from NVBench."""
        return self.nvbench.us / self.nvbench_us - 1


@dataclass(frozen=True, slots=True)
class Findings:
    """All findings of a selftest. `problems` are the failed parts with reasons, `remarks` describe
    the state of the GPU."""

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
        """The decided comparisons of a kernel with itself."""
        return [one for one in self.aa if one.decided]

    @property
    def undecided(self) -> int:
        """The number of comparisons of both kinds with too few rounds."""
        return sum(not one.decided for one in (*self.aa, *self.injected))

    @property
    def false_verdicts(self) -> int:
        """The number of comparisons of a kernel with itself that found a change."""
        return sum(one.changed(THRESHOLD) for one in self.judged)

    @property
    def quiet_threshold(self) -> float | None:
        """The smallest threshold without false verdicts: the noise of this machine."""
        if not self.judged:
            return None
        return max((abs(one.ratio - 1) for one in self.judged if one.changed(0)), default=0.0)

    def slowed(self, share: float) -> list[Comparison]:
        """The decided comparisons with this slowdown."""
        return [one for one in self.injected if one.injected == share and one.decided]

    def caught(self, share: float, threshold: float) -> tuple[int, int]:
        """The number of detected and of decided comparisons with this slowdown."""
        some = self.slowed(share)
        return sum(one.slower(threshold) for one in some), len(some)

    @property
    def shares(self) -> list[float]:
        """The injected slowdowns with a decided comparison, in ascending order."""
        return sorted({one.injected for one in self.injected if one.decided})

    @property
    def enough(self) -> bool:
        """True if enough comparisons were decided for a verdict."""
        return len(self.judged) >= _DECIDED * ENOUGH and all(
            len(self.slowed(share)) >= _DECIDED * ENOUGH_SLOWED
            for share in {*_JUDGED_SHARES, *self.shares}
        )

    @property
    def detectable(self) -> float | None:
        """The smallest injected slowdown that is detected in 95 % of comparisons without false
        verdicts."""
        quiet = self.quiet_threshold
        if quiet is None or not self.enough:
            return None
        for share in self.shares:
            caught, of = self.caught(share, quiet)
            if caught >= _CAUGHT * of:
                return share
        return None


def sentences(findings: Findings) -> list[str]:
    """The verdict, then its reasons, then the failed parts."""
    texts = [
        *_on_noise(findings), *_on_power(findings), *_on_undecided(findings),
        *_on_flushes(findings.flushes), *_on_spreads(findings.spreads),
        *_on_settings(findings.settings), *_on_peers(findings),
    ]  # fmt: skip
    good = trustworthy(findings)
    head = {
        True: "This machine measures well enough for a threshold of 2 %.",
        False: "This machine does NOT measure well enough for a threshold of 2 %.",
        None: "Too little was measured for a verdict on this machine.",
    }[good]
    return [head, *texts, *findings.problems]


def trustworthy(findings: Findings) -> bool | None:
    """True if a threshold of 2 % gives no false verdict and detects 95 % of slowdowns of 3 % and
    all of 5 %; None if too little was measured."""
    if not findings.enough:
        return None
    often, always = _JUDGED_SHARES
    three, of_three = findings.caught(often, THRESHOLD)
    five, of_five = findings.caught(always, THRESHOLD)
    return findings.false_verdicts == 0 and three >= _CAUGHT * of_three and five == of_five


def _on_noise(findings: Findings) -> Iterator[str]:
    count, wrong = len(findings.judged), findings.false_verdicts
    if not count:
        return
    text = f"A/A: {wrong} of {count} comparisons of a kernel with itself called it changed at 2 %"
    if count < ENOUGH:
        text += f" (fewer than the {ENOUGH} needed for a rate)"
    quiet = findings.quiet_threshold
    yield f"{text}; none did above {100 * quiet:.2f} %." if quiet else f"{text}."


def _on_power(findings: Findings) -> Iterator[str]:
    rates = []
    for share in findings.shares:
        caught, of = findings.caught(share, THRESHOLD)
        real = median(one.ratio - 1 for one in findings.slowed(share))
        rates.append(f"{100 * share:g} % (measured {100 * real:.1f} %) {caught} of {of}")
    few = any(len(findings.slowed(share)) < ENOUGH_SLOWED for share in findings.shares)
    note = f" (fewer than the {ENOUGH_SLOWED} each needed for a rate)" if few else ""
    if rates:
        yield f"Slowdowns caught at a threshold of 2 %: {', '.join(rates)}{note}."
    quiet, least = findings.quiet_threshold, findings.detectable
    if quiet is not None and findings.enough:
        which = "none of the injected slowdowns is"
        if least is not None:
            which = f"{100 * least:g} % is the smallest injected slowdown that is"
        yield (
            f"At {100 * quiet:.2f} %, the smallest threshold without false verdicts, {which} "
            "caught 95 times in 100."
        )


def _on_undecided(findings: Findings) -> Iterator[str]:
    if findings.undecided:
        yield (
            f"{findings.undecided} of {len(findings.aa) + len(findings.injected)} comparisons are "
            f"undecided and not counted: they have fewer than the {MIN_ROUNDS} rounds needed for "
            "an interval."
        )


def _on_flushes(figures: Sequence[Figure]) -> list[str]:
    texts = []
    for what, n in dict.fromkeys((figure.what, figure.n) for figure in figures):
        us = {figure.how: figure.us for figure in figures if (figure.what, figure.n) == (what, n)}
        if "read" in us and "write" in us:
            share = 100 * (us["write"] / us["read"] - 1)
            word = "slower" if share > 0 else "faster"
            difference = f"{abs(share):.0f} % {word}" if abs(share) >= 1 else "no slower"
            texts.append(
                f"A flush by writing makes {what} at n = {n} look {difference} than one by reading."
            )
    return texts[-1:]  # the largest size suffices


def _on_spreads(spreads: Sequence[Spread]) -> Iterator[str]:
    if not spreads:
        return
    shares = {spread.what: f"{100 * spread.share:.1f} %" for spread in spreads}
    still = shares.pop(NOTHING, None)
    causes = ", ".join(f"{what} {share}" for what, share in shares.items())
    noise = f"; repeated without a change, {still}" if still else ""
    yield (
        f"The time of {spreads[0].kernel} at n = {spreads[0].n} also depends on: {causes}{noise}. "
        "Rounds use many contexts, so that the intervals include this."
    )


def _on_peers(findings: Findings) -> Iterator[str]:
    if findings.peers:
        worst = max(findings.peers, key=lambda peer: abs(peer.difference))
        verdict = "agree" if abs(worst.difference) <= _AGREE else "do NOT agree"
        yield (
            f"NVBench and this tool {verdict} with the same flush and queue: at most "
            f"{100 * abs(worst.difference):.1f} % apart ({worst.kernel}, n = {worst.n})."
        )


def as_json(findings: Findings) -> dict[str, Any]:
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
    """The verdict, then the tables it is based on."""
    yield Section(f"Selftest of {device}", (), (), (*sentences(findings), *findings.remarks))
    for measured, table in (
        (findings.flushes, _flushes), (findings.floors, _floors), (findings.spreads, _spreads),
        (findings.settings, _settings), (findings.peers, _peers),
    ):  # fmt: skip
        if measured:
            yield table(findings)


def _floors(findings: Findings) -> Section:
    header = ("what", "timing", "us", "host us", "batch")
    rows = tuple(
        (floor.what, floor.how, _text(floor), plain_text(floor.host_us, 2), str(floor.batch))
        for floor in findings.floors
    )
    note = "host us: time of the host to enqueue one launch, in addition to the device time"
    return Section("Floors", header, rows, (note,), 2)


def _spreads(findings: Findings) -> Section:
    header = ("what differs", "shortest us", "longest us", "apart")
    rows = tuple(
        (each.what, f"{min(each.us):.2f}", f"{max(each.us):.2f}", f"{100 * each.share:.1f}%")
        for each in findings.spreads
    )
    first = findings.spreads[0]
    return Section(f"{first.kernel}, n = {size_text(first.n)}, cold", header, rows, (), 1)


def _settings(findings: Findings) -> Section:
    settings = findings.settings
    rows = tuple(
        (short_size(one.n), name, f"{median(us):.2f}", f"{min(us):.2f}", f"{max(us):.2f}",
         f"{100 * (max(us) / min(us) - 1):.1f}%")
        for one in settings
        for name, us in (("fresh", one.fresh_us), ("primary", one.primary_us))
    )  # fmt: skip
    header = ("n", "context", "median us", "shortest us", "longest us", "apart")
    count = max(len(one.fresh_us) for one in settings)
    note = f"up to {count} of each, alternating, with buffers at new addresses each time"
    title = f"{settings[0].kernel} in fresh contexts and in the primary one, cold"
    return Section(title, header, rows, (note,), 2)


def _peers(findings: Findings) -> Section:
    header = ("kernel", "n", "by reading", "by writing", "+ queue", "NVBench", "apart")
    rows = tuple(
        (
            peer.kernel, short_size(peer.n), _text(peer.read), _text(peer.write),
            _text(peer.nvbench), plain_text(peer.nvbench_us), change_text(1 + peer.difference),
        )
        for peer in findings.peers
    )  # fmt: skip
    note = (
        "us. NVBench flushes by writing as much as the L2 holds, and queues work before and after "
        "its events. The columns `by writing` and `+ queue` (both) use these methods in this tool."
    )
    return Section("Comparison with NVBench", header, rows, (note,), 2)


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
