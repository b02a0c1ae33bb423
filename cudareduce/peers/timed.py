"""Libraries and kernels in the same rounds, in the primary context of one process.

A round is what it is elsewhere; the context stays, since libraries insist on it, and the buffers
move: each half round has its own, at other addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from math import inf
from random import Random

from cudareduce.backend import Launch, Monitor, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.bound import Bound as KernelBound
from cudareduce.launch.case import Programs, programs_of
from cudareduce.peers.as_called import called
from cudareduce.peers.contract import Peer
from cudareduce.peers.graphs import uncaptured
from cudareduce.peers.job import Found, Job, Pass, keyed
from cudareduce.peers.laid import Laid, Tied, laid_out
from cudareduce.peers.scene import Bound, BrokenError, Memory, Teller, memory, verdict_on
from cudareduce.timing.rounds import Context, measure, over, remarks
from cudareduce.timing.sampling import Method
from cudareduce.timing.timer import DeviceTimer, joules, late_work
from cudareduce.verify.patterns import repeats
from cudareduce.verify.result_monitor import OwnBuffers, ResultMonitor, TimedInput
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, worse

_READER, _FLOOR = "reader ", "floor"
#: Inputs up to this move with each half round, as in fresh contexts.
_MOVED_BYTES = 2**28
_STEPS, _STEP_BYTES = 2048, 512


class Trial:
    """The right peers of a job and its kernels, timed on one fresh input. `found` has a verdict on
    each peer, `kernels` on each kernel by its place, of each layout; both are what they are worth
    after timing."""

    def __init__(
        self,
        job: Job,
        backend: TimedBackend,
        timer: DeviceTimer,
        teller: Teller,
        found: Mapping[str, Found],
        deadline: Deadline,
    ) -> None:
        self._job, self._backend, self._timer, self._teller = job, backend, timer, teller
        self._deadline = deadline
        self.found = dict(found)
        self._laid = laid_out(job, found, backend.limits())
        self.kernels: dict[tuple[int, int], Verdict] = {
            (place, laid.number): RIGHT for laid in self._laid for place in laid.plans
        }
        self._monitor: Monitor = backend.monitor()
        teller.at("", "prepares")
        self._programs = [self._built(laid) for laid in self._laid]
        self._tied: dict[str, Tied] = {}
        self._no_graph: dict[str, str] = {}
        self._kept: Context[DeviceTimer] | None = None
        self._start: TimedInput | None = None
        self._monitors: dict[str, ResultMonitor[str]] = {}

    def _built(self, laid: Laid) -> Mapping[int, Programs]:
        """The programs of its kernels; each layout has its own, which may hold its count."""
        known = self._job.cases(laid.number)
        cases = {place: known[place] for place in laid.plans}
        built = programs_of(self._backend, {cases[k]: plan for k, plan in laid.plans.items()})
        return {place: built[case] for place, case in cases.items()}

    def passes(self) -> dict[str, Pass]:
        """A pass by each method; then what launches leave, and what calls cost the host. Raises
        BrokenError, OutOfMemory and EnvironmentProblem."""
        methods, deadline = self._job.methods, self._deadline
        passes: dict[str, Pass] = {}
        with ExitStack() as stack:
            if max(laid.data.elements.nbytes for laid in self._laid) > _MOVED_BYTES:
                self._kept = stack.enter_context(self._place(keep_cache=False))
            if any(method.graph for method in methods):
                self._capture()
            for k, method in enumerate(methods):
                passes[method.label] = self._pass(method, deadline.share(len(methods) - k))
            if not deadline.passed and not self._job.odd:
                with self._context() as context:
                    if self._job.energy:
                        passes = self._counted(passes, context)
                    self._repeat(passes)
                    for peer in self._job.peers():
                        right = self.found[peer.name].verdict.outcome == "pass"
                        if peer.host_only and right and not deadline.passed:
                            self._call(peer)
        return passes

    def _capture(self) -> None:
        """Which peers have no graph, and why."""
        with self._context() as context:
            for key, one in self._tied.items():
                if isinstance(one.bound, Bound):
                    self._teller.at(one.bound.peer.name, "prepares")
                    one.given.restored()  # whoever was prepared before may have changed it
                    why = uncaptured(context.timer, self._backend, one.bound, one.verdict)
                    if why:
                        self._no_graph[key] = why
                        self.found[one.name] = replace(self.found[one.name], no_graph=why)

    def _pass(self, method: Method, deadline: Deadline) -> Pass:
        others = max(0, self._monitor.other_processes() - self._job.ours)
        names: dict[str, str] = {}

        @contextmanager
        def judged() -> Iterator[Context[DeviceTimer]]:
            """A place for half a round, and a look at what it has left there."""
            with self._context(keep_cache=not method.cold) as context:
                names.update((key, one.name) for key, one in self._tied.items())
                left = self._no_graph if method.graph else {}
                runs = {name: r for name, r in context.entrants.items() if name not in left}
                yield Context(context.timer, runs, context.watches) if left else context
                for key, one in self._tied.items():
                    self._stands(one, self._monitors[key].verdict)

        try:
            measured = measure(
                judged, self._job.rounds, method, self._teller.round_done,
                deadline=deadline, alone=(_FLOOR,), most=self._job.most,
            )  # fmt: skip
        except BrokenError:
            raise
        except Exception as error:
            raise self._blamed(error) from error
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

    def _blamed(self, error: Exception) -> Exception:
        """The error, as that of the peer whose launch was the last."""
        last = self._teller.last
        peer = next((peer for laid in self._laid for peer in laid.peers if peer.name == last), None)
        if peer is None:
            return error
        return BrokenError(peer.name, verdict_on(peer, error, self._backend))

    def _context(self, keep_cache: bool = False) -> AbstractContextManager[Context[DeviceTimer]]:
        return nullcontext(self._kept) if self._kept is not None else self._place(keep_cache)

    @contextmanager
    def _place(self, keep_cache: bool) -> Iterator[Context[DeviceTimer]]:
        """The input, answers and workspaces somewhere else than before, and what runs there."""
        backend = self._backend
        with memory(backend) as held, ExitStack() as stack:
            held.allocate(_STEP_BYTES * Random().randrange(1, _STEPS))
            entrants: dict[str, Launch] = {_FLOOR: lambda: None}
            self._tied = {}
            for laid in self._laid:
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
                    self._tied[key] = Tied(kernel, laid, given, place)
                for peer in laid.peers:
                    bound = self._bound(peer, laid, held, given)
                    self._tied[keyed(peer.name, laid.number)] = Tied(bound, laid, given)
            entrants |= {key: one.bound.run for key, one in self._tied.items()}
            _ = self._timer.displace  # allocates
            told = {key: self._told(key, run) for key, run in entrants.items()}
            self._monitors = self._watching(keep_cache)
            self._teller.times()
            yield Context(self._timer, told, self._monitors)
            backend.finish()
            self._timer.release()

    def _watching(self, keep_cache: bool) -> dict[str, ResultMonitor[str]]:
        """Who judges every timed launch, as those of kernels are judged elsewhere."""
        others = OwnBuffers({key: one.bound for key, one in self._tied.items()}, self._timer)
        return {
            key: ResultMonitor(
                key, one.bound, one.given, others, self._timer, keep_cache=keep_cache
            )
            for key, one in self._tied.items()
        }

    def _told(self, key: str, run: Launch) -> Launch:
        """A launch that says whose it is: that of a peer on whatever layout."""
        one = self._tied.get(key)
        bound = one.bound if one else None
        return self._teller.told(bound.peer.name if isinstance(bound, Bound) else key, run)

    def _bound(self, peer: Peer, laid: Laid, held: Memory, given: TimedInput) -> Bound:
        """A peer's call. Without one that cannot be prepared any more, rounds begin anew."""
        self._teller.at(peer.name, "prepares")
        try:
            data = laid.data.elements
            bound = held.bind(peer, laid.problem, data, given.buffer, self._job.folder)
            bound.run()  # what compiles at its first call
            self._backend.synchronize()
        except Exception as error:
            verdict = verdict_on(peer, error, self._backend)
            raise BrokenError(peer.name, verdict) from error
        return bound

    def _stands(self, one: Tied, new: Verdict) -> None:
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
        """The passes, with the energy of what was timed."""
        costs = {name: t.median_us for one in passes.values() for name, t in one.timings.items()}
        found: dict[str, float] = {}
        for key, tied in self._tied.items():
            if tied.name in costs and not self._deadline.passed:
                run, counter = context.entrants[key], self._monitor.energy_j
                self._teller.at(tied.name if tied.place is None else "")
                took = joules(self._timer, run, costs[tied.name], counter)
                found |= {} if took is None else {tied.name: took}
        return {label: replace(one, joules=found) for label, one in passes.items()}

    def _repeat(self, passes: Mapping[str, Pass]) -> None:
        """Whether peers leave work behind, and how many answers ten launches of each give."""
        costs = {name: t.median_us for one in passes.values() for name, t in one.timings.items()}
        for tied in self._tied.values():
            one, name = tied.bound, tied.name
            if not isinstance(one, Bound) or name not in costs or self._deadline.passed:
                continue
            self._teller.at(name)
            tied.given.restored()
            wrong = late_work(self._timer, one.run, costs.get(name, inf))
            if wrong:
                self._stands(tied, Verdict("fail", wrong))
            launches = repeats(costs[name])
            seen = set()
            for _ in range(launches):
                one.poison()
                one.run()
                seen.add(one.answers().tobytes())
            self._stands(tied, replace(RIGHT, distinct=len(seen), launches=launches))
            if not tied.given.restored():
                self._stands(tied, Verdict("fail", WROTE_INPUT))

    def _call(self, peer: Peer) -> None:
        """What a call as people make it takes the host."""
        self._teller.at(peer.name, "prepares")
        assert self._start is not None
        verdict, host_us = called(
            self._backend, self._timer, peer, self._laid[0], self._start, self._job.folder
        )
        found = self.found[peer.name]
        self.found[peer.name] = replace(
            found, verdict=worse(found.verdict, verdict), host_us=host_us
        )
