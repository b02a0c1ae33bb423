"""A launch as the runtime takes it, ready to be made."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cudareduce.emulator.program import CpuProgram
from cudareduce.emulator.runtime import Request
from cudareduce.emulator.toolchain import resolve_locations
from cudareduce.errors import KernelFault


class Call:
    """A launch of `grid` blocks of `block` threads with these arguments, each by its
    words; `keeps` are buffers that it must not outlive. Raises KernelFault if the kernel takes
    another number."""

    def __init__(
        self, program: CpuProgram, grid: int, block: int, arguments: Sequence[tuple[int, ...]],
        dynamic_shared: int, *, keeps: object,
    ) -> None:  # fmt: skip
        expected = program.descriptor.parameters
        if len(arguments) != expected:
            raise KernelFault(f"{program.entry} takes {expected} arguments, not {len(arguments)}")
        self._variants = (program, *program.others)
        refusals = [variant.refusal(block, dynamic_shared) for variant in self._variants]
        self._refusal = next(filter(None, refusals), None)
        self._slots = [(ctypes.c_uint64 * len(words))(*words) for words in arguments]
        self._keeps = keeps
        self.request = Request(
            arguments=(ctypes.c_void_p * len(self._slots))(*map(ctypes.addressof, self._slots)),
            grid=(grid, 1, 1),
            block=(block, 1, 1),
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
            raise KernelFault(
                f"{entry}: {'; '.join(dict.fromkeys(resolve_locations(text).splitlines()))}"
            )
