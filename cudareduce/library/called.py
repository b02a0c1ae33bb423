"""How a kernel that was not written for this tool is called: which parameter reads, which writes,
which counts, and what its template parameters get."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.elements import element_of
from cudareduce.library.header import Finish
from cudareduce.library.syntax import Function

_OUTPUT_NAME = re.compile(r"^(?:[dg]_?)?(?:o|out|dst|dest|res|result|y|sum|partial)", re.IGNORECASE)
_INTEGERS = re.compile(r"^(?:const )?(?:unsigned|signed|int|long|short|size_t|u?int\d+_t|uint)\b")
#: Bits of a count's value, by what its type says; of others they suffice for every array.
_BITS = (("short", 15), ("int16_t", 15), ("int32_t", 31), ("long", 63), ("64_t", 63),
         ("size_t", 64), ("int8_t", 7), ("", 31))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its template arguments, which parameters read, write and count, and what it is
    given, in the words of an entry point with `in`, `out` and `n`."""

    text: str
    read: str
    write: str
    count: str | None
    arguments: str


def called(path: Path, function: Function, given: str) -> Call:
    """How a kernel is called, with the template arguments that are `given`. Raises UsageError if
    its parameters are not understood."""
    pointers = [p for p in function.parameters if "*" in p]
    counts = [p for p in function.parameters if "*" not in p]
    if len(pointers) != 2 or len(counts) > 1 or not all(_INTEGERS.match(c) for c in counts):
        raise UsageError(
            f"{path}: {function.name}({', '.join(function.parameters)}) cannot be called: a "
            "pointer to read, a pointer to write and a count are understood; give the file a "
            "header instead"
        )
    read, write = _read_and_write(pointers)
    if given and not function.template:
        raise UsageError(f"{path}: {function.name} is no template: say --entry {function.name}")
    text = function.name + given if given else _instance(path, function)
    own = function.template_names
    names = {read: _cast(read, "In", own) + "in", write: _cast(write, "Out", own) + "out"}
    names |= {count: f"({type_of(count)})n" for count in counts}
    arguments = ", ".join(names[p] for p in function.parameters)
    return Call(text, read, write, counts[0] if counts else None, arguments)


def _read_and_write(pointers: list[str]) -> tuple[str, str]:
    """Const says which pointer is read; else a name that sounds like an output; else the order."""
    for k, pointer in enumerate(pointers):
        if pointer.startswith("const ") or " const *" in pointer:
            return pointer, pointers[1 - k]
    if _OUTPUT_NAME.match(name_of(pointers[0])) and not _OUTPUT_NAME.match(name_of(pointers[1])):
        return pointers[1], pointers[0]
    return pointers[0], pointers[1]


def _cast(pointer: str, element: str, template: Sequence[str]) -> str:
    """A pointer's own type, since `long` and `long long` are two even where they are as wide; of a
    template parameter it is the element's."""
    own = element_of(type_of(pointer))
    return f"({element if own in template else own} *)"


def most(count: str) -> int | None:
    """The most elements that a type counts; None if no array has more."""
    bits = next(bits for word, bits in _BITS if word in count)
    return None if bits > 32 else 2 ** (bits + bool(re.search(r"\bu", count))) - 1


def finish_of(function: Function, write: str, again: bool) -> Finish:
    """What becomes of the partials of a kernel that writes to this parameter; `again` says that it
    could read them."""
    if re.search(rf"\batomic\w+\s*\([^,;]*\b{name_of(write)}\b", function.body):
        return "atomic"
    return "relaunch" if again else "host"


def _instance(path: Path, function: Function) -> str:
    """The call with template arguments: types are the element's, block sizes the block's."""
    arguments = []
    for parameter, name in zip(function.template, function.template_names, strict=True):
        if re.match(r"(?:typename|class)\b", parameter):
            arguments.append("In")
        elif re.search(r"item|per_?thread", name, re.IGNORECASE):
            arguments.append("ITEMS")
        elif re.search(r"block|thread", name, re.IGNORECASE):
            arguments.append("BLOCK")
        elif parameter.startswith("bool"):
            arguments.append("false")
        elif re.search(r"per", name, re.IGNORECASE):
            arguments.append("ITEMS")
        else:
            raise UsageError(
                f"{path}: template parameter {parameter!r} of {function.name} cannot be guessed: "
                f"write the arguments, as in --entry '{function.name}<float, 256>'"
            )
    return f"{function.name}<{', '.join(arguments)}>" if arguments else function.name


def name_of(parameter: str) -> str:
    """The name of a parameter."""
    return re.split(r"[\s*]+", parameter.strip())[-1]


def type_of(parameter: str) -> str:
    """The type of a parameter."""
    return parameter[: parameter.rindex(name_of(parameter))].strip()
