"""What lies between GPUs: how they are connected, what each way carries, what fills it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cudareduce.problem.sizes import counted
from cudareduce.report.columns import COLUMNS, answer_text
from cudareduce.report.numbers import DASH, memory_text, plain_text
from cudareduce.report.section import Section
from cudareduce.results.record import LINKS, Record, Run

#: A link is full where this share of the most is reached.
FULL = 0.95
#: What the words of nvidia-smi topo mean.
_WAYS = {
    "NV": "NV and a number: so many NVLinks",
    "PSB": "PSB: one board",
    "PIX": "PIX: one PCIe switch",
    "PXB": "PXB: several PCIe switches",
    "PHB": "PHB: PCIe and the host's bridge",
    "NODE": "NODE: PCIe within one NUMA node",
    "SYS": "SYS: PCIe and what connects NUMA nodes",
}
_NO_LINK = "one rank: there is no link to measure"
_LEGEND = (
    "one_way: every second rank, with the next one; both: all ranks with the next one, at once; "
    "GB/s: one way of the slowest rank",
    "copy: by copy engines; read and write: by SMs",
    "from_host and to_host: memory that is kept in place, of all ranks at once",
)
_FLAGS = (
    "flag: us one way, half of there and back; ordered: released and acquired, as of a barrier; "
    "relaxed: as of packets"
)


def links_sections(run: Run) -> list[Section]:
    """What a run says of links, if it does: topology, rates, and rates by few blocks."""
    records = [r for r in run.records if is_link(r)]
    found = _topology(run.protocol.get("gpus") or ())
    if records:
        found.append(_rates(run, records))
        found += _by_blocks([r for r in records if r.gb_s])
    return found


def is_link(record: Record) -> bool:
    """Whether it is of what links carry, and of no collective."""
    return record.kernel == LINKS and record.ranks is not None


def _topology(gpus: Sequence[Mapping[str, Any]]) -> list[Section]:
    if not gpus:
        return []
    to = range(len(gpus) if len(gpus) > 1 else 0)
    header = ("rank", "GPU", "PCI address", "PCIe", *(f"to {k}" for k in to))
    rows = tuple(
        (str(k), gpu["name"], gpu["address"], gpu["pcie"] or DASH,
         *(_way_text(gpu["ways"][other], gpu["reaches"][other]) for other in to))
        for k, gpu in enumerate(gpus)
    )  # fmt: skip
    words = {word for gpu in gpus for word in gpu["ways"] if word}
    notes = [text for word, text in _WAYS.items() if any(w.startswith(word) for w in words)]
    if any(False in gpu["reaches"] for gpu in gpus):
        notes.append(
            "!: these cannot address each other's memory, so nothing is measured: see nvidia-smi "
            "topo -p2p r, or choose GPUs by CUDA_VISIBLE_DEVICES"
        )
    return [Section("how the ranks' GPUs are connected", header, rows, tuple(notes), texts=4)]


def _way_text(way: str | None, reaches: bool | None) -> str:
    return f"{way or DASH}{'!' if reaches is False else ''}"


def _rates(run: Run, records: Sequence[Record]) -> Section:
    """Each way by as many blocks as it takes, and what is wrong by however many."""
    first = records[0]
    title = f"links of {counted(first.ranks or 0, 'rank')}, {run.device.name}"
    notes = [f"{_called(r)}: WRONG: {r.reason}" for r in records if r.verdict == "fail"]
    notes += [f"{_called(r)}: {r.reason}" for r in records if r.verdict == "pass" and r.reason]
    records = [r for r in records if r.sms is None]
    if first.ranks == 1:
        notes.append(_NO_LINK)
    if all(r.time_us is None for r in records):
        answers = tuple((r.engine or "", answer_text(r)) for r in records)
        title += ": answers only, nothing is timed"
        return Section(title, ("way", "answer"), answers, tuple(notes), texts=2)
    columns = [COLUMNS[name] for name in ("rate", "time", "skew", "noise")]
    rows = tuple(
        (r.engine or "", memory_text(r.n), *(column.cell(r) for column in columns))
        for r in records
    )  # fmt: skip
    notes += _LEGEND if (first.ranks or 0) > 1 else _LEGEND[2:]
    if any((r.engine or "").startswith("flag") for r in records):
        notes.append(_FLAGS)
    notes += _few_rounds(records)
    header = ("way", "moved", *(column.heading for column in columns))
    return Section(title, header, rows, tuple(notes))


def _called(record: Record) -> str:
    few = f" by {counted(record.sms, 'block')}" if record.sms else ""
    return f"{record.engine}{few}"


def _few_rounds(records: Sequence[Record]) -> Iterator[str]:
    rounds = {len(r.medians_us) for r in records if r.time_us and r.time_us_low is None}
    if rounds:
        yield f"{counted(max(rounds), 'round')}: no interval; it takes at least 6"


def _by_blocks(records: Sequence[Record]) -> list[Section]:
    """Rates both ways by so many blocks, and how few fill a link."""
    kinds = dict.fromkeys(r.engine or "" for r in records if r.sms)
    rates = {(r.engine, r.sms): r for r in records}
    most = {kind: max(r.gb_s or 0 for r in records if r.engine == kind) for kind in kinds}
    counts = sorted({r.sms for r in records if r.sms})
    if not counts:
        return []
    rate = COLUMNS["rate"].cell
    rows = tuple(
        (str(blocks), *(rate(rates[kind, blocks]) if (kind, blocks) in rates else DASH
                        for kind in kinds))
        for blocks in counts
    )  # fmt: skip
    notes = []
    for kind in kinds:
        enough = [b for b in counts if (kind, b) in rates
                  and (rates[kind, b].gb_s or 0) >= FULL * most[kind]]  # fmt: skip
        who = counted(enough[0], "block") if enough else "more blocks than one an SM"
        notes.append(f"{kind}: {100 * FULL:.0f} % of {plain_text(most[kind])} GB/s by {who}")
    header = ("blocks", *(f"{kind} GB/s" for kind in kinds))
    return [Section("how many blocks fill a link", header, rows, tuple(notes), texts=0)]
