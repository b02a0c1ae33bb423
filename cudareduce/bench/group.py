"""Verdicts and times of cases that are measured together: one reduction at one size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan
from cudareduce.machine import Conditions
from cudareduce.reduction.operators import Reduction
from cudareduce.timing.rounds import Timing
from cudareduce.verify.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The result of one timing method: a timing of each case, and reference launches. `ceiling` is
    that of the fastest read-only launch, `floors` are microseconds by name."""

    timings: Mapping[Case, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Verdicts and times of cases at `n` elements a row.

    `plans` holds the plan of each case that takes the size, `shas` the hash of its machine code,
    `times` what each method found, by its label, and `condition_numbers` how far cancellation
    magnifies errors, by shape; `joules` are those of one launch. `stories` tell how rounds went,
    `remarks` are for the user. `tried`: timing was begun. `interrupted`: Ctrl-C ended it, and it
    holds what there was by then.
    """

    reduction: Reduction
    n: int
    plans: Mapping[Case, Plan] = field(default_factory=dict)
    verdicts: Mapping[Case, Verdict]
    shas: Mapping[Case, str | None] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    condition_numbers: Mapping[Shape, float] = field(default_factory=dict)
    joules: Mapping[Case, float] = field(default_factory=dict)
    stories: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    tried: bool = False
    interrupted: bool = False
