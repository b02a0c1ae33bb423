"""`selftest`: whether this machine, with this tool, measures what it says it measures.

(a) The same kernels against themselves, (b) slowdowns of a known share, (c) three ways to flush the
cache, (d) the floors of events, launches and graph replays, (e) what changes a kernel's time and is
none of its own, (f) a kernel in fresh contexts and in the primary one, (g) NVBench beside us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from cudareduce.backend import Launch, TimedBackend
from cudareduce.backends import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make
from cudareduce.selftest.findings import (
    ENOUGH,
    NOTHING,
    SIZES,
    Comparison,
    Enter,
    Figure,
    Findings,
    Peer,
    Setting,
    Spread,
    at_home,
    taken_in_turns,
)
from cudareduce.selftest.nvbench import ask, why_not
from cudareduce.timing.rounds import (
    Context,
    Contexts,
    Measurement,
    SetUp,
    Timing,
    measure,
    new_context,
    remarks,
    staying,
)
from cudareduce.timing.sampling import COLD, Method, Sampler, Timer
from cudareduce.timing.timer import PLACES, DeviceTimer

#: Samples at each place among launches.
_PLACE_SAMPLES = 40


def reductions(n: int, named: Mapping[str, Case]) -> SetUp:
    """Reductions of one random input of `n` elements, each with buffers of its own."""
    data = make("random", next(iter(named.values())).reduction, n, 1, 1)

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        given = backend.upload(data)
        plans = {case: case.plan(n, 1, backend.limits()) for case in named.values()}
        programs = programs_of(backend, plans)
        return {
            name: Bound(backend, plans[case], programs[case], given).run
            for name, case in named.items()
        }

    return set_up


def reads(lengths: Mapping[str, int]) -> SetUp:
    """Launches that only read, by name, each so many bytes of one buffer."""

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        buffer = backend.allocate(max(lengths.values()))
        return {name: timer.reader(buffer, size) for name, size in lengths.items()}

    return set_up


def by_place(context: Context[DeviceTimer], launches: int, deadline: Deadline) -> tuple[float, ...]:
    """The median of the first entrant in us at each of the places that its first launch can take;
    nothing if the deadline left a place without a sample. `launches` is how many one run makes."""
    run = next(iter(context.entrants.values()))
    sampler = Sampler(context.timer.in_step(launches), COLD, run, batch=1)
    times: list[list[float]] = [[] for _ in range(PLACES)]
    for k in range(_PLACE_SAMPLES * PLACES):
        taken = None if deadline.passed else sampler.timed()
        if taken:
            times[k % PLACES].append(taken.us)
    return tuple(median(us) for us in times) if all(times) else ()


_ROUNDS = 9
#: A/A: where memory begins to bound a reduction, up to the default size of bench.
_AA_SIZES = (2**22, 2**23, 2**24, 2**25)
#: Slowdowns are injected where time grows evenly with what is read.
_SLOW_SIZES = (2**24, 2**25)
SHARES = (0.01, 0.02, 0.03, 0.05)
#: Pairs at each of these sizes, which makes 100 comparisons a share.
_SLOW_PAIRS = 50
_CALIBRATION, _MOST_READ = 1.1, 1.25
_FLUSH_SIZES = (2**22, 2**25)
_FLUSHES = ("none", "write", "read")
_SMALL = 2**10
_EVENTS = "two events"
#: Launches of an entrant in a pass, and fewer where there are hundreds of entrants.
_LAUNCHES, _AA_LAUNCHES, _SLOW_LAUNCHES = 24, 16, 8
_PEER_SIZES = (2**24, 2**25)
#: Where a launch of 25 us shows what costs 1 us; sets of buffers and contexts to look at.
_SPREAD_SIZE, _SETS, _CONTEXTS = 2**24, 16, 12
#: Shares of the time there is: A/A, slowdowns, flushes, floors, spreads, settings, NVBench.
_WEIGHTS = (5, 4, 2, 1, 2, 3, 3)
_WARM, _WARM_GRAPH = Method(cold=False), Method(cold=False, graph=True)

Say = Callable[[str], None]


class Selftest:
    """All parts on one GPU, with a deadline; each part yields what it finds as it goes."""

    def __init__(
        self, backend: TimedBackend, spec: BackendSpec, cases: Sequence[Case], deadline: Deadline
    ) -> None:
        self._backend, self._spec, self._cases, self._deadline = backend, spec, cases, deadline
        self._monitor = backend.monitor()
        self._problems: dict[str, None] = {}
        self._took_part: list[Measurement] = []
        self._others = 0

    def run(self, say: Say) -> Findings:
        """Every part in its share of the time; a part that cannot be done says why. What was
        found before an error, or Ctrl-C, is kept."""
        parts: dict[str, Callable[[Deadline], Any]] = {
            "the same kernels against themselves": self.aa,
            "injected slowdowns": self.injected,
            "three flushes": self.flushes,
            "floors": self.floors,
            "places, contexts and addresses": self.spreads,
            "fresh contexts and the primary one": self.settings,
            "NVBench": self.peers,
        }
        seen: dict[str, list[Any]] = {name: [] for name in parts}
        interrupted = False
        try:
            for k, (name, part) in enumerate(parts.items()):
                say(f"selftest: {name}")
                self._others = max(self._others, self._monitor.other_processes())
                try:
                    for one in part(self._share(k)):
                        seen[name].append(one)
                except CudareduceError as error:
                    self._problems[f"{name}: {error}"] = None
        except KeyboardInterrupt:
            interrupted = True
            self._problems["interrupted: what had not been measured by then is missing"] = None
        aa, slow, flushes, floors, spreads, settings, peers = map(tuple, seen.values())
        said = [*remarks(self._whole(), None, self._others), self._monitor.problem]
        return Findings(
            aa, slow, flushes, floors, spreads, peers,
            tuple(self._problems), tuple(text for text in said if text), interrupted, settings,
        )  # fmt: skip

    def _whole(self) -> Measurement:
        """All that was measured, as one measurement, for what must be said of it."""
        took = self._took_part
        shown = took if self._others else []  # else wide intervals are for the verdict to tell
        return Measurement(
            timings={
                f"{k} {name}": t for k, m in enumerate(shown) for name, t in m.timings.items()
            },
            conditions=tuple(state for one in took for state in one.conditions),
            repeated=sum(one.repeated for one in took),
            steady=all(one.steady or not one.rounds for one in took),
        )

    def _share(self, k: int) -> Deadline:
        """What the k-th part may take of the time that is left."""
        if self._deadline.seconds is None:
            return self._deadline
        return Deadline(self._deadline.left_s * _WEIGHTS[k] / sum(_WEIGHTS[k:]))

    def aa(self, deadline: Deadline) -> Iterator[Comparison]:
        """Copies of each kernel in the same rounds, each paired with one half a round away."""
        pairs = -(-ENOUGH // (len(_AA_SIZES) * len(self._cases)))
        names = [(twin, case) for twin in range(2 * pairs) for case in self._cases]
        for k, n in enumerate(_AA_SIZES):
            set_up = reductions(n, {_name(case, twin): case for twin, case in names})
            contexts, part = self._contexts(set_up), deadline.share(len(_AA_SIZES) - k)
            timings = self._measured(contexts, COLD, part, _AA_LAUNCHES)
            for case, twin in product(self._cases, range(pairs)):
                yield from Comparison.of(
                    timings, case.kernel.id, n, 0.0, _name(case, twin), _name(case, twin + pairs)
                )

    def injected(self, deadline: Deadline) -> Iterator[Comparison]:
        """A kernel that only reads, against itself reading so much more that it takes a known share
        longer; how much more follows from its times at two lengths."""
        for k, n in enumerate(_SLOW_SIZES):
            part = deadline.share(len(_SLOW_SIZES) - k)
            whole, longer = 4 * n, int(4 * n * _CALIBRATION)
            with self._contexts(reads({"whole": whole, "longer": longer}))() as context:
                calibrated = self._measured(staying(context), COLD, part)
            if len(calibrated) == 2:
                us = calibrated["whole"].median_us
                us_per_byte = (calibrated["longer"].median_us - us) / (longer - whole)
                yield from self._slower(n, us / us_per_byte if us_per_byte > 0 else 0, part)

    def _slower(self, n: int, bytes_per_time: float, deadline: Deadline) -> Iterator[Comparison]:
        """`bytes_per_time` is what must be read to take twice as long."""
        lengths: dict[str, int] = {}
        for share in (0.0, *SHARES):  # a base and what it is compared with lie far apart in a round
            size = min(int(4 * n * _MOST_READ), int(4 * n + share * bytes_per_time))
            lengths |= {f"{share} {twin}": size for twin in range(_SLOW_PAIRS)}
        timings = self._measured(self._contexts(reads(lengths)), COLD, deadline, _SLOW_LAUNCHES)
        for share, twin in product(SHARES, range(_SLOW_PAIRS)):
            base = f"{0.0} {twin}"
            yield from Comparison.of(timings, "read-only", n, share, base, f"{share} {twin}")

    def flushes(self, deadline: Deadline) -> Iterator[Figure]:
        """The same kernels from a cache that was left alone, written over, and read over."""
        for k, n in enumerate(_FLUSH_SIZES):
            by_way = self._by_flush(n, _FLUSHES, deadline.share(len(_FLUSH_SIZES) - k))
            for how, timings in by_way.items():
                yield from (Figure.of(name, how, n, timing) for name, timing in timings.items())

    def _by_flush(
        self, n: int, ways: Sequence[str], deadline: Deadline
    ) -> Mapping[str, Mapping[str, Timing]]:
        """All kernels by each way to flush, in one context, so that nothing else differs."""
        with self._contexts(reductions(n, {c.kernel.id: c for c in self._cases}))() as context:
            return {
                how: self._measured(
                    staying(Context(context.timer.flushing(how), context.entrants)), COLD,
                    deadline.share(len(ways) - k),
                )
                for k, how in enumerate(ways)
            }  # fmt: skip

    def floors(self, deadline: Deadline) -> Iterator[Figure]:
        """What there is before any work: two events, an empty kernel, and the smallest reduction,
        cold, warm, and replayed as a graph."""
        case = self._cases[-1]
        small = f"{case.kernel.id}, n = {_SMALL}"
        reduction = reductions(_SMALL, {small: case})

        def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
            alone = {_EVENTS: lambda: None, "an empty kernel": timer.empty()}
            return alone | dict(reduction(backend, timer))

        with self._contexts(set_up)() as context:
            for k, method in enumerate((COLD, _WARM, _WARM_GRAPH)):
                if method.graph:  # there is none of nothing
                    entrants = {name: e for name, e in context.entrants.items() if name != _EVENTS}
                    context = Context(context.timer, entrants)
                timings = self._measured(staying(context), method, deadline.share(3 - k))
                yield from (
                    Figure.of(name, method.label, _SMALL if name == small else 0, timing)
                    for name, timing in timings.items()
                )

    def spreads(self, deadline: Deadline) -> Iterator[Spread]:
        """The last kernel at each place among launches, on several sets of buffers, in several
        contexts; and on one set of buffers as often, for what is noise of it."""
        case, n = self._cases[-1], _SPREAD_SIZE
        contexts = self._contexts(reductions(n, {str(k): case for k in range(_SETS)}))

        def medians(
            context: Context[Timer], share: Deadline, rounds: int = _ROUNDS
        ) -> tuple[float, ...]:
            timings = self._measured(staying(context), COLD, share, rounds=rounds)
            return tuple(timing.median_us for timing in timings.values())

        with contexts() as context:
            sets = medians(context, deadline.share(4))
            again = Context(context.timer, dict.fromkeys(context.entrants, context.entrants["0"]))
            same = medians(again, deadline.share(3))
            launches = len(case.plan(n, 1, self._backend.limits()).passes)
            if places := by_place(context, launches, deadline):
                yield Spread(case.kernel.id, n, "its place among launches", places)
        for what, us in (("where its buffers lie", sets), (NOTHING, same)):
            if len(us) > 1:
                yield Spread(case.kernel.id, n, what, us)
        found = []
        for k in range(_CONTEXTS):
            with contexts() as context:
                us = medians(context, deadline.share(_CONTEXTS - k), rounds=1)
                found += [fmean(us)] if us else []
        if len(found) > 1:  # one alone is not 0 % apart from others
            yield Spread(case.kernel.id, n, "its context", tuple(found))

    def settings(self, deadline: Deadline) -> Iterator[Setting]:
        """The last kernel in fresh contexts and in the primary one, taking turns."""
        case, timer = self._cases[-1], DeviceTimer(self._backend, self._monitor)
        for k, n in enumerate(SIZES):
            share = deadline.share(len(SIZES) - k)
            fresh = self._contexts(reductions(n, {case.kernel.id: case}))
            home = partial(at_home, self._backend, timer, case, n)

            def time(enter: Enter, left: int, share: Deadline = share) -> float | None:
                with enter() as context:
                    found = self._measured(staying(context), COLD, share.share(left), rounds=1)
                return next((timing.median_us for timing in found.values()), None)

            yield from taken_in_turns(case.kernel.id, n, fresh, home, time)

    def peers(self, deadline: Deadline) -> Iterator[Peer]:
        """NVBench's cold time of each kernel beside ours, with what explains the difference."""
        missing = why_not()
        if missing:
            self._problems[missing] = None
            return
        cases = list(product(self._cases, _PEER_SIZES))
        theirs = dict(zip(cases, ask(self._spec, cases, 1, deadline), strict=True))
        for k, n in enumerate(_PEER_SIZES):
            ways = ("read", "write", "nvbench")
            by_way = self._by_flush(n, ways, deadline.share(len(_PEER_SIZES) - k))
            for case in self._cases:
                name = case.kernel.id
                if all(name in timings for timings in by_way.values()):
                    ours = {how: Figure.of(name, how, n, t[name]) for how, t in by_way.items()}
                    yield Peer(name, n, theirs[case, n], **ours)

    def _measured(
        self,
        contexts: Contexts[Timer],
        method: Method,
        deadline: Deadline,
        most: int = _LAUNCHES,
        rounds: int = _ROUNDS,
    ) -> Mapping[str, Timing]:
        measured = measure(contexts, rounds, method, deadline=deadline, alone=(_EVENTS,), most=most)
        self._took_part.append(measured)
        if measured.interrupted:
            raise KeyboardInterrupt
        if measured.rounds < rounds:
            limit = f"--max-time {self._deadline.seconds:g} s" if self._deadline.seconds else "time"
            self._problems[f"{limit} cut rounds: some figures rest on fewer than {_ROUNDS}"] = None
        return measured.timings

    def _contexts(self, set_up: SetUp) -> Contexts[DeviceTimer]:
        return partial(new_context, self._backend, self._monitor, set_up)


def _name(case: Case, twin: int) -> str:
    return f"{case.kernel.id} {twin}"
