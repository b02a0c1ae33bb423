"""A kernel file: its header, its text, and what it takes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.library.condition import ANY_INPUT, Condition
from cudareduce.library.entry import EXTERN_SHARED, check_parameters, definition
from cudareduce.library.header import (
    UNASSIGNED,
    UNORDERED,
    Elements,
    Finish,
    Fold,
    Grid,
    Order,
    Scope,
    Walk,
    memory_bytes,
    read_header,
)
from cudareduce.library.mapped import read_map, why_not_map
from cudareduce.library.program import Program
from cudareduce.library.reading import has_header, read_source
from cudareduce.library.taken import why_not_op
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map, Reduction


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel file: its header's fields, its text, and what follows from them. `block` is in
    threads, `items` in elements a thread, `vector` in elements a load, `fixed_grid` in blocks.
    Where `items_bytes` or `vector_bytes` count, `items` and `vector` are those of 4-byte types."""

    id: str
    path: Path
    family: str
    text: str = field(repr=False)
    title: str
    change: str
    scope: Scope
    grid: Grid
    walk: Walk
    finish: Finish
    block: int
    blocks: tuple[int, ...]
    expect: str = ""
    after: str | None = None
    fold: Fold = "tree"
    order: Order = "any"
    elements: Elements = "lifted"
    items: int = 1
    vector: int = 1
    items_bytes: int | None = None
    vector_bytes: int | None = None
    fixed_grid: int | None = None
    fixed_warps: int | None = None
    techniques: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = tuple(DTYPES)
    ops: tuple[str, ...] = ()
    any_op: bool = True  # the header names no operators, so a user's own will do
    min_cc: str = "7.5"
    requires: tuple[str, ...] = ()
    symbol: str | None = None  # where the entry point does not bear the file's name
    dynamic_shared: int | str = 0  # bytes a block, or in the words of a header
    workspace: int | str = 0  # bytes a grid that outlive a launch, or in the words of a header
    asks: Condition = ANY_INPUT  # of its input, beyond what its header or its parameters say
    most: int | None = None  # elements, where its count is of a type that holds no more
    map: Map | None = None  # what its own text makes of elements before it combines them
    in_place: bool = False  # overwrites its input, which is restored before each launch
    columns: bool = False  # elements of its rows lie as far apart as there are rows
    foreign: bool = True  # not one of the package: on a GPU it is verified in a child process
    program: Program | None = None  # of an external file: what its author's host code launches
    prelude: Path | None = None  # where operators' texts lie, if not in this package

    @property
    def entry(self) -> str:
        """The kernel's symbol: profilers show it."""
        return self.symbol or self.id

    @property
    def inputs(self) -> int:
        """Arrays that its entry point takes."""
        return self.map.inputs if self.map else 1

    @property
    def entry_line(self) -> int:
        """The line on which the entry point begins; the first where it is not found."""
        begins = definition(self.text, self.entry, "__global__")
        return 1 if begins is None else self.text.count("\n", 0, begins) + 1

    @property
    def relaunches(self) -> bool:
        """True if it is launched again, on the partials of the launch before."""
        return self.finish in ("relaunch", "relaunch_one_block", "reshape")

    @property
    def sha(self) -> str:
        """SHA-256 of the text, in hex, whatever path an external file has."""
        return hashlib.sha256(self.text.replace(f'"{self.path}"', "").encode()).hexdigest()

    def shared_bytes(self, reduction: Reduction, block: int) -> int:
        """Bytes of dynamic shared memory that a launch gives each block of so many threads."""
        places = {"thread": block, "warp": -(-block // 32), "block": 1}
        return memory_bytes(self.dynamic_shared, _sizes(reduction), places)

    def workspace_bytes(self, reduction: Reduction, grid: int) -> int:
        """Bytes of global memory that outlive a launch of so many blocks."""
        return memory_bytes(self.workspace, _sizes(reduction), {"block": grid})

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grid rules that the kernel takes: blocks that stride over tiles may be any number."""
        striding: tuple[Grid, ...] = ("fill", "per_sm", "cover")
        if self.grid == "fill_by_row":
            return ("fill_by_row", "cover")
        return striding if self.grid in striding[:2] else (self.grid,)

    def items_of(self, size: int) -> int:
        """Elements a thread unless asked otherwise, of so many bytes each."""
        return max(1, self.items_bytes // size) if self.items_bytes else self.items

    def vector_of(self, size: int) -> int:
        """Elements a load, of so many bytes each."""
        return max(1, self.vector_bytes // size) if self.vector_bytes else self.vector

    def why_not(self, reduction: Reduction) -> str | None:
        """Why this kernel does not take a reduction, in words, or None if it does."""
        mapped = why_not_map(self.map, self.finish, self.elements, reduction)
        if undefined := reduction.why_undefined() or mapped:
            return undefined
        if reduction.dtype.name not in self.dtypes:
            return f"takes {', '.join(self.dtypes)}, not {reduction.dtype.name}"
        if self.program is not None:
            return None  # verification shows whether it computes that
        taken = reduction.op.name in self.ops or (self.any_op and reduction.op.expression)
        takes = f"takes {', '.join(self.ops)}, not {reduction.op.name}"
        reason = why_not_op(reduction.op, self.order, self.finish, named=not self.any_op)
        return reason or (None if taken else takes)

    def varies(self, reduction: Reduction) -> bool:
        """Whether the bits of its answers hang on the order in which blocks arrive."""
        chance = self.finish in UNORDERED or self.walk in UNASSIGNED
        return chance and reduction.acc.kind == "float" and not reduction.op.indexed

    def shape(self, n: int, rows: int) -> tuple[int, int]:
        """Elements a row and rows, as this kernel takes `rows` rows of `n` elements: to a warp
        kernel one array of a multiple of 32 elements is many rows of 32."""
        if self.scope == "warp" and rows == 1 and n % 32 == 0 and n:
            return 32, n // 32
        return n, rows

    def why_not_shape(self, n: int, rows: int) -> str | None:
        """Why this kernel does not take `rows` rows of `n` elements, or None if it does; they are
        as `shape` makes them."""
        if self.scope in ("grid", "block") and rows != 1:
            return f"reduces one array, not {rows} rows"
        if self.most is not None and n > self.most:
            one = self.grid == "one" or self.fixed_grid == 1
            counts = "is one block that takes" if one else "counts in a type that holds"
            return f"{counts} {self.most} at most, not {n}"
        if self.walk == "lane" and n > 32:
            whole = " (or one array of a multiple of 32)" if rows == 1 else ""
            return f"gives each element of a row a lane: rows of at most 32{whole}, not {n}"
        return None

    def why_not_block(self, block: int) -> str | None:
        """Why this kernel does not take a block size, or None if it does."""
        if block in self.blocks:
            return None
        return f"takes blocks of {', '.join(map(str, self.blocks))} threads, not {block}"

    def why_not_sms(self) -> str | None:
        """Why its work does not fit on fewer SMs by launching fewer blocks, or None if it does."""
        if self.program is None and self.grid in ("fixed", "fill", "per_sm", "one"):
            return None
        return "takes no --sms: fewer blocks would not take all of its input"

    def why_not_items(self, items: int, size: int = 4) -> str | None:
        """Why this kernel does not take a number of items of so many bytes a thread, or None if it
        does."""
        own, load = self.items_of(size), self.vector_of(size) if self.vector_bytes else 1
        if items != own and not re.search(r"\bITEMS\b", self.text):
            return f"takes {own} item{'s' * (own > 1)} a thread, not {items}"
        if items % load:
            return f"loads {load} items at a time, so it takes a multiple of them, not {items}"
        return None


def _sizes(reduction: Reduction) -> dict[str, int]:
    """The bytes of what a header may count memory in."""
    acc, size = reduction.acc.size, reduction.dtype.size
    return {"Acc": reduction.acc_size, "Scalar": acc, "Element": size}


#: Makes kernels of a file without a header.
Adopt = Callable[[Path, str], Sequence[Kernel]]


def load_kernels(path: Path, adopt: Adopt) -> Sequence[Kernel]:
    """The kernels of a user's file: one, or what `adopt` makes of a file without a header. Raises
    what `load_kernel` raises."""
    return [load_kernel(path)] if has_header(path) else adopt(path, read_source(path))


def load_kernel(path: Path, family: str = "user", *, foreign: bool = True) -> Kernel:
    """Read one kernel file.

    A file that cannot be read, a broken or a missing header, or a missing entry point is a
    UsageError.
    """
    text = read_source(path)
    header = read_header(path, text)
    if header is None:
        raise UsageError(
            f"{path}:1: no header: begin the file with a /*+++ ... +++*/ comment; "
            f"`cudareduce show reduce_v0_baseline` prints an example"
        )
    if definition(text, path.stem, 'extern "C" __global__ void ') is None:
        raise UsageError(
            f'{path}:1: no entry point: the file must define extern "C" __global__ void '
            f"{path.stem}(...), which bears the file's name"
        )
    unsized = EXTERN_SHARED.search(text)
    if unsized is not None and "dynamic_shared" not in header:
        line = text.count("\n", 0, unsized.start("words")) + 1
        raise UsageError(
            f"{path}:{line}: extern __shared__ memory has no size: give the header dynamic_shared, "
            'such as "1 Acc a thread"'
        )
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header.items()}
    if "map" in fields:
        fields["map"] = read_map(fields["map"], f"{path}: map:")
    for key in ("items", "vector"):
        if f"{key}_bytes" in fields:
            fields[key] = max(1, fields[f"{key}_bytes"] // 4)
    two = "map" in fields and fields["map"].inputs > 1
    check_parameters(path, text, header, ("in", "other") if two else ("in",))
    order, finish, named = fields.get("order", "any"), fields["finish"], "ops" in fields
    ops = fields.get("ops", OPERATORS)
    ops = tuple(o for o in ops if not why_not_op(OPERATORS[o], order, finish, named=named))
    fields |= {"any_op": not named, "ops": ops}
    return Kernel(id=path.stem, path=path, family=family, text=text, foreign=foreign, **fields)
