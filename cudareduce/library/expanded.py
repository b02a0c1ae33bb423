"""A file with its macros that stand for words of CUDA put in their place: what is a kernel, and
what belongs to the device, the parser sees in the text alone. Every line keeps its number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text, without_comments
from cudareduce.library.expressions import MULTIPLIES

#: What makes a macro one of these.
_WORDS = frozenset(
    ["__global__", "__device__", "__shared__", "__constant__", "__launch_bounds__", *MULTIPLIES]
)
#: What is said of a launch that is not ours, and that the parser does not know.
_LEFT_OUT = frozenset(["__cluster_dims__", "__maxnreg__", "__block_size__"])
_NAMES = frozenset(["identifier", "type_identifier"])
#: A macro may name another one, and so on; no file that a person has written grows beyond.
_MOST_STEPS, _LONGEST = 4, 2**22
#: What a macro is given, in bytes.
_MOST_GIVEN = 2**12
_SIGNS = re.compile(rb"[(),]")


@dataclass(frozen=True, slots=True)
class Macro:
    """What a macro stands for, in one line; its `parameters`, None if it takes none."""

    parameters: tuple[str, ...] | None
    value: str


def macros_in(source: str) -> dict[str, Macro]:
    """The macros of a text that stand for words of CUDA, by their names; none that stand for
    several such things."""
    found: dict[str, Macro | None] = {}
    if "define" not in source or not _words_in(source):
        return {}
    for node in every(parsed(source)):
        name, value = map(node.child_by_field_name, ("name", "value"))
        if not node.type.startswith("preproc_") or name is None or value is None:
            continue
        line = " ".join(text(value).replace("\\\n", " ").split("\n"))
        if not _words_in(line) or not _words_in(line := without_comments(parsed(line))):
            continue
        listed = node.child_by_field_name("parameters")
        names = tuple(text(n) for n in listed.named_children) if listed else None
        macro = Macro(names, line)
        found[text(name)] = macro if found.get(text(name), macro) == macro else None
    return {name: macro for name, macro in found.items() if macro is not None}


def _words_in(source: str) -> bool:
    return any(word in source for word in _WORDS)


def expanded(source: str, macros: Mapping[str, Macro]) -> str:
    """A text with these macros in their places."""
    known = {**macros, **dict.fromkeys(_LEFT_OUT, Macro(("...",), ""))}
    for _ in range(_MOST_STEPS):
        if not any(name in source for name in known):
            break
        parts, size = list[str](), 0
        for part in _pieces(source, known):
            parts.append(part)
            size += len(part)
            if size > _LONGEST:
                return source
        new = "".join(parts)
        if new == source:
            break
        source = new
    return source


def _pieces(source: str, macros: Mapping[str, Macro]) -> Iterator[str]:
    """The parts of a text, those that name a macro in its words."""
    data, start = source.encode(errors="replace"), 0
    for node in _named(parsed(source), macros):
        macro, end = macros[text(node)], node.end_byte
        if node.start_byte < start:
            continue
        given: list[str] = []
        if macro.parameters is not None:
            opened = data[end : end + _MOST_GIVEN].lstrip()[:1] == b"("
            given, end = _arguments(data, end) if opened else ([], -1)
            if end < 0:
                continue
        own = data[node.start_byte : end]
        yield data[start : node.start_byte].decode(errors="replace")
        yield _filled(macro, given) + "\n" * own.count(b"\n")
        start = end
    yield data[start:].decode(errors="replace")


def _named(root: Node, macros: Iterable[str]) -> Iterator[Node]:
    """Where one of the names stands, in order; none of where it gets its meaning."""
    left = [root]
    while left:
        node = left.pop()
        if node.type in ("preproc_def", "preproc_function_def", "preproc_call"):
            continue
        if node.type in ("preproc_ifdef", "preproc_if"):
            name = node.child_by_field_name("name")
            left += [child for child in reversed(node.children) if child != name]
            continue
        if not node.child_count and text(node) in macros:
            yield node
        left += reversed(node.children)


def _arguments(data: bytes, start: int) -> tuple[list[str], int]:
    """What stands between the commas of the brackets that open next, and where they end; -1 if they
    do not."""
    found, depth, begins = [], 0, data.index(b"(", start) + 1
    for sign in _SIGNS.finditer(data, begins - 1, begins + _MOST_GIVEN):
        place = sign.start()
        depth += (sign[0] == b"(") - (sign[0] == b")")
        if not depth or (depth == 1 and sign[0] == b","):
            found.append(data[begins:place].decode(errors="replace").strip())
            begins = place + 1
        if not depth:
            return found, begins
    return [], -1


def _filled(macro: Macro, given: list[str]) -> str:
    """The value of a macro with what it is given; parts that it joins are one word."""
    if not macro.parameters:
        return macro.value
    names = dict(zip(macro.parameters, given, strict=False))
    root, start, parts = parsed(macro.value), 0, []
    data = macro.value.encode()
    for node in every(root):
        if not node.child_count and node.type in _NAMES and text(node) in names:
            parts += [data[start : node.start_byte].decode(), names[text(node)]]
            start = node.end_byte
    words = "".join([*parts, data[start:].decode()]).split("##")
    return "".join([words[0].rstrip(), *(w.strip() for w in words[1:])]) if words[1:] else words[0]
