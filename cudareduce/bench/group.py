"""What is known so far of cases that are measured against each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudareduce.gpu.nvml import Conditions
from cudareduce.launch.case import Case
from cudareduce.problem.operators import Reduction
from cudareduce.timing.rounds import Timing
from cudareduce.verify.verdict import Verdict


@dataclass(slots=True)
class Timed:
    """What one method found: a timing of each case, and what was measured beside them."""

    timings: dict[Case, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    floors: dict[str, float] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(slots=True)
class Group:
    """What is known so far of cases that are measured against each other."""

    what: Reduction
    n: int
    verdicts: dict[Case, Verdict]
    shas: dict[Case, str | None]
    timed: dict[str, Timed] = field(default_factory=dict)
    conditions: dict[tuple[int, int], float] = field(default_factory=dict)  # by shape
