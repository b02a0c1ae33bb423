"""What a kernel of others makes of the elements that it reads, as its text forms it: `a * a` where
it adds `x * x` and has set `x` to an element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import MappingProxyType

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text
from cudareduce.library.expressions import names
from cudareduce.library.syntax import converts
from cudareduce.reduction.operators import Map

_COMPARES = frozenset(["==", "!=", "<", ">", "<=", ">="])
#: Functions that a map may have, and such as only hand on what they are given.
_FUNCTIONS = frozenset(
    ["fabs", "fabsf", "abs", "fmax", "fmin", "fmaxf", "fminf", "max", "min", "fma", "fmaf",
     "sqrt", "sqrtf", "exp", "expf", "log", "logf", "sin", "sinf", "cos", "cosf", "tanh", "tanhf"]
)  # fmt: skip
_FAST = {"__expf": "expf", "__logf": "logf", "__sinf": "sinf", "__cosf": "cosf"}
_HANDS_ON = frozenset(["__ldg", "__half2float", "__bfloat162float", "float", "double", "int"])
#: A value is of values, and so on; no text that a person has written goes on for longer.
_DEEPEST, _LONGEST = 12, 200
#: Where the value of what is set stands.
_SETS = {"assignment_expression": "right", "init_declarator": "value",
         "update_expression": "argument"}  # fmt: skip
#: So many of them are worth a try.
_MOST = 3
#: Bounds for texts that nobody has written by hand: statements, and what they stand in.
_STATEMENTS, _AROUND = 300, 20
_NOTHING: Mapping[str, str] = MappingProxyType({})


class _Unclear(Exception):
    """Something that no map can say."""


def formed(
    body: str, read: str, other: str = "", known: Mapping[str, str] = _NOTHING, wraps: str = "",
    count: str = "",
) -> tuple[Map, ...]:  # fmt: skip
    """The maps that a kernel with this body may form of the elements behind a pointer of this name,
    and of those behind an `other`, with what it adds up first; `known` are the numbers that its
    parameters are given. What it reckons in a type narrower than its answers, that one `wraps`.
    What it divides by the `count` of elements is a share of their mean."""
    elements = {"a", "b"} if other else {"a"}
    found = {}
    for one in _Text(body, read, other, known, count).candidates():
        expression = _bare(one)
        wrapped = f"({wraps})" if " " in wraps else wraps
        bends = _bends(expression) or (wraps and expression not in elements)
        meant = len(expression) <= _LONGEST and bends
        if meant and _names(expression) & {"a", "b"} == elements:
            whole = f"{wrapped}({expression})" if wraps else expression
            found[whole] = Map(whole, len(elements))
    found.pop("a * b", None)  # which is what two arrays are tried as first
    return tuple(found.values())[:_MOST]


class _Text:
    """A body with what its variables are set to, where that is one thing alone."""

    def __init__(
        self, body: str, read: str, other: str, known: Mapping[str, str], count: str
    ) -> None:
        self._nodes, self._known, self._count = list(every(parsed(body))), known, count
        self._elements = {read: "a"} | ({other: "b"} if other else {})
        self._values: dict[str, Node] = {}
        self._find_values()

    def candidates(self) -> Iterator[str]:
        """What is added up, and behind it what else is made of elements, the last first."""
        sums, others = [], []
        sets = (node for node in self._nodes if node.type in _SETS or _by_atomic(node))
        for node in islice(sets, _STATEMENTS):
            right = node.child_by_field_name(_SETS.get(node.type, ""))
            with suppress(_Unclear):
                if (added := self._added(node)) is not None:
                    sums.append(self._where(node, added))
                elif right is not None and node.type != "update_expression":
                    others.append(self._said(right, 0))
        yield from (*sums, *reversed(others))

    def _find_values(self) -> None:
        set_again: set[str] = set()
        for node in self._nodes:
            if node.type in ("assignment_expression", "update_expression"):
                target = node.child_by_field_name("left") or node.child_by_field_name("argument")
                set_again |= {text(target)} if target is not None else set()
            new, value = map(node.child_by_field_name, ("declarator", "value"))
            if node.type != "init_declarator" or new is None or value is None:
                continue
            if new.type == "identifier":
                self._values[text(new)] = value
            elif new.type == "pointer_declarator":
                pointed = [self._elements[n] for n in _names(text(value)) if n in self._elements]
                name = text(new).strip("* ").rpartition(" ")[2]
                self._elements |= {name: pointed[0]} if len(pointed) == 1 else {}
        self._values = {k: v for k, v in self._values.items() if k not in set_again}

    def _added(self, node: Node) -> str | None:
        """What is added to a sum there, if something is. Raises _Unclear."""
        if node.type == "update_expression" and "++" in text(node):
            return "1"
        if (added := _by_atomic(node)) is not None:
            return self._said(added, 0)
        left, right = map(node.child_by_field_name, ("left", "right"))
        if node.type != "assignment_expression" or left is None or right is None:
            return None
        if text(node.children[1]) == "+=":
            return self._said(right, 0)
        adds = right.type == "binary_expression" and text(right.children[1]) == "+"
        sides = [s for s in (right.named_children if adds else []) if text(s) != text(left)]
        return self._said(sides[0], 0) if len(sides) == 1 else None

    def _where(self, node: Node, value: str) -> str:
        """A value that is added where elements are so, and otherwise what the other branch adds, or
        nothing."""
        around = node.parent
        for _ in range(_AROUND):
            if around is None or around.type in ("for_statement", "while_statement"):
                break
            condition = around.child_by_field_name("condition")
            if around.type == "if_statement" and condition is not None:
                asks = ""
                with suppress(_Unclear):
                    asks = self._said(condition, 0)
                if _names(asks) & {"a", "b"}:
                    return f"{_bare(asks)} ? {value} : {self._otherwise(around, node)}"
            around = around.parent
        return value

    def _otherwise(self, around: Node, node: Node) -> str:
        """What is added in the branch of a condition that a node is not in. Raises _Unclear where
        it is in the second one."""
        then, other = map(around.child_by_field_name, ("consequence", "alternative"))
        if then is None or not then.start_byte <= node.start_byte < then.end_byte:
            raise _Unclear
        added = [v for n in (every(other) if other else ()) if (v := self._added(n)) is not None]
        if len(added) > 1:
            raise _Unclear
        return added[0] if added else "0"

    def _said(self, node: Node, depth: int) -> str:
        """An expression in the words of a map. Raises _Unclear."""
        if depth > _DEEPEST:
            raise _Unclear
        element = self._element(node)
        if element:
            return element
        kind, below = node.type, node.named_children
        if kind == "number_literal" or (kind in ("true", "false")):
            return text(node)
        if kind == "identifier" and text(node) in self._known:
            return self._known[text(node)]
        if kind == "identifier" and text(node) in self._values:
            value = self._said(self._values[text(node)], depth + 1)
            if len(value) > _LONGEST:
                raise _Unclear
            return _bracketed(value)
        if kind in ("parenthesized_expression", "condition_clause") and len(below) == 1:
            return _bracketed(self._said(below[0], depth + 1))
        if kind == "cast_expression" and len(below) == 2:
            return self._said(below[1], depth + 1)
        if kind == "binary_expression" and text(node.children[1]) == "&&":
            return self._both(below, depth)
        if kind == "binary_expression" and self._shares(node):
            return self._said(below[0], depth + 1)
        if kind == "binary_expression":
            left, right = (self._said(side, depth + 1) for side in below[:2])
            if len(left) + len(right) > _LONGEST:
                raise _Unclear
            return f"{left} {text(node.children[1])} {right}"
        if kind == "unary_expression":
            return f"{text(node.children[0])}{self._said(below[-1], depth + 1)}"
        if kind == "conditional_expression" and len(below) == 3:
            return self._chosen(below, depth)
        if kind == "call_expression":
            return self._called(node, depth)
        raise _Unclear

    def _shares(self, node: Node) -> bool:
        """Whether something is divided by how many elements there are."""
        return text(node.children[1]) == "/" and names(node.named_children[1]) == {self._count}

    def _element(self, node: Node) -> str:
        """Which element of an array a node is; empty if none."""
        if node.type not in ("subscript_expression", "pointer_expression"):
            return ""
        array = node.child_by_field_name("argument")
        if node.type == "subscript_expression":
            return self._elements.get(text(array), "") if array is not None else ""
        arrays = names(node) & self._elements.keys()
        star = text(node.children[0]) == "*"
        return self._elements[arrays.pop()] if star and len(arrays) == 1 else ""

    def _both(self, sides: Sequence[Node], depth: int) -> str:
        """Conditions that must both hold; one that only bounds an index says nothing of values."""
        said = []
        for side in sides:
            with suppress(_Unclear):
                said.append(self._said(side, depth + 1))
        if not said:
            raise _Unclear
        return " && ".join(said)

    def _chosen(self, parts: list[Node], depth: int) -> str:
        """One of two values, or the one that has elements where a bound says which."""
        condition, *values = parts
        try:
            asks = self._said(condition, depth + 1)
        except _Unclear:
            for value in values:
                with suppress(_Unclear):
                    said = self._said(value, depth + 1)
                    if _names(said) & {"a", "b"}:
                        return said
            raise
        one, other = (self._said(value, depth + 1) for value in values)
        return f"({_bare(asks)} ? {one} : {other})"

    def _called(self, node: Node, depth: int) -> str:
        """A function of values. What is read by its address is an element."""
        called, given = map(node.child_by_field_name, ("function", "arguments"))
        if called is None or given is None:
            raise _Unclear
        name, arguments = text(called).removeprefix("std::"), given.named_children
        if name == "__ldg" and len(arguments) == 1:
            elements = {self._elements[n] for n in names(given) & self._elements.keys()}
            if len(elements) == 1:
                return elements.pop()
        if (converts(node) or name in _HANDS_ON) and len(arguments) == 1:
            return self._said(arguments[0], depth + 1)
        if name in ("pow", "powf") and len(arguments) == 2 and text(arguments[1])[:1] == "2":
            base = _bracketed(self._said(arguments[0], depth + 1))
            return f"({base} * {base})"
        name = _FAST.get(name, name)
        if name not in _FUNCTIONS:
            raise _Unclear
        return f"{name}({', '.join(_bare(self._said(one, depth + 1)) for one in arguments)})"


def _by_atomic(node: Node) -> Node | None:
    """What an atomic adds there, if one does."""
    called, given = map(node.child_by_field_name, ("function", "arguments"))
    atomic = called is not None and text(called) == "atomicAdd" and given is not None
    return given.named_children[1] if atomic and given and len(given.named_children) == 2 else None


def _names(expression: str) -> set[str]:
    """The names in an expression."""
    return names(parsed(f"auto x = {expression};"))


def _kind(expression: str) -> str:
    """What an expression is, in the parser's words."""
    found = (n.child_by_field_name("value") for n in every(parsed(f"auto x = {expression};")))
    return next((value.type for value in found if value is not None), "")


def _bare(expression: str) -> str:
    """An expression without brackets around all of it."""
    while _kind(expression) == "parenthesized_expression":
        expression = expression[1:-1].strip()
    return expression


def _bracketed(expression: str) -> str:
    """An expression that may stand beside any sign."""
    bare = _bare(expression)
    alone = _kind(bare) in ("identifier", "number_literal", "call_expression")
    return bare if alone else f"({bare})"


def _bends(expression: str) -> bool:
    """Whether an expression is more than a sum of elements and multiples of them: one that is no
    more is rather a mistake than meant."""
    for node in every(parsed(f"auto x = {expression};")):
        if node.type in ("call_expression", "conditional_expression"):
            return True
        sides = node.named_children if node.type == "binary_expression" else []
        if sides and text(node.children[1]) in _COMPARES:
            return True
        times = sides and text(node.children[1]) not in ("+", "-")
        if times and all(_names(text(side)) & {"a", "b"} for side in sides):
            return True
    return False
