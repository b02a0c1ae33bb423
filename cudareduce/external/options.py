"""The options for external kernel files as given on the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from cudareduce.catalog.front_matter import Finish, GridRule
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.operators import Map, Reduction, reduction_of
from cudareduce.reduction.sizes import parse_size
from cudareduce.reduction.transforms import custom_operator

#: The largest buffer that --arg requests, in bytes.
_MOST_MEMORY = 2**28
_DEFINITION = re.compile(r"([A-Za-z_]\w*)(?:=([^\n]*))?")
#: What a buffer of --arg may have one element for: a block, a thread or an input element.
Each = Literal["grid", "threads", "n"]
_EACH: tuple[Each, ...] = ("grid", "threads", "n")


@dataclass(frozen=True, slots=True)
class Argument:
    """`--arg KERNEL.NAME=WHAT`: the value of one parameter; `kernel` is "" for every kernel."""

    kernel: str
    name: str
    what: str

    def applies_to(self, kernel: str) -> bool:
        """True for a kernel of this name, in any namespace."""
        return not self.kernel or f"::{kernel}".endswith(f"::{self.kernel}")

    @property
    def is_memory(self) -> bool:
        """True if the value is a buffer and not a number."""
        return self.what in ("in", "in2", "out", "out2") or self.kind in ("zeroed", "scratch")

    @property
    def kind(self) -> str:
        """The word before the colon."""
        return self.what.partition(":")[0]

    def memory_bytes(self, element: int, blocks: int, threads: int, elements: int) -> int:
        """Bytes of a zeroed or scratch buffer with elements of `element` bytes."""
        amount = self.what.partition(":")[2]
        count = {"grid": blocks, "threads": threads, "n": elements}.get(amount)
        return parse_size(amount) if count is None else count * element


def read_argument(text: str) -> Argument:
    """Parse `NAME=WHAT` or `KERNEL.NAME=WHAT`. Raises UsageError."""
    before, equals, what = text.partition("=")
    kernel, _, name = before.strip().rpartition(".")
    if not equals or not name or not what.strip():
        raise UsageError(f"--arg {text} is not NAME=WHAT: write as in --arg counter=zeroed:4")
    found = Argument(kernel.removeprefix("::"), name, what.strip())
    kind, _, amount = found.what.partition(":")
    if kind in ("zeroed", "scratch") and amount[:1] != ":" and amount not in _EACH:
        try:
            size = parse_size(amount)
        except UsageError:
            size = 0
        if not 1 <= size <= _MOST_MEMORY:
            raise UsageError(
                f"--arg {text} requests no amount of memory: write bytes after the colon, 1 to "
                f"{_MOST_MEMORY}, or one element per block (grid), thread (threads) or input (n)"
            )
    return found


def read_definition(text: str) -> tuple[str, str]:
    """Parse `NAME` or `NAME=VALUE`; the value is 1 if there is none. Raises UsageError."""
    found = _DEFINITION.fullmatch(text)
    if not found:
        raise UsageError(f"-D {text} is not NAME=VALUE: write as in -D BLOCK_SIZE=256")
    return found[1], "1" if found[2] is None else found[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """The options for files as typed."""

    entry: tuple[str, ...] = ()
    chain: tuple[str, ...] = ()
    grid: int | GridRule | None = None
    shared: int | None = None
    finish: Finish | None = None
    arg: tuple[str, ...] = ()
    headers: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The values of parameters. Raises UsageError."""
        return tuple(read_argument(text) for text in self.arg)

    @property
    def defined(self) -> tuple[str, ...]:
        """Macros as NAME=VALUE. Raises UsageError."""
        return tuple("=".join(read_definition(text)) for text in self.define)

    @property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """The kernels of each --chain."""
        return tuple(tuple(_names(chain)) for chain in self.chain)

    def with_shape(self, block: int | None = None, items: int | None = None) -> LaunchOptions:
        """These options with a launch shape."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return LaunchOptions(**own, block=block, items=items)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions(FileOptions):
    """All options for external files. `block` and `items` are None if not given."""

    block: int | None = None
    items: int | None = None

    @property
    def sets_launch(self) -> bool:
        """True if an option replaces what the file's host code launches."""
        launch = (self.block, self.items, self.grid, self.shared)
        return bool(self.arg) or any(option is not None for option in launch)


def _names(chain: str) -> list[str]:
    """Split at commas outside template arguments."""
    names, depth = [""], 0
    for character in chain:
        depth += (character == "<") - (character == ">")
        if character == "," and not depth:
            names.append("")
        else:
            names[-1] += character
    names = [name.strip() for name in names]
    if len(names) < 2 or not all(names):
        raise UsageError(f"--chain {chain} is not A,B: name two kernels or more")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """The reduction named by options: types, and operators with their transform, if any."""

    op: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    op_expr: str | None = None
    identity: str | None = None
    rtol: float = 1e-5
    map: Map | None = None

    def of(self, dtype: DType) -> tuple[Reduction, ...]:
        """The named reductions for an element type; () if neither operator nor transform is
        named. Raises UsageError."""
        if self.op_expr is not None:
            own = custom_operator(self.op_expr, self.identity, dtype, self.rtol)
            return (reduction_of(own, dtype.name),)
        ops = self.op or (("sum",) if self.map else ())
        found = (reduction_of(op, dtype.name, None, self.map) for op in ops)
        return tuple(one for one in found if one.why_undefined() is None)


NOTHING_REQUESTED = Requested()
