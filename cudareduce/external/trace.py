"""Parse the log of a recorded host program into steps and buffers. No I/O."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cudareduce.external.recording import (
    Argument,
    CopyIn,
    CopyOut,
    CopyWithin,
    DeviceBuffer,
    Dim3,
    Fill,
    Launch,
    LibraryCall,
    Pointer,
    Scalar,
    Step,
)
from cudareduce.external.roles import element_type, scalar_size

_MANAGED, _SYMBOLS, _VARIABLE = "mpS", "sS", "s"
_POINTER_BYTES = 8
#: What the type of a pointer to a function contains.
_FUNCTION = "(*)("
#: The buffers that a reduction needs at least: an input and a result.
_ROLES = 2
_UNNAMED = re.compile(r"^recorder_unnamed_\d+$")
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


@dataclass(frozen=True, slots=True)
class Trace:
    """The log of one run of a host program."""

    buffers: tuple[DeviceBuffer, ...]
    steps: tuple[Step, ...]
    refused: tuple[str, ...]  # launches that the device would refuse
    options: tuple[str, ...]  # that the program looked for on its command line
    parameters: tuple[tuple[str, str], ...]  # (name, kind) of a host function that is described
    ended: str | None
    again: tuple[Step, ...] = ()  # of a second call of the same host function


def parse_trace(lines: Sequence[str]) -> Trace:
    """The steps in the order of the host's calls. An incomplete last line is dropped."""
    return _Parser(lines).trace()


class _Parser:
    def __init__(self, lines: Sequence[str]) -> None:
        self._rows = [line.split("\t") for line in lines if line]
        buffers = [row for row in self._rows if row[0] == "buffer" and len(row) == 5]
        buffers.sort(key=lambda row: int(row[2], 16))
        self._starts = [int(row[2], 16) for row in buffers]
        self._ends = [int(row[2], 16) + int(row[3]) for row in buffers]
        self._kinds = [row[1] for row in buffers]
        self._names = [row[4] for row in buffers]
        self._held: dict[int, tuple[Pointer, ...]] = {}  # the pointers in each variable
        self._ids: dict[int, int] = {}  # of the buffers that a step uses, in order of first use

    def trace(self) -> Trace:
        rows = self._rows
        calls = [k for k, row in enumerate(rows) if row[0] == "again"][:1]
        self._rows = rows[: calls[0]] if calls else rows
        steps = tuple(self._steps())
        self._rows = rows[calls[0] :] if calls else []
        again = tuple(self._steps())
        self._rows = rows
        used = len(self._ids)
        for at, kind in enumerate(self._kinds):
            if kind == _VARIABLE:
                self._ids.setdefault(at, len(self._ids))
        return Trace(
            buffers=tuple(
                replace(self._buffer(at, number), used=number < used)
                for at, number in self._ids.items()
            ),
            steps=steps,
            refused=tuple(_refusal(row) for row in self._rows if row[0] == "refused"),
            options=tuple(row[1] for row in self._rows if row[0] == "option"),
            parameters=tuple((r[1], r[2]) for r in self._rows if r[0] == "parameter"),
            ended=next((row[1] for row in self._rows if row[0] == "ended"), None),
            again=again,
        )

    def _buffer(self, at: int, number: int) -> DeviceBuffer:
        kind = self._kinds[at]
        name, _, element = self._names[at].partition(" ")  # the type of a variable's elements
        return DeviceBuffer(
            id=number,
            nbytes=self._ends[at] - self._starts[at],
            symbol=name if kind in _SYMBOLS else None,
            managed=kind in _MANAGED,
            address=self._starts[at],
            parameter=name if kind == "a" else None,
            element=_type_name(element),
        )

    def _locate(self, address: int) -> tuple[int, int] | None:
        """The buffer and offset of an address. An address just past the end belongs to the
        buffer."""
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address > self._ends[at]:
            return None
        return self._ids.setdefault(at, len(self._ids)), address - self._starts[at]

    def _steps(self) -> Iterator[Step]:
        at = 0
        while at < len(self._rows):
            row, at = self._rows[at], at + 1
            try:
                if row[0] == "launch":
                    end = at
                    while end < len(self._rows) and self._rows[end][0] == "argument":
                        end += 1
                    yield self._launch(row, self._rows[at:end])
                    at = end
                elif row[0] == "library":
                    yield LibraryCall(name=row[2], line=int(row[1]))
                else:
                    step = self._memory_step(row)
                    if step is not None:
                        yield step
            except (IndexError, ValueError):  # the program was ended while it wrote this line
                return

    def _memory_step(self, row: Sequence[str]) -> Step | None:
        if row[0] == "fill" and (place := self._locate(int(row[1], 16))):
            return Fill(*place, nbytes=int(row[2]), byte=int(row[3]))
        if row[0] == "read" and (place := self._locate(int(row[1], 16))):
            return CopyOut(*place, nbytes=int(row[2]))
        if row[0] != "copy":
            return None
        way, target, source, nbytes = row[1], int(row[2], 16), int(row[3], 16), int(row[4])
        into = self._locate(target) if way != "out" else None
        out_of = self._locate(source) if way != "in" else None
        if into and out_of:
            return CopyWithin(*into, *out_of, nbytes=nbytes)
        if into:
            data = None if row[5] == "-" else bytes.fromhex(row[5])
            pointers = self._pointers(data or b"")
            if self._kinds[bisect_right(self._starts, target) - 1] == _VARIABLE:
                self._held[into[0]] = tuple(pointer for _, pointer in pointers)
            return CopyIn(*into, nbytes=nbytes, data=data, pointers=pointers)
        return CopyOut(*out_of, nbytes=nbytes) if out_of else None

    def _launch(self, row: Sequence[str], arguments: Sequence[Sequence[str]]) -> Launch:
        _, line, grid, block, shared, cooperative, stream, cluster, names, function = row
        kernel, template = _kernel_name(function, names)
        given = tuple(self._argument(*a[1:]) for a in arguments)
        direct = {a.buffer for a in given if isinstance(a, Pointer)}
        return Launch(
            kernel=kernel,
            template=template,
            parameters=tuple((_UNNAMED.sub("", a[1]), _type_name(a[2])) for a in arguments),
            grid=_dim3(grid),
            block=_dim3(block),
            shared=int(shared),
            cooperative=cooperative == "1",
            stream=int(stream),
            arguments=given,
            line=int(line),
            cluster=_dim3(cluster),
            held=tuple(chain.from_iterable(self._held.values())) if len(direct) < _ROLES else (),
        )

    def _argument(
        self, _name: str, type_holder: str, element: str, element_size: str, hexadecimal: str
    ) -> Argument:
        data, type_name = bytes.fromhex(hexadecimal), _type_name(type_holder)
        if len(element) > 1:
            address = int.from_bytes(data, "little")
            buffer, offset = self._locate(address) or (None, 0)
            if _FUNCTION in type_name:  # the address is that of a variable that holds the function
                held = Pointer(buffer, offset, "", 0)
                return Scalar(type_name, bytes(len(data)), None, (), ((0, held),))
            return Pointer(buffer, offset, _type_name(element), int(element_size))
        if element in ("u", "i", "b"):
            return Scalar(type_name, data, int.from_bytes(data, "little", signed=element == "i"))
        if element == "f" and len(data) in _FLOATS:
            return Scalar(type_name, data, struct.unpack(_FLOATS[len(data)], data)[0])
        return Scalar(type_name, data, None, self._pointers(data))

    def _pointers(self, data: bytes) -> tuple[tuple[int, Pointer], ...]:
        """The buffer pointers in data, each with its offset."""
        words = np.frombuffer(data, "<u8", len(data) // _POINTER_BYTES)
        known = (
            (words >= self._starts[0]) & (words <= self._ends[-1]) if self._starts else words > 0
        )
        return tuple(
            (k * _POINTER_BYTES, self._typed(*place))
            for k in np.flatnonzero(known).tolist() if (place := self._locate(int(words[k])))
        )  # fmt: skip

    def _typed(self, buffer: int, offset: int) -> Pointer:
        """A pointer into a buffer, with the type for which its memory was allocated."""
        at = next(at for at, number in self._ids.items() if number == buffer)
        element = _type_name(self._names[at].partition(" ")[2])
        dtype = element_type(element)
        return Pointer(buffer, offset, element, scalar_size(dtype) if dtype else 0)


def _dim3(text: str) -> Dim3:
    x, y, z = map(int, text.split(","))
    return x, y, z


def _refusal(row: Sequence[str]) -> str:
    _, line, grid, block, shared, _ = row
    return f"line {line}: grid ({grid}), block ({block}), {shared} bytes of shared memory"


def _type_name(holder: str) -> str:
    """The type in a name printed by g++: `float*` from "const char* recorder::name_holder()
    [with T = float*]"."""
    _, _, name = holder.partition("[with T = ")
    return re.sub(r"\s*__restrict__$", "", name[:-1] if name else holder)


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators outside all brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "<({[":
            depth += 1
        elif character in ">)}]" and text[at - 1 : at + 1] != "->":
            depth -= 1
        elif character == separator and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:])]


def _kernel_name(function: str, names: str) -> tuple[str, str]:
    """The instantiated name and the name of the template, of a function as g++ prints it:
    `void ns::sum(const T*, T*, int) [with T = float; unsigned int block = 256]`."""
    head, _, bindings = function.partition(" [with ")
    template = _before_parameters(head).rpartition(" ")[2].replace("{anonymous}::", "")
    if not names:
        return template, template
    values: dict[str, str] = {}
    for binding in _split(bindings[:-1], ";"):
        declared, _, value = binding.partition(" = ")
        name = re.search(r"\(\*\s*(\w+)\)", declared) or re.search(r"(\w+)$", declared)
        if name:
            values[name[1]] = _template_argument(declared[: name.start()].strip(), value.strip())
    given = [values[name] for name in names.split(",") if values.get(name)]
    return f"{template}<{', '.join(given)}>", template


def _before_parameters(head: str) -> str:
    """A function declaration without its parameter list."""
    depth = 0
    for at in range(len(head) - 1, -1, -1):
        depth += (head[at] == ")") - (head[at] == "(")
        if head[at] == "(" and depth == 0:
            return head[:at]
    return head


def _template_argument(declared: str, value: str) -> str:
    """A template argument as a C++ literal: `512u` for `unsigned int block = 512`."""
    if value.startswith("{") and value.endswith("}"):  # of a pack
        return value[1:-1].strip()
    if re.fullmatch(r"-?\d+", value):
        if declared in ("unsigned int", "unsigned"):
            return f"{value}u"
        if declared in ("long unsigned int", "long long unsigned int", "size_t"):
            return f"{value}ul"
    return value
