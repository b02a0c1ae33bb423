"""A launch as the runtime takes it, ready to be made."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod

from cudareduce.backend import Argument, Dim3
from cudareduce.emulator.program import CpuProgram
from cudareduce.emulator.runtime import Request
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import KernelFault

#: So many faults of a launch are told: a warp that knows no barrier has one for each pair of lines.
_MOST_TOLD = 3


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
            told = [*dict.fromkeys(resolve_locations(text).splitlines())]
            more = [f"and {len(told) - _MOST_TOLD} more"] if len(told) > _MOST_TOLD else []
            raise KernelFault(f"{entry}: {'; '.join(told[:_MOST_TOLD] + more)}")


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
