"""Turn recordings at several sizes into a program that is replayed with our inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cudareduce.catalog.front_matter import read_source
from cudareduce.catalog.program import (
    Address,
    CopyStep,
    FillStep,
    KernelStep,
    Program,
    ProgramStep,
    Run,
    Value,
    Variable,
    WriteStep,
)
from cudareduce.cuda_source import parse_cuda, without_comments
from cudareduce.external.device_code import read_device_file
from cudareduce.external.recording import (
    CopyIn,
    CopyWithin,
    DeviceBuffer,
    Fill,
    Launch,
    Pointer,
    Recording,
    Scalar,
    Step,
)
from cudareduce.external.roles import Roles, Segment
from cudareduce.reduction.dtypes import DTYPES

_ADDRESS_BYTES = 8


def device_text(segment: Segment) -> str:
    """The device code that the kernels of a segment need. Raises UsageError."""
    recording = segment.recording
    path = recording.path
    source = recording.source if recording.source is not None else read_source(path)
    file = read_device_file(path, source, recording.include, recording.define)
    named = {word for kernel in segment.kernels for word in re.findall(r"\w+", kernel)}
    named |= {b.symbol.rpartition("::")[2] for b in recording.buffers if b.symbol and b.used}
    kernels = {launch.template.rpartition("::")[2] for launch in segment.launches}
    return file.code(kernels, named)


#: What a caller that is not recorded may set results and counters to, by the name of the value.
INITIAL: dict[str, Callable[[np.dtype[Any]], Any]] = {
    "": lambda _: 0,
    "0": lambda _: 0,
    "the lowest value": lambda k: -np.inf if k.kind == "f" else np.iinfo(k).min,
    "the highest value": lambda k: np.inf if k.kind == "f" else np.iinfo(k).max,
}


def program_of(
    found: Sequence[tuple[Segment, Roles, int, int]], texts: Sequence[str], text_of: Sequence[int],
    summary: str = "", initial: str = "",
) -> Program:  # fmt: skip
    """The program of one segment at several sizes, each with its roles, elements per row and
    rows. `text_of` are the indices of device code texts, `initial` is the value to which a
    caller sets results."""
    kernels = tuple(dict.fromkeys(k for segment, *_ in found for k in segment.kernels))
    runs = [
        _run(segment, roles, n, rows, text, kernels, initial)
        for (segment, roles, n, rows), text in zip(found, text_of, strict=True)
    ]
    symbols = [
        b for b in found[0][0].recording.buffers
        if b.symbol is not None and (b.used or all(_declares(text, b.symbol) for text in texts))
    ]  # fmt: skip
    variables = tuple(Variable(f"v{b.id}", b.symbol or "", b.nbytes) for b in symbols)
    return Program(
        tuple(texts), kernels, variables, tuple(runs), found[0][1].stores, summary,
        fixed=len(found) == 1,
    )  # fmt: skip


def _declares(text: str, name: str) -> bool:
    """True if a text declares a variable of this name outside any namespace."""
    found = re.search(rf"__(?:device|constant)__[^;(){{}}]*\b{name}\b\s*[;=\[{{]", text)
    if found is None:
        return False
    before = without_comments(parse_cuda(text[: found.start()]))
    return before.count("{") == before.count("}")


def _run(
    segment: Segment, roles: Roles, n: int, rows: int, text: int, kernels: Sequence[str],
    initial: str,
) -> Run:  # fmt: skip
    names = _Names(segment.recording, roles)
    skip = roles.skip
    steps: list[ProgramStep] = list(_set_by_caller(segment, roles, names, initial))
    for step in segment.steps:
        if isinstance(step, Launch):
            if skip:
                skip -= 1
                continue
            steps.append(
                KernelStep(
                    kernels.index(step.kernel),
                    step.grid,
                    step.block,
                    step.shared,
                    step.cooperative,
                    tuple(names.argument(a) for a in step.arguments),
                    step.line,
                )
            )
        else:
            steps += names.preparation(step)
    used = {name for step in steps for name in _names_in(step)} | {names.of(roles.result)}
    buffers = tuple(
        (names.of(b.id), segment.capacity(b.id))
        for b in segment.recording.buffers
        if b.symbol is None and names.of(b.id) in used and names.of(b.id) not in ("in", "other")
    )
    shift = roles.offset if roles.result == roles.input else 0
    result = Address(names.of(roles.result), roles.at - shift)
    return Run(n, rows, text, tuple(steps), buffers, result, roles.most)


def has_caller(segment: Segment, roles: Roles) -> bool:
    """True if an unrecorded caller may set the result or scratch memory."""
    return bool(_of_caller(segment, roles))


def has_scratch(segment: Segment, roles: Roles) -> bool:
    """True if an unrecorded caller may set other memory than the result, such as a counter."""
    return any(buffer.id != roles.result for buffer in _of_caller(segment, roles))


def _of_caller(segment: Segment, roles: Roles) -> list[DeviceBuffer]:
    """The buffers that a caller may set: parameters of the host function, and managed memory
    that nothing sets, which is 0 at first."""
    used = {pointer.buffer for pointer, _ in segment.pointers()}
    set_by_host = {step.buffer for step in segment.steps if isinstance(step, (Fill, CopyIn))}
    given = {roles.input, roles.other, *roles.unwritten}
    return [
        b
        for b in segment.recording.buffers
        if b.id in used and b.id not in given
        and (b.parameter is not None or (b.managed and b.id not in set_by_host))
    ]  # fmt: skip


def _set_by_caller(
    segment: Segment, roles: Roles, names: _Names, initial: str
) -> Iterable[ProgramStep]:
    """The writes of a caller: the result is set to an initial value and scratch memory to 0.
    Without an unrecorded caller, the result alone."""
    result = [b for b in segment.recording.buffers if b.id == roles.result]
    for buffer in (_of_caller(segment, roles) or result) if initial else ():
        kind = np.dtype(DTYPES[roles.stores].storage)
        if initial == "0" or buffer.id != roles.result or DTYPES[roles.stores].size < kind.itemsize:
            yield FillStep(Address(names.of(buffer.id)), segment.capacity(buffer.id), 0)
        else:
            count = segment.capacity(buffer.id) // kind.itemsize
            data = np.full(count, INITIAL[initial](kind), kind).tobytes()
            yield WriteStep(Address(names.of(buffer.id)), Value(data))


def limit_initial(run: Run, width: int) -> Run:
    """The run with a caller that initialises only its results of `width` bytes, not all of the
    result buffer."""
    nbytes = run.result.offset + run.count * width
    steps = list(run.steps)
    for index, step in enumerate(steps):
        if isinstance(step, FillStep) and step.target == Address(run.result.buffer):
            steps[index] = replace(step, nbytes=min(step.nbytes, nbytes))
            break
        if isinstance(step, WriteStep) and step.target == Address(run.result.buffer):
            steps[index] = replace(step, value=Value(step.value.data[:nbytes]))
            break
    return replace(run, steps=tuple(steps))


class _Names:
    """Names for the buffers of a recording within a program."""

    def __init__(self, recording: Recording, roles: Roles) -> None:
        self._roles = roles
        self._symbols = {b.id for b in recording.buffers if b.symbol is not None}

    def of(self, buffer: int) -> str:
        if buffer == self._roles.input:
            return "in"
        if buffer == self._roles.other:
            return "other"
        return f"v{buffer}" if buffer in self._symbols else f"b{buffer}"

    def address(self, buffer: int, offset: int) -> Address:
        shift = self._roles.offset if buffer == self._roles.input else 0
        return Address(self.of(buffer), offset - shift)

    def argument(self, argument: Pointer | Scalar) -> Address | Value:
        if isinstance(argument, Pointer):
            if argument.buffer is None:
                return Value(bytes(_ADDRESS_BYTES))
            return self.address(argument.buffer, argument.offset)
        pointers, functions = map(self._addresses, (argument.pointers, argument.functions))
        return Value(argument.data, pointers, functions)

    def preparation(self, step: Step) -> Iterable[ProgramStep]:
        """The host's steps other than launches and copies to the input."""
        inputs = {self._roles.input, self._roles.other}
        match step:
            case Fill(buffer, offset, nbytes, byte) if buffer not in inputs:
                yield FillStep(self.address(buffer, offset), nbytes, byte)
            case CopyIn(buffer, offset, _, data) if buffer not in inputs and data is not None:
                value = Value(data, self._addresses(step.pointers))
                yield WriteStep(self.address(buffer, offset), value)
            case CopyWithin(target, to, source, start, nbytes):
                yield CopyStep(self.address(target, to), self.address(source, start), nbytes)

    def _addresses(
        self, pointers: Sequence[tuple[int, Pointer]]
    ) -> tuple[tuple[int, Address], ...]:
        """The addresses of pointers within data, each with its byte offset."""
        return tuple(
            (at, self.address(pointer.buffer, pointer.offset))
            for at, pointer in pointers if pointer.buffer is not None
        )  # fmt: skip


def _names_in(step: ProgramStep) -> Iterable[str]:
    """The buffers that a step refers to."""
    match step:
        case KernelStep():
            for argument in step.arguments:
                if isinstance(argument, Address):
                    yield argument.buffer
                else:
                    yield from (address.buffer for _, address in argument.pointers)
        case FillStep(target):
            yield target.buffer
        case WriteStep(target, value):
            yield target.buffer
            yield from (address.buffer for _, address in value.pointers)
        case CopyStep(target, source):
            yield target.buffer
            yield source.buffer
