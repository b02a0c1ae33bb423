"""A `.cu` file that was not written for this tool: its kernel found, and called as it stands.

The file is not changed. Its host code is left out, its `__global__` functions are compiled as
device functions, and an entry point of ours calls the one that was asked for with what its
parameters say it wants: a pointer to read, a pointer to write, a count. What was guessed is
reported; a wrong guess gives a wrong answer, which verification is there to find.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.called import Call, called, finish_of, most, name_of, type_of
from cudareduce.library.chains import joined
from cudareduce.library.chosen import Row, rows
from cudareduce.library.device_part import Unit, device_part, read_unit
from cudareduce.library.elements import read_dtypes, written_dtype
from cudareduce.library.header import BLOCKS, Finish, GridRule
from cudareduce.library.host_code import HostCode, host_code, of_kernel
from cudareduce.library.kernel import EXTERN_SHARED, Adopt, Kernel
from cudareduce.library.launch_guess import guessed_launch, looks_of, said_by_file
from cudareduce.library.own_launch import Said, own_template
from cudareduce.library.syntax import Function
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.sizes import counted

#: Kernels that keep an extreme, as people call them; argmax and softmax are something else.
_EXTREMES = {
    "max": re.compile(r"(?<![a-z])(?:max|largest)|(?<![Ss]oft)(?<![Aa]rg)(?:Max|Largest)"),
    "min": re.compile(r"(?:(?<![a-z])(?:min|smallest)|(?<![Aa]rg)(?:Min|Smallest))(?!us|max|Max)"),
}
#: What of a launch the user may say, as `Guesses` calls it.
_OPTIONS = ("block", "items", "grid", "shared", "finish")

_BEFORE = """#pragma push_macro("__global__")
#pragma push_macro("__launch_bounds__")
#undef __global__
#undef __launch_bounds__
#define __global__ __device__
#define __launch_bounds__(...)
"""
_AFTER = """
#pragma pop_macro("__launch_bounds__")
#pragma pop_macro("__global__")
#line 1 "<entry point>"
extern "C" __global__ void {entry}(const In *in, Out *out, size_t n)
{{
    {call}({arguments});
}}
"""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What the user says of a file: the `entries` that are its kernels, `chains` of
    them with commas, `block` threads, `items`
    elements a thread, `grid` blocks or a rule for their number, `shared` bytes of dynamic shared
    memory a block. None leaves it to the file's own signs."""

    entries: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    block: int | None = None
    items: int | None = None
    grid: int | GridRule | None = None
    finish: Finish | None = None
    shared: int | None = None

    @property
    def launch(self) -> Said:
        """What of it is said of a launch."""
        return Said(
            block=self.block, items=self.items, grid=self.grid, exactly=True, shared=self.shared
        )


@dataclass(frozen=True, slots=True)
class Adopted:
    """The kernels made from a file without a header, and in a line each what was assumed about
    them and which were left out."""

    kernels: tuple[Kernel, ...]
    said: tuple[str, ...]


def adopting(says: Guesses, tell: Callable[[str], None]) -> Adopt:
    """What makes kernels of files without a header by these guesses, and tells what it assumes."""

    def take(path: Path, text: str) -> Sequence[Kernel]:
        adopted = adopt(path, text, says)
        for words in adopted.said:
            tell(words)
        return adopted.kernels

    return take


def adopt(path: Path, text: str, says: Guesses) -> Adopted:
    """The kernels of a file without a header: those that are named, or all that can be called.

    A UsageError if it has no `__global__` function, or none that can be called: its parameters,
    element type or template parameters are not understood.
    """
    unit = read_unit(path, text)
    host = host_code(unit.all())
    left = deque(rows(unit, host, says.entries, says.chains))
    alone, named = len(left) == 1, says.entries or says.chains
    kernels: list[Kernel] = []
    said: list[str] = []
    refused: list[str] = []
    while left:
        row = left.popleft()
        try:
            kernel, assumed = _row(unit, host, row, says, alone=alone)
        except UsageError as error:
            if len(row) > 1 and not named:
                left.extendleft([link] for link in reversed(row))
            else:
                refused.append(str(error))
            continue
        kernels.append(kernel)
        said += assumed
    if refused and (named or not kernels):
        raise UsageError(
            "; ".join([refused[0], *(w.removeprefix(f"{path}: ") for w in refused[1:])])
        )
    return Adopted(tuple(kernels), (*said, *(f"{words}: left out" for words in refused)))


def _row(
    unit: Unit, host: HostCode, row: Row, says: Guesses, *, alone: bool
) -> tuple[Kernel, list[str]]:
    """A kernel, or several in a chain, and what was assumed; one that is `alone` has the name of
    its file."""
    if len(row) == 1:
        kernel, assumed = _adopted(unit, host, *row[0], says, (), alone=alone)
        return kernel, [assumed]
    names = [function.name for function, _ in row]
    links, told = [], []
    for k, (function, given) in enumerate(row):
        own = replace(says, finish=None) if k < len(row) - 1 else says
        if k:
            own = replace(own, block=None, items=None, grid=None, shared=None)
        link, assumed = _adopted(unit, host, function, given, own, names[k + 1 :], alone=False)
        links.append(link)
        told.append(assumed)
    kernel = joined(unit.path, links)
    order = " and then ".join(names)
    return kernel, [*told, f"{unit.path}: {order} are one row, {kernel.id}: each reads what the "
                    "one before has written; --entry takes them apart"]  # fmt: skip


def _adopted(
    unit: Unit, host: HostCode, function: Function, given: str, says: Guesses,
    later: Sequence[str], *, alone: bool,
) -> tuple[Kernel, str]:  # fmt: skip
    """A kernel and what was assumed about it; kernels `later` go on with what it leaves."""
    path = unit.path
    known = own_template(of_kernel(host, function, given), function)
    call, template = called(path, function, given, known), function.template_names
    dtypes = read_dtypes(function.name, type_of(call.read), template)
    partials = written_dtype(function.name, type_of(call.write), template, dtypes)
    again = call.count is not None and partials in (None, *dtypes)
    finish = says.finish or finish_of(function, call.write, again)
    if finish.startswith(("relaunch", "reshape")) and not again:  # what it has written
        raise UsageError(f"{path}: {function.name} cannot read what it writes: say --finish host")
    device = device_part(unit, function.name)
    sizes = [DTYPES[name].size for name in dtypes]
    own = said_by_file(
        unit, host, function, call, later, given=given, block=says.block, widest=max(sizes)
    )
    unsized = EXTERN_SHARED.search(device)
    launch = guessed_launch(says.launch, own, looks_of(function), sizes if unsized else ())
    entry = f"run_{function.name.rpartition('::')[2]}"
    last = _AFTER.format(entry=entry, call=call.text, arguments=call.arguments)
    kernel = Kernel(
        id=path.stem if alone and path.stem.isidentifier() else function.name,
        path=path,
        family="user",
        text=f'{_BEFORE}#line 1 "{path}"\n{device}{last}',
        title=f"{function.name} of {path.name}",
        change="",
        scope="grid",
        grid=launch.grid,
        walk="element",  # nothing is known of the order of its additions: the widest bound holds
        finish=finish,
        block=launch.block,
        blocks=BLOCKS if launch.block in BLOCKS and not says.block else (launch.block,),
        items=launch.items,
        fixed_grid=launch.fixed_grid,
        exactly=launch.exactly,
        dtypes=dtypes,
        ops=_ops(function),
        symbol=entry,
        partials=partials or "of its elements",
        dynamic_shared=launch.shared,
        whole_tiles=call.count is None,
        most=most(type_of(call.count)) if call.count else None,
        guessed=tuple(name for name in _OPTIONS if getattr(says, name) is None),
    )
    then = f"then {later[0]}" if later else f"finish {finish}"
    return kernel, _assumption(kernel, call, launch.known_from, then, unit.missing)


def _ops(function: Function) -> tuple[str, ...]:
    """What a kernel may reduce by: what its name says, or else what people write most."""
    named = [op for op, name in _EXTREMES.items() if name.search(function.name)]
    plain = len(named) != 1 or re.search("sum|add", function.name, re.IGNORECASE)
    return ("sum", "prod", "min", "max") if plain else tuple(named)


def _assumption(
    kernel: Kernel, call: Call, known_from: str, then: str, missing: Sequence[str]
) -> str:
    """What was guessed, and how to say it better."""
    shared = counted(int(kernel.dynamic_shared), "byte")
    counting = f"counts with {name_of(call.count)}" if call.count else "takes whole tiles"
    by = f", by {kernel.ops[0]}" if len(kernel.ops) == 1 else ""
    are = "is" if len(missing) == 1 else "are"
    without = f"; {', '.join(missing)} {are} nowhere beside it and left out" if missing else ""
    return (
        f"{kernel.path}: no header, so it is assumed that {call.text} reads {name_of(call.read)}, "
        f"writes {name_of(call.write)}, {counting}; block {kernel.block}, items {kernel.items}, "
        f"grid {kernel.fixed_grid or kernel.grid}, {shared} of dynamic shared "
        f"memory{known_from}, {then}{by}{without}. Where that is wrong say so with "
        "--entry, --block, --items, --grid, --shared, --finish; where it faults, run it under "
        "compute-sanitizer"
    )
