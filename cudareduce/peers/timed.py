"""Libraries and kernels in the same rounds, in the primary context of one process.

A round is what it is elsewhere; the context stays, since libraries insist on it, and the buffers
move: each half round has its own, at other addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cached_property
from math import inf
from random import Random
from statistics import median

from cudareduce.backend import Buffer, Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound as KernelBound
from cudareduce.launch.case import programs_of
from cudareduce.launch.plan import Plan
from cudareduce.peers.contract import Peer
from cudareduce.peers.job import Found, Job, Pass, case_of, plan_of
from cudareduce.peers.scene import Bound, BrokenError, Memory, Teller, memory, verdict_on
from cudareduce.problem.inputs import Array, make
from cudareduce.problem.reference import Reference, reference
from cudareduce.timing.contexts import Context
from cudareduce.timing.late_work import late_work
from cudareduce.timing.remarks import remarks
from cudareduce.timing.rounds import measure, over
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.inputs import repeats
from cudareduce.verify.verdict import RIGHT, Verdict, judge, worse

_KERNEL, _READER, _FLOOR = "kernel ", "reader ", "floor"
#: Inputs up to this move with each half round, as in fresh contexts.
_MOVED_BYTES = 2**28
_STEPS, _STEP_BYTES = 2048, 512
#: Calls as people make them: some that are not counted, and some that are.
WARM_CALLS, CALLS = 3, 30


class Trial:
    """The right peers of a job and its kernels, timed on one fresh input. `found` has a verdict on
    each peer, `kernels` on each kernel by its place; both are what they are worth after timing."""

    def __init__(
        self,
        job: Job,
        backend: TimedBackend,
        timer: DeviceTimer,
        teller: Teller,
        found: Mapping[str, Found],
    ) -> None:
        self._job, self._backend, self._timer, self._teller = job, backend, timer, teller
        self.found = dict(found)
        self.kernels: dict[int, Verdict] = dict.fromkeys(range(len(job.kernels)), RIGHT)
        right = [p for p in job.peers() if found[p.name].verdict.outcome == "pass"]
        self._peers = [peer for peer in right if not peer.host_only]
        self._callers = [peer for peer in right if peer.host_only]
        problem = job.problem
        self._data = make(job.pattern, job.reduction, problem.n, problem.rows, job.seed + 1)
        self._monitor: Monitor = backend.monitor()
        teller.at("", prepares=True)
        self._programs = programs_of(backend, dict(job.kernels))
        self._tied: dict[str, Bound | KernelBound] = {}
        self._kept: Context[DeviceTimer] | None = None
        self._start: Buffer | None = None

    def passes(self) -> dict[str, Pass]:
        """A pass by each method; then what launches leave, and what calls cost the host. Raises
        BrokenError, OutOfMemory and EnvironmentProblem."""
        methods, deadline = self._job.methods, Deadline(self._job.deadline_s)
        passes: dict[str, Pass] = {}
        with ExitStack() as stack:
            if self._data.nbytes > _MOVED_BYTES:
                self._kept = stack.enter_context(self._place())
            for k, method in enumerate(methods):
                passes[method.label] = self._pass(method, deadline.share(len(methods) - k))
            if not deadline.passed:
                with self._context():
                    self._repeat(passes)
                    for peer in self._callers:
                        self._call(peer)
            if self._kept is not None:
                self._judge()
        return passes

    def _pass(self, method: Method, deadline: Deadline) -> Pass:
        others = max(0, self._monitor.other_processes() - 1)  # but for the one that began this
        try:
            measured = measure(
                self._judged, self._job.rounds, method, lambda: self._teller.say(("round",)),
                deadline=deadline, alone=(_FLOOR,),
            )  # fmt: skip
        except BrokenError:
            raise
        except Exception as error:
            raise self._blamed(error) from error
        timings = dict(measured.timings)
        timings.pop(_FLOOR, None)
        readers = [timings.pop(name) for name in list(timings) if name.startswith(_READER)]
        late = [self._known(name) for name in measured.lost if name in self._tied]
        said = list(remarks(measured, self._job.deadline_s, others))
        if late:
            said.append(
                f"no launch of {', '.join(late)} was enqueued while the GPU was busy: it waits for "
                "the device, or takes the host too long"
            )
        return Pass(
            timings={self._known(name): timing for name, timing in timings.items()},
            ceiling=min(readers, key=lambda timing: timing.median_us, default=None),
            conditions=over(measured.conditions), remarks=tuple(said),
            story={
                "timing": method.label, "contexts": measured.contexts,
                "repeated": measured.repeated, "steady": measured.steady,
                "rounds": [asdict(state) for state in measured.conditions],
            },
        )  # fmt: skip

    def _known(self, name: str) -> str:
        """What the parent knows an entrant by: a kernel by its id."""
        if not name.startswith(_KERNEL):
            return name
        case, _ = self._job.kernels[int(name.removeprefix(_KERNEL))]
        return case.kernel.id

    def _blamed(self, error: Exception) -> Exception:
        """The error, as that of the peer whose launch was the last."""
        peer = next((peer for peer in self._peers if peer.name == self._teller.last), None)
        if peer is None:
            return error
        return BrokenError(peer.name, verdict_on(peer, error, self._backend))

    def _context(self) -> AbstractContextManager[Context[DeviceTimer]]:
        return nullcontext(self._kept) if self._kept is not None else self._place()

    @contextmanager
    def _judged(self) -> Iterator[Context[DeviceTimer]]:
        """A place for half a round, and a look at what it has left there."""
        with self._context() as context:
            yield context
            if self._kept is None:
                self._judge()

    @contextmanager
    def _place(self) -> Iterator[Context[DeviceTimer]]:
        """The input, answers and workspaces somewhere else than before, and what runs there."""
        backend = self._backend
        with memory(backend) as held, ExitStack() as stack:
            held.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
            start = self._start = backend.upload(self._data)
            held.held.append(start)
            entrants: dict[str, Launch] = {_FLOOR: lambda: None}
            readers = self._timer.readers(start)
            entrants |= {_READER + name: run for name, run in readers.items()}
            self._tied = {}
            for k, (case, plan) in enumerate(self._job.kernels):
                kernel = KernelBound(backend, plan, self._programs[case], start)
                stack.callback(kernel.release)
                self._tied[f"{_KERNEL}{k}"] = kernel
                entrants[f"{_KERNEL}{k}"] = kernel.run
            for peer in self._peers:
                bound = self._bound(peer, held, start)
                self._tied[peer.name], entrants[peer.name] = bound, bound.ready.run
            _ = self._timer.displace  # allocates
            told = {name: self._teller.told(name, run) for name, run in entrants.items()}
            self._teller.say(("times", tuple(self._teller.names)))
            yield Context(self._timer, told)
            backend.finish()

    def _bound(self, peer: Peer, held: Memory, start: Buffer) -> Bound:
        """A peer's call. Without one that cannot be prepared any more, rounds begin anew."""
        self._teller.at(peer.name, prepares=True)
        try:
            bound = held.bind(peer, self._job.problem, self._data, start, self._job.folder)
            bound.ready.run()  # what compiles at its first call
            self._backend.synchronize()
        except Exception as error:
            verdict = verdict_on(peer, error, self._backend)
            raise BrokenError(peer.name, verdict) from error
        return bound

    @cached_property
    def _ref(self) -> Reference:
        return reference(self._job.reduction, self._data, self._job.problem.rows)

    def _plan(self, one: Bound | KernelBound) -> Plan:
        if isinstance(one, KernelBound):
            return one.plan
        return plan_of(case_of(one.peer, self._job.reduction), one.problem)

    def _answers(self, one: Bound | KernelBound) -> Array:
        return one.answers() if isinstance(one, KernelBound) else one.answers(self._backend)

    def _judge(self) -> None:
        """Look at the answers that the last launches have left."""
        for name, one in self._tied.items():
            plan = self._plan(one)
            shape = plan.problem.n, plan.problem.rows
            ref = self._ref
            if shape != (self._job.problem.n, self._job.problem.rows):  # a warp kernel's own rows
                ref = reference(self._job.reduction, self._data, shape[1])
            verdict = judge(plan, self._answers(one), ref, self._job.pattern)
            if verdict is not None:
                self._stands(name, verdict)

    def _stands(self, name: str, new: Verdict) -> None:
        if new.outcome == "fail":
            new = replace(new, reason=f"after timing: {new.reason}")
        if name.startswith(_KERNEL):
            k = int(name.removeprefix(_KERNEL))
            self.kernels[k] = worse(self.kernels[k], new)
            return
        found = self.found[name]
        self.found[name] = replace(found, verdict=worse(found.verdict, new))

    def _repeat(self, passes: Mapping[str, Pass]) -> None:
        """Whether peers leave work behind, and how many answers ten launches of each give."""
        costs = {name: t.median_us for one in passes.values() for name, t in one.timings.items()}
        for name, one in self._tied.items():
            if not isinstance(one, Bound) or name not in costs:
                continue
            self._teller.at(name)
            wrong = late_work(self._timer, one.ready.run, costs.get(name, inf))
            if wrong:
                self._stands(name, Verdict("fail", wrong))
            launches = repeats(costs[name])
            seen = set()
            for _ in range(launches):
                assert one.out is not None
                self._backend.poison(one.out)
                one.ready.run()
                seen.add(self._answers(one).tobytes())
            self._stands(name, replace(RIGHT, distinct=len(seen), launches=launches))

    def _call(self, peer: Peer) -> None:
        """What a call takes the host, from a displaced cache to its answer."""
        self._teller.at(peer.name, prepares=True)
        backend, taken, start = self._backend, [], self._start
        assert start is not None
        with memory(backend) as held:
            try:
                bound = held.bind(peer, self._job.problem, self._data, start, self._job.folder)
                for k in range(WARM_CALLS + CALLS):
                    self._timer.displace()
                    backend.synchronize()
                    began = backend.host_us()
                    bound.ready.run()
                    if k >= WARM_CALLS:
                        taken.append(backend.host_us() - began)
                verdict = judge(
                    self._plan(bound), bound.answers(backend), self._ref, self._job.pattern
                )
            except Exception as error:
                verdict = verdict_on(peer, error, backend)
        found = self.found[peer.name]
        stands = worse(found.verdict, verdict or RIGHT)
        host_us = median(taken) if taken and stands.outcome == "pass" else None
        self.found[peer.name] = replace(found, verdict=stands, host_us=host_us)
