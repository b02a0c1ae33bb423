"""The host's part of a file: its constants, and where it launches which kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tree_sitter import Node

from cudareduce.library.constants import Reading, Unknown
from cudareduce.library.elements import bytes_of
from cudareduce.library.scopes import Constants, Scope, constants
from cudareduce.library.syntax import Function, Piece, every, text

#: Launches that are looked at, of a file and of one kernel.
_MOST, _MOST_LAUNCHES = 1000, 64


@dataclass(frozen=True, slots=True)
class HostCall:
    """One launch in the text of a file: where it is, the words in its `<<< >>>`, its arguments, its
    template arguments, and these as they are `given`, without spaces."""

    scope: Scope
    line: int
    name: str
    configuration: tuple[Node, ...]
    arguments: tuple[Node, ...]
    template: tuple[Node, ...]
    given: str


@dataclass(frozen=True, slots=True)
class HostCode:
    """What a file defines for all of it, and its launches in order."""

    constants: Constants
    calls: tuple[HostCall, ...]


def host_code(found: Iterable[Piece]) -> HostCode:
    """The host's part of what these pieces hold."""
    kept = tuple(found)
    defined = constants(kept)
    return HostCode(defined, tuple(islice(_launches(kept, defined), _MOST)))


def number_at(scope: Scope, node: Node) -> int | None:
    """The whole number that an expression of the host's part is; None if it does not say."""
    try:
        return Reading(scope, {}, bytes_of).whole(node)
    except Unknown:
        return None


def _launches(found: Iterable[Piece], file: Constants) -> Iterator[HostCall]:
    """The launches in the pieces of a file, in order."""
    for piece in found:
        if b"<<<" not in (piece.node.text or b""):
            continue
        for node in every(piece.node):
            if node.type != "kernel_call_syntax" or node.parent is None:
                continue
            named, listed = map(node.parent.child_by_field_name, ("function", "arguments"))
            while named is not None and named.type == "qualified_identifier":
                named = named.child_by_field_name("name")
            if named is None or listed is None or len(_words(node)) < 2:
                continue
            given = named.child_by_field_name("arguments")
            name = named.child_by_field_name("name") or named
            yield HostCall(
                Scope(file, piece, node), node.start_point[0] + 1, text(name),
                _words(node), _words(listed), _words(given),
                "".join(text(given).split()) if given else "",
            )  # fmt: skip


def _words(node: Node | None) -> tuple[Node, ...]:
    return tuple(n for n in node.named_children if n.type != "comment") if node else ()


def of_kernel(host: HostCode, function: Function, given: str) -> list[HostCall]:
    """The launches of a kernel, with the template arguments that are `given`, if any are."""
    own = function.name.rpartition("::")[2]
    wanted = "".join(given.split())
    return [
        call for call in host.calls
        if call.name == own and len(call.arguments) == len(function.parameters)
        and wanted in ("", call.given)
    ][:_MOST_LAUNCHES]  # fmt: skip
