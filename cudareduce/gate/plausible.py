"""Whether records can be what their run's protocol, device and sizes say: what cannot be is no
measurement, however well each figure fits the others of its record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cudareduce.machine.device import DeviceInfo
from cudareduce.problem.dtypes import DTYPES
from cudareduce.results.record import Record, Run

#: How far beyond what clock and bus width allow a cold read may seem to be: clocks are rounded, and
#: some of a short input is still in a cache.
_OVER_PEAK = 1.25
#: How much faster than memory a cache is, at most.
_CACHED = 30.0
#: An answer, or a partial that the host folds, has at most so many bytes.
_WIDEST = 16


def implausible(run: Run) -> Iterator[tuple[int, str]]:
    """Records by their numbers, counted from 1, and what of each cannot be."""
    timings = _words(run.protocol, "timing")
    region, graph = run.protocol.get("region"), run.protocol.get("graph")
    flushed = run.protocol.get("flush_bytes_read")
    for number, record in enumerate(run.records, 1):
        timing = record.timing.split()[0] if record.timing else ""
        if timings and timing not in timings:
            yield number, f"timing is {record.timing}, and the run's is {', '.join(timings)}"
        if isinstance(region, str) and record.region != region:
            yield number, f"region is {record.region}, and the run's is {region}"
        if graph is False and record.timing.endswith("graph"):
            yield number, f"timing is {record.timing}, and the run replayed no graph"
        if record.time_us is None:
            continue
        if timing == "cold" and flushed is not None and not _displaces(flushed, run.device):
            yield number, f"a cold time, and a flush of {flushed} bytes, which displaces no cache"
        yield from ((number, what) for what in _sizes(record))
        yield from ((number, what) for what in _speed(record, run.device, timing == "cold"))

    if graph and not any(record.timing.endswith("graph") for record in run.records):
        timing = run.records[0].timing
        yield 1, f"timing is {timing}, and the run replayed graphs, of which none is here"


def _words(protocol: Mapping[str, Any], name: str) -> list[str]:
    value = protocol.get(name)
    parts = value.split(",") if isinstance(value, str) else []
    return [words[0] for part in parts if (words := part.split())]


def _displaces(flushed: Any, device: DeviceInfo) -> bool:
    """Whether a read of so many bytes leaves nothing else in the cache."""
    return isinstance(flushed, int) and flushed >= max(1, device.l2_bytes or 1)


def _sizes(record: Record) -> Iterator[str]:
    """Bytes that its elements cannot be: each input is read once, two of them at most, and what is
    written is small beside them."""
    dtype = DTYPES.get(record.dtype)
    if dtype is None or record.bytes is None:
        return
    least = record.n * record.rows * dtype.size
    most = 2 * least + _WIDEST * (record.rows + (record.grid or 0))
    if not least <= record.bytes <= most:
        what = f"{record.n} elements" + (f" in {record.rows} rows" if record.rows != 1 else "")
        yield f"bytes is {record.bytes}, and {what} of {record.dtype} are {least}"


def _speed(record: Record, device: DeviceInfo, cold: bool) -> Iterator[str]:
    """What no memory of such devices can bring, one for each rank."""
    if not device.peak_gb_s:
        return
    peak = device.peak_gb_s * (record.ranks or 1)
    most = peak * (_OVER_PEAK if cold else _CACHED)
    for name, value in (("gb_s", record.gb_s), ("ceiling_gb_s", record.ceiling_gb_s)):
        if value and value > most:
            yield f"{name} is {value:.4g}, and its memory brings {peak:.4g} at most"
