"""What a run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudareduce.budget import Deadline
from cudareduce.problem.operators import Reduction
from cudareduce.timing.sampling import Method


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run was asked to do, beyond the kernels; None leaves a choice to each kernel.

    `only_pattern` verifies with this input alone; `baseline_kernel` is what speed-ups compare with;
    `time_limit_s` is when the verification of one kernel counts as hanging; `peak_gb_s` is theory,
    where the driver's is not to be used. Each of `timings` is `cold` or `warm`, `region` is `total`
    or `first-pass`.
    """

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    rows: int = 1
    block: int | None = None
    items: int | None = None
    pattern: str = "random"
    only_pattern: str | None = None
    region: str = "total"
    seed: int = 0
    rounds: int = 9
    peak_gb_s: float | None = None
    baseline_kernel: str | None = None
    time_limit_s: float | None = None
    timings: tuple[str, ...] = ("cold",)
    graph: bool = False
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def methods(self) -> tuple[Method, ...]:
        """By which methods the run times, in the order asked for."""
        kinds = [False, True] if self.graph else [False]
        return tuple(Method(timing == "cold", graph) for timing in self.timings for graph in kinds)
