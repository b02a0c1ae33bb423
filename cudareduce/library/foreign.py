"""A `.cu` file that was not written for this tool: its kernel found, and called as it stands.

The file is not changed. Its host code is left out, its `__global__` functions are compiled as
device functions, and an entry point of ours calls the one that was asked for with what its
parameters say it wants: a pointer to read, a pointer to write, a count. What was guessed is
reported; a wrong guess gives a wrong answer, which verification is there to find.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import NotUnderstood, UsageError
from cudareduce.library.arguments import Argument, check
from cudareduce.library.assumption import assumption, nowhere
from cudareduce.library.body import Body
from cudareduce.library.called import Call, called
from cudareduce.library.chains import joined
from cudareduce.library.chosen import Row, overloads, rows, set_aside
from cudareduce.library.combined import PLACES_32, ops_named, places_named
from cudareduce.library.computed import computes
from cudareduce.library.condition import Condition
from cudareduce.library.device_part import Unit, constants, device_part
from cudareduce.library.elements import most
from cudareduce.library.entry_point import with_entry_point
from cudareduce.library.guesses import Guesses
from cudareduce.library.header import BLOCKS, Finish
from cudareduce.library.host_code import HostCall, HostCode, host_code, of_kernel
from cudareduce.library.in_place import overwrites
from cudareduce.library.kernel import Adopt, Kernel
from cudareduce.library.launch_guess import Launch, launch_of
from cudareduce.library.outside import places_in
from cudareduce.library.own_launch import launched_again
from cudareduce.library.own_values import own_element, own_numbers, with_functor
from cudareduce.library.parameters import read_parameter
from cudareduce.library.reckoned import reckoned, unlike_launch
from cudareduce.library.refused import check_ends
from cudareduce.library.room import Room
from cudareduce.library.siblings import read_file
from cudareduce.library.syntax import Function, names_in
from cudareduce.reduction.dtypes import DTYPES, accumulator

#: What of a launch the user may say, as `Guesses` calls it.
_OPTIONS = ("block", "items", "grid", "shared", "finish", "map")
_SHAPE = ("block", "items", "grid")

#: What a whole number may be that is not understood: what scales or shifts nothing, how many
#: elements, rows or turns of a block there are, how many elements a block takes.
_HALF = "n / 2"
_VALUES = ("1", "0", "n", "rows", "(n + BLOCK - 1) / BLOCK", "BLOCK", _HALF)
#: The same of what is true or not, and of what elements are: not 0 nor 1, whose sums hide much.
_TRUTHS, _SOUGHT = ("false", "true"), ("3",)

#: Of so many kernels it is said why they are left out.
_MOST_REFUSED = 5


@dataclass(frozen=True, slots=True)
class Adopted:
    """The kernels made from a file without a header, and in a line each what was assumed about
    them and which were left out."""

    kernels: tuple[Kernel, ...]
    said: tuple[str, ...]


def adopting(says: Guesses, tell: Callable[[str], None]) -> Adopt:
    """What makes kernels of files without a header by these guesses, and tells what it assumes."""

    def take(path: Path, text: str) -> Sequence[Kernel]:
        adopted = adopt(path, text, says)
        for words in adopted.said:
            tell(words)
        return adopted.kernels

    return take


def adopt(path: Path, text: str, says: Guesses) -> Adopted:
    """The kernels of a file without a header: those that are named, or all that can be called.

    A UsageError if it has no `__global__` function, or none that can be called: its parameters,
    element type or template parameters are not understood.
    """
    if text.startswith("%%"):  # a notebook's cell, whose first line is for the notebook
        text = f"//{text}"
    unit = read_file(path, text, says.headers, dict(says.defined), says.block)
    host = host_code(unit.all())
    left = deque(rows(unit, host, says.entries, says.chains))
    check(path, [function for row in left for function, _ in row], says.arguments)
    alone, named = len(left) == 1, says.entries or says.chains
    kernels: list[Kernel] = []
    said: list[str] = []
    refused: list[str] = []
    unsure: list[tuple[Kernel, list[str]]] = []
    while left:
        row = left.popleft()
        try:
            kernel, assumed = _row(unit, host, row, says, alone=alone)
        except UsageError as error:
            meant = _meant(unit, host, row, says, error, alone=alone)
            if meant is not None:
                unsure.append(meant)
            elif len(row) > 1 and not named:
                left.extendleft([link] for link in reversed(row))
            else:
                refused.append(str(error))
            continue
        kernels.append(_or_one(unit, host, row, says, kernel, alone=alone))
        said += assumed
    for kernel, assumed in unsure:  # last, since most of them are no reductions
        kernels.append(kernel)
        said += assumed
    if refused and (named or not kernels):
        others = [words.removeprefix(f"{path}: ") for words in refused[1:]]
        raise UsageError("; ".join([refused[0], *others, *nowhere(unit.missing)]))
    said += [f"{words}: left out" for words in refused[:_MOST_REFUSED]]
    said += [] if named else set_aside(unit, host, {*_taken(kernels)})
    if len(refused) > _MOST_REFUSED:
        rest = len(refused) - _MOST_REFUSED
        said.append(f"{path}: {rest} more kernels are left out: --entry NAME tells why of one")
    return Adopted(tuple(kernels), (*said, *overloads(unit, _taken(kernels))))


def _taken(kernels: Iterable[Kernel]) -> Iterator[str]:
    """The entry points of kernels, in chains and alone."""
    return (link.entry for row in kernels for link in row.chain)


def _row(
    unit: Unit, host: HostCode, row: Row, says: Guesses, *, alone: bool
) -> tuple[Kernel, list[str]]:
    """A kernel, or several in a chain, and what was assumed; one that is `alone` has the name of
    its file."""
    if len(row) == 1:
        kernel, assumed = _adopted(unit, host, *row[0], says, (), alone=alone)
        return kernel, [assumed]
    names = [function.name for function, _ in row]
    links, told = [], []
    for k, (function, given) in enumerate(row):
        own = replace(says, finish=None) if k < len(row) - 1 else says
        if k:
            own = replace(own, block=None, items=None, grid=None, shared=None, map=None)
        link, assumed = _adopted(unit, host, function, given, own, names[k + 1 :], alone=False)
        links.append(link)
        told.append(assumed)
    if any(link.rooms for link in links):
        raise UsageError(
            f"{unit.path}: {', '.join(names)}: one of them takes memory besides, which is not "
            "understood in a chain: say --entry"
        )
    kernel = joined(unit.path, links)
    if not says.chains:
        kernel = replace(kernel, apart=tuple(_apart(unit, host, row, says)))
    order = " and then ".join(names)
    return kernel, [*told, f"{unit.path}: {order} are one row, {kernel.id}: each reads what the "
                    "one before has written; --entry takes them apart"]  # fmt: skip


def _meant(
    unit: Unit, host: HostCode, row: Row, says: Guesses, error: UsageError, *, alone: bool
) -> tuple[Kernel, list[str]] | None:
    """A kernel of which one whole number is not understood, with each value that it may have, and
    what was assumed; None if it is something else that is not."""
    if len(row) > 1 or not isinstance(error, NotUnderstood) or not error.parameter:
        return None
    types = {p.name: p.type for p in map(read_parameter, row[0][0].parameters)}
    found = []
    values = _TRUTHS if types.get(error.parameter) == "bool" else _VALUES
    for value in _SOUGHT if Body(row[0][0].body).sought(error.parameter) else values:
        with suppress(UsageError):
            found.append(_with_value(unit, host, row, says, error.parameter, value, alone=alone))
    kernels = tuple(kernel for kernel, _ in found)
    return (replace(kernels[0], meant=kernels), [found[0][1]]) if found else None


def _or_one(
    unit: Unit, host: HostCode, row: Row, says: Guesses, kernel: Kernel, *, alone: bool
) -> Kernel:
    """A kernel; one that is given the length of its rows twice may be meant to have 1 there."""
    name, twice, _ = kernel.change.partition("=")
    with suppress(UsageError):
        if twice:
            other, _ = _with_value(unit, host, row, says, name, "1", alone=alone)
            return replace(kernel, change="", meant=(kernel, other))
    return replace(kernel, change="")


def _with_value(
    unit: Unit, host: HostCode, row: Row, says: Guesses, name: str, value: str, *, alone: bool
) -> tuple[Kernel, str]:
    """A kernel with what a parameter of it gets, and what else was assumed."""
    function, given = row[0]
    more = (*says.arguments, Argument(function.name, name, value))
    # Who reads two elements half of them apart takes two.
    items = 2 if value == _HALF and says.items is None else says.items
    told = replace(says, arguments=more, items=items)
    kernel, assumed = _adopted(unit, host, function, given, told, (), alone=alone)
    return replace(kernel, change=f"{name}={value}"), assumed


def _apart(unit: Unit, host: HostCode, row: Row, says: Guesses) -> Iterator[Kernel]:
    """The kernels of a chain as rows of their own, those that can be."""
    for function, given in row:
        with suppress(UsageError):
            yield _adopted(unit, host, function, given, says, (), alone=False)[0]


def _adopted(
    unit: Unit, host: HostCode, function: Function, given: str, says: Guesses,
    later: Sequence[str], *, alone: bool,
) -> tuple[Kernel, str]:  # fmt: skip
    """A kernel and what was assumed about it; kernels `later` go on with what it leaves."""
    path, launches = unit.path, of_kernel(host, function, given)
    helpers = with_functor(unit.helpers, launches)
    own, shares = own_numbers(launches, function), reckoned(launches, function)
    known = {**shares, **unlike_launch(launches, function, own)}
    call = called(path, function, given, own, says.arguments, helpers, known)
    name, ops, finds = function.name, ops_named(function, call), places_named(function, call)
    dtypes, partials, mapped, others = computes(path, function, call, says, unit.formulas, finds)
    device = _device(unit, name, call)
    sizes = [max(accumulator(DTYPES[k]).size for k in {one, partials or one}) for one in dtypes]
    launch = launch_of(
        unit, host, function, call, says, given, later, device, sizes, shared_out=bool(shares)
    )
    # Else it could not read what it has written, or would map it once more.
    again = call.counted and not call.rows and partials in (None, *dtypes) and mapped is None
    finish = _finish(path, function, call, says, launch, again=again, last=not later)
    entry = f"run_{name.rpartition('::')[2]}"
    widens = bool(finds) and call.write.type in PLACES_32
    text = with_entry_point(path, device, entry, call, unit.names, launch.width, finds=widens)
    kernel = Kernel(
        id=path.stem if alone and path.stem.isidentifier() else function.label + given,
        path=path, family="user", text=text, title=f"{name} of {path.name}",
        change=next((said for said in call.said if call.rows and said.endswith("=n")), ""),
        scope="rows" if call.rows else "grid",
        grid="one" if call.answers_in_place else launch.grid,
        walk="element",  # nothing is known of the order of its additions: the widest bound holds
        finish=finish, adds=call.adds, of_threads=call.of_threads, block=launch.block,
        blocks=BLOCKS if launch.block in BLOCKS and not says.block else (launch.block,),
        items=launch.items,
        fixed_grid=None if call.answers_in_place else launch.fixed_grid,
        exactly=launch.exactly, turns=launch.turns,
        other_blocks=launch.other_blocks, other_items=launch.other_items,
        dtypes=dtypes, ops=finds or ops, symbol=entry,
        launched_with=own_element(launches, function, call.read.type, unit.all()),
        partials=partials or "of its elements", dynamic_shared=launch.shared,
        rooms=(*call.rooms, *([Room(call.write.name, 4, "grid")] if widens and call.rows else ())),
        whole_tiles=launch.whole_tiles or not call.counted,
        asks=_asks(call, launch),
        constants=constants(unit, name, call.template),
        most=most(call.count_type) if call.count_type else None,
        map=mapped, other_maps=others,
        in_place=call.answers_in_place or overwrites(function.body, call.read.name),
        guessed=_guessed(says, call, launches), columns=call.columns, plane=launch.plane,
    )  # fmt: skip
    return kernel, assumption(kernel, call, launch.known_from, later, unit)


def _device(unit: Unit, name: str, call: Call) -> str:
    """What of a file a kernel and its call reach; the variable that holds its answer is ours."""
    words = names_in(f"int x = {call.text}({call.arguments});")
    return device_part(unit, name, words, [call.outside.name] if call.outside else ())


def _finish(
    path: Path, function: Function, call: Call, says: Guesses, launch: Launch, *, again: bool,
    last: bool,
) -> Finish:  # fmt: skip
    """What becomes of the partials of a kernel that could be launched `again` on them, or not; a
    UsageError where the user says that it is, and it cannot be, or, of the `last` of a chain, each
    launch leaves as many as it takes."""
    again = again and not launch.whole_tiles
    finish = says.finish or call.finish or ("relaunch" if again else "host")
    if finish.startswith(("relaunch", "reshape")) and not again:
        raise UsageError(f"{path}: {function.name} cannot read what it writes: say --finish host")
    if last:
        check_ends(path, function.name, finish, launch.block * launch.items)
    return finish


def _asks(call: Call, launch: Launch) -> Condition:
    """How many elements or rows it takes."""
    rows = places_in(call.outside) if call.rows else 0
    most = 0 if call.rows else launch.most
    return Condition(most=most, most_rows=rows, square=call.square)


def _guessed(says: Guesses, call: Call, launches: Sequence[HostCall]) -> tuple[str, ...]:
    """The options that nobody has said anything with, as far as they matter."""
    # How far an array of the file goes is known, and who goes on with its partials maps none.
    again = ("map",) if launched_again(launches, call.places) else ()
    settled = (*again, *(_SHAPE if places_in(call.outside) else ()))
    names = tuple(k for k in _OPTIONS if getattr(says, k) is None and k not in settled)
    return (*names, "arg") if call.said and not says.arguments else names
