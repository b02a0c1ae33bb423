"""A `.cu` file that was not written for this tool: its kernel found, and called as it stands.

The file is not changed. Its host code is left out, its `__global__` functions are compiled as
device functions, and an entry point of ours calls the one that was asked for with what its
parameters say it wants: a pointer to read, a pointer to write, a count. What was guessed is
reported; a wrong guess gives a wrong answer, which verification is there to find.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.arguments import Said
from cudareduce.library.called import Call, called, check, most
from cudareduce.library.declared import spelled_out, type_aliases
from cudareduce.library.device_part import Unit, device_part, read_unit
from cudareduce.library.elements import read_dtypes, written_dtype
from cudareduce.library.header import BLOCKS, Finish, Grid, GridRule
from cudareduce.library.kernel import EXTERN_SHARED, Adopt, Kernel
from cudareduce.library.syntax import Function, names_in
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.sizes import counted

#: Blocks that share the input: their number multiplies or divides something. One that is only
#: compared with an arrival or a place says nothing of that.
_SHARES = re.compile(r"[*/]\s*(?:\([^()]*\)\s*)?\(*gridDim|gridDim\s*\.\s*x\s*\)*\s*[*/](?!/)")


#: Kernels that keep an extreme, as people call them; argmax and softmax are something else.
_EXTREMES = {
    "max": re.compile(r"(?<![a-z])(?:max|largest)|(?<![Ss]oft)(?<![Aa]rg)(?:Max|Largest)"),
    "min": re.compile(r"(?:(?<![a-z])(?:min|smallest)|(?<![Aa]rg)(?:Min|Smallest))(?!us|max|Max)"),
}
#: Kernels that reduce nothing, as people call them.
_PREPARES = re.compile(
    r"(?:^|[_:])(?:init|fill|warm|memset|copy|generate|rand|empty)", re.IGNORECASE
)

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
extern "C" __global__ void {entry}(const In *in, Out *out, {takes})
{{
    {call}({arguments});
}}
"""


@dataclass(frozen=True, slots=True)
class Guesses:
    """What the user says of a file: the `entries` that are its kernels, `block` threads, `items`
    elements a thread, `grid` blocks or a rule for their number, `shared` bytes of dynamic shared
    memory a block; `arguments` are what its parameters get. None leaves it to the
    file's own signs."""

    entries: tuple[str, ...] = ()
    block: int | None = None
    items: int | None = None
    grid: int | GridRule | None = None
    finish: Finish | None = None
    shared: int | None = None
    arguments: tuple[Said, ...] = ()


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
    chosen = _choose(path, _kernels(unit), says.entries)
    check(path, [function for function, _ in chosen], says.arguments)
    kernels, said, refused = [], [], []
    for function, entry in chosen:
        try:
            kernel, assumed = _adopted(unit, function, entry, says, alone=len(chosen) == 1)
        except UsageError as error:
            refused.append(str(error))
            continue
        kernels.append(kernel)
        said.append(assumed)
    if refused and (says.entries or not kernels):
        raise UsageError(
            "; ".join([refused[0], *(w.removeprefix(f"{path}: ") for w in refused[1:])])
        )
    return Adopted(tuple(kernels), (*said, *(f"{words}: left out" for words in refused)))


def _adopted(
    unit: Unit, function: Function, given: str, says: Guesses, *, alone: bool
) -> tuple[Kernel, str]:
    """A kernel and what was assumed about it; one that is `alone` has the name of its file."""
    path = unit.path
    call = called(path, function, given, says.arguments)
    block = says.block or 256
    doubled = re.findall(r"(?<![\w.])([\w.]+)\s*\*\s*2\b", function.body)
    twice = any("block" in name.lower() for name in doubled)
    blocks = says.grid if isinstance(says.grid, int) else None
    template = function.template_names
    dtypes = read_dtypes(function.name, call.read.type, template)
    partials = written_dtype(function.name, call.write.type, template, dtypes)
    again = call.counted and not call.rows and partials in (None, *dtypes)  # it can read them
    finish = says.finish or call.finish or ("relaunch" if again else "host")
    shared = says.shared
    if finish.startswith(("relaunch", "reshape")) and not again:
        raise UsageError(f"{path}: {function.name} cannot read what it writes: say --finish host")
    device = device_part(unit, function.name, names_in(f"int x = {call.text}({call.arguments});"))
    if shared is None:
        widest = max(DTYPES[name].size for name in dtypes)
        shared = block * widest if EXTERN_SHARED.search(device) else 0
    entry = f"run_{function.name.rpartition('::')[2]}"
    last = _AFTER.format(entry=entry, takes=call.takes, call=call.text, arguments=call.arguments)
    kernel = Kernel(
        id=path.stem if alone and path.stem.isidentifier() else function.name,
        path=path,
        family="user",
        text=f'{_BEFORE}#line 1 "{path}"\n{device}{last}',
        title=f"{function.name} of {path.name}",
        change="",
        scope="rows" if call.rows else "grid",
        grid="fixed" if blocks else _grid(says, function, call),
        walk="element",  # nothing is known of the order of its additions: the widest bound holds
        finish=finish,
        block=block,
        blocks=(block,) if says.block else BLOCKS,
        items=says.items or (2 if twice else 1),
        fixed_grid=blocks,
        dtypes=dtypes,
        ops=_ops(function),
        symbol=entry,
        partials=partials or "of its elements",
        dynamic_shared=shared,
        rooms=call.rooms,
        whole_tiles=not call.counted,
        most=most(call.count.type) if call.count else None,
        guessed=_guessed(says, call),
    )
    return kernel, _assumption(kernel, call, unit.missing)


def _guessed(says: Guesses, call: Call) -> tuple[str, ...]:
    """The options that nobody has said anything with, as far as they matter."""
    names = tuple(name for name in _OPTIONS if getattr(says, name) is None)
    return (*names, "arg") if call.said and not says.arguments else names


def _ops(function: Function) -> tuple[str, ...]:
    """What a kernel may reduce by: what its name says, or else what people write most."""
    named = [op for op, name in _EXTREMES.items() if name.search(function.name)]
    plain = len(named) != 1 or re.search("sum|add", function.name, re.IGNORECASE)
    return ("sum", "prod", "min", "max") if plain else tuple(named)


def _grid(says: Guesses, function: Function, call: Call) -> Grid:
    """As the user says, else as the kernel's text looks."""
    if isinstance(says.grid, str):
        return says.grid
    if call.rows or call.alone:
        return call.rows or "one"
    if not (_SHARES.search(function.body) or "this_grid" in function.body):
        return "cover"
    return "per_sm" if call.waits else "fill"


def _assumption(kernel: Kernel, call: Call, missing: Sequence[str]) -> str:
    """What was guessed, and how to say it better."""
    shared = counted(int(kernel.dynamic_shared), "byte")
    counting = f"counts with {call.count.name}" if call.count else "takes whole tiles"
    counting = ", ".join([counting + " the elements of a row" * bool(call.rows), *call.said])
    by = f", by {kernel.ops[0]}" if len(kernel.ops) == 1 else ""
    are = "is" if len(missing) == 1 else "are"
    without = f"; {', '.join(missing)} {are} nowhere beside it and left out" if missing else ""
    return (
        f"{kernel.path}: no header, so it is assumed that {call.text} reads {call.read.name}, "
        f"writes {call.write.name}, {counting}; block {kernel.block}, items {kernel.items}, "
        f"grid {kernel.fixed_grid or kernel.grid}, {shared} of dynamic shared memory, "
        f"finish {kernel.finish}{by}{without}. Where that is wrong say so with --entry, --block, "
        "--items, --grid, --shared, --finish, --arg; where it faults, run it under "
        "compute-sanitizer"
    )


def _kernels(unit: Unit) -> list[Function]:
    """The kernels of a file, with the types of their parameters in words that are known."""
    aliases, found = type_aliases(unit.all()), []
    for function in unit.kernels():
        known = ChainMap({name: name for name in function.template_names}, aliases)
        parameters = tuple(spelled_out(p, known) for p in function.parameters)
        found.append(replace(function, parameters=parameters))
    return found


def _choose(
    path: Path, found: list[Function], entries: Sequence[str]
) -> list[tuple[Function, str]]:
    """The kernels that are named, or all but those that only prepare something, each once, with
    the template arguments that are given; of overloads it is the last."""
    by_name = {kernel.name: kernel for kernel in found}
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
