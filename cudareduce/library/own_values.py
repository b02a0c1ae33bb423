"""What a file's own launches of a kernel give its parameters and its template parameters, as far
as all of them agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.elements import known_element
from cudareduce.library.functors import Helpers
from cudareduce.library.host_code import HostCall, launched_with, number_at
from cudareduce.library.parameters import read_parameter
from cudareduce.library.syntax import Function, Piece

_BLOCK = "blockDim.x"
_DEFAULTS = {"true": "1", "false": "0"}
_NAME = re.compile(r"[A-Za-z_]\w*")


def own_template(calls: Sequence[HostCall], function: Function) -> dict[str, int]:
    """The values that all launches of a kernel give its template parameters, by their names, or
    that these have where nobody gives any."""
    given = [dict(zip(function.template_names, call.template, strict=False)) for call in calls]
    defaults = {
        name: _DEFAULTS.get(value, value)
        for parameter, name in zip(function.template, function.template_names, strict=True)
        if (value := parameter.partition("=")[2].strip()) and not any(name in one for one in given)
    }
    numbers = {name: int(value) for name, value in defaults.items() if value.isdigit()}
    return numbers | _agreeing(calls, [one.items() for one in given])


def own_numbers(calls: Sequence[HostCall], function: Function) -> dict[str, int]:
    """The numbers that all launches of a kernel give its parameters and its template parameters,
    and `blockDim.x`."""
    names = [read_parameter(words).name for words in function.parameters]
    own = _agreeing(calls, [zip(names, call.arguments, strict=False) for call in calls])
    (threads, *others) = launched_with(calls, 1) or {None}
    block = {_BLOCK: threads} if threads and not others else {}
    return own | block | own_template(calls, function)


def _agreeing(
    calls: Sequence[HostCall], given: Sequence[Iterable[tuple[str, Node]]]
) -> dict[str, int]:
    """What of that which calls give by name is a number, and the same in all of them."""
    found = [
        {name: v for name, node in some if (v := number_at(call.scope, node)) is not None}
        for call, some in zip(calls, given, strict=True)
    ]  # fmt: skip
    return {
        name: value for name, value in (found[0] if found else {}).items()
        if all(other.get(name) == value for other in found)
    }  # fmt: skip


def with_functor(helpers: Helpers, calls: Sequence[HostCall]) -> Helpers:
    """What a kernel combines with, by the one of a file's operators that all launches name, as a
    template argument or in what they pass, if there is one."""
    named = [
        helpers.functors.keys() & {name for node in (*call.template, *call.arguments)
                           for name in _NAME.findall(text(node))}
        for call in calls
    ]  # fmt: skip
    agreed = set.intersection(*named) if named else set()
    one = helpers.functors[agreed.pop()] if len(agreed) == 1 else helpers.functor
    return replace(helpers, functor=one)


def own_element(
    calls: Sequence[HostCall], function: Function, name: str, pieces: Iterable[Piece]
) -> str | None:  # fmt: skip
    """The type that all launches give the template parameter of this name, or else all the file's
    explicit instantiations; None if that is none of ours, or no such parameter."""
    if name not in function.template_names:
        return None
    place = function.template_names.index(name)
    given = [[text(one) for one in call.template] for call in calls]
    given = given if any(given) else list(_instances(pieces, function))
    found = {known_element(some[place]) if len(some) > place else None for some in given}
    return found.pop() if len(found) == 1 else None


def _instances(pieces: Iterable[Piece], function: Function) -> Iterator[list[str]]:
    """The template arguments of each explicit instantiation of a kernel."""
    for node in (piece.node for piece in pieces):
        named = node.child_by_field_name("declarator")
        name = named.child_by_field_name("declarator") if named is not None else None
        if node.type == "template_instantiation" and name is not None:
            called, _, arguments = text(name).partition("<")
            if f"::{called.strip()}".endswith(f"::{function.name.rpartition('::')[2]}"):
                yield [one.strip() for one in arguments.rstrip(" >").split(",")]
