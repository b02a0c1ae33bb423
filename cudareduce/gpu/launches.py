"""Ready launches: prepared calls of functions, whose refusals are told."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from cudareduce.backend import Buffer, Launch
from cudareduce.errors import KernelFault

#: Bytes of dynamic shared memory that a block has without asking.
_UNASKED = 48 * 1024


def launcher(
    driver: Any, function: Any, shape: tuple[int, int, int], values: Sequence[int], stream: Any
) -> Launch:
    """A launch of a function with these arguments into a stream; its shape is blocks, threads a
    block, and bytes of dynamic shared memory a block. Raises KernelFault, at once or when run."""
    grid, block, shared = shape
    if shared > _UNASKED:
        most = driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        try:
            function.set_attribute(most, shared)
        except driver.Error as error:
            raise _refusal(f"{shared} bytes of shared memory", error) from None
    function.prepare("P" * len(values))  # pointers and sizes are both 64 bits wide
    call = function.prepared_async_call
    launch = partial(call, (grid, 1), (block, 1, 1), stream, *values, shared_size=shared)

    def checked() -> None:
        try:
            launch()
        except driver.Error as error:
            raise _refusal(f"to launch a grid of {grid} x {block} threads", error) from None

    return checked


def address_of(argument: Buffer | int) -> int:
    """A size as it is, and of memory where it begins."""
    return argument if isinstance(argument, int) else argument.address


def _refusal(what: str, error: Exception) -> KernelFault:
    return KernelFault(f"the GPU refuses {what}: {error}")
