"""How a kernel that was not written for this tool is launched: as the user says, else as its file
launches it, else as its text looks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudareduce.errors import UsageError
from cudareduce.library.called import Call
from cudareduce.library.declared import spelled_out, type_aliases
from cudareduce.library.device_part import Unit, constants, names_reached
from cudareduce.library.elements import bytes_of, packed
from cudareduce.library.entry import EXTERN_SHARED
from cudareduce.library.guesses import Guesses
from cudareduce.library.header import BLOCKS, Grid, GridRule
from cudareduce.library.host_code import HostCall, HostCode, launched_with, of_kernel
from cudareduce.library.items import items_in, items_of_tiles
from cudareduce.library.outside import places_in
from cudareduce.library.own_launch import (
    Said,
    bound_of,
    grows_with,
    own_block,
    own_launch,
    shared_block,
)
from cudareduce.library.own_values import own_template
from cudareduce.library.syntax import Function

#: Blocks that share the input: their number multiplies or divides something. One that is only
#: compared with an arrival or a place says nothing of that.
_SHARES = re.compile(r"[*/]\s*(?:\([^()]*\)\s*)?\(*gridDim|gridDim\s*\.\s*x\s*\)*\s*[*/](?!/)")
_BLOCK, _LARGEST, _WARP = 256, 1024, 32
#: Elements a thread of most kernels that take several, and of one that takes any number of them:
#: one alone would hide in which order it comes to them.
_ITEMS = (1, 2, 4)
_SEVERAL = 4
_MOST_LINES = 4
#: So many tiles a block that takes no count may come to.
_MOST_TURNS = 64
#: What an array is of, behind what says where it lies.
_ARRAY_OF = re.compile(r"extern\s+([\w\s]*?)\s*\b__shared__\s*([\w\s]*?)\s*\b\w+\s*\[\s*\]")
#: A thread that sets the place behind another one has two of its own in shared memory.
_SETS_PAIRS = re.compile(r"\w\s*\[[\w\s.*]+\+\s*(?:1|blockDim\.x)\s*\]\s*=[^=]")
#: What is told of a launch, in this order.
_TOLD = ("block", "items", "grid", "shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a kernel is launched, in the words of a header, and from where that is known; what nobody
    says may be one of others. One of rows has a block for each, a `fixed_grid` of them at most, or
    takes `turns` with fewer. A kernel that counts threads in two dimensions has them in rows of
    `width`, the same as `plane` of a matrix with one answer. One whose file launches no block for
    the rest of a tile takes `whole_tiles`, and one of which it launches so many blocks for any
    number of elements takes `most` of these, 0 for all."""

    block: int
    items: int
    grid: Grid
    fixed_grid: int | None
    exactly: bool
    shared: int
    other_blocks: tuple[int, ...]
    other_items: tuple[int, ...]
    width: int | None
    whole_tiles: bool
    most: int
    known_from: str
    turns: bool = False
    plane: int = 0


def guessed_launch(
    user: Said, own: Said, looks: Said, sizes: Sequence[int], numbers: Sequence[int] = (), *,
    pairs: bool = False, tiles: bool = False,
) -> Launch:  # fmt: skip
    """A launch as the user says, else as the file's `own` launches say, else as it `looks`; where a
    launch gives memory its size, and nobody says which, a thread has an element of one of these
    `sizes`, in bytes, or two of them (`pairs`). In the text of the kernel there are these
    `numbers`, one of which may be how often it comes to a tile, if it takes whole `tiles`."""
    words = (user, own, looks)
    block, items, grid = (
        next(value for one in words if (value := getattr(one, name)) is not None)
        for name in ("block", "items", "grid")
    )
    by = next(one for one in words if one.grid is not None)
    needs = block * max(sizes, default=0) * (2 if pairs and own.shared is None else 1)
    if own.shared is not None and sizes:  # of its own type, in its own block
        alone = len(sizes) == 1 and block == own.block
        needs = own.shared if alone else max(own.shared, needs)
    told = [
        name for name in _TOLD
        if getattr(own, name) is not None and getattr(user, name) is None
        and (name != "shared" or (sizes and needs == own.shared))
    ]  # fmt: skip
    number = grid if isinstance(grid, int) else None
    width = looks.width and (own.width or looks.width)
    in_rows = f", threads in rows of {width}" if width else ""
    if not looks.width and user.block is None and own.width not in (None, own.block):
        in_rows = ", in one dimension, though its launch has two, of which it knows one"
    few = (*_ITEMS, *(items * k for k in numbers if tiles and 1 < k <= _MOST_TURNS))
    open_ = [
        name for name in ("block", "items") if getattr(user, name) is getattr(own, name) is None
    ]
    return Launch(
        block=block, items=items, grid=grid if number is None else "fixed", fixed_grid=number,
        exactly=by.exactly if number is not None else looks.exactly and grid == "per_sm",
        shared=needs if user.shared is None else user.shared,
        other_blocks=tuple(k for k in _likely(numbers) if k != block and "block" in open_),
        other_items=tuple(k for k in few if k != items and "items" in open_),
        width=width,
        whole_tiles=by.floors,
        most=own.most or 0 if user.grid is own.grid is None else 0,
        known_from=in_rows + _known_from(told, own, block=user.block is None, floors=by.floors),
    )  # fmt: skip


def _likely(numbers: Sequence[int]) -> list[int]:
    """Blocks that a text with these numbers may be meant for: one of them, or the largest block,
    whose every warp has a slot."""
    return sorted({_LARGEST, *(k for k in numbers if k in BLOCKS)}, reverse=True)


def _known_from(told: Sequence[str], own: Said, *, block: bool, floors: bool) -> str:
    """Where the file says so, in brackets, whether its grid `floors`, and whether its launches
    leave it open which `block` is meant."""
    many = len(own.lines) > 1
    constants = [name for name in told if not own.lines or (name == "block" and own.by_constants)]
    launch = [name for name in told if name not in constants]
    untold = block and (own.block is None or own.by_constants)
    parts = [f"{', '.join(constants)}: its constants"] if constants else []
    if launch or (own.lines and untold):
        listed = ", ".join(map(str, sorted(own.lines)[:_MOST_LINES]))
        where = f"its launch{'es' * many}, line{'s' * many} {listed}"
        where += f", which {'do not tell one' if many else 'does not tell its'} block" * untold
        parts.append(f"{', '.join(launch)}: {where}" if launch else where)
    rest = ", which leaves out the rest of a tile" * floors
    return f" ({'; '.join(parts)}{rest})" if parts else ""


def looks_of(function: Function, call: Call, items: int | None = None) -> Said:
    """A launch as the text of a kernel looks, whose tiles have so many items a thread."""
    doubled = re.findall(r"(?<![\w.])(?:([\w.]+)\s*\*\s*2\b|2\s*\*\s*([\w.]+))", function.body)
    twice = any("block" in f"{left}{right}".lower() for left, right in doubled)
    shares = _SHARES.search(function.body) or "this_grid" in function.body
    striding: GridRule = "fill" if call.counted else "cover"  # else nobody takes what is left over
    grid: GridRule = ("per_sm" if call.waits else striding) if shares else "cover"
    each = items_in(function.body) or items or (_SEVERAL if "ITEMS" in call.template else 1 + twice)
    said = Said(
        block=_BLOCK,
        items=packed(call.read.type) * each,
        grid=grid,
        exactly=call.waits,  # who leaves may be waited for
        width=_WARP if call.plane else None,
    )
    if call.upright and call.finish == "atomic":
        return replace(said, grid="cover")
    if call.rows or call.alone:
        return replace(said, grid=call.rows or 1, exactly=True)
    return said


def said_by_file(
    unit: Unit, host: HostCode, function: Function, call: Call, later: Sequence[str], *,
    given: str, block: int | None, widest: int,
) -> Said:  # fmt: skip
    """What a file says itself of the launch of one of its kernels, with the template arguments that
    are `given` and the `block` that the user says; the kernels `later` go on with its partials."""
    calls, aliases = of_kernel(host, function, given), type_aliases(unit.all())
    reached = names_reached(unit, function.name)

    def size_of(name: str) -> int | None:
        known = widest if name in function.template_names else None
        return known or bytes_of(spelled_out(name + " x", aliases).removesuffix(" x"), ())

    behind = {name for kernel in later for name in names_reached(unit, kernel)}
    numbers = own_template(calls, function)
    gets = zip(function.template_names, call.template, strict=False)
    given_as = {argument: numbers[name] for name, argument in gets if name in numbers}
    found = own_launch(calls, call.places, reached, behind, block=block, size_of=size_of)
    named = given_as.get("BLOCK")
    if found.block is None and named in BLOCKS:
        found = own_launch(calls, call.places, reached, behind, block=named, size_of=size_of)
        found = replace(found, block=named)
    found = replace(found, items=given_as.get("ITEMS", found.items))
    if found.block is None:
        threads = bound_of(host.constants, function) or own_block(host.constants, reached)
        threads = threads or shared_block(host.constants, function)
        found = replace(found, block=threads, by_constants=True) if threads else found
    return found


def launch_of(
    unit: Unit, host: HostCode, function: Function, call: Call, says: Guesses, given: str,
    later: Sequence[str], device: str, sizes: Sequence[int], *, shared_out: bool,
) -> Launch:  # fmt: skip
    """How a kernel is launched: as the user says, else as its file does, else as its text looks; in
    shared memory it has values of one of these `sizes`, in bytes. Elements that are `shared_out` by
    the host are so among as many blocks as it has, which may be a template argument."""
    own = said_by_file(
        unit, host, function, call, later, given=given, block=says.block, widest=max(sizes)
    )
    calls = of_kernel(host, function, given)
    blocks = launched_with(calls, 0)
    told = {*map(str, blocks)} & {*call.template, *given.strip("<>").split(",")}
    if len(blocks) == 1 and (told or (shared_out and own.grid is None)):
        own = replace(own, grid=blocks.pop(), exactly=True)
    if call.waits:  # for who leaves, too, and for more than there may be room for at one time
        own = replace(own, exactly=True, grid=None if own.grid == "fill" else own.grid)
    rows = replace(own, grid=None) if call.rows else own  # however many blocks the file has
    items = items_of_tiles(function.body, host.constants, says.block or own.block or _BLOCK)
    found = guessed_launch(
        says.launch, rows, looks_of(function, call, items), _in_shared(device, sizes),
        constants(unit, function.name), pairs=_SETS_PAIRS.search(device) is not None,
        tiles=not call.counted,
    )  # fmt: skip
    if call.rows == "warp_per_row" and found.width not in (None, 32):
        raise UsageError(
            f"{unit.path}: {call.text} gives each row {found.width} threads of a block, and "
            "launches here one, 32 or all: give the file a header"
        )
    if call.turns and says.grid is None:
        found = _in_turns(found, own, calls, call)
    if "ITEMS" in call.template:  # which is right with any number, or wrong
        found = replace(found, other_items=())
    found = replace(found, plane=(found.width or 0) if call.matrix else 0)
    return _with_room(found, unit, call) if places_in(call.outside) else found


def _in_shared(device: str, sizes: Sequence[int]) -> Sequence[int]:
    """Bytes of what lies in the memory that a launch gives its size, one of these or what its
    declaration says, where that is more; none where no text asks for any."""
    unsized = EXTERN_SHARED.search(device)
    if not unsized:
        return ()
    kind = _ARRAY_OF.match(device, unsized.start("words"))
    words = f"{kind[1]} {kind[2]}".replace("volatile", "").strip() if kind else ""
    declared = bytes_of(words, ()) or 0
    return (declared,) if declared > max(sizes) else sizes


def _in_turns(found: Launch, own: Said, calls: Sequence[HostCall], call: Call) -> Launch:
    """A launch whose blocks take further rows in turn, unless its file has one for each row."""
    counted = {words.partition("=")[0] for words in call.said if words.endswith("=rows")}
    places = [k for k, p in enumerate(call.parameters) if p.name in counted]
    if any(grows_with(calls, place) for place in places):
        return found
    return replace(found, turns=True, fixed_grid=own.grid if isinstance(own.grid, int) else None)


def _with_room(found: Launch, unit: Unit, call: Call) -> Launch:
    """A launch of no more blocks than an array of the file has places for. Raises UsageError where
    that has fewer than it is launched with."""
    places = places_in(call.outside)
    if (found.fixed_grid or 0) > places:
        raise UsageError(
            f"{unit.path}: {call.text} is launched with {found.fixed_grid} blocks, and "
            f"{call.write.name} has places for {places}: say --grid {places}, or make it larger"
        )
    found = replace(found, other_blocks=(), other_items=())
    if found.grid in ("fill", "per_sm"):
        return replace(found, grid="fixed", fixed_grid=places, exactly=False)
    tiles = places * found.block * found.items
    covers = found.grid == "cover"
    return replace(found, most=min(found.most or tiles, tiles)) if covers else found
