"""Where a kernel of others leaves its answer, if it is given no place for that: in a variable of
its file."""

from __future__ import annotations

from collections.abc import Iterable

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.library.elements import bytes_of
from cudareduce.library.host_code import number_at
from cudareduce.library.parameters import Parameter, read_parameter
from cudareduce.library.scopes import Constants, Scope
from cudareduce.library.syntax import Function, Piece, pieces

_DEVICE = frozenset(["__device__", "__managed__"])
_NEVER = frozenset(["const", "constexpr", "__constant__", "__shared__", "extern"])
#: Where what is changed stands.
_CHANGES = {"assignment_expression": "left", "update_expression": "argument"}
#: What a place is reached through.
_THROUGH = frozenset(["subscript_expression", "pointer_expression", "parenthesized_expression"])


def outside(found: Iterable[Piece], file: Constants, function: Function) -> str:
    """The variable of the file that a kernel leaves its answer in, as if it were a parameter: a
    reference, or an array of so many elements; empty if it leaves it elsewhere, or nobody can tell
    in which of several, or how many those are."""
    changed = _changed(function.body)
    if not changed.isdisjoint(read_parameter(words).name for words in function.parameters):
        return ""
    variables = [words for piece in found if (words := _variable(piece, file, changed))]
    return variables[0] if len(variables) == 1 else ""


def place_of(variable: Parameter) -> str:
    """C++ that stands for such a variable, where the answer of a launch lies."""
    place = f"({variable.type} *)their_answer()"
    return f"(*{place})" if variable.refers else f"({place})"


def places_in(variable: Parameter | None) -> int:
    """How many answers such a variable has room for, if it is an array; 0 if it is none."""
    return int(variable.text.partition("[")[2].rstrip("]")) if variable and variable.points else 0


def _variable(piece: Piece, file: Constants, changed: frozenset[str]) -> str:
    """What a piece declares, as a parameter, if it is a variable of the device that is changed."""
    declarators = piece.inner.children_by_field_name("declarator")
    kind = piece.inner.child_by_field_name("type")
    own = piece.kind == "declaration" and piece.words & _DEVICE and not piece.words & _NEVER
    if not own or kind is None or len(declarators) != 1 or piece.defines.isdisjoint(changed):
        return ""
    declared, name = list(every(declarators[0])), next(iter(piece.defines))
    kinds = {node.type for node in declared}
    if kinds & {"function_declarator", "pointer_declarator"} or bytes_of(text(kind), ()) is None:
        return ""
    arrays = [node for node in declared if node.type == "array_declarator"]
    if not arrays:
        return f"{text(kind)} & {name}"
    size = arrays[0].child_by_field_name("size")
    places = number_at(Scope(file, {}, size), size) if size and len(arrays) == 1 else None
    return f"{text(kind)} {name}[{places}]" if places and places > 0 else ""


def _changed(body: str) -> frozenset[str]:
    """The names that are changed, or something behind them is, but for those that the body declares
    itself."""
    nodes = [node for piece in pieces(f"void f() {body}".encode()) for node in every(piece.node)]
    targets = [node.child_by_field_name(_CHANGES[node.type]) for node in nodes
               if node.type in _CHANGES]  # fmt: skip
    for node in nodes:
        called, given = map(node.child_by_field_name, ("function", "arguments"))
        if called is not None and given is not None and text(called).startswith("atomic"):
            targets += given.named_children[:1]
    own = {
        text(n) for node in nodes if node.type == "declaration"
        for one in node.children_by_field_name("declarator") for n in every(one)
        if n.type == "identifier" and n.start_byte == _named(one).start_byte
    }  # fmt: skip
    return frozenset(_base(target) for target in targets if target is not None) - own


def _base(target: Node) -> str:
    """The name of what a place belongs to."""
    while target.type in _THROUGH:
        inner = target.child_by_field_name("argument") or next(iter(target.named_children), None)
        if inner is None:
            break
        target = inner
    return text(target)


def _named(declarator: Node) -> Node:
    """The name in a declarator."""
    while (inner := declarator.child_by_field_name("declarator")) is not None:
        declarator = inner
    return declarator
