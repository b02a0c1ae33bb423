"""Verifies libraries: whether they are installed, support the problem, and give right results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import TimedBackend
from cudareduce.budget import Deadline
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Problem
from cudareduce.libraries.calls import Memory, Reporter, Runtimes, absent, memory, verdict_on
from cudareduce.libraries.contract import Library
from cudareduce.libraries.job import (
    CUT,
    PLAIN,
    UNVERIFIED,
    Job,
    Layout,
    LibraryResult,
    library_plan,
)
from cudareduce.reduction.patterns import patterns_for
from cudareduce.reduction.reference import Reference
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


def import_libraries(
    libraries: Sequence[Library], problem: Problem, reporter: Reporter, runtimes: Runtimes,
    deadline: Deadline | None = None,
) -> dict[str, LibraryResult]:  # fmt: skip
    """Import every library: a verdict on each that is not installed, does not support the problem,
    or is left when the deadline has passed."""
    results = {}
    for library in libraries:
        reporter.at(library.name, "imports")
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
            results[library.name] = replace(result, verdict=absent(library, error))
        runtimes.after(library)
    reporter.at("")
    return results


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
        job, problem = self.job, self.job.problem_of(layout)
        libraries = job.libraries()
        results = import_libraries(libraries, problem, self.reporter, self.runtimes, self.deadline)

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
                given = Input(pattern, *shape, job.seed, layout.offset)
                for library, verdict in self._verify(right(), given):
                    if verdict is not None:
                        decided.add((library.name, shape))
                        set_verdict(library, worse(results[library.name].verdict, verdict))
        for library in right():
            for shape in shapes[-job.asked :]:
                is_open = (library.name, shape) not in decided
                if is_open and not library.why_not(Problem(job.reduction, *shape)):
                    set_verdict(library, not_decided(shape[0]))
                    break
        return results

    def _verify(
        self, libraries: Sequence[Library], given: Input
    ) -> list[tuple[Library, Verdict | None]]:
        """Verdicts on one input of the libraries that support its shape; None if undecided."""
        reduction, backend = self.job.reduction, self.backend
        problem = Problem(reduction, given.n, given.rows)
        taking = [library for library in libraries if library.why_not(problem) is None]
        if not taking or self.deadline.passed:
            return [(library, skipped("time", UNVERIFIED)) for library in taking]
        (elements, *_), ref = self.inputs.of(given, reduction)
        data = TimedData(
            given.pattern, reduction, given.n, given.rows, given.seed,
            [library_plan(library.name, problem) for library in taking], elements,
        )  # fmt: skip
        timed = TimedInput(backend, self.timer, data, given.offset * reduction.dtype.size)
        verdicts: list[tuple[Library, Verdict | None]] = []
        try:
            for library in taking:
                if self.deadline.passed:
                    verdicts.append((library, skipped("time", UNVERIFIED)))
                    continue
                with memory(backend) as held:
                    verdict = self._verdict(library, problem, given, timed, ref, held)
                if not timed.restored():
                    verdict = Verdict("fail", f"{given}: {WROTE_INPUT}")
                verdicts.append((library, verdict))
        finally:
            timed.release()
            self.timer.release()
        return verdicts

    def _verdict(
        self, library: Library, problem: Problem, given: Input, timed: TimedInput, ref: Reference,
        held: Memory,
    ) -> Verdict | None:  # fmt: skip
        """The verdict on one library, from memory with different old content. Its first call has
        the variant of the input, so that a cached result is detected."""
        verdict: Verdict | None = None
        self.reporter.at(library.name, "prepares")
        try:
            elements, buffer = timed.data.elements, timed.buffer
            call = held.prepare(library, problem, elements, buffer, self.job.folder)
            timed.turn_to(1)
            call.run()  # it may compile at its first call
            call.answers()
            timed.turn_to(0)
            self.reporter.at(library.name)
            for poison in _POISONS:
                call.poison(poison)
                call.run()
                found = judge(call.plan, call.answers(), ref, given.pattern)
                damage = call.damage()
                if damage:
                    found = Verdict("fail", damage)
                if found is not None:
                    verdict = worse(verdict or RIGHT, found)
        except Exception as error:
            verdict = verdict_on(library, error, self.backend)
        if verdict is None:
            return None
        if verdict.outcome == "fail":
            verdict = replace(verdict, reason=f"{given}: {verdict.reason}")
        return replace(verdict, effort=given.effort + Effort(launches=1 + len(_POISONS)))


def _patterns(job: Job, shape: Shape) -> list[str]:
    """The patterns for a shape; for large inputs and other layouts only the first."""
    if job.only:
        return [job.only]
    n, rows = shape
    names = patterns_for(job.reduction, n, _TILE)
    names = [name for name in names if name.partition(":")[0] in _ORDINARY]
    return names[:1] if n * rows > SMALL or job.odd else names
