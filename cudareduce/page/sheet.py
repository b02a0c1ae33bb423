"""One result file as the page shows it: device, protocol, tables, pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudareduce.escapes import shown
from cudareduce.machine.device import DeviceInfo
from cudareduce.plot.figure import Figure
from cudareduce.plot.kinds import all_figures
from cudareduce.report.columns import COLUMNS, answer_text, label
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.results.record import Record, Run

#: A cell: its text, and what it is sorted by where that is not the text.
Cell = tuple[str, float | None]


@dataclass(frozen=True, slots=True)
class Sheet:
    """What the page says of one run; `rows` are those of its table, in its order, whose columns
    from `numbers` on hold numbers, but for the last; `published` are the kernels behind a
    publication's names, and `changed` those whose text is another now than when
    they were timed."""

    name: str
    device: tuple[tuple[str, str], ...]
    protocol: str
    remarks: tuple[str, ...]
    header: tuple[str, ...]
    numbers: int
    rows: tuple[tuple[Cell, ...], ...]
    published: Mapping[str, str]
    pictures: Mapping[str, Sequence[Figure]]
    counts: str
    changed: tuple[str, ...]


def sheet(run: Run, name: str, texts_now: Mapping[str, str]) -> Sheet:
    """The sheet of a run, under its file's name; `texts_now` are the hashes of kernels' texts."""
    texts = ("kernel", "what", "verdict")
    figures = _figures(run)
    header = (*texts, "n", *(COLUMNS[name].heading for name in figures), "why")
    return Sheet(
        name, tuple(_device(run.device)), _protocol(run), _remarks(run), header, len(texts),
        tuple(_row(r, figures) for r in run.records),
        {shown(r.name): r.kernel for r in run.records if r.name},
        all_figures(run), _counts(run.records), _changed(run, texts_now),
    )  # fmt: skip


def _figures(run: Run) -> Mapping[str, str]:
    """Columns of numbers, each with the field that it is sorted by."""
    both = {"time": "time_us", "rate": "gb_s"}
    if run.records and all(r.ranks and not r.source for r in run.records):
        both |= {"skew": "skew_us", "loop": "loop_us"}
        if not all(r.collective for r in run.records):
            return both | {"host": "host_us"}
        return both | {"busbw": "busbw_gb_s", "link": "pct_link"}
    return both | {"peak": "pct_peak", "ceiling": "pct_ceiling", "speedup": "speedup",
                   "previous": "speedup_prev"}  # fmt: skip


def _row(r: Record, figures: Mapping[str, str]) -> tuple[Cell, ...]:
    """The cells of a record; a value that is not known sorts last."""
    what = f"{r.reduced} of {r.dtype}" + (f" in {r.acc}" if r.acc != r.dtype else "")
    what += "" if r.timing == "cold" else f", {r.timing}"
    what += f", {r.ranks} ranks" if r.ranks is not None else ""
    what += f", {r.sms} SMs" if r.sms is not None else ""
    what += ", beside libraries" if r.context else ""
    what += ", first pass" if r.region == "first-pass" else ""
    if r.aligned_n is not None:
        what += ", one off" if r.offset else ", one more"
    size = short_size(r.n) if r.rows == 1 else f"{short_size(r.n)} x {short_size(r.rows)} rows"
    verdict = {"skip": "skipped"}.get(r.verdict) or answer_text(r)
    why = "; ".join(filter(None, (r.reason, *(f"if {c}" for c in r.conditions))))
    return (
        (shown(label(r)), None), (shown(what), None), (verdict, None),
        (size, float(min(r.n * r.rows, 2**62))),
        *((COLUMNS[name].cell(r), getattr(r, field)) for name, field in figures.items()),
        (shown(why), None),
    )  # fmt: skip


def _device(device: DeviceInfo) -> Iterator[tuple[str, str]]:
    """What is known of a device, in words and units."""
    yield "device", shown(device.name)
    facts = {
        "compute capability": device.cc,
        "SMs": device.sm_count,
        "L2": f"{device.l2_bytes / 2**20:g} MiB" if device.l2_bytes else None,
        "memory": f"{device.memory_bytes / 2**30:.0f} GiB" if device.memory_bytes else None,
        "theory": f"{plain_text(device.peak_gb_s, 4)} GB/s" if device.peak_gb_s else None,
        "power limit": f"{device.power_limit_w:g} W" if device.power_limit_w else None,
        "driver": device.driver,
        "CUDA": device.cuda,
        "nvcc": device.nvcc,
        "processor": device.cpu,
    }
    yield from ((name, shown(str(value))) for name, value in facts.items() if value is not None)


def _protocol(run: Run) -> str:
    """How it was measured, in two sentences."""
    if all(r.time_us is None for r in run.records):
        return (
            "Every answer was checked against NumPy. Nothing was timed: only a GPU has times, and "
            "this run has none."
        )
    rounds, flush = run.protocol.get("rounds"), run.protocol.get("flush_bytes_read")
    timing = shown(str(run.protocol.get("timing") or "cold"))
    read = flush / 2**20 if flush and _is(flush) else None
    cold = f", after {read:.0f} MiB were read to displace the cache" if read else ""
    taken = f" in {rounds} independent rounds" if _is(rounds) else ""
    floor = (run.protocol.get("floors_us") or {}).get("floor: an empty kernel")
    least = f"; an empty kernel takes {floor:.2f} us, which is not subtracted" if floor else ""
    return (
        f"Answers were checked against NumPy before and after timing; then all were timed {timing} "
        f"by CUDA events, in turn{taken}{cold}. A time is the median of the rounds' medians with "
        f"half of its 95 % interval, from input in device memory to the answer in device memory"
        f"{least}."
    )


def _is(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _remarks(run: Run) -> tuple[str, ...]:
    return tuple(map(shown, run.protocol.get("remarks") or ()))


def _counts(records: Sequence[Record]) -> str:
    """How many of each verdict, in words."""
    words = {"pass": "right", "fail": "WRONG", "skip": "skipped"}
    counts = {word: sum(r.verdict == v for r in records) for v, word in words.items()}
    timed = sum(r.time_us is not None for r in records)
    told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(records)} records: {told}; {timed or 'none'} timed" if records else "no records"


def _changed(run: Run, texts_now: Mapping[str, str]) -> tuple[str, ...]:
    others = (
        r.kernel for r in run.records
        if r.source_sha and texts_now.get(r.kernel, r.source_sha) != r.source_sha
    )  # fmt: skip
    return tuple(dict.fromkeys(others))
