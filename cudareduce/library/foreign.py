"""A `.cu` file that was not written for this tool: its kernel found, and called as it stands.

The file is not changed. Its host code is left out, its `__global__` functions are compiled as
device functions, and an entry point of ours calls the one that was asked for with what its
parameters say it wants: a pointer to read, a pointer to write, a count. What was guessed is
reported; a wrong guess gives a wrong answer, which verification is there to find.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.header import BLOCKS
from cudareduce.library.kernel import Kernel
from cudareduce.problem.dtypes import DTYPES, accumulator

_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?P<name>[<"][^>"\n]+[>"])', re.MULTILINE)
_KERNEL = re.compile(
    r"(?:template\s*<(?P<template>[^<>]*)>\s*)?(?:extern\s+\"C\"\s+)?(?:static\s+|inline\s+)*"
    r"__global__\s+(?:__launch_bounds__\s*\([^()]*\)\s*)?(?:static\s+|inline\s+)*void\s+"
    r"(?:__launch_bounds__\s*\([^()]*\)\s*)?(?P<name>\w+)\s*\((?P<parameters>[^()]*)\)\s*\{"
)
_OPENS_SCOPE = re.compile(r'(?:\bnamespace\b[^;{}()]*|\bextern\s*"C"\s*)$')
_DEVICE = re.compile(r"__(?:device|global|constant)__|\b(?:constexpr|struct|class|union|enum)\b")
_TEMPLATE = re.compile(r"\btemplate\s*<[^<>]*>")
_DECLARES = re.compile(r"\b(?:using|typedef|const|static_assert|namespace)\b")
_OUTPUT_NAME = re.compile(r"^(?:[dg]_?)?(?:o|out|dst|dest|res|result|y|sum|partial)", re.IGNORECASE)
_INTEGERS = re.compile(r"^(?:const )?(?:unsigned|signed|int|long|short|size_t|u?int\d+_t|uint)\b")

#: Headers that both nvcc and the emulator have; what else a file includes served its host code.
_DEVICE_HEADERS = frozenset(
    f"<{name}>"
    for name in ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h",
                 "cooperative_groups/reduce.h", "stdint.h", "cstdint", "math.h", "cmath")
)  # fmt: skip

_ELEMENTS = {
    "float": "float32", "double": "float64", "int": "int32", "int32_t": "int32",
    "unsigned": "uint32", "unsigned int": "uint32", "uint": "uint32", "uint32_t": "uint32",
    "long long": "int64", "int64_t": "int64", "unsigned long long": "uint64", "uint64_t": "uint64",
}  # fmt: skip

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
    """What the user says of a file; None leaves it to the file's own signs."""

    entry: str | None = None
    block: int | None = None
    items: int | None = None
    grid: int | None = None
    finish: str | None = None
    shared: int | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """A kernel made from a file without a header, and what was assumed about it."""

    kernel: Kernel
    assumed: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A `__global__` function: its name, template parameters, parameters, and body."""

    name: str
    template: tuple[str, ...]
    parameters: tuple[str, ...]
    body: str


def adopt(path: Path, text: str, says: Guesses) -> Adopted:
    """A kernel from a file without a header; one that cannot be called is a UsageError."""
    device = _device_part(text, path.parent)
    found = _choose(path, _kernels(device), says.entry)
    pointers = [p for p in found.parameters if "*" in p]
    counts = [p for p in found.parameters if "*" not in p]
    if len(pointers) != 2 or len(counts) > 1 or not all(_INTEGERS.match(c) for c in counts):
        raise UsageError(
            f"{path}: {found.name}({', '.join(found.parameters)}) cannot be called: a pointer to "
            "read, a pointer to write and a count are understood; give the file a header instead"
        )
    read, write = _read_and_write(pointers)
    block = says.block or 256
    items = says.items or (2 if re.search(r"(?:blockDim\.x|\w*[bB]lock\w*)\s*\*\s*2\b",
                                          found.body) else 1)  # fmt: skip
    strides = "gridDim" in found.body
    finish = says.finish or _finish(found, write, bool(counts))
    dtypes, shared = _dtypes(found, read), says.shared
    if shared is None:
        widest = max(DTYPES[name].size for name in dtypes)
        shared = block * widest if re.search(r"\bextern\s+__shared__\b", device) else 0
    call = says.entry if says.entry and "<" in says.entry else _instance(path, found)
    names = {read: "(In *)in", write: "out"} | {count: f"({_type(count)})n" for count in counts}
    arguments = ", ".join(names[p] for p in found.parameters)
    entry = f"run_{found.name}"
    kernel = Kernel(
        id=path.stem if path.stem.isidentifier() else found.name,
        path=path,
        family="user",
        text=f'{_BEFORE}#line 1 "{path}"\n{device}'
        + _AFTER.format(entry=entry, call=call, arguments=arguments),
        title=f"{found.name} of {path.name}",
        change="",
        scope="grid",
        grid="fixed" if says.grid else "fill" if strides else "cover",
        walk="grid_stride" if strides or says.grid else "tile",
        finish=finish,
        block=block,
        blocks=(block,) if says.block else BLOCKS,
        items=items,
        fixed_grid=says.grid,
        dtypes=dtypes,
        ops=("sum", "prod", "min", "max"),
        symbol=entry,
        dynamic_shared=shared,
        whole_tiles=not counts,
    )
    counting = f"counts with {_name(counts[0])}" if counts else "takes whole tiles"
    assumed = (
        f"{path}: no header, so it is assumed that {call} reads {_name(read)}, writes "
        f"{_name(write)}, {counting}; block {block}, items {items}, "
        f"grid {kernel.fixed_grid or kernel.grid}, {shared} bytes of dynamic shared memory, "
        f"finish {finish}. Where that is wrong say so with --entry, --block, --items, --grid, "
        "--shared, --finish; where it faults, run it under compute-sanitizer"
    )
    return Adopted(kernel, assumed)


def _kernels(device: str) -> list[_Found]:
    bare = _COMMENT_OR_STRING.sub(lambda m: m[0] if m[0] == '"C"' else " ", device)
    found = []
    for match in _KERNEL.finditer(bare):
        parameters = [
            " ".join(p.replace("*", " * ").split()) for p in match["parameters"].split(",")
        ]
        template = [" ".join(p.split()) for p in (match["template"] or "").split(",")]
        end = next(_chunk_ends(bare, match.end() - 1), len(bare))
        found.append(
            _Found(match["name"], tuple(filter(None, template)), tuple(filter(None, parameters)),
                   bare[match.end() : end])
        )  # fmt: skip
    return found


def _choose(path: Path, found: list[_Found], entry: str | None) -> _Found:
    names = ", ".join(dict.fromkeys(kernel.name for kernel in found))
    if not found:
        raise UsageError(
            f"{path}: no header and no __global__ function: begin the file with a /*+++ ... +++*/ "
            "comment; `cudareduce show reduce_v0_baseline` prints an example"
        )
    wanted = entry.partition("<")[0].strip() if entry else None
    chosen = [kernel for kernel in found if wanted in (None, kernel.name)]
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


def _finish(found: _Found, write: str, counted: bool) -> str:
    if re.search(rf"\batomic\w+\s*\(\s*&?\s*{_name(write)}\b", found.body):
        return "atomic"
    return "relaunch" if counted else "host"


def _dtypes(found: _Found, read: str) -> tuple[str, ...]:
    """The element types a kernel reads: the one it names, or any where a template names it."""
    element = re.sub(r"\b(?:const|volatile|__restrict__|restrict)\b", "", _type(read))
    element = " ".join(element.replace("*", "").split())
    if any(p.split()[-1] == element for p in found.template):
        return tuple(name for name, dtype in DTYPES.items() if accumulator(dtype) == dtype)
    if element in _ELEMENTS:
        return (_ELEMENTS[element],)
    raise UsageError(f"{found.name} reads {element}, which is none of: {', '.join(_ELEMENTS)}")


def _instance(path: Path, found: _Found) -> str:
    """The call with template arguments: types are the element's, block sizes the block's."""
    arguments = []
    for parameter in found.template:
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
                f"{path}: template parameter {parameter!r} of {found.name} cannot be guessed: "
                f"write the arguments, as in --entry '{found.name}<float, 256>'"
            )
    return f"{found.name}<{', '.join(arguments)}>" if arguments else found.name


def _name(parameter: str) -> str:
    return re.split(r"[\s*]+", parameter.strip())[-1]


def _type(parameter: str) -> str:
    return parameter[: parameter.rindex(_name(parameter))].strip()


def _device_part(text: str, folder: Path) -> str:
    """The file without its host functions and host headers; every line keeps its number."""

    def include(match: re.Match[str]) -> str:
        name = match["name"]
        beside = folder / name[1:-1]
        if name.startswith('"') and beside.is_file():
            return f'#include "{beside.resolve()}"'
        return match[0] if name in _DEVICE_HEADERS else ""

    text = _INCLUDE.sub(include, text)
    masked = _blank(_COMMENT_OR_STRING, text, keep='"C"')
    masked = _blank(_DIRECTIVE, masked)
    parts, start = [], 0
    for end in _chunk_ends(masked, 0):
        chunk = masked[start:end]
        declaration = _TEMPLATE.sub("", chunk)
        keep = (
            chunk.endswith("{")
            or bool(_DEVICE.search(declaration))
            or (chunk.endswith(";") and bool(_DECLARES.search(declaration)))
        )
        own = text[start:end]
        parts.append(own if keep or not chunk.strip(" \n\t{};") else _only_directives(own, chunk))
        start = end
    return "".join(parts) + text[start:]


def _only_directives(text: str, masked: str) -> str:
    """Drop a chunk but for its line breaks and the preprocessor lines in and before it."""
    kept = [
        line if line.lstrip().startswith("#") and not seen.strip() else ""
        for line, seen in zip(text.split("\n"), masked.split("\n"), strict=True)
    ]
    return "\n".join(kept)


def _blank(pattern: re.Pattern[str], text: str, keep: str = "") -> str:
    """Replace matches by spaces of the same length, so that places stay what they are."""
    return pattern.sub(lambda m: m[0] if m[0] == keep else re.sub(r"[^\n]", " ", m[0]), text)


def _chunk_ends(masked: str, start: int) -> Iterator[int]:
    """Where each top-level declaration ends; `namespace X {` and `extern "C" {` open no level."""
    depth, begin, transparent = 0, start, 0
    for k in range(start, len(masked)):
        char = masked[k]
        if char == "{":
            if depth == 0 and _OPENS_SCOPE.search(masked[begin:k]):
                transparent += 1
                begin = k + 1
                yield begin
                continue
            depth += 1
        elif char == "}":
            if depth == 0 and transparent:
                transparent -= 1
                begin = k + 1
                yield begin
                continue
            depth -= 1
            head = masked[begin:k]
            ended_by_semicolon = re.search(r"\b(?:struct|class|union|enum)\b[^()]*\{|=\s*\{", head)
            if depth == 0 and not ended_by_semicolon:
                begin = k + 1
                yield begin
        elif char == ";" and depth == 0:
            begin = k + 1
            yield begin
