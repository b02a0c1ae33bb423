"""What is tried: kernels in every launch shape that their headers allow and that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from cudareduce.auto.facts import Facts
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.library.header import Grid
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import AUTO, AUTO_FIXED, Registry
from cudareduce.problem.operators import Reduction

#: Threads a block that are tried besides a kernel's own: fewer need too many blocks to fill an SM.
_BLOCKS = (256, 512, 1024)
#: Elements a thread that are tried, as shares of a kernel's own.
_SHARES = (0.25, 0.5, 1, 2)
#: Families whose kernels are tried for `auto`: of arrays, where one launch does, and of rows.
_OF_ARRAYS, _OF_ROWS = ("limit",), ("limit", "rows", "warp")


def kernels_named(names: Sequence[str], registry: Registry, rows: int) -> list[Kernel]:
    """The kernels that KERNEL, FAMILY, GLOB and `auto` name, each once; no names are `auto`. One
    that is not known, or is not of the package, is a UsageError."""
    automatic = _OF_ARRAYS if rows == 1 else _OF_ROWS
    found: dict[str, Kernel] = {}
    for name in names or (AUTO,):
        mine = [k for k in registry.kernels.values() if k.family == name]
        if name in (AUTO, AUTO_FIXED):
            mine = [
                k for k in registry.kernels.values()
                if k.family in automatic and not (rows == 1 and k.relaunches)
            ]  # fmt: skip
        for kernel in mine or [choice.kernel for choice in registry.choose([name])]:
            found[kernel.id] = kernel
    foreign = next((kernel for kernel in found.values() if kernel.id not in registry.kernels), None)
    if foreign is not None:
        raise UsageError(
            f"tune searches the kernels of the package, and {foreign.path} is none: bench it with "
            "--block and --items"
        )
    return list(found.values())


def case_of(
    kernel: Kernel, reduction: Reduction, block: int, items: int, grid: Grid | None = None
) -> Case:
    """A kernel in a launch shape, which its name tells."""
    kernel = replace(kernel, grid=grid or kernel.grid)
    shape = f"{kernel.id}, {block} x {items} {kernel.grid}"
    return Case(kernel, reduction, block, items, name=shape)


def own_case(kernel: Kernel, reduction: Reduction) -> Case:
    """A kernel in the launch shape of its header."""
    return case_of(kernel, reduction, kernel.block, kernel.items_of(reduction.dtype.size))


def candidates(
    kernels: Iterable[Kernel], reduction: Reduction, n: int, rows: int, facts: Facts
) -> list[Case]:
    """Every launch shape of every kernel that takes the problem on a device; of those that launch
    the same only the first."""
    found: dict[tuple[object, ...], Case] = {}
    for kernel in kernels:
        if kernel.why_not(reduction) or kernel.shape(n, rows) != (n, rows) or not facts.run(kernel):
            continue
        for case in _shapes(kernel, reduction, rows):
            try:
                plan = case.plan(n, rows, facts.limits)
            except UsageError:
                continue
            launched = (kernel.id, case.block, case.items, tuple(p.grid for p in plan.passes))
            found.setdefault(launched, case)
    return list(found.values())


def _shapes(kernel: Kernel, reduction: Reduction, rows: int) -> Iterator[Case]:
    """A kernel's own shape, then the others."""
    size = reduction.dtype.size
    own = own_case(kernel, reduction)
    yield own
    items = dict.fromkeys(int(own.items * share) for share in _SHARES)
    grids = kernel.grids[: 3 if rows == 1 else 2]
    for block in (block for block in _BLOCKS if kernel.why_not_block(block) is None):
        for count in items:
            if count and kernel.why_not_items(count, size) is None:
                yield from (case_of(kernel, reduction, block, count, grid) for grid in grids)
