"""Measuring again what a baseline holds, or two trees of kernels in the same rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.errors import UsageError
from cudareduce.gate.bencher import BASE, Batch
from cudareduce.gate.request import BaseRequest, Problems, Remeasuring
from cudareduce.library.header import SOURCES
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry, asked_for
from cudareduce.peers.names import meant
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.results.record import Record, Run

#: Rounds where neither the command nor a baseline says.
DEFAULT_ROUNDS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """What of a baseline is measured again: its records, and the batches that give them anew."""

    old: tuple[Record, ...]
    batches: tuple[Batch, ...]
    rounds: int


def repeated(stored: Run, remeasuring: Remeasuring, registry: Registry) -> Repeated:
    """What to measure of a stored run: all of it, or what the kernels named now mean; those that it
    does not hold are measured on all of its problems. A UsageError if it holds times that are not
    cold, or an operator or type that is not known here."""
    # What was timed beside libraries is compared with what is.
    plain = tuple(r for r in stored.records if r.context is None and r.scope != "library")
    beside = tuple(r for r in stored.records if _is_beside(r, remeasuring.peers))
    stored = replace(stored, records=plain)
    choices = _baseline_choices(stored, remeasuring.kernels, registry)

    def asked(record: Record) -> bool:
        return record.way == "copy" or asked_for(record.kernel, remeasuring.kernels, choices)

    old = tuple(filter(asked, plain))
    rounds = remeasuring.rounds or int(stored.protocol.get("rounds") or DEFAULT_ROUNDS)
    problems = replace(stored, records=old or plain)
    batches = _baseline_batches(problems, choices, rounds, remeasuring)
    if remeasuring.peers:
        odd = any(record.aligned_n is not None for record in beside)
        batches = [replace(batch, peers=remeasuring.peers, odd=odd) for batch in batches]
    old += tuple(r for r in beside if r.scope == "library" or asked(r))
    return Repeated(old=old, batches=tuple(batches if choices else ()), rounds=rounds)


def _is_beside(record: Record, peers: Sequence[str]) -> bool:
    """Whether it is one of these libraries, or a kernel that was timed beside libraries."""
    if record.scope == "library":
        return meant(record.kernel, peers)
    return bool(peers) and record.context is not None


def _baseline_choices(run: Run, names: Sequence[str], registry: Registry) -> list[Choice]:
    """The kernels to measure again: those named now, else those that the baseline's run named, so
    that kernels added since come in as new; a name that is there no more is left out, as gone."""
    if names:
        gone = [n for n in names if not _still_there(n, registry) and _in_baseline(run, n)]
        left = [n for n in names if n not in gone]
        return registry.choose(left, auto=True) if left else []
    names_then = run.protocol.get("kernels")
    if not isinstance(names_then, list | tuple):  # a file from before this was written down
        shapes = dict.fromkeys((r.kernel, r.block, r.items) for r in run.records)
        return [
            Choice(registry.kernels[kernel], None, None, block, items)
            for kernel, block, items in shapes
            if kernel in registry.kernels
        ]
    left = [name for name in names_then if _still_there(name, registry)]
    return registry.choose(left, auto=True) if left else []


def _in_baseline(run: Run, name: str) -> bool:
    """Whether a name means a kernel of the baseline."""
    return any(fnmatchcase(record.kernel, name) for record in run.records)


def _still_there(name: str, registry: Registry) -> bool:
    if name.endswith(SOURCES):
        return Path(name).exists()
    try:
        registry.choose([name], auto=True)
    except UsageError:
        return False
    return True


def _shape_asked_for(record: Record, protocol: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and elements as asked for: a warp kernel takes one array as rows of its own."""
    if record.scope == "warp" and protocol.get("rows") == 1:
        return 1, record.n * record.rows
    return record.rows, record.n


def _baseline_batches(
    run: Run, choices: Sequence[Choice], rounds: int, remeasuring: Remeasuring
) -> list[Batch]:
    """The baseline's problems, with what was asked of every kernel then."""
    for record in run.records:
        if record.timing != "cold":
            raise UsageError(
                f"the baseline holds {record.timing} times; check measures cold ones: bench without"
                " --timing"
            )
    asked, own = remeasuring.mapped, [choice.kernel.map for choice in choices]
    maps = {mapped.expression: mapped for mapped in (asked, *own) if mapped}
    protocol = run.protocol
    groups: dict[tuple[int, str, str, str | None], list[Record]] = {}
    for record in run.records:
        rows, _ = _shape_asked_for(record, protocol)
        key = rows, record.region, record.pattern, record.source
        groups.setdefault(key, []).append(record)
    batches = []
    for (rows, region, pattern, source), records in groups.items():
        settings = Settings(
            reductions=tuple(dict.fromkeys(_reduction(r, maps) for r in records)),
            sizes=tuple(dict.fromkeys(_shape_asked_for(r, protocol)[1] for r in records)),
            rows=rows,
            block=protocol.get("block"),
            items=protocol.get("items"),
            sms=tuple(dict.fromkeys(r.sms for r in records)),
            pattern=pattern,
            region=region,
            seed=int(protocol.get("seed") or 0),
            rounds=rounds,
            time_limit_s=remeasuring.time_limit,
        )
        streaming = _streaming(source, records, protocol)
        batches.append(Batch(settings, tuple(choices), streaming=streaming))
    return batches


def _streaming(
    source: str | None, records: Sequence[Record], protocol: Mapping[str, Any]
) -> Streaming | None:
    """What records are streams of; None if of nothing. A file that is not what it was is a
    UsageError."""
    if source is None:
        return None
    chunks = {r.chunk_bytes: None for r in records if r.way == "pinned" and r.chunk_bytes}
    found = streaming(str(protocol.get("from")) if source == "file" else source, tuple(chunks))
    if found.file and {found.file.n} != {r.n for r in records}:
        raise UsageError(
            f"{found.file.path} has {found.file.n} elements, and the baseline's had "
            f"{records[0].n}: bench again"
        )
    return found


def _reduction(record: Record, maps: Mapping[str, Map]) -> Reduction:
    """What a record is of; a map is repeated where the command line or a kernel says it, too, since
    it is C++, and whoever wrote the file need not be trusted."""
    if record.op not in OPERATORS:
        raise UsageError(
            f"the baseline holds {record.op!r}, which is no operator of this tool's: check cannot "
            "repeat --op-expr, so bench again and compare the two files"
        )
    if not {record.dtype, record.acc} <= set(DTYPES):
        raise UsageError(
            f"the baseline holds a {record.op} of {record.dtype} in {record.acc}, which this "
            "version does not know: bench again"
        )
    if record.map and record.map not in maps:
        raise UsageError(
            f"the baseline holds a {record.reduced}: say --map {record.map!r} to measure it again"
        )
    mapped = maps[record.map] if record.map else None
    natural = reduction_of(record.op, record.dtype, None, mapped)
    if natural.acc.name == record.acc:
        return natural
    return reduction_of(record.op, record.dtype, record.acc, mapped)


def base_choices(names: Sequence[str], heads: Sequence[Path], registry: Registry) -> list[Choice]:
    """The kernels of this tree to compare: those named, else all below the folders `heads`, since a
    folder of one's own is compared, and not all kernels besides."""
    choices = registry.choose(names)
    if names:
        return choices
    whole = [head.resolve() for head in heads]
    return [c for c in choices if any(c.kernel.path.resolve().is_relative_to(h) for h in whole)]


def base_batches(
    choices: Sequence[Choice], base: Mapping[str, Kernel], request: BaseRequest
) -> list[Batch]:
    """Each kernel next to its counterpart of the base, so that a round meets both at once."""
    heads = [replace(choice, suite=None, name=None) for choice in choices]
    known = {choice.kernel.id for choice in heads}
    entries: list[Choice] = []
    for head in heads:
        entries.append(head)
        if head.kernel.id in base:
            entries.append(replace(head, kernel=base[head.kernel.id], name=BASE))
    entries += [
        Choice(k, name=BASE)
        for k in base.values()
        if k.id not in known and asked_for(k.id, request.remeasuring.kernels, ())
    ]
    batch = head_batch(entries, request.problems, request.remeasuring)
    # a kernel of the base may have an ancestor that the head's registry does not know
    return [replace(batch, settings=replace(
        batch.settings, baseline_kernel=entries[0].kernel.id
    ))]  # fmt: skip


def head_batch(choices: Sequence[Choice], problems: Problems, remeasuring: Remeasuring) -> Batch:
    """These kernels on problems that the command line names."""
    settings = Settings(
        reductions=tuple(
            reduction_of(op, t, None, remeasuring.mapped)
            for op, t in product(problems.op, problems.dtype)
        ),
        sizes=problems.n,
        rows=problems.rows,
        seed=0,
        rounds=remeasuring.rounds or DEFAULT_ROUNDS,
        time_limit_s=remeasuring.time_limit,
    )
    return Batch(settings, tuple(choices))


def only_suspects(
    batches: Iterable[Batch], suspects: Sequence[Record], times: int = 2
) -> list[Batch]:
    """The same cases again, but only the suspects', with so many times the rounds."""
    again = []
    for batch in batches:
        settings = batch.settings
        for reduction, n in product(settings.reductions, settings.sizes):
            mine = [
                r for r in suspects
                if (r.region, r.pattern) == (settings.region, settings.pattern)
                and (r.op, r.map, r.dtype, r.acc) == (
                    reduction.op.name, reduction.map.expression if reduction.map else None,
                    reduction.dtype.name, reduction.acc.name,
                )
            ]  # fmt: skip
            wanted = {(r.kernel, r.n, r.rows) for r in mine if not r.context}
            copies = any(r.way == "copy" and r.n == n for r in mine)  # beside whatever follows them
            kept = tuple(
                choice
                for choice in batch.choices
                if copies or (choice.kernel.id, *choice.kernel.shape(n, settings.rows)) in wanted
            )
            beside = [r for r in mine if r.context and (r.aligned_n or r.n) == n]
            if kept or beside:
                longer = replace(
                    settings, reductions=(reduction,), sizes=(n,), rounds=times * settings.rounds
                )
                again.append(replace(
                    batch, settings=longer, choices=batch.choices if beside else kept,
                    peers=batch.peers if beside else (),
                    odd=any(r.aligned_n is not None for r in beside),
                ))  # fmt: skip
    return again
