"""Measuring again what a baseline holds, or two trees of kernels in the same rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

from cudareduce.backend import Backend, DeviceInfo
from cudareduce.backends import BackendSpec
from cudareduce.bench.records import Join
from cudareduce.bench.runner import Bench
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.errors import UsageError
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, Reduction, reduction
from cudareduce.results.record import Record, Run

#: The name under which a kernel of the base runs beside its successor of the same id; no author
#: has published one of this name.
_BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases measured against each other."""

    settings: Settings
    choices: tuple[Choice, ...]


@dataclass(slots=True)
class Measured:
    """What batches gave: records of either side, in the order of the choices. `build_failed` is of
    the new side: a change that mends a kernel must be able to pass."""

    old: list[Record]
    new: list[Record]
    floors_us: dict[str, float]
    build_failed: bool = False
    remarks: dict[str, None] = field(default_factory=dict)  # each once, in order
    stories: list[Mapping[str, Any]] = field(default_factory=list)


class Bencher:
    """Runs batches on one opened backend, through the same path as `bench`."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, registry: Registry, phase: Phase
    ) -> None:
        self._backend, self._spec = backend, spec
        self._registry, self._phase = registry, phase

    def info(self) -> DeviceInfo:
        """What a result says of the machine."""
        return self._backend.info()

    def run(self, batches: Iterable[Batch]) -> Measured:
        """Verify and time every batch; Ctrl-C ends it all, since half a check decides nothing."""
        measured = Measured([], [], {})
        for batch in batches:
            session = Session(self._backend, self._spec, batch.settings, self._phase)
            peak = batch.settings.peak_gb_s or self._backend.info().peak_gb_s
            limits = self._backend.limits()
            join = Join(self._backend.name, limits, peak, batch.settings, self._registry)
            try:
                outcome = Bench(session, join).run(batch.choices)
            finally:
                session.close()
            if outcome.interrupted:
                raise KeyboardInterrupt
            measured.floors_us |= outcome.floors_us
            measured.build_failed |= any(case.name != _BASE for case in outcome.build_failed)
            measured.remarks |= dict.fromkeys(outcome.remarks)
            measured.stories += outcome.stories
            for record in outcome.records:
                if record.name == _BASE:
                    measured.old.append(replace(record, name=None))
                else:
                    measured.new.append(record)
        return measured


def baseline_choices(run: Run, names: Sequence[str], registry: Registry) -> list[Choice]:
    """The kernels to measure again: those named now, else those that the baseline's run named, so
    that kernels added since come in as new; a name that is there no more is left out, as gone."""
    if names:
        gone = [n for n in names if not _still_there(n, registry) and _in_baseline(run, n)]
        left = [n for n in names if n not in gone]
        return registry.choose(left) if left else []
    asked = run.protocol.get("kernels")
    if not isinstance(asked, list | tuple):  # a file from before this was written down
        shapes = dict.fromkeys((r.kernel, r.block, r.items) for r in run.records)
        return [
            Choice(registry.kernels[kernel], None, None, block, items)
            for kernel, block, items in shapes
            if kernel in registry.kernels
        ]
    chosen: dict[tuple[str, int | None, int | None], Choice] = {}
    for name in asked:
        if not _still_there(name, registry):
            continue
        for choice in registry.choose([name]):
            chosen.setdefault((choice.kernel.id, choice.block, choice.items), choice)
    return list(chosen.values())


def _in_baseline(run: Run, name: str) -> bool:
    """Whether a name means a kernel of the baseline."""
    return any(fnmatchcase(record.kernel, name) for record in run.records)


def asked_for(kernel: str, names: Sequence[str], choices: Iterable[Choice]) -> bool:
    """Whether names on the command line mean a kernel of the baseline, be it gone or not."""
    if not names or "all" in names or any(fnmatchcase(kernel, name) for name in names):
        return True
    return any(choice.kernel.id == kernel for choice in choices)


def _still_there(name: str, registry: Registry) -> bool:
    if name.endswith(".cu"):
        return Path(name).exists()
    try:
        registry.choose([name])
    except UsageError:
        return False
    return True


def _shape_asked_for(record: Record, protocol: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and elements as asked for: a warp kernel takes one array as rows of its own."""
    if record.scope == "warp" and protocol.get("rows") == 1:
        return 1, record.n * record.rows
    return record.rows, record.n


def baseline_batches(
    run: Run, choices: Sequence[Choice], rounds: int, time_limit_s: float | None
) -> list[Batch]:
    """The baseline's problems, with what was asked of every kernel then."""
    for record in run.records:
        if record.timing != "cold":
            raise UsageError(
                f"the baseline holds {record.timing} times; check measures cold ones: bench without"
                " --timing"
            )
    protocol = run.protocol
    groups: dict[tuple[int, str, str], list[Record]] = {}
    for record in run.records:
        rows, _ = _shape_asked_for(record, protocol)
        groups.setdefault((rows, record.region, record.pattern), []).append(record)
    batches = []
    for (rows, region, pattern), records in groups.items():
        settings = Settings(
            reductions=tuple(dict.fromkeys(_reduction(r) for r in records)),
            sizes=tuple(dict.fromkeys(_shape_asked_for(r, protocol)[1] for r in records)),
            rows=rows,
            block=protocol.get("block"),
            items=protocol.get("items"),
            pattern=pattern,
            region=region,
            seed=int(protocol.get("seed") or 0),
            rounds=rounds,
            time_limit_s=time_limit_s,
        )
        batches.append(Batch(settings, tuple(choices)))
    return batches


def _reduction(record: Record) -> Reduction:
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
    natural = reduction(record.op, record.dtype)
    if natural.acc.name == record.acc:
        return natural
    return reduction(record.op, record.dtype, record.acc)


def base_batches(
    choices: Sequence[Choice], base: Mapping[str, Kernel], options: Mapping[str, Any], rounds: int
) -> list[Batch]:
    """Each kernel next to its counterpart of the base, so that a round meets both at once."""
    heads = [replace(choice, suite=None, name=None) for choice in choices]
    known = {choice.kernel.id for choice in heads}
    entries: list[Choice] = []
    for head in heads:
        entries.append(head)
        if head.kernel.id in base:
            entries.append(replace(head, kernel=base[head.kernel.id], name=_BASE))
    entries += [
        Choice(k, name=_BASE)
        for k in base.values()
        if k.id not in known and asked_for(k.id, options["names"], ())
    ]
    pairs = product(options["op"], options["dtype"])
    settings = Settings(
        reductions=tuple(reduction(op, dtype) for op, dtype in pairs),
        sizes=tuple(options["n"]),
        rows=options["rows"],
        seed=0,
        rounds=rounds,
        # a kernel of the base may have an ancestor that the head's registry does not know
        baseline=entries[0].kernel.id,
        time_limit_s=options["time_limit"],
    )
    return [Batch(settings, tuple(entries))]


def only_suspects(batches: Iterable[Batch], suspects: Sequence[Record]) -> list[Batch]:
    """The same cases again, but only the suspects', with twice the rounds."""
    again = []
    for batch in batches:
        settings = batch.settings
        for what, n in product(settings.reductions, settings.sizes):
            wanted = {
                (r.kernel, r.n, r.rows)
                for r in suspects
                if (r.region, r.pattern) == (settings.region, settings.pattern)
                and (r.op, r.dtype, r.acc) == (what.op.name, what.dtype.name, what.acc.name)
            }
            kept = tuple(
                choice
                for choice in batch.choices
                if (choice.kernel.id, *choice.kernel.shape(n, settings.rows)) in wanted
            )
            if kept:
                longer = replace(
                    settings, reductions=(what,), sizes=(n,), rounds=2 * settings.rounds
                )
                again.append(Batch(longer, kept))
    return again
