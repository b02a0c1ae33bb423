"""What the values among the parameters of a kernel of others get: counts of elements and of rows,
what a launch is made of, and what changes nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cudareduce.library.body import Body
from cudareduce.library.matrix import SHAPE, columns_of, counting, is_tile, strides
from cudareduce.library.parameters import Parameter

INTEGERS = re.compile(
    r"^(?:unsigned|signed|int|long|short|size_t|ptrdiff_t|u?int\d+_t|uint|[ui](?:32|64))\b(?!\d)"
)
REALS = re.compile(r"^(?:float|double|real|half|__half)$")
#: What counts of elements are called.
COUNT = re.compile(r"^n$|^n(?:um)?_|count|size|len|elem", re.IGNORECASE)
#: Values that are called so: what begins a reduction, and what changes nothing of its answer.
_VALUES = (
    (re.compile(r"init|ident|neutral|^seed|^zero", re.IGNORECASE), "Op::identity()"),
    (re.compile(r"^(?:scale|alpha|factor)", re.IGNORECASE), "1"),
    (re.compile(r"^beta|^(?:start|begin|offset|first)$", re.IGNORECASE), "0"),
    (re.compile(r"is_?pow", re.IGNORECASE), "false"),
)  # fmt: skip
#: Integers that are called so beside a count of elements.
_LAUNCH = (
    (re.compile(r"block_?(?:size|dim)|threads", re.IGNORECASE), "BLOCK"),
    (re.compile(r"grid_?(?:size|dim)|blocks", re.IGNORECASE), "gridDim.x"),
    (re.compile(r"item|per_?thread", re.IGNORECASE), "ITEMS"),
)
#: What is reckoned from a count is called.
_SHARE = re.compile(r"half|quarter|pairs|rounds|chunk|^n_?[248]$", re.IGNORECASE)
#: What counts of rows are called.
ROWS = re.compile(
    r"^(?:n|num|total)?_?(?:rows|batch|batches|segments|height)$"
    r"|^(?:before|outer)_?(?:size|dim|count|elements|n)?$", re.IGNORECASE,
)  # fmt: skip
#: What a pointer to a count may lead to, in the words of a call.
_BEHIND = frozenset(["n", "rows", "BLOCK", "ITEMS", "gridDim.x"])


def is_value_behind(parameter: Parameter, body: Body) -> bool:
    """Whether it is a pointer to one count that is only read, as `*size`: it gets what the value
    itself would."""
    name = parameter.name
    named = COUNT.search(name) or ROWS.search(name) or of_launch(parameter)
    number = parameter.points and INTEGERS.match(parameter.type) is not None
    read = not body.changes(parameter.name) and body.in_one_place(parameter.name)
    return bool(named) and number and read


def leads_to_value(parameter: Parameter, what: str) -> bool:
    """Whether a pointer gets the place of such a value, and not one of memory."""
    return parameter.points and (what in _BEHIND or what.startswith("n / "))


def is_whole(parameter: Parameter) -> bool:
    """Whether it is the value of a whole number, or of a truth."""
    return not (parameter.stars or parameter.refers or parameter.odd) and (
        parameter.type == "bool" or INTEGERS.match(parameter.type) is not None
    )


def of_launch(parameter: Parameter) -> str:
    """What of a launch it is called after, in the words of a call; empty for none."""
    return next((what for word, what in _LAUNCH if word.search(parameter.name)), "")


def _counts_in_reals(parameter: Parameter, body: Body) -> bool:
    """Whether a count of elements has the type of a real number."""
    real = parameter.type in ("float", "double") and not parameter.stars
    return real and COUNT.search(parameter.name) is not None and body.bounds(parameter.name)


def of_values(left: list[Parameter], given: Mapping[str, str], body: Body) -> dict[str, str]:
    """What names say; of the integers that are left one counts elements and another rows."""
    found: dict[str, str] = {}
    integers = [p for p in left if INTEGERS.match(p.type) and not body.sought(p.name, alone=True)]
    if not any(body.bounds(p.name) for p in integers):
        integers += [p for p in left if _counts_in_reals(p, body)]
    counted = {p.name for p in integers if p.name in body.words and not of_launch(p)}
    for p in left:
        partials = not counted and body.bounds(p.name)  # of others' blocks, which are elements here
        several = p in integers and len(integers) > 1 and not partials
        tables = (*_VALUES, *(_LAUNCH if several else ()))
        what = next((what for word, what in tables if word.search(p.name)), None)
        if several and _is_tiles(p.name, body):
            what = "ITEMS"
        if what is not None:
            found[p.name] = what
    left_over = [p.name for p in integers if p.name not in found]
    counts, ones = counting(body, left_over, COUNT)
    found |= dict.fromkeys(ones, "1")
    taken = set(given.values())
    taken |= {"n", "rows"} if taken >= {*SHAPE} else set()
    fixed = any(what.isdigit() for what in given.values())
    columns = None if taken & {"n", "rows"} else columns_of(body, counts)
    if columns:
        found |= dict(zip(columns, ("rows", "n"), strict=True))
        counts = [name for name in counts if name not in columns]
    elif "n" not in taken and counts:
        steps = [name for name in counts if strides(body, name)]
        plain = [name for name in counts if name not in steps and not ROWS.match(name)]
        alone = len(counts) != 2 or fixed or not steps or _is_rows(counts, steps[0], body)
        plain.sort(
            key=lambda name: (
                _SHARE.search(name) is not None, not body.bounds(name), COUNT.search(name) is None
            )
        )  # fmt: skip
        elements = ((steps if alone else plain) or plain or counts)[0]
        found[elements] = "n"
        counts.remove(elements)
    length = next((name for name, what in {**given, **found}.items() if what == "n"), "")
    rows = "" if columns else _rows(counts, length, body, several=len(counts) > 1 or fixed)
    if "rows" not in taken and rows:
        found[rows] = "rows"
    defaults = {p.name: p.default for p in left if p.default}
    known = {**given, **defaults, **found}
    rest = [p for p in left if p.name not in known]
    across = "rows" if columns else "n"
    return defaults | found | _besides(rest, known, body, across)


def _rows(counts: Sequence[str], length: str, body: Body, *, several: bool) -> str:
    """Which of these counts, besides that of the elements, is one of rows; empty for none. Of
    several it is the one that bounds them, or is called so and used, else the one that bounds
    nothing, since a block of its own needs no bound, at best one that is used for nothing."""
    apart = strides(body, length)
    bounds = [name for name in counts if apart and _bounds_rows(name, length, body)]
    free = [name for name in counts if apart and not body.compared(name)]
    free.sort(key=lambda name: name in body.words)
    named = [name for name in counts if _is_rows([name], length, body)]
    called = [name for name in named if ROWS.match(name) and name in body.words]
    return next(iter((*bounds, *called, *(free if several else ()), *named)), "")


def _besides(
    left: list[Parameter], gets: Mapping[str, str], body: Body, across: str
) -> dict[str, str]:
    """What is left over: what is only multiplied by is 1, as a number that scales a sum or, of
    rows, how many matrices there are, or a tile where blocks share a row; what bounds a row whose
    length is known is that, too, and what bounds blocks what lies `across`; what the text does not
    have is 0."""
    found = {}
    for p in left:
        counted = "n" in gets.values()
        unused = p.name not in body.words and (counted or not COUNT.search(p.name))
        if unused and INTEGERS.match(p.type):
            found[p.name] = "0"
        integer = INTEGERS.match(p.type) and "rows" in gets.values()
        if (integer or REALS.match(p.type)) and body.factors(p.name):
            found[p.name] = "BLOCK * ITEMS" if is_tile(body, p.name) else "1"
        elif integer and body.compared(p.name):
            blocks = any("blockIdx.x" in words for words in body.compared(p.name))
            found[p.name] = across if blocks else "n"
    return found


def _is_rows(counts: Sequence[str], length: str, body: Body) -> bool:
    """Whether the count that is not this length is one of rows: it is called so, compared with an
    index that the length is no part of, or used for nothing. A length that others than rows are
    apart is none."""
    (name,) = [count for count in counts if count != length]
    if not strides(body, length):
        return bool(ROWS.match(name)) and not body.factors(length)
    unused = name not in body.words  # by who has a block for each
    return unused or _bounds_rows(name, length, body) or bool(ROWS.match(name))


def _bounds_rows(name: str, length: str, body: Body) -> bool:
    """Whether a count is compared with an index of blocks that the length is no part of."""
    return any("blockIdx.x" in words and length not in words for words in body.compared(name))


def _is_tiles(name: str, body: Body) -> bool:
    """Whether a block takes so many elements a thread: its threads times this."""
    return any("blockDim.x" in w and "threadIdx.x" not in w for w in body.factors(name))
