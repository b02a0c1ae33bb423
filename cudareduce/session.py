"""What bench and verify share: cases from choices, programs for them, verdicts on them.

Verification happens here or in a child process: in a child whatever could take this process down,
which on the CPU is every kernel and on the GPU a file that is not one of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cudareduce.backend import Backend, BuildError, OutOfMemory
from cudareduce.backends import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.execute import Case, Programs, build
from cudareduce.isolate import Isolation, Job
from cudareduce.operators import Reduction
from cudareduce.registry import Choice
from cudareduce.verify import PASS, SMALL, Verdict, verify, worse

#: Orders in which the emulator runs threads; none alone finds every missing barrier.
SCHEDULES = ("ascending", "random:1", "warp:1")
#: Sizes at which the emulator's hazard build watches every access: several blocks, and a tail.
HAZARD_SIZES = (1, 1000, 4097)
#: A verification that is this slow counts as hanging: 60 s and a tenth of the pace of the slowest
#: kernel known, one atomic per element on two emulating cores.
_START_S, _ELEMENTS_PER_S = 60.0, 500_000

Phase = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
Built = dict[Case, "Programs | BuildError"]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run was asked to do, beyond the kernels; None leaves a choice to each kernel."""

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    rows: int = 1
    block: int | None = None
    items: int | None = None
    pattern: str = "random"
    only_pattern: str | None = None  # verify with this one alone
    region: str = "total"
    seed: int = 0
    rounds: int = 9
    peak_gb_s: float | None = None
    baseline: str | None = None
    time_limit_s: float | None = None
    timings: tuple[str, ...] = ("cold",)
    graph: bool = False
    deadline: Deadline = field(default_factory=Deadline)


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

    def build(self, cases: Sequence[Case], sizes: Sequence[int]) -> Built:
        """Compile whatever the cases launch at these sizes."""
        limits, rows = self.backend.limits(), self.settings.rows
        stages = {
            case: [step.stage for n in sizes for step in case.plan(n, rows, limits).passes]
            for case in cases
        }
        units = sum(len(set(names)) for names in stages.values())
        with self.phase("compiling", units) as step:
            built = build(self.backend, stages.items(), step)
        return {case: built.get(case, {}) for case in cases}

    def verify(
        self,
        programs: Mapping[Case, Programs],
        sizes: Sequence[int],
        into: dict[Case, Verdict],
        *,
        hazards: bool = False,
    ) -> None:
        """Add to the verdicts of cases; one that has failed already is left alone."""
        cut = False
        with self.phase(
            "verifying", len(programs) * (1 if self._isolated_all() else len(sizes))
        ) as step:
            here = {c: p for c, p in programs.items() if not self._isolated(c)}
            for n in sizes if here else ():
                if cut := self.settings.deadline.passed:
                    break
                left = [(c, p) for c, p in here.items() if into.get(c, PASS).outcome == "pass"]
                for case, verdict in self._verify_here(left, n).items():
                    into[case] = worse(into.get(case, PASS), verdict)
                    step()
            for case in programs:
                if self._isolated(case) and into.get(case, PASS).outcome == "pass":
                    for job in self._jobs(case, sizes, hazards):
                        cut = cut or self.settings.deadline.passed
                        if not cut:
                            into[case] = worse(into.get(case, PASS), self._run(job))
                    step()
        if cut:
            for case in programs:
                if into.get(case, PASS).outcome == "pass":
                    into[case] = Verdict("skip", self.why_cut())

    def why_cut(self) -> str:
        """The reason of a case that there was no time for."""
        return (
            f"--max-time {self.settings.deadline.seconds or 0:g} s was spent before it was verified"
        )

    def _isolated_all(self) -> bool:
        return self.backend.name == "cpu"

    def _isolated(self, case: Case) -> bool:
        return self._isolated_all() or case.kernel.family == "user"

    def _verify_here(self, cases: list[tuple[Case, Programs]], n: int) -> dict[Case, Verdict]:
        if not cases:
            return {}
        asked = self.settings
        too_large = self._why_too_large(cases[0][0].what, n)
        if too_large:
            return dict.fromkeys((case for case, _ in cases), Verdict("skip", too_large))
        thorough = n * asked.rows * cases[0][0].what.dtype.size < 2**32
        try:
            return verify(
                self.backend, cases, n, asked.rows,
                seed=asked.seed, thorough=thorough, only=asked.only_pattern,
            )  # fmt: skip
        except OutOfMemory as error:
            return dict.fromkeys((case for case, _ in cases), Verdict("skip", str(error)))

    def _jobs(self, case: Case, sizes: Sequence[int], hazards: bool) -> Iterator[Job]:
        asked = self.settings
        schedules = SCHEDULES if self.backend.name == "cpu" else ()
        job = Job(self.spec, case, (), asked.rows, asked.seed, True, schedules, asked.only_pattern)
        small = tuple(n for n in sizes if n * asked.rows <= SMALL)
        if small:
            yield replace(job, sizes=small)
        for n in sizes:
            if n * asked.rows > SMALL:
                yield replace(job, sizes=(n,), thorough=False, schedules=schedules[:1])
        if hazards and self.backend.name == "cpu":
            watched = replace(self.spec, hazards=True)
            yield replace(job, spec=watched, sizes=HAZARD_SIZES, schedules=SCHEDULES[:1])

    def _run(self, job: Job) -> Verdict:
        elements = sum(job.sizes) * job.rows
        too_large = self._why_too_large(job.case.what, max(job.sizes))
        if too_large:
            return Verdict("skip", too_large)
        limit = self.settings.time_limit_s or _START_S + elements / _ELEMENTS_PER_S
        return self._isolation.run(job, limit)

    def _why_too_large(self, what: Reduction, n: int) -> str | None:
        """Why the host's memory does not hold the input; the emulator holds a second copy."""
        copies = 2 if self.backend.name == "cpu" else 1
        needed = n * self.settings.rows * what.dtype.size * copies
        available = _available_bytes()
        if available is None or needed < available * 0.9:
            return None
        return (
            f"needs {needed / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"
        )


def _available_bytes() -> int | None:
    """What Linux says a process may still take without swapping; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
