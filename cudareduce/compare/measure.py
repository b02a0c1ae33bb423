"""Batches of kernels: what to measure, and measuring it here or in a fresh process.

Memory addresses, the CUDA context and the order in which libraries were loaded stay the same within
a process, so a second measurement in the same process would confirm their influence, too.
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
from cudareduce.bench.runner import measured
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.run import run_streams
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.budget import Deadline
from cudareduce.compare.request import BaseRequest, Problems, Remeasuring
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.names import meant
from cudareduce.library.header import SOURCES
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry, asked_for
from cudareduce.machine.device import DeviceInfo
from cudareduce.progress import phase
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.results.record import Record, Run
from cudareduce.workers import Exited, Parent, Raised, Returned, Worker

DEFAULT_ROUNDS = 9
#: The published name given to a kernel of the baseline tree, which has the candidate's id.
BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels to measure in the same rounds, and then together with the libraries `peers`; with
    `odd` also from unaligned addresses. `streaming`: the array comes from the host or a file."""

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
    """The records of a measurement: `old` of kernels of the baseline tree, `new` of the others.
    `cut` if it ended early."""

    old: tuple[Record, ...] = ()
    new: tuple[Record, ...] = ()
    floors_us: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    stories: tuple[Mapping[str, Any], ...] = ()
    cut: Cut | None = None

    def as_run(self, now: Run, rounds: int) -> Run:
        """The new records as a run that can become a baseline."""
        protocol = {
            **now.protocol, "rounds": rounds, "floors_us": dict(self.floors_us),
            "measured": list(self.stories), "remarks": list(self.remarks), "max_time_s": None,
        }  # fmt: skip
        return replace(now, protocol=protocol, records=self.new)


class Bencher:
    """Measures batches on an open backend, as `bench` does."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, registry: Registry, phase: Phase
    ) -> None:
        self._backend, self._spec = backend, spec
        self._registry, self._phase = registry, phase

    def info(self) -> DeviceInfo:
        return self._backend.info()

    def measure(self, batches: Iterable[Batch]) -> Remeasured:
        """Verify and time every batch. Ctrl-C and a failing GPU end it with the records so far."""
        done: list[Remeasured] = []
        cut = None
        for batch in batches:
            try:
                done.append(self._measured(batch))
                cut = done[-1].cut
            except KeyboardInterrupt:
                cut = INTERRUPTED
            except (EnvironmentProblem, KernelFault) as error:
                cut = Cut(str(error), error.exit_code)
            if cut:
                break
        records = [record for each in done for record in each.new]
        return Remeasured(
            old=tuple(replace(r, name=None) for r in records if r.name == BASE),
            new=tuple(r for r in records if r.name != BASE),
            floors_us={name: us for each in done for name, us in each.floors_us.items()},
            remarks=tuple(dict.fromkeys(remark for each in done for remark in each.remarks)),
            stories=tuple(story for each in done for story in each.stories),
            cut=cut,
        )

    def _measured(self, batch: Batch) -> Remeasured:
        """One batch; its records are all `new`."""
        settings = batch.settings
        session = Session(self._backend, self._spec, settings, self._phase)
        peak = settings.peak_gb_s or self._backend.info().peak_gb_s
        recorder = Recorder(self._backend.name, peak, settings, self._registry)
        try:
            if batch.streaming:
                done = run_streams(session, batch.choices, batch.streaming)
                return Remeasured(
                    new=tuple(done.records), remarks=tuple(done.remarks),
                    stories=tuple(done.stories), cut=INTERRUPTED if done.interrupted else None,
                )  # fmt: skip
            parts = measured(session, batch.choices)
            interrupted, with_libraries = any(part.interrupted for part in parts), Beside()
            if batch.peers and not interrupted:
                from cudareduce.bench.beside import timed_beside

                odd = chosen_anew(session, batch.choices) if batch.odd else None
                with_libraries = timed_beside(session, parts, recorder, batch.peers, odd=odd)
        finally:
            session.close()
        stories = [story for part in parts for group in part.groups for story in group.stories]
        whole = [part for part in parts if not part.interrupted]  # `cut` reports the others
        return Remeasured(
            new=(*recorder.all_records(parts), *with_libraries.records),
            floors_us=floors_of(parts, settings),
            remarks=(*remarks_of(whole), *with_libraries.remarks),
            stories=(*stories, *with_libraries.stories),
            cut=INTERRUPTED if interrupted or with_libraries.interrupted else None,
        )


def measure_in_fresh_process(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Remeasured:
    """Measure batches in a fresh process, which opens the GPU itself. Raises the error of opening
    it, KeyboardInterrupt, and EnvironmentProblem if the process ends without a result."""
    worker = Worker(Parent.itself, fresh=True, shown=True)
    try:
        event = worker.call(partial(_measure_here, spec, registry, quiet), batches)
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
                f"the process of the confirmation run ended with code {event.code}: look at "
                "`cudareduce info`, then run check again"
            )


def _measure_here(
    spec: BackendSpec, registry: Registry, quiet: bool, parent: Parent, batches: Sequence[Batch]
) -> Remeasured:
    with open_backend(spec) as backend:
        return Bencher(backend, spec, registry, partial(phase, quiet=quiet)).measure(batches)


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
    alone = tuple(r for r in stored.records if r.context is None and r.scope != "library")
    with_libraries = [
        r for r in stored.records
        if (meant(r.kernel, remeasuring.peers) if r.scope == "library"
            else remeasuring.peers and r.context is not None)
    ]  # fmt: skip
    stored = replace(stored, records=alone)
    choices = _baseline_choices(stored, remeasuring.kernels, registry)

    def selected(record: Record) -> bool:
        return record.way == "copy" or asked_for(record.kernel, remeasuring.kernels, choices)

    old = tuple(filter(selected, alone))
    rounds = remeasuring.rounds or int(stored.protocol.get("rounds") or DEFAULT_ROUNDS)
    batches = _baseline_batches(replace(stored, records=old or alone), choices, rounds, remeasuring)
    if remeasuring.peers:
        odd = any(record.aligned_n is not None for record in with_libraries)
        batches = [replace(batch, peers=remeasuring.peers, odd=odd) for batch in batches]
    old += tuple(r for r in with_libraries if r.scope == "library" or selected(r))
    return Repeated(old=old, batches=tuple(batches if choices else ()), rounds=rounds)


def _baseline_choices(run: Run, names: Sequence[str], registry: Registry) -> list[Choice]:
    """The kernels to measure: the named ones, else those named for the run of the baseline, so that
    kernels added since are NEW. A name that no longer exists is left out, and its rows are GONE."""
    if names:
        held = {record.kernel for record in run.records}
        names = [
            name for name in names
            if _still_there(name, registry) or not any(fnmatchcase(k, name) for k in held)
        ]  # fmt: skip
        return registry.choose(names, auto=True) if names else []
    names_then = run.protocol.get("kernels")
    if not isinstance(names_then, list | tuple):  # a file from before names were stored
        shapes = dict.fromkeys((r.kernel, r.block, r.items) for r in run.records)
        return [
            Choice(registry.kernels[kernel], None, None, block, items)
            for kernel, block, items in shapes
            if kernel in registry.kernels
        ]
    names = [name for name in names_then if _still_there(name, registry)]
    return registry.choose(names, auto=True) if names else []


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
                f"the baseline holds {record.timing} times, and check measures cold ones: bench "
                "without --timing"
            )
    own = [choice.kernel.map for choice in choices]
    maps = {each.expression: each for each in (remeasuring.mapped, *own) if each}
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
        source_of = _streaming(source, records, protocol)
        batches.append(Batch(settings, tuple(choices), streaming=source_of))
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


def base_batch(
    choices: Sequence[Choice], base: Mapping[str, Kernel], request: BaseRequest
) -> Batch:
    """The kernels of both trees, each next to its counterpart, and those that only one has."""
    known = {choice.kernel.id for choice in choices}
    only_base = [
        Choice(kernel, name=BASE) for kernel in base.values()
        if kernel.id not in known and asked_for(kernel.id, request.remeasuring.kernels, ())
    ]  # fmt: skip
    heads = [replace(choice, suite=None, name=None) for choice in choices]
    batch = head_batch([*heads, *only_base], request.problems, request.remeasuring)
    return _with_base(batch, base)


def head_batch(choices: Sequence[Choice], problems: Problems, remeasuring: Remeasuring) -> Batch:
    """These kernels on the problems of the command line."""
    settings = Settings(
        reductions=tuple(
            reduction_of(op, dtype, None, remeasuring.mapped)
            for op, dtype in product(problems.op, problems.dtype)
        ),
        sizes=problems.n,
        rows=problems.rows,
        seed=0,
        rounds=remeasuring.rounds or DEFAULT_ROUNDS,
        time_limit_s=remeasuring.time_limit,
    )
    return Batch(settings, tuple(choices))


def _with_base(batch: Batch, base: Mapping[str, Kernel]) -> Batch:
    """The batch with each kernel next to its counterpart in the baseline tree."""
    pairs = (
        (head, replace(head, kernel=base[head.kernel.id], suite=None, name=BASE))
        if head.kernel.id in base and head.name != BASE else (head,)
        for head in batch.choices
    )  # fmt: skip
    if not any(choice.kernel.id in base for choice in batch.choices):
        return batch
    # A kernel of the baseline may have an ancestor that this tree's registry does not know.
    settings = replace(batch.settings, baseline_kernel=batch.choices[0].kernel.id)
    return replace(batch, settings=settings, choices=tuple(chain.from_iterable(pairs)))


def only_suspects(batches: Iterable[Batch], suspects: Sequence[Record], times: int) -> list[Batch]:
    """The batches restricted to these records, with so many times the rounds."""
    again = []
    for batch in batches:
        settings = batch.settings
        for reduction, n in product(settings.reductions, settings.sizes):
            mapped = reduction.map.expression if reduction.map else None
            names = reduction.op.name, mapped, reduction.dtype.name, reduction.acc.name
            mine = [
                r for r in suspects
                if (r.region, r.pattern) == (settings.region, settings.pattern)
                and (r.op, r.map, r.dtype, r.acc) == names
            ]  # fmt: skip
            wanted = {(r.kernel, r.n, r.rows) for r in mine if not r.context}
            # Copies are measured alongside the kernels that follow them.
            copies = any(r.way == "copy" and r.n == n for r in mine)
            kept = tuple(
                choice
                for choice in batch.choices
                if copies or (choice.kernel.id, *choice.kernel.shape(n, settings.rows)) in wanted
            )
            with_libraries = [r for r in mine if r.context and (r.aligned_n or r.n) == n]
            if kept or with_libraries:
                longer = replace(
                    settings, reductions=(reduction,), sizes=(n,), rounds=times * settings.rounds
                )
                again.append(replace(
                    batch, settings=longer, choices=batch.choices if with_libraries else kept,
                    peers=batch.peers if with_libraries else (),
                    odd=any(r.aligned_n is not None for r in with_libraries),
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
        return self.measure_batches([
            _with_base(
                replace(batch, settings=replace(batch.settings, deadline=self.deadline)), self.base
            )
            for batch in batches
        ])  # fmt: skip
