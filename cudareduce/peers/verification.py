"""Verifies libraries: whether they are installed, support the problem, and give right results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import Library
from cudareduce.peers.job import (
    CUT,
    PLAIN,
    UNVERIFIED,
    Bound,
    Job,
    Layout,
    LibraryResult,
    Memory,
    Reporter,
    Runtimes,
    absent,
    memory,
    plan_for,
    verdict_on,
)
from cudareduce.problem.nets import patterns_for
from cudareduce.problem.reference import Reference
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.patterns import SMALL, Input, Inputs
from cudareduce.verify.result_monitor import TimedData, TimedInput
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

#: Patterns without NaN, infinities and signed zeros, whose results differ between libraries.
_ORDINARY = ("exact", "random", "positive", "rising", "falling", "one-sided", "extremum", "tie",
             "spread", "factors", "lowest", "highest")  # fmt: skip
#: Tile at whose edges extrema are placed: those of libraries are unknown.
_TILE = 4096
_LONGEST_VERSION = 40
_POISONS = (0xFF, 0x01)


@dataclass(frozen=True, slots=True)
class _DeviceInput:
    """An input on the device, its variant with another chunk, and the reference result."""

    input: Input
    timed: TimedInput
    ref: Reference


def import_libraries(
    peers: Sequence[Library], problem: Problem, reporter: Reporter, runtimes: Runtimes,
    deadline: Deadline | None = None,
) -> dict[str, LibraryResult]:  # fmt: skip
    """Import every library: a verdict on each that is not installed, does not support the problem,
    or is left when the deadline has passed."""
    found = {}
    for peer in peers:
        reporter.at(peer.name, "imports")
        reason = peer.why_not(problem)
        if reason:
            found[peer.name] = LibraryResult(verdict=skipped("unfit", reason))
            continue
        called = peer.called(problem)
        if deadline is not None and deadline.passed:
            found[peer.name] = LibraryResult(verdict=skipped("time", CUT), called=called)
            continue
        try:
            found[peer.name] = LibraryResult(
                verdict=RIGHT, called=called, version=_short_version(peer.load())
            )
        except Exception as error:
            found[peer.name] = LibraryResult(verdict=absent(peer, error), called=called)
        runtimes.after(peer)
    reporter.at("")
    return found


def _short_version(version: str | None) -> str | None:
    """The version, shortened to fit a line."""
    return version and " ".join(str(version).split())[:_LONGEST_VERSION]


@dataclass(frozen=True, slots=True)
class Verification:
    """Verification of the libraries of a job, until the `deadline`."""

    job: Job
    backend: TimedBackend
    timer: DeviceTimer
    reporter: Reporter
    inputs: Inputs
    runtimes: Runtimes
    deadline: Deadline

    def results(self, layout: Layout = PLAIN) -> dict[str, LibraryResult]:
        """A verdict on every library of the job with inputs in this layout. Raises BrokenError, and
        OutOfMemory if an input does not fit."""
        job = self.job
        peers = {peer.name: peer for peer in job.libraries()}
        found = import_libraries(
            list(peers.values()),
            job.problem_of(layout),
            self.reporter,
            self.runtimes,
            self.deadline,
        )
        for name, peer in peers.items():
            reason = peer.why_not_from(layout.offset * job.reduction.dtype.size)
            if reason and found[name].verdict.outcome == "pass":
                found[name] = replace(found[name], verdict=skipped("unfit", reason))
        decided: set[tuple[str, Shape]] = set()
        shapes = [layout.shape(shape) for shape in job.shapes]
        for shape in dict.fromkeys(shapes):
            for pattern in _patterns(job, shape):
                left = [p for p in peers.values() if found[p.name].verdict.outcome == "pass"]
                given = Input(pattern, *shape, job.seed, layout.offset)
                for name, verdict in self._on(left, given).items():
                    if verdict is not None:
                        decided.add((name, shape))
                        both = worse(found[name].verdict, verdict)
                        found[name] = replace(found[name], verdict=both)
        for name, one in found.items():
            taken = [s for s in shapes[-job.asked :] if not peers[name].why_not(job.problem_at(s))]
            open_ = [shape for shape in taken if (name, shape) not in decided]
            if one.verdict.outcome == "pass" and open_:
                found[name] = replace(one, verdict=not_decided(open_[0][0]))
        return found

    def _on(self, peers: Sequence[Library], one: Input) -> dict[str, Verdict | None]:
        """Verdicts on one input of the libraries that support its shape; None if undecided."""
        reduction, backend = self.job.reduction, self.backend
        problem = self.job.problem_at((one.n, one.rows))
        taking = [peer for peer in peers if peer.why_not(problem) is None]
        if not taking or self.deadline.passed:
            return {peer.name: skipped("time", UNVERIFIED) for peer in taking}
        (elements, *_), ref = self.inputs.of(one, reduction)
        data = TimedData(
            one.pattern, reduction, one.n, one.rows, one.seed,
            [plan_for(peer.name, problem) for peer in taking], elements,
        )  # fmt: skip
        timed = TimedInput(backend, self.timer, data, one.offset * reduction.dtype.size)
        verdicts: dict[str, Verdict | None] = {}
        try:
            for peer in taking:
                if self.deadline.passed:
                    verdicts[peer.name] = skipped("time", UNVERIFIED)
                    continue
                self.reporter.at(peer.name, "prepares")
                with memory(backend) as held:
                    verdict = self._verdict(peer, problem, _DeviceInput(one, timed, ref), held)
                if not timed.restored():
                    verdict = Verdict("fail", f"{one}: {WROTE_INPUT}")
                verdicts[peer.name] = verdict
        finally:
            timed.release()
            self.timer.release()
        return verdicts

    def _verdict(
        self, peer: Library, problem: Problem, given: _DeviceInput, held: Memory
    ) -> Verdict | None:
        """The verdict on one library, from memory with different old content. Its first call has
        the variant of the input, so that a cached result is detected."""
        verdict: Verdict | None = None
        data, buffer = given.timed.data.elements, given.timed.buffer
        try:
            bound = held.bind(peer, problem, data, buffer, self.job.folder)
            given.timed.turn_to(1)
            bound.run()  # it may compile at its first call
            bound.answers()
            given.timed.turn_to(0)
            self.reporter.at(peer.name)
            for poison in _POISONS:
                new = _run_once(bound, given, poison)
                if new is not None:
                    verdict = worse(verdict or RIGHT, new)
        except Exception as error:
            verdict = verdict_on(peer, error, held.backend, f"{given.input}: ")
        if verdict is None:
            return None
        launches = Effort(launches=1 + len(_POISONS))
        return replace(verdict, effort=given.input.effort + launches)


def _patterns(job: Job, shape: Shape) -> list[str]:
    """The patterns for a shape; for large inputs and other layouts only the first."""
    if job.only:
        return [job.only]
    n, rows = shape
    names = patterns_for(job.reduction, n, _TILE)
    names = [name for name in names if name.partition(":")[0] in _ORDINARY]
    return names[:1] if n * rows > SMALL or job.odd else names


def _run_once(bound: Bound, given: _DeviceInput, poison: int) -> Verdict | None:
    bound.poison(poison)
    bound.run()
    verdict = judge(bound.plan, bound.answers(), given.ref, given.input.pattern)
    damage = bound.damage()
    if damage:
        verdict = Verdict("fail", damage)
    if verdict is not None and verdict.outcome == "fail":
        return replace(verdict, reason=f"{given.input}: {verdict.reason}")
    return verdict
