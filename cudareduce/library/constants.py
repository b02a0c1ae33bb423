"""Whole numbers that a file's own text tells: constants, macros, variables that are set once, and
simple arithmetic on them.

Nothing is run: syntax is walked, a bounded number of steps, and what is not understood is unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from cudareduce.cuda_source import every, members, text
from cudareduce.library.scopes import Scope

Number = int | float

#: Of one value: nobody writes more, and macros may name macros without end.
_MOST_STEPS = 150
#: No launch counts further.
_LARGEST = 2**63
#: How host code asks for the number of SMs.
_SM_COUNTS = frozenset(["multiProcessorCount", "cudaDevAttrMultiProcessorCount"])

_OPERATORS: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_OF_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "%": operator.mod,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "min": min, "max": max, "fmin": min, "fmax": max, "fminf": min, "fmaxf": max,
    "ceil": math.ceil, "ceilf": math.ceil, "floor": math.floor, "floorf": math.floor,
}  # fmt: skip
_FLOATS = ("float", "double")


class Unknown(Exception):
    """An expression that does not say its value."""


@dataclass(slots=True)
class Reading:
    """Reads the value of expressions at one place; `given` are values of names that take the place
    of what the file says. It notes which names it has come by, and whether the number of SMs was
    among them. `size_of` gives the bytes of a type by its name, or None. A dim3 of several
    dimensions is a number where it is to be `flat`: all of its threads, in rows of `width`."""

    scope: Scope
    given: Mapping[str, Number]
    size_of: Callable[[str], int | None]
    names: dict[str, None] = field(default_factory=dict)
    counts_sms: bool = False
    flat: bool = False
    width: int | None = None
    _steps: int = 0

    def whole(self, node: Node) -> int:
        """The value of an expression that is a whole number. Raises Unknown."""
        value = self._value(node)
        if value != int(value):
            raise Unknown
        return int(value)

    def _value(self, node: Node) -> Number:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise Unknown
        read = _KINDS.get(node.type)
        if read is None:
            raise Unknown
        value = read(self, node)
        if not -_LARGEST < value < _LARGEST:  # nor is it NaN
            raise Unknown
        return value

    def _part(self, node: Node, name: str) -> Number:
        child = node.child_by_field_name(name)
        if child is None:
            raise Unknown
        return self._value(child)

    def _literal(self, node: Node) -> Number:
        word = text(node).replace("'", "").lower()
        if word in ("true", "false"):
            return word == "true"
        try:
            if not word.startswith(("0x", "0b")) and set(word) & set(".e"):
                return float(word.rstrip("f"))
            return int(word.rstrip("ulz"), 0)
        except ValueError:
            raise Unknown from None

    def _named(self, node: Node) -> Number:
        name = text(node).rpartition("::")[2]
        self.names[name] = None
        if name in self.given:
            return self.given[name]
        value = self.scope.value(name)
        if value is None:
            raise Unknown
        return self._value(value)

    def _listed(self, node: Node) -> Number:
        """One value, or what a dim3 is made of."""
        values = [self._value(child) for child in members(node)]
        if self.flat and set(values[1:]) - {1}:
            self.width = int(values[0])
            return math.prod(values)
        if not values or set(values[1:]) - {1}:
            raise Unknown
        return values[0]

    def _binary(self, node: Node) -> Number:
        sign = next(text(child) for child in node.children if not child.is_named)
        left, right = self._part(node, "left"), self._part(node, "right")
        if sign in _OPERATORS:
            return _OPERATORS[sign](left, right)
        if sign in ("&&", "||"):
            return bool(left and right) if sign == "&&" else bool(left or right)
        integers = isinstance(left, int) and isinstance(right, int)
        if sign == "/" and right and not integers:
            return left / right
        if sign == "/" and right and left >= 0 and right > 0:
            return left // right
        if sign in _OF_INTEGERS and isinstance(left, int) and isinstance(right, int):
            fits = right > 0 if sign == "%" else 0 <= right < 64
            if left >= 0 and fits:
                return _OF_INTEGERS[sign](left, right)
        raise Unknown

    def _unary(self, node: Node) -> Number:
        value = self._part(node, "argument")
        match text(node)[0]:
            case "-":
                return -value
            case "+":
                return value
            case "!":
                return not value
            case _:
                raise Unknown

    def _conditional(self, node: Node) -> Number:
        holds = self._part(node, "condition")
        return self._part(node, "consequence" if holds else "alternative")

    def _cast(self, node: Node) -> Number:
        kind = node.child_by_field_name("type")
        return _as(text(kind) if kind else "", self._part(node, "value"))

    def _of_field(self, node: Node) -> Number:
        name = node.child_by_field_name("field")
        if name is not None and text(name) in _SM_COUNTS:
            self.counts_sms = True
        if name is None or text(name) != "x":
            raise Unknown
        return self._part(node, "argument")

    def _size(self, node: Node) -> Number:
        kind = node.child_by_field_name("type") or node.child_by_field_name("value")
        size = self.size_of(text(kind).strip("() ")) if kind else None
        if size is None:
            raise Unknown
        return size

    def _called(self, node: Node) -> Number:
        if any(text(n) in _SM_COUNTS for n in every(node) if n.type == "identifier"):
            self.counts_sms = True
            raise Unknown
        called, listed = map(node.child_by_field_name, ("function", "arguments"))
        if called is None or listed is None or called.type == "parenthesized_expression":
            raise Unknown
        values = [self._value(child) for child in members(listed)]
        if called.type == "template_function" and text(called).startswith("static_cast"):
            return _as(text(called), self._listed(listed))
        name = text(called).partition("<")[0].rpartition("::")[2]
        formula = self.scope.file.formulas.get(name)
        if formula is not None and len(formula.parameters) == len(values):
            inner = {**self.given, **dict(zip(formula.parameters, values, strict=True))}
            reading = Reading(self.scope, inner, self.size_of, self.names, _steps=self._steps)
            value = reading._value(formula.result)
            self._steps = reading._steps
            return value
        if name in _FUNCTIONS and len(values) == (1 if name.startswith(("ceil", "floor")) else 2):
            return _FUNCTIONS[name](*values)
        if name == "dim3" or called.type == "primitive_type" or self.size_of(name) is not None:
            return _as(name, self._listed(listed))
        raise Unknown


def _as(kind: str, value: Number) -> Number:
    """A value as it is in a type of this name."""
    return float(value) if any(name in kind for name in _FLOATS) else int(value)


_KINDS: Mapping[str, Callable[[Reading, Node], Number]] = {
    "number_literal": Reading._literal, "true": Reading._literal, "false": Reading._literal,
    "identifier": Reading._named, "type_identifier": Reading._named,
    "qualified_identifier": Reading._named, "type_descriptor": Reading._listed,
    "parenthesized_expression": Reading._listed, "initializer_list": Reading._listed,
    "argument_list": Reading._listed, "binary_expression": Reading._binary,
    "unary_expression": Reading._unary, "conditional_expression": Reading._conditional,
    "cast_expression": Reading._cast, "field_expression": Reading._of_field,
    "sizeof_expression": Reading._size, "call_expression": Reading._called,
}  # fmt: skip
