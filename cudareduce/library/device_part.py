"""The device part of a file: what one of its kernels reaches by name, without what is the host's.

Headers in quotes that lie beside the file are taken in where they are included, for their device
part too. Every line keeps its number, so that a compiler's words still lead to their place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.bare_calls import without_bare_calls
from cudareduce.library.branches import Defined, live_lines
from cudareduce.library.expanded import Macro, expanded, macros_in
from cudareduce.library.formulas import formulas_in
from cudareduce.library.functors import Helpers, helpers_in
from cudareduce.library.syntax import Function, Piece, pieces

#: What makes a function or a variable one of the device; a constant may be of both.
_DEVICE = frozenset(["__device__", "__global__"])
_CONSTANT = frozenset(["__constant__", "__shared__", "__managed__", "const", "constexpr"])
#: Lines of the preprocessor stay, since other lines depend on them.
_STAYS = frozenset(["preproc_def", "preproc_function_def", "preproc_call"])
#: Where headers of one's own are looked for, from the folder of the file that includes them.
_FOLDERS = (
    ".", "include", "includes", "inc", "common", "..", "../include", "../includes", "../inc",
    "../common", "../utils",
)  # fmt: skip

#: Headers that both nvcc and the emulator have; what else a file includes served its host code.
_DEVICE_HEADERS = frozenset(
    ["cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h",
     "cooperative_groups/reduce.h", "cooperative_groups/scan.h",
     "cooperative_groups/memcpy_async.h", "cuda_pipeline.h", "math_constants.h", "stdint.h",
     "cstdint", "limits.h", "climits", "float.h", "cfloat", "math.h", "cmath", "limits",
     "type_traits", "utility", "concepts", "cub/cub.cuh", "cub/block/block_reduce.cuh",
     "cub/warp/warp_reduce.cuh"]
)  # fmt: skip


#: Those that nvcc includes by itself.
_IMPLIED = frozenset(
    ["cuda_runtime_api.h", "cuda_device_runtime_api.h", "device_launch_parameters.h",
     "device_functions.h", "device_atomic_functions.h", "sm_60_atomic_functions.h",
     "builtin_types.h", "driver_types.h", "vector_types.h", "vector_functions.h",
     "math_functions.h"]
)  # fmt: skip
#: What is in those that both have.
_NAMESPACES = frozenset(["cooperative_groups", "cuda", "cub", "nvcuda"])

#: Headers that others of CUDA bring along, by what people use of them.
_BROUGHT = {
    "cub": "cub/cub.cuh", "half": "cuda_fp16.h", "__half": "cuda_fp16.h", "half2": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h", "nv_bfloat16": "cuda_bf16.h", "__nv_bfloat162": "cuda_bf16.h",
}  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """A file as it was read: its pieces, and what its lines of `#include` stand for, by their
    places: another file, or the name of a header that is nowhere. It `hides` its kernels where
    its own conditions leave out all of them; `siblings` are headers beside it that it does not
    include, and that have what it calls; `likely` is what constants got that nothing defines. Both
    stand `ahead` of it."""

    path: Path
    data: bytes
    pieces: tuple[Piece, ...]
    included: Mapping[int, Unit | str] = field(default_factory=dict)
    hides: bool = False
    siblings: tuple[str, ...] = ()
    likely: Mapping[str, str] = field(default_factory=dict)
    ahead: Unit | None = None

    def all(self) -> Iterator[Piece]:
        """The pieces of this file and of those that it includes, in order."""
        if self.ahead:
            yield from self.ahead.all()
        for piece in self.pieces:
            found = self.included.get(piece.node.start_byte)
            if isinstance(found, Unit):
                yield from found.all()
            else:
                yield piece

    @property
    def missing(self) -> tuple[str, ...]:
        """Headers in quotes that are nowhere."""
        found = self.included.values()
        below = [name for unit in found if isinstance(unit, Unit) for name in unit.missing]
        return (*(name for name in found if isinstance(name, str)), *below)

    @property
    def names(self) -> Mapping[str, bool]:
        """What it gives names to; whether they are those of macros."""
        return {name: piece.kind.startswith("preproc_") for piece in self.all()
                for name in piece.defines}  # fmt: skip

    @cached_property
    def helpers(self) -> Helpers:
        """What its kernels combine with."""
        return helpers_in(self.all())

    @cached_property
    def formulas(self) -> Mapping[str, Macro]:
        """What its short functions and macros make of what they are given."""
        return formulas_in(self.all())

    def kernels(self) -> list[Function]:
        """Its `__global__` functions."""
        found = (piece for piece in self.all() if "__global__" in piece.words)
        return [piece.function for piece in found if piece.function is not None]


def read_unit(
    path: Path, source: str, folders: Sequence[Path] = (), seen: set[Path] | None = None,
    before: Defined | None = None, given: Mapping[str, str] | None = None,
) -> Unit:  # fmt: skip
    """A file with the headers beside it, or in one of these `folders`, each of them once; `before`
    is what the file has defined that includes it, `given` what the compiler is told."""
    whole, (source, defined) = source, live_lines(source, before, given)
    seen = set() if seen is None else seen
    macros = dict(_macros(path, source, folders, set()))
    data = without_bare_calls(expanded(source, macros)).encode(errors="replace")
    found = tuple(pieces(data))
    included: dict[int, Unit | str] = {}
    for piece in found:
        named = piece.node.child_by_field_name("path")
        if piece.kind != "preproc_include" or named is None:
            continue
        name, quoted = text(named).strip('"<>'), named.type == "string_literal"
        beside = _beside(path.parent, name, folders) if quoted or not _is_shared(name) else None
        if beside is None:
            if quoted and name not in _DEVICE_HEADERS | _IMPLIED:
                included[piece.node.start_byte] = name
        elif beside not in seen:
            seen.add(beside)
            with suppress(OSError):
                text_of = beside.read_text(errors="replace")
                included[piece.node.start_byte] = read_unit(beside, text_of, folders, seen, defined)
    hides = "__global__" in whole and "__global__" not in source
    return Unit(path, data, found, included, hides)


def _macros(
    path: Path, source: str, folders: Sequence[Path], seen: set[Path]
) -> Iterator[tuple[str, Macro]]:
    """The macros that stand for words of CUDA in a file and the headers beside it."""
    for line in source.splitlines():
        words = line.replace("#", "# ", 1).split()
        if words[:2] != ["#", "include"] or '"' not in line:
            continue
        beside = _beside(path.parent, line.split('"')[1], folders)
        if beside is not None and beside not in seen:
            seen.add(beside)
            with suppress(OSError):
                yield from _macros(beside, beside.read_text(errors="replace"), folders, seen)
    yield from macros_in(source).items()


def device_part(
    unit: Unit, kernel: str, named: Iterable[str] = (), without: Iterable[str] = ()
) -> str:
    """What of a file the kernel of this name reaches, with what is `named` where it is called, and
    `without` what declares other names alone."""
    found = list(unit.all())
    left_out = {id(piece) for piece in found if piece.defines and piece.defines <= {*without}}
    reached = _reached(found, kernel, frozenset(named)) - left_out
    own = _rendered(unit, reached)
    uses = {name for piece in found if id(piece) in reached for name in piece.uses}
    brought = [
        header for name, header in _BROUGHT.items()
        if name in uses and name not in unit.names and f"<{header.partition('.')[0]}" not in own
    ]  # fmt: skip
    included = "".join(f"#include <{header}>\n" for header in dict.fromkeys(brought))
    return f'{included}#line 1 "{unit.path}"\n{own}' if included else own


def names_reached(unit: Unit, kernel: str) -> frozenset[str]:
    """The names that stand in what of a file the kernel of this name reaches."""
    found = list(unit.all())
    reached = _reached(found, kernel)
    return frozenset(name for piece in found if id(piece) in reached for name in piece.uses)


def constants(unit: Unit, kernel: str, template: Sequence[str] = ()) -> tuple[int, ...]:
    """The whole numbers in what a kernel reaches, and of these template arguments, in order."""
    found = list(unit.all())
    reached = _reached(found, kernel)
    numbers = {number for piece in found if id(piece) in reached for number in piece.numbers}
    return tuple(sorted(numbers | {int(word) for word in template if word.isdecimal()}))


def _reached(found: list[Piece], kernel: str, named: frozenset[str] = frozenset()) -> set[int]:
    """The pieces that a kernel and its call reach by name, by their identities."""
    defined: dict[str, list[Piece]] = {}
    for piece in found:
        for name in piece.defines:
            defined.setdefault(name, []).append(piece)
    aliases = (piece for piece in found if piece.kind == "namespace_alias_definition")
    scopes = {name for piece in found for name in piece.scope.split("::")}
    scopes |= {name for piece in aliases for name in piece.defines}
    left = [
        piece for piece in found
        if _is_root(piece, kernel, scopes) or (piece.defines & named and _may_stay(piece))
    ]  # fmt: skip
    reached = {id(piece) for piece in left}
    while left:
        for name in left.pop().uses:
            for piece in defined.get(name, ()):
                if id(piece) not in reached and _may_stay(piece):
                    reached.add(id(piece))
                    left.append(piece)
    return reached


def _is_root(piece: Piece, kernel: str, scopes: Collection[str]) -> bool:
    """Whether a piece stays whatever names it: the kernel, and what acts without being named, as a
    namespace does, one of the file's own `scopes` or of what the device has."""
    if piece.kind == "using_declaration":
        whole = text(piece.inner.children[-2])
        there = whole == "std" or whole.partition("::")[0] in {*_NAMESPACES, *scopes}
        return "namespace" in piece.words and there
    if piece.function is None or not piece.words & _DEVICE:
        return False
    operator = any(name.startswith("operator") for name in piece.defines)
    return operator or piece.function.name == kernel


def _may_stay(piece: Piece) -> bool:
    """Whether a piece is for the device too: types and constants are for both."""
    if piece.kind == "template_instantiation":
        return False
    if piece.kind == "function_definition":
        return bool(piece.words & (_DEVICE | {"constexpr"}))
    plain = piece.kind == "declaration" and "(" not in piece.words
    return not plain or bool(piece.words & (_DEVICE | _CONSTANT))


def _rendered(unit: Unit, reached: set[int]) -> str:
    """The text of a file without what is not reached, and with what it includes."""
    parts, start = [], 0
    if unit.ahead:
        parts.append(f'{_rendered(unit.ahead, reached)}#line 1 "{unit.path}"\n')
    for piece in unit.pieces:
        node = piece.node
        if id(piece) in reached or piece.kind in _STAYS:
            continue
        own = unit.data[node.start_byte : node.end_byte].decode(errors="replace")
        parts.append(unit.data[start : node.start_byte].decode(errors="replace"))
        included = unit.included.get(node.start_byte)
        if isinstance(included, Unit):
            line = node.start_point[0] + 2
            parts.append(
                f'#line 1 "{included.path}"\n{_rendered(included, reached)}\n'
                f'#line {line} "{unit.path}"\n'
            )
        elif piece.kind == "preproc_include":
            parts.append(_header(node) + "\n" * own.count("\n"))
        else:
            parts.append(_only_directives(own))
        start = node.end_byte
    return "".join([*parts, unit.data[start:].decode(errors="replace")])


def _header(node: Node) -> str:
    """A line that includes a header which the device needs too, or none."""
    named = node.child_by_field_name("path")
    name = text(named).strip('"<>') if named else ""
    return f"#include <{name}>" if _is_shared(name) else ""


def _is_shared(name: str) -> bool:
    """Whether a header is one of the compiler's, for the device too."""
    return name in _DEVICE_HEADERS or name.startswith("cuda/")


def _only_directives(own: str) -> str:
    """A text without all but its line breaks and its macros, which others may name."""
    kept, more = [], False
    for line in own.split("\n"):
        more = more or bool(re.match(r"\s*#\s*(?:define|undef)\b", line))
        kept.append(line if more else "")
        more = more and line.endswith("\\")
    return "\n".join(kept)


def _beside(folder: Path, name: str, folders: Sequence[Path]) -> Path | None:
    """The header of this name that lies near a file or in one of these folders, if there is one."""
    with suppress(OSError, ValueError):  # a name that no file can have
        near = (one / name for one in (*(folder / other for other in _FOLDERS), *folders))
        return next((path.resolve() for path in near if path.is_file()), None)
    return None
