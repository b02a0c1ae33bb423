"""Batches of kernels: what to measure, and measuring it here or in a fresh process.

Memory addresses, the CUDA context and the order in which libraries were loaded stay the same within
a process. A second measurement in the same process would confirm their influence, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.bench.cases import chosen_anew
from cudareduce.bench.command import floors_of, remarks_of
from cudareduce.bench.records import Beside, Recorder
from cudareduce.bench.runner import Part, measured
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.bench.stream.trial import streamed
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.gate.request import BaseRequest, Problems, Remeasuring
from cudareduce.library.header import SOURCES
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry, asked_for
from cudareduce.machine.device import DeviceInfo
from cudareduce.peers.names import meant
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.progress import phase
from cudareduce.results.record import Record, Run
from cudareduce.workers import Exited, Parent, Raised, Returned, Worker

#: The published name given to a kernel of the base, to tell it from its successor of the same id.
BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Cases measured in the same rounds, and then together with the libraries `peers`, with `odd`
    from unaligned starts too. `streaming`: the array comes from the host or a file."""

    settings: Settings
    choices: tuple[Choice, ...]
    peers: tuple[str, ...] = ()
    odd: bool = False
    streaming: Streaming | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a measurement ended early, and its exit code."""

    why: str
    exit_code: int


#: Ctrl-C, kill, or a closed terminal.
INTERRUPTED = Cut("interrupted", 130)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasured:
    """The records of a measurement of batches: `old` of the kernels of the base, `new` of the
    others. `cut` if it ended early."""

    old: tuple[Record, ...]
    new: tuple[Record, ...]
    floors_us: Mapping[str, float]
    remarks: tuple[str, ...]
    stories: tuple[Mapping[str, Any], ...]
    cut: Cut | None = None

    def as_run(self, now: Run, rounds: int) -> Run:
        """The new records as a run that can become a baseline."""
        protocol = {
            **now.protocol,
            "rounds": rounds,
            "floors_us": dict(self.floors_us),
            "measured": list(self.stories),
            "remarks": list(self.remarks),
            "max_time_s": None,
        }
        return replace(now, protocol=protocol, records=self.new)


class Bencher:
    """Measures batches on an open backend, as `bench` does."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, registry: Registry, phase: Phase
    ) -> None:
        self._backend, self._spec = backend, spec
        self._registry, self._phase = registry, phase

    def info(self) -> DeviceInfo:
        """The device as in a result file."""
        return self._backend.info()

    def measure(self, batches: Iterable[Batch]) -> Remeasured:
        """Verify and time every batch. Ctrl-C and a failing GPU end it with the records so far."""
        done: list[_Done] = []
        cut = None
        for batch in batches:
            try:
                done.append(self._measured(batch))
                cut = INTERRUPTED if done[-1].interrupted else None
            except KeyboardInterrupt:
                cut = INTERRUPTED
            except (EnvironmentProblem, KernelFault) as error:
                cut = Cut(str(error), error.exit_code)
            if cut:
                break
        records = [record for one in done for record in one.records]
        parts = [part for one in done for part in one.parts]
        beside = [one.beside for one in done]
        groups = [group for part in parts for group in part.groups]
        whole = [part for part in parts if not part.interrupted]  # which the cut says of others
        remarks = [*remarks_of(whole), *(remark for one in beside for remark in one.remarks)]
        stories = [story for group in groups for story in group.stories]
        return Remeasured(
            old=tuple(replace(r, name=None) for r in records if r.name == BASE),
            new=tuple(r for r in records if r.name != BASE),
            floors_us={name: us for one in done for name, us in one.floors_us.items()},
            remarks=tuple(dict.fromkeys(remarks)),
            stories=(*stories, *(story for one in beside for story in one.stories)),
            cut=cut,
        )

    def _measured(self, batch: Batch) -> _Done:
        settings = batch.settings
        session = Session(self._backend, self._spec, settings, self._phase)
        peak = settings.peak_gb_s or self._backend.info().peak_gb_s
        recorder = Recorder(self._backend.name, peak, settings, self._registry)
        try:
            if batch.streaming:
                return _streamed(session, batch.choices, batch.streaming)
            parts = measured(session, batch.choices)
            interrupted, beside = any(part.interrupted for part in parts), Beside()
            if not interrupted:
                beside = _beside(session, parts, recorder, batch)
        finally:
            session.close()
        records = (*recorder.all_records(parts), *beside.records)
        return _Done(
            parts, beside, records, floors_of(parts, settings), interrupted or beside.interrupted
        )


@dataclass(frozen=True, slots=True)
class _Done:
    """The records of one batch."""

    parts: Sequence[Part]
    beside: Beside
    records: tuple[Record, ...]
    floors_us: Mapping[str, float]
    interrupted: bool


def _streamed(session: Session, choices: Sequence[Choice], streaming: Streaming) -> _Done:
    """Measure kernels on an array in host memory or a file."""
    done = streamed(session, choices, streaming)
    beside = Beside(
        records=done.records, remarks=done.remarks, stories=done.stories,
        interrupted=done.interrupted,
    )  # fmt: skip
    return _Done((), beside, done.records, {}, done.interrupted)


def _beside(session: Session, parts: Sequence[Part], recorder: Recorder, batch: Batch) -> Beside:
    """Measure libraries together with the kernels of a batch."""
    if not batch.peers:
        return Beside()
    from cudareduce.bench import beside

    odd = chosen_anew(session, batch.choices) if batch.odd else None
    return beside.timed_beside(session, parts, recorder, batch.peers, odd=odd)


def measure_in_fresh_process(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Remeasured:
    """Measure batches in a fresh process, which opens the GPU itself. Raises the error of opening
    it, KeyboardInterrupt, and EnvironmentProblem if the process ends without a result."""
    measure = partial(_measured, spec, registry, quiet)
    worker = Worker(Parent.itself, fresh=True, shown=True)
    try:
        event = worker.call(measure, batches)
    finally:
        worker.end()
    match event:
        case Returned(found):
            assert isinstance(found, Remeasured)
            return found
        case Raised(error):
            raise error
        case _:
            assert isinstance(event, Exited)
            raise EnvironmentProblem(
                f"the process that measured again ended with code {event.code}: look at "
                "`cudareduce info`, then run check again"
            )


def _measured(
    spec: BackendSpec, registry: Registry, quiet: bool, parent: Parent, batches: Sequence[Batch]
) -> Remeasured:
    with open_backend(spec) as backend:
        return Bencher(backend, spec, registry, partial(phase, quiet=quiet)).measure(batches)


#: Default number of rounds.
DEFAULT_ROUNDS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """The records of a baseline to measure again, and the batches that do so."""

    old: tuple[Record, ...]
    batches: tuple[Batch, ...]
    rounds: int


def repeated(stored: Run, remeasuring: Remeasuring, registry: Registry) -> Repeated:
    """What to measure of a stored run: everything, or the named kernels, new ones on all of its
    problems. Raises UsageError for times that are not cold, or an unknown operator or type."""
    # Records timed together with libraries are compared with each other.
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
    """Whether a record is of one of these libraries, or of a kernel timed alongside libraries."""
    if record.scope == "library":
        return meant(record.kernel, peers)
    return bool(peers) and record.context is not None


def _baseline_choices(run: Run, names: Sequence[str], registry: Registry) -> list[Choice]:
    """The kernels to measure: the named ones, else those named for the run of the baseline, so that
    kernels added since are NEW. A name that no longer exists is left out, and its rows are GONE."""
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
    """Whether a name matches a kernel of the baseline."""
    return any(fnmatchcase(record.kernel, name) for record in run.records)


def _still_there(name: str, registry: Registry) -> bool:
    if name.endswith(SOURCES):
        return Path(name).exists()
    try:
        registry.choose([name], auto=True)
    except UsageError:
        return False
    return True


def _requested_shape(record: Record, protocol: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and elements as requested: a warp kernel splits one array into rows of its own."""
    if record.scope == "warp" and protocol.get("rows") == 1:
        return 1, record.n * record.rows
    return record.rows, record.n


def _baseline_batches(
    run: Run, choices: Sequence[Choice], rounds: int, remeasuring: Remeasuring
) -> list[Batch]:
    """One batch per group of problems of the baseline, with the settings of its run."""
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
        rows, _ = _requested_shape(record, protocol)
        key = rows, record.region, record.pattern, record.source
        groups.setdefault(key, []).append(record)
    batches = []
    for (rows, region, pattern, source), records in groups.items():
        settings = Settings(
            reductions=tuple(dict.fromkeys(_reduction(r, maps) for r in records)),
            sizes=tuple(dict.fromkeys(_requested_shape(r, protocol)[1] for r in records)),
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
    """The source of streamed records; None if they are not streamed. Raises UsageError if the file
    has another size."""
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
    """The reduction of a record. A transform is C++ from a file, so it is used only if the command
    line or a kernel has the same."""
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
    """The kernels of this tree to compare: the named ones, else all below the folders `heads`."""
    choices = registry.choose(names)
    if names:
        return choices
    whole = [head.resolve() for head in heads]
    return [c for c in choices if any(c.kernel.path.resolve().is_relative_to(h) for h in whole)]


def base_batches(
    choices: Sequence[Choice], base: Mapping[str, Kernel], request: BaseRequest
) -> list[Batch]:
    """One batch with each kernel next to its counterpart in the base."""
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
    """One batch of these kernels on the problems of the command line."""
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
    """The batches of these records only, with so many times the rounds."""
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


#: Measures batches, in this process or in a fresh one.
MeasureBatches = Callable[[Sequence[Batch]], Remeasured]


@dataclass(frozen=True, slots=True)
class FreshProcess:
    """Measures batches in a fresh process each time."""

    remeasuring: Remeasuring
    registry: Registry

    def measure(self, batches: Sequence[Batch]) -> Remeasured:
        """Raises what `measure_in_fresh_process` does."""
        spec, _ = choose_backend("cuda", self.remeasuring.device, not self.remeasuring.no_cache)
        return measure_in_fresh_process(spec, self.registry, batches, self.remeasuring.quiet)


@dataclass(frozen=True, slots=True)
class BatchMeasurement:
    """Measures batches, or the suspects among them, until the deadline; `base` are kernels to
    measure in the same rounds as those of the same id."""

    batches: Sequence[Batch]
    measure_batches: MeasureBatches
    deadline: Deadline
    base: Mapping[str, Kernel] = field(default_factory=dict)

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Remeasured:
        """All batches (None) or the cases of these records, with so many times the rounds."""
        batches = self.batches
        if suspects is not None:
            batches = only_suspects(batches, suspects, times)
        return self.measure_batches(
            [_with_base(_with_deadline(batch, self.deadline), self.base) for batch in batches]
        )


def _with_deadline(batch: Batch, deadline: Deadline) -> Batch:
    return replace(batch, settings=replace(batch.settings, deadline=deadline))


def _with_base(batch: Batch, base: Mapping[str, Kernel]) -> Batch:
    """The batch with each kernel next to its counterpart in the base."""
    if not any(choice.kernel.id in base for choice in batch.choices):
        return batch
    pairs = (
        (head, replace(head, kernel=base[head.kernel.id], suite=None, name=BASE))
        if head.kernel.id in base else (head,)
        for head in batch.choices
    )  # fmt: skip
    # a kernel of the base may have an ancestor that is not known here
    settings = replace(batch.settings, baseline_kernel=batch.choices[0].kernel.id)
    return replace(batch, settings=settings, choices=tuple(chain.from_iterable(pairs)))
