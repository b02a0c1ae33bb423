"""CUDA C++ source text: its syntax tree, its C++ standard, and whether it waits for the grid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_CUDA = Language(tree_sitter_cuda.language())


def parse_cuda(code: str | bytes) -> Node:
    """The root of the syntax tree of code, which need not be a whole file."""
    data = code if isinstance(code, bytes) else code.encode(errors="replace")
    return Parser(_CUDA).parse(data).root_node


def text(node: Node) -> str:
    """The source text of a node."""
    return (node.text or b"").decode(errors="replace")


def walk(node: Node) -> Iterator[Node]:
    """A node and all nodes below it, in order, without recursion: files may nest deeply."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def list_items(listed: Node | None) -> tuple[Node, ...]:
    """The items of a syntax node, such as parameters or statements, without comments; none for
    None."""
    return tuple(n for n in listed.named_children if n.type != "comment") if listed else ()


def literals(node: Node) -> Iterator[float]:
    """The values of the number literals below a node, without signs."""
    for literal in (child for child in walk(node) if child.type == "number_literal"):
        written = text(literal).replace("'", "")
        with suppress(ValueError, OverflowError):
            whole = written.rstrip("uUlL")
            real = not whole.isalnum() or ("e" in whole.lower() and whole[:2].lower() != "0x")
            yield float(whole.rstrip("fF")) if real else float(int(whole, 0))


def without_comments(node: Node) -> str:
    """The source text of a node with a space for each comment."""
    data, parts, start = node.text or b"", [], 0
    for comment in (n for n in walk(node) if n.type == "comment"):
        parts.append(data[start : comment.start_byte - node.start_byte])
        start = comment.end_byte - node.start_byte
    return b" ".join([*parts, data[start:]]).decode(errors="replace")


#: Options of nvcc for kernels, with and without a GPU.
NVCC_FLAGS = ("-std=c++17", "-O3")
#: Code that only C++20 accepts: concepts, and `auto` parameters of functions that are not lambdas.
_NEWER = re.compile(
    r"\bconcept\s+\w+\s*=|\brequires\b|#[ \t]*include[ \t]*<concepts>|\bconsteval\b|\bconstinit\b"
    r"|\b(?!(?:for|if|while|switch|catch)\b)\w+[ \t]*\((?:[^()]*,)?\s*(?:const\s+)?auto\b[\s&*]*\w+"
)


@lru_cache(maxsize=64)
def cpp_standard(code: str) -> str:
    """The compiler option for the C++ standard that code needs."""
    newer = _NEWER.search(code) and _NEWER.search(without_comments(parse_cuda(code)))
    return "-std=c++20" if newer else "-std=c++17"


def with_standard(flags: Sequence[str], code: str) -> list[str]:
    """Compiler options with the C++ standard that code needs."""
    return [cpp_standard(code), *(flag for flag in flags if not flag.startswith("-std="))]


_GRID_GROUP = re.compile(
    r"\b(\w+)\s*(?:=\s*|\{\s*|\(\s*)(?:\w+::)*this_grid\s*\(|\bgrid_group\s*(?:const\s*)?&?\s*(\w+)"
)


def waits_for_grid(code: str) -> bool:
    """True if blocks wait for their whole grid: code synchronizes a grid group, or passes it to a
    function that may."""
    if "this_grid" not in code:
        return False
    code = without_comments(parse_cuda(code))
    names = {name for groups in _GRID_GROUP.findall(code) for name in groups if name}
    groups = [*(rf"\b{name}\b" for name in names), r"\b(?:\w+::)*this_grid\s*\(\s*\)"]
    waits = (rf"{group}\s*\.\s*(?:sync|barrier)|[(,]\s*{group}\s*[,)]" for group in groups)
    return re.search("|".join(waits), code) is not None
