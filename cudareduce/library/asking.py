"""A kernel of the user's that is right on a condition, and what then becomes of its partials."""

from __future__ import annotations

from dataclasses import replace

from cudareduce.library.condition import Condition
from cudareduce.library.header import Finish
from cudareduce.library.kernel import Kernel

#: What is said of a kernel whose partials were to be its own input.
FOLDED = (
    "the host folds its partials, which need not be as many, outside of the time: --finish host"
)


def finish_once(kernel: Kernel) -> Finish:
    """What becomes of the partials of a kernel that cannot be launched on them: the host folds
    them, unless somebody has said otherwise."""
    again = kernel.relaunches and "finish" in (kernel.guessed or ())
    return "host" if again else kernel.finish


def asking(kernel: Kernel, asks: Condition) -> Kernel:
    """A kernel of the user's that is right on a condition. How many partials it leaves follows from
    no condition, so one that takes whole multiples, or some sizes, is not launched again on
    them."""
    finish = finish_once(kernel) if asks.multiple > 1 or asks.sizes else kernel.finish
    return replace(kernel, asks=asks, finish=finish)
