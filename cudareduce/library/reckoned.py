"""What the host reckons for a kernel's parameters from the number of its elements, as its launches
say: halves, rounds, shares of a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.constants import Reading, Unknown
from cudareduce.library.elements import bytes_of
from cudareduce.library.host_code import HostCall, launched_with
from cudareduce.library.own_launch import aliases
from cudareduce.library.parameters import read_parameter
from cudareduce.library.scopes import Scope
from cudareduce.library.syntax import Function
from cudareduce.library.values import is_whole, of_launch

#: How the number of elements is written in what is reckoned: wide, and with a sign, as a host's is.
COUNT = "(long long)n"
_SIGNS = frozenset(["+", "-", "*", "/", "%", ">>", "<<"])
_THROUGH = frozenset(["parenthesized_expression", "argument_list", "initializer_list"])
#: Where in its brackets a launch has what parameters are called after.
_SHAPE = {"gridDim.x": 0, "BLOCK": 1}
#: A value is of values, and so on; no text that a person has written goes on for longer.
_DEEPEST = 12
#: What is reckoned is less than so many elements, or it is no share of them.
_MANY = 2**20


def reckoned(calls: Sequence[HostCall], function: Function) -> dict[str, str]:
    """What all launches of a kernel give parameters of whole numbers, if one of them counts
    elements and others are reckoned from it: in C++ in `n`, by their names; else nothing."""
    parameters = [read_parameter(words) for words in function.parameters]
    whole = {
        place: p.name for place, p in enumerate(parameters) if is_whole(p) and not of_launch(p)
    }
    found = [_of_call(call, whole) for call in calls]
    return found[0] if found and all(other == found[0] for other in found) else {}


def unlike_launch(
    calls: Sequence[HostCall], function: Function, numbers: Mapping[str, int]
) -> dict[str, str]:
    """Of the `numbers` that all launches give, those that are called after what a launch is made
    of, and are none of it: the threads of a part of a block, their logarithm. Where nothing else
    counts elements, they do."""
    found, parameters = {}, [read_parameter(words) for words in function.parameters]
    if not any(is_whole(p) and not of_launch(p) for p in parameters):
        return {}
    for p in parameters:
        place = _SHAPE.get(of_launch(p))
        if place is None or not is_whole(p) or p.name not in numbers:
            continue
        if launched_with(calls, place).isdisjoint([None, numbers[p.name]]):
            found[p.name] = str(numbers[p.name])
    return found


def _of_call(call: HostCall, whole: Mapping[int, str]) -> dict[str, str]:
    for base, name in whole.items():
        counted = aliases(call.scope, call.arguments[base])
        shares = {
            other: _share(call, place, counted) for place, other in whole.items() if place != base
        }
        shares = {other: share for other, share in shares.items() if share}
        if counted and shares:
            return {name: "n", **shares}
    return {}


def _share(call: HostCall, place: int, counted: Sequence[str]) -> str:
    """A share of what these names count; empty if the argument there is none."""
    spelling = _Spelling(call.scope, frozenset(counted))
    try:
        value, counts = spelling.read(call.arguments[place])
        return spelling.of(call.arguments[place], 0) if counts and 0 <= value < _MANY else ""
    except Unknown:
        return ""


@dataclass(frozen=True, slots=True)
class _Spelling:
    """Writes an expression of the host in `n`, for which these names stand there."""

    scope: Scope
    counted: frozenset[str]

    def read(self, node: Node) -> tuple[int, bool]:
        """What an expression is of many elements, and whether it asks how many there are. Raises
        Unknown."""
        many = dict.fromkeys(self.counted, _MANY)
        reading = Reading(self.scope, many, lambda kind: bytes_of(kind, ()))
        return reading.whole(node), not self.counted.isdisjoint(reading.names)

    def of(self, node: Node, depth: int) -> str:
        """Raises Unknown where it takes something else to write it."""
        if depth > _DEEPEST:
            raise Unknown
        if node.type in _THROUGH and len(node.named_children) == 1:
            return self.of(node.named_children[0], depth + 1)
        if node.type == "identifier" and text(node) in self.counted:
            return COUNT
        number, counts = self.read(node)
        if not counts:
            return str(number)
        value = self.scope.value(text(node)) if node.type == "identifier" else None
        if value is not None:
            return self.of(value, depth + 1)
        left, right = map(node.child_by_field_name, ("left", "right"))
        sign = text(node.children[1]) if node.type == "binary_expression" else ""
        if sign not in _SIGNS or left is None or right is None:
            raise Unknown
        return f"({self.of(left, depth + 1)} {sign} {self.of(right, depth + 1)})"
