"""Whether an order has changed: two tables, or two calls, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.report.numbers import DASH, short_size
from cudareduce.report.sections import Section
from cudareduce.reveal.table import Order

#: Worst first.
Verdict = Literal["WRONG", "CHANGED", "UNCERTAIN", "GONE", "NEW", "SAME"]
_CODES: dict[Verdict, int] = {"WRONG": 3, "CHANGED": 1, "UNCERTAIN": 4, "GONE": 4}


@dataclass(frozen=True, slots=True)
class Pair:
    """One call before and after, or one and another; None where there is none."""

    old: Order | None
    new: Order | None
    verdict: Verdict
    reason: str = ""

    @property
    def shown(self) -> Order:
        """The one that is there, the new one rather than the old one."""
        found = self.new or self.old
        assert found is not None
        return found


def compared(old: Sequence[Order], new: Sequence[Order], *, files: bool) -> list[Pair]:
    """Orders of the same calls, of `files` those that one side lacks too; where the sides share no
    call, those of the same problem. A UsageError where there is nothing to compare."""
    same = {order.key: order for order in old}
    pairs = [_judged(same.get(order.key), order) for order in new if files or order.key in same]
    if not any(pair.old for pair in pairs):
        pairs = [_judged(a, b) for b in new for a in old if not files and a.problem == b.problem]
    if not pairs:
        raise UsageError("the two have no call in common: give both the same --n and --dtype")
    if files:
        there = {order.key for order in new}
        pairs += [_judged(order, None) for order in old if order.key not in there]
    return pairs


def _judged(old: Order | None, new: Order | None) -> Pair:
    if new is None:
        return Pair(old, new, "GONE")
    if new.outcome == "wrong":
        return Pair(old, new, "WRONG", new.reason)
    if old is None:
        return Pair(old, new, "NEW")
    versions = "" if old.version == new.version else f"version {old.version}, now {new.version}"
    for order in (old, new):
        if order.outcome in ("skip", "wrong"):
            return Pair(old, new, "UNCERTAIN", f"{order.kernel}: {order.reason}")
    if (old.outcome == "varies") != (new.outcome == "varies"):
        return Pair(old, new, "CHANGED", versions or new.reason or old.reason)
    if old.outcome == "varies":
        return Pair(old, new, "SAME", "in no fixed order, both")
    both = old.hashes.keys() & new.hashes.keys()
    if not both:
        return Pair(old, new, "UNCERTAIN", old.reason or new.reason)
    size = max(both, key=int)
    if old.hashes[size] != new.hashes[size]:
        return Pair(old, new, "CHANGED", versions)
    if old.adds_in != new.adds_in:
        return Pair(old, new, "CHANGED", new.reason or old.reason)
    return Pair(old, new, "SAME", versions)


def exit_code(pairs: Sequence[Pair]) -> int:
    """1 if an order has changed, 3 if a call is wrong, 4 if it cannot be said; else 0."""
    return worst_exit_code({_CODES[pair.verdict] for pair in pairs if pair.verdict in _CODES})


def section(pairs: Sequence[Pair], title: str) -> Section:
    """Worst first, with reasons below."""
    verdicts = ("WRONG", "CHANGED", "UNCERTAIN", "GONE", "NEW", "SAME")
    ordered = sorted(pairs, key=lambda pair: verdicts.index(pair.verdict))
    rows = tuple(
        (pair.verdict, _name(pair), short_size(pair.shown.n), pair.shown.dtype,
         _of(pair.old), _of(pair.new))
        for pair in ordered
    )  # fmt: skip
    header = ("verdict", "call", "n", "dtype", "hash", "now")
    return Section(title, header, rows, tuple(_notes(ordered)), texts=2)


def to_json(pairs: Sequence[Pair]) -> str:
    """Both orders of each pair, with the verdict."""
    values = [
        {"verdict": pair.verdict, "reason": pair.reason,
         "old": asdict(pair.old) if pair.old else None,
         "new": asdict(pair.new) if pair.new else None}
        for pair in pairs
    ]  # fmt: skip
    return json.dumps(values, indent=1) + "\n"


def _name(pair: Pair) -> str:
    names = dict.fromkeys(order.kernel for order in (pair.old, pair.new) if order)
    return " and ".join(names)


def _of(order: Order | None) -> str:
    if order is None:
        return DASH
    return order.hash or order.outcome


def _notes(pairs: Sequence[Pair]) -> Iterator[str]:
    for pair in pairs:
        if pair.reason or pair.verdict == "CHANGED":
            yield f"{_name(pair)}, n = {pair.shown.n}: {pair.verdict}: {_why(pair)}"


def _why(pair: Pair) -> str:
    """The reason, and of what has changed the depths."""
    if pair.verdict != "CHANGED" or pair.old is None or pair.new is None:
        return pair.reason
    depths = [DASH if order.depth is None else str(order.depth) for order in (pair.old, pair.new)]
    return "; ".join(filter(None, (pair.reason, f"depth {depths[0]}, now {depths[1]}")))
