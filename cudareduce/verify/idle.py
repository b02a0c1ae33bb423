"""Whether a launch that was guessed has blocks that do nothing: its answers are right, and its
times would be those of more blocks than its author launches."""

from __future__ import annotations

from contextlib import ExitStack

from cudareduce.backend import Backend
from cudareduce.errors import KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Prepared
from cudareduce.launch.plan import Plan

#: Fewer blocks, or a smaller share of them, say nothing.
_FEWEST, _SHARE = 4, 1 / 4


def idle_blocks(backend: Backend, prepared: Prepared) -> str:
    """What to say of blocks that read nothing of an input that has work for all of them; empty if
    there are none, or where that cannot be seen. Raises OutOfMemory."""
    kernel, watching = prepared.case.kernel, backend.sparse()
    open_ = [name for name in ("grid", "items") if name in (kernel.guessed or ())]
    whole = [plan for plan in prepared.plans.values() if _has_work_for_all(plan)]
    if not open_ or not whole or watching is None or watching.readers is None:
        return ""
    plan = min(whole, key=lambda plan: plan.problem.n)
    grid, inputs = plan.passes[0].grid, plan.problem.reduction.inputs
    with ExitStack() as stack:
        given = [backend.allocate(plan.problem.input_bytes // inputs) for _ in range(inputs)]
        stack.callback(backend.free, *given)
        for buffer in given:
            backend.zero(buffer)
        bound = Bound(backend, plan, prepared.programs, given[0], None, *given[1:])
        stack.callback(bound.release)
        try:
            bound.run_before()
            bound.run_first()
        except KernelFault:
            return ""
        readers = watching.readers
    if not readers or grid - readers < _SHARE * grid:
        return ""
    idle = "half" if 2 * readers == grid else f"{grid - readers} of {grid}"
    better = " or ".join(f"--{name}" for name in open_)
    return f"{idle} of its blocks read nothing: {better} say{'s' * (len(open_) == 1)} better"


def _has_work_for_all(plan: Plan) -> bool:
    """Whether each block of the first launch has a tile of its own."""
    tile = plan.block * plan.items
    blocks = plan.passes[0].grid if plan.passes else 0
    return blocks >= _FEWEST and plan.problem.n % tile == 0 and plan.problem.n >= blocks * tile
