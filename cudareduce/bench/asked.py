"""What a user may be asked to see to besides the number of elements, and inputs that are so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudareduce.launch.case import Case
from cudareduce.library.condition import Nan
from cudareduce.reduction.inputs import digits
from cudareduce.reduction.operators import Reduction

_SUMS = ("sum", "mean")
#: What is less to ask than all, the least first, where that is more than nothing.
LESS: dict[tuple[str, Any], tuple[Any, ...]] = {
    ("nan", "none"): ("propagate", "drop"),
    ("positive", "normal"): ("", "positive"),
    ("positive", "positive"): ("",),
    ("within", "float32"): ("", "int32"),
    ("within", "float16"): ("",),
    ("within", "bfloat16"): ("",),
}


def most_asked(reduction: Reduction, nan: Nan | None) -> dict[str, Any]:
    """All that a user can see to besides the number of elements, and to what becomes of a NaN where
    that is said, as it is of a minimum or a maximum alone."""
    most, name, kind = dict[str, Any](), reduction.op.name, reduction.dtype.kind
    if name in ("max", "argmax") and kind != "uint":
        most |= {"positive": "normal" if kind == "float" else "positive"}
    if name.endswith(("min", "max")) and kind == "float":
        most |= {"finite": True} | ({} if nan and name in ("min", "max") else {"nan": "none"})
    if reduction.op.indexed:
        most |= {"any": True}
    if name in _SUMS:
        most |= {"bounded": True} if kind == "float" else {}
        most |= {"within": narrower} if (narrower := _narrower(reduction)) else {}
        most |= {"positive": "positive"} if kind == "int" else {}
    return most | {"aligned": True}


def _narrower(reduction: Reduction) -> str:
    """The narrowest type in which a kernel may form partials of a sum, or what a map makes of
    elements, before they go into its accumulator; none where that has nothing narrower."""
    if reduction.dtype.kind == "float":
        return reduction.dtype.name if reduction.dtype != reduction.acc else ""
    return "float32"


def as_asked(pattern: str, reduction: Reduction, cases: Sequence[Case]) -> tuple[str, Reduction]:
    """The pattern and reduction whose elements are as all of these cases ask of a sum's: positive,
    and within the narrowest type."""
    narrow = [case.reduction.within for case in cases if case.reduction.within]
    within = min(narrow, key=digits, default=None)
    positive = any(case.asks.positive for case in cases) and reduction.op.name in _SUMS
    pattern = "positive" if positive and pattern == "random" else pattern
    return pattern, replace(reduction, within=within)
