"""Records of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from cudareduce.backend import BackendName
from cudareduce.collectives.names import Collective
from cudareduce.intervals import interval, known, noise_pct
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record

#: A sample is discarded if its ranks are further apart than this in us, and than this share of its
#: time. On two H100 ranks are 0.2 to 1 us apart, 15 of 570 with NCCL; a rank that is 20 us late
#: after the common start shows as 21.
_SKEW_US, _SKEW = 4.0, 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """The samples of one engine in one round, in us: times of the slowest rank, skews (how far
    apart the ranks' times are), the time of one call of several back to back, and the host's time
    per call. `wrong` is why a result was wrong."""

    times_us: tuple[float, ...]
    skews_us: tuple[float, ...]
    loop_us: float
    host_us: float
    wrong: str | None

    @property
    def sound_us(self) -> list[float]:
        """The times of samples whose ranks started and ended together."""
        pairs = zip(self.times_us, self.skews_us, strict=True)
        return [us for us, skew in pairs if skew <= max(_SKEW_US, _SKEW * us)]

    @property
    def median_us(self) -> float | None:
        """Their median; None if ranks were apart in all samples."""
        return median(self.sound_us) if self.sound_us else None


@dataclass(frozen=True, slots=True)
class LinkRates:
    """GB/s of each GPU's link in one direction, both directions busy, in the rounds of the largest
    size; None if that was too small."""

    read_gb_s: float | None = None
    write_gb_s: float | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """The note below a table."""
        if self.write_gb_s is None or self.read_gb_s is None:
            return ()
        return (
            f"%link: of {self.write_gb_s:.0f} GB/s, which writes reached both ways at once in the "
            f"same rounds; reads {self.read_gb_s:.0f}",
        )


def engine_record(
    collective: Collective, reduction: Reduction, ranks: int, backend: BackendName, engine: str,
    n: int, **fields: Any,
) -> Record:  # fmt: skip
    """The record of an engine that is right, unless `fields` say otherwise."""
    plain = Record(
        kernel=collective, op=reduction.op.name, dtype=reduction.dtype.name,
        acc=reduction.acc.name, n=n, rows=1, block=None, items=None, grid=None, passes=None,
        backend=backend, scope="device" if engine.startswith("peer:") else "library",
        timing="warm", region="total", pattern="exact", verdict="pass", reason="", ranks=ranks,
        engine=engine,
    )  # fmt: skip
    return replace(plain, **fields)


def with_times(plain: Record, batches: Sequence[Batch], nbytes: int) -> Record:
    """The record with the times of calls on `nbytes`; without, if a result was wrong or ranks were
    apart in all samples."""
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
        bytes=nbytes, gb_s=nbytes / us / 1e3, gb_s_low=high and nbytes / high / 1e3,
        gb_s_high=low and nbytes / low / 1e3,
        skew_us=median(skew for batch in batches for skew in batch.skews_us),
        loop_us=median(batch.loop_us for batch in batches),
    )  # fmt: skip


def with_bandwidth(record: Record, links: LinkRates) -> Record:
    """The timed record of a collective with its bandwidth in the terms of nccl-tests, and its share
    of the links' bandwidth."""
    if record.gb_s is None or record.ranks is None:
        return record
    # busbw over algbw among n ranks: nccl-tests, doc/PERFORMANCE.md
    share = (record.ranks - 1) / record.ranks
    wire = {"all-reduce": 2 * share, "reduce-scatter": share, "reduce": 1.0}[record.kernel]
    busbw = record.gb_s * wire
    return replace(
        record, algbw_gb_s=record.gb_s, busbw_gb_s=busbw,
        pct_link=links.write_gb_s and 100 * busbw / links.write_gb_s,
    )  # fmt: skip
