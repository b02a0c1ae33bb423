"""Calls of macros outside of functions that no semicolon ends, as bindings and registrations are:
a parser, which does not know the macros, takes them for the beginning of what follows."""

from __future__ import annotations

from collections.abc import Sequence

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text

_NAMES = frozenset(["identifier", "type_identifier"])
#: What begins an item of the file.
_BEGINS = frozenset(["__global__", "__device__", "template", "static", "extern", "namespace"])


def without_bare_calls(source: str) -> str:
    """A text without such calls, as far as they begin a line and an item follows on another one.
    Every line keeps its number."""
    data = source.encode(errors="replace")
    leaves = [
        n for n in every(parsed(data))
        if not (n.child_count or n.is_missing or n.type in ("comment", "\n"))
    ]  # fmt: skip
    parts, start, k = [], 0, 0
    while k < len(leaves):
        end = _end(leaves, k)
        if end:
            first, last = leaves[k].start_byte, leaves[end].end_byte
            parts += [data[start:first], b"\n" * data.count(b"\n", first, last)]
            start, k = last, end
        k += 1
    return b"".join([*parts, data[start:]]).decode(errors="replace") if start else source


def _end(leaves: Sequence[Node], k: int) -> int:
    """The place of the bracket that ends the call which begins at place `k`; 0 if none does."""
    if not _begins_call(leaves, k):
        return 0
    depth = 0
    for place in range(k + 1, len(leaves)):
        depth += (leaves[place].type == "(") - (leaves[place].type == ")")
        if not depth:
            break
    else:
        return 0
    following = leaves[place + 1 : place + 2]
    alone = not following or following[0].start_point[0] > leaves[place].end_point[0]
    begins = not following or text(following[0]) in _BEGINS or _begins_call(leaves, place + 1)
    return place if alone and begins else 0


def _begins_call(leaves: Sequence[Node], k: int) -> bool:
    """Whether a name and a bracket begin a line; words of compilers are no macros."""
    if k + 1 >= len(leaves) or leaves[k].type not in _NAMES or leaves[k + 1].type != "(":
        return False
    return leaves[k].start_point[1] == 0 and not text(leaves[k]).startswith("__")
