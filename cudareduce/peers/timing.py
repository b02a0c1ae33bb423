"""Times libraries and kernels in the same rounds, in the primary context of one process.

The context stays the same, since libraries require it. Small inputs move to another address for
each half round, as in fresh contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import inf
from random import Random
from statistics import median

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound as KernelBound
from cudareduce.launch.case import Programs, planned, programs_of
from cudareduce.launch.plan import Plan, Problem
from cudareduce.library.condition import ALIGNED
from cudareduce.machine.device import DeviceLimits
from cudareduce.peers.contract import Library
from cudareduce.peers.job import (
    Bound,
    BrokenError,
    Job,
    Layout,
    LibraryResult,
    Memory,
    Pass,
    Reporter,
    kernel_name,
    keyed,
    line,
    memory,
    plan_for,
    verdict_on,
)
from cudareduce.timing.rounds import Context, measure, over, remarks
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer, joules, late_work
from cudareduce.verify.patterns import repeats
from cudareduce.verify.result_monitor import OwnBuffers, ResultMonitor, TimedData, TimedInput
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, worse


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutInput:
    """The input of one layout by its `number`, with the plans of kernels by index and the libraries
    that support it."""

    number: int
    layout: Layout
    problem: Problem
    data: TimedData
    plans: Mapping[int, Plan]
    peers: tuple[Library, ...]

    def upload(self, backend: TimedBackend, timer: DeviceTimer) -> TimedInput:
        """The input on the device. Raises OutOfMemory."""
        size = self.problem.reduction.dtype.size
        return TimedInput(backend, timer, self.data, self.layout.offset * size)


@dataclass(frozen=True, slots=True)
class TimedCall:
    """A call with its buffers and input: of a library, or of the kernel with the index `place`."""

    bound: Bound | KernelBound
    laid: LayoutInput
    given: TimedInput
    place: int | None = None

    @property
    def name(self) -> str:
        """The name reported to the parent."""
        if isinstance(self.bound, KernelBound):
            return keyed(kernel_name(self.bound.plan), self.laid.number)
        return keyed(self.bound.peer.name, self.laid.number)

    def verdict(self) -> Verdict | None:
        """The verdict on its results; None if the input cannot decide."""
        data, number = self.given.data, self.given.number
        return data.judged(self.bound.plan, self.bound.answers(), number)


def plans_of(job: Job, number: int, limits: DeviceLimits) -> tuple[dict[int, Plan], dict[int, str]]:
    """Plans of the kernels that support a layout, by index, and why the others do not."""
    if not number:
        return {place: plan for place, (_, plan) in enumerate(job.kernels)}, {}
    shape = job.layouts[number].shape(job.shapes[-1])
    plans: dict[int, Plan] = {}
    refusals: dict[int, str] = {}
    for place, case in enumerate(job.cases(number)):
        made, refused = planned(case, [shape], limits)
        if job.layouts[number].offset and case.asks.aligned:
            refusals[place] = f"is right if {ALIGNED}"
        elif shape in made:
            plans[place] = made[shape]
        else:
            refusals[place] = refused[shape]
    return plans, refusals


def layout_inputs(
    job: Job, found: Mapping[str, LibraryResult], limits: DeviceLimits
) -> list[LayoutInput]:
    """The inputs of a job by layout, with the libraries that were right and have device times."""
    inputs: dict[Problem, TimedData] = {}
    made = []
    for number, layout in enumerate(job.layouts):
        problem = job.problem_of(layout)
        plans, _ = plans_of(job, number, limits)
        if problem not in inputs:
            all_plans = [plan_for("", problem), *plans.values()]
            inputs[problem] = TimedData(
                job.pattern, job.reduction, problem.n, problem.rows, job.seed + 1, all_plans
            )
        peers = tuple(
            peer for peer in job.libraries()
            if not peer.host_only and found[keyed(peer.name, number)].verdict.outcome == "pass"
        )  # fmt: skip
        made.append(LayoutInput(
            number=number, layout=layout, problem=problem, data=inputs[problem], plans=plans,
            peers=peers,
        ))  # fmt: skip
    return made


#: Calls that are not counted, and calls that are.
WARM_CALLS, CALLS = 3, 30


def called(
    backend: TimedBackend, timer: DeviceTimer, peer: Library, laid: LayoutInput, given: TimedInput,
    folder: str,
) -> tuple[Verdict, float | None]:  # fmt: skip
    """A verdict on calls with alternating inputs, and the median host time of a call after a cache
    flush in microseconds, None if a result is wrong. Raises BrokenError."""
    verdict, taken = RIGHT, []
    given.restored()  # an earlier call may have changed it
    with memory(backend) as held:
        try:
            data = laid.data.elements
            tied = TimedCall(held.bind(peer, laid.problem, data, given.buffer, folder), laid, given)
            for k in range(WARM_CALLS + CALLS):
                given.turn_to(1 - k % 2)
                timer.displace()
                backend.synchronize()
                began = backend.host_us()
                tied.bound.run()
                if k >= WARM_CALLS:
                    taken.append(backend.host_us() - began)
                verdict = worse(verdict, tied.verdict() or RIGHT)
        except Exception as error:
            verdict = verdict_on(peer, error, backend)
    if not given.restored():
        verdict = Verdict("fail", WROTE_INPUT)
    return verdict, median(taken) if taken and verdict.outcome == "pass" else None


def uncaptured(
    timer: DeviceTimer, backend: TimedBackend, one: Bound,
    judged: Callable[[], Verdict | None],
) -> str | None:  # fmt: skip
    """Why a call cannot be captured in a CUDA graph; None if the replay gives the right result.
    Raises BrokenError if the device is unusable after it."""
    try:
        replay = timer.captured(one.run, 1)
        one.poison()
        replay()
        verdict = judged()
    except Exception as error:
        verdict_on(one.peer, error, backend)  # raises if the device is unusable
        inner = error.__context__  # the error of the call, not that of the empty capture
        why = inner if isinstance(inner, Exception) else error
        return f"is not captured in a graph ({line(why)})"
    if verdict is not None and verdict.outcome == "fail":
        return "does its work elsewhere than in the graph that is captured of it"
    return None


_READER, _FLOOR = "reader ", "floor"
#: Inputs up to this size move to another address for each half round.
_MOVED_BYTES = 2**28
_STEPS, _STEP_BYTES = 2048, 512


class LibraryTiming:
    """The right peers of a job and its kernels, timed on one fresh input. `found` has a verdict on
    each peer, `kernels` on each kernel by its place, of each layout; both are what they are worth
    after timing."""

    def __init__(
        self,
        job: Job,
        backend: TimedBackend,
        timer: DeviceTimer,
        reporter: Reporter,
        found: Mapping[str, LibraryResult],
        deadline: Deadline,
    ) -> None:
        self._job, self._backend, self._timer, self._reporter = job, backend, timer, reporter
        self._deadline = deadline
        self.found = dict(found)
        self._layouts = layout_inputs(job, found, backend.limits())
        self.kernels: dict[tuple[int, int], Verdict] = {
            (place, laid.number): RIGHT for laid in self._layouts for place in laid.plans
        }
        self._monitor: Monitor = backend.monitor()
        reporter.at("", "prepares")
        self._programs = [self._built(laid) for laid in self._layouts]
        self._calls: dict[str, TimedCall] = {}
        self._no_graph: dict[str, str] = {}
        self._kept: Context[DeviceTimer] | None = None
        self._start: TimedInput | None = None
        self._monitors: dict[str, ResultMonitor[str]] = {}

    def _built(self, laid: LayoutInput) -> Mapping[int, Programs]:
        """The programs of kernels of one layout, which may contain its element count."""
        known = self._job.cases(laid.number)
        cases = {place: known[place] for place in laid.plans}
        built = programs_of(self._backend, {cases[k]: plan for k, plan in laid.plans.items()})
        return {place: built[case] for place, case in cases.items()}

    def passes(self) -> dict[str, Pass]:
        """A pass by each method; then unfinished work, distinct results and host times. Raises
        BrokenError, OutOfMemory and EnvironmentProblem."""
        methods, deadline = self._job.methods, self._deadline
        passes: dict[str, Pass] = {}
        with ExitStack() as stack:
            if max(laid.data.elements.nbytes for laid in self._layouts) > _MOVED_BYTES:
                self._kept = stack.enter_context(self._prepared_context(keep_cache=False))
            if any(method.graph for method in methods):
                self._capture()
            for k, method in enumerate(methods):
                passes[method.label] = self._pass(method, deadline.share(len(methods) - k))
            if not deadline.passed and not self._job.odd:
                with self._context() as context:
                    if self._job.energy:
                        passes = self._counted(passes, context)
                    self._repeat(passes)
                    for peer in self._job.libraries():
                        right = self.found[peer.name].verdict.outcome == "pass"
                        if peer.host_only and right and not deadline.passed:
                            self._call(peer)
        return passes

    def _capture(self) -> None:
        """Why libraries cannot be captured in a graph, by name."""
        with self._context() as context:
            for key, one in self._calls.items():
                if isinstance(one.bound, Bound):
                    self._reporter.at(one.bound.peer.name, "prepares")
                    one.given.restored()  # preparing another call may have changed it
                    why = uncaptured(context.timer, self._backend, one.bound, one.verdict)
                    if why:
                        self._no_graph[key] = why
                        self.found[one.name] = replace(self.found[one.name], no_graph=why)

    def _pass(self, method: Method, deadline: Deadline) -> Pass:
        others = max(0, self._monitor.other_processes() - self._job.ours)
        names: dict[str, str] = {}

        @contextmanager
        def judged() -> Iterator[Context[DeviceTimer]]:
            """A context for half a round, after which its results are judged."""
            with self._context(keep_cache=not method.cold) as context:
                names.update((key, one.name) for key, one in self._calls.items())
                left = self._no_graph if method.graph else {}
                runs = {name: r for name, r in context.entrants.items() if name not in left}
                yield Context(context.timer, runs, context.watches) if left else context
                for key, one in self._calls.items():
                    self._add_verdict(one, self._monitors[key].verdict)

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
        said = list(remarks(measured, self._job.max_time_s, others))
        if late:
            said.append(
                f"no launch of {', '.join(late)} was enqueued while the GPU was busy: it waits for "
                "the device, or takes the host too long"
            )
        return Pass(
            timings={names[name]: timing for name, timing in timings.items()},
            ceiling=min(readers, key=lambda timing: timing.median_us, default=None),
            conditions=over(measured.conditions), remarks=tuple(said),
            story={
                "timing": method.label, "contexts": measured.contexts,
                "repeated": measured.repeated, "steady": measured.steady,
                "rounds": [asdict(state) for state in measured.conditions],
            },
        )  # fmt: skip

    def _attributed(self, error: Exception) -> Exception:
        """The error, attributed to the library of the last launch if there is one."""
        last = self._reporter.last
        peer = next(
            (peer for laid in self._layouts for peer in laid.peers if peer.name == last), None
        )
        if peer is None:
            return error
        return BrokenError(peer.name, verdict_on(peer, error, self._backend))

    def _context(self, keep_cache: bool = False) -> AbstractContextManager[Context[DeviceTimer]]:
        return (
            nullcontext(self._kept)
            if self._kept is not None
            else self._prepared_context(keep_cache)
        )

    @contextmanager
    def _prepared_context(self, keep_cache: bool) -> Iterator[Context[DeviceTimer]]:
        """A timing context with input, results and workspaces at new addresses."""
        backend = self._backend
        with memory(backend) as held, ExitStack() as stack:
            held.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
            entrants: dict[str, Launch] = {_FLOOR: lambda: None}
            self._calls = {}
            for laid in self._layouts:
                given = laid.upload(backend, self._timer)
                stack.callback(given.release)
                if not laid.number:
                    self._start = given
                    readers = self._timer.readers(given.buffer)
                    entrants |= {_READER + name: run for name, run in readers.items()}
                for place, plan in laid.plans.items():
                    programs = self._programs[laid.number][place]
                    kernel = KernelBound(backend, plan, programs, given.buffer)
                    stack.callback(kernel.release)
                    key = keyed(f"kernel {place}", laid.number)
                    self._calls[key] = TimedCall(kernel, laid, given, place)
                for peer in laid.peers:
                    bound = self._bound(peer, laid, held, given)
                    self._calls[keyed(peer.name, laid.number)] = TimedCall(bound, laid, given)
            entrants |= {key: one.bound.run for key, one in self._calls.items()}
            _ = self._timer.displace  # allocates
            launches = {key: self._reported(key, run) for key, run in entrants.items()}
            self._monitors = self._result_monitors(keep_cache)
            self._reporter.times()
            yield Context(self._timer, launches, self._monitors)
            backend.finish()
            self._timer.release()

    def _result_monitors(self, keep_cache: bool) -> dict[str, ResultMonitor[str]]:
        """The result monitor of each call."""
        others = OwnBuffers({key: one.bound for key, one in self._calls.items()}, self._timer)
        return {
            key: ResultMonitor(
                key, one.bound, one.given, others, self._timer, keep_cache=keep_cache
            )
            for key, one in self._calls.items()
        }

    def _reported(self, key: str, run: Launch) -> Launch:
        """A launch that reports the name of its library or kernel."""
        one = self._calls.get(key)
        bound = one.bound if one else None
        return self._reporter.reported(bound.peer.name if isinstance(bound, Bound) else key, run)

    def _bound(self, peer: Library, laid: LayoutInput, held: Memory, given: TimedInput) -> Bound:
        """A library call; if it cannot be prepared any more, rounds start again without it."""
        self._reporter.at(peer.name, "prepares")
        try:
            data = laid.data.elements
            bound = held.bind(peer, laid.problem, data, given.buffer, self._job.folder)
            bound.run()  # it may compile at its first call
            self._backend.synchronize()
        except Exception as error:
            verdict = verdict_on(peer, error, self._backend)
            raise BrokenError(peer.name, verdict) from error
        return bound

    def _add_verdict(self, one: TimedCall, new: Verdict) -> None:
        if new.outcome == "fail":
            new = replace(new, reason=f"after timing: {new.reason}")
        if one.place is not None:
            at = one.place, one.laid.number
            self.kernels[at] = worse(self.kernels[at], new)
            return
        found = self.found[one.name]
        self.found[one.name] = replace(found, verdict=worse(found.verdict, new))

    def _counted(
        self, passes: Mapping[str, Pass], context: Context[DeviceTimer]
    ) -> dict[str, Pass]:
        """The passes with the energy per launch."""
        costs = {name: t.median_us for one in passes.values() for name, t in one.timings.items()}
        found: dict[str, float] = {}
        for key, tied in self._calls.items():
            if tied.name in costs and not self._deadline.passed:
                run, counter = context.entrants[key], self._monitor.energy_j
                self._reporter.at(tied.name if tied.place is None else "")
                took = joules(self._timer, run, costs[tied.name], counter)
                found |= {} if took is None else {tied.name: took}
        return {label: replace(one, joules=found) for label, one in passes.items()}

    def _repeat(self, passes: Mapping[str, Pass]) -> None:
        """Check for unfinished work, and count the distinct results of ten launches."""
        costs = {name: t.median_us for one in passes.values() for name, t in one.timings.items()}
        for tied in self._calls.values():
            one, name = tied.bound, tied.name
            if not isinstance(one, Bound) or name not in costs or self._deadline.passed:
                continue
            self._reporter.at(name)
            tied.given.restored()
            wrong = late_work(self._timer, one.run, costs.get(name, inf))
            if wrong:
                self._add_verdict(tied, Verdict("fail", wrong))
            launches = repeats(costs[name])
            seen = set()
            for _ in range(launches):
                one.poison()
                one.run()
                seen.add(one.answers().tobytes())
            self._add_verdict(tied, replace(RIGHT, distinct=len(seen), launches=launches))
            if not tied.given.restored():
                self._add_verdict(tied, Verdict("fail", WROTE_INPUT))

    def _call(self, peer: Library) -> None:
        """What a call as people make it takes the host."""
        self._reporter.at(peer.name, "prepares")
        assert self._start is not None
        verdict, host_us = called(
            self._backend, self._timer, peer, self._layouts[0], self._start, self._job.folder
        )
        found = self.found[peer.name]
        self.found[peer.name] = replace(
            found, verdict=worse(found.verdict, verdict), host_us=host_us
        )
