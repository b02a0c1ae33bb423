"""Typed requests of `bench`, `verify` and `sweep`, and the settings and session of a request."""

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
    """The kernels to run, with `block` threads per block and `items` per thread; None selects each
    kernel's default. `sms` are the numbers of SMs to run on; empty means all. `map` is the
    transform of the elements. `files` are options for external files."""

    kernels: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    block: int | None = None
    items: int | None = None
    sms: tuple[int, ...] = ()
    map: str | None = None
    files: FileOptions = field(default_factory=FileOptions)

    @property
    def mapped(self) -> Map | None:
        """The parsed transform of --map. Raises UsageError for an invalid expression."""
        return None if self.map is None else read_map(self.map, "--map")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionOptions:
    """The reductions to run: every operator with every type at every size.

    The default sizes are edge sizes; operator and type default to the sum of float32 or, for an
    external file, to what it computes. `acc` is the accumulator type. `op_expr` is a custom
    operator with this `identity`, and `rtol` the relative tolerance of its float results."""

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
    """The preconditions that the user accepts for external files: `n` is a multiple of
    `multiple_of`, or one of the sizes of --n (`sizes_only`). `nan` is the required treatment of NaN
    by a minimum or maximum; None accepts either."""

    multiple_of: int | None = None
    sizes_only: bool = False
    nan: Nan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The backend and device, and time limits in seconds: `max_time` for the run, `time_limit` for
    verifying one kernel. Without a `seed`, verification uses seed 0 and timing a random one."""

    backend: str = "auto"
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    seed: int | None = None
    time_limit: float | None = None
    max_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingOptions:
    """How kernels are timed, and the baselines of speed-ups and bandwidths. `peak_gb_s` replaces
    the theoretical bandwidth that the driver reports."""

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
    """The options of `bench` and `sweep`. `columns` are additional table columns, `peers` libraries
    to time with the kernels. `usual_sizes`: `n` has its default. With `strict`, anything undecided
    or not measured gives exit code 4."""

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
    """The options of `verify`. `only_pattern` is the only input pattern to verify with, `peers` are
    libraries. With `strict`, anything undecided gives exit code 4. `sanitize` also runs kernels
    under compute-sanitizer."""

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
    """The precondition that the user accepts. Raises UsageError for --sizes-only without --n."""
    if terms.sizes_only and not problem.n:
        raise UsageError("--sizes-only takes the sizes of --n: give these too")
    sizes = problem.n or () if terms.sizes_only else ()
    return Condition(multiple=terms.multiple_of or 1, sizes=sizes, nan=terms.nan or "propagate")


def select_kernels(
    request: BenchRequest | VerifyRequest, registry: Registry, files: ExternalFiles
) -> list[Choice]:
    """The requested kernels; those of external files with the accepted preconditions. `files` lists
    kernels that were left out. Raises UsageError for an unknown name or a file without a usable
    kernel."""
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
    """The loader of external files, with the options of a request."""
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
    """The settings of a timed run; `deadline` replaces --max-time. Raises UsageError for an
    unsuitable pattern, accumulator or operator."""
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
    """The settings of a run without timing. Raises UsageError as `bench_settings` does."""
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
        raise UsageError("--map excludes --op-expr: write the transform into the expression")
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
    """Each operator with each type. Warns if a custom operator is not associative."""
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
    """Reductions to try for an external file if operator or type is not requested. Other
    accumulators come last."""
    if problem.op_expr is not None or problem.acc is not None or (problem.op and problem.dtype):
        return ()
    pairs = list(product(problem.op or OPERATORS, problem.dtype or DTYPES))
    reductions = [reduction_of(op, dtype, None, mapped) for op, dtype in pairs]
    for (op, dtype), acc in product(pairs, DTYPES):
        with suppress(UsageError):
            reductions.append(reduction_of(op, dtype, acc, mapped))
        if op == "sum" and holds_counts_only(DTYPES[dtype], DTYPES[acc]):
            reductions.append(Reduction(OPERATORS[op], DTYPES[dtype], DTYPES[acc], mapped))
    return tuple(reductions)


@contextmanager
def open_session(machine: Machine, settings: Settings) -> Iterator[Session]:
    """Open a session on the requested backend; prints a message if another one is used. Raises
    EnvironmentProblem if the backend is not available."""
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
            fork_server()  # starts while this process plans and compiles
        stack.callback(session.close)
        yield session


def _check_sms(settings: Settings, backend: Backend) -> None:
    """Raise UsageError if --sms exceeds the number of SMs of the device."""
    available, requested = backend.limits().sm_count, max(filter(None, settings.sms), default=0)
    if requested > available:
        raise UsageError(f"--sms {requested} exceeds the {available} SMs of the device")
