"""The part of a worker process: import and verify libraries, and time them with kernels.

All libraries share the primary context of one process, since most cannot change their context.
Instead of a fresh context, each half round gets small inputs at another address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import inf
from random import Random
from statistics import median
from time import perf_counter

from cudareduce.backends.protocol import Launch, TimedBackend
from cudareduce.backends.selection import open_timed
from cudareduce.budget import Deadline
from cudareduce.catalog.condition import ALIGNED
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Programs, Shape, planned, programs_of
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries.calls import (
    BrokenError,
    LibraryCall,
    Memory,
    Reporter,
    Runtimes,
    error_line,
    error_verdict,
    import_verdict,
    open_memory,
    runtimes,
    verdict_on,
)
from cudareduce.libraries.contract import CallRequest, Library, as_results
from cudareduce.libraries.job import (
    CUT,
    PLAIN,
    UNVERIFIED,
    Job,
    Layout,
    LibraryResult,
    Outcome,
    Pass,
    kernel_name,
    keyed,
    library_plan,
)
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.patterns import patterns_for
from cudareduce.reduction.reference import Reference
from cudareduce.timing.rounds import Context, measure, over, remarks
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer, find_unfinished_work, joules
from cudareduce.verify.patterns import SMALL, Input, Inputs
from cudareduce.verify.result_monitor import (
    OwnBuffers,
    ResultMonitor,
    TimedData,
    TimedInput,
    distinct_results,
)
from cudareduce.verify.verdict import (
    RIGHT,
    WROTE_INPUT,
    Effort,
    Verdict,
    judge,
    not_decided,
    skipped,
    worse,
)
from cudareduce.workers import Parent

_NO_LIBRARY = "no library could be timed, so no kernel was timed with them"
#: Patterns without NaN, infinities and signed zeros, for which libraries have different results.
_ORDINARY = ("exact", "random", "positive", "rising", "falling", "one-sided", "extremum", "tie",
             "spread", "factors", "lowest", "highest")  # fmt: skip
#: Tile size for patterns with extrema at tile edges, since the tiles of libraries are unknown.
_TILE = 4096
_LONGEST_VERSION = 40
_POISONS = (0xFF, 0x01)
_READER, _FLOOR = "reader ", "floor"
#: Inputs up to this size move to another address for each half round: by a random multiple, below
#: `_STEPS`, of `_STEP_BYTES`.
_MOVED_BYTES = 2**28
_STEPS, _STEP_BYTES = 2048, 512
#: Warm-up calls and timed calls for host times.
_WARM_CALLS, _CALLS = 3, 30


class LibraryRunner:
    """Runs jobs. Backend, inputs and loaded libraries stay open between jobs."""

    def __init__(self, parent: Parent) -> None:
        self.reporter, self.inputs, self.runtimes = Reporter(parent), Inputs(), Runtimes()
        self._opened: tuple[TimedBackend, DeviceTimer] | None = None

    def run(self, job: Job) -> Outcome:
        """Run a job. Raises BrokenError, OutOfMemory and EnvironmentProblem."""
        deadline = Deadline(job.deadline_s)
        if job.alone is not None:
            libraries = job.libraries()
            return Outcome(
                results={lib.name: self._run_own(job, lib, deadline) for lib in libraries}
            )
        if self._opened is None:
            backend = open_timed(job.spec)
            self._opened = backend, DeviceTimer(backend, backend.monitor())
        run = JobRun(self, job, *self._opened, deadline)
        run.verify_all()
        if not job.rounds or not any(map(run.is_right, run.results)):
            is_missed = job.rounds and job.kernels and not job.odd
            remarks = (_NO_LIBRARY,) if is_missed else ()
            return Outcome(results=self._with_remarks(run.results), remarks=remarks)
        passes, loaded = run.passes(), runtimes()
        remarks = (
            f"the libraries loaded {len(loaded)} CUDA runtimes into one process "
            f"({', '.join(loaded)}): name fewer with --peers where figures look odd",
        )
        return Outcome(
            results=self._with_remarks(run.results), kernels=run.kernels, passes=passes,
            remarks=remarks if len(loaded) > 1 else (),
        )  # fmt: skip

    def _with_remarks(self, results: Mapping[str, LibraryResult]) -> dict[str, LibraryResult]:
        remarks = self.runtimes.remarks
        return {
            name: replace(result, verdict=replace(result.verdict, reason=remarks[name]))
            if name in remarks and result.verdict.outcome == "pass" else result
            for name, result in results.items()
        }  # fmt: skip

    def _run_own(self, job: Job, library: Library, deadline: Deadline) -> LibraryResult:
        """Verify a library that uses its own context and streams; only host time is measured."""
        problem = job.problem_of(job.layouts[0])
        result = import_libraries([library], problem, self.reporter, self.runtimes, deadline)[
            library.name
        ]
        problems = [Problem(job.reduction, *shape) for shape in job.shapes[-job.requested :]]
        supported = [problem for problem in problems if not library.why_not(problem)]
        seeds = ("random", job.seed), (job.pattern, job.seed + 1)
        for problem, (pattern, seed) in product(supported, seeds):
            if result.verdict.outcome != "pass":
                break
            if deadline.passed:
                return replace(result, verdict=skipped("time", UNVERIFIED))
            plan = library_plan(library.name, problem)
            try:
                data = TimedData(pattern, job.reduction, problem.n, problem.rows, seed, [plan])
                verdict, host_us = self._call_own(library, problem, data, job.folder)
            except Exception as error:
                return replace(result, verdict=error_verdict(library, error))
            verdict = worse(result.verdict, verdict)
            result = replace(result, verdict=verdict, host_us=host_us if job.rounds else None)
        return result

    def _call_own(
        self, library: Library, problem: Problem, data: TimedData, folder: str
    ) -> tuple[Verdict, float]:
        """The verdict on one input (and on its variant if the library can replace its input), and
        the median host time of a call in us."""
        self.reporter.begin(library.name, "prepares")
        call = library.prepare(CallRequest(problem=problem, data=data.elements, folder=folder))
        assert call.fetch is not None
        times_us = []
        for k in range(_WARM_CALLS + _CALLS):
            start_s = perf_counter()
            call.run()
            if k >= _WARM_CALLS:
                times_us.append(1e6 * (perf_counter() - start_s))
            else:
                self.reporter.begin(library.name)
        verdict, plan = RIGHT, library_plan(library.name, problem)
        for number in (0, 1) if call.refill else (0,):
            if call.refill and number:
                data.place(number)
                call.refill()
                call.run()
            results = as_results(problem, call.fetch())
            verdict = worse(verdict, data.judged(plan, results, number) or RIGHT)
        return verdict, median(times_us)


def import_libraries(
    libraries: Sequence[Library], problem: Problem, reporter: Reporter, runtimes: Runtimes,
    deadline: Deadline | None = None,
) -> dict[str, LibraryResult]:  # fmt: skip
    """Import every library. Its result is a skip if it is not installed, does not support the
    problem, or was not tried before the deadline."""
    results = {}
    for library in libraries:
        reporter.begin(library.name, "imports")
        reason = library.why_not(problem)
        if reason:
            results[library.name] = LibraryResult(verdict=skipped("unfit", reason))
            continue
        result = LibraryResult(verdict=RIGHT, called=library.called(problem))
        if deadline is not None and deadline.passed:
            results[library.name] = replace(result, verdict=skipped("time", CUT))
            continue
        try:
            version = " ".join(str(library.load() or "").split())[:_LONGEST_VERSION]
            results[library.name] = replace(result, version=version or None)
        except Exception as error:
            results[library.name] = replace(result, verdict=import_verdict(library, error))
        runtimes.after(library)
    reporter.begin("")
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutInput:
    """One layout of the input (size, rows, alignment), with the plans and programs of the
    kernels and the libraries to time on it. `number` is its index in the job."""

    number: int
    layout: Layout
    problem: Problem
    data: TimedData
    plans: Mapping[int, Plan]
    programs: Mapping[int, Programs]
    libraries: tuple[Library, ...]


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A prepared call and its input. `kernel` is the index of a kernel, None for a library."""

    call: LibraryCall | Bound
    layout: int
    source: TimedInput
    kernel: int | None = None

    @property
    def name(self) -> str:
        if isinstance(self.call, LibraryCall):
            return keyed(self.call.library.name, self.layout)
        return keyed(kernel_name(self.call.plan), self.layout)

    def verdict(self) -> Verdict | None:
        """The verdict on the results of the last launch; None if the input cannot decide."""
        data, number = self.source.data, self.source.number
        return data.judged(self.call.plan, self.call.results(), number)


def plans_of(job: Job, number: int, limits: DeviceLimits) -> tuple[dict[int, Plan], dict[int, str]]:
    """Plans of the kernels that support layout `number`, and refusals of the others, by index."""
    if not number:
        return {index: plan for index, (_, plan) in enumerate(job.kernels)}, {}
    shape = job.layouts[number].shape(job.shapes[-1])
    plans: dict[int, Plan] = {}
    refusals: dict[int, str] = {}
    for index, case in enumerate(job.cases(number)):
        supported, refused = planned(case, [shape], limits)
        if job.layouts[number].offset and case.precondition.aligned:
            refusals[index] = f"is right if {ALIGNED}"
        elif shape in supported:
            plans[index] = supported[shape]
        else:
            refusals[index] = refused[shape]
    return plans, refusals


class JobRun:
    """Verifies the libraries of a job, then times the correct ones and the job's kernels on one new
    input.

    `results` holds the result of each library by name and layout, `kernels` the verdict on each
    kernel by index and layout. Wrong results of timed launches change both.
    """

    def __init__(
        self, worker: LibraryRunner, job: Job, backend: TimedBackend, timer: DeviceTimer,
        deadline: Deadline,
    ) -> None:  # fmt: skip
        self._worker, self._reporter, self._job = worker, worker.reporter, job
        self._backend, self._timer, self._deadline = backend, timer, deadline
        self._monitor = backend.monitor()
        self.results: dict[str, LibraryResult] = {}
        self.kernels: dict[tuple[int, int], Verdict] = {}
        self._inputs: list[LayoutInput] = []
        self._calls: dict[str, TimedCall] = {}
        self._no_graph: set[str] = set()
        self._kept: Context | None = None
        self._monitors: dict[str, ResultMonitor[str]] = {}

    def is_right(self, name: str) -> bool:
        return self.results[name].verdict.outcome == "pass"

    def verify_all(self) -> None:
        """Verify every library in every layout; of several layouts not the first, which an earlier
        job has verified. Raises BrokenError, and OutOfMemory if an input does not fit."""
        job = self._job
        if not job.odd:
            self._verify_layout(0, PLAIN)
            return
        problem = job.problem_of(job.layouts[0])
        self.results = import_libraries(
            job.libraries(), problem, self._reporter, self._worker.runtimes
        )
        for number, layout in enumerate(job.layouts[1:], 1):
            self._verify_layout(number, layout)

    def _verify_layout(self, number: int, layout: Layout) -> None:
        job, problem, libraries = self._job, self._job.problem_of(layout), self._job.libraries()
        results = import_libraries(
            libraries, problem, self._reporter, self._worker.runtimes, self._deadline
        )

        def set_verdict(library: Library, verdict: Verdict) -> None:
            results[library.name] = replace(results[library.name], verdict=verdict)

        def right() -> list[Library]:
            return [lib for lib in libraries if results[lib.name].verdict.outcome == "pass"]

        for library in right():
            reason = library.why_not_from(layout.offset * job.reduction.dtype.size)
            if reason:
                set_verdict(library, skipped("unfit", reason))
        decided: set[tuple[str, Shape]] = set()
        shapes = [layout.shape(shape) for shape in job.shapes]
        for shape in dict.fromkeys(shapes):
            for pattern in _patterns(job, shape):
                test_input = Input(pattern, *shape, job.seed, layout.offset)
                for library, verdict in self._verify(right(), test_input):
                    if verdict is not None:
                        decided.add((library.name, shape))
                        set_verdict(library, worse(results[library.name].verdict, verdict))
        for library in right():
            for shape in shapes[-job.requested :]:
                is_open = (library.name, shape) not in decided
                if is_open and not library.why_not(Problem(job.reduction, *shape)):
                    set_verdict(library, not_decided(shape[0]))
                    break
        self.results |= {keyed(name, number): result for name, result in results.items()}

    def _verify(
        self, libraries: Sequence[Library], test_input: Input
    ) -> list[tuple[Library, Verdict | None]]:
        """The verdicts on one input of the libraries that support its shape; None is undecided."""
        reduction, backend = self._job.reduction, self._backend
        problem = Problem(reduction, test_input.n, test_input.rows)
        taking = [library for library in libraries if library.why_not(problem) is None]
        if not taking or self._deadline.passed:
            return [(library, skipped("time", UNVERIFIED)) for library in taking]
        (elements, *_), ref = self._worker.inputs.of(test_input, reduction)
        data = TimedData(
            test_input.pattern, reduction, test_input.n, test_input.rows, test_input.seed,
            [library_plan(library.name, problem) for library in taking], elements,
        )  # fmt: skip
        timed = TimedInput(backend, self._timer, data, test_input.offset * reduction.dtype.size)
        verdicts: list[tuple[Library, Verdict | None]] = []
        try:
            for library in taking:
                if self._deadline.passed:
                    verdicts.append((library, skipped("time", UNVERIFIED)))
                    continue
                with open_memory(backend) as memory:
                    verdict = self._verdict(library, problem, test_input, timed, ref, memory)
                if not timed.restored():
                    verdict = Verdict("fail", f"{test_input}: {WROTE_INPUT}")
                verdicts.append((library, verdict))
        finally:
            timed.release()
            self._timer.release()
        return verdicts

    def _verdict(
        self, library: Library, problem: Problem, test_input: Input, timed: TimedInput,
        ref: Reference, memory: Memory,
    ) -> Verdict | None:  # fmt: skip
        """The verdict on one library, called once per poison of its results. A first call with the
        variant of the input exposes a library that returns a cached result."""
        verdict: Verdict | None = None
        self._reporter.begin(library.name, "prepares")
        try:
            call = self._prepare(library, problem, memory, timed)
            timed.turn_to(1)
            call.run()  # it may compile at its first call
            call.results()
            timed.turn_to(0)
            self._reporter.begin(library.name)
            for poison in _POISONS:
                call.poison(poison)
                call.run()
                new = judge(call.plan, call.results(), ref, test_input.pattern)
                damage = call.damage()
                if damage:
                    new = Verdict("fail", damage)
                if new is not None:
                    verdict = worse(verdict or RIGHT, new)
        except Exception as error:
            verdict = verdict_on(library, error, self._backend)
        if verdict is None:
            return None
        if verdict.outcome == "fail":
            verdict = replace(verdict, reason=f"{test_input}: {verdict.reason}")
        return replace(verdict, effort=test_input.effort + Effort(launches=1 + len(_POISONS)))

    def _prepare(
        self, library: Library, problem: Problem, memory: Memory, source: TimedInput
    ) -> LibraryCall:
        elements, folder = source.data.elements, self._job.folder
        return memory.prepare(library, problem, elements, source.buffer, folder)

    def _layout_inputs(self) -> list[LayoutInput]:
        """The input of each layout. Layouts of the same size share their data."""
        job, limits = self._job, self._backend.limits()
        data: dict[Problem, TimedData] = {}
        inputs = []
        for number, layout in enumerate(job.layouts):
            problem, known = job.problem_of(layout), job.cases(number)
            plans, _ = plans_of(job, number, limits)
            if problem not in data:
                data[problem] = TimedData(
                    job.pattern, job.reduction, problem.n, problem.rows, job.seed + 1,
                    [library_plan("", problem), *plans.values()],
                )  # fmt: skip
            programs = programs_of(self._backend, {known[k]: plan for k, plan in plans.items()})
            libraries = tuple(
                library for library in job.libraries()
                if not library.host_only and self.is_right(keyed(library.name, number))
            )  # fmt: skip
            inputs.append(LayoutInput(
                number=number, layout=layout, problem=problem, data=data[problem], plans=plans,
                programs={index: programs[known[index]] for index in plans}, libraries=libraries,
            ))  # fmt: skip
        return inputs

    def passes(self) -> dict[str, Pass]:
        """Time by each method, then check for unfinished work, count distinct results, and measure
        energy and host times. Raises BrokenError, OutOfMemory and EnvironmentProblem."""
        methods, deadline = self._job.methods, self._deadline
        self._reporter.begin("", "prepares")
        self._inputs = self._layout_inputs()
        self.kernels = {
            (index, inputs.number): RIGHT for inputs in self._inputs for index in inputs.plans
        }
        passes: dict[str, Pass] = {}
        with ExitStack() as stack:
            if max(inputs.data.elements.nbytes for inputs in self._inputs) > _MOVED_BYTES:
                self._kept = stack.enter_context(self._context())
            if any(method.graph for method in methods):
                self._capture()
            for k, method in enumerate(methods):
                passes[method.label] = self._pass(method, deadline.share(len(methods) - k))
            if not deadline.passed and not self._job.odd:
                with self._context() as context:
                    timings = (pair for each in passes.values() for pair in each.timings.items())
                    costs = {name: timing.median_us for name, timing in timings}
                    if self._job.energy:
                        energy = self._joules(costs, context)
                        passes = {k: replace(each, joules=energy) for k, each in passes.items()}
                    self._repeat(costs)
                    for library in self._job.libraries():
                        is_timed = library.host_only and self.is_right(library.name)
                        if is_timed and not deadline.passed:
                            self._time_host(library)
        return passes

    @contextmanager
    def _context(self, keep_cache: bool = False) -> Iterator[Context]:
        """A timing context. Small inputs get a new one, with input, results and workspaces at new
        addresses; large ones share one."""
        if self._kept is not None:
            yield self._kept
            return
        backend, timer = self._backend, self._timer
        with open_memory(backend) as memory, ExitStack() as stack:
            memory.keep(backend.allocate(_STEP_BYTES * Random().randrange(1, _STEPS)))
            launches: dict[str, Launch] = {_FLOOR: lambda: None}
            self._calls = {}
            for layout in self._inputs:
                number = layout.number
                offset = layout.layout.offset * self._job.reduction.dtype.size
                source = TimedInput(backend, timer, layout.data, offset)
                stack.callback(source.release)
                if not number:
                    self._first = source
                    readers = timer.readers(source.buffer)
                    launches |= {_READER + name: run for name, run in readers.items()}
                for index, plan in layout.plans.items():
                    kernel = Bound(backend, plan, layout.programs[index], source.buffer)
                    stack.callback(kernel.release)
                    key = keyed(f"kernel {index}", number)
                    self._calls[key] = TimedCall(kernel, number, source, index)
                for library in layout.libraries:
                    call = self._prepared(library, layout, memory, source)
                    self._calls[keyed(library.name, number)] = TimedCall(call, number, source)
            launches |= {key: timed.call.run for key, timed in self._calls.items()}
            _ = timer.flush  # allocates
            launches = {key: self._with_heartbeat(key, run) for key, run in launches.items()}
            others = OwnBuffers({key: timed.call for key, timed in self._calls.items()}, timer)
            self._monitors = {
                key: ResultMonitor(
                    key, timed.call, timed.source, others, timer, keep_cache=keep_cache
                )
                for key, timed in self._calls.items()
            }
            self._reporter.begin_timing()
            yield Context(timer, launches, self._monitors)
            backend.finish()
            timer.release()

    def _with_heartbeat(self, key: str, run: Launch) -> Launch:
        call = self._calls[key].call if key in self._calls else None
        name = call.library.name if isinstance(call, LibraryCall) else key
        return self._reporter.with_heartbeat(name, run)

    def _prepared(
        self, library: Library, layout: LayoutInput, memory: Memory, source: TimedInput
    ) -> LibraryCall:
        """Prepare and warm up a library call. Raises BrokenError if this fails, so that the job
        starts again without the library."""
        self._reporter.begin(library.name, "prepares")
        try:
            call = self._prepare(library, layout.problem, memory, source)
            call.run()  # it may compile at its first call
            self._backend.synchronize()
        except Exception as error:
            verdict = verdict_on(library, error, self._backend)
            raise BrokenError(library.name, verdict) from error
        return call

    def _pass(self, method: Method, deadline: Deadline) -> Pass:
        others = max(0, self._monitor.other_processes() - self._job.ours)
        names: dict[str, str] = {}

        @contextmanager
        def judged() -> Iterator[Context]:
            """A timing context for half a round. At its end, adds the verdicts of the result
            monitors to those of libraries and kernels."""
            with self._context(keep_cache=not method.cold) as context:
                names.update((key, timed.name) for key, timed in self._calls.items())
                left = self._no_graph if method.graph else set[str]()
                runs = {name: run for name, run in context.entrants.items() if name not in left}
                yield Context(context.timer, runs, context.watches) if left else context
                for key, timed in self._calls.items():
                    self._add_verdict(timed, self._monitors[key].verdict)

        try:
            measured = measure(
                judged, self._job.rounds, method, self._reporter.round_done,
                deadline=deadline, alone=(_FLOOR,), most=self._job.most,
            )  # fmt: skip
        except BrokenError:
            raise
        except Exception as error:
            raise self._attributed(error) from error
        timings = dict(measured.timings)
        timings.pop(_FLOOR, None)
        readers = [timings.pop(name) for name in list(timings) if name.startswith(_READER)]
        late = [names[name] for name in measured.lost if name in names]
        notes = list(remarks(measured, self._job.max_time_s, others))
        if late:
            notes.append(
                f"no launch of {', '.join(late)} was enqueued while the GPU was busy: it waits for "
                "the device, or takes the host too long"
            )
        return Pass(
            timings={names[name]: timing for name, timing in timings.items()},
            ceiling=min(readers, key=lambda timing: timing.median_us, default=None),
            conditions=over(measured.conditions), remarks=tuple(notes),
            story={
                "timing": method.label, "contexts": measured.contexts,
                "repeated": measured.repeated, "steady": measured.steady,
                "rounds": [asdict(state) for state in measured.conditions],
            },
        )  # fmt: skip

    def _attributed(self, error: Exception) -> Exception:
        """The error as BrokenError of the library that was launched last, if there is one."""
        last = self._reporter.last
        for library in (library for inputs in self._inputs for library in inputs.libraries):
            if library.name == last:
                return BrokenError(last, verdict_on(library, error, self._backend))
        return error

    def _add_verdict(self, timed: TimedCall, new: Verdict) -> None:
        if new.outcome == "fail":
            new = replace(new, reason=f"after timing: {new.reason}")
        if timed.kernel is not None:
            key = timed.kernel, timed.layout
            self.kernels[key] = worse(self.kernels[key], new)
            return
        result = self.results[timed.name]
        self.results[timed.name] = replace(result, verdict=worse(result.verdict, new))

    def _capture(self) -> None:
        """Find the libraries that cannot be captured in a CUDA graph: those whose capture fails, or
        whose replay has a wrong result. Raises BrokenError if the device is unusable afterwards."""
        with self._context() as context:
            for key, timed in self._calls.items():
                call, reason = timed.call, None
                if not isinstance(call, LibraryCall):
                    continue
                self._reporter.begin(call.library.name, "prepares")
                timed.source.restored()  # preparing another call may have changed it
                try:
                    replay = context.timer.captured(call.run, 1)
                    call.poison()
                    replay()
                    verdict = timed.verdict()
                    if verdict is not None and verdict.outcome == "fail":
                        reason = "does its work outside of the captured graph"
                except Exception as error:
                    verdict_on(call.library, error, self._backend)
                    inner = error.__context__  # the error of the call, not of the empty capture
                    cause = inner if isinstance(inner, Exception) else error
                    reason = f"cannot be captured in a graph ({error_line(cause)})"
                if reason:
                    self._no_graph.add(key)
                    self.results[timed.name] = replace(self.results[timed.name], no_graph=reason)

    def _joules(self, costs: Mapping[str, float], context: Context) -> dict[str, float]:
        energy: dict[str, float] = {}
        for key, timed in self._calls.items():
            if timed.name in costs and not self._deadline.passed:
                run, counter = context.entrants[key], self._monitor.energy_j
                self._reporter.begin(timed.name if timed.kernel is None else "")
                spent = joules(self._timer, run, costs[timed.name], counter)
                energy |= {} if spent is None else {timed.name: spent}
        return energy

    def _repeat(self, costs: Mapping[str, float]) -> None:
        """Check for unfinished work, and count the distinct results of repeated launches."""
        for timed in self._calls.values():
            call, name, source = timed.call, timed.name, timed.source
            if not isinstance(call, LibraryCall) or name not in costs or self._deadline.passed:
                continue
            self._reporter.begin(name)
            source.restored()
            wrong = find_unfinished_work(self._timer, call.run, costs.get(name, inf))
            if wrong:
                self._add_verdict(timed, Verdict("fail", wrong))
            distinct, launches = distinct_results(call, costs[name], source)
            self._add_verdict(timed, replace(RIGHT, distinct=distinct, launches=launches))
            if not source.restored():
                self._add_verdict(timed, Verdict("fail", WROTE_INPUT))

    def _time_host(self, library: Library) -> None:
        """Measure the median host time of a call after a cache flush, with alternating inputs, and
        verify each result. Raises BrokenError."""
        self._reporter.begin(library.name, "prepares")
        backend, layout, source = self._backend, self._inputs[0], self._first
        verdict, times_us = RIGHT, list[float]()
        source.restored()  # an earlier call may have changed it
        with open_memory(backend) as memory:
            try:
                call = self._prepare(library, layout.problem, memory, source)
                timed = TimedCall(call, 0, source)
                for k in range(_WARM_CALLS + _CALLS):
                    source.turn_to(1 - k % 2)
                    self._timer.flush()
                    backend.synchronize()
                    start_us = backend.host_us()
                    call.run()
                    if k >= _WARM_CALLS:
                        times_us.append(backend.host_us() - start_us)
                    verdict = worse(verdict, timed.verdict() or RIGHT)
            except Exception as error:
                verdict = verdict_on(library, error, backend)
        if not source.restored():
            verdict = Verdict("fail", WROTE_INPUT)
        result = self.results[library.name]
        self.results[library.name] = replace(
            result, verdict=worse(result.verdict, verdict),
            host_us=median(times_us) if times_us and verdict.outcome == "pass" else None,
        )  # fmt: skip


def _patterns(job: Job, shape: Shape) -> list[str]:
    """The patterns to verify a shape with; only the first for large inputs and further layouts."""
    if job.only:
        return [job.only]
    n, rows = shape
    names = patterns_for(job.reduction, n, _TILE)
    names = [name for name in names if name.partition(":")[0] in _ORDINARY]
    return names[:1] if n * rows > SMALL or job.odd else names
