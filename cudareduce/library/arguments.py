"""What each parameter of a kernel of others gets: as the user says it (`--arg NAME=WHAT`), else as
names, types and the kernel's text tell."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.body import Body
from cudareduce.library.elements import bytes_of
from cudareduce.library.matrix import columns_of, counting, is_tile, strides
from cudareduce.library.parameters import Parameter, read_parameter
from cudareduce.library.room import EACH, Each, Room
from cudareduce.library.syntax import Function
from cudareduce.problem.sizes import parse_size

#: Nobody gives a kernel more memory beside its input, in bytes.
_MOST_ROOM = 2**28
_INTEGERS = re.compile(
    r"^(?:unsigned|signed|int|long|short|size_t|ptrdiff_t|u?int\d+_t|uint|[ui](?:32|64))\b(?!\d)"
)
_REALS = re.compile(r"^(?:float|double|real|half|__half)$")
_OUTPUT = re.compile(
    r"^(?:[dg]_?)?(?:o|out|dst|dest|res|result|y|sum|partial)|_(?:out|dst|dest)$", re.IGNORECASE
)
_SCRATCH = re.compile(
    r"part(?!ic)|scratch|te?mp|work|buf|inter|aux|block_?(?:sum|res)", re.IGNORECASE
)
_COUNTER = re.compile(
    r"count|ticket|arriv|done|finish|flag|(?<!b)lock|mutex|sem|retire|barrier|sync|ready|^turn",
    re.IGNORECASE,
)
_LOCK = re.compile(r"(?<!b)lock|mutex|sem", re.IGNORECASE)
#: What the places of extremes are called, which are written beside these.
_PLACE = re.compile(r"idx|ind(?:ex|ices)|arg|pos|loc|place|where", re.IGNORECASE)
#: What counts of elements are called.
COUNT = re.compile(r"^n$|^n(?:um)?_|count|size|len|elem", re.IGNORECASE)
#: What counters and locks are changed with, and no sum.
_EXCHANGES = frozenset(["atomicInc", "atomicDec", "atomicCAS", "atomicExch"])
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
#: What counts of rows are called.
ROWS = re.compile(r"^(?:n|num|total)?_?(?:rows|batch|batches|segments|height)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Argument:
    """What the user says that a parameter gets: that of this name, of the kernel of this name or,
    where it is empty, of all that have it."""

    kernel: str
    name: str
    what: str

    def means(self, kernel: str) -> bool:
        """Whether it is said of a kernel, whatever namespaces are named."""
        return not self.kernel or f"::{kernel}".endswith(f"::{self.kernel}")


def read_argument(text: str) -> Argument:
    """`NAME=WHAT` or `KERNEL.NAME=WHAT`, taken apart; a UsageError if it is neither, or no amount
    of memory."""
    before, equals, what = text.partition("=")
    kernel, _, name = before.strip().rpartition(".")
    if not equals or not name or not what.strip():
        raise UsageError(f"--arg {text} is not NAME=WHAT: write as in --arg counter=zeroed:4")
    found = Argument(kernel.removeprefix("::"), name, what.strip())
    kind, colon, amount = found.what.partition(":")
    if kind in ("zeroed", "scratch") and amount[:1] != ":":
        _amount(text, amount if colon else "")
    return found


def check(path: Path, functions: Sequence[Function], says: Sequence[Argument]) -> None:
    """Raise UsageError if something is said of a parameter that none of the kernels has."""
    for one in says:
        kernels = [function for function in functions if one.means(function.name)]
        names = [read_parameter(text).name for kernel in kernels for text in kernel.parameters]
        if one.name not in names:
            whose = "it has" if len(kernels) == 1 else "there are"
            known = ", ".join(dict.fromkeys(names)) or ", ".join(f.name for f in functions)
            what = f"parameter {one.name}" if kernels else f"kernel {one.kernel}"
            raise UsageError(f"{path}: --arg: there is no {what}; {whose}: {known}")


def _amount(text: str, amount: str) -> int | Each:
    """Bytes, or what there is an element for each of."""
    each: Each | None = next((word for word in EACH if word == amount), None)
    if each is not None:
        return each
    try:
        size = parse_size(amount)
    except UsageError:
        size = 0
    if 1 <= size <= _MOST_ROOM:
        return size
    raise UsageError(
        f"--arg {text} asks for no amount of memory: write bytes behind the colon, from 1 to "
        f"{_MOST_ROOM}, or an element for each block (grid), thread (threads) or input (n)"
    )


def room_of(parameter: Parameter, what: str, template: Sequence[str]) -> Room | None:
    """The memory that a parameter gets; None if it gets something else. Raises UsageError where
    the size of what it points to is not known."""
    kind, _, amount = ("scratch:grid" if what == "out2" else what).partition(":")
    if kind not in ("zeroed", "scratch") or amount[:1] == ":":
        return None
    size = _amount(f"{parameter.name}={what}", amount)
    if isinstance(size, int):
        return Room(parameter.name, size, None, kind == "zeroed")
    element = bytes_of(parameter.type, template)
    if element is None:
        raise UsageError(
            f"how many bytes {parameter.type} has is not known: say how many {parameter.name} "
            f"points to, as in --arg {parameter.name}={kind}:4096"
        )
    return Room(parameter.name, element, size, kind == "zeroed", what == "out2")


def guessed(
    parameters: Sequence[Parameter], given: Mapping[str, str], body: Body
) -> dict[str, str]:
    """What each parameter gets that is not `given` yet, by name, in the words of `--arg`; those
    that are not understood are left out."""
    left = [p for p in parameters if p.name not in given and not p.odd]
    memory = [p for p in parameters if p.points or p.refers or p.stars]
    if len(memory) == 1 and memory[0] in left and memory[0].points and memory[0].writes:
        alone = {memory[0].name: "in"}  # which then holds the answer, too
        values = [p for p in left if p not in memory]
        return alone | _of_values(values, {**given, **alone}, body)
    pointers = [p for p in left if p.points or p.writes]
    values = [p for p in left if p not in pointers and not p.stars]
    return _of_pointers(pointers, set(given.values()), body) | _of_values(values, given, body)


def _of_pointers(left: list[Parameter], taken: set[str], body: Body) -> dict[str, str]:
    """What is const, or never written to, is read. Beside an output there may be counters, locks
    and partials. Where the text does not tell, names do, and else the order."""
    found = {}
    changed = [p for p in left if p.writes and (p.refers or body.changes(p.name))]
    writers = changed or [p for p in left if p.writes]
    writers += [p for p in left if p.writes and p not in writers and _counts(p, body)]
    readers = [p for p in left if p not in writers]
    if "in" not in taken:
        if not readers and len(writers) > ("out" not in taken):
            readers = [_input(writers)]
            writers.remove(readers[0])
        found = {p.name: "in" for p in readers[:1]}
        if len(readers) == 2 and readers[0].type == readers[1].type and readers[1].points:
            found[readers[1].name] = "in2"
    counters = [p for p in writers if _counts(p, body)]
    if len(counters) == len(writers) and "out" not in taken:
        counters = counters[1:]
    for p in counters:
        found[p.name] = f"zeroed:{body.each(p.name) or bytes_of(p.type, ())}"
    writers = [p for p in writers if p not in counters]
    if "out" not in taken and writers:
        values = [p for p in writers if not (_PLACE.search(p.name) and _INTEGERS.match(p.type))]
        plain = [p for p in values if not _SCRATCH.search(p.name)] or values or writers
        out = next((p for p in plain if _OUTPUT.search(p.name)), plain[0])
        found[out.name] = "out"
        writers.remove(out)
    real = any(_REALS.match(p.type) for p in left if found.get(p.name) == "out")
    places = [p for p in writers if _INTEGERS.match(p.type) and (real or _PLACE.search(p.name))]
    found |= {p.name: "out2" for p in places if "out" in (*found.values(), *taken)}
    partials = [p for p in writers if _SCRATCH.search(p.name) and p not in places]
    return found | {p.name: f"scratch:{body.each(p.name) or 'grid'}" for p in partials}


def _input(pointers: Sequence[Parameter]) -> Parameter:
    """The one that is read of pointers that may all be written to."""
    words = (_OUTPUT, _SCRATCH, _COUNTER)
    named = [p for p in pointers if not any(w.search(p.name) for w in words) and p.points]
    if named or len(pointers) != 2:
        return (named or list(pointers))[0]
    first, second = pointers
    swapped = _OUTPUT.search(first.name) and not _OUTPUT.search(second.name)
    return second if swapped else first


def is_whole(parameter: Parameter) -> bool:
    """Whether it is the value of a whole number, or of a truth."""
    return not (parameter.stars or parameter.refers or parameter.odd) and (
        parameter.type == "bool" or _INTEGERS.match(parameter.type) is not None
    )


def _counts(parameter: Parameter, body: Body) -> bool:
    """Whether blocks count their arrivals there, or lock others out."""
    named = bool(_COUNTER.search(parameter.name)) or bool(body.atomics(parameter.name) & _EXCHANGES)
    return named and _INTEGERS.match(parameter.type) is not None


def locks(parameter: Parameter, body: Body) -> bool:
    """Whether it is a lock that guards the answer."""
    return bool(_LOCK.search(parameter.name)) or "atomicCAS" in body.atomics(parameter.name)


def _of_values(left: list[Parameter], given: Mapping[str, str], body: Body) -> dict[str, str]:
    """What names say; of the integers that are left one counts elements and another rows."""
    found: dict[str, str] = {}
    integers = [p for p in left if _INTEGERS.match(p.type)]
    for p in left:
        several = p in integers and len(integers) > 1
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
    fixed = any(what.isdigit() for what in given.values())
    columns = None if taken & {"n", "rows"} else columns_of(body, counts)
    if columns:
        found |= dict(zip(columns, ("rows", "n"), strict=True))
        counts = [name for name in counts if name not in columns]
    elif "n" not in taken and counts:
        steps = [name for name in counts if strides(body, name)]
        plain = [name for name in counts if name not in steps and not ROWS.match(name)]
        alone = len(counts) != 2 or fixed or not steps or _is_rows(counts, steps[0], body)
        plain.sort(key=lambda name: (not body.bounds(name), COUNT.search(name) is None))
        elements = ((steps if alone else plain) or plain or counts)[0]
        found[elements] = "n"
        counts.remove(elements)
    length = next((name for name, what in {**given, **found}.items() if what == "n"), "")
    rows = "" if columns else _rows(counts, length, body, several=len(counts) > 1 or fixed)
    if "rows" not in taken and rows:
        found[rows] = "rows"
    defaults = {p.name: p.default for p in left if p.default}
    known = {**given, **defaults, **found}
    return defaults | found | _besides([p for p in left if p.name not in known], known, body)


def _rows(counts: Sequence[str], length: str, body: Body, *, several: bool) -> str:
    """Which of these counts, besides that of the elements, is one of rows; empty for none. Of
    several it is the one that bounds them, else the one that bounds nothing, since a block of its
    own needs no bound, at best one that is used for nothing, else the one that is called so."""
    apart = strides(body, length)
    bounds = [name for name in counts if apart and _bounds_rows(name, length, body)]
    free = [name for name in counts if apart and not body.compared(name)]
    free.sort(key=lambda name: name in body.words)
    named = [name for name in counts if _is_rows([name], length, body)]
    return next(iter((*bounds, *(free if several else ()), *named)), "")


def _besides(left: list[Parameter], gets: Mapping[str, str], body: Body) -> dict[str, str]:
    """What is left over: what is only multiplied by is 1, as a number that scales a sum or, of
    rows, how many matrices there are, or a tile where blocks share a row; what bounds a row whose
    length is known is that, too; what the text does not have is 0."""
    found = {}
    for p in left:
        unused = p.name not in body.words and not COUNT.search(p.name)
        if unused and _INTEGERS.match(p.type):
            found[p.name] = "0"
        integer = _INTEGERS.match(p.type) and "rows" in gets.values()
        if (integer or _REALS.match(p.type)) and body.factors(p.name):
            found[p.name] = "BLOCK * ITEMS" if is_tile(body, p.name) else "1"
        elif integer and body.compared(p.name):
            found[p.name] = "n"
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
