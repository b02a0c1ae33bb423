"""What a kernel of others computes: of which types, and of what it makes of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.called import Call
from cudareduce.library.elements import NARROW, read_dtypes, why_narrow, written_dtype
from cudareduce.library.expanded import Macro, expanded
from cudareduce.library.formed import formed
from cudareduce.library.guesses import Guesses
from cudareduce.library.in_place import keeps_partials
from cudareduce.library.syntax import Function
from cudareduce.reduction.dtypes import DTYPES, only_counts
from cudareduce.reduction.operators import Map
from cudareduce.reduction.sizes import counted

#: What is made of two arrays where nobody says.
_DOT = Map("a * b", 2)
#: What is left of it in a version of a kernel that does not read the second.
_FIRST, _SOME_VERSIONS = Map("a", 2), re.compile(r"\bif\s+constexpr\b")
#: What makes a map one that counts: integers hold no other of floats.
_COMPARES = re.compile(r"[<>]|[=!]=")


def computes(
    path: Path, function: Function, call: Call, says: Guesses, formulas: Mapping[str, Macro],
    finds: Sequence[str],
) -> tuple[tuple[str, ...], str | None, Map | None, tuple[Map, ...]]:  # fmt: skip
    """The types that a kernel reads, that of its partials, and what it makes of elements, with the
    `formulas` of its file: what is assumed, and what else it may be. One that `finds` places, by
    these operators, writes no partials."""
    dtypes = read_dtypes(function.name, call.read.type, function.template_names)
    if finds:
        return dtypes, None, says.map, ()
    kind = call.write.type
    partials = written_dtype(function.name, kind, function.template_names, dtypes)
    maps = _maps_formed(function, call, formulas, dtypes, partials)
    mapped = _map(path, function, call, says)
    if only_counts(DTYPES[dtypes[0]], DTYPES[partials or dtypes[0]]) and not says.map:
        counting = [one for one in maps if _COMPARES.search(one.expression)]
        if not counting:
            raise UsageError(why_narrow(function.name, kind, dtypes[0]))
        mapped, maps = counting[0], tuple(counting[1:])
    if partials in NARROW and (says.finish or call.finish) not in ("atomic", "none"):
        raise UsageError(why_narrow(function.name, kind, dtypes[0]))
    return dtypes, partials, mapped, maps


def _map(path: Path, function: Function, call: Call, says: Guesses) -> Map | None:
    """What a kernel makes of elements, as the user says it, else the product of two arrays. Raises
    UsageError where that takes another number of arrays, or a launch is asked for that cannot
    be."""
    mapped = says.map or (_DOT if call.other else None)
    mapped = replace(mapped, one_row=call.one_row) if mapped else None
    reads = 2 if call.other else 1
    if mapped and mapped.inputs != reads:
        raise UsageError(
            f"{path}: {call.text} reads {counted(reads, 'array')}, and --map {mapped.expression!r} "
            f"takes {mapped.inputs}: say another --map, or --entry another kernel"
        )
    if call.answers_in_place and keeps_partials(function.body, call.read.name):
        raise UsageError(
            f"{path}: {call.text} leaves a partial of each block in its input, which is not "
            "understood: let it write them to a second pointer, or give the file a header"
        )
    if call.answers_in_place and (says.grid or says.finish):
        raise UsageError(
            f"{path}: {call.text} leaves its answer in its input, so one block is all that it is "
            "launched with: leave out --grid and --finish"
        )
    return mapped


def _maps_formed(
    function: Function, call: Call, formulas: Mapping[str, Macro], dtypes: Sequence[str],
    partials: str | None,
) -> tuple[Map, ...]:  # fmt: skip
    """What a kernel may make of elements instead, as its text forms it, with the formulas of its
    file."""
    read, written = DTYPES[dtypes[0]], DTYPES.get(partials or "", DTYPES[dtypes[0]])
    narrow = len(dtypes) == 1 and read.kind == written.kind == "int" and read.size < written.size
    pairs = (words.partition("=") for words in call.said)
    known = {
        name: value for name, _, value in pairs if value.replace(".", "").rstrip("f").isdigit()
    }
    other = call.other.name if call.other else ""
    count = call.count.name if call.count else ""
    body = expanded(function.body, formulas)
    maps = formed(body, call.read.name, other, known, read.cpp if narrow else "", count)
    return (*maps, _FIRST) if other and _SOME_VERSIONS.search(body) else maps
