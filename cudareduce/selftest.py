"""`selftest`: whether this machine, with this tool, measures what it says it measures.

(a) The same kernels against themselves, (b) slowdowns of a known share, (c) three ways to flush the
cache, (d) the floors of events, launches and graph replays, (e) NVBench beside us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from cudareduce.backend import Buffer, BuildError, Launch
from cudareduce.backends import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.cuda import CudaBackend
from cudareduce.errors import CudareduceError
from cudareduce.execute import Bound, Case, Programs, build
from cudareduce.findings import ENOUGH, Comparison, Figure, Findings, Peer
from cudareduce.inputs import make
from cudareduce.intervals import paired
from cudareduce.measure import Measurement, Timing, measure
from cudareduce.nvbench import ask, why_not
from cudareduce.sampling import COLD, MIN_SAMPLES, Method
from cudareduce.timer import CudaTimer

_ROUNDS = 9
#: A/A: where memory begins to bound a reduction, up to the default size of bench.
_AA_SIZES = (2**22, 2**23, 2**24, 2**25)
#: Slowdowns are injected where time grows evenly with what is read.
_SLOW_SIZES = (2**24, 2**25)
SHARES = (0.01, 0.02, 0.03, 0.05)
#: Pairs at each of these sizes, which makes 100 comparisons a share.
_SLOW_PAIRS = 50
_CALIBRATION = 1.1
_FLUSH_SIZES = (2**22, 2**25)
_FLUSHES = ("none", "write", "read")
_SMALL = 2**10
_PEER_SIZES = (2**24, 2**25)
#: Shares of the time there is: A/A, slowdowns, flushes, floors, NVBench.
_WEIGHTS = (5, 6, 2, 1, 3)
_WARM, _WARM_GRAPH = Method(cold=False), Method(cold=False, graph=True)

Say = Callable[[str], None]


class Selftest:
    """All parts on one GPU, with a deadline."""

    def __init__(
        self, backend: CudaBackend, spec: BackendSpec, cases: Sequence[Case], deadline: Deadline
    ) -> None:
        self._backend, self._spec, self._cases, self._deadline = backend, spec, cases, deadline
        self._timer = CudaTimer(backend, backend.monitor())
        self._problems: dict[str, None] = {}
        self._sizes = sorted({_SMALL, *_AA_SIZES, *_FLUSH_SIZES, *_PEER_SIZES})
        self._programs = self._build()

    def _build(self) -> Mapping[Case, Programs]:
        limits = self._backend.limits()
        stages = [
            (c, [step.stage for n in self._sizes for step in c.plan(n, 1, limits).passes])
            for c in self._cases
        ]
        built = build(self._backend, stages)
        for made in built.values():
            if isinstance(made, BuildError):
                raise made
        return {c: made for c, made in built.items() if not isinstance(made, BuildError)}

    def run(self, say: Say) -> Findings:
        """Every part in its share of the time; a part that cannot be done says why."""
        parts: dict[str, Callable[[Deadline], Any]] = {
            "the same kernels against themselves": self.aa,
            "injected slowdowns": self.injected,
            "three flushes": self.flushes,
            "floors": self.floors,
            "NVBench": self.peers,
        }
        found: list[tuple[Any, ...]] = []
        weights = list(_WEIGHTS)
        for name, part in parts.items():
            say(f"selftest: {name}")
            share = self._deadline.share(1)
            if self._deadline.seconds is not None:
                share = Deadline(self._deadline.left_s * weights[0] / sum(weights))
            weights.pop(0)
            seen: list[Any] = []
            try:
                for one in part(share):
                    seen.append(one)  # noqa: PERF402 - what was found before an error is kept
            except CudareduceError as error:
                self._problems[f"{name}: {error}"] = None
            found.append(tuple(seen))
        aa, slow, flushes, floors, peers = found
        return Findings(aa, slow, flushes, floors, peers, tuple(self._problems))

    def aa(self, deadline: Deadline) -> Iterator[Comparison]:
        """Copies of each kernel in the same rounds, each paired with one half a round away."""
        pairs = -(-ENOUGH // (len(_AA_SIZES) * len(self._cases)))
        for k, n in enumerate(_AA_SIZES):
            given = self._given(n)
            copies = {
                (case, twin): self._bound(case, n, given)
                for twin in range(2 * pairs)
                for case in self._cases
            }
            entrants = {_name(*key): bound.run for key, bound in copies.items()}
            timings = self._measured(entrants, COLD, deadline.share(len(_AA_SIZES) - k))
            for case, twin in product(self._cases, range(pairs)):
                yield from _compared(
                    timings, case.kernel.id, n, 0.0, _name(case, twin), _name(case, twin + pairs)
                )
            self._free(copies.values(), given)

    def injected(self, deadline: Deadline) -> Iterator[Comparison]:
        """A kernel that only reads, against itself reading so much more that it takes a known share
        longer; how much more follows from its times at two lengths."""
        for k, n in enumerate(_SLOW_SIZES):
            part = deadline.share(len(_SLOW_SIZES) - k)
            buffer = self._backend.allocate(int(4 * n * 1.25))
            whole, longer = 4 * n, int(4 * n * _CALIBRATION)
            lengths = {"whole": whole, "longer": longer}
            both = {name: self._timer.reader(buffer, size) for name, size in lengths.items()}
            calibrated = self._measured(both, COLD, part)
            if len(calibrated) == len(both):
                us = calibrated["whole"].median_us
                us_per_byte = (calibrated["longer"].median_us - us) / (longer - whole)
                yield from self._slower(n, buffer, us / us_per_byte if us_per_byte > 0 else 0, part)
            self._backend.free(buffer)

    def _slower(
        self, n: int, buffer: Buffer, bytes_per_time: float, deadline: Deadline
    ) -> Iterator[Comparison]:
        """`bytes_per_time` is what must be read to take twice as long."""
        entrants: dict[str, Launch] = {}
        for share in (0.0, *SHARES):  # a base and what it is compared with lie far apart in a round
            size = min(buffer.nbytes, int(4 * n + share * bytes_per_time))
            for twin in range(_SLOW_PAIRS):
                entrants[f"{share} {twin}"] = self._timer.reader(buffer, size)
        timings = self._measured(entrants, COLD, deadline)
        for share, twin in product(SHARES, range(_SLOW_PAIRS)):
            base = f"{0.0} {twin}"
            yield from _compared(timings, "read-only", n, share, base, f"{share} {twin}")

    def flushes(self, deadline: Deadline) -> Iterator[Figure]:
        """The same kernels from a cache that was left alone, written over, and read over."""
        for k, n in enumerate(_FLUSH_SIZES):
            part = deadline.share(len(_FLUSH_SIZES) - k)
            given = self._given(n)
            bounds = {case.kernel.id: self._bound(case, n, given) for case in self._cases}
            entrants = {name: bound.run for name, bound in bounds.items()}
            for j, how in enumerate(_FLUSHES):
                timings = self._measured(entrants, COLD, part.share(len(_FLUSHES) - j), how)
                yield from (_figure(name, how, n, timing) for name, timing in timings.items())
            self._free(bounds.values(), given)

    def floors(self, deadline: Deadline) -> Iterator[Figure]:
        """What there is before any work: two events, an empty kernel, and the smallest reduction,
        cold, warm, and replayed as a graph."""
        given = self._given(_SMALL)
        case = self._cases[-1]
        bound = self._bound(case, _SMALL, given)
        small = f"{case.kernel.id}, n = {_SMALL}"
        entrants: dict[str, Launch] = {
            "two events": lambda: None,
            "an empty kernel": self._timer.empty(),
            small: bound.run,
        }
        for k, method in enumerate((COLD, _WARM, _WARM_GRAPH)):
            chosen = {name: run for name, run in entrants.items()
                      if not (method.graph and name == "two events")}  # fmt: skip
            timings = self._measured(chosen, method, deadline.share(3 - k))
            yield from (
                _figure(name, method.label, _SMALL if name == small else 0, timing)
                for name, timing in timings.items()
            )
        self._timer.release()
        self._free([bound], given)

    def peers(self, deadline: Deadline) -> Iterator[Peer]:
        """NVBench's cold time of each kernel beside ours, with what explains the difference."""
        missing = why_not()
        if missing:
            self._problems[missing] = None
            return
        cases = list(product(self._cases, _PEER_SIZES))
        theirs = dict(zip(cases, ask(self._spec, cases, 1), strict=True))
        for n in _PEER_SIZES:
            given = self._given(n)
            bounds = {case: self._bound(case, n, given) for case in self._cases}
            entrants = {case.kernel.id: bound.run for case, bound in bounds.items()}
            by_way = {
                how: self._measured(entrants, COLD, deadline, how)
                for how in ("read", "write", "nvbench")
            }
            for case in self._cases:
                name = case.kernel.id
                if all(name in timings for timings in by_way.values()):
                    ours = {how: _figure(name, how, n, t[name]) for how, t in by_way.items()}
                    yield Peer(name, n, theirs[case, n], **ours)
            self._free(bounds.values(), given)

    def _measured(
        self,
        entrants: Mapping[str, Launch],
        method: Method,
        deadline: Deadline,
        flush: str = "read",
    ) -> Mapping[str, Timing]:
        found = Measurement(method)
        measure(
            self._timer.flushing(flush), entrants, _ROUNDS, found,
            deadline=deadline, alone=("two events",), most=MIN_SAMPLES,
        )  # fmt: skip
        if found.rounds < _ROUNDS:
            limit = f"--max-time {self._deadline.seconds:g} s" if self._deadline.seconds else "time"
            self._problems[f"{limit} cut rounds: some figures rest on fewer than {_ROUNDS}"] = None
        return found.timings

    def _given(self, n: int) -> Buffer:
        return self._backend.upload(make("random", self._cases[0].what, n, 1, 1))

    def _bound(self, case: Case, n: int, given: Buffer) -> Bound:
        plan = case.plan(n, 1, self._backend.limits())
        return Bound(self._backend, plan, self._programs[case], given)

    def _free(self, bounds: Any, given: Buffer) -> None:
        for bound in bounds:
            bound.release()
        self._backend.free(given)


def _name(case: Case, twin: int) -> str:
    return f"{case.kernel.id} {twin}"


def _compared(
    timings: Mapping[str, Timing], kernel: str, n: int, share: float, old: str, new: str
) -> Iterator[Comparison]:
    if old in timings and new in timings:
        ratios = paired(timings[new].by_round, timings[old].by_round)
        if ratios:
            yield Comparison(kernel, n, share, tuple(ratios))


def _figure(name: str, how: str, n: int, timing: Timing) -> Figure:
    return Figure(name, how, n, timing.median_us, timing.interval_us, timing.host_us, timing.batch)
