"""How a file launches a kernel itself, as far as its text says so: block, grid, elements a thread,
shared memory, template arguments.

Of several launches only what they agree on counts, and of a launch on what another one has written
nothing. How a grid follows from the number of elements is found out by putting numbers in its
place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import takewhile

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.constants import Reading, Unknown
from cudareduce.library.expressions import names
from cudareduce.library.header import GridRule
from cudareduce.library.host_code import HostCall, number_at
from cudareduce.library.scopes import Constants, Scope
from cudareduce.library.syntax import Function

#: Elements of a tile, and how many times as many are put in for the number of elements: every usual
#: number of elements a thread divides it.
_TIMES = 5040 * 64
_MOST_THREADS, _MOST_BLOCKS = 1024, 2**31 - 1
#: Bytes of shared memory: no block has more.
_MOST_SHARED = 227 * 2**10
#: What stands for a block that the launch leaves to who calls it.
_ANY_BLOCK = 256
#: A name that stands for a name, and so on.
_MOST_NAMES = 8
#: What passes a value on.
_WRAPS = frozenset(["parenthesized_expression", "argument_list", "initializer_list",
                    "cast_expression"])  # fmt: skip
#: Elements a thread of a block that is all there is.
_ITEMS = (2, 4, 8)
#: By what a kernel knows how many blocks there are, and which of them is running.
_GRIDS = frozenset(["gridDim", "this_grid", "grid_group"])
_BLOCKS = _GRIDS | {"blockIdx"}
#: An array of shared memory with its length, where that is one word, and what is a thread's number.
_SHARED_ARRAY = re.compile(r"\b__shared__\s+[\w:\s]*?\b(\w+)\s*\[\s*(\w+)\s*\]\s*[;,]")
_THREAD = re.compile(r"\b(\w+)\s*=\s*threadIdx\.x\s*[;,]")
#: How people call the constant that is their block.
_BLOCK_NAME = re.compile(
    r"(?:^|_)(?:block|threads?|tpb)(?:_?(?:size|dim|width|threads?|x))?(?:_?per_?block)?$"
    r"|block_?size", re.IGNORECASE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is said of a kernel's launch, None where nothing is: `block` threads, `items` elements a
    thread, `grid` blocks, at most or always (`exactly`), or a rule for their number, `shared` bytes
    a block, whose threads are in rows of `width`. `lines` are where it stands, but for a block that
    these do not say, and constants do (`by_constants`). A launch that `floors` its number of blocks
    leaves out what is left of the elements over a tile; one of as many blocks for any number of
    elements, which do not stride, reaches `most` of them, an element a thread."""

    lines: tuple[int, ...] = ()
    block: int | None = None
    by_constants: bool = False
    items: int | None = None
    grid: int | GridRule | None = None
    exactly: bool = False
    shared: int | None = None
    width: int | None = None
    floors: bool = False
    most: int | None = None


def grows_with(calls: Sequence[HostCall], place: int) -> bool:
    """Whether launches have the more blocks, however many, the more the parameter at this place
    counts."""
    found = []
    for call in calls:
        names = aliases(call.scope, call.arguments[place])
        shape = _Shape(call, lambda name: None, _ANY_BLOCK, (), names)
        sizes = (dict.fromkeys(names, k) for k in (_TIMES, 2 * _TIMES))
        once, twice = (shape.number(call.configuration[0], size) for size in sizes)
        found.append(once is not None and twice is not None and once < twice)
    return bool(found) and all(found)


def own_launch(
    calls: Sequence[HostCall], places: tuple[int, int | None, int | None],
    reached: AbstractSet[str], later: AbstractSet[str], *, block: int | None,
    size_of: Callable[[str], int | None],
) -> Said:  # fmt: skip
    """What launches of a kernel say, whose parameters at these `places` read, write and perhaps
    count, and which comes by the names that are `reached`; what goes on with its partials comes by
    `later` ones. A `block` takes the place of what they say."""
    read, write, count = places
    first = [call for call in calls if not _goes_on(call, calls, read, write)]
    return _agreed([_said(call, count, reached, later, block, size_of) for call in first])


def launched_again(calls: Sequence[HostCall], places: tuple[int, int | None, int | None]) -> bool:
    """Whether a file launches a kernel on what that has written itself."""
    read, write, _ = places
    return any(_goes_on(call, calls, read, write) for call in calls)


def _goes_on(call: HostCall, calls: Sequence[HostCall], read: int, write: int | None) -> bool:
    """Whether a launch reads what another launch in the same function writes."""
    source = text(call.arguments[read])
    return write is not None and any(
        text(other.arguments[write]) == source
        for other in calls
        if other is not call and other.function == call.function
    )


def _agreed(found: Sequence[Said]) -> Said:
    """What all of them say alike."""
    if not found:
        return Said()
    first = found[0]
    same = {
        name: getattr(first, name)
        for name in ("block", "items", "shared", "width", "most")
        if all(getattr(other, name) == getattr(first, name) for other in found)
    }
    if all((o.grid, o.exactly) == (first.grid, first.exactly) for o in found):
        floors = all(one.floors for one in found)
        same |= {"grid": first.grid, "exactly": first.exactly, "floors": floors}
    return Said(lines=tuple(line for one in found for line in one.lines), **same)


@dataclass(frozen=True, slots=True)
class _Shape:
    """The numbers of one launch in blocks of so many `threads`; `sizes` are the names that stand
    for these, `counted` those that stand for the number of elements."""

    call: HostCall
    size_of: Callable[[str], int | None]
    threads: int
    sizes: tuple[str, ...]
    counted: tuple[str, ...]

    def number(self, node: Node, given: Mapping[str, int]) -> int | None:
        """The value of an expression, where these names have these values."""
        return self.reading(node, given)[0]

    def reading(
        self, node: Node, given: Mapping[str, int], *, flat: bool = False
    ) -> tuple[int | None, Reading]:
        """The same, with what it took to read it."""
        own = dict.fromkeys(self.sizes, self.threads)
        reading = Reading(self.call.scope, {**own, **given}, self.size_of, flat=flat)
        try:
            return reading.whole(node), reading
        except Unknown:
            return None, reading

    @property
    def many(self) -> Mapping[str, int]:
        """More elements than any launch takes at once."""
        return dict.fromkeys(self.counted, _TIMES * self.threads)


def _said(
    call: HostCall, count: int | None, reached: AbstractSet[str], later: AbstractSet[str],
    asked: int | None, size_of: Callable[[str], int | None],
) -> Said:  # fmt: skip
    """What one launch says."""
    grid, block, *more = call.configuration
    counted = aliases(call.scope, call.arguments[count]) if count is not None else ()
    blocks = aliases(call.scope, grid)
    if counted[:1] and counted[0] not in blocks:  # else what is left to reduce is what it launched
        counted = tuple(takewhile(lambda name: name not in blocks, counted))
    sizes = aliases(call.scope, block)
    unsized = _Shape(call, size_of, _ANY_BLOCK, (), counted)
    alone = not set(sizes).isdisjoint(counted)  # a thread for each of the file's own elements
    own, read = unsized.reading(block, {} if alone else unsized.many, flat=True)
    threads = asked or own or (_ANY_BLOCK if sizes else 0)
    if not 0 < threads <= _MOST_THREADS:
        return Said(lines=(call.line,))
    shape = _Shape(call, size_of, threads, sizes, counted)
    n = shape.number(call.arguments[count], {}) if count is not None else None
    return replace(
        _grid(shape, n, reached, later), lines=(call.line,), block=own or None, width=read.width,
        shared=_memory(shape, more[0]) if more else 0,
    )  # fmt: skip


def _memory(shape: _Shape, node: Node) -> int | None:
    """The bytes of dynamic shared memory that a launch gives; where more elements take more than a
    block may have, those for as many as the file has itself. None where these are too many, too, or
    it does not tell."""
    many, own = (shape.number(node, given) for given in (shape.many, {}))
    if many is None or many <= _MOST_SHARED:
        return many
    return own if not names(node) or (own is not None and own <= _MOST_SHARED) else None


def _grid(shape: _Shape, n: int | None, reached: AbstractSet[str], later: AbstractSet[str]) -> Said:
    """Grid and elements a thread, where the file has `n` elements itself."""
    node, strides = shape.call.configuration[0], not reached.isdisjoint(_GRIDS)
    blocks, reading = shape.reading(node, shape.many)
    found = _items(shape, node, list(reading.names))
    if found is not None:
        return replace(found, floors=found.floors and not strides)
    if blocks is None:
        return Said(grid="fill" if strides and reading.counts_sms else None)
    if not 0 < blocks <= _MOST_BLOCKS:
        return Said()
    constants = shape.call.scope.file.values.keys() & reading.names.keys() - {*shape.sizes}
    if constants & (reached | later):  # which a kernel reckons with, too
        return Said(grid=blocks, exactly=True)
    if strides or reached.isdisjoint(_BLOCKS):
        tiles, rest = divmod(n or 0, blocks * shape.threads)
        whole = tiles in _ITEMS and not rest and not strides
        return Said(grid=blocks, exactly=not strides, items=tiles if whole else None)
    taken, rest = divmod(n or 0, blocks * shape.threads)
    if taken and not rest:
        return Said(grid="cover", items=taken)
    return Said(most=blocks * shape.threads if n is None and shape.counted else None)


def _items(shape: _Shape, node: Node, names: Sequence[str]) -> Said | None:
    """Elements a thread where blocks grow with the number of elements, under whichever of these
    names it goes, and whether one more of them has a block; None where they do not grow, or in
    another way."""
    guessed = [(name,) for name in names if name not in shape.sizes and shape.threads > 1]
    n = _TIMES * shape.threads
    for group in ([shape.counted] if shape.counted else []) + guessed:
        once, more, twice = (shape.number(node, dict.fromkeys(group, k)) for k in (n, n + 1, 2 * n))
        if once is None or twice is None or twice <= once or abs(2 * once - twice) > 1:
            continue
        tile, rest = divmod(n, twice - once)
        if not rest and tile and tile % shape.threads == 0:
            items = tile // shape.threads
            return Said(grid="cover", items=items, floors=tile > 1 and more == once == n // tile)
    return None


def aliases(scope: Scope, node: Node) -> tuple[str, ...]:
    """The names that an expression only passes on, up to the one that is given a value."""
    names: list[str] = []
    while len(names) < _MOST_NAMES:
        while node.type in _WRAPS and node.named_children:
            node = node.named_children[-1 if node.type == "cast_expression" else 0]
        if node.type not in ("identifier", "type_identifier") or text(node) in names:
            break
        names.append(text(node))
        value = scope.value(names[-1])
        if value is None:
            break
        node = value
    return tuple(names)


def _constant(file: Constants, node: Node) -> int | None:
    """The whole number that an expression of the file is, outside of all functions."""
    return number_at(Scope(file, {}, node), node)


def bound_of(file: Constants, function: Function) -> int | None:
    """The threads of a block that a kernel's launch bounds allow at most: what its author launches,
    where no launch says otherwise. None where it has none, or they are no number here."""
    node = function.most_threads
    threads = None if node is None else _constant(file, node)
    return threads if threads and threads % 32 == 0 and 0 < threads <= _MOST_THREADS else None


def own_block(file: Constants, reached: AbstractSet[str]) -> int | None:
    """The threads of a block as a constant names them that a kernel comes by: only such a block is
    right for it. None where there is none, or several of them."""
    found = {
        number for name, node in file.values.items()
        if name in reached and _BLOCK_NAME.search(name)
        and (number := _constant(file, node)) is not None and number % 32 == 0
        and 0 < number <= _MOST_THREADS
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None


def shared_block(file: Constants, function: Function) -> int | None:
    """The most threads of a block of which each has a place of its own in the arrays of shared
    memory that it asks for by its own number; None where there is no such array, or its length is
    no number here."""
    threads = {"threadIdx.x", *_THREAD.findall(function.body)}
    found = set()
    for name, length in _SHARED_ARRAY.findall(function.body):
        places = set(re.findall(rf"\b{name}\s*\[\s*([^\[\]]+?)\s*\]", function.body))
        node = file.values.get(length)
        number = int(length) if length.isdigit() else node and _constant(file, node)
        doubled = any("blockDim" in place and "+" in place for place in places)
        if number and places & threads and not doubled:
            found.add(number)
    fewest = min(found, default=0)
    return fewest if fewest % 32 == 0 and 32 < fewest <= _MOST_THREADS else None
