"""The content of the page: runs with tables and charts, kernels by lineage, errata of suites."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import Registry, steps_of
from cudareduce.catalog.suite import Suite
from cudareduce.machine import DeviceInfo
from cudareduce.report.columns import COLUMNS, label, verdict_text
from cudareduce.report.numbers import plain_text, short_size
from cudareduce.report.plot.figure import Figure
from cudareduce.report.plot.kinds import all_figures
from cudareduce.results.record import Record, Run
from cudareduce.text import group_by, shown

#: The first columns of every table, which hold words, as does the last.
_WORDS = ("kernel", "what", "verdict")


@dataclass(frozen=True, slots=True)
class Row:
    """The table row of a record: its cells, its number of elements, and its kernel, for a link."""

    cells: tuple[str, ...]
    elements: int
    kernel: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """The content for one result file: device, protocol, table and charts. `filters` has the values
    of each column that can be filtered. `changed` lists the kernels whose source has changed since
    they were timed."""

    name: str
    device: tuple[tuple[str, str], ...]
    protocol: str
    remarks: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    filters: Mapping[str, Sequence[str]]
    figures: Mapping[str, Sequence[Figure]]
    counts: str
    changed: tuple[str, ...]

    @property
    def numbers(self) -> range:
        """The indices of the columns that hold numbers."""
        return range(len(_WORDS), len(self.header) - 1)


def sheet(run: Run, name: str, source_hashes: Mapping[str, str]) -> Sheet:
    """The content for a run; `name` is that of its file, `source_hashes` are those of the current
    kernels, by name."""
    columns = _number_columns(run)
    rows = tuple(_row(r, columns) for r in run.records)
    header = (*_WORDS, "n", *(COLUMNS[column].heading for column in columns), "why")
    changed = dict.fromkeys(
        r.kernel for r in run.records
        if r.source_sha and source_hashes.get(r.kernel, r.source_sha) != r.source_sha
    )  # fmt: skip
    return Sheet(
        name, tuple(_device_facts(run.device)), _protocol(run),
        tuple(map(shown, run.protocol.get("remarks") or ())), header, rows, _filters(header, rows),
        all_figures(run), _counts(run.records), tuple(changed),
    )  # fmt: skip


def _filters(header: Sequence[str], rows: Sequence[Row]) -> dict[str, list[str]]:
    found = {}
    for column in ("what", "n", "verdict"):
        k = header.index(column)
        ordered = sorted(rows, key=lambda row: row.elements) if column == "n" else rows
        values = list(dict.fromkeys(row.cells[k] for row in ordered))
        if len(values) > 1:
            found[column] = values
    return found


def _number_columns(run: Run) -> list[str]:
    if run.records and all(r.ranks and not r.source for r in run.records):
        collective = all(r.collective for r in run.records)
        return ["time", "rate", "skew", "loop", *(["busbw", "link"] if collective else ["host"])]
    return ["time", "rate", "peak", "ceiling", "speedup", "previous"]


def _row(r: Record, columns: Sequence[str]) -> Row:
    what = f"{r.reduced} of {r.dtype}" + (f" in {r.acc}" if r.acc != r.dtype else "")
    what += "" if r.timing == "cold" else f", {r.timing}"
    what += f", {r.ranks} ranks" if r.ranks is not None else ""
    what += f", {r.sms} SMs" if r.sms is not None else ""
    what += ", beside libraries" if r.context else ""
    what += ", first pass" if r.region == "first-pass" else ""
    if r.aligned_n is not None:
        what += ", one off" if r.offset else ", one more"
    size = short_size(r.n) if r.rows == 1 else f"{short_size(r.n)} x {short_size(r.rows)} rows"
    verdict = {"skip": "skipped"}.get(r.verdict) or verdict_text(r)
    why = "; ".join(filter(None, (r.reason, *(f"if {c}" for c in r.conditions))))
    numbers = (COLUMNS[name].cell(r) for name in columns)
    cells = (shown(label(r)), shown(what), verdict, size, *numbers, shown(why))
    return Row(cells, r.n * r.rows, r.kernel)


def _device_facts(device: DeviceInfo) -> Iterator[tuple[str, str]]:
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
    """The measurement protocol of a run, in two sentences."""
    if all(r.time_us is None for r in run.records):
        return (
            "Every result was checked against NumPy. Nothing was timed, because only a GPU gives "
            "times."
        )
    rounds, flush = run.protocol.get("rounds"), run.protocol.get("flush_bytes_read")
    timing = shown(str(run.protocol.get("timing") or "cold"))
    read = flush / 2**20 if flush and _is_positive(flush) else None
    cold = f", each after reading {read:.0f} MiB to flush the cache" if read else ""
    taken = f" in {rounds} independent rounds" if _is_positive(rounds) else ""
    floor = (run.protocol.get("floors_us") or {}).get("floor: an empty kernel")
    least = f"; an empty kernel takes {floor:.2f} us, which is not subtracted" if floor else ""
    return (
        f"Results were checked against NumPy before and after timing; kernels were timed {timing} "
        f"by CUDA events, in turn{taken}{cold}. A time is the median of the rounds' medians with "
        f"half of its 95 % interval, from input in device memory to the result in device memory"
        f"{least}."
    )


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and value > 0


def _counts(records: Sequence[Record]) -> str:
    words = {"pass": "right", "fail": "WRONG", "skip": "skipped"}
    counts = {word: sum(r.verdict == v for r in records) for v, word in words.items()}
    timed = sum(r.time_us is not None for r in records)
    listed = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    return f"{len(records)} records: {listed}; {timed or 'none'} timed"


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a lineage: a chain of kernels, each with one successor, and the branches that begin
    at the last."""

    chain: tuple[Kernel, ...]
    branches: tuple[Branch, ...]


def lineage(registry: Registry) -> tuple[Branch, ...]:
    """The lineages as trees, one for each kernel without a predecessor."""
    steps = steps_of(registry.kernels)
    return tuple(_branch(kernel, steps) for kernel in steps[None])


def _branch(kernel: Kernel, steps: Mapping[str | None, Sequence[Kernel]]) -> Branch:
    chain = [kernel]
    while len(following := steps.get(chain[-1].id, ())) == 1:
        chain.append(following[0])
    branches = tuple(_branch(step, steps) for step in following)
    return Branch(tuple(chain), branches)


def errata(suites: Iterable[Suite]) -> Iterator[tuple[Suite, tuple[str, ...]]]:
    """Each suite whose publication has errors, with their descriptions."""
    for suite in suites:
        rows = group_by((row for row in suite.rows if row.erratum), lambda row: row.erratum)
        named = (f"{', '.join(row.name for row in group)}: {text}" for text, group in rows.items())
        sentences = (*suite.experiment.get("errata", ()), *named)
        if sentences:
            yield suite, sentences
