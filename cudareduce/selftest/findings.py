"""What a selftest found, and what follows from it: pure, from numbers to judgements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from cudareduce.intervals import MIN_ROUNDS, Interval, interval, paired
from cudareduce.selftest.settings import Setting, on_settings
from cudareduce.timing.rounds import Timing

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
