"""Compare summation orders row by row: two tables, or two targets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Literal, get_args

from cudareduce.analysis.reveal.orders import BETWEEN, Order
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.report.numbers import DASH, short_size
from cudareduce.report.section import Section
from cudareduce.text import first_few

#: Verdicts, worst first. UNFIT: neither side supports the problem.
Verdict = Literal["WRONG", "CHANGED", "UNCERTAIN", "GONE", "NEW", "SAME", "UNFIT"]
_CODES: dict[Verdict, int] = {"WRONG": 3, "CHANGED": 1, "UNCERTAIN": 4, "GONE": 4}
#: How many names or problems a message lists.
_FIRST_FEW = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """The same target in baseline and candidate, or two different targets; None if one is
    missing."""

    old: Order | None
    new: Order | None
    verdict: Verdict
    reason: str = ""

    @property
    def shown(self) -> Order:
        """The candidate's order, else the baseline's."""
        order = self.new or self.old
        assert order is not None
        return order


def pair_orders(old: Sequence[Order], new: Sequence[Order], *, files: bool) -> list[Pair]:
    """Pair the orders of the same target; with `files` also those that only one side has. If the
    sides share no target, pair orders of the same problem. Raises UsageError if there are no
    pairs."""
    same = {order.key: order for order in old}
    pairs = [_pair(same.get(order.key), order) for order in new if files or order.key in same]
    if not any(pair.old for pair in pairs):
        pairs = [_pair(a, b) for b in new for a in old if not files and a.problem == b.problem]
    if not pairs:
        raise UsageError(f"the two sides have no call in common: {_why_no_pairs(old, new)}")
    if files:
        new_keys = {order.key for order in new}
        pairs += [_pair(order, None) for order in old if order.key not in new_keys]
    return pairs


def _why_no_pairs(old: Sequence[Order], new: Sequence[Order]) -> str:
    """Why two sides have no pairs, and how to make them comparable."""
    names, others = ({order.kernel: 0 for order in side} for side in (old, new))
    if not names.keys() & others.keys():
        return f"{_differing_names(names, others)}; reveal the same names for both"
    sizes, other_sizes = ({_problem_text(order): 0 for order in side} for side in (old, new))
    if not sizes.keys() & other_sizes.keys():
        differ = _differing_names(sizes, other_sizes)
        return f"{differ}; give both the same --n, --rows, --dtype and --acc"
    return "give both the same names, sizes, types, --block and --items"


def _differing_names(one: Iterable[str], other: Iterable[str]) -> str:
    return f"one is of {first_few(one, _FIRST_FEW)}, the other of {first_few(other, _FIRST_FEW)}"


def _problem_text(order: Order) -> str:
    rows = f" x {order.rows} rows" if order.rows != 1 else ""
    acc = f" in {order.acc}" if order.acc != order.dtype else ""
    return f"n = {short_size(order.n)}{rows} {order.dtype}{acc}"


def _pair(old: Order | None, new: Order | None) -> Pair:
    if new is None:
        return Pair(old, new, "GONE")
    if new.outcome == "wrong":
        return Pair(old, new, "WRONG", new.reason)
    if old is None:
        return Pair(old, new, "NEW")
    versions = ""
    if old.kernel == new.kernel and old.version != new.version:
        versions = f"version {old.version or 'unknown'}, now {new.version or 'unknown'}"
    if old.cause == new.cause == "unfit":
        return Pair(old, new, "UNFIT", new.reason)
    for order in (old, new):
        if order.outcome in ("skip", "wrong"):
            return Pair(old, new, "UNCERTAIN", f"{order.kernel}: {order.reason}")
    if (old.outcome == "varies") != (new.outcome == "varies"):
        return Pair(old, new, "CHANGED", versions or new.reason or old.reason)
    if old.outcome == "varies":
        return Pair(old, new, "SAME", "no fixed order on both sides")
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
    """1 if an order has changed, 3 if a result is wrong, 4 if undecided, else 0."""
    return worst_exit_code({_CODES[pair.verdict] for pair in pairs if pair.verdict in _CODES})


def section(pairs: Sequence[Pair], title: str) -> Section:
    """The table, worst verdict first, with the reasons as notes."""
    verdicts = get_args(Verdict)
    ordered = sorted(pairs, key=lambda pair: verdicts.index(pair.verdict))
    # values common to all rows go to title and notes, to fit 80 columns
    kinds = dict.fromkeys(pair.shown.dtype for pair in ordered)
    common, name = _naming(ordered)
    rows = tuple(
        (pair.verdict, name(pair), short_size(pair.shown.n),
         *([pair.shown.dtype] if len(kinds) > 1 else []), _hash_text(pair.old),
         _hash_text(pair.new))
        for pair in ordered
    )  # fmt: skip
    header = ("verdict", "call", "n", *(["dtype"] if len(kinds) > 1 else []), "hash", "now")
    title = title if len(kinds) > 1 else f"{title}, {next(iter(kinds))}"
    return Section(title, header, rows, (*common, *_notes(ordered, name)), texts=2)


def _naming(pairs: Sequence[Pair]) -> tuple[tuple[str, ...], Callable[[Pair], str]]:
    """Notes, and a function that names a row. If rows compare two targets of which one is always
    the same, rows have the name of the other, and a note names the common one."""
    both = [(pair.old.kernel, pair.new.kernel) for pair in pairs if pair.old and pair.new]
    if all(old == new for old, new in both):
        return (), lambda pair: pair.shown.kernel
    olds, news = (set(side) for side in zip(*both, strict=True))
    if len(olds) == 1:
        return (f"hash: of {olds.pop()}; now: of the call",), lambda pair: pair.shown.kernel
    if len(news) == 1:
        return (
            f"hash: of the call; now: of {news.pop()}",
        ), lambda pair: pair.old.kernel if pair.old else DASH
    return (), lambda pair: " and ".join(o.kernel for o in (pair.old, pair.new) if o)


def to_json(pairs: Sequence[Pair]) -> str:
    """Both orders of each pair with the verdict."""
    values = [
        {"verdict": pair.verdict, "reason": pair.reason,
         "old": asdict(pair.old) if pair.old else None,
         "new": asdict(pair.new) if pair.new else None}
        for pair in pairs
    ]  # fmt: skip
    return json.dumps(values, indent=1) + "\n"


def _hash_text(order: Order | None) -> str:
    if order is None:
        return DASH
    return order.hash or order.outcome


def _notes(pairs: Sequence[Pair], name: Callable[[Pair], str]) -> Iterator[str]:
    for pair in pairs:
        if pair.reason or pair.verdict == "CHANGED":
            yield f"{name(pair)}, n = {pair.shown.n}: {pair.verdict}: {_why(pair)}"


def _why(pair: Pair) -> str:
    """The reason of a verdict; for a changed order also the first different sum and both depths."""
    old, new = pair.old, pair.new
    if pair.verdict != "CHANGED" or old is None or new is None:
        return pair.reason
    depths = [DASH if order.depth is None else str(order.depth) for order in (old, new)]
    depth = f"depth {depths[0]}, now {depths[1]}" if old.depth != new.depth else ""
    reasons = "; ".join(filter(None, (pair.reason, _first_sum(old, new), depth)))
    return reasons or "sums that are not in the picture differ"


def _first_sum(old: Order, new: Order) -> str:
    """The first line that differs between the pictures of two trees with the same leaves."""
    if not (old.hashes and new.hashes and old.hashes.keys() == new.hashes.keys()):
        return ""
    lines = zip_longest(old.picture, new.picture, fillvalue="")
    before, now = next((pair for pair in lines if pair[0] != pair[1]), ("", ""))
    (size, _, parts), (other, _, parts_now) = (
        line.strip().partition(BETWEEN) for line in (before, now)
    )
    if not (parts and parts_now):
        return ""
    first = f"a sum of {size}" if old.exact else f"in a sum of {size} element 0 meets"
    return f"{first}: {parts}, now {'' if size == other else f'one of {other}: '}{parts_now}"
