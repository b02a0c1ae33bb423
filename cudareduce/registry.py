"""The kernels and suites there are: every `.cu` file below the kernels folder, nothing else.

One file is one kernel and its whole registration; its id is the file's name. A suite is a published
experiment that names kernels in its author's order, under its author's names.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudareduce.dtypes import DTYPES
from cudareduce.errors import UsageError
from cudareduce.header import read_header
from cudareduce.operators import OPERATORS, Operator, Reduction

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel file: its header's fields, its text, and what follows from them."""

    id: str
    path: Path
    family: str
    text: str = field(repr=False)
    title: str
    change: str
    scope: str
    grid: str
    walk: str
    finish: str
    block: int
    blocks: tuple[int, ...]
    expect: str = ""
    after: str | None = None
    fold: str = "tree"
    order: str = "any"
    items: int = 1
    vector: int = 1
    fixed_grid: int | None = None
    techniques: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = tuple(DTYPES)
    ops: tuple[str, ...] = ()
    any_op: bool = True  # the header names no operators, so a user's own will do
    min_cc: str = "7.5"
    requires: tuple[str, ...] = ()
    symbol: str | None = None  # where the entry point does not bear the file's name
    dynamic_shared: int = 0  # bytes a block
    whole_tiles: bool = False  # takes no count, so only multiples of block * items

    @property
    def entry(self) -> str:
        """The kernel's symbol: profilers show it."""
        return self.symbol or self.id

    @property
    def sha(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def why_not(self, what: Reduction) -> str | None:
        """Why this kernel does not take a reduction, or None if it does."""
        undefined = what.why_undefined()
        if undefined:
            return undefined
        if what.dtype.name not in self.dtypes:
            return f"takes {', '.join(self.dtypes)}, not {what.dtype.name}"
        reason = _why_not_op(what.op, self.order, self.finish)
        if (
            reason is None
            and what.op.name not in self.ops
            and not (self.any_op and what.op.expression)
        ):
            return f"takes {', '.join(self.ops)}, not {what.op.name}"
        return reason

    def shape(self, n: int, rows: int) -> tuple[int, int]:
        """Rows of `n` elements as this kernel takes them: a long array is many rows to a warp."""
        if self.scope == "warp" and rows == 1 and n % 32 == 0 and n:
            return 32, n // 32
        return n, rows

    def why_not_shape(self, n: int, rows: int) -> str | None:
        """Why this kernel does not take `rows` rows of `n` elements, or None if it does."""
        if self.scope in ("grid", "block") and rows != 1:
            return f"reduces one array, not {rows} rows"
        if self.walk == "lane" and n > 32:
            whole = " (or one array of a multiple of 32)" if rows == 1 else ""
            return f"gives each element of a row a lane: rows of at most 32{whole}, not {n}"
        return None

    def why_not_block(self, block: int) -> str | None:
        """Why this kernel does not take a block size, or None if it does."""
        if block in self.blocks:
            return None
        return f"takes blocks of {', '.join(map(str, self.blocks))} threads, not {block}"

    def why_not_items(self, items: int) -> str | None:
        """Why this kernel does not take a number of items a thread, or None if it does."""
        if items == self.items or re.search(r"\bITEMS\b", self.text):
            return None
        return f"takes {self.items} item{'s' * (self.items > 1)} a thread, not {items}"


def _why_not_op(op: Operator, order: str, finish: str) -> str | None:
    if order == "any" and not op.commutative:
        return f"{op.name} does not commute and this kernel does not keep the order of operands"
    if finish == "atomic" and not op.has_atomic:
        return f"combines in memory, and {op.name} has no atomic form"
    return None


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One published version: the author's name for it and the kernel that is it.

    `n`, `rows`, `block` and `items` stand where this version's differ from the experiment's.
    """

    name: str
    kernel: str
    n: int | None = None
    rows: int | None = None
    block: int | None = None
    items: int | None = None
    published: Mapping[str, Any] = field(default_factory=dict)
    erratum: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """One published experiment; `experiment` holds its sizes, block, inputs and timed region."""

    id: str
    title: str
    source: str
    rows: tuple[SuiteRow, ...]
    experiment: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel to run, under a suite's name for it where a suite was asked for."""

    kernel: Kernel
    suite: str | None = None
    name: str | None = None
    block: int | None = None
    items: int | None = None


#: Makes a kernel of a file without a header.
Adopt = Callable[[Path, str], Kernel]


def load_kernel(path: Path, family: str = "user", adopt: Adopt | None = None) -> Kernel:
    """Read one kernel file; a broken header or a missing entry point is a UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise UsageError(f"cannot read {path}: {reason}") from None
    header = read_header(path, text)
    if header is None and adopt is not None:
        return adopt(path, text)
    if header is None:
        raise UsageError(
            f"{path}:1: no header: begin the file with a /*+++ ... +++*/ comment; "
            f"`cudareduce show reduce_v0_baseline` prints an example"
        )
    entry = re.escape(path.stem)
    if not re.search(rf'extern "C" __global__ void [^;{{]*\b{entry}\s*\(', text):
        raise UsageError(
            f'{path}:1: no entry point: the file must define extern "C" __global__ void '
            f"{path.stem}(...), which bears the file's name"
        )
    fields: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) else v for key, v in header.items()
    }
    order, finish = fields.get("order", "any"), fields["finish"]
    fields["any_op"] = "ops" not in fields
    declared = fields.get("ops", tuple(OPERATORS))
    fields["ops"] = tuple(o for o in declared if _why_not_op(OPERATORS[o], order, finish) is None)
    return Kernel(id=path.stem, path=path, family=family, text=text, **fields)


def load_suite(path: Path) -> Suite:
    """Read one suite file."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = tuple(SuiteRow(**row) for row in data.pop("row"))
        return Suite(path.stem, data.pop("title"), data.pop("source"), rows, data)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: not a valid suite: {error}") from None


@dataclass(frozen=True, slots=True)
class Registry:
    """All kernels in order of family and name, and all suites."""

    kernels: Mapping[str, Kernel]
    suites: Mapping[str, Suite]

    def choose(self, patterns: Sequence[str], adopt: Adopt | None = None) -> list[Choice]:
        """The kernels that KERNEL, SUITE, GLOB, FILE.cu and `all` name, in order, each once.

        `adopt` makes a kernel of a file without a header; without it such a file is an error.
        """
        chosen: dict[tuple[str, int | None, int | None], Choice] = {}
        for pattern in patterns or ["all"]:
            for choice in self._match(pattern, adopt):
                chosen.setdefault((choice.kernel.id, choice.block, choice.items), choice)
        return list(chosen.values())

    def _match(self, pattern: str, adopt: Adopt | None) -> Iterable[Choice]:
        if pattern == "all":
            return [Choice(kernel) for kernel in self.kernels.values()]
        if pattern in self.kernels:
            return [Choice(self.kernels[pattern])]
        if pattern in self.suites:
            return [
                Choice(self.kernels[row.kernel], pattern, row.name, row.block, row.items)
                for row in self.suites[pattern].rows
            ]
        if pattern.endswith(".cu"):
            return [Choice(load_kernel(Path(pattern), adopt=adopt))]
        if set("*?[") & set(pattern):
            found = fnmatch.filter(self.kernels, pattern)
            if found:
                return [Choice(self.kernels[name]) for name in found]
        raise UsageError(self._unknown(pattern))

    def _unknown(self, name: str) -> str:
        names = [*self.kernels, *self.suites]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        near += [other for other in names if name in other and other not in near][:3]
        hint = f"did you mean {' or '.join(near)}?" if near else "`cudareduce list` shows them"
        return f"no kernel or suite is called {name!r}: {hint}"

    def suite(self, name: str) -> Suite:
        """A suite by its name; an unknown one is a UsageError that lists them."""
        if name not in self.suites:
            names = ", ".join(self.suites)
            raise UsageError(f"there is no suite {name!r}; the suites are: {names}")
        return self.suites[name]

    def published(self, kernel: Kernel) -> dict[str, list[str]]:
        """Under which names which suites carry a kernel."""
        return {
            suite.id: names
            for suite in self.suites.values()
            if (names := [row.name for row in suite.rows if row.kernel == kernel.id])
        }

    def root(self, kernel: Kernel) -> Kernel:
        """The first kernel of a lineage."""
        while kernel.after is not None:
            kernel = self.kernels[kernel.after]
        return kernel


def kernels_folder() -> Path:
    """Where the kernels are: inside an installed package, beside the package in a checkout."""
    for folder in (_PACKAGE / "kernels", _PACKAGE.parent / "kernels"):
        if folder.is_dir():
            return folder
    raise UsageError("the kernels folder is missing: install cudareduce again")


def load_registry(extra: Sequence[Path] = ()) -> Registry:
    """Read every kernel and suite; `extra` folders hold a user's own, one level deep or flat."""
    kernels: dict[str, Kernel] = {}
    suites: dict[str, Suite] = {}
    for folder in (kernels_folder(), *extra):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of kernels")
        for path in sorted([*folder.glob("*.cu"), *folder.glob("*/*.cu")]):
            family = path.parent.name if path.parent != folder else folder.name
            kernel = load_kernel(path, family)
            if kernel.id in kernels:
                raise UsageError(f"{path} and {kernels[kernel.id].path} have the same name")
            kernels[kernel.id] = kernel
        for path in sorted(folder.glob("suites/*.toml")):
            suites[path.stem] = load_suite(path)
    for kernel in kernels.values():
        if kernel.after is not None and kernel.after not in kernels:
            raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
    for suite in suites.values():
        for row in suite.rows:
            if row.kernel not in kernels:
                raise UsageError(f"suite {suite.id}: {row.name}: no kernel {row.kernel!r}")
    return Registry(kernels, suites)
