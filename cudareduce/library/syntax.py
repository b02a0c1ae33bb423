"""A `.cu` file as a parser of CUDA C++ sees it: the pieces that stand at its top level, what each
defines and names, and its functions.

What the parser does not understand is a piece of its own, and the rest is found all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

from tree_sitter import Node

from cudareduce.cuda_source import every, members, parsed, text, without_comments
from cudareduce.library.group_words import in_old_words

#: What holds pieces instead of being one.
_SCOPES = frozenset(["translation_unit", "namespace_definition", "declaration_list", "preproc_if",
                     "preproc_ifdef", "preproc_else", "preproc_elif", "ERROR"])  # fmt: skip
_NAMES = frozenset(["identifier", "type_identifier", "namespace_identifier", "field_identifier"])
#: Nobody writes more; names of ever more namespaces take time that grows with their square.
_LONGEST_SCOPE = 500
#: Nothing is counted beyond.
_LONGEST_SHIFT = 63
#: Functions that only make floats of 16 bits of others, and the other way round.
_CONVERSION = re.compile(r"__[a-z]+\d*2[a-z]+\w*|(?:__)?half|(?:__)?nv_bfloat16")
#: What wraps a definition that it says more about.
_WRAPS = frozenset(["template_declaration", "linkage_specification"])
_CLASSES = frozenset(["struct_specifier", "class_specifier", "union_specifier", "enum_specifier"])
#: Declarators whose inner one has no name of its own in the parser's words.
_UNNAMED = frozenset(["reference_declarator", "parenthesized_declarator", "variadic_declarator"])
_MACROS = frozenset(["preproc_def", "preproc_function_def"])
#: What is left of calls of macros where the parser does not know what they are.
_SIGNS = frozenset(["(", ")", ",", "{", "}"])


@dataclass(frozen=True)
class Piece:
    """One declaration, definition or line of the preprocessor, inside `scope` (`one::two::`)."""

    node: Node
    scope: str

    @cached_property
    def inner(self) -> Node:
        """What a template or a linkage says more about."""
        node = self.node
        while node.type in _WRAPS:
            node = node.named_children[-1]
        return node

    @property
    def kind(self) -> str:
        """What it is, in the parser's words."""
        return self.inner.type

    @cached_property
    def words(self) -> frozenset[str]:
        """The words in front of its body, which say where it belongs."""
        body = self.inner.child_by_field_name("body")
        end = body.start_byte if body else self.node.end_byte
        before = takewhile(lambda node: node.start_byte < end, every(self.node))
        return frozenset(text(node) for node in before if not node.child_count)

    @cached_property
    def defines(self) -> frozenset[str]:
        """The names that are known of because of it."""
        node = self.inner
        named = node.child_by_field_name("name")
        if node.type == "concept_definition":
            named = next((n for n in node.named_children if n.type == "identifier"), None)
        found = (
            {text(named).partition("<")[0].strip()} if named else set()
        )  # of specialisations too
        if node.type == "using_declaration":
            found = {text(node.children[-2]).rpartition("::")[2]}
        if node.type == "enum_specifier":
            values = (n.child_by_field_name("name") for n in every(node) if n.type == "enumerator")
            found |= {text(name) for name in values if name}
        for declarator in node.children_by_field_name("declarator"):
            found |= {declared_name(declarator)}
        kind = node.child_by_field_name("type")
        if kind and kind.type in _CLASSES and (tag := kind.child_by_field_name("name")):
            found |= {text(tag)}
        return frozenset(found)

    @cached_property
    def uses(self) -> frozenset[str]:
        """The names in it, be they types, functions or variables."""
        if self.kind in _MACROS:
            return frozenset(name for piece in self._value for name in piece.uses)
        return frozenset(text(node) for node in every(self.node) if node.type in _NAMES)

    @property
    def numbers(self) -> Iterator[int]:
        """The whole numbers in it, be they written out or as powers and products of others."""
        for piece in (self, *self._value):
            yield from (n for node in every(piece.node) if (n := _number(node)) is not None)

    @cached_property
    def _value(self) -> list[Piece]:
        """What a macro stands for."""
        value = self.inner.child_by_field_name("value") if self.kind in _MACROS else None
        return pieces(text(value).encode()) if value else []

    @cached_property
    def function(self) -> Function | None:
        """The function that it defines, if it does."""
        body, declarator = map(self.inner.child_by_field_name, ("body", "declarator"))
        if self.kind != "function_definition" or body is None or declarator is None:
            return None
        listed = next((n for n in every(declarator) if n.type == "parameter_list"), None)
        children = self.node.children
        template = next((n for n in children if n.type == "template_parameter_list"), None)
        bounds = next((n for n in self.inner.children if n.type == "launch_bounds"), None)
        return Function(
            name=self.scope + declared_name(declarator), template=_members(template),
            parameters=_members(listed), body=in_old_words(without_comments(body)),
            most_threads=bounds.named_children[0] if bounds and bounds.named_children else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function with a body: its name with its namespaces, template parameters, parameters, and
    body, all without comments; `most_threads` is the first of its launch bounds; `outside` is a
    variable of the file that it leaves its answer in, as if that were a parameter, `nth` which it
    is of several that share its name and take more parameters or fewer, from 1."""

    name: str
    template: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str
    most_threads: Node | None = None
    outside: str = ""
    nth: int = 0

    @property
    def label(self) -> str:
        """What tells it from all others of its file."""
        return f"{self.name}#{self.nth}" if self.nth else self.name

    @property
    def template_names(self) -> list[str]:
        """What its template parameters are called."""
        before = (parameter.split("=")[0].split() for parameter in self.template)
        return [words[-1] if words else "" for words in before]  # "" in what is no C++


def names_in(code: str) -> frozenset[str]:
    """The names in some code, be they types, functions or variables."""
    return frozenset(text(node) for node in every(parsed(code)) if node.type in _NAMES)


def pieces(data: bytes) -> list[Piece]:
    """The pieces of a file, in order."""
    found = []
    left = [(parsed(data), "")]
    while left:
        node, scope = left.pop()
        if _held(node).type in _SCOPES:
            left += reversed(list(_in_scope(_held(node), scope)))
        elif node.type != "comment":
            found.append(Piece(node, scope))
    return found


def _held(node: Node) -> Node:
    """What stands in the braces of a linkage, and else the node itself."""
    listed = node.type == "linkage_specification" and node.children[-1]
    return listed if listed and listed.type == "declaration_list" else node


def _in_scope(node: Node, scope: str) -> Iterator[tuple[Node, str]]:
    """What a scope holds, with its name for it; how one is called is no part of that, and signs are
    none but in what the parser does not understand."""
    name, condition = map(node.child_by_field_name, ("name", "condition"))
    if name and node.type == "namespace_definition" and len(scope) < _LONGEST_SCOPE:
        scope += f"{text(name)}::"
    signs = _SIGNS if node.type == "ERROR" else ()
    return (
        (child, scope) for child in node.children
        if child not in (name, condition) and (child.is_named or child.type in signs)
    )  # fmt: skip


def _members(listed: Node | None) -> tuple[str, ...]:
    """What stands between the commas of a list, in single spaces."""
    words = [" ".join(without_comments(m).replace("*", " * ").split()) for m in members(listed)]
    return tuple(word for word in words if word != "void")


def declared_name(node: Node) -> str:
    """The name in a declarator, behind whatever stars, brackets and values."""
    inner = node.child_by_field_name("declarator")
    if inner is None and node.type in _UNNAMED:
        inner = node.named_children[-1]
    if node.type in ("template_function", "qualified_identifier"):
        inner = node.child_by_field_name("name")
    return text(node).rpartition("::")[2] if inner is None else declared_name(inner)


def converts(call: Node) -> bool:
    """Whether a call only makes its argument one of another type; `(real)(x)` looks like one."""
    function = call.child_by_field_name("function")
    if function is None:
        return False
    inner = function.named_children if function.type == "parenthesized_expression" else []
    if function.type == "primitive_type" or [node.type for node in inner] == ["identifier"]:
        return True
    name = function.child_by_field_name("name")
    cast = name is not None and text(name).endswith("_cast")
    return cast or _CONVERSION.fullmatch(text(function)) is not None


def _number(node: Node, depth: int = 3) -> int | None:
    """The whole number that a literal, or the product or power of two of some, stands for."""
    inner = node.named_children
    if node.type == "number_literal":
        digits = text(node).rstrip("uUlLzZ").replace("'", "")
        return int(digits) if re.fullmatch(r"[1-9][0-9]{0,18}", digits) else None
    if node.type == "parenthesized_expression" and len(inner) == 1 and depth:
        return _number(inner[0], depth - 1)
    if node.type != "binary_expression" or len(inner) != 2 or not depth:
        return None
    left, right = (_number(side, depth - 1) for side in inner)
    sign = text(node.children[1])
    if left is None or right is None or sign not in ("*", "<<"):
        return None
    return left * right if sign == "*" else left << min(right, _LONGEST_SHIFT)
