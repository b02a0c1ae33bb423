"""What a `.cu` file declares, as far as its text tells: other names of types, and namespaces."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

#: No pointers and no templates: these would not be the type of an element or a count. Nor has one
#: more words, among which an end would be looked for from each.
_ALIAS = re.compile(
    r"\btypedef\s+(?P<old>[\w:]+(?:\s+[\w:]+){0,3}?)\s+(?P<new>\w+)\s*;"
    r"|\busing\s+(?P<used>\w+)\s*=\s*(?P<type>[\w:]+(?:\s+[\w:]+){0,3})\s*;"
    r"|^[ \t]*#[ \t]*define[ \t]+(?P<macro>\w+)[ \t]+"
    r"(?P<text>[A-Za-z_]\w*(?:[ \t]+[A-Za-z_]\w*){0,3})[ \t]*$",
    re.MULTILINE,
)
_WORD = re.compile(r"(?<![\w:])(?:\w+::)*(?P<last>[A-Za-z_]\w*)")
_NAME = re.compile(r"\b\w+$")
_NAMESPACE = re.compile(r"\bnamespace\s+(?P<name>[\w:]+)\s*$")
#: An alias may be of an alias, and so on; in a circle that has no end.
_MOST_STEPS = 4


def type_aliases(bare: str) -> dict[str, str]:
    """What other names of types stand for, by the names, in a text without comments; of several
    that bear one name it is the last."""
    found: dict[str, str] = {}
    for match in _ALIAS.finditer(bare):
        name = match["new"] or match["used"] or match["macro"]
        found[name] = " ".join((match["old"] or match["type"] or match["text"]).split())
    return found


def spelled_out(parameter: str, aliases: Mapping[str, str]) -> str:
    """A parameter of a function with its type in the words that its other names stand for."""
    name = _NAME.search(parameter)
    kind, own = (parameter, "") if name is None else (parameter[: name.start()], name[0])
    for _ in range(_MOST_STEPS):
        kind = _WORD.sub(
            lambda word: aliases.get(word["last"], word[0].removeprefix("std::")), kind
        )
    return kind + own


def namespaces(bare: str, places: Sequence[int]) -> list[str]:
    """The namespaces that each of several places lies in, as `one::two::`, in a text without
    comments; the places are in order, and namespaces without a name are not named."""
    found: list[str] = []
    inside: list[str] = []
    begin = 0
    for end in re.finditer(r"[{};]|\Z", bare):
        while len(found) < len(places) and places[len(found)] < end.end():
            found.append("".join(inside))
        if end[0] == "{":
            opened = _NAMESPACE.search(bare, begin, end.start())
            inside.append(f"{opened['name']}::" if opened else "")
        elif end[0] == "}" and inside:
            inside.pop()
        begin = end.end()
    return found
