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
    """The settings of a run; None selects the default of each kernel.

    - `sizes`: elements per row. `usual_sizes`: these are defaults, which an external file may
      replace.
    - `instead`: reductions to try for an external file that supports none of `reductions`.
    - `nan`: the required treatment of NaN in min and max by an external file; None accepts either.
    - `sms`: numbers of SMs to run on; None is all.
    - `only_pattern`: the only input pattern to verify with.
    - `region`: `total` or `first-pass`; `timings`: `cold` and `warm`.
    - `timed_seed`: seed of the timed input. It differs from `seed`, so that a kernel cannot reuse
      results from verification.
    - `peak_gb_s`: replaces the theoretical bandwidth that the driver reports.
    - `time_limit_s`: a kernel whose verification takes longer counts as hanging.
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
        """The kernels to run for each reduction."""
        shares: dict[Reduction, list[Choice]] = {reduction: [] for reduction in self.reductions}
        for choice in choices:
            kernel, reductions = choice.kernel, tuple(_of(choice, r) for r in self.reductions)
            program = kernel.program
            computes = program.computes if program is not None else None
            if computes is not None and self._allows(computes):
                shares.setdefault(computes, []).append(choice)
                continue
            if kernel.foreign and all(kernel.why_not(r) for r in reductions):
                others = (_of(choice, reduction) for reduction in self.instead)
                reductions = next(((r,) for r in others if kernel.why_not(r) is None), reductions)
            for reduction in reductions:
                shares.setdefault(reduction, []).append(choice)
        return {reduction: kernels for reduction, kernels in shares.items() if kernels}

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
