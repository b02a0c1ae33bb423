"""Measure kernels for `check`: select kernels, group them in batches, measure here or in a fresh
process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, Self

from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import BackendSpec, choose_backend, open_backend
from cudareduce.bench.cases import case_selector
from cudareduce.bench.command import floors_of, remarks_of
from cudareduce.bench.records import LibraryPass, Recorder
from cudareduce.bench.runner import measure_kernels
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.run import run_streams
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.budget import Deadline
from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import Choice, Registry, is_requested
from cudareduce.compare.request import DEFAULT_ROUNDS, CheckRequest
from cudareduce.compare.trees import external_files, stored_tree
from cudareduce.compare.verdicts import INTERRUPTED, Cut, Measured
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.names import is_selected
from cudareduce.progress import phase
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.results.record import Record, Run
from cudareduce.temporary import temporary_folder
from cudareduce.workers import Exited, Parent, Raised, Returned, Worker

#: The published name given to a kernel of the baseline tree, which has the candidate's id.
BASE = "<base>"


@dataclass(frozen=True, slots=True)
class Batch:
    """Kernels to measure in the same rounds, and then together with the libraries `peers`; with
    `odd` also at misaligned addresses. `streaming`: the array comes from the host or a file."""

    settings: Settings
    choices: tuple[Choice, ...]
    peers: tuple[str, ...] = ()
    odd: bool = False
    streaming: Streaming | None = None


class Bencher:
    """Measures batches on an open backend, as `bench` does."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, registry: Registry, phase: Phase
    ) -> None:
        self._backend, self._spec = backend, spec
        self._registry, self._phase = registry, phase

    def measure(self, batches: Iterable[Batch]) -> Measured:
        """Verify and time every batch. Ctrl-C and a failing GPU end it with the records so far."""
        done: list[Measured] = []
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
        return Measured(
            old=tuple(replace(r, name=None) for r in records if r.name == BASE),
            new=tuple(r for r in records if r.name != BASE),
            floors_us={name: us for each in done for name, us in each.floors_us.items()},
            remarks=tuple(dict.fromkeys(remark for each in done for remark in each.remarks)),
            protocols=tuple(protocol for each in done for protocol in each.protocols),
            cut=cut,
        )

    def _measured(self, batch: Batch) -> Measured:
        """Measure one batch; all of its records are in `new`."""
        settings = batch.settings
        session = Session(self._backend, self._spec, settings, self._phase)
        peak = settings.peak_gb_s or self._backend.info().peak_gb_s
        recorder = Recorder(self._backend.name, peak, settings, self._registry)
        try:
            if batch.streaming:
                done = run_streams(session, batch.choices, batch.streaming)
                return Measured(
                    new=tuple(done.records), remarks=tuple(done.remarks),
                    protocols=tuple(done.protocols), cut=INTERRUPTED if done.interrupted else None,
                )  # fmt: skip
            parts = measure_kernels(session, batch.choices)
            interrupted, with_libraries = any(part.interrupted for part in parts), LibraryPass()
            if batch.peers and not interrupted:
                from cudareduce.bench.library_timing import time_libraries

                odd = case_selector(session, batch.choices) if batch.odd else None
                with_libraries = time_libraries(session, parts, recorder, batch.peers, odd=odd)
        finally:
            session.close()
        protocols = [
            protocol for part in parts for group in part.groups for protocol in group.protocols
        ]
        whole = [part for part in parts if not part.interrupted]  # `cut` reports the others
        return Measured(
            new=(*recorder.all_records(parts), *with_libraries.records),
            floors_us=floors_of(parts, settings),
            remarks=(*remarks_of(whole), *with_libraries.remarks),
            protocols=(*protocols, *with_libraries.protocols),
            cut=INTERRUPTED if interrupted or with_libraries.interrupted else None,
        )


def measure_in_fresh_process(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Measured:
    """Measure batches in a fresh process, which opens the GPU itself. Raises the error of opening
    it, KeyboardInterrupt, and EnvironmentProblem if the process ends without a result."""
    worker = Worker(Parent.itself, fresh=True, shown=True)
    try:
        event = worker.call(partial(_measure_here, spec, registry, quiet), batches)
    finally:
        worker.end()
    match event:
        case Returned(found):
            assert isinstance(found, Measured)
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
) -> Measured:
    with open_backend(spec) as backend:
        return Bencher(backend, spec, registry, partial(phase, quiet=quiet)).measure(batches)


class KernelMeasurement:
    """Measures batches in this process, which holds the GPU until the first confirmation, or
    `always_fresh` in a process per measurement; confirms in fresh processes."""

    def __init__(
        self, request: CheckRequest, registry: Registry, batches: Sequence[Batch],
        stored: Run | None = None, *, always_fresh: bool = False,
    ) -> None:  # fmt: skip
        self._always_fresh = always_fresh
        self._request, self._registry, self._batches = request, registry, batches
        self.deadline, self._stored = Deadline(request.max_time), stored
        self._gpu = ExitStack()

    def __enter__(self) -> Self:
        request = self._request
        self._spec, _ = choose_backend("cuda", request.device, not request.no_cache)
        backend = self._gpu.enter_context(open_backend(self._spec))
        progress = partial(phase, quiet=request.quiet)
        self._bencher = Bencher(backend, self._spec, self._registry, progress)
        self.device = backend.info()
        return self

    def __exit__(self, *_: object) -> None:
        self._gpu.close()

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Measured:
        """Measure all batches (None) or the cases of these records, with so many times the rounds.
        Ctrl-C and a failing GPU end it with the records so far."""
        if self._always_fresh:
            return self.confirm(suspects, times)
        return self._bencher.measure(self._selected(suspects, times))

    def confirm(self, suspects: Sequence[Record] | None, times: int) -> Measured:
        """Measure in a fresh process, together with the kernels of a stored run if git has them.

        Addresses, CUDA context and load order of libraries are constant within a process, so a
        second measurement there would reproduce their influence.
        """
        self._gpu.close()
        with temporary_folder() as folder:
            batches = self._selected(suspects, times)
            if self._stored is not None:
                base = stored_tree(self._stored, self.device, self._request.heads, Path(folder))
                batches = [_with_base(batch, base) for batch in batches]
            try:
                return measure_in_fresh_process(
                    self._spec, self._registry, batches, self._request.quiet
                )
            except KeyboardInterrupt:
                return Measured(cut=INTERRUPTED)
            except (EnvironmentProblem, KernelFault) as error:
                return Measured(cut=Cut(str(error), error.exit_code))

    def _selected(self, suspects: Sequence[Record] | None, times: int) -> list[Batch]:
        batches = self._batches
        if suspects is not None:
            batches = only_suspects(batches, suspects, times)
        return [
            replace(batch, settings=replace(batch.settings, deadline=self.deadline))
            for batch in batches
        ]


def rounds_of(request: CheckRequest, stored: Run) -> int:
    """The rounds to measure: those requested, else those of the stored run."""
    return request.rounds or int(stored.protocol.get("rounds") or DEFAULT_ROUNDS)


def select(
    stored: Run, request: CheckRequest, registry: Registry
) -> tuple[Sequence[Record], Sequence[Batch]]:
    """The records of a stored run to measure again, and the batches that do so: everything, or the
    named kernels, new ones on all of its problems. Raises UsageError for times that are not cold,
    or an unknown operator or type."""
    # Records timed together with libraries are compared with each other.
    alone = tuple(r for r in stored.records if r.context is None and r.scope != "library")
    with_libraries = [
        r for r in stored.records
        if (is_selected(r.kernel, request.peers) if r.scope == "library"
            else request.peers and r.context is not None)
    ]  # fmt: skip
    choices = _choices(replace(stored, records=alone), request, registry)

    def selected(record: Record) -> bool:
        return record.way == "copy" or is_requested(record.kernel, request.kernels, choices)

    old = tuple(filter(selected, alone))
    batches = _batches(replace(stored, records=old or alone), choices, request)
    if request.peers:
        odd = any(record.aligned_n is not None for record in with_libraries)
        batches = [replace(batch, peers=request.peers, odd=odd) for batch in batches]
    old += tuple(r for r in with_libraries if r.scope == "library" or selected(r))
    return old, batches if choices else ()


def _choices(run: Run, request: CheckRequest, registry: Registry) -> list[Choice]:
    """The kernels to measure: the named ones, else those named for the run of the baseline, so that
    kernels added since are NEW. A name that no longer exists is left out, and its rows are GONE."""
    held, names = {record.kernel for record in run.records}, list(request.kernels)
    names_then = run.protocol.get("kernels")
    if names:
        names = [
            name for name in names
            if _exists(name, registry) or not any(fnmatchcase(k, name) for k in held)
        ]  # fmt: skip
    elif isinstance(names_then, list | tuple):
        names = [name for name in names_then if _exists(name, registry)]
    else:  # a file from before names were stored
        shapes = dict.fromkeys((r.kernel, r.block, r.items) for r in run.records)
        return [
            Choice(registry.kernels[kernel], None, None, block, items)
            for kernel, block, items in shapes
            if kernel in registry.kernels
        ]
    return registry.choose(names, external_files(request), auto=True) if names else []


def _exists(name: str, registry: Registry) -> bool:
    if name.endswith(SOURCES):
        return Path(name).exists()
    try:
        registry.choose([name], auto=True)
    except UsageError:
        return False
    return True


def _batches(run: Run, choices: Sequence[Choice], request: CheckRequest) -> list[Batch]:
    """One batch for all records with the same rows, region, pattern and source, with the settings
    of the stored run. Raises UsageError for times that are not cold."""
    protocol = run.protocol
    maps = {m.expression: m for m in (request.mapped, *(c.kernel.map for c in choices)) if m}
    groups: dict[tuple[int, str, str, str | None], list[tuple[int, Record]]] = {}
    for r in run.records:
        if r.timing != "cold":
            raise UsageError(
                f"the baseline holds {r.timing} times, and check measures cold ones: bench "
                "without --timing"
            )
        # A warp kernel splits one array into rows of its own.
        split = r.scope == "warp" and protocol.get("rows") == 1
        rows, n = (1, r.n * r.rows) if split else (r.rows, r.n)
        groups.setdefault((rows, r.region, r.pattern, r.source), []).append((n, r))
    batches = []
    for (rows, region, pattern, source), cases in groups.items():
        records = [record for _, record in cases]
        settings = Settings(
            reductions=tuple(dict.fromkeys(_reduction(r, maps) for r in records)),
            sizes=tuple(dict.fromkeys(n for n, _ in cases)),
            rows=rows,
            block=protocol.get("block"),
            items=protocol.get("items"),
            sms=tuple(dict.fromkeys(r.sms for r in records)),
            pattern=pattern,
            region=region,
            seed=int(protocol.get("seed") or 0),
            rounds=rounds_of(request, run),
            time_limit_s=request.time_limit,
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


def base_batch(
    choices: Sequence[Choice], base: Mapping[str, Kernel], request: CheckRequest
) -> Batch:
    """The batch for --base: each kernel next to its counterpart in the baseline tree, and those
    that only one tree has."""
    known = {choice.kernel.id for choice in choices}
    only_base = [
        Choice(kernel, name=BASE) for kernel in base.values()
        if kernel.id not in known and is_requested(kernel.id, request.kernels, ())
    ]  # fmt: skip
    heads = [replace(choice, suite=None, name=None) for choice in choices]
    return _with_base(head_batch([*heads, *only_base], request), base)


def head_batch(choices: Sequence[Choice], request: CheckRequest) -> Batch:
    """The batch of these kernels on the sizes, operators and types of the command line."""
    settings = Settings(
        reductions=tuple(request.reductions),
        sizes=request.sizes,
        rows=request.rows or 1,
        rounds=request.default_rounds,
        time_limit_s=request.time_limit,
    )
    return Batch(settings, tuple(choices))


def _with_base(batch: Batch, base: Mapping[str, Kernel]) -> Batch:
    """The batch with each kernel next to its counterpart in the baseline tree."""
    if not any(choice.kernel.id in base for choice in batch.choices):
        return batch
    pairs = (
        (head, replace(head, kernel=base[head.kernel.id], suite=None, name=BASE))
        if head.kernel.id in base and head.name != BASE else (head,)
        for head in batch.choices
    )  # fmt: skip
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
            # Copies are measured together with the kernels that follow them.
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
