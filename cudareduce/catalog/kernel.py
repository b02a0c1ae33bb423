"""A kernel: front matter and source text, supported reductions, and diffs between kernels."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from cudareduce.catalog.condition import ANY_INPUT, Condition
from cudareduce.catalog.front_matter import (
    UNASSIGNED,
    UNORDERED,
    Elements,
    Finish,
    Fold,
    Grid,
    Order,
    Scope,
    Walk,
    has_front_matter,
    inline_headers,
    memory_bytes,
    read_front_matter,
    read_headers,
    read_source,
)
from cudareduce.catalog.map_expression import read_map, why_not_map
from cudareduce.catalog.program import Program
from cudareduce.cuda_source import parse_cuda, without_comments
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map, Operator, Reduction

#: A declaration of dynamic shared memory, not in a comment line.
EXTERN_SHARED = re.compile(
    r"^[^/\n]*(?P<words>\bextern\s+(?:[\w:]+\s+)*?__shared__\b)", re.MULTILINE
)


def definition(text: str, name: str, head: str) -> int | None:
    """The offset in `text` at which the definition of function `name` begins; None if there is
    none. `head` is the start of the definition, such as `__global__ void`."""
    for found in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        begins = text.rfind(head, 0, found.start())
        ended = max(text.rfind(end, 0, found.start()) for end in ";{")
        if begins > ended:
            return begins
    return None


def check_parameters(
    path: Path, text: str, front_matter: Mapping[str, Any], inputs: Sequence[str] = ("in",)
) -> None:
    """Raise UsageError if the entry point does not have the parameters that the front matter
    implies: `inputs`, `out`, `n`, and further ones. Skips parameter lists that contain macros."""
    found = re.search(
        rf"__global__ void[^;{{}}]*?\b{re.escape(path.stem)}\s*\((?P<all>[^()]*)\)", text
    )
    if found is None:
        return
    taken = [words.split() for words in without_comments(parse_cuda(found["all"])).split(",")]
    if not all(len(words) > 1 for words in taken):
        return
    called = [*inputs, "out", "n"]
    called += ["rows"] if front_matter["scope"] in ("rows", "warp") else []
    called += ["partials", "counter"] if front_matter["finish"] == "last_block" else []
    called += ["workspace"] if "workspace" in front_matter else []
    if len(taken) != len(called):
        line = text.count("\n", 0, found.start("all")) + 1
        raise UsageError(
            f"{path}:{line}: {path.stem} takes {len(taken)} parameters, but with scope = "
            f'"{front_matter["scope"]}" and finish = "{front_matter["finish"]}" it is called with '
            f"{len(called)}: {', '.join(called)}; change them, or the front matter"
        )


def why_not_op(op: Operator, order: Order, finish: Finish, *, named: bool) -> str | None:
    """The reason why a kernel with this order and finish does not support an operator; None if it
    does. `named`: its front matter lists operators."""
    if order == "any" and not op.commutative:
        return f"{op.name} does not commute, and this kernel changes the order of operands"
    together = op.has_atomic or (op.indexed and named)
    if finish in UNORDERED and not together:
        return f"combines in memory, and {op.name} has no atomic form"
    if finish == "host" and (op.has_finish or op.words > 1):
        return f"leaves partials to the host, which does not fold those of {op.name}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel: its front matter and source text, or an external program.

    `front_matter.KEYS` describes the fields from front matter. If `items_bytes` or `vector_bytes`
    are given, `items` and `vector` are the values for 4-byte types."""

    id: str
    path: Path
    family: str
    text: str = field(repr=False)  # of the file, as written
    title: str
    change: str
    scope: Scope
    grid: Grid
    walk: Walk
    finish: Finish
    block: int
    blocks: tuple[int, ...]
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # names and texts
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
    any_op: bool = True  # the front matter names no operators, so --op-expr is supported
    min_cc: str = "7.5"
    requires: tuple[str, ...] = ()
    symbol: str | None = None  # the entry point, if it is not named like the file
    dynamic_shared: int | str = 0  # bytes per block, or a text (see `memory_bytes`)
    workspace: int | str = 0  # bytes per grid, kept between launches, or a text
    precondition: Condition = ANY_INPUT
    most: int | None = None  # largest number of elements
    map: Map | None = None  # the transform that the kernel's text applies
    in_place: bool = False  # overwrites its input, which is restored before each launch
    columns: bool = False  # reduces the columns of a matrix
    foreign: bool = True  # not from this package: verified in a child process on a GPU
    program: Program | None = None  # external files only
    prelude: Path | None = None  # the folder of operators, if not in this package

    @property
    def entry(self) -> str:
        """The name of the kernel function."""
        return self.symbol or self.id

    @property
    def code(self) -> str:
        """The text with its headers inlined."""
        return inline_headers(self.path, self.text, dict(self.headers))

    @property
    def inputs(self) -> int:
        """Arrays that its entry point takes."""
        return self.map.inputs if self.map else 1

    @property
    def entry_line(self) -> int:
        """The line of the entry point; 1 if it is not found."""
        begins = definition(self.text, self.entry, "__global__")
        return 1 if begins is None else self.text.count("\n", 0, begins) + 1

    @property
    def relaunches(self) -> bool:
        """True if it is launched again, on the partials of the launch before."""
        return self.finish in ("relaunch", "relaunch_one_block", "reshape")

    @property
    def sha(self) -> str:
        """SHA-256 of the text and its headers, in hex, whatever path an external file has."""
        texts = (self.text.replace(f'"{self.path}"', ""), *(text for _, text in self.headers))
        return hashlib.sha256("".join(texts).encode()).hexdigest()

    def shared_bytes(self, reduction: Reduction, block: int) -> int:
        """Bytes of dynamic shared memory per block of `block` threads."""
        places = {"thread": block, "warp": -(-block // 32), "block": 1}
        return memory_bytes(self.dynamic_shared, _sizes(reduction), places)

    def workspace_bytes(self, reduction: Reduction, grid: int) -> int:
        """Bytes of the workspace for a grid of `grid` blocks."""
        return memory_bytes(self.workspace, _sizes(reduction), {"block": grid})

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The supported grid rules: with a grid-stride loop any number of blocks is right."""
        striding: tuple[Grid, ...] = ("fill", "per_sm", "cover")
        if self.grid == "fill_by_row":
            return ("fill_by_row", "cover")
        return striding if self.grid in striding[:2] else (self.grid,)

    def items_of(self, size: int) -> int:
        """Default items per thread, for elements of `size` bytes."""
        return max(1, self.items_bytes // size) if self.items_bytes else self.items

    def vector_of(self, size: int) -> int:
        """Elements per load, for elements of `size` bytes."""
        return max(1, self.vector_bytes // size) if self.vector_bytes else self.vector

    def why_not(self, reduction: Reduction) -> str | None:
        """Why this kernel does not support a reduction, or None if it does."""
        mapped = why_not_map(self.map, self.finish, self.elements, reduction)
        if undefined := reduction.why_undefined() or mapped:
            return undefined
        if reduction.dtype.name not in self.dtypes:
            return f"takes {', '.join(self.dtypes)}, not {reduction.dtype.name}"
        if self.program is not None:
            return None  # verification decides
        taken = reduction.op.name in self.ops or (self.any_op and reduction.op.expression)
        adds = "only adds: it " if set(self.ops) <= {"sum", "mean"} else ""
        takes = f"{adds}takes {', '.join(self.ops)}, not {reduction.op.name}"
        reason = why_not_op(reduction.op, self.order, self.finish, named=not self.any_op)
        return reason or (None if taken else takes)

    def varies(self, reduction: Reduction) -> bool:
        """True if the bits of the result may vary between launches with the order of blocks."""
        chance = self.finish in UNORDERED or self.walk in UNASSIGNED
        return chance and reduction.acc.kind == "float" and not reduction.op.indexed

    def shape(self, n: int, rows: int) -> tuple[int, int]:
        """The shape (n, rows) with which the kernel is launched. A warp kernel reduces one array of
        a multiple of 32 elements as rows of 32."""
        if self.scope == "warp" and rows == 1 and n % 32 == 0 and n:
            return 32, n // 32
        return n, rows

    def why_not_shape(self, n: int, rows: int) -> str | None:
        """Why this kernel does not support a shape as `shape` returns it, or None if it does."""
        if self.scope in ("grid", "block") and rows != 1:
            return f"reduces one array, not {rows} rows"
        if self.most is not None and n > self.most:
            one = self.grid == "one" or self.fixed_grid == 1
            limit = "is a single block, for" if one else "counts elements in a type for"
            return f"{limit} at most {self.most} elements, not {n}"
        if self.walk == "lane" and n > 32:
            whole = " (or one array of a multiple of 32)" if rows == 1 else ""
            return f"has one lane per element of a row: rows of at most 32{whole}, not {n}"
        return None

    def why_not_block(self, block: int) -> str | None:
        """Why this kernel does not support a block size, or None if it does."""
        if block in self.blocks:
            return None
        return f"takes blocks of {', '.join(map(str, self.blocks))} threads, not {block}"

    def why_not_sms(self) -> str | None:
        """Why the kernel does not support --sms, or None if fewer blocks do all of its work."""
        if self.program is None and self.grid in ("fixed", "fill", "per_sm", "one"):
            return None
        return "does not support --sms: fewer blocks would not read all of its input"

    def why_not_items(self, items: int, size: int = 4) -> str | None:
        """Why this kernel does not support a number of items of `size` bytes per thread, or None if
        it does."""
        usual, load = self.items_of(size), self.vector_of(size) if self.vector_bytes else 1
        if items != usual and not re.search(r"\bITEMS\b", self.code):
            return f"has {usual} item{'s' * (usual > 1)} per thread, not {items}"
        if items % load:
            return f"loads {load} items at a time, so items must be a multiple, not {items}"
        return None


def _sizes(reduction: Reduction) -> dict[str, int]:
    """The sizes in bytes of the units of memory in front matter."""
    acc, size = reduction.acc.size, reduction.dtype.size
    return {"Acc": reduction.acc_size, "Scalar": acc, "Element": size}


#: Converts an external file, given its path and text, to kernels.
Adopt = Callable[[Path, str], Sequence[Kernel]]


def load_kernels(path: Path, adopt: Adopt) -> Sequence[Kernel]:
    """The kernels of a file: one kernel if it has front matter, else those that `adopt` returns.
    Raises UsageError."""
    return [load_kernel(path)] if has_front_matter(path) else adopt(path, read_source(path))


def load_kernel(path: Path, family: str = "user", *, foreign: bool = True) -> Kernel:
    """Load a kernel file with front matter. Raises UsageError if it cannot be read, or if the front
    matter or the entry point is missing or invalid."""
    text = read_source(path)
    front_matter = read_front_matter(path, text)
    if front_matter is None:
        raise UsageError(
            f"{path}:1: no front matter: begin the file with a /*+++ ... +++*/ comment; "
            f"`cudareduce show reduce_v0_baseline` prints an example"
        )
    if definition(text, path.stem, 'extern "C" __global__ void ') is None:
        raise UsageError(
            f'{path}:1: no entry point: the file must define extern "C" __global__ void '
            f"{path.stem}(...), named like the file"
        )
    unsized = EXTERN_SHARED.search(text)
    if unsized is not None and "dynamic_shared" not in front_matter:
        line = text.count("\n", 0, unsized.start("words")) + 1
        raise UsageError(
            f"{path}:{line}: extern __shared__ memory has no size: add dynamic_shared to the front "
            'matter, such as "1 Acc a thread"'
        )
    fields: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in front_matter.items()
    }
    if "map" in fields:
        fields["map"] = read_map(fields["map"], f"{path}: map:")
    for key in ("items", "vector"):
        if f"{key}_bytes" in fields:
            fields[key] = max(1, fields[f"{key}_bytes"] // 4)
    two = "map" in fields and fields["map"].inputs > 1
    check_parameters(path, text, front_matter, ("in", "other") if two else ("in",))
    order, finish, named = fields.get("order", "any"), fields["finish"], "ops" in fields
    ops = fields.get("ops", OPERATORS)
    ops = tuple(o for o in ops if not why_not_op(OPERATORS[o], order, finish, named=named))
    fields |= {"any_op": not named, "ops": ops}
    fields["headers"] = tuple(read_headers(path, text).items())
    return Kernel(id=path.stem, path=path, family=family, text=text, foreign=foreign, **fields)


_HEADER_ENDS, _COMMENT = "+++*/\n", "//"


def diff(before: Kernel, kernel: Kernel) -> str:
    """The unified diff of the code of two kernels, followed by the diff of their front matter and
    the comment below it."""
    (old_head, old_code), (new_head, new_code) = _head_and_code(before), _head_and_code(kernel)
    shift = len(old_head), len(new_head)
    names = before.path.name, kernel.path.name
    code = list(difflib.unified_diff(old_code, new_code, *names))
    head = list(difflib.unified_diff(old_head, new_head, *names))
    code = [_HUNK.sub(lambda hunk: _shift_lines(hunk, shift), line) for line in code]
    return "".join([*code, *(head[2:] if code else head)])


#: The header of a diff hunk, with its line numbers in both files.
_HUNK = re.compile(r"^@@ -(\d+)(.*) \+(\d+)(.*) @@$", re.MULTILINE)


def _shift_lines(hunk: re.Match[str], shift: tuple[int, int]) -> str:
    old, new = int(hunk[1]) + shift[0], int(hunk[3]) + shift[1]
    return f"@@ -{old}{hunk[2]} +{new}{hunk[4]} @@"


def _head_and_code(kernel: Kernel) -> tuple[list[str], list[str]]:
    """The lines of the front matter and the comment below it, and the remaining lines."""
    front, ends, rest = kernel.text.partition(_HEADER_ENDS)
    lines = rest.splitlines(keepends=True) if ends else []
    comment = list(takewhile(lambda line: line.strip() == "" or line.startswith(_COMMENT), lines))
    size = len(f"{front}{ends}{''.join(comment)}") if ends else 0
    head, code = kernel.text[:size], kernel.text[size:]
    return head.splitlines(keepends=True), code.splitlines(keepends=True)


def description(kernel: Kernel) -> str:
    """The comment after the front matter of a kernel, as one paragraph."""
    lines = kernel.text.partition(_HEADER_ENDS)[2].splitlines()
    comment = takewhile(lambda line: line.startswith(_COMMENT), lines)
    return " ".join(line.removeprefix(_COMMENT).strip() for line in comment)
