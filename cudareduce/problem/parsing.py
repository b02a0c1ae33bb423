"""CUDA C++ as a parser sees it: a tree of nodes, and what stands in each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_CUDA = Language(tree_sitter_cuda.language())


def parsed(code: str | bytes) -> Node:
    """The root of what a parser makes of some code, whether it is a whole file or not."""
    data = code if isinstance(code, bytes) else code.encode(errors="replace")
    return Parser(_CUDA).parse(data).root_node


def text(node: Node) -> str:
    """What stands there."""
    return (node.text or b"").decode(errors="replace")


def every(node: Node) -> Iterator[Node]:
    """A node and all below it, in order; however deep, since a file may nest as it likes."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        left += reversed(one.children)


def members(listed: Node | None) -> tuple[Node, ...]:
    """What a list holds, or a body, but for comments; nothing where there is none."""
    return tuple(n for n in listed.named_children if n.type != "comment") if listed else ()


def literals(node: Node) -> Iterator[float]:
    """The numbers that are written out in it, without their signs."""
    for one in every(node):
        written = text(one).replace("'", "") if one.type == "number_literal" else ""
        with suppress(ValueError, OverflowError):
            whole = written.rstrip("uUlL")
            real = not whole.isalnum() or ("e" in whole.lower() and whole[:2].lower() != "0x")
            yield float(whole.rstrip("fF")) if real else float(int(whole, 0))


def without_comments(node: Node) -> str:
    """Its text with a space for each comment."""
    data, parts, start = node.text or b"", [], 0
    for comment in (n for n in every(node) if n.type == "comment"):
        parts.append(data[start : comment.start_byte - node.start_byte])
        start = comment.end_byte - node.start_byte
    return b" ".join([*parts, data[start:]]).decode(errors="replace")
