"""Kernels of others of which each thread leaves a value: a partial for the host, or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tree_sitter import Node

from cudareduce.cuda_source import text
from cudareduce.library.combining import nodes_of
from cudareduce.library.expressions import (
    CHANGES,
    COMPARES,
    bare,
    bases,
    first_values,
    inner,
    is_unasked,
    names,
    operator,
)


def is_of_threads(code: str, read: str, write: str) -> bool:
    """Whether each thread of a kernel with this body comes by several elements of `read`, and then
    sets a place of its own behind `write`, which nothing keeps any of them from: what asks whether
    there is such a place makes something of each element, as a map does."""
    nodes = nodes_of(code)
    changed = {text(to) for to in _targets(nodes) if to.type == "identifier"}
    compared = {name for node in nodes if operator(node) in COMPARES for name in names(node)}
    returns = any(node.type == "return_statement" and not is_unasked(node) for node in nodes)
    first = first_values(nodes)
    places = list(_indices(nodes, write))
    own = all(
        "threadIdx" in _behind(place, first) and not names(place) & (changed | compared)
        for place in places
    )
    turns = any(names(place) & changed for place in _indices(nodes, read))
    sets = any(write in bases(to) and is_unasked(to) for to in _targets(nodes))
    return bool(places) and own and turns and sets and not returns


def is_of_elements(code: str, write: str, count: str) -> bool:
    """Whether a kernel with this body sets a place behind `write` for each element that there is,
    by the thread's number, which it compares with their `count`."""
    nodes = nodes_of(code)
    bounds = (names(node) for node in nodes if operator(node) in COMPARES)
    bounded = {name for one in bounds if count in one for name in one - {count}}
    places = [inner(place.named_children[0]) for place in _indices(nodes, write)]
    first = first_values(nodes)
    own = all(text(place) in bounded and "threadIdx" in _behind(place, first) for place in places)
    return bool(places) and own


def _targets(nodes: Sequence[Node]) -> Iterator[Node]:
    """What is changed."""
    found = (node.child_by_field_name(CHANGES[node.type]) for node in nodes if node.type in CHANGES)
    return (target for target in found if target is not None)


def _indices(nodes: Sequence[Node], name: str) -> Iterator[Node]:
    """What stands in the brackets behind a pointer."""
    for node in nodes:
        array, place = map(node.child_by_field_name, ("argument", "indices"))
        if node.type == "subscript_expression" and array and place and bare(array) == name:
            yield place


def _behind(node: Node, first: Mapping[str, Node]) -> set[str]:
    """The names in an expression, and in what its variables begin with, whatever they are later."""
    found: set[str] = set()
    left = [node]
    while left:
        for name in names(left.pop()) - found:
            found.add(name)
            left += [first[name]] if name in first else []
    return found
