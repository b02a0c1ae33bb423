"""What the body of a kernel does with the names in it, as far as its text tells."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from tree_sitter import Node

from cudareduce.library.syntax import every, parsed, text

#: So many words of a value tell where it comes from; whoever nests values in values, as no person
#: does, is not followed further.
_MOST_WORDS = 200
#: So many places where a name stands tell what it is for, and so many words whatever they follow
#: from: bounds for texts that nobody has written by hand.
_MOST_PLACES, _MOST_BEHIND = 100, 2000
#: `blockIdx.x` and the like, in bytes.
_LONGEST_FIELD = 40
#: What wraps a value without changing it.
_WRAPS = frozenset(["parenthesized_expression", "cast_expression"])
_COMPARES = frozenset(["<", "<=", ">", ">=", "==", "!="])


class Body:
    """The body of a kernel, parsed."""

    def __init__(self, code: str) -> None:
        self._nodes = list(every(parsed(code)))

    @cached_property
    def words(self) -> frozenset[str]:
        """Names, numbers and signs that stand in it; a field with what it is of (`blockIdx.x`)."""
        return frozenset(word for node in self._nodes[:1] for word in _leaves(node))

    @cached_property
    def _origins(self) -> dict[str, set[str]]:
        """The words in what each variable is set to."""
        found: dict[str, set[str]] = {}
        for node in self._nodes:
            if node.type == "init_declarator":
                target, value = map(node.child_by_field_name, ("declarator", "value"))
            elif node.type == "assignment_expression":
                target, value = map(node.child_by_field_name, ("left", "right"))
            else:
                continue
            if target is not None and value is not None and target.type == "identifier":
                words = islice(_leaves(value), _MOST_WORDS)
                found.setdefault(text(target), set()).update(words)
        return found

    def behind(self, node: Node) -> frozenset[str]:
        """The words in an expression, and in whatever its variables are set to."""
        found: set[str] = set()
        left = list(islice(_leaves(node), _MOST_WORDS))
        while left and len(found) < _MOST_BEHIND:
            word = left.pop()
            if word not in found:
                found.add(word)
                left += self._origins.get(word, ())
        return frozenset(found)

    def factors(self, name: str) -> list[frozenset[str]]:
        """The words behind what a variable is multiplied by; but for shares, which are divided
        again."""
        return [self.behind(node) for node in islice(self._factors(name), _MOST_PLACES)]

    def compared(self, name: str) -> list[frozenset[str]]:
        """The words behind what a variable is compared with."""
        return [self.behind(node) for node in islice(self._compared(name), _MOST_PLACES)]

    def _factors(self, name: str) -> Iterator[Node]:
        for left, right, node in self._pairs("*"):
            outer = node.parent
            while outer is not None and outer.type in _WRAPS:
                outer = outer.parent
            if outer is not None and _operator(outer) in ("/", "%"):
                continue
            if name in (_bare(left), _bare(right)):
                yield left if _bare(right) == name else right

    def _compared(self, name: str) -> Iterator[Node]:
        for left, right, _ in self._pairs(*_COMPARES):
            if name in (_bare(left), _bare(right)):
                yield left if _bare(right) == name else right

    def _pairs(self, *operators: str) -> Iterator[tuple[Node, Node, Node]]:
        for node in self._nodes:
            if _operator(node) in operators:
                left, right = map(node.child_by_field_name, ("left", "right"))
                if left is not None and right is not None:
                    yield left, right, node

    def atomics(self, name: str) -> frozenset[str]:
        """The atomic functions that change what is behind a pointer or a reference."""
        found = set()
        for node in self._nodes:
            function, given = map(node.child_by_field_name, ("function", "arguments"))
            if function is None or given is None or not given.named_children:
                continue
            called = text(function) if function.type == "identifier" else ""
            place = islice(_leaves(given.named_children[0]), _MOST_WORDS)
            if called.startswith("atomic") and name in place:
                found.add(called)
        return frozenset(found)

    def changes(self, name: str) -> bool:
        """Whether what is behind a pointer is written to."""
        for node in self._nodes:
            field = {"assignment_expression": "left", "update_expression": "argument"}.get(
                node.type
            )
            target = node.child_by_field_name(field) if field else None
            if target is not None and target.type != "identifier" and name in _bases(target):
                return True
        return bool(self.atomics(name))

    def each(self, name: str) -> str:
        """What there is a place for behind a pointer: `threads` of the grid or its blocks (`grid`),
        by the indices that stand there; empty for one place alone."""
        found = ""
        for node in self._nodes:
            array, places = map(node.child_by_field_name, ("argument", "indices"))
            if node.type == "subscript_expression" and array is not None and places is not None:
                several = any(n.type != "number_literal" for n in places.named_children)
                found = self._widest(found, places) if several and _bare(array) == name else found
        for left, right, node in self._pairs("+"):
            found = self._widest(found, node) if name in (_bare(left), _bare(right)) else found
        return found

    def _widest(self, found: str, index: Node) -> str:
        by_thread = found == "threads" or {"threadIdx.x", "blockIdx.x"} <= self.behind(index)
        return "threads" if by_thread else "grid"


def _leaves(node: Node) -> Iterator[str]:
    """The words of an expression, in order; those of a field with what it is of."""
    for one in every(node):
        of = one.parent
        if not one.child_count:
            is_field = of is not None and of.type == "field_expression"
            short = of is not None and of.end_byte - of.start_byte < _LONGEST_FIELD
            yield text(of) if of is not None and is_field and short else text(one)


def _bases(target: Node) -> tuple[str, ...]:
    """The names that an expression may be a place of, as `out` in `*(out + 1)` and in `out[1].x`;
    none that only tell which place."""
    node: Node | None = target
    while node is not None:
        given = node.child_by_field_name("arguments")
        if node.type == "binary_expression":
            sides = map(node.child_by_field_name, ("left", "right"))
            return tuple(_bare(side) for side in sides if side is not None)
        if node.type == "identifier":
            return (text(node),)
        if node.type in _WRAPS:
            node = node.named_children[-1]
        elif given is not None and len(given.named_children) == 1:
            node = given.named_children[0]
        else:
            node = node.child_by_field_name("argument")
    return ()


def _bare(node: Node) -> str:
    """The name that an expression is, whatever type it is made; empty if it is none."""
    while node.type != "identifier":
        given = node.child_by_field_name("arguments")
        if node.type in _WRAPS:
            node = node.named_children[-1]
        elif given is not None and len(given.named_children) == 1 and _converts(node):
            node = given.named_children[0]
        else:
            return ""
    return text(node)


def _converts(call: Node) -> bool:
    """Whether a call only makes its argument one of another type."""
    function = call.child_by_field_name("function")
    if function is None or call.type != "call_expression":
        return False
    name = function.child_by_field_name("name")
    return function.type == "primitive_type" or (name is not None and text(name) == "static_cast")


def _operator(node: Node) -> str:
    """The sign of an operation on two values; empty if it is none."""
    sign = node.child_by_field_name("operator") if node.type == "binary_expression" else None
    return sign.type if sign is not None else ""
