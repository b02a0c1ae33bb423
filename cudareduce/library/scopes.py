"""What the names of a file's constants and variables stand for, as syntax tells it.

A variable stands for a value if it is given one once, or is then kept below a bound; one that is
set again otherwise, or elsewhere, for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import members, text
from cudareduce.library.syntax import Piece, pieces

#: What encloses names.
_BLOCKS = frozenset(["compound_statement", "for_statement", "lambda_expression",
                     "function_definition"])  # fmt: skip
_CLASSES = frozenset(["class_specifier", "struct_specifier"])
_PARAMETERS = frozenset(["parameter_declaration", "optional_parameter_declaration"])
#: Longer macros are no constants, and what is named in more places is not set once.
_LONGEST_MACRO, _MOST_MENTIONS = 200, 256


@dataclass(frozen=True, slots=True)
class Formula:
    """A macro or a function that gives back an expression in its `parameters`."""

    parameters: tuple[str, ...]
    result: Node


@dataclass(frozen=True, slots=True)
class Constants:
    """What is defined for all of a file: expressions and formulas by their names. What is defined
    in several ways is not there."""

    values: Mapping[str, Node]
    formulas: Mapping[str, Formula]


@dataclass(frozen=True, slots=True)
class _Mention:
    """A place where a name is declared, or set: in which bytes of the file it then counts, and the
    expression that it is set to, if it is to one; `bounds` where it is set only if it is more."""

    name: str
    begins: int
    ends: int
    value: Node | None
    declares: bool
    bounds: bool = False


#: The places where names are declared or set, by the names.
Mentions = Mapping[str, Sequence["_Mention"]]


@dataclass(frozen=True, slots=True)
class Scope:
    """What names stand for at one place of a piece, whose `mentions` these are; or outside of
    all."""

    file: Constants
    mentions: Mentions
    place: Node

    def value(self, name: str) -> Node | None:
        """The expression that a name stands for; None if there is none, or not one alone."""
        here, named = self.place.start_byte, self.mentions.get(name, ())
        if len(named) >= _MOST_MENTIONS:
            return None
        around = [m for m in named if m.begins <= here < m.ends]
        declared = max((m for m in around if m.declares), key=lambda m: m.begins, default=None)
        if declared is None:
            return self.file.values.get(name)
        later = [m for m in named if not m.declares and declared.begins <= m.begins < declared.ends]
        first, set_later = declared.value, [m.value for m in later]
        if first is not None and len(later) == 1 and later[0].bounds and later[0].value:
            return _parsed(f"min({text(first)}, {text(later[0].value)})")
        if first is not None and not (set_later and text(first) == "0"):
            set_later.insert(0, first)
        return set_later[0] if len(set_later) == 1 else None


def mentions(piece: Piece) -> Mentions:
    """Where in a piece names are declared and set."""
    found: dict[str, list[_Mention]] = {}
    for mention in _mentions(piece.node):
        named = found.setdefault(mention.name, [])
        if len(named) < _MOST_MENTIONS:
            named.append(mention)
    return found


def constants(found: Iterable[Piece]) -> Constants:
    """What is defined at the top level of a file."""
    values: dict[str, Node | None] = {}
    formulas: dict[str, Formula | None] = {}
    for piece in found:
        formula = _formula(piece)
        if formula is not None:
            for name in piece.defines:
                again = name in formulas
                formulas[name] = None if again else formula
        for name, value in _values(piece):
            before = values.get(name, value)
            same = before is not None and text(before) == text(value)
            values[name] = value if same else None
    return Constants(
        {name: value for name, value in values.items() if value is not None},
        {name: formula for name, formula in formulas.items() if formula is not None},
    )


def _values(piece: Piece) -> Iterator[tuple[str, Node]]:
    """The names that a piece defines, with the expressions that they stand for."""
    node = piece.inner
    if piece.kind == "preproc_def":
        name, value = map(node.child_by_field_name, ("name", "value"))
        parsed = _parsed(text(value)) if value else None
        if name and parsed:
            yield text(name), parsed
    elif piece.kind == "declaration":
        for mention in _declarations(node, node):
            if mention.value is not None:
                yield mention.name, mention.value
    elif piece.kind == "enum_specifier" and (body := node.child_by_field_name("body")):
        for child in body.named_children:
            name, value = map(child.child_by_field_name, ("name", "value"))
            if name and value:
                yield text(name), value
    elif piece.kind in _CLASSES and (body := node.child_by_field_name("body")):
        for child in body.named_children:  # the static ones, which are one for all
            name, value = map(child.child_by_field_name, ("declarator", "default_value"))
            if name and value and any(text(word) == "static" for word in child.children):
                yield text(name), value


def _formula(piece: Piece) -> Formula | None:
    """What a macro with parameters, or a function that does nothing but return, gives back."""
    node = piece.inner
    if piece.kind == "preproc_function_def":
        listed, value = map(node.child_by_field_name, ("parameters", "value"))
        parsed = _parsed(text(value)) if value else None
        names = [text(name) for name in listed.named_children] if listed else []
        return Formula(tuple(names), parsed) if parsed else None
    body = node.child_by_field_name("body")
    if piece.function is None or body is None:
        return None
    inside = members(body)
    if len(inside) != 1 or inside[0].type != "return_statement" or not inside[0].named_children:
        return None
    parameters = tuple(p.split()[-1].lstrip("*&") for p in piece.function.parameters)
    return Formula(parameters, inside[0].named_children[0])


def _parsed(expression: str) -> Node | None:
    """An expression of a macro as the parser sees it; None if it is none."""
    if len(expression) > _LONGEST_MACRO:
        return None
    found = pieces(f"auto x = {expression}\n;".encode())  # it may end in a comment
    declared = found[0].inner.child_by_field_name("declarator") if len(found) == 1 else None
    broken = not found or found[0].node.has_error
    return declared.child_by_field_name("value") if declared and not broken else None


def _mentions(root: Node) -> Iterator[_Mention]:
    """Where in a piece names are declared and set, in no order."""
    left = [(root, root)]
    while left:
        node, scope = left.pop()
        if node.type == "declaration":
            yield from _declarations(node, scope)
        elif node.type in _PARAMETERS:
            named = node.child_by_field_name("declarator")
            if named and named.type == "identifier":
                yield _Mention(text(named), scope.start_byte, scope.end_byte, None, True)
        elif node.type in ("assignment_expression", "update_expression", "call_expression"):
            yield from _settings(node)
        inner = node if node.type in _BLOCKS else scope
        left += [(child, inner) for child in node.children]


def _declarations(node: Node, scope: Node) -> Iterator[_Mention]:
    """The variables that are declared, with the values that they begin with."""
    for declarator in node.children_by_field_name("declarator"):
        value = declarator.child_by_field_name("value")
        named = declarator.child_by_field_name("declarator") or declarator
        if declarator.type == "function_declarator":  # `dim3 grid(over(n, a * b));` looks like one
            listed = declarator.child_by_field_name("parameters")
            value = _parsed(f"{{{text(listed)[1:-1]}}}") if listed else None
        if named.type == "identifier":
            yield _Mention(text(named), scope.start_byte, scope.end_byte, value, True)


def _settings(node: Node) -> Iterator[_Mention]:
    """The variables that an expression sets: the x of a dim3 is all of it, and an address that is
    given to a call may be set by it."""
    targets: list[tuple[Node | None, Node | None]] = []
    if node.type == "call_expression":
        listed = node.child_by_field_name("arguments")
        targets += [
            (argument.child_by_field_name("argument"), node)
            for argument in (listed.named_children if listed else ())
            if argument.type == "pointer_expression" and text(argument).startswith("&")
        ]
    elif node.type == "update_expression":
        targets.append((node.child_by_field_name("argument"), None))
    else:
        left, right = map(node.child_by_field_name, ("left", "right"))
        plain = any(child.type == "=" for child in node.children)
        if left and left.type == "field_expression":
            field = left.child_by_field_name("field")
            if field and text(field) != "x" and right and text(right) == "1":
                return
            plain = plain and field is not None and text(field) == "x"
            left = left.child_by_field_name("argument")
        targets.append((left, right if plain else None))
    for target, value in targets:
        if target is not None and target.type == "identifier":
            name, bounds = text(target), value is not None and _bounds(node, target, value)
            yield _Mention(name, node.start_byte, node.end_byte, value, False, bounds)


def _bounds(node: Node, target: Node, value: Node) -> bool:
    """Whether an assignment is the one in `if (x > most) x = most;`."""
    statement = node.parent
    inside = statement.parent if statement else None
    if inside is not None and inside.type == "compound_statement" and inside.named_child_count == 1:
        inside = inside.parent
    if inside is None or inside.type != "if_statement" or inside.child_by_field_name("alternative"):
        return False
    condition = inside.child_by_field_name("condition")
    words = "".join(text(condition).split()) if condition else ""
    return words in (f"({text(target)}>{text(value)})", f"({text(value)}<{text(target)})")
