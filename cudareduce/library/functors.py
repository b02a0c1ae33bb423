"""Structs and enumerations that say by what a kernel of others combines, where it leaves that to an
argument."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.library.syntax import Piece

_CLASSES = frozenset(["struct_specifier", "class_specifier"])
_SUMS = re.compile(r"sum|add|plus", re.IGNORECASE)

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Helpers:
    """What of a file a kernel combines with: the type of its `functor`, all of those that it has by
    their names, the values of its enumerations that stand for them (`enums`), its functions that
    are `atomic`, by name, and the words that stand in its `macros`."""

    functor: str = ""
    functors: Mapping[str, str] = field(default_factory=dict)
    enums: Mapping[str, str] = field(default_factory=dict)
    atomic: frozenset[str] = frozenset()
    macros: frozenset[str] = frozenset()


def helpers_in(pieces: Iterable[Piece]) -> Helpers:
    """What a file has of these."""
    found = list(pieces)
    functors = functors_in(found)
    return Helpers(
        functor_of(functors), functors, enumerators_in(found), _atomic_in(found), _macros_in(found)
    )


def _macros_in(pieces: Iterable[Piece]) -> frozenset[str]:
    """The words that macros with parameters stand for: a kernel may have them without a trace."""
    macros = (piece for piece in pieces if piece.kind == "preproc_function_def")
    return frozenset(word for piece in macros for word in _WORD.findall(text(piece.node)))


def _atomic_in(pieces: Iterable[Piece]) -> frozenset[str]:
    """Functions of the device that change by an atomic what they are given a pointer to."""
    functions = (piece for piece in pieces if piece.function and "__device__" in piece.words)
    return frozenset(
        name for piece in functions for name in piece.defines
        if any(one.startswith("atomic") for one in piece.uses)
    )  # fmt: skip


def functors_in(pieces: Iterable[Piece]) -> dict[str, str]:
    """What a file has that acts as an operator, by name, with the element's type where it is a
    template."""
    return {name: own for piece in pieces if (own := _acting(piece)) for name in piece.defines}


def functor_of(found: Mapping[str, str]) -> str:
    """The one that is taken where no launch says: of several that which adds; empty if nobody can
    tell which."""
    sums = [own for name, own in found.items() if _SUMS.search(name)]
    several = sums or list(found.values())
    return several[0] if sums or len(several) == 1 else ""


def enumerators_in(pieces: Iterable[Piece]) -> dict[str, str]:
    """The one of each enumeration that a kernel is given, by the names of the enumerations: of
    several that which adds, else the first."""
    found = {}
    for piece in pieces:
        for node in every(piece.node):
            if node.type != "enum_specifier":
                continue
            name, body = _name_of(node), node.child_by_field_name("body")
            listed = body.named_children if body else ()
            names = [text(one.named_children[0]) for one in listed if one.type == "enumerator"]
            if name and names:
                chosen = next((one for one in names if _SUMS.search(one)), names[0])
                of = f"{name}::" if any(child.type == "class" for child in node.children) else ""
                found[name] = f"{piece.scope}{of}{chosen}"
    return found


def _name_of(enumeration: Node) -> str:
    """What an enumeration is called, be it by itself or by the typedef around it."""
    name, around = enumeration.child_by_field_name("name"), enumeration.parent
    if name is None and around is not None and around.type == "type_definition":
        name = around.child_by_field_name("declarator")
    return text(name) if name else ""


def _acting(piece: Piece) -> str:
    """A struct that has functions of the device and holds nothing, as it is named; empty if a piece
    is no such struct."""
    body, name = map(piece.inner.child_by_field_name, ("body", "name"))
    if piece.kind not in _CLASSES or body is None or name is None:
        return ""
    acts = any(text(node) == "__device__" for node in every(body))
    holds = any(
        child.type == "field_declaration"
        and not any(node.type == "function_declarator" for node in every(child))
        for child in body.named_children
    )
    listed = next((n for n in piece.node.children if n.type == "template_parameter_list"), None)
    if not acts or holds or (listed and len(listed.named_children) != 1):
        return ""
    return f"{piece.scope}{text(name)}{'<In>' if listed else ''}"
