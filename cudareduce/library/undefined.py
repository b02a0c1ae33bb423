"""Names that a file of others leaves to whoever compiles it, as `nvcc -DBLOCK_SIZE=256` gives them:
what the user says of them, and what those get that are called as everybody calls them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tree_sitter import Node

from cudareduce.cuda_source import every, text
from cudareduce.errors import UsageError
from cudareduce.library.device_part import Unit

_DEFINITION = re.compile(r"([A-Za-z_]\w*)(?:=([^\n]*))?")
#: Where a name stands that is declared there, in the parser's words.
_DECLARES = ("declarator", "name")
#: What CUDA itself has.
_BUILT_IN = frozenset(["blockDim", "gridDim", "blockIdx", "threadIdx", "warpSize"])
_BLOCK, _USUAL_BLOCK = "BLOCK", "256"
#: What names of constants say of them, as `BLOCK_SIZE` and `kBlockSize` do, the first that fits.
_LIKELY = (
    (re.compile(r"WARP_?(?:SIZE|WIDTH)"), "32"),
    (re.compile(r"FULL_?(?:WARP_?)?MASK"), "0xffffffffu"),
    (re.compile(r"COARS|_PER_THREAD"), "4"),
    (re.compile(r"(?:BLOCK|TILE|TB)_?(?:SIZE|DIM|WIDTH|X$)|TPB|BDIM|"
                r"THREADS?_?(?:PER|NUM|COUNT)|(?:NUM|N)_?THREADS|^(?:K_)?(?:BS|THREADS)$"), _BLOCK),
)  # fmt: skip
#: What people call the type of their elements.
_ELEMENT = re.compile(
    r"(?:d|data|elem|element|val|value)_?(?:type|t)|(?:real|scalar|number)_?(?:type|t)",
    re.IGNORECASE,
)
#: What warps did without a mask before CUDA 9, and do with one of all lanes.
_SHUFFLES = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"])
_OF_OLD_WARPS = _SHUFFLES | {"__any", "__all", "__ballot"}
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def read_definition(written: str) -> tuple[str, str]:
    """`NAME` or `NAME=VALUE`, taken apart: 1 where no value is said, as compilers have it. A
    UsageError for what is neither."""
    found = _DEFINITION.fullmatch(written)
    if not found:
        raise UsageError(f"-D {written} is not NAME=VALUE: write as in -D BLOCK_SIZE=256")
    return found[1], "1" if found[2] is None else found[2]


def likely_values(unit: Unit, block: int | None) -> dict[str, str]:
    """What the device part of a file uses and nothing in it declares, with what it is likely to
    stand for by its name, a block of so many threads among it; nothing of which that says
    nothing."""
    found = dict[str, str]()
    for name, kind in sorted(_undeclared(unit)):
        if kind != "type_identifier":
            found[name] = likely_value(name, block)
        elif _ELEMENT.fullmatch(name):
            found[name] = "float"
    return {name: value for name, value in found.items() if value}


def of_old_warps(text: str, names: Collection[str]) -> dict[str, str]:
    """What a text has a warp do as before CUDA 9, and has no such `names` itself, with what there
    is instead: no compiler has these any more."""
    used = _OF_OLD_WARPS.intersection(re.findall(r"\b\w+(?=\s*\()", text)) - {*names}
    return {f"{name}(...)": f"{name}_sync(~0u, __VA_ARGS__)" for name in sorted(used)}


def beside_own_shuffles(names: Mapping[str, bool]) -> str:
    """C++ of what a file's own shuffles of wider types call, which have the same names; with these
    it is told which are macros."""
    own = sorted(name for name in _SHUFFLES & names.keys() if not names[name])
    return "".join(
        f"template <typename T, typename By> __device__ T {name}(T value, By by, int width = 32) "
        f"{{ return {name}_sync(~0u, value, by, width); }}\n"
        for name in own
    )


def likely_value(name: str, block: int | None) -> str:
    """What a constant stands for that is called so, in blocks of so many threads if that is said;
    empty if its name does not tell."""
    words = _CAMEL.sub("_", name).upper()
    found = next((value for pattern, value in _LIKELY if pattern.search(words)), "")
    return str(block or _USUAL_BLOCK) if found == _BLOCK else found


def _undeclared(unit: Unit) -> set[tuple[str, str]]:
    """Names of values and of types, each with which of them it is, in the parser's words."""
    used, declared = set[tuple[str, str]](), {*unit.names, *_BUILT_IN}
    for piece in unit.all():
        own = bool(piece.words & {"__device__", "__global__", "__shared__"})
        for node in every(piece.node):
            if own and node.type in ("identifier", "type_identifier") and not _is_called(node):
                used.add((text(node), node.type))
            declared |= {text(one) for field in _DECLARES
                         for one in node.children_by_field_name(field)}  # fmt: skip
            if node.type.endswith("type_parameter_declaration"):
                declared |= {text(one) for one in node.named_children}
    return {(name, kind) for name, kind in used if name not in declared}


def _is_called(node: Node) -> bool:
    above = node.parent
    return above is not None and above.child_by_field_name("function") == node
