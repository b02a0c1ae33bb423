"""A header of others with what another one beside it defines: who includes both has that before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from cudareduce.cuda_source import every, text
from cudareduce.library.branches import behind_which
from cudareduce.library.device_part import Unit, read_unit
from cudareduce.library.syntax import Piece
from cudareduce.library.undefined import likely_value, likely_values, of_old_warps

_HEADERS = frozenset([".h", ".hpp", ".cuh"])
#: More are not looked at, and none that is longer, in bytes.
_MOST_FILES, _LONGEST = 100, 2**18
#: What CUDA itself calls so: what it lacks of that is extremes of floats by atomics.
_OF_CUDA = re.compile(
    r"__\w+|atomic\w+|f?(?:min|max|abs)f?|(?:r?sqrt|exp|log|pow|sin|cos|tanh?|fma)\w?|printf|assert"
)
_OF_FLOATS = re.compile(r"\s*(?:float|double)\b")


def read_file(
    path: Path, source: str, folders: Sequence[Path], definitions: Mapping[str, str],
    block: int | None,
) -> Unit:  # fmt: skip
    """A file with its headers, behind `definitions`; one that is a header itself, and calls what
    neither has, with what one header alone beside it defines. Names that nothing defines get what
    they say, the size of a block that of the user's `block`; those that all kernels stand behind
    get 1 where they say nothing. Lines keep their numbers."""
    unit = _behind(definitions, (), path, source, folders)
    behind = sorted(behind_which(source) - unit.names.keys())
    asked = {name: likely_value(name, block) or "1" for name in behind}
    if asked:
        definitions = {**asked, **definitions}
        unit = _behind(definitions, (), path, source, folders)
    lacks = _called(unit) - unit.names.keys() if path.suffix in _HEADERS else set()
    found = [(one.path.name, _defined(one) & lacks) for one in (_beside(path) if lacks else ())]
    alone = {name for name in lacks if sum(name in known for _, known in found) == 1}
    names = tuple(header for header, known in found if known & alone)
    if names:
        unit = _behind(definitions, names, path, source, folders)
    likely = likely_values(unit, block)
    if likely:
        unit = _behind({**likely, **definitions}, names, path, source, folders)
    old = of_old_warps(source, unit.names)
    return replace(unit, siblings=names, likely={**asked, **likely, **old})


def _behind(
    definitions: Mapping[str, str], headers: Sequence[str], path: Path, source: str,
    folders: Sequence[Path],
) -> Unit:  # fmt: skip
    """A file behind definitions and headers that it does not have itself."""
    lines = [f"#define {name} {value}\n" for name, value in definitions.items()]
    lines += [f'#include "{name}"\n' for name in headers]
    seen = set[Path]()
    ahead = read_unit(path, "".join(lines), folders, seen) if lines else None
    return replace(read_unit(path, source, folders, seen, given=definitions), ahead=ahead)


def _called(unit: Unit) -> set[str]:
    """The names that are called as functions."""
    nodes = (node for piece in unit.pieces for node in every(piece.node))
    called = (n.child_by_field_name("function") for n in nodes if n.type == "call_expression")
    return {text(name) for name in called if name is not None and name.type == "identifier"}


def _beside(path: Path) -> Iterator[Unit]:
    """The headers that lie beside a file."""
    with suppress(OSError):
        found = sorted(p for p in path.resolve().parent.iterdir() if p.suffix in _HEADERS)
        for other in islice((p for p in found if p.name != path.name), _MOST_FILES):
            with suppress(OSError):
                if other.stat().st_size <= _LONGEST:
                    yield read_unit(other, other.read_text(errors="replace"), (), {path.resolve()})


def _defined(unit: Unit) -> set[str]:
    """The functions of the device that a header has, and CUDA has not."""
    return {name for piece in unit.all() if _is_its_own(piece) for name in piece.defines}


def _is_its_own(piece: Piece) -> bool:
    function = piece.function
    if function is None or not piece.words & {"__device__"}:
        return False
    extreme = function.name in ("atomicMin", "atomicMax")
    if extreme and function.parameters and _OF_FLOATS.match(function.parameters[0]):
        return True
    return not _OF_CUDA.fullmatch(function.name)
