"""A `.cu` file that was not written for this tool: its kernel found, and called as it stands.

The file is not changed. Its host code is left out, its `__global__` functions are compiled as
device functions, and an entry point of ours calls the one that was asked for with what its
parameters say it wants: a pointer to read, a pointer to write, a count. What was guessed is
reported; a wrong guess gives a wrong answer, which verification is there to find.
"""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.declared import namespaces, spelled_out, type_aliases
from cudareduce.library.device_part import COMMENT_OR_STRING, chunk_ends, device_part
from cudareduce.library.elements import read_dtypes, written_dtype
from cudareduce.library.header import BLOCKS, Finish, GridRule
from cudareduce.library.kernel import Kernel
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.sizes import counted

#: What stands before `__global__`, looked for from there in so many characters: from each word on
#: it would take time that grows with the square of their number.
_TEMPLATE = re.compile(
    r"\btemplate\s*<(?P<parameters>[^<>]*)>\s*(?:(?:extern|\"C\"|static|inline)\s*)*$"
)
_TEMPLATE_WITHIN = 1000
_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?(?:static\s+|inline\s+)*void\s+"
    r"(?:__launch_bounds__\s*\([^()]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{"
)
#: Blocks that share the input: their number multiplies or divides something. One that is only
#: compared with an arrival or a place says nothing of that.
_SHARES = re.compile(r"[*/]\s*(?:\([^()]*\)\s*)?\(*gridDim|gridDim\s*\.\s*x\s*\)*\s*[*/](?!/)")
_OUTPUT_NAME = re.compile(r"^(?:[dg]_?)?(?:o|out|dst|dest|res|result|y|sum|partial)", re.IGNORECASE)
_INTEGERS = re.compile(r"^(?:const )?(?:unsigned|signed|int|long|short|size_t|u?int\d+_t|uint)\b")

#: Bits of a count's value, by what its type says; of others they suffice for every array.
_BITS = (("short", 15), ("int16_t", 15), ("int32_t", 31), ("long", 63), ("64_t", 63),
         ("size_t", 64), ("int8_t", 7), ("", 31))  # fmt: skip

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
    """What the user says of a file: `block` threads, `items` elements a thread, `grid` blocks or a
    rule for their number, `shared` bytes of dynamic shared memory a block. None leaves it to the
    file's own signs."""

    entry: str | None = None
    block: int | None = None
    items: int | None = None
    grid: int | GridRule | None = None
    finish: Finish | None = None
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """A kernel made from a file without a header, and what was assumed about it."""

    kernel: Kernel
    assumed: str


@dataclass(frozen=True, slots=True)
class _Function:
    """A `__global__` function: its name, template parameters, parameters, and body."""

    name: str
    template: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str


def adopt(path: Path, text: str, says: Guesses) -> Adopted:
    """A kernel from the text of a file without a header.

    A UsageError if it has no `__global__` function, several and none is named, or one that cannot
    be called: its parameters, element type or template parameters are not understood.
    """
    device = device_part(text, path.parent)
    function = _choose(path, _kernels(device), says.entry)
    call = _called(path, function, says)
    block, counted = says.block or 256, call.count is not None
    doubled = re.findall(r"(?<![\w.])([\w.]+)\s*\*\s*2\b", function.body)
    twice = any("block" in name.lower() for name in doubled)
    blocks = says.grid if isinstance(says.grid, int) else None
    dtypes = read_dtypes(function.name, _type(call.read), function.template)
    partials = written_dtype(function.name, _type(call.write), function.template, dtypes)
    again = counted and partials in (None, *dtypes)  # or it could not read what it has written
    finish, shared = says.finish or _finish(function, call.write, again), says.shared
    if finish.startswith(("relaunch", "reshape")) and not again:
        raise UsageError(f"{path}: {function.name} cannot read what it writes: say --finish host")
    if shared is None:
        widest = max(DTYPES[name].size for name in dtypes)
        shared = block * widest if re.search(r"\bextern\s+__shared__\b", device) else 0
    bare_name = function.name.rpartition("::")[2]
    entry = f"run_{bare_name}"
    last = _AFTER.format(entry=entry, call=call.text, arguments=call.arguments)
    kernel = Kernel(
        id=path.stem if path.stem.isidentifier() else bare_name,
        path=path,
        family="user",
        text=f'{_BEFORE}#line 1 "{path}"\n{device}{last}',
        title=f"{function.name} of {path.name}",
        change="",
        scope="grid",
        grid="fixed" if blocks else _grid(says, function),
        walk="element",  # nothing is known of the order of its additions: the widest bound holds
        finish=finish,
        block=block,
        blocks=(block,) if says.block else BLOCKS,
        items=says.items or (2 if twice else 1),
        fixed_grid=blocks,
        dtypes=dtypes,
        ops=("sum", "prod", "min", "max"),
        symbol=entry,
        partials=partials or "of its elements",
        dynamic_shared=shared,
        whole_tiles=not counted,
        most=_most(_type(call.count)) if call.count else None,
        guessed=tuple(name for name in _OPTIONS if getattr(says, name) is None),
    )
    return Adopted(kernel, _assumption(kernel, call))


def _grid(says: Guesses, function: _Function) -> GridRule:
    """As the user says, else as the kernel's text looks."""
    if isinstance(says.grid, str):
        return says.grid
    return "fill" if _SHARES.search(function.body) else "cover"


@dataclass(frozen=True, slots=True)
class _Call:
    """The kernel with its template arguments, and which parameters read, write and count."""

    text: str
    read: str
    write: str
    count: str | None
    arguments: str


def _called(path: Path, function: _Function, says: Guesses) -> _Call:
    pointers = [p for p in function.parameters if "*" in p]
    counts = [p for p in function.parameters if "*" not in p]
    if len(pointers) != 2 or len(counts) > 1 or not all(_INTEGERS.match(c) for c in counts):
        raise UsageError(
            f"{path}: {function.name}({', '.join(function.parameters)}) cannot be called: a "
            "pointer to read, a pointer to write and a count are understood; give the file a "
            "header instead"
        )
    read, write = _read_and_write(pointers)
    given = says.entry[says.entry.index("<") :] if says.entry and "<" in says.entry else ""
    if given and not function.template:
        raise UsageError(f"{path}: {function.name} is no template: say --entry {function.name}")
    text = function.name + given if given else _instance(path, function)
    names = {read: "(In *)in", write: "out"} | {count: f"({_type(count)})n" for count in counts}
    arguments = ", ".join(names[p] for p in function.parameters)
    return _Call(text, read, write, counts[0] if counts else None, arguments)


def _assumption(kernel: Kernel, call: _Call) -> str:
    """What was guessed, and how to say it better."""
    shared = counted(int(kernel.dynamic_shared), "byte")
    counting = f"counts with {_name(call.count)}" if call.count else "takes whole tiles"
    return (
        f"{kernel.path}: no header, so it is assumed that {call.text} reads {_name(call.read)}, "
        f"writes {_name(call.write)}, {counting}; block {kernel.block}, items {kernel.items}, "
        f"grid {kernel.fixed_grid or kernel.grid}, {shared} of dynamic shared memory, "
        f"finish {kernel.finish}. Where that is wrong say so with --entry, --block, "
        "--items, --grid, --shared, --finish; where it faults, run it under compute-sanitizer"
    )


def _kernels(device: str) -> list[_Function]:
    bare = COMMENT_OR_STRING.sub(lambda m: m[0] if m[0] == '"C"' else " ", device)
    found, aliases = [], type_aliases(bare)
    matches = list(_KERNEL.finditer(bare))
    stops = [*(match.start() for match in matches[1:]), len(bare)]
    scopes = namespaces(bare, [match.start() for match in matches])
    for match, stop, scope in zip(matches, stops, scopes, strict=False):
        before = bare[max(0, match.start() - _TEMPLATE_WITHIN) : match.start()]
        head = _TEMPLATE.search(before)
        template = [" ".join(p.split()) for p in (head["parameters"] if head else "").split(",")]
        own = {parameter.split()[-1]: parameter.split()[-1] for parameter in template if parameter}
        known = ChainMap(own, aliases)
        parameters = [
            spelled_out(" ".join(p.replace("*", " * ").split()), known)
            for p in match["parameters"].split(",")
        ]
        end = next(chunk_ends(bare[:stop], match.end() - 1), stop)
        found.append(
            _Function(scope + match["name"], tuple(filter(None, template)),
                   tuple(filter(None, parameters)), bare[match.end() : end])
        )  # fmt: skip
    return found


def _choose(path: Path, found: list[_Function], entry: str | None) -> _Function:
    names = ", ".join(dict.fromkeys(kernel.name for kernel in found))
    if not found:
        raise UsageError(
            f"{path}: no header and no __global__ function: begin the file with a /*+++ ... +++*/ "
            "comment; `cudareduce show reduce_v0_baseline` prints an example"
        )
    wanted = entry.partition("<")[0].strip().removeprefix("::") if entry else None
    chosen = [
        kernel for kernel in found
        if wanted is None or f"::{kernel.name}".endswith(f"::{wanted}")
    ]  # fmt: skip
    if not chosen:
        raise UsageError(f"{path}: there is no __global__ function {wanted}; it has: {names}")
    if len({kernel.name for kernel in chosen}) > 1:
        raise UsageError(f"{path} has several kernels: choose one with --entry: {names}")
    return chosen[-1]


def _read_and_write(pointers: list[str]) -> tuple[str, str]:
    """Const says which pointer is read; else a name that sounds like an output; else the order."""
    for k, pointer in enumerate(pointers):
        if pointer.startswith("const ") or " const *" in pointer:
            return pointer, pointers[1 - k]
    if _OUTPUT_NAME.match(_name(pointers[0])) and not _OUTPUT_NAME.match(_name(pointers[1])):
        return pointers[1], pointers[0]
    return pointers[0], pointers[1]


def _most(count: str) -> int | None:
    """The most elements that a type counts; None if no array has more."""
    bits = next(bits for word, bits in _BITS if word in count)
    return None if bits > 32 else 2 ** (bits + bool(re.search(r"\bu", count))) - 1


def _finish(function: _Function, write: str, again: bool) -> Finish:
    if re.search(rf"\batomic\w+\s*\(\s*&?\s*{_name(write)}\b", function.body):
        return "atomic"
    return "relaunch" if again else "host"


def _instance(path: Path, function: _Function) -> str:
    """The call with template arguments: types are the element's, block sizes the block's."""
    arguments = []
    for parameter in function.template:
        name = parameter.split("=")[0].split()[-1]
        if re.match(r"(?:typename|class)\b", parameter):
            arguments.append("In")
        elif re.search(r"block|thread", name, re.IGNORECASE):
            arguments.append("BLOCK")
        elif parameter.startswith("bool"):
            arguments.append("false")
        elif re.search(r"item|per", name, re.IGNORECASE):
            arguments.append("ITEMS")
        else:
            raise UsageError(
                f"{path}: template parameter {parameter!r} of {function.name} cannot be guessed: "
                f"write the arguments, as in --entry '{function.name}<float, 256>'"
            )
    return f"{function.name}<{', '.join(arguments)}>" if arguments else function.name


def _name(parameter: str) -> str:
    return re.split(r"[\s*]+", parameter.strip())[-1]


def _type(parameter: str) -> str:
    return parameter[: parameter.rindex(_name(parameter))].strip()
