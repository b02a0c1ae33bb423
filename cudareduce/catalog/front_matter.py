"""Text of kernel files, and their front matter: the TOML block and its checked values."""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS

_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)")
#: Python refuses to parse decimal numbers of more than 4300 digits.
_LONG_NUMBER = re.compile(r"\d[\d_]{4299,}")
#: Error messages show this many characters of a value.
_SHOWN = 60


class BadToml(ValueError):
    """A text is not valid TOML; `line` is counted from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


def parse(text: str) -> dict[str, Any]:
    """The values of a TOML text, which may begin with a byte order mark. Raises BadToml."""
    text = text.removeprefix("\ufeff")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _ERROR_LINE.search(str(error))
        raise BadToml(str(error), int(found[1]) if found else text.count("\n") + 1) from None
    except RecursionError:
        raise BadToml("it is nested too deeply", text.count("\n") + 1) from None
    except ValueError as error:  # invalid numbers, dates and times
        long = _LONG_NUMBER.search(text)
        why = "a number of thousands of digits" if long else str(error)
        raise BadToml(why, text.count("\n", 0, long.start() if long else None) + 1) from None


def quoted(value: Any) -> str:
    """A value for an error message: its repr, shortened; "a list" or "a table" for those."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN:
        return f"a number of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def line_of(text: str, key: str) -> int | None:
    """The number of the first line, counted from 1, with this key or a table of this name."""
    name = rf"[\"']?{re.escape(key)}[\"']?"
    found = re.search(rf"^\s*(?:\[+\s*{name}\s*[].]|{name}\s*[.=])", text, re.MULTILINE)
    return text.count("\n", 0, found.end()) + 1 if found else None


def unknown_key(key: str, keys: Collection[str]) -> str:
    """The message on a key that is not among `keys`: similar ones, else all of them."""
    near = get_close_matches(key, keys, n=2)
    others = f"did you mean {' or '.join(near)}?" if near else f"the keys are: {', '.join(keys)}"
    return f"unknown key; {others}"


OPENS, CLOSES = "/*+++", "+++*/"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Parsed front matter, not yet checked: its values, its text, and its first line number."""

    values: dict[str, Any]
    body: str
    first_line: int


def find_front_matter(path: Path, text: str) -> FrontMatter | None:
    """The front matter of a kernel file, None if it has none. Raises UsageError if the comment is
    not closed or its content is not TOML."""
    start = text.find(OPENS)
    if start < 0:
        return None
    begin = start + len(OPENS)
    end = text.find(CLOSES, begin)
    first_line = text.count("\n", 0, begin) + 1
    if end < 0:
        raise UsageError(
            f"{path}:{first_line}: the front matter opened by {OPENS} is never closed by {CLOSES}"
        )
    body = text[begin:end]
    try:
        return FrontMatter(parse(body), body, first_line)
    except BadToml as error:
        line = first_line + min(error.line - 1, body.count("\n"))
        raise UsageError(f"{path}:{line}: the front matter is not valid TOML: {error}") from None


#: Limit of a kernel file in bytes; longer files are probably named by mistake.
_LARGEST = 4 * 2**20


def read_source(path: Path) -> str:
    """The text of a kernel file. Raises UsageError if it is not a text file of at most 4 MiB."""
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"cannot read {path}: it is a folder; name a file in it")
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"cannot read {path}: it is a device or a pipe; name a file")
        if status.st_size > _LARGEST:
            raise UsageError(f"cannot read {path}: it has more than 4 MiB; name a kernel's source")
        data = path.read_bytes()
    except FileNotFoundError as error:
        reason = f"{error.strerror}; check the name (`cudareduce list` shows those of kernels)"
        raise UsageError(f"cannot read {path}: {reason}") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if b"\0" in data:
        raise UsageError(f"cannot read {path}: not a text file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return data.decode("latin-1").replace("\r\n", "\n")  # as written by some old editors


_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(?P<name>[^"\n]+)".*$', re.MULTILINE)
_PRAGMA_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b.*$", re.MULTILINE)


def read_headers(path: Path, text: str) -> dict[str, str]:
    """The headers that a kernel file includes from its own folder, by the name in the include
    line. Only headers with `#pragma once` count; the compiler finds all others."""
    headers = {}
    for name in dict.fromkeys(_INCLUDE.findall(text)):
        if (path.parent / name).is_file():
            header = read_source(path.parent / name)
            if _PRAGMA_ONCE.search(header):
                headers[name] = _PRAGMA_ONCE.sub("", header)
    return headers


def inline_headers(path: Path, text: str, headers: Mapping[str, str]) -> str:
    """The text with the first include line of each header replaced by the header. `#line`
    directives keep file names and line numbers of compiler messages."""
    remaining = dict(headers)

    def inline(include: re.Match[str]) -> str:
        name = include["name"]
        if name not in headers:
            return include[0]
        line = text.count("\n", 0, include.end()) + 2  # the line after the include line
        return f'#line 1 "{name}"\n{remaining.pop(name, "")}\n#line {line} "{path}"'

    return _INCLUDE.sub(inline, text)


def has_front_matter(path: Path) -> bool:
    """True if a file has front matter, valid or not. Raises UsageError if it cannot be read."""
    return OPENS in read_source(path)


Scope = Literal["grid", "block", "warp", "rows"]
Grid = Literal[
    "cover", "fill", "per_sm", "fixed", "one", "block_per_row", "warp_per_row", "thread_per_row",
    "cluster", "fill_by_row",
]  # fmt: skip
Walk = Literal[
    "element", "tile", "grid_stride", "tickets", "contiguous", "stream_fold", "warp_stream",
    "lane", "warp_stride", "fixed_warps",
]  # fmt: skip
Fold = Literal["tree", "warps_then_serial"]
Finish = Literal[
    "relaunch", "relaunch_one_block", "atomic", "last_block", "mailbox", "self_reset", "one_word",
    "cluster", "reshape", "none", "host",
]  # fmt: skip
Order = Literal["any", "kept"]
Elements = Literal["lifted", "as_they_lie"]

#: What one launch reduces.
SCOPES: dict[Scope, str] = {
    "grid": "one array, reduced by many blocks",
    "block": "one array, reduced by one block",
    "warp": "rows of at most 32 elements, one warp per row",
    "rows": "rows of any length, one block or several blocks per row",
}

#: The number of blocks of a launch.
GRIDS: dict[Grid, str] = {
    "cover": "rows * elements / (block * items), rounded up",
    "fill": "as cover, but at most as many as all SMs hold at once",
    "per_sm": "as cover, but at most one per SM",
    "fixed": "as cover, but at most fixed_grid",
    "one": "one",
    "block_per_row": "one per row",
    "warp_per_row": "one per block / 32 rows",
    "thread_per_row": "one per block rows",
    "cluster": "eight, as one cluster",
    "fill_by_row": "as fill, but the same number for each row, at least one",
}

#: Which elements a thread reads.
WALKS: dict[Walk, str] = {
    "element": "one element per thread, combined in memory at once",
    "tile": "one tile of block * items neighbouring elements per block",
    "grid_stride": "all threads of the grid stride over the input, items at a time",
    "tickets": "the block that asks next gets the next tile",
    "contiguous": "an equal contiguous part of the row per block; its threads stride over it",
    "stream_fold": "parts as in contiguous; the block folds neighbours while tiles stream in",
    "warp_stream": "an equal contiguous part per warp, whose tiles it folds in order",
    "lane": "one row of at most 32 elements per warp, one element per lane",
    "warp_stride": "one row or more per warp; its lanes stride over them, items at a time",
    "fixed_warps": "a fixed number of warps stride over tiles of 32 * items elements",
}

#: How a block folds the values of its threads.
FOLDS: dict[Fold, str] = {
    "tree": "in halves",
    "warps_then_serial": "in halves within each warp, then warp by warp",
}

#: How the partial results of blocks become one result per row.
FINISHES: dict[Finish, str] = {
    "relaunch": "the kernel is launched on the partial results until one is left",
    "relaunch_one_block": "the kernel is launched on the partial results with one block",
    "atomic": "atomic operations combine them in the output",
    "last_block": "the block that finishes last folds them",
    "mailbox": "each is stored in the workspace with a flag (LL protocol); block 0 folds them",
    "self_reset": "atomic operations combine them in the workspace; the last block resets it",
    "one_word": "as self_reset, in one word with the count of blocks",
    "cluster": "one block of the cluster folds them in its shared memory",
    "reshape": "those of a row are a shorter row, launched until one is left per row",
    "none": "there are none: one block or one warp reduces a whole row",
    "host": "the host folds them, which is not timed",
}
#: Finishes that combine partial results in the order in which blocks end.
UNORDERED: tuple[Finish, ...] = ("atomic", "self_reset", "one_word")
#: Walks in which the assignment of elements to blocks varies between launches.
UNASSIGNED: tuple[Walk, ...] = ("tickets",)
#: Finishes that need a workspace, memory whose content is kept between launches.
_KEEPING: tuple[Finish, ...] = ("mailbox", "self_reset", "one_word")
#: The finishes supported for external files.
FOREIGN_FINISHES: tuple[Finish, ...] = ("relaunch", "relaunch_one_block", "atomic", "none", "host")
#: Rules for the number of blocks of an external kernel; RowGrid is for kernels that reduce rows.
RowGrid = Literal["block_per_row", "warp_per_row", "thread_per_row"]
GridRule = Literal["cover", "fill", "per_sm"] | RowGrid
ROW_GRIDS: tuple[RowGrid, ...] = ("block_per_row", "warp_per_row", "thread_per_row")
GRID_RULES: tuple[GridRule, ...] = ("cover", "fill", "per_sm", *ROW_GRIDS)
#: Whether the kernel combines operands in order.
ORDERS: dict[Order, str] = {
    "any": "operands change places, so the operator must commute",
    "kept": "operands keep their order; only the brackets move",
}
#: How elements are converted to operands.
ELEMENTS: dict[Elements, str] = {
    "lifted": "one by one through `Op::lift`, which may apply a transform",
    "as_they_lie": "several at once as raw bits, so no transform is possible",
}
#: Hardware that a kernel may need; the CPU emulator has none of it.
REQUIREMENTS = {
    "tma": "bulk copies by the tensor memory accelerator",
    "cluster": "thread block clusters",
    "inline_ptx": "inline PTX",
}
#: File name extensions of files with kernels.
SOURCES = (".cu", ".cuh", ".h", ".hpp")
#: The block sizes that front matter may list, in threads.
BLOCKS = (32, 64, 96, 128, 160, 192, 224, 256, 288, 384, 512, 544, 640, 768, 896, 1024)

#: The techniques in the order of `list --techniques`, with their meanings.
TECHNIQUES = {
    "no_divergence": "whole warps take the same branch of the tree",
    "no_bank_conflict": "neighbouring threads touch neighbouring banks",
    "first_add": "the first addition happens while loading",
    "warp_unroll": "the last warp works without block barriers",
    "template_unroll": "the block size is a constant, so every step unrolls",
    "multi_add": "each thread adds many elements before the tree",
    "wide_load": "one load brings 16 bytes, whatever the type",
    "shuffle": "lanes exchange values in registers",
    "grid_stride": "a fixed grid walks an input of any size",
    "atomic": "the memory system combines values",
    "last_block": "the block that arrives last folds the partials, in one launch",
    "order_kept": "operands keep their order, so an operator need not commute",
    "broadcast": "all threads read the same partials",
    "padding": "cells beside the data hold the identity, so no step needs a condition",
    "shared_accumulation": "each thread's running value lives in shared memory",
}

_WORDS: dict[str, tuple[str, ...]] = {
    "scope": tuple(SCOPES),
    "grid": tuple(GRIDS),
    "walk": tuple(WALKS),
    "fold": tuple(FOLDS),
    "finish": tuple(FINISHES),
    "order": tuple(ORDERS),
    "elements": tuple(ELEMENTS),
}
_LISTS: dict[str, tuple[Any, ...]] = {
    "blocks": BLOCKS,
    "techniques": tuple(TECHNIQUES),
    "dtypes": tuple(DTYPES),
    "ops": tuple(OPERATORS),
    "requires": tuple(REQUIREMENTS),
}
_TEXTS = ("title", "change", "expect", "after", "min_cc", "map")
#: Keys with a whole number from 1 up to this limit, which CUDA or common sense sets.
_COUNTS = {
    "block": 1024, "items": 1024, "vector": 1024, "items_bytes": 1024, "vector_bytes": 1024,
    "fixed_grid": 2**31 - 1, "fixed_warps": 2**16, "most": 2**63 - 1,
}  # fmt: skip
#: Keys for counts in elements, with the keys that give the same in bytes for any type.
_IN_BYTES = {"items": "items_bytes", "vector": "vector_bytes"}
_CC = re.compile(r"[1-9]\d?\.\d")
#: Keys whose list may be empty.
_MAY_BE_EMPTY = ("techniques", "requires")
REQUIRED = ("title", "change", "scope", "grid", "walk", "finish", "block", "blocks")
#: The size of dynamic shared memory or of the workspace as text: a number of units per thread, warp
#: or block, such as "2 Acc a block".
_MEMORY_WORDS = re.compile(
    r"(?:(?P<count>[1-9]\d{0,4}) )?(?P<unit>bytes|Acc|Scalar|Element)"
    r" a (?P<place>thread|warp|block)"
)
_PLACES = {"dynamic_shared": ("thread", "warp", "block"), "workspace": ("block",)}
_MOST_BYTES = {"dynamic_shared": 49152, "workspace": 2**20}
#: All keys with their meaning and default, as `list` and the documentation show them.
KEYS = {
    "title": "name in a few words",
    "change": "what differs from the predecessor",
    "expect": "expected effect on time or resources",
    "after": "id of the predecessor; without it, the kernel begins a lineage",
    "min_cc": 'lowest compute capability, as text  [default: `"7.5"`]',
    "map": "transform that the kernel itself applies to elements: C++ in `a`, or in `a` and `b` if "
    "the entry point takes `in, other, out, n`; excludes a relaunch on partial results",
    "block": "threads per block, one of `blocks`",
    "items": "items per thread  [default: 1]",
    "vector": "elements per load  [default: 1]",
    "items_bytes": "instead of `items`: bytes per thread, for any type",
    "vector_bytes": "instead of `vector`: bytes per load, for any type",
    "fixed_grid": 'number of blocks, with `grid = "fixed"`',
    "fixed_warps": 'number of warps, with `walk = "fixed_warps"`; each leaves a partial result',
    "most": "largest number of elements, if indices or counts overflow above it",
    "dynamic_shared": 'dynamic shared memory per block: bytes, or a text such as `"1 Acc a '
    'thread"` (bytes, `Acc`, `Scalar` or `Element` per thread, warp or block)  [default: 0]',
    "workspace": "memory that outlives a launch, with `finish` `mailbox`, `self_reset` or "
    '`one_word`: bytes, or a text such as `"2 Acc a block"`',
    "scope": "what one launch reduces",
    "grid": "number of blocks",
    "walk": "which elements a thread reads",
    "fold": "how a block folds the values of its threads  [default: `tree`]",
    "finish": "how partial results become one result per row",
    "order": "whether operands keep their order  [default: `any`]",
    "elements": "how elements become operands  [default: `lifted`]",
    "blocks": "block sizes that are allowed",
    "techniques": "techniques shown by `cudareduce list --techniques`  [default: none]",
    "dtypes": "element types  [default: all]",
    "ops": "operators  [default: all that `order` and `finish` allow, and user-defined ones]",
    "requires": "hardware that it needs  [default: none]",
}


def memory_bytes(size: int | str, sizes: Mapping[str, int], places: Mapping[str, int]) -> int:
    """The size in bytes of memory specified in front matter as bytes or a text. `sizes` are the
    bytes of `Acc`, `Scalar` and `Element`, `places` the numbers of threads, warps or blocks."""
    if isinstance(size, int):
        return size
    words = _MEMORY_WORDS.fullmatch(size)
    assert words is not None  # read_front_matter has checked it
    unit = 1 if words["unit"] == "bytes" else sizes[words["unit"]]
    return int(words["count"] or 1) * unit * places[words["place"]]


def read_front_matter(path: Path, text: str) -> Mapping[str, Any] | None:
    """The checked front matter of a kernel file, None if it has none. Raises UsageError with the
    line number if it is not valid TOML, lacks a required key or has an unknown key or value."""
    front_matter = find_front_matter(path, text)
    if front_matter is None:
        return None
    values, body, first_line = front_matter.values, front_matter.body, front_matter.first_line

    def fail(key: str, what: str) -> UsageError:
        offset = (line_of(body, key) or max(body.count("\n"), 1)) - 1
        return UsageError(f"{path}:{first_line + offset}: {key}: {what}")

    for key, value in values.items():
        problem = _problem(key, value)
        if problem:
            raise fail(key, problem)
    for key in REQUIRED:
        if key not in values:
            allowed = _WORDS.get(key)
            hint = f" (one of: {', '.join(allowed)})" if allowed else ""
            raise fail(key, f"this key is missing from the front matter{hint}")
    for key, what in _conflicts(values):
        raise fail(key, what)
    return values


def _conflicts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys whose values contradict those of others, each with an error message."""
    if values["block"] not in values["blocks"]:
        yield "block", f"the default {values['block']} is not among blocks {values['blocks']}"
    if (values["grid"] == "fixed") != ("fixed_grid" in values):
        yield "grid", 'fixed_grid (number of blocks) and grid = "fixed" require each other'
    if (values["walk"] == "fixed_warps") != ("fixed_warps" in values):
        yield "walk", 'fixed_warps (number of warps) and walk = "fixed_warps" require each other'
    if (values["finish"] in _KEEPING) != ("workspace" in values):
        finishes = " or ".join(f'"{finish}"' for finish in _KEEPING)
        yield "finish", f"workspace and one of {finishes} require each other"
    for key, other in _IN_BYTES.items():
        if key in values and other in values:
            yield key, f"{other} gives the same in bytes: remove one of them"


def _problem(key: str, value: Any) -> str | None:
    """An error message if the key is unknown or does not allow the value; else None."""
    if key == "min_cc" and not (isinstance(value, str) and _CC.fullmatch(value)):
        return 'must be a compute capability in quotes, such as "9.0"'
    if key in _TEXTS:
        return None if isinstance(value, str) and value.strip() else "must be a non-empty text"
    if key in _COUNTS:
        # type() and not isinstance(), for which true is an int.
        good = type(value) is int and 0 < value <= _COUNTS[key]
        return None if good else f"must be a whole number above 0, at most {_COUNTS[key]}"
    if key in _PLACES:
        return _memory_problem(key, value)
    if key in _WORDS:
        words = _WORDS[key]
        return None if value in words else f"{quoted(value)} is not one of: {', '.join(words)}"
    if key in _LISTS:
        return _list_problem(key, value)
    return unknown_key(key, KEYS)


def _memory_problem(key: str, value: Any) -> str | None:
    places, most = _PLACES[key], _MOST_BYTES[key]
    if type(value) is int and 0 <= value <= most:
        return None
    words = _MEMORY_WORDS.fullmatch(value) if isinstance(value, str) else None
    if words and words["place"] in places:
        return None
    last = f"{', '.join(places[:-1])} or {places[-1]}" if places[1:] else places[0]
    return (
        f"must be bytes{' per block' * (len(places) > 1)}, at most {most}, or a text such as "
        f'"1 Acc a {places[0]}": a number of bytes, Acc, Scalar or Element per {last}'
    )


def _list_problem(key: str, value: Any) -> str | None:
    allowed = _LISTS[key]
    if not isinstance(value, list):
        return "must be a list"
    if not value and key not in _MAY_BE_EMPTY:
        return "must not be empty"
    kind = type(allowed[0])  # rejects 256.0, which equals 256
    unknown = [item for item in value if type(item) is not kind or item not in allowed]
    if unknown:
        return f"{quoted(unknown[0])} is not one of: {', '.join(map(str, allowed))}"
    twice = [item for k, item in enumerate(value) if item in value[:k]]
    return f"{quoted(twice[0])} is listed twice" if twice else None
