"""Which kernels of a file without a header are rows: those that are named, or all that look as if
they reduced, those in chains together."""

from __future__ import annotations

import re
from collections import ChainMap, Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from cudareduce.cuda_source import text
from cudareduce.errors import UsageError
from cudareduce.library.called import Call, called
from cudareduce.library.chains import Places, links_of, own_chains
from cudareduce.library.declared import spelled_out, type_aliases
from cudareduce.library.device_part import Unit
from cudareduce.library.elements import known_element
from cudareduce.library.host_code import HostCall, HostCode, of_kernel
from cudareduce.library.outside import outside
from cudareduce.library.own_values import own_numbers, own_template
from cudareduce.library.scopes import Constants
from cudareduce.library.syntax import Function

#: Kernels with the template arguments that are given: one, or a chain of several.
Row = list[tuple[Function, str]]

#: Kernels that reduce nothing, as people call them.
_PREPARES = re.compile(
    r"(?:^|[_:])(?:init|fill|warm|memset|copy|generate|rand|empty)", re.IGNORECASE
)


def _kernels(unit: Unit, file: Constants) -> list[Function]:
    """The kernels of a file, with the types of their parameters in words that are known; those that
    share a name are told apart by how many they take."""
    aliases, found = type_aliases(unit.all()), []
    for function in unit.kernels():
        known = ChainMap({name: name for name in function.template_names}, aliases)
        parameters = tuple(spelled_out(p, known) for p in function.parameters)
        found.append(
            replace(function, parameters=parameters, outside=outside(unit.all(), file, function))
        )
    counts: dict[str, list[int]] = {}
    for one in found:
        lengths = counts.setdefault(one.name, [])
        lengths += [len(one.parameters)] if len(one.parameters) not in lengths else []
    return [
        replace(one, nth=counts[one.name].index(len(one.parameters)) + 1)
        if len(counts[one.name]) > 1 else one
        for one in found
    ]  # fmt: skip


def rows(
    unit: Unit, host: HostCode, entries: Sequence[str], named_chains: Sequence[str]
) -> Iterator[Row]:
    """The kernels that are named, in chains and alone; without a name the chains that the file
    launches itself, and what is in none of them. Raises UsageError for a name that is none."""
    path, found = unit.path, _kernels(unit, host.constants)
    if unit.hides:
        raise UsageError(
            f"{path}: its own conditions (#if, #ifdef) leave out every __global__ function: define "
            "what one of them asks for at its top"
        )
    if entries or named_chains:
        for words in named_chains:
            yield _choose(path, found, links_of(path, words))
        yield from ([one] for one in (_choose(path, found, entries) if entries else ()))
        return
    chosen = {function.label: (function, given) for function, given in _choose(path, found, ())}
    chains = own_chains(host.calls, _places(path, host, found))
    by_name = {name.rpartition("::")[2]: name for name in chosen}
    linking = [[by_name[name] for name in chain] for chain in chains if {*chain} <= by_name.keys()]
    linked = {name for row in linking for name in row}
    for name, one in chosen.items():
        yield from ([chosen[link] for link in row] for row in linking if row[0] == name)
        if name not in linked:
            function, given = one
            own = [given] if given else _instances(path, host, function)
            yield from ([(function, arguments)] for arguments in own)


def set_aside(unit: Unit, host: HostCode, taken: Collection[str]) -> list[str]:
    """What is said of kernels that could be called as reductions are, and are not among the entry
    points that are taken, for their names."""
    names = (
        function.label for function in _kernels(unit, host.constants)
        if _PREPARES.search(function.label) and _understood(unit.path, function, "", {})
    )  # fmt: skip
    said = "left out by its name, and --entry"
    return [f"{unit.path}: {n}: {said} {n} takes it" for n in names if f"run_{n}" not in taken]


def _instances(path: Path, host: HostCode, function: Function) -> list[str]:
    """The template arguments of rows of their own: those of all launches, where they tell what
    nothing else does and are not the same; else none are given."""
    launches = of_kernel(host, function, "")
    given = {call.given: call for call in launches if _is_written_out(call)}
    if len(given) < 2:
        return [""]
    alone = (
        _understood(path, function, "", own_numbers([one], function)) for one in given.values()
    )
    alike = len({call and call.template for call in alone}) == 1
    if alike and _understood(path, function, "", own_template(launches, function)):
        return [""]
    each = all(_understood(path, function, arguments, {}) for arguments in given)
    return list(given) if each else [""]


def _understood(path: Path, function: Function, given: str, own: Mapping[str, int]) -> Call | None:
    """How a kernel is called; None where that is not understood."""
    with suppress(UsageError):
        return called(path, function, given, own)
    return None


def _is_written_out(call: HostCall) -> bool:
    """Whether all that a launch gives a template are numbers and types of elements."""
    return bool(call.template) and all(
        text(one).isdigit() or text(one) in ("true", "false") or known_element(text(one))
        for one in call.template
    )


def _places(path: Path, host: HostCode, found: list[Function]) -> Places:
    """Where the kernels that can be called read and write."""
    places = {}
    for function in found:
        own = own_template(of_kernel(host, function, ""), function)
        call = _understood(path, function, "", own)
        if call is None:
            continue
        read, write, _ = call.places
        if write is not None:
            places[function.name.rpartition("::")[2]] = read, write, len(function.parameters)
    return places


def _choose(
    path: Path, found: list[Function], entries: Sequence[str]
) -> list[tuple[Function, str]]:
    """The kernels that are named, or all but those that only prepare something, each once, with
    the template arguments that are given; of those that take as many parameters it is the last."""
    by_name = {kernel.label: kernel for kernel in found}
    if not found:
        raise UsageError(
            f"{path}: no header and no __global__ function: begin the file with a /*+++ ... +++*/ "
            "comment; `cudareduce show reduce_v0_baseline` prints an example"
        )
    if not entries:
        at_work = [kernel for name, kernel in by_name.items() if not _PREPARES.search(name)]
        return [(kernel, "") for kernel in at_work or by_name.values()]
    chosen = []
    for entry in entries:
        name, angle, arguments = entry.partition("<")
        wanted = name.strip().removeprefix("::")
        fitting = [full for full in by_name if f"::{full}".endswith(f"::{wanted}")]
        if not fitting:
            names = ", ".join(by_name)
            raise UsageError(f"{path}: there is no __global__ function {wanted}; it has: {names}")
        if len(fitting) > 1:
            raise UsageError(f"{path}: --entry {wanted} is one of {', '.join(fitting)}: say which")
        chosen.append((by_name[fitting[0]], angle + arguments))
    return chosen


def overloads(unit: Unit, entries: Iterable[str]) -> Iterator[str]:
    """What is said of kernels that share a name and take as many parameters, of which the last one
    counts, where it is among these entry points."""
    several = Counter((one.name, len(one.parameters)) for one in unit.kernels())
    called = {f"run_{n.rpartition('::')[2]}": n for (n, _), count in several.items() if count > 1}
    for entry in dict.fromkeys(entries):
        if entry in called:
            yield (
                f"{unit.path}: several of its kernels are called {called[entry]}, of which the "
                "last one is taken: give the others names of their own"
            )
