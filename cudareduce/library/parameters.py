"""A parameter of a function of others, taken apart."""

from __future__ import annotations

from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text

_DECLARATIONS = frozenset(
    ["parameter_declaration", "optional_parameter_declaration", "variadic_parameter_declaration"]
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter: its `name`, the type of what it holds or, through so many `stars`, points or
    refers to, and whether that is constant; `default` is what a value is where nobody gives it one,
    as it is written. `odd` is what is neither value, pointer nor reference
    to a value: a reference to an array, a function, a pack."""

    text: str
    name: str
    type: str
    stars: int = 0
    refers: bool = False
    constant: bool = False
    odd: bool = False
    default: str = ""

    @property
    def points(self) -> bool:
        """Whether it is a pointer to values."""
        return self.stars == 1 and not self.odd

    @property
    def writes(self) -> bool:
        """Whether values can be written through it."""
        return (self.points or self.refers) and not self.constant

    def cast(self, element: str = "") -> str:
        """What in front of a value makes it one of this parameter, whose own type may go by the
        name of another `element`."""
        return f"({element or self.type}{' ' + '*' * self.stars if self.stars else ''})"


def read_parameter(code: str) -> Parameter:
    """A parameter as it is written, without comments."""
    node = next((n for n in every(parsed(f"void f({code});")) if n.type in _DECLARATIONS), None)
    kind = node.child_by_field_name("type") if node else None
    if node is None or kind is None:
        return Parameter(code, code, "", odd=True)
    declarator = node.child_by_field_name("declarator")
    name, stars, refers, odd = _taken_apart(declarator)
    constant = any(n.type == "type_qualifier" and text(n) == "const" for n in node.children)
    value = node.child_by_field_name("default_value")
    default = text(value) if value else ""
    plain = " ".join(text(kind).split())
    return Parameter(code, name, plain, stars, refers, constant, odd, default)


def _taken_apart(declarator: Node | None) -> tuple[str, int, bool, bool]:
    """The name in a declarator, its stars, whether it is a reference, and whether it is odd."""
    kinds, node = [], declarator
    while node is not None and node.type != "identifier":
        kinds.append(node.type)
        last = node.named_children[-1] if node.named_children else None
        node = node.child_by_field_name("declarator") or last
    stars = kinds.count("pointer_declarator") + kinds.count("array_declarator")
    refers = "reference_declarator" in kinds
    odd = len(kinds) != stars + refers or (refers and stars > 0)
    return (text(node) if node else ""), stars, refers, odd
