"""Extract the device code of an external file: its kernels and everything that they use, without
host code.

The file is preprocessed and parsed into top-level declarations. Those that a kernel reaches by name
are kept. `#line` directives keep the author's line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from tree_sitter import Node

from cudareduce.cuda_source import list_items, parse_cuda, text, walk, without_comments
from cudareduce.external.preprocess import Preprocessed, preprocess

#: What makes a function or a variable one of the device; a constant may be of both.
_DEVICE = frozenset(["__device__", "__global__"])
_CONSTANT = frozenset(["__constant__", "__shared__", "__managed__", "const", "constexpr"])
#: Nodes that hold pieces.
_SCOPES = frozenset(["translation_unit", "namespace_definition", "declaration_list", "preproc_if",
                     "preproc_ifdef", "preproc_else", "preproc_elif", "ERROR"])  # fmt: skip
_NAMES = frozenset(["identifier", "type_identifier", "namespace_identifier", "field_identifier"])
#: Longer scopes are not extended, since names would grow with the square of their depth.
_LONGEST_SCOPE = 500
_WRAPS = frozenset(["template_declaration", "linkage_specification"])
_CLASSES = frozenset(["struct_specifier", "class_specifier", "union_specifier", "enum_specifier"])
#: Declarators whose inner one has no field name.
_UNNAMED = frozenset(["reference_declarator", "parenthesized_declarator", "variadic_declarator"])
#: Tokens that may be all that is left of a call of an unknown macro.
_SIGNS = frozenset(["(", ")", ",", "{", "}"])
#: Attributes of launches, which the emulator does not know.
_ATTRIBUTES = re.compile(rb"\b__(?:cluster_dims|block_size|maxnreg)__\s*\([^()]*\)")
#: A macro of an unknown header, called outside of functions without a semicolon.
_BARE_CALL = re.compile(rb"^[A-Z][A-Z0-9_]{2,}\s*\([^;{}]*?\)[ \t]*$(?!\s*[{;])", re.MULTILINE)
#: Namespaces of the headers that device code has.
_NAMESPACES = frozenset(["cooperative_groups", "cuda", "cub", "nvcuda"])
#: Headers that nvcc brings along.
_HEADERS = "#include <cfloat>\n#include <climits>\n#include <cmath>\n#include <cstdint>\n"
#: Headers that other headers of CUDA bring along, by what is used of them.
_BROUGHT = {
    "cub": "cub/cub.cuh", "half": "cuda_fp16.h", "__half": "cuda_fp16.h", "half2": "cuda_fp16.h",
    "__nv_bfloat16": "cuda_bf16.h", "nv_bfloat16": "cuda_bf16.h", "__nv_bfloat162": "cuda_bf16.h",
}  # fmt: skip
#: Warp functions before CUDA 9, which no compiler has any more.
_OLD_WARP = re.compile(r"\b(__(?:shfl(?:_up|_down|_xor)?|any|all|ballot))\s*\(")
#: Blank lines that are kept in place of a #line directive.
_FEW_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A kernel: qualified name, template parameters, parameters, body, and threads per block
    from its launch bounds."""

    name: str
    template: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str
    most_threads: int | None = None

    @property
    def template_names(self) -> list[str]:
        """The names of its template parameters."""
        before = (parameter.split("=")[0].split() for parameter in self.template)
        return [words[-1] if words else "" for words in before]


@dataclass(frozen=True)
class Piece:
    """One top-level declaration, definition or directive in namespace `scope` (`one::two::`)."""

    node: Node
    scope: str

    @cached_property
    def inner(self) -> Node:
        """The declaration inside a template or `extern "C"` block."""
        node = self.node
        while node.type in _WRAPS:
            node = node.named_children[-1]
        return node

    @property
    def kind(self) -> str:
        """The node type of the parser."""
        return self.inner.type

    @cached_property
    def words(self) -> frozenset[str]:
        """The tokens in front of its body, such as `__device__`."""
        body = self.inner.child_by_field_name("body")
        end = body.start_byte if body else self.node.end_byte
        before = takewhile(lambda node: node.start_byte < end, walk(self.node))
        return frozenset(text(node) for node in before if not node.child_count)

    @cached_property
    def defines(self) -> frozenset[str]:
        """The names that it declares."""
        node = self.inner
        named = node.child_by_field_name("name")
        if node.type == "concept_definition":
            named = next((n for n in node.named_children if n.type == "identifier"), None)
        # A specialisation, too, declares the plain name.
        found = {text(named).partition("<")[0].strip()} if named else set()
        if node.type == "using_declaration":
            found = {text(node.children[-2]).rpartition("::")[2]}
        if node.type == "enum_specifier":
            values = (n.child_by_field_name("name") for n in walk(node) if n.type == "enumerator")
            found |= {text(name) for name in values if name}
        found |= {declared_name(d) for d in node.children_by_field_name("declarator")}
        kind = node.child_by_field_name("type")
        if kind and kind.type in _CLASSES and (tag := kind.child_by_field_name("name")):
            found |= {text(tag)}
        return frozenset(found)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names that it uses."""
        return frozenset(text(node) for node in walk(self.node) if node.type in _NAMES)

    @cached_property
    def function(self) -> Function | None:
        """The function that it defines, or None."""
        body, declarator = map(self.inner.child_by_field_name, ("body", "declarator"))
        if self.kind != "function_definition" or body is None or declarator is None:
            return None
        listed = next((n for n in walk(declarator) if n.type == "parameter_list"), None)
        template = next(
            (n for n in self.node.children if n.type == "template_parameter_list"), None
        )
        bounds = next((n for n in self.inner.children if n.type == "launch_bounds"), None)
        threads = text(bounds.named_children[0]) if bounds and bounds.named_children else ""
        return Function(
            name=self.scope + declared_name(declarator), template=_members(template),
            parameters=_members(listed), body=text(body),
            most_threads=int(threads) if threads.isdecimal() else None,
        )  # fmt: skip

    @property
    def is_of_device(self) -> bool:
        """True if device code may need it. Types and constants belong to both sides."""
        if self.kind == "template_instantiation":
            return False
        if self.kind == "function_definition":
            return bool(self.words & (_DEVICE | {"constexpr"}))
        plain = self.kind == "declaration" and "(" not in self.words
        return not plain or bool(self.words & (_DEVICE | _CONSTANT))


@dataclass(frozen=True)
class DeviceFile:
    """A preprocessed file as a list of declarations."""

    path: Path
    source: Preprocessed
    data: bytes
    pieces: tuple[Piece, ...]

    def kernels(self) -> list[Function]:
        """Its `__global__` functions."""
        found = (piece for piece in self.pieces if "__global__" in piece.words)
        return [piece.function for piece in found if piece.function is not None]

    def variables(self) -> list[str]:
        """Its `__device__` variables."""
        return [
            piece.scope + name for piece in self.pieces
            if piece.kind == "declaration" and "__device__" in piece.words
            for name in sorted(piece.defines)
        ]  # fmt: skip

    def code(self, kernels: Collection[str], named: Collection[str] = ()) -> str:
        """The code that these kernels and the declarations in `named` need."""
        reached = self._reached(kernels, frozenset(named))
        kept = bytearray(self.data)
        for piece in self.pieces:
            node = piece.node
            if id(piece) not in reached and not node.type.startswith("preproc_"):
                own = bytes(kept[node.start_byte : node.end_byte])
                kept[node.start_byte : node.end_byte] = re.sub(rb"[^\n]", b" ", own)
        body = self._with_lines(bytes(kept).decode(errors="replace").split("\n"))
        uses = {name for piece in self.pieces if id(piece) in reached for name in piece.uses}
        own_names = {name for piece in self.pieces for name in piece.defines}
        brought = [
            header for name, header in _BROUGHT.items()
            if name in uses - own_names and f"<{header.partition('.')[0]}" not in body
        ]  # fmt: skip
        included = "".join(f"#include <{header}>\n" for header in dict.fromkeys(brought))
        old = "".join(
            f"#define {name}(...) {name}_sync(~0u, __VA_ARGS__)\n"
            for name in sorted(set(_OLD_WARP.findall(body)) - own_names)
        )
        return f"{_HEADERS}{included}{old}{body}"

    def _reached(self, kernels: Collection[str], named: frozenset[str]) -> set[int]:
        """The declarations that kernels and names reach by name."""
        defined: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            for name in piece.defines:
                defined.setdefault(name, []).append(piece)
        aliases = (p for p in self.pieces if p.kind == "namespace_alias_definition")
        scopes = {name for piece in self.pieces for name in piece.scope.split("::")}
        scopes |= {name for piece in aliases for name in piece.defines} | _NAMESPACES
        left = [
            piece for piece in self.pieces
            if _is_root(piece, kernels, scopes) or (piece.defines & named and piece.is_of_device)
        ]  # fmt: skip
        reached = {id(piece) for piece in left}
        while left:
            for name in left.pop().uses:
                for piece in defined.get(name, ()):
                    if id(piece) not in reached and piece.is_of_device:
                        reached.add(id(piece))
                        left.append(piece)
        return reached

    def _with_lines(self, lines: Sequence[str]) -> str:
        """The lines that are not blank, with `#line` directives to the author's lines."""
        parts: list[str] = []
        place: tuple[str, int] | None = None
        for row, line in enumerate(lines):
            if not line.strip():
                continue
            file, number = self.source.place(row)
            skipped = number - place[1] if place is not None and place[0] == file else -1
            if 0 <= skipped <= _FEW_LINES:
                parts += [""] * skipped
            else:
                parts.append(f'#line {number} "{file}"')
            parts.append(line)
            place = file, number + 1
        return "\n".join([*parts, ""])


def read_device_file(
    path: Path, source: str, include: Sequence[Path], define: Sequence[str]
) -> DeviceFile:
    """The device code of a file. `define` are macros as NAME=VALUE. Raises UsageError if it
    cannot be preprocessed."""
    with TemporaryDirectory(prefix="cudareduce-device-") as folder:
        found = preprocess(
            path, source.encode(errors="replace"), include, define, Path(folder), device=True
        )
    data = _ATTRIBUTES.sub(lambda m: b" " * len(m[0]), found.text)
    data = _BARE_CALL.sub(lambda m: re.sub(rb"[^\n]", b" ", m[0]), data)
    return DeviceFile(path, found, data, tuple(_pieces(data)))


def _is_root(piece: Piece, kernels: Collection[str], scopes: Collection[str]) -> bool:
    """True for kernels, and for declarations that have an effect without being named: using
    directives and operators."""
    if piece.kind == "using_declaration":
        whole = text(piece.inner.children[-2])
        known = whole == "std" or whole.partition("::")[0] in scopes
        return "namespace" in piece.words and known
    if piece.function is None or not piece.words & _DEVICE:
        return False
    is_operator = any(name.startswith("operator") for name in piece.defines)
    return is_operator or piece.function.name.rpartition("::")[2] in kernels


def _pieces(data: bytes) -> Iterator[Piece]:
    """The declarations of a file in order. Text that the parser does not understand is kept as
    one."""
    left = [(parse_cuda(data), "")]
    while left:
        node, scope = left.pop()
        if _held(node).type in _SCOPES:
            left += reversed(list(_in_scope(_held(node), scope)))
        elif node.type != "comment":
            yield Piece(node, scope)


def _held(node: Node) -> Node:
    """The body of an `extern "C"` block; any other node unchanged."""
    listed = node.children[-1] if node.type == "linkage_specification" else None
    return listed if listed is not None and listed.type == "declaration_list" else node


def _in_scope(node: Node, scope: str) -> Iterator[tuple[Node, str]]:
    """The child nodes with the scope that they are in; only their tokens where the parser does
    not understand them."""
    name, condition = map(node.child_by_field_name, ("name", "condition"))
    if name and node.type == "namespace_definition" and len(scope) < _LONGEST_SCOPE:
        scope += f"{text(name)}::"
    signs = _SIGNS if node.type == "ERROR" else ()
    return (
        (child, scope) for child in node.children
        if child not in (name, condition) and (child.is_named or child.type in signs)
    )  # fmt: skip


def _members(listed: Node | None) -> tuple[str, ...]:
    """The texts between the commas of a list, with single spaces."""
    words = [" ".join(without_comments(m).replace("*", " * ").split()) for m in list_items(listed)]
    return tuple(word for word in words if word != "void")


def declared_name(node: Node) -> str:
    """The name in a declarator, without pointers, brackets and initialisers."""
    inner = node.child_by_field_name("declarator")
    if inner is None and node.type in _UNNAMED:
        inner = node.named_children[-1]
    if node.type in ("template_function", "qualified_identifier"):
        inner = node.child_by_field_name("name")
    return text(node).rpartition("::")[2] if inner is None else declared_name(inner)
