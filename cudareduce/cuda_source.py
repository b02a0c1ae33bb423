"""CUDA C++ source text: its syntax tree, its C++ standard, and whether it waits for the grid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

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


#: What nvcc compiles kernels with, for a GPU that runs them and for the gate that has none.
NVCC_FLAGS = ("-std=c++17", "-O3")
#: What texts in C++20 have, and no others: concepts, and functions whose parameters are `auto`,
#: which of the older standard only lambdas may be.
_NEWER = re.compile(
    r"\bconcept\s+\w+\s*=|\brequires\b|#[ \t]*include[ \t]*<concepts>|\bconsteval\b|\bconstinit\b"
    r"|\b(?!(?:for|if|while|switch|catch)\b)\w+[ \t]*\((?:[^()]*,)?\s*(?:const\s+)?auto\b[\s&*]*\w+"
)


@lru_cache(maxsize=64)
def standard_of(code: str) -> str:
    """The compiler's option for the standard that a text needs."""
    newer = _NEWER.search(code) and _NEWER.search(without_comments(parsed(code)))
    return "-std=c++20" if newer else "-std=c++17"


def in_standard(flags: Sequence[str], code: str) -> list[str]:
    """Options of a compiler, with the standard that a text needs for their own."""
    return [standard_of(code), *(flag for flag in flags if not flag.startswith("-std="))]


CALL = r"\s*\(\s*\)"
_NAMED = re.compile(
    r"\b(\w+)\s*(?:=\s*|\{\s*|\(\s*)(?:\w+::)*this_grid\s*\(|\bgrid_group\s*(?:const\s*)?&?\s*(\w+)"
)


def grids_in(code: str) -> Iterable[str]:
    """What stands for the group of the grid, as regular expressions: names, and its call."""
    names = {name for found in _NAMED.findall(code) for name in found if name}
    return [*(rf"\b{name}\b" for name in sorted(names)), rf"\b(?:\w+::)*this_grid{CALL}"]


def meets(code: str) -> bool:
    """Whether blocks wait by it, or others may do so that are given it."""
    if "this_grid" not in code:
        return False
    waits = (rf"{grid}\s*\.\s*(?:sync|barrier)|[(,]\s*{grid}\s*[,)]" for grid in grids_in(code))
    return re.search("|".join(waits), code) is not None
