"""Names that a file of others leaves to whoever compiles it, as `nvcc -DBLOCK_SIZE=256` gives them:
what the user says of them, and what those get that are called as everybody calls them."""

from __future__ import annotations

import re

from cudareduce.errors import UsageError
from cudareduce.library.device_part import Unit
from cudareduce.problem.parsing import every, text

_DEFINITION = re.compile(r"([A-Za-z_]\w*)(?:=([^\n]*))?")
_CONSTANT = re.compile(r"[A-Z_][A-Z0-9_]*")
#: Where a name stands that is declared there, in the parser's words.
_DECLARES = ("declarator", "name")
_BLOCK = 256
#: What names of constants say of them, the first that fits.
_LIKELY = (
    (re.compile(r"WARP_?(?:SIZE|WIDTH)"), "32"),
    (re.compile(r"FULL_?(?:WARP_?)?MASK"), "0xffffffffu"),
    (re.compile(r"COARS|_PER_THREAD|ITEMS"), "4"),
    (re.compile(r"(?:BLOCK|TILE|TB)_?(?:SIZE|DIM|WIDTH|X$)|TPB|BDIM|"
                r"THREADS?_?(?:PER|NUM|COUNT)|(?:NUM|N)_?THREADS"), str(_BLOCK)),
)  # fmt: skip


def read_definition(written: str) -> tuple[str, str]:
    """`NAME` or `NAME=VALUE`, taken apart: 1 where no value is said, as compilers have it. A
    UsageError for what is neither."""
    found = _DEFINITION.fullmatch(written)
    if not found:
        raise UsageError(f"-D {written} is not NAME=VALUE: write as in -D BLOCK_SIZE=256")
    return found[1], "1" if found[2] is None else found[2]


def likely_values(unit: Unit) -> dict[str, str]:
    """Constants that the device part of a file uses and nothing in it defines, with what their
    names say that they are; none of those of which they say nothing."""
    return {
        name: value
        for name in sorted(undefined(unit))
        if (value := next((what for words, what in _LIKELY if words.search(name)), None))
    }


def undefined(unit: Unit) -> set[str]:
    """Names in capitals that the device part of a file uses and nothing in it declares, those of
    the compiler's own headers among them."""
    used, declared = set[str](), set(unit.names)
    for piece in unit.all():
        own = bool(piece.words & {"__device__", "__global__", "__shared__"})
        for node in every(piece.node):
            if own and node.type == "identifier" and _CONSTANT.fullmatch(text(node)):
                used.add(text(node))
            declared |= {text(one) for field in _DECLARES
                         for one in node.children_by_field_name(field)}  # fmt: skip
    return used - declared
