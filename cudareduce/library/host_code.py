"""The host's part of a file: its constants, and where it launches which kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tree_sitter import Node

from cudareduce.cuda_source import every, members, text
from cudareduce.library.constants import Reading, Unknown
from cudareduce.library.elements import bytes_of
from cudareduce.library.scopes import Constants, Scope, constants, mentions
from cudareduce.library.syntax import Function, Piece, declared_name
from cudareduce.library.wrapped import Given, Wrapper, given_to, wrapper_of

#: Launches that are looked at, of a file and of one kernel.
_MOST, _MOST_LAUNCHES = 1000, 64
#: Calls that launch a kernel by its address.
_CALLS = frozenset([b"cudaLaunchKernel", b"cudaLaunchCooperativeKernel"])
_WORDS = (b"<<<", *_CALLS)
#: The kernel that is launched, its configuration, its arguments.
_Parts = tuple[Node, Sequence[Node], Sequence[Node]]


@dataclass(frozen=True, slots=True)
class HostCall:
    """One launch in the text of a file: where it is, the words in its `<<< >>>`, its arguments, its
    template arguments, and these as they are `given`, without spaces. `function` tells in which
    function it is, None outside of all; a kernel by a pointer has no `name`."""

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
    kernels = {
        piece.function.name.rpartition("::")[2]
        for piece in kept if piece.function and "__global__" in piece.words
    }  # fmt: skip
    calls: list[HostCall] = []
    wrappers: dict[str, Wrapper] = {}
    held: dict[int, frozenset[str]] = {}
    for call, around in islice(_launches(kept, defined), _MOST):
        if call.name in kernels:
            calls.append(call)
            continue
        wraps = wrapper_of(around, call.name, call.configuration, call.arguments)
        wrappers |= [wraps] if wraps else []
        held[around.id] = held.get(around.id) or _held(around)
        if not call.name.isidentifier() or call.name in held[around.id]:
            calls.append(replace(call, name=""))  # else it is a kernel of another file
    for piece in kept if wrappers else ():
        given = list(islice(given_to(wrappers, piece), _MOST))
        named_there = mentions(piece) if given else {}
        calls += [_call_of(one, Scope(defined, named_there, one.place)) for one in given]
    return HostCode(defined, tuple(calls))


def number_at(scope: Scope, node: Node) -> int | None:
    """The whole number that an expression of the host's part is; None if it does not say."""
    try:
        return Reading(scope, {}, lambda name: bytes_of(name, ())).whole(node)
    except Unknown:
        return None


def launched_with(calls: Iterable[HostCall], place: int) -> set[int | None]:
    """What stands at a place in the brackets of launches: None where that is no number."""
    return {number_at(call.scope, call.configuration[place]) for call in calls}


def _held(around: Node) -> frozenset[str]:
    """The names that stand in a text for something that is not only launched, as variables do."""
    return frozenset(
        text(node) for node in every(around)
        if node.type == "identifier" and node.parent and _in_brackets(node.parent) is None
    )  # fmt: skip


def _call_of(given: Given, scope: Scope) -> HostCall:
    """The launch of a kernel that a function is given."""
    around, function = given.place.parent, None
    while around is not None and function is None:
        function = around.start_byte if around.type == "function_definition" else None
        around = around.parent
    return _call(scope, function, _addressed(given.kernel), given.configuration, given.arguments)


def _launches(found: Iterable[Piece], file: Constants) -> Iterator[tuple[HostCall, Node]]:
    """The launches in the pieces of a file, in order, each with what it is in."""
    for piece in found:
        if not any(word in (piece.node.text or b"") for word in _WORDS):
            continue
        named_here, around, lists = mentions(piece), [piece.node], _lists(piece)
        for node in every(piece.node):
            while len(around) > 1 and around[-1].end_byte <= node.start_byte:
                around.pop()
            if node.type == "function_definition":
                around.append(node)
            elif node.type == "call_expression":
                parts = _in_brackets(node) or _by_address(node, lists)
                if parts is not None:
                    function = around[-1].start_byte if len(around) > 1 else None
                    yield _call(Scope(file, named_here, node), function, *parts), around[-1]


def _call(
    scope: Scope, function: int | None, named: Node, launch: Sequence[Node], listed: Sequence[Node]
) -> HostCall:
    """The launch of the kernel that is `named`, maybe by a variable that stands for it, in words
    that are those of brackets."""
    value = scope.value(text(named)) if named.type == "identifier" else None
    named = _addressed(value) if value is not None else named
    while (inner := named.child_by_field_name("name")) and named.type == "qualified_identifier":
        named = inner
    given, name = map(named.child_by_field_name, ("arguments", "name"))
    return HostCall(
        scope, function, scope.place.start_point[0] + 1, text(name or named), tuple(launch),
        tuple(listed), members(given), "".join(text(given).split()) if given else "",
    )  # fmt: skip


def _in_brackets(node: Node) -> _Parts | None:
    """Which kernel `kernel<<<...>>>(...)` launches, how, and with what; None of another call."""
    launch = next((n for n in node.children if n.type == "kernel_call_syntax"), None)
    named, listed = map(node.child_by_field_name, ("function", "arguments"))
    if named is None or launch is None or len(members(launch)) < 2:
        return None
    return named, members(launch), members(listed)


def _by_address(node: Node, lists: Mapping[str, Sequence[Node]]) -> _Parts | None:
    """The same of `cudaLaunchCooperativeKernel(kernel, grid, block, arguments, bytes)`, where its
    arguments are an array of addresses, which is the last of `lists` of its name before that."""
    named, listed = map(node.child_by_field_name, ("function", "arguments"))
    words = members(listed)
    if named is None or named.text not in _CALLS or len(words) < 4:
        return None
    before = [one for one in lists.get(text(words[3]), ()) if one.end_byte < node.start_byte]
    if not before:
        return None
    return _addressed(words[0]), (*words[1:3], *words[4:5]), [*map(_addressed, members(before[-1]))]


def _lists(piece: Piece) -> Mapping[str, Sequence[Node]]:
    """The lists in braces that arrays of a piece are set to, in order, by their names."""
    found: dict[str, list[Node]] = {}
    if any(word in (piece.node.text or b"") for word in _CALLS):
        for node in every(piece.node):
            value = node.child_by_field_name("value")
            if node.type == "init_declarator" and value and value.type == "initializer_list":
                found.setdefault(declared_name(node), []).append(value)
    return found


def _addressed(node: Node) -> Node:
    """What an expression is the address of, whatever it is cast to."""
    while inner := node.child_by_field_name("value") or node.child_by_field_name("argument"):
        node = inner
    return node


def of_kernel(host: HostCode, function: Function, given: str) -> list[HostCall]:
    """The launches of a kernel, with the template arguments that are `given`, if any are; else
    those by pointers, one of which it may be behind."""
    own = function.name.rpartition("::")[2]
    wanted = "".join(given.split())
    like = [call for call in host.calls if len(call.arguments) == len(function.parameters)]
    named = [call for call in like if call.name == own]
    found = [call for call in named if wanted in ("", call.given)]
    return (found if named else [call for call in like if not call.name])[:_MOST_LAUNCHES]
