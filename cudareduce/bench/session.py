"""What bench and verify share: cases from choices, programs for them, verdicts on them.

Verification happens here or in a child process: in a child whatever could take this process down,
which on the CPU is every kernel and on the GPU a file that is not one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from cudareduce.backend import Backend, BuildError, OutOfMemory
from cudareduce.backends import BackendSpec
from cudareduce.bench.settings import Settings
from cudareduce.launch.case import Case, Programs, build
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.verify.isolate import Isolation, Job
from cudareduce.verify.verdict import PASS, Verdict, worse
from cudareduce.verify.verify import SMALL, verify

#: Orders in which the emulator runs threads; none alone finds every missing barrier.
SCHEDULES = ("ascending", "random:1", "warp:1")
#: What the emulator's hazard build watches: several blocks, a tail, several rows.
HAZARD_SHAPES = ((1, 1), (1000, 1), (4097, 1), (31, 9), (257, 3))
#: A verification that is this slow counts as hanging: 60 s and a tenth of the pace of the slowest
#: kernel known, one atomic per element on two emulating cores.
_START_S, _ELEMENTS_PER_S = 60.0, 500_000

Phase = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
Shape = tuple[int, int]
Built = dict[Case, "Programs | BuildError"]


class Session:
    """A backend, opened, with what it takes to prepare and verify cases on it."""

    def __init__(
        self, backend: Backend, spec: BackendSpec, settings: Settings, phase: Phase
    ) -> None:
        self.backend, self.spec = backend, spec
        self.settings, self.phase = settings, phase
        self._isolation = Isolation()

    def close(self) -> None:
        """End the child process, if there is one."""
        self._isolation.close()

    def cases(
        self, choices: Sequence[Choice], what: Reduction
    ) -> Iterator[tuple[Case, str | None]]:
        """A case for each choice, with the reason where it cannot run."""
        asked = self.settings
        for choice in choices:
            kernel = choice.kernel
            block = asked.block or choice.block or kernel.block
            items = asked.items or choice.items or kernel.items
            case = Case(kernel, what, block, items, choice.suite, choice.name)
            reason = (
                kernel.why_not(what) or kernel.why_not_block(block) or kernel.why_not_items(items)
            )
            if reason is None and self.backend.name == "cpu" and kernel.requires:
                reason = f"needs hardware that the CPU does not emulate: {kernel.requires[0]}"
            yield case, reason

    def build(self, cases: Sequence[Case], shapes: Sequence[Shape]) -> Built:
        """Compile whatever the cases launch on rows of these shapes."""
        limits = self.backend.limits()
        stages = {
            case: [
                step.stage
                for shape in shapes
                if case.why_not_at(*shape, limits) is None
                for step in case.plan(*shape, limits).passes
            ]
            for case in cases
        }
        units = sum(len(set(names)) for names in stages.values())
        with self.phase("compiling", units) as step:
            built = build(self.backend, stages.items(), step)
        return {case: built.get(case, {}) for case in cases}

    def verify(
        self,
        programs: Mapping[Case, Programs],
        shapes: Sequence[Shape],
        into: dict[Case, Verdict],
        *,
        hazards: bool = False,
        skip_others: bool = False,
    ) -> None:
        """Add to the verdicts of cases; one that has failed already is left alone.

        A shape that a case does not take is a skip, unless `skip_others` says to pass over it.
        """
        limits = self.backend.limits()
        taken: dict[Case, list[Shape]] = {}
        for case in programs:
            reasons = {shape: case.why_not_at(*shape, limits) for shape in shapes}
            taken[case] = [shape for shape, reason in reasons.items() if reason is None]
            why = next(filter(None, reasons.values()), None)
            if why and not skip_others:
                into[case] = worse(into.get(case, PASS), Verdict("skip", why))
        here = [case for case in programs if not self._isolated(case)]
        cut = False
        with self.phase("verifying", len(programs) - len(here) + len(here) * len(shapes)) as step:
            for shape in shapes if here else ():
                if cut := self.settings.deadline.passed:
                    break
                left = [c for c in here if shape in taken[c] and _is_open(c, into)]
                for case, verdict in self._verify_here(left, programs, shape).items():
                    into[case] = worse(into.get(case, PASS), verdict)
                for _ in here:
                    step()
            for case in programs:
                if not self._isolated(case):
                    continue
                for job in self._jobs(case, taken[case], hazards):
                    cut = cut or self.settings.deadline.passed
                    if not cut and _is_open(case, into):
                        into[case] = worse(into.get(case, PASS), self._run(job))
                step()
        if cut:
            for case in programs:
                if _is_open(case, into):
                    into[case] = Verdict("skip", self.why_cut())

    def why_cut(self) -> str:
        """The reason of a case that there was no time for."""
        return (
            f"--max-time {self.settings.deadline.seconds or 0:g} s was spent before it was verified"
        )

    def _isolated(self, case: Case) -> bool:
        return self.backend.name == "cpu" or case.kernel.family == "user"

    def _verify_here(
        self, cases: Sequence[Case], programs: Mapping[Case, Programs], shape: Shape
    ) -> dict[Case, Verdict]:
        if not cases:
            return {}
        what, elements = cases[0].what, shape[0] * shape[1]
        too_large = self._why_too_large(what, elements)
        if too_large:
            return dict.fromkeys(cases, Verdict("skip", too_large))
        thorough = elements * what.dtype.size < 2**32
        ready = [(case, programs[case]) for case in cases]
        try:
            return verify(
                self.backend, ready, *shape, seed=self.settings.seed, thorough=thorough,
                only=self.settings.only_pattern,
            )  # fmt: skip
        except OutOfMemory as error:
            return dict.fromkeys(cases, Verdict("skip", str(error)))

    def _jobs(self, case: Case, shapes: Sequence[Shape], hazards: bool) -> Iterator[Job]:
        schedules = SCHEDULES if self.backend.name == "cpu" else ()
        asked = self.settings
        job = Job(self.spec, case, (), asked.seed, True, schedules, asked.only_pattern)
        small = tuple((n, rows) for n, rows in shapes if n * rows <= SMALL)
        if small:
            yield replace(job, shapes=small)
        for n, rows in shapes:
            if n * rows > SMALL:
                yield replace(job, shapes=((n, rows),), thorough=False, schedules=schedules[:1])
        if hazards and self.backend.name == "cpu":
            watched, limits = replace(self.spec, hazards=True), self.backend.limits()
            taken = tuple(s for s in HAZARD_SHAPES if case.why_not_at(*s, limits) is None)
            yield replace(job, spec=watched, shapes=taken, schedules=SCHEDULES[:1])

    def _run(self, job: Job) -> Verdict:
        too_large = self._why_too_large(job.case.what, max(n * rows for n, rows in job.shapes))
        if too_large:
            return Verdict("skip", too_large)
        elements = sum(n * rows for n, rows in job.shapes)
        limit = self.settings.time_limit_s or _START_S + elements / _ELEMENTS_PER_S
        return self._isolation.run(job, limit)

    def _why_too_large(self, what: Reduction, elements: int) -> str | None:
        """Why the host's memory does not hold the input; the emulator holds a second copy."""
        copies = 2 if self.backend.name == "cpu" else 1
        needed = elements * what.dtype.size * copies
        available = _available_bytes()
        if available is None or needed < available * 0.9:
            return None
        return (
            f"needs {needed / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"
        )


def _is_open(case: Case, verdicts: Mapping[Case, Verdict]) -> bool:
    return verdicts.get(case, PASS).outcome == "pass"


def _available_bytes() -> int | None:
    """What Linux says a process may still take without swapping; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
