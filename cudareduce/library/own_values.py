"""What a file's own launches of a kernel give its parameters and its template parameters, as far
as all of them agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tree_sitter import Node

from cudareduce.library.elements import known_element
from cudareduce.library.functors import Helpers
from cudareduce.library.host_code import HostCall, number_at
from cudareduce.library.parameters import read_parameter
from cudareduce.library.syntax import Function
from cudareduce.problem.parsing import text

_NAME = re.compile(r"[A-Za-z_]\w*")


def own_template(calls: Sequence[HostCall], function: Function) -> dict[str, int]:
    """The values that all launches of a kernel give its template parameters, by their names."""
    return _agreeing(
        calls, [zip(function.template_names, call.template, strict=False) for call in calls]
    )


def own_numbers(calls: Sequence[HostCall], function: Function) -> dict[str, int]:
    """The numbers that all launches of a kernel give its parameters and its template parameters."""
    names = [read_parameter(words).name for words in function.parameters]
    own = _agreeing(calls, [zip(names, call.arguments, strict=False) for call in calls])
    return own | own_template(calls, function)


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


def own_element(calls: Sequence[HostCall], function: Function, name: str) -> str | None:
    """The type that all launches give the template parameter of this name; None if that is none of
    ours, or no such parameter."""
    if name not in function.template_names:
        return None
    place = function.template_names.index(name)
    found = {
        known_element(text(call.template[place])) if len(call.template) > place else None
        for call in calls
    }  # fmt: skip
    return found.pop() if len(found) == 1 else None
