"""A launch as the runtime takes it, ready to be made."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from math import prod

from cudareduce.backend import Argument, Dim3
from cudareduce.emulator.program import CpuProgram
from cudareduce.emulator.runtime import Request
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import KernelFault

#: Faults of a launch that are shown: without barriers there is one for each pair of lines.
_MOST_SHOWN = 3
_RACE = re.compile(
    r"(?P<now>\S+:\d+): data race in (?P<space>\w+) memory: .* at (?P<earlier>\S+:\d+), "
)


class Call:
    """A launch of `grid` blocks of `block` threads with these arguments, whose buffers it
    keeps. Raises KernelFault if the kernel takes another number."""

    def __init__(
        self, program: CpuProgram, grid: Dim3, block: Dim3, arguments: Sequence[Argument | bytes],
        dynamic_shared: int,
    ) -> None:  # fmt: skip
        expected = program.descriptor.parameters
        if len(arguments) != expected:
            raise KernelFault(f"{program.entry} takes {expected} arguments, not {len(arguments)}")
        self._variants = (program, *program.others)
        refusals = [variant.refusal(prod(block), dynamic_shared) for variant in self._variants]
        self._refusal = next(filter(None, refusals), None)
        self._slots = [_slot(argument) for argument in arguments]
        self._keeps = tuple(arguments)
        self.request = Request(
            arguments=(ctypes.c_void_p * len(self._slots))(*map(ctypes.addressof, self._slots)),
            grid=grid,
            block=block,
            dynamic_shared=dynamic_shared,
        )

    def run(self, runtime: ctypes.CDLL, turn: int) -> None:
        """Make the launch, of the variant whose turn it is. Raises KernelFault."""
        entry = self._variants[0].entry
        if self._refusal is not None:
            raise KernelFault(f"{entry} {self._refusal}")
        variant = self._variants[turn % len(self._variants)]
        self.request.entry = ctypes.addressof(variant.descriptor)
        if runtime.cudaemu_launch(ctypes.byref(self.request)) != 0:
            text = runtime.cudaemu_diagnostics().decode(errors="replace")
            faults = merged_races(resolve_locations(text).splitlines())
            more = [f"and {len(faults) - _MOST_SHOWN} more"] if len(faults) > _MOST_SHOWN else []
            raise KernelFault(f"{entry}: {'; '.join(faults[:_MOST_SHOWN] + more)}")


def merged_races(faults: Sequence[str]) -> list[str]:
    """The faults of a launch, of data races one for each pair of lines: the one whose threads are
    farthest apart, since its scope decides which barrier is missing."""
    kept: dict[object, str] = {}
    for fault in faults:
        race = _RACE.match(fault)
        key = (frozenset((race["now"], race["earlier"])), race["space"]) if race else fault
        if key not in kept or "no __syncwarp()" in kept[key]:
            kept[key] = fault
    wide = [fault for fault in kept.values() if "no __syncwarp()" not in fault]
    return [*wide, *(fault for fault in kept.values() if fault not in wide)]


def _slot(argument: Argument | bytes) -> ctypes.Array[ctypes.c_uint64]:
    """Memory that holds an argument, aligned to 16 bytes if it is given as bytes."""
    if not isinstance(argument, bytes):
        words = _words(argument)
        return (ctypes.c_uint64 * len(words))(*words)
    count = -(-len(argument) // 8)
    room = (ctypes.c_uint64 * (count + 2))()
    shift = -ctypes.addressof(room) % 16
    slot = (ctypes.c_uint64 * (count + 1)).from_buffer(room, shift)
    ctypes.memmove(slot, argument, len(argument))
    return slot


def _words(argument: Argument) -> tuple[int, ...]:
    """The words of 64 bits that an argument is made of."""
    if isinstance(argument, tuple):
        return argument
    return (argument if isinstance(argument, int) else argument.address,)
