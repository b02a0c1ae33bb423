"""How a kernel that was not written for this tool is called: which parameter reads, which writes,
which counts, and what its template parameters get."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
    given, in the words of an entry point with `in`, `out` and `n`; `template` are its template
    arguments where nobody has said them. `other` reads a second array. One that has no pointer but
    the one it reads leaves its answer in the first element there."""

    text: str
    template: tuple[str, ...]
    read: str
    write: str
    count: str | None
    arguments: str
    other: str | None = None

    @property
    def answers_in_place(self) -> bool:
        """Whether its answer takes the place of an element."""
        return self.read == self.write


def called(path: Path, function: Function, given: str, own: Mapping[str, int]) -> Call:
    """How a kernel is called, with the template arguments that are `given`, or with the file's
    `own`, by the names of the parameters. Raises UsageError if its parameters are not
    understood."""
    pointers = [p for p in function.parameters if "*" in p]
    counts = [p for p in function.parameters if "*" not in p]
    found = _roles(pointers)
    if found is None or len(counts) > 1 or not all(_INTEGERS.match(c) for c in counts):
        raise UsageError(
            f"{path}: {function.name}({', '.join(function.parameters)}) cannot be called: a "
            "pointer to read, or two to const, a pointer to write and a count are understood; give "
            "the file a header instead"
        )
    read, write, other = found
    if given and not function.template:
        raise UsageError(f"{path}: {function.name} is no template: say --entry {function.name}")
    template = () if given else _template(path, function, own)
    text = function.name + (given or (f"<{', '.join(template)}>" if template else ""))
    types = function.template_names
    names = {write: _cast(write, "Out", types) + "out", read: _cast(read, "In", types) + "in"}
    names |= {other: _cast(other, "In", types) + "other"} if other else {}
    names |= {count: f"({type_of(count)})n" for count in counts}
    arguments = ", ".join(names[p] for p in function.parameters)
    return Call(text, template, read, write, counts[0] if counts else None, arguments, other)


def _roles(pointers: list[str]) -> tuple[str, str, str | None] | None:
    """Which pointer is read, which is written, and which reads a second array, which takes two to
    const elements of one type; None if that is not to be told."""
    const = [p for p in pointers if p.startswith("const ") or " const *" in p]
    if len(pointers) == 1 and not const:
        return pointers[0], pointers[0], None
    if len(pointers) == 2:
        return *_read_and_write(pointers, const), None
    alike = len({element_of(type_of(p)) for p in const}) == 1
    if len(pointers) == 3 and len(const) == 2 and alike:
        return const[0], next(p for p in pointers if p not in const), const[1]
    return None


def _read_and_write(pointers: list[str], const: list[str]) -> tuple[str, str]:
    """Const says which pointer is read; else a name that sounds like an output; else the order."""
    if const:
        return const[0], pointers[1 - pointers.index(const[0])]
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


def finish_of(function: Function, call: Call, again: bool) -> Finish:
    """What becomes of the partials of a kernel that is called so; `again` says that it could read
    them."""
    if call.answers_in_place:
        return "none"
    written = re.escape(name_of(call.write))
    if re.search(rf"\batomic\w+\s*\([^,;]*\b{written}\b", function.body):
        return "atomic"
    return "relaunch" if again else "host"


def _template(path: Path, function: Function, own: Mapping[str, int]) -> tuple[str, ...]:
    """Template arguments: types are the element's, block sizes the block's, others the file's own.
    Whether a size is a power of two is nothing that holds of every size."""
    arguments = []
    for parameter, name in zip(function.template, function.template_names, strict=True):
        flag = parameter.startswith("bool")
        if re.match(r"(?:typename|class)\b", parameter):
            arguments.append("In")
        elif re.search(r"item|per_?thread", name, re.IGNORECASE) and not flag:
            arguments.append("ITEMS")
        elif re.search(r"block|thread", name, re.IGNORECASE) and not flag:
            arguments.append("BLOCK")
        elif flag and (name not in own or re.search("pow", name, re.IGNORECASE)):
            arguments.append("false")
        elif name in own:
            arguments.append(f"bool({own[name]})" if flag else str(own[name]))
        elif re.search(r"per", name, re.IGNORECASE):
            arguments.append("ITEMS")
        else:
            raise UsageError(
                f"{path}: template parameter {parameter!r} of {function.name} cannot be guessed: "
                f"write the arguments, as in --entry '{function.name}<float, 256>'"
            )
    return tuple(arguments)


def name_of(parameter: str) -> str:
    """The name of a parameter."""
    return re.split(r"[\s*]+", parameter.strip())[-1]


def type_of(parameter: str) -> str:
    """The type of a parameter."""
    return parameter[: parameter.rindex(name_of(parameter))].strip()
