"""The host's part of a file: its constants, and where it launches which kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from tree_sitter import Node

from cudareduce.library.constants import Reading, Unknown
from cudareduce.library.elements import bytes_of
from cudareduce.library.scopes import Constants, Scope, constants, mentions
from cudareduce.library.syntax import Function, Piece
from cudareduce.problem.parsing import every, text

#: Launches that are looked at, of a file and of one kernel.
_MOST, _MOST_LAUNCHES = 1000, 64


@dataclass(frozen=True, slots=True)
class HostCall:
    """One launch in the text of a file: where it is, the words in its `<<< >>>`, its arguments, its
    template arguments, and these as they are `given`, without spaces. `function` tells in which
    function it is, None outside of all."""

    scope: Scope
    function: int | None
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
        return Reading(scope, {}, lambda name: bytes_of(name, ())).whole(node)
    except Unknown:
        return None


def launched_with(calls: Iterable[HostCall], place: int) -> set[int | None]:
    """What stands at a place in the brackets of launches: None where that is no number."""
    return {number_at(call.scope, call.configuration[place]) for call in calls}


def _launches(found: Iterable[Piece], file: Constants) -> Iterator[HostCall]:
    """The launches in the pieces of a file, in order."""
    for piece in found:
        if b"<<<" not in (piece.node.text or b""):
            continue
        named_here, around = mentions(piece), [piece.node]
        for node in every(piece.node):
            while len(around) > 1 and around[-1].end_byte <= node.start_byte:
                around.pop()
            if node.type == "function_definition":
                around.append(node)
            elif node.type == "call_expression":
                launch = next((n for n in node.children if n.type == "kernel_call_syntax"), None)
                function = around[-1].start_byte if len(around) > 1 else None
                call = _call(Scope(file, named_here, node), function, node, launch)
                if call is not None:
                    yield call


def _call(scope: Scope, function: int | None, node: Node, launch: Node | None) -> HostCall | None:
    """A call as a launch, if it is one."""
    named, listed = map(node.child_by_field_name, ("function", "arguments"))
    while named is not None and named.type == "qualified_identifier":
        named = named.child_by_field_name("name")
    if named is None or listed is None or launch is None or len(_words(launch)) < 2:
        return None
    given, name = map(named.child_by_field_name, ("arguments", "name"))
    return HostCall(
        scope, function, launch.start_point[0] + 1, text(name or named),
        _words(launch), _words(listed), _words(given),
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
