"""The settings of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from secrets import randbits

from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Nan
from cudareduce.catalog.registry import Choice
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import Reduction
from cudareduce.timing.sampling import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run was asked to do, beyond the kernels; None leaves a choice to each kernel.

    `usual_sizes` says that nobody has said any, and a file of others may have one of its own.
    `instead` are reductions for a file of the user's that takes none of `reductions`, where these
    are only what is usual. `nan` is what is to become of a NaN in a minimum or maximum by a file of
    the user's; None is either.
    `only_pattern` verifies with this input alone; `baseline_kernel` is what speed-ups compare with;
    `time_limit_s` is when the verification of one kernel counts as hanging; `peak_gb_s` is theory,
    where the driver's is not to be used. Each of `timings` is `cold` or `warm`, `region` is `total`
    or `first-pass`; each of `sms` is how many SMs may work, None for all. `timed_seed` is of the
    input that is timed: another than verification has, so that what a kernel may have kept from
    there, or knows beforehand, is of no use. `energy` is counted, too.
    """

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    usual_sizes: bool = False
    instead: tuple[Reduction, ...] = ()
    nan: Nan | None = None
    rows: int = 1
    block: int | None = None
    items: int | None = None
    sms: tuple[int | None, ...] = (None,)
    pattern: str = "random"
    only_pattern: str | None = None
    region: str = "total"
    seed: int = 0
    timed_seed: int = field(default_factory=lambda: randbits(31))
    rounds: int = 9
    peak_gb_s: float | None = None
    baseline_kernel: str | None = None
    time_limit_s: float | None = None
    timings: tuple[str, ...] = ("cold",)
    graph: bool = False
    energy: bool = False
    deadline: Deadline = field(default_factory=Deadline)

    def sizes_of(self, case: Case) -> Collection[int]:
        """The sizes at which a case is measured, in elements per row."""
        return self.sizes if case.only is None else case.only

    def shares(self, choices: Sequence[Choice]) -> dict[Reduction, list[Choice]]:
        """The kernels that each reduction is tried with."""
        shares: dict[Reduction, list[Choice]] = {reduction: [] for reduction in self.reductions}
        for choice in choices:
            kernel, mine = choice.kernel, tuple(_of(choice, r) for r in self.reductions)
            program = kernel.program
            computes = program.computes if program is not None else None
            if computes is not None and self._allows(computes):
                shares.setdefault(computes, []).append(choice)
                continue
            if kernel.foreign and all(kernel.why_not(r) for r in mine):
                others = (_of(choice, reduction) for reduction in self.instead)
                mine = next(((r,) for r in others if kernel.why_not(r) is None), mine)
            for reduction in mine:
                shares.setdefault(reduction, []).append(choice)
        return {reduction: some for reduction, some in shares.items() if some}

    def _allows(self, computes: Reduction) -> bool:
        """True if the requested operators, types and transform leave open what a program
        computes."""
        if any(reduction.map for reduction in self.reductions):
            return False
        return any((r.op, r.dtype) == (computes.op, computes.dtype) for r in self.instead)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The timing methods of the run, in the requested order."""
        kinds = [False, True] if self.graph else [False]
        return tuple(Method(timing == "cold", graph) for timing in self.timings for graph in kinds)


def _of(choice: Choice, reduction: Reduction) -> Reduction:
    """A requested reduction as a kernel computes it: with its own transform unless another one is
    requested; of an external program with its accumulator and layout."""
    kernel, mapped = choice.kernel, reduction.map
    if kernel.map and (mapped is None or mapped.expression == kernel.map.expression):
        mapped = kernel.map
    computes = kernel.program.computes if kernel.program else None
    if computes is not None and computes.dtype == reduction.dtype:
        return replace(computes, op=reduction.op, map=mapped)
    return replace(reduction, map=mapped)
