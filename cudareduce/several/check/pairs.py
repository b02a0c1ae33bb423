"""Kernels of another tree beside those of this one: engines of other names in the same rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.gate.bencher import Remeasured
from cudareduce.gate.looks import Measure
from cudareduce.gate.trees import base_folders
from cudareduce.library.front import CLOSES
from cudareduce.library.registry import EXCHANGES, kernels_folder
from cudareduce.results.record import Record
from cudareduce.several.exchange import Exchange, exchanges_of

#: What the name of a base's kernel ends with, beside that of this tree.
_BASE = "_base"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Engines of this tree and of the base, by collectives; what each of the base is called here;
    and the collectives and engines whose text is the same in both."""

    engines: Mapping[str, tuple[str, ...]]
    here: Mapping[str, str]
    same: frozenset[tuple[str, str]]


def heads_of(folders: Sequence[Path]) -> tuple[Path, ...]:
    """The folders of this tree: a folder of one's own is compared, and not all kernels besides."""
    return tuple(folders) or (kernels_folder() / EXCHANGES,)


def base_exchanges(base: str, heads: Sequence[Path], into: Path) -> dict[str, Exchange]:
    """The kernels of a folder or a revision, by name; this is unpacked into `into`. Raises
    UsageError."""
    found = [folder / EXCHANGES for folder in base_folders(base, heads, into)]
    return exchanges_of([folder if folder.is_dir() else folder.parent for folder in found])


def paired(here: Mapping[str, Exchange], base: Mapping[str, Exchange], twins: Path) -> Pairs:
    """Kernels of two trees, by their names; those of the base are written into `twins`, under names
    of their own."""
    engines: dict[str, tuple[str, ...]] = {}
    called: dict[str, str] = {}
    for kernel in here.values():
        engines[kernel.collective] = (*engines.get(kernel.collective, ()), engine_of(kernel))
    for kernel in base.values():
        twin = engine_of(_twin(kernel, twins))
        called[twin] = engine_of(kernel)
        engines[kernel.collective] = (*engines.get(kernel.collective, ()), twin)
    same = frozenset(
        (kernel.collective, engine_of(kernel)) for name, kernel in here.items()
        if name in base and base[name].text == kernel.text
    )  # fmt: skip
    return Pairs(engines, called, same)


def in_pairs(measure: Measure, pairs: Pairs) -> Measure:
    """Measures each record's engine beside what it was in the base, and tells them apart."""

    def measured(suspects: Sequence[Record] | None, times: int) -> Remeasured:
        return _sides(measure(suspects and _with_twins(suspects, pairs), times), pairs)

    return measured


def engine_of(kernel: Exchange) -> str:
    """What a kernel is called among engines."""
    return f"peer:{kernel.short}"


def _twin(kernel: Exchange, folder: Path) -> Exchange:
    """A kernel of the base under another name, which its text takes for the one it has."""
    name = kernel.id + _BASE
    end = kernel.text.index(CLOSES) + len(CLOSES)
    line = kernel.text.count("\n", 0, end) + 2  # the one behind the header
    renamed = f'\n#define {kernel.id} {name}\n#line {line} "{kernel.path}"\n'
    path = folder / f"{name}.cu"
    text = kernel.text[:end] + renamed + kernel.text[end:].removeprefix("\n")
    path.write_text(text)
    return replace(kernel, id=name, path=path, text=text)


def _with_twins(suspects: Sequence[Record], pairs: Pairs) -> list[Record]:
    """These records, and what each is in the base."""
    return [
        *suspects,
        *(replace(r, engine=twin) for r in suspects for twin in pairs.here
          if pairs.here[twin] == r.engine and twin in pairs.engines.get(r.kernel, ())),
    ]  # fmt: skip


def _sides(measured: Remeasured, pairs: Pairs) -> Remeasured:
    """The records of either tree, by the names of this one."""
    new = tuple(r for r in measured.new if r.engine not in pairs.here)
    codes = {(r.kernel, r.engine, r.op, r.dtype): r.cubin_sha for r in new}
    old = []
    for r in measured.new:
        name = pairs.here.get(r.engine or "")
        if name:
            same = (r.kernel, name) in pairs.same  # but for the name of its entry point
            sha = codes.get((r.kernel, name, r.op, r.dtype)) if same else r.cubin_sha
            old.append(replace(r, engine=name, cubin_sha=sha))
    return replace(measured, old=tuple(old), new=new)
