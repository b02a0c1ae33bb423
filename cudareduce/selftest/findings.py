"""What a selftest found, and what follows from it: pure, from numbers to judgements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cudareduce.intervals import Interval, interval

#: The threshold that a machine should be good for, and how often it must catch what lies above.
THRESHOLD = 0.02
_CAUGHT = 0.95
#: As far as two tools may differ on one kernel once both do the same.
_AGREE = 0.03
#: Comparisons that a rate is worth being told of.
ENOUGH = 200


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two entrants in the same rounds: how many times longer the second takes, round by round.

    `injected` is the share by which it was made longer; 0 where both are the same code.
    """

    kernel: str
    n: int
    injected: float
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median over rounds."""
        return median(self.ratios)

    def slower(self, threshold: float) -> bool:
        """The verdict: beyond the threshold, and sure that it is slower at all."""
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


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kernel that differ in one thing, which is none of the kernel's."""

    kernel: str
    n: int
    what: str
    us: tuple[float, ...]

    @property
    def share(self) -> float:
        """How far the longest lies above the shortest."""
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
        """How far our figure by its method lies from its own."""
        return self.nvbench.us / self.nvbench_us - 1


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything a selftest found; `problems` are parts it could not do, and why."""

    aa: tuple[Comparison, ...] = ()
    injected: tuple[Comparison, ...] = ()
    flushes: tuple[Figure, ...] = ()
    floors: tuple[Figure, ...] = ()
    spreads: tuple[Spread, ...] = ()
    peers: tuple[Peer, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def false_verdicts(self) -> int:
        """How many comparisons of a kernel with itself called it changed."""
        return sum(one.changed(THRESHOLD) for one in self.aa)

    @property
    def quiet_threshold(self) -> float | None:
        """The least threshold at which none did: the noise of this machine."""
        if not self.aa:
            return None
        return max((abs(one.ratio - 1) for one in self.aa if one.changed(0)), default=0.0)

    def caught(self, share: float, threshold: float) -> tuple[int, int]:
        """Of how many slowdowns by a share how many were found."""
        some = [one for one in self.injected if one.injected == share]
        return sum(one.slower(threshold) for one in some), len(some)

    @property
    def shares(self) -> list[float]:
        """The slowdowns that were injected."""
        return sorted({one.injected for one in self.injected})

    @property
    def detectable(self) -> float | None:
        """The least injected slowdown found 95 times in 100 without one false verdict."""
        quiet = self.quiet_threshold
        if quiet is None:
            return None
        for share in self.shares:
            found, of = self.caught(share, quiet)
            if of and found >= _CAUGHT * of:
                return share
        return None


def sentences(found: Findings) -> list[str]:
    """The verdict in words, worst first."""
    said = [
        *_on_noise(found), *_on_power(found), *_on_flushes(found.flushes),
        *_on_spreads(found.spreads), *_on_peers(found),
    ]  # fmt: skip
    good = trustworthy(found)
    head = {
        True: "This machine measures well enough for a threshold of 2 %.",
        False: "This machine does NOT measure well enough for a threshold of 2 %.",
        None: "Too little was measured for a verdict on this machine.",
    }[good]
    return [head, *said, *found.problems]


def trustworthy(found: Findings) -> bool | None:
    """No false verdict at 2 %, 3 % caught 95 times in 100, 5 % always; None if it was not seen."""
    if not found.aa or not found.injected or len(found.aa[0].ratios) < 6:
        return None
    three, of_three = found.caught(0.03, THRESHOLD)
    five, of_five = found.caught(0.05, THRESHOLD)
    return found.false_verdicts == 0 and three >= _CAUGHT * of_three and five == of_five


def _on_noise(found: Findings) -> list[str]:
    if not found.aa:
        return []
    count, wrong = len(found.aa), found.false_verdicts
    said = f"A/A: {wrong} of {count} comparisons of a kernel with itself called it changed at 2 %"
    if count < ENOUGH:
        said += f" (fewer than the {ENOUGH} that a rate takes)"
    quiet = found.quiet_threshold
    return [f"{said}; none did above {100 * quiet:.2f} %." if quiet else f"{said}."]


def _on_power(found: Findings) -> list[str]:
    if not found.injected:
        return []
    rates = []
    for share in found.shares:
        caught, of = found.caught(share, THRESHOLD)
        real = median(one.ratio - 1 for one in found.injected if one.injected == share)
        rates.append(f"{100 * share:g} % (measured {100 * real:.1f} %) {caught} of {of}")
    said = [f"Slowdowns caught at a threshold of 2 %: {', '.join(rates)}."]
    least = found.detectable
    if least is not None:
        said.append(
            f"At the threshold without false verdicts, {100 * least:g} % is the smallest injected "
            "slowdown that is caught 95 times in 100."
        )
    elif found.aa:
        said.append("None of the injected slowdowns is caught 95 times in 100.")
    return said


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
    causes = ", ".join(f"{spread.what} {100 * spread.share:.1f} %" for spread in spreads)
    return [
        f"What changes a time of {spreads[0].kernel} at n = {spreads[0].n} without being the "
        f"kernel's: {causes}. Rounds take place in many contexts, so that this shows as noise."
    ]


def _on_peers(found: Findings) -> list[str]:
    if not found.peers:
        return []
    worst = max(found.peers, key=lambda peer: abs(peer.difference))
    verdict = "agree" if abs(worst.difference) <= _AGREE else "do NOT agree"
    return [
        f"NVBench and this tool {verdict} once both flush and queue alike: at most "
        f"{100 * abs(worst.difference):.1f} % apart ({worst.kernel}, n = {worst.n})."
    ]
