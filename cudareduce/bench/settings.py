"""What a run was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudareduce.budget import Deadline
from cudareduce.problem.operators import Reduction


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
