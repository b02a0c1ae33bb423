"""From findings and samples to records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from cudareduce import __version__
from cudareduce.backend import BackendName
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.several.collectives import Collective
from cudareduce.several.engines import Code
from cudareduce.several.examine import REPEATS, Finding
from cudareduce.several.libraries.engines import Skip
from cudareduce.several.measure import Links, Measured
from cudareduce.several.stopwatch import Batch

#: busbw over algbw among n ranks: what each link carries of the array, one way. Source: nccl-tests,
#: doc/PERFORMANCE.md.
_WIRE: dict[Collective, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: (n - 1) / n,
    "reduce": lambda n: 1.0,
}
_UNKNOWN = Code()


@dataclass(frozen=True, slots=True)
class Recorder:
    """What records of one collective and reduction have in common."""

    collective: Collective
    reduction: Reduction
    ranks: int
    backend: BackendName

    def verified(self, finding: Finding) -> Record:
        """A record of an engine that was not timed."""
        return Record(
            kernel=self.collective, op=self.reduction.op.name, dtype=self.reduction.dtype.name,
            acc=self.reduction.acc.name, n=finding.n, rows=1, block=None, items=None, grid=None,
            passes=None, backend=self.backend,
            scope="device" if finding.engine.startswith("peer:") else "library",
            timing="warm", region="total", pattern="exact",
            verdict="fail" if finding.wrong else "pass", reason=finding.wrong or "",
            distinct=finding.distinct, launches=None if finding.distinct is None else REPEATS,
            tried_launches=finding.calls, ranks=self.ranks, engine=finding.engine,
            version=finding.version,
        )  # fmt: skip

    def skipped(self, skip: Skip, n: int) -> Record:
        """A record of an engine that was not tried at a size."""
        finding = Finding(skip.engine, n, None, None, None, 0)
        return replace(
            self.verified(finding), verdict="skip", reason=skip.reason, cause=skip.cause,
            tried_launches=None,
        )  # fmt: skip

    def timed(
        self, finding: Finding, measured: Measured, links: Links, code: Code = _UNKNOWN
    ) -> Record:
        """A record of an engine at a size, with what was measured of that code; without, if that
        was wrong or its ranks were apart in every sample."""
        plain = replace(self.verified(finding), n=measured.n)
        if finding.wrong:
            return plain
        nbytes = measured.n * self.reduction.dtype.size
        record = taken(plain, measured.batches, nbytes)
        if record.gb_s is None:
            return record
        busbw = record.gb_s * _WIRE[self.collective](self.ranks)
        return replace(
            record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
            pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
            source_sha=code.source_sha, cubin_sha=code.cubin_sha,
        )  # fmt: skip

    def on_host(self, finding: Finding, n: int, host_us: float) -> Record:
        """A record of an engine that takes place on the host, by whose clock alone it is timed."""
        return replace(
            self.verified(finding), n=n, host_us=host_us, version=f"cudareduce {__version__}"
        )


def taken(plain: Record, batches: Sequence[Batch], nbytes: int) -> Record:
    """A record with what was measured of calls on so many bytes; without, if an answer was wrong or
    the ranks were apart in every sample."""
    wrong = next((batch.wrong for batch in batches if batch.wrong), None)
    if wrong:
        return replace(plain, verdict="fail", reason=wrong)
    rounds = tuple(batch.median_us for batch in batches)
    times = known(rounds)
    if not times:
        apart = "the ranks were apart in every sample: see what else runs on these GPUs"
        return replace(plain, reason=apart)
    us = median(times)
    low, high = interval(times) or (None, None)
    sound = [time for batch in batches for time in batch.sound_us]
    return replace(
        plain, time_us=us, time_us_low=low, time_us_high=high, time_us_min=min(sound),
        noise_pct=noise_pct(sound), samples=len(sound), rounds_us=rounds,
        discarded=sum(len(batch.times_us) - len(batch.sound_us) for batch in batches),
        host_us=median(batch.host_us for batch in batches),
        bytes=nbytes, gb_s=_gb_s(nbytes, us), gb_s_low=high and _gb_s(nbytes, high),
        gb_s_high=low and _gb_s(nbytes, low),
        skew_us=median(skew for batch in batches for skew in batch.skews_us),
        loop_us=median(batch.loop_us for batch in batches),
    )  # fmt: skip


def _gb_s(nbytes: int, us: float) -> float:
    return nbytes / us / 1e3


def notes_of(links: Links) -> tuple[str, ...]:
    """What is said of the links below a table."""
    if links.write_gb_s is None or links.read_gb_s is None:
        return ()
    return (
        f"%link: of {links.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
        f"same rounds; reads {links.read_gb_s:.0f}",
    )
