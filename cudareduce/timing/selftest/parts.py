"""The parts of a selftest.

(a) Kernels against themselves, (b) injected slowdowns, (c) three ways to flush the cache, (d) the
floors of events, launches and graph replays, (e) properties outside of the kernel that change its
time, (f) fresh contexts against the primary one, (g) NVBench against this tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any

from cudareduce.backends.protocol import Launch, TimedBackend
from cudareduce.backends.selection import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.reduction.inputs import make
from cudareduce.timing.rounds import (
    Context,
    Contexts,
    Measurement,
    SetUp,
    Timing,
    measure,
    new_context,
    remarks,
    same_context,
)
from cudareduce.timing.sampling import COLD, Method, Sampler
from cudareduce.timing.selftest.findings import (
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
    alternate,
    primary_context,
)
from cudareduce.timing.selftest.nvbench import measure_cold_times, why_no_nvbench
from cudareduce.timing.timer import RING_PERIOD, DeviceTimer

#: Samples at each position in the ring of launches.
_PLACE_SAMPLES = 40


def reductions(n: int, named: Mapping[str, Case]) -> SetUp:
    """Reductions of one random input of `n` elements, each with its own workspace."""
    data = make("random", next(iter(named.values())).reduction, n, 1, 1)

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        source = backend.upload(data)
        plans = {case: case.plan(n, 1, backend.limits()) for case in named.values()}
        programs = programs_of(backend, plans)
        return {
            name: Bound(backend, plans[case], programs[case], source).run
            for name, case in named.items()
        }

    return set_up


def reads(lengths: Mapping[str, int]) -> SetUp:
    """Read-only launches by name, each over a length in bytes of one buffer."""

    def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
        buffer = backend.allocate(max(lengths.values()))
        return {name: timer.reader(buffer, size) for name, size in lengths.items()}

    return set_up


def by_place(context: Context, launches: int, deadline: Deadline) -> tuple[float, ...]:
    """The median time in us of the first entrant for each position in the ring of launches; empty
    if the deadline left a position without a sample. `launches` is the number per run."""
    run = next(iter(context.entrants.values()))
    sampler = Sampler(context.timer.with_ring_step(launches), COLD, run, batch=1)
    times: list[list[float]] = [[] for _ in range(RING_PERIOD)]
    for k in range(_PLACE_SAMPLES * RING_PERIOD):
        sample = None if deadline.passed else sampler.timed()
        if sample:
            times[k % RING_PERIOD].append(sample.us)
    return tuple(median(us) for us in times) if all(times) else ()


_ROUNDS = 9
#: Sizes of A/A comparisons: from those limited by memory bandwidth up to the default of bench.
_AA_SIZES = (2**22, 2**23, 2**24, 2**25)
#: Sizes for injected slowdowns: the time is linear in the bytes read.
_SLOW_SIZES = (2**24, 2**25)
SHARES = (0.01, 0.02, 0.03, 0.05)
#: Pairs at each of these sizes: 100 comparisons per slowdown.
_SLOW_PAIRS = 50
_CALIBRATION, _MOST_READ = 1.1, 1.25
_FLUSH_SIZES = (2**22, 2**25)
_FLUSHES = ("none", "write", "read")
_SMALL = 2**10
_EVENTS = "two events"
#: Limit for launches of an entrant in half a round, since there may be hundreds of entrants.
_LAUNCHES, _AA_LAUNCHES, _SLOW_LAUNCHES = 24, 16, 8
_PEER_SIZES = (2**24, 2**25)
#: A size with launches of 25 us, where 1 us is visible; numbers of buffer sets and contexts.
_SPREAD_SIZE, _SETS, _CONTEXTS = 2**24, 16, 12
#: Shares of the time limit: A/A, slowdowns, flushes, floors, spreads, settings, NVBench.
_WEIGHTS = (5, 4, 2, 1, 2, 3, 3)
_WARM, _WARM_GRAPH = Method(cold=False), Method(cold=False, graph=True)

Say = Callable[[str], None]


class Selftest:
    """Runs all parts on one GPU before a deadline; each part yields its findings as it goes."""

    def __init__(
        self, backend: TimedBackend, spec: BackendSpec, cases: Sequence[Case], deadline: Deadline
    ) -> None:
        self._backend, self._spec, self._cases, self._deadline = backend, spec, cases, deadline
        self._monitor = backend.monitor()
        self._problems: dict[str, None] = {}
        self._took_part: list[Measurement] = []
        self._others = 0

    def run(self, say: Say) -> Findings:
        """Run each part in its share of the time. Findings before an error or Ctrl-C are kept."""
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
            self._problems["interrupted: the remaining measurements are missing"] = None
        aa, slow, flushes, floors, spreads, settings, peers = map(tuple, seen.values())
        texts = [*remarks(self._whole(), None, self._others), self._monitor.problem]
        return Findings(
            aa, slow, flushes, floors, spreads, peers,
            tuple(self._problems), tuple(text for text in texts if text), interrupted, settings,
        )  # fmt: skip

    def _whole(self) -> Measurement:
        """All measurements combined into one, for remarks on the GPU."""
        took = self._took_part
        shown = took if self._others else []  # else the verdict covers wide intervals
        return Measurement(
            timings={
                f"{k} {name}": t for k, m in enumerate(shown) for name, t in m.timings.items()
            },
            conditions=tuple(state for one in took for state in one.conditions),
            repeated=sum(one.repeated for one in took),
            steady=all(one.steady or not one.rounds for one in took),
        )

    def _share(self, k: int) -> Deadline:
        """The deadline of the k-th part."""
        if self._deadline.seconds is None:
            return self._deadline
        return Deadline(self._deadline.left_s * _WEIGHTS[k] / sum(_WEIGHTS[k:]))

    def aa(self, deadline: Deadline) -> Iterator[Comparison]:
        """Compare two copies of each kernel in the same rounds, half a round apart."""
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
        """Compare a read-only kernel with itself reading more bytes, which is a known slowdown. The
        additional bytes are derived from its times at two lengths."""
        for k, n in enumerate(_SLOW_SIZES):
            part = deadline.share(len(_SLOW_SIZES) - k)
            whole, longer = 4 * n, int(4 * n * _CALIBRATION)
            with self._contexts(reads({"whole": whole, "longer": longer}))() as context:
                calibrated = self._measured(same_context(context), COLD, part)
            if len(calibrated) == 2:
                us = calibrated["whole"].median_us
                us_per_byte = (calibrated["longer"].median_us - us) / (longer - whole)
                yield from self._slower(n, us / us_per_byte if us_per_byte > 0 else 0, part)

    def _slower(self, n: int, bytes_per_time: float, deadline: Deadline) -> Iterator[Comparison]:
        """`bytes_per_time` are the additional bytes that double the time."""
        lengths: dict[str, int] = {}
        for share in (0.0, *SHARES):  # keeps a base and its candidate apart in a round
            size = min(int(4 * n * _MOST_READ), int(4 * n + share * bytes_per_time))
            lengths |= {f"{share} {twin}": size for twin in range(_SLOW_PAIRS)}
        timings = self._measured(self._contexts(reads(lengths)), COLD, deadline, _SLOW_LAUNCHES)
        for share, twin in product(SHARES, range(_SLOW_PAIRS)):
            base = f"{0.0} {twin}"
            yield from Comparison.of(timings, "read-only", n, share, base, f"{share} {twin}")

    def flushes(self, deadline: Deadline) -> Iterator[Figure]:
        """Time kernels without a flush, and with a flush by writing and by reading."""
        for k, n in enumerate(_FLUSH_SIZES):
            by_way = self._by_flush(n, _FLUSHES, deadline.share(len(_FLUSH_SIZES) - k))
            for how, timings in by_way.items():
                yield from (Figure.of(name, how, n, timing) for name, timing in timings.items())

    def _by_flush(
        self, n: int, ways: Sequence[str], deadline: Deadline
    ) -> Mapping[str, Mapping[str, Timing]]:
        """Time all kernels with each kind of flush, in one context so that nothing else differs."""
        with self._contexts(reductions(n, {c.kernel.id: c for c in self._cases}))() as context:
            return {
                how: self._measured(
                    same_context(Context(context.timer.with_flush(how), context.entrants)), COLD,
                    deadline.share(len(ways) - k),
                )
                for k, how in enumerate(ways)
            }  # fmt: skip

    def floors(self, deadline: Deadline) -> Iterator[Figure]:
        """Time two events, an empty kernel and a tiny reduction: cold, warm, and as a graph."""
        case = self._cases[-1]
        small = f"{case.kernel.id}, n = {_SMALL}"
        reduction = reductions(_SMALL, {small: case})

        def set_up(backend: TimedBackend, timer: DeviceTimer) -> Mapping[str, Launch]:
            alone = {_EVENTS: lambda: None, "an empty kernel": timer.empty()}
            return alone | dict(reduction(backend, timer))

        with self._contexts(set_up)() as context:
            for k, method in enumerate((COLD, _WARM, _WARM_GRAPH)):
                if method.graph:  # an empty graph cannot be timed
                    entrants = {name: e for name, e in context.entrants.items() if name != _EVENTS}
                    context = Context(context.timer, entrants)
                timings = self._measured(same_context(context), method, deadline.share(3 - k))
                yield from (
                    Figure.of(name, method.label, _SMALL if name == small else 0, timing)
                    for name, timing in timings.items()
                )

    def spreads(self, deadline: Deadline) -> Iterator[Spread]:
        """Time the last kernel at each position among launches, with several sets of buffers, in
        several contexts, and repeatedly with one set of buffers for the noise."""
        case, n = self._cases[-1], _SPREAD_SIZE
        contexts = self._contexts(reductions(n, {str(k): case for k in range(_SETS)}))

        def medians(context: Context, share: Deadline, rounds: int = _ROUNDS) -> tuple[float, ...]:
            timings = self._measured(same_context(context), COLD, share, rounds=rounds)
            return tuple(timing.median_us for timing in timings.values())

        with contexts() as context:
            sets = medians(context, deadline.share(4))
            again = Context(context.timer, dict.fromkeys(context.entrants, context.entrants["0"]))
            same = medians(again, deadline.share(3))
            launches = len(case.plan(n, 1, self._backend.limits()).passes)
            if by_position := by_place(context, launches, deadline):
                yield Spread(case.kernel.id, n, "its position among launches", by_position)
        for what, us in (("the address of its buffers", sets), (NOTHING, same)):
            if len(us) > 1:
                yield Spread(case.kernel.id, n, what, us)
        ranges = []
        for k in range(_CONTEXTS):
            with contexts() as context:
                us = medians(context, deadline.share(_CONTEXTS - k), rounds=1)
                ranges += [fmean(us)] if us else []
        if len(ranges) > 1:  # a range needs two
            yield Spread(case.kernel.id, n, "its context", tuple(ranges))

    def settings(self, deadline: Deadline) -> Iterator[Setting]:
        """Time the last kernel in fresh contexts and in the primary one, alternately."""
        case, timer = self._cases[-1], DeviceTimer(self._backend, self._monitor)
        for k, n in enumerate(SIZES):
            share = deadline.share(len(SIZES) - k)
            fresh = self._contexts(reductions(n, {case.kernel.id: case}))
            home = partial(primary_context, self._backend, timer, case, n)

            def time(enter: Enter, left: int, share: Deadline = share) -> float | None:
                with enter() as context:
                    measured = self._measured(
                        same_context(context), COLD, share.share(left), rounds=1
                    )
                return next((timing.median_us for timing in measured.values()), None)

            yield from alternate(case.kernel.id, n, fresh, home, time)

    def peers(self, deadline: Deadline) -> Iterator[Peer]:
        """Compare cold times with NVBench, by three methods that explain the difference."""
        missing = why_no_nvbench()
        if missing:
            self._problems[missing] = None
            return
        cases = list(product(self._cases, _PEER_SIZES))
        nvbench_us = dict(
            zip(cases, measure_cold_times(self._spec, cases, 1, deadline), strict=True)
        )
        for k, n in enumerate(_PEER_SIZES):
            ways = ("read", "write", "nvbench")
            by_way = self._by_flush(n, ways, deadline.share(len(_PEER_SIZES) - k))
            for case in self._cases:
                name = case.kernel.id
                if all(name in timings for timings in by_way.values()):
                    ours = {how: Figure.of(name, how, n, t[name]) for how, t in by_way.items()}
                    yield Peer(name, n, nvbench_us[case, n], **ours)

    def _measured(
        self,
        contexts: Contexts,
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
            self._problems[f"{limit} cut rounds: some times have fewer than {_ROUNDS} rounds"] = (
                None
            )
        return measured.timings

    def _contexts(self, set_up: SetUp) -> Contexts:
        return partial(new_context, self._backend, self._monitor, set_up)


def _name(case: Case, twin: int) -> str:
    return f"{case.kernel.id} {twin}"
