"""Searches for the fastest launch shape of a problem: successive halving, then fresh contexts.

All candidates are measured in the same rounds. After each measurement the slower half is dropped
and the number of rounds doubles. Times in one CUDA context can be off by 2 % on an H200, depending
on buffer addresses. So this selects finalists only, which are then verified and timed as in
`bench`, together with the current choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from statistics import median

from cudareduce.backends.protocol import Launch, Monitor, TimedBackend
from cudareduce.backends.selection import BackendSpec
from cudareduce.bench.cases import facts_of
from cudareduce.bench.records import Recorder
from cudareduce.bench.runner import measure_kernels
from cudareduce.bench.session import Phase, Session
from cudareduce.bench.settings import Settings
from cudareduce.budget import Deadline
from cudareduce.catalog.front_matter import Grid
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import AUTO, AUTO_FIXED, Choice, Registry
from cudareduce.errors import BuildError, CudareduceError, OutOfMemory, UsageError
from cudareduce.intervals import MIN_ROUNDS, interval, known, paired
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.rule import Facts
from cudareduce.launch.auto.table import Entry, Table
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan
from cudareduce.machine import why_too_large
from cudareduce.progress import Progress
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.sizes import counted
from cudareduce.results.record import Record
from cudareduce.timing.rounds import Context, new_context, warm_up
from cudareduce.timing.sampling import COLD, sampler
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.result_monitor import TimedData

#: Block sizes to try in addition to the default one; smaller ones need too many blocks per SM.
_BLOCKS = (256, 512, 1024)
#: Items per thread to try, as multiples of the default.
_ITEM_FACTORS = (0.25, 0.5, 1, 2)
#: Launches of a candidate per half round: one sample of a short kernel.
_LAUNCHES = 8
#: The most rounds between two halvings, and the number of halvings for the progress bar.
_MOST_ROUNDS, _HALVINGS = 4, 8
#: The ratio by which times of a kernel differ between contexts: 2.1 % on an H200.
_CONTEXT_SPREAD = 1.02
#: The fraction of a problem's time limit for successive halving.
_HALVING_SHARE = 0.4
#: The number of finalists measured in fresh contexts, and of rounds of that measurement.
_FINALISTS, _ROUNDS = 4, 9
#: Rate in elements per second of making inputs and reference results, and the inputs per problem.
_INPUT_ELEMENTS_PER_S, _INPUTS = 1.5e8, 2
#: Relative spread of rounds of identical kernels (H200, results/nvidia-h200/selftest.json).
_NOISE = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """`rows` reductions of `n` elements each."""

    reduction: Reduction
    n: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result for one `name`: `auto`, `auto:fixed` or a kernel. `best` is the fastest case and
    `record` its time, `against` the time of the current choice, `speedup` the ratio of the two with
    a 95 % interval."""

    name: str
    best: Case
    record: Record
    against: Record
    speedup: float
    speedup_low: float | None
    speedup_high: float | None

    @property
    def gains(self) -> bool:
        """True if the best case is not the current choice: it is faster by more than the noise."""
        return self.record != self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The outcomes for one problem and all records. `unfit` and `wrong` give the reasons why
    candidates cannot run or are wrong; `tried` is the number of candidates. `why` is the reason if
    there is no outcome; `refused` is True if no kernel supports the problem."""

    problem: Problem
    outcomes: tuple[Outcome, ...] = ()
    records: tuple[Record, ...] = ()
    unfit: Mapping[str, str] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)
    tried: int = 0
    why: str | None = None
    refused: bool = False
    interrupted: bool = False


class Search:
    """Searches the launch shapes of kernels on an open GPU."""

    def __init__(
        self, backend: TimedBackend, spec: BackendSpec, registry: Registry,
        tables: tuple[Table, ...], phase: Phase,
    ) -> None:  # fmt: skip
        self._backend, self._spec, self._registry = backend, spec, registry
        self._tables, self._phase = tables, phase
        self._monitor, self._facts = backend.monitor(), facts_of(backend)

    def compile(
        self, kernels: Sequence[Kernel], problems: Sequence[Problem], deadline: Deadline
    ) -> None:
        """Compile all candidates in advance, outside the time limits of the problems."""
        plans: dict[Case, list[Plan]] = {}
        for problem in problems:
            for case in self._candidates(kernels, problem):
                plan = case.plan(problem.n, problem.rows, self._facts.limits)
                plans.setdefault(case, []).append(plan)
        units = {
            (case.kernel.id, case.reduction, case.block, case.items, unit)
            for case, some in plans.items() for plan in some for unit in plan.units
        }  # fmt: skip
        with self._phase("compiling", len(units)) as progress:
            build(self._backend, plans, progress.step, deadline)

    def fastest(
        self, kernels: Sequence[Kernel], problem: Problem, deadline: Deadline
    ) -> SearchResult:
        """Search for the fastest cases of a problem. After Ctrl-C, returns the cases
        measured so far."""
        cases = self._candidates(kernels, problem)
        elements = problem.n * problem.rows
        nbytes = elements * problem.reduction.dtype.size
        why = why_too_large(nbytes * self._backend.traits.host_copies)
        late = _INPUTS * elements / _INPUT_ELEMENTS_PER_S >= deadline.left_s
        if not cases:
            return SearchResult(problem=problem, why=_why_none(kernels, problem), refused=True)
        if why or late:
            return SearchResult(problem=problem, why=why or "--max-time leaves no time for it")
        current = self._current_choices(kernels, problem)
        op, dtype = problem.reduction.op.name, problem.reduction.dtype.name
        title = f"timing {op} of {problem.n} {dtype}"
        title += f" x {problem.rows} rows" if problem.rows != 1 else ""
        halving = Deadline(_HALVING_SHARE * deadline.left_s)
        try:
            with (
                self._phase(title, _HALVINGS) as progress,
                candidate_timer(
                    self._backend, self._monitor, problem, cases, halving, progress
                ) as timer,
            ):
                finalists = _finalists(timer, cases)
        except KeyboardInterrupt:
            return SearchResult(problem=problem, tried=len(cases), interrupted=True)
        except OutOfMemory as error:
            return SearchResult(problem=problem, tried=len(cases), why=str(error))
        if not finalists:
            why = f"--max-time leaves no time for its {counted(len(cases), 'launch shape')}"
            return SearchResult(problem=problem, unfit=timer.unfit, wrong=timer.wrong, why=why)
        all_cases = {case.name: case for case in (*current.values(), *finalists)}
        result = self._measure(list(all_cases.values()), current, problem, deadline)
        return replace(result, unfit=timer.unfit, wrong=timer.wrong, tried=len(cases))

    def _candidates(self, kernels: Sequence[Kernel], problem: Problem) -> list[Case]:
        return candidates(kernels, problem.reduction, problem.n, problem.rows, self._facts)

    def _current_choices(self, kernels: Sequence[Kernel], problem: Problem) -> dict[str, Case]:
        """The cases to compare with, by name: the current choices of `auto` and `auto:fixed`, and
        if a single kernel was requested, its default launch shape."""
        registry = self._registry.kernels
        found = {k.id: own_case(k, problem.reduction) for k in kernels[: len(kernels) == 1]}
        for name in (AUTO, AUTO_FIXED):
            chooser = Chooser(name, registry, self._facts, self._tables)
            choice = chooser.choose(problem.reduction, problem.n, problem.rows)
            if choice is not None:
                kernel = registry[choice.kernel.entry]
                shape = choice.block, choice.items, choice.kernel.grid
                found[name] = case_of(kernel, problem.reduction, *shape)
        return found

    def _measure(
        self, cases: Sequence[Case], current: Mapping[str, Case], problem: Problem,
        deadline: Deadline,
    ) -> SearchResult:  # fmt: skip
        """Verify and time these cases in the same rounds, and compare the fastest with the current
        choices."""
        settings = Settings(
            reductions=(problem.reduction,), sizes=(problem.n,), rows=problem.rows, rounds=_ROUNDS,
            deadline=deadline,
        )  # fmt: skip
        choices = [
            Choice(case.kernel, name=case.name, block=case.block, items=case.items)
            for case in cases
        ]
        session = Session(self._backend, self._spec, settings, self._phase)
        try:
            parts = measure_kernels(session, choices)
        finally:
            session.close()
        peak = self._backend.info().peak_gb_s
        records = Recorder(self._backend.name, peak, settings, self._registry).all_records(parts)
        timed = {r.name: r for r in records if r.time_us is not None}
        outcomes = tuple(
            _outcome(name, case, cases, timed)
            for name, case in current.items() if case.name in timed
        )  # fmt: skip
        return SearchResult(
            problem=problem, outcomes=outcomes, records=tuple(records),
            why=None if outcomes else "no time was left to measure the best",
            interrupted=any(part.interrupted for part in parts),
        )  # fmt: skip


def kernels_named(names: Sequence[str], registry: Registry, rows: int) -> list[Kernel]:
    """The kernels that match these names (kernels, families, patterns or `auto`, the default).
    Raises UsageError for an unknown name or an external kernel."""
    # For a single array, only kernels with one launch.
    automatic = ("limit",) if rows == 1 else ("limit", "rows", "warp")
    found: dict[str, Kernel] = {}
    for name in names or (AUTO,):
        kernels = []
        if name in (AUTO, AUTO_FIXED):
            kernels = [
                k for k in registry.kernels.values()
                if k.family in automatic and not (rows == 1 and k.relaunches)
            ]  # fmt: skip
        for kernel in kernels or [choice.kernel for choice in registry.choose([name])]:
            found[kernel.id] = kernel
    external = next((k for k in found.values() if k.id not in registry.kernels), None)
    if external is not None:
        raise UsageError(
            f"tune takes the kernels of the package only: bench {external.path} with --block and "
            "--items"
        )
    return list(found.values())


def candidates(
    kernels: Iterable[Kernel], reduction: Reduction, n: int, rows: int, facts: Facts
) -> list[Case]:
    """All launch shapes, without duplicates, of the kernels that support the problem on this
    GPU."""
    found: dict[tuple[object, ...], Case] = {}
    for kernel in kernels:
        if kernel.why_not(reduction) or kernel.shape(n, rows) != (n, rows) or not facts.run(kernel):
            continue
        for case in _shapes(kernel, reduction, rows):
            try:
                plan = case.plan(n, rows, facts.limits)
            except UsageError:
                continue
            launched = (kernel.id, case.block, case.items, tuple(p.grid for p in plan.passes))
            found.setdefault(launched, case)
    return list(found.values())


def _shapes(kernel: Kernel, reduction: Reduction, rows: int) -> Iterator[Case]:
    """The default launch shape of a kernel, then the others to try."""
    own = own_case(kernel, reduction)
    yield own
    items = dict.fromkeys(int(own.items * factor) for factor in _ITEM_FACTORS)
    grids = kernel.grids[: 3 if rows == 1 else 2]
    for block in (block for block in _BLOCKS if kernel.why_not_block(block) is None):
        for count in items:
            if count and kernel.why_not_items(count, reduction.dtype.size) is None:
                yield from (case_of(kernel, reduction, block, count, grid) for grid in grids)


def case_of(
    kernel: Kernel, reduction: Reduction, block: int, items: int, grid: Grid | None = None
) -> Case:
    """A kernel with a launch shape. The case's name contains both."""
    kernel = replace(kernel, grid=grid or kernel.grid)
    shape = f"{kernel.id}, {block} x {items} {kernel.grid}"
    return Case(kernel, reduction, block, items, name=shape)


def own_case(kernel: Kernel, reduction: Reduction) -> Case:
    """A kernel with its default launch shape."""
    return case_of(kernel, reduction, kernel.block, kernel.items_of(reduction.dtype.size))


def _why_none(kernels: Sequence[Kernel], problem: Problem) -> str:
    """The reason why none of the kernels supports a problem."""
    for kernel in kernels[: len(kernels) == 1]:
        why = kernel.why_not(problem.reduction) or kernel.why_not_shape(problem.n, problem.rows)
        if why:
            return f"{kernel.id} {why}"
    return "none of the named kernels takes it"


class CandidateTimer:
    """Times candidates in one CUDA context. By name of candidate, `unfit` gives the reason why it
    cannot be compiled or launched, and `wrong` why its result is wrong."""

    def __init__(
        self, context: Context, unfit: Mapping[str, str], wrong: Mapping[str, str],
        deadline: Deadline, progress: Progress,
    ) -> None:  # fmt: skip
        self._deadline, self._progress = deadline, progress
        self.unfit, self.wrong = unfit, wrong
        timer, launches = context.timer, context.entrants
        costs_us = warm_up(timer, launches, deadline).costs_us if launches else {}
        self._samplers = {
            name: sampler(timer, COLD, run, costs_us[name], _LAUNCHES, alone=False)
            for name, run in launches.items()
        }

    @property
    def names(self) -> list[str]:
        """The names of the candidates with right results."""
        return list(self._samplers)

    def measure(self, names: Sequence[str], rounds: int) -> dict[str, list[float | None]]:
        """The median time in us of each candidate in each round. A round measures all candidates in
        order, then in reverse order. There are fewer rounds if the deadline passes."""
        found: dict[str, list[float | None]] = {}
        for _ in range(rounds):
            taken: dict[str, list[float]] = {name: [] for name in names}
            for name in (*names, *reversed(names)):
                samples, _ = self._samplers[name].half_round(self._deadline)
                taken[name] += [sample.us for sample in samples]
                if self._deadline.passed:
                    return found  # drop the incomplete round
            for name, us in taken.items():
                found.setdefault(name, []).append(median(us) if us else None)
        self._progress.step()
        leader = min(found, key=lambda name: median(known(found[name]) or [inf]), default="")
        self._progress.now(f"{leader} leads {len(names)}")
        return found


@contextmanager
def candidate_timer(
    home: TimedBackend, monitor: Monitor, problem: Problem, cases: Sequence[Case],
    deadline: Deadline, progress: Progress,
) -> Iterator[CandidateTimer]:  # fmt: skip
    """Context manager for a timer of these cases in a new CUDA context, with random input. Raises
    OutOfMemory."""
    limits, reduction = home.limits(), problem.reduction
    plans = {case: case.plan(problem.n, problem.rows, limits) for case in cases}
    data = TimedData("random", reduction, problem.n, problem.rows, 1, plans.values())
    unfit: dict[str, str] = {}
    wrong: dict[str, str] = {}

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        given = backend.upload(data.elements)
        built = build(backend, {case: [plan] for case, plan in plans.items()}, deadline=deadline)
        launches: dict[str, Launch] = {}
        for case, plan in plans.items():
            name, made = case.name or case.kernel.id, built.get(case)
            try:
                if made is None or isinstance(made, BuildError):
                    raise made or BuildError("there was no time to compile it")
                bound = Bound(backend, plan, made, given)
                why = _why_wrong(bound, data)
            except OutOfMemory:
                raise
            except CudareduceError as error:  # more registers or shared memory than an SM has
                unfit[name] = str(error).splitlines()[0]
                continue
            if why:
                wrong[name] = why
            else:
                launches[name] = bound.run
        _ = timer.flush  # allocates the flush buffer now
        return launches

    with new_context(home, monitor, set_up) as context:
        yield CandidateTimer(context, unfit, wrong, deadline, progress)


def _why_wrong(bound: Bound, data: TimedData) -> str | None:
    """Launch once on poisoned memory, and return the error of the result; None if it is right."""
    bound.poison()
    bound.run()
    verdict = data.judged(bound.plan, bound.results(), 0)
    damage = bound.damage()
    if damage or verdict is None or verdict.outcome != "fail":
        return damage
    return verdict.reason


#: Measures candidates for a number of rounds and returns the median of each round by candidate.
#: None is a round lost to a slow host. A missing candidate could not be measured; an empty result
#: means that the deadline has passed.
MeasureRounds = Callable[[Sequence[str], int], Mapping[str, Sequence[float | None]]]


def _finalists(timer: CandidateTimer, cases: Sequence[Case]) -> list[Case]:
    """The fastest candidates, including some with a fixed summation order."""
    by_name = {case.name: case for case in cases}
    best = successive_halving(timer.names, timer.measure, _FINALISTS)
    if all(_varies(by_name[name]) for name in best):
        fixed = [name for name in timer.names if not _varies(by_name[name])]
        best += successive_halving(fixed, timer.measure, _FINALISTS // 2)
    return [by_name[name] for name in best]


def _varies(case: Case) -> bool:
    """True if the summation order of a case varies between launches."""
    return case.kernel.varies(case.reduction)


def successive_halving(names: Sequence[str], measure: MeasureRounds, finalists: int) -> list[str]:
    """The fastest candidates, fastest first: at most `finalists`, without those that are clearly
    slower than the first or could not be measured."""
    alive, rounds = list(names), 1
    taken: dict[str, list[float | None]] = {name: [] for name in names}
    while len(alive) > finalists:
        found = measure(alive, rounds)
        if not found:  # the deadline has passed
            alive = [name for name in alive if known(taken[name])]
            break
        for name, by_round in found.items():
            taken[name] += by_round
        alive = [name for name in alive if name in found]
        medians = {name: median(known(taken[name])) for name in alive if known(taken[name])}
        ranked = sorted(medians, key=lambda name: medians[name])
        half = ranked[: max(finalists, -(-len(alive) // 2))]
        alive = [name for name in half if not _clearly_slower(taken[name], taken[ranked[0]])]
        rounds = min(2 * rounds, _MOST_ROUNDS)
    return alive[:finalists]


def _clearly_slower(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    """True if the ratio of the times exceeds the spread between contexts, with its interval."""
    ratios = interval(paired(one, other))
    return ratios is not None and ratios[0] > _CONTEXT_SPREAD


def _outcome(
    name: str, current: Case, cases: Sequence[Case], timed: Mapping[str | None, Record]
) -> Outcome:
    """The outcome for `auto`, `auto:fixed` or a kernel: the fastest of its cases if it is faster
    than the current choice by more than the noise, else the current choice."""
    allowed = [
        case for case in cases if case.name in timed
        and (name == AUTO or (not _varies(case) if name == AUTO_FIXED else case.kernel.id == name))
    ]  # fmt: skip
    best = min(allowed, key=lambda case: timed[case.name].time_us or 0.0)
    if not faster(timed[best.name], timed[current.name]):
        best = current
    ratios = paired(timed[current.name].rounds_us, timed[best.name].rounds_us)
    low, high = interval(ratios) or (None, None)
    return Outcome(
        name=name, best=best, record=timed[best.name], against=timed[current.name],
        speedup=median(ratios), speedup_low=low, speedup_high=high,
    )  # fmt: skip


def faster(one: Record, other: Record) -> bool:
    """True if `one` was faster than `other` in every round, and by more than the noise of rounds. A
    95 % interval would be too weak for the best of several candidates: of seven equal ones, the
    best is faster than the first in all nine rounds with a probability of 1/85."""
    ratios = paired(other.rounds_us, one.rounds_us)
    return len(ratios) >= MIN_ROUNDS and min(ratios) > 1 and median(ratios) > 1 + _NOISE


def entry_of(outcome: Outcome) -> Entry:
    """An outcome as an entry of the table that `auto` reads."""
    record, case = outcome.record, outcome.best
    return Entry(
        op=record.op, dtype=record.dtype, acc=record.acc, n=record.n, rows=record.rows,
        fixed=outcome.name == AUTO_FIXED, kernel=case.kernel.id, block=case.block,
        items=case.items, grid=case.kernel.grid, source_sha=case.kernel.sha,
        time_us=record.time_us or 0.0, time_us_low=record.time_us_low,
        time_us_high=record.time_us_high,
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
