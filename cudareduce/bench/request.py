"""What commands that measure were asked for, as typed requests; and a session opened on one.

The only place that turns the values of options into settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import lcm
from pathlib import Path

from cudareduce.backends.protocol import Backend
from cudareduce.backends.selection import choose_backend, default_cache, open_backend
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Condition, Nan
from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.map_expression import read_map
from cudareduce.catalog.registry import Choice, Registry
from cudareduce.errors import UsageError
from cudareduce.external.files import FILE_S, ExternalFiles
from cudareduce.external.options import FileOptions, Requested
from cudareduce.external.trial import budget
from cudareduce.progress import phase, say
from cudareduce.reduction.dtypes import DTYPES, holds_counts_only
from cudareduce.reduction.inputs import why_no_pattern
from cudareduce.reduction.operators import OPERATORS, Map, Operator, Reduction, reduction_of
from cudareduce.reduction.transforms import associativity_warning, check_transform, custom_operator
from cudareduce.report.publish import Outputs
from cudareduce.signals import held
from cudareduce.temporary import temporary_folder
from cudareduce.workers import fork_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which kernels, in blocks of `block` threads with `items` elements a thread, None each
    kernel's own, and what the user says of `files` without a header. Each is run on every number of
    `sms`, without any on all SMs. What is combined is what `map` makes of elements, which such a
    file does itself."""

    kernels: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    block: int | None = None
    items: int | None = None
    sms: tuple[int, ...] = ()
    map: str | None = None
    files: FileOptions = field(default_factory=FileOptions)

    @property
    def mapped(self) -> Map | None:
        """The map as it is understood; one that is no map is a UsageError."""
        return None if self.map is None else read_map(self.map, "--map")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionOptions:
    """What is reduced: every operator on every type at every size. No sizes are those where
    reductions go wrong; no operator is the sum and no type float32 or, for a file of the user's
    that does not take that, the first that it does. `acc` widens the accumulator, `rtol` is how far
    a float answer of `op_expr`, an own operator, may be off, relatively."""

    n: tuple[int, ...] | None = None
    rows: int = 1
    op: tuple[str, ...] | None = None
    dtype: tuple[str, ...] | None = None
    acc: str | None = None
    op_expr: str | None = None
    identity: str | None = None
    rtol: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the user says that files of one's own are right for: sizes that are a multiple of
    `multiple_of`, or those of `--n` alone (`sizes_only`); and what becomes of a NaN in a minimum or
    maximum, None if that may be either."""

    multiple_of: int | None = None
    sizes_only: bool = False
    nan: Nan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where kernels run, and what the run may take: `max_time` seconds in all, `time_limit` seconds
    for the verification of one kernel. Without a `seed` inputs to verify with are those of seed 0,
    and the one that is timed differs from run to run."""

    backend: str = "auto"
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    seed: int | None = None
    time_limit: float | None = None
    max_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """How times are taken, energy too or not, and what speed-ups and bandwidths compare with."""

    timing: tuple[str, ...] = ("cold",)
    graph: bool = False
    energy: bool = False
    rounds: int = 9
    pattern: str = "random"
    region: str = "total"
    peak_gb_s: float | None = None
    baseline_kernel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What `bench` and `sweep` take; `columns` are those of the table besides the usual ones,
    `peers` libraries to measure beside kernels; `usual_sizes` says that nobody has said `n`. With
    `strict` what could not be decided or measured ends a run with 4."""

    selection: Selection
    problem: ReductionOptions
    timing: TimingOptions
    machine: Machine
    outputs: Outputs
    terms: Terms = Terms()
    columns: tuple[str, ...] = ()
    strict: bool = False
    peers: tuple[str, ...] = ()
    usual_sizes: bool = False
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What `verify` takes; `only_pattern` is the one input to verify with, `peers` are libraries.
    With `strict` what could not be decided ends a run with 4; `sanitize` runs kernels under
    compute-sanitizer, too."""

    selection: Selection
    problem: ReductionOptions
    machine: Machine
    outputs: Outputs
    terms: Terms = Terms()
    only_pattern: str | None = None
    strict: bool = False
    sanitize: bool = False
    peers: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()


def requested_condition(terms: Terms, problem: ReductionOptions) -> Condition:
    """The condition that the user has named; --sizes-only without sizes is a UsageError."""
    if terms.sizes_only and not problem.n:
        raise UsageError("--sizes-only takes the sizes of --n: give these too")
    sizes = problem.n or () if terms.sizes_only else ()
    return Condition(multiple=terms.multiple_of or 1, sizes=sizes, nan=terms.nan or "propagate")


def select_kernels(
    request: BenchRequest | VerifyRequest, registry: Registry, files: ExternalFiles
) -> list[Choice]:
    """The kernels named, those of the user's files on the terms of the request; kernels that are
    left out are in `files`. A name that is not known, or a file of which no kernel can be taken, is
    a UsageError."""
    selection, precondition = request.selection, requested_condition(request.terms, request.problem)
    choices = []
    for choice in registry.choose(selection.kernels, files, auto=True):
        kernel = choice.kernel
        own = precondition
        if kernel.program is not None:
            sizes = precondition.sizes or kernel.precondition.sizes
            multiple = lcm(precondition.multiple, kernel.precondition.multiple)
            own = replace(
                precondition,
                multiple=multiple,
                sizes=sizes,
                of_file=kernel.precondition.of_file,
                most=kernel.precondition.most,
            )
        if kernel.foreign:
            choice = replace(choice, kernel=replace(kernel, precondition=own))
        choices.append(choice)
    return choices


def external_files(request: BenchRequest | VerifyRequest) -> ExternalFiles:
    """What makes kernels of the user's files on the terms of a request."""
    selection, problem = request.selection, request.problem
    options = selection.files.with_shape(selection.block, selection.items)
    cache = None if request.machine.no_cache else default_cache()
    requested = Requested(
        op=problem.op or (), dtype=problem.dtype or (), op_expr=problem.op_expr,
        identity=problem.identity, rtol=problem.rtol, map=selection.mapped,
    )  # fmt: skip
    multiple, limit_s = request.terms.multiple_of or 1, request.machine.max_time
    return ExternalFiles(
        options, say, _shapes(problem), cache, requested, multiple=multiple,
        only=request.terms.sizes_only, limit_s=limit_s and limit_s / _file_count(selection),
    )  # fmt: skip


def file_deadline(request: VerifyRequest) -> Deadline:
    """The deadline for identifying and verifying all files that are named."""
    limit_s = request.machine.max_time
    return budget(_file_count(request.selection) * FILE_S) if limit_s is None else Deadline(limit_s)


def _file_count(selection: Selection) -> int:
    return max(1, sum(name.endswith(SOURCES) for name in selection.kernels))


def _shapes(problem: ReductionOptions) -> tuple[tuple[int, int], ...]:
    """Elements a row and rows that were requested."""
    return tuple((n, problem.rows) for n in problem.n or ())


def bench_settings(request: BenchRequest, deadline: Deadline | None = None) -> Settings:
    """The settings of a run that times; `deadline` takes the place of the machine's `max_time`. A
    pattern, accumulator or operator that does not fit is a UsageError."""
    timing = request.timing
    return _settings(
        request.selection, request.problem, request.machine, deadline, timing.pattern,
        Settings(
            reductions=(), sizes=(), nan=request.terms.nan, pattern=timing.pattern,
            region=timing.region, rounds=timing.rounds, peak_gb_s=timing.peak_gb_s,
            timings=timing.timing, graph=timing.graph, energy=timing.energy,
            baseline_kernel=timing.baseline_kernel, usual_sizes=request.usual_sizes,
        ),
    )  # fmt: skip


def verify_settings(request: VerifyRequest) -> Settings:
    """The settings of a run that only looks at answers; raises as `bench_settings` does."""
    return _settings(
        request.selection, request.problem, request.machine, None, request.only_pattern,
        Settings(
            reductions=(), sizes=(), nan=request.terms.nan, only_pattern=request.only_pattern,
            rounds=0,
        ),
    )  # fmt: skip


def _settings(
    selection: Selection, problem: ReductionOptions, machine: Machine,
    deadline: Deadline | None, pattern: str | None, special: Settings,
) -> Settings:  # fmt: skip
    ops, dtypes, mapped = problem.op or ("sum",), problem.dtype or ("float32",), selection.mapped
    if mapped and problem.op_expr is not None:
        raise UsageError("--map goes with --op, and not with --op-expr: put the map into it")
    reductions = _reductions(problem, ops, dtypes, mapped)
    for reduction in reductions:
        check_transform(reduction)
        reason = why_no_pattern(pattern or "random", reduction)
        if reason:
            raise UsageError(reason)
    return replace(
        special, reductions=reductions, instead=_instead(problem, mapped), sizes=problem.n or (),
        rows=problem.rows, block=selection.block, items=selection.items,
        sms=selection.sms or (None,), seed=machine.seed or 0,
        timed_seed=special.timed_seed if machine.seed is None else machine.seed + 1,
        time_limit_s=machine.time_limit, deadline=deadline or Deadline(machine.max_time),
    )  # fmt: skip


def _reductions(
    problem: ReductionOptions, ops: Sequence[str], dtypes: Sequence[str], mapped: Map | None
) -> tuple[Reduction, ...]:
    """Each operator on each type; an operator of one's own is tested first."""
    reductions = []
    for dtype in dtypes:
        operators: Sequence[str | Operator] = ops
        if problem.op_expr is not None:
            own = custom_operator(problem.op_expr, problem.identity, DTYPES[dtype], problem.rtol)
            warning = associativity_warning(own, DTYPES[dtype])
            if warning:
                say(f"Warning: {warning}.")
            operators = [own]
        reductions += [reduction_of(op, dtype, problem.acc, mapped) for op in operators]
    return tuple(reductions)


def _instead(problem: ReductionOptions, mapped: Map | None) -> tuple[Reduction, ...]:
    """What a kernel may be given where nobody has said what it is to reduce; other accumulators
    last, for a file without a header that writes these."""
    if problem.op_expr is not None or problem.acc is not None or (problem.op and problem.dtype):
        return ()
    pairs = list(product(problem.op or OPERATORS, problem.dtype or DTYPES))
    found = [reduction_of(op, dtype, None, mapped) for op, dtype in pairs]
    for (op, dtype), acc in product(pairs, DTYPES):
        with suppress(UsageError):
            found.append(reduction_of(op, dtype, acc, mapped))
        if op == "sum" and holds_counts_only(DTYPES[dtype], DTYPES[acc]):
            found.append(Reduction(OPERATORS[op], DTYPES[dtype], DTYPES[acc], mapped))
    return tuple(found)


@contextmanager
def open_session(machine: Machine, settings: Settings) -> Iterator[Session]:
    """A session on the backend asked for; what falls back says so. Raises EnvironmentProblem if
    that backend, or what its way of timing needs, is not here."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise UsageError("the current folder does not exist any more: change to another") from None
    spec, remarks = choose_backend(machine.backend, machine.device, not machine.no_cache)
    for remark in remarks:
        say(remark, machine.quiet)
    with ExitStack() as stack:
        with held():
            temporary = stack.enter_context(temporary_folder())
        spec = spec.with_cache(Path(temporary))
        backend = stack.enter_context(open_backend(spec))
        _check_sms(settings, backend)
        session = Session(backend, spec, settings, partial(phase, quiet=machine.quiet))
        if backend.traits.isolated:
            fork_server()  # it gets ready while this process plans and compiles
        stack.callback(session.close)
        yield session


def _check_sms(settings: Settings, backend: Backend) -> None:
    """A device has as many SMs as it has: more is a UsageError."""
    most, asked = backend.limits().sm_count, max(filter(None, settings.sms), default=0)
    if asked > most:
        raise UsageError(f"--sms {asked} is more than there are: give at most {most}")
