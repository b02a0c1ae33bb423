"""Plan the launches of a kernel for a problem: grids, buffers, bytes moved and summation depth.

Bytes (for GB/s) and depth (for the error bound) are properties of the plan that is launched, so
that they cannot disagree with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isqrt, prod

from cudareduce.catalog.front_matter import UNORDERED
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.program import Program, Run
from cudareduce.errors import UsageError
from cudareduce.launch.prelude import Stage, Unit, stage_of
from cudareduce.launch.tree import Tree, ceil_div, declared_tree, depth_of, fixed_warps
from cudareduce.machine import DEFAULT_LIMITS, DeviceLimits
from cudareduce.reduction.operators import Reduction

#: Largest grid in x that CUDA launches (CUDA C++ Programming Guide, technical specifications).
MAX_GRID = 2**31 - 1
#: Blocks per cluster; more are not portable (ibid., thread block clusters).
CLUSTER = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """`rows` reductions of `n` elements each."""

    reduction: Reduction
    n: int
    rows: int = 1

    @property
    def elements(self) -> int:
        """Elements of the whole input."""
        return self.n * self.rows

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return self.elements * self.reduction.dtype.size * self.reduction.inputs


@dataclass(frozen=True, slots=True)
class Pass:
    """One launch of `grid` blocks of `block` threads, which reduces `n` elements per row from
    buffer `source` to buffer `target`. `text` is the index of its source text in an external
    program."""

    stage: Stage
    grid: int
    n: int
    source: str
    target: str
    block: int
    text: int = 0

    @property
    def unit(self) -> Unit:
        """The translation unit that it launches."""
        return self.stage, self.text


@dataclass(frozen=True, slots=True)
class Plan:
    """All launches for one problem.

    Blocks have `block` threads with `items` elements each. `sms` limits the grid, and thereby the
    number of SMs. `preset` names the buffer that is filled before the first pass, within the timed
    region: with the identity, or with the result if there are no elements. `scratch` holds the
    bytes of each scratch buffer. `depth` is the largest number of roundings on a path, so that a
    sum is within gamma_depth * sum|x| (Higham, Accuracy and Stability of Numerical Algorithms,
    4.2).
    """

    kernel: Kernel
    problem: Problem
    block: int
    items: int
    passes: tuple[Pass, ...]
    scratch: dict[str, int]
    preset: str | None
    depth: int
    sms: int | None = None
    recorded: Run | None = None  # the recorded steps of an external program

    @property
    def rounds_shares(self) -> bool:
        """True if blocks may add partial means to the result, which round unless n is a power of
        two."""
        shares = self.kernel.finish in UNORDERED or self.recorded is not None
        mean = self.problem.reduction.op.name == "mean" and shares
        return mean and bool(self.problem.n & (self.problem.n - 1))

    @property
    def share_depth(self) -> int:
        """Roundings of a mean whose partial sums are exact: one share per block or, where each
        thread adds one, roundings that cancel as in a random walk."""
        if self.recorded is None:
            return 1
        blocks = max((prod(step.grid) for step in self.recorded.launches), default=1)
        return blocks + 4 * isqrt(self.problem.n)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The translation units of all passes."""
        return tuple(dict.fromkeys(step.unit for step in self.passes))

    @property
    def scratch_arguments(self) -> tuple[str, ...]:
        """The scratch buffers among the kernel's arguments, in order."""
        names = ("partials", "counter", "workspace")
        return tuple(name for name in names if name in self.scratch)

    @property
    def outputs(self) -> int:
        """The number of values that the last launch writes: results, or partials to add on the
        host."""
        if not self.folds_on_host:
            return self.problem.rows
        if self.recorded is not None:
            return self.recorded.count
        return self.passes[-1].grid

    @property
    def folds_on_host(self) -> bool:
        """True if the host adds the partial results."""
        return self.kernel.finish == "host" and bool(self.passes)

    @property
    def tree(self) -> Tree:
        """The summation order of the first row, as far as the kernel's front matter determines it.
        Takes O(n) time."""
        rows = max(1, self.problem.rows)
        fixed = fixed_warps(self.kernel, self.problem.n, self.problem.reduction.dtype.size)
        if fixed and self.passes:
            return fixed.tree()
        shapes = [(max(1, step.grid // rows), step.n) for step in self.passes]
        return declared_tree(self.kernel, shapes, self.block, self.items)

    @property
    def bytes_moved(self) -> int:
        """Bytes that every algorithm must move: each input is read and each output written once."""
        reduction, bytes_read = self.problem.reduction, self.problem.input_bytes
        if reduction.map and reduction.map.one_row:  # all rows share one row of the second input
            bytes_read -= (self.problem.rows - 1) * self.problem.n * reduction.dtype.size
        return bytes_read + self.outputs * reduction.result_size


def plan(
    kernel: Kernel, problem: Problem, *, block: int | None = None, items: int | None = None,
    limits: DeviceLimits = DEFAULT_LIMITS, sms: int | None = None,
) -> Plan:  # fmt: skip
    """Plan the launches of one problem; `block` and `items` default to the kernel's. Raises
    UsageError if the kernel does not support the shape, or needs more than 2^31 - 1 blocks."""
    reason = kernel.why_not_shape(problem.n, problem.rows)
    if reason:
        raise UsageError(f"{kernel.id} {reason}")
    if kernel.program is not None:
        return _recorded_plan(kernel, kernel.program, problem)
    block = block or kernel.block
    items = items or kernel.items_of(problem.reduction.dtype.size)
    grids = _grids(kernel, problem, block, items, limits, sms)
    fixed = fixed_warps(kernel, problem.n, problem.reduction.dtype.size)
    passes: list[Pass] = []
    scratch: dict[str, int] = {}
    source = "in"
    for index, (grid, n) in enumerate(grids):
        # users cannot choose the number of partial results, so size preconditions do not apply
        precondition = kernel.precondition if index == 0 else replace(kernel.precondition, sizes=())
        reason = precondition.why_not(n, problem.rows)
        if reason:
            raise UsageError(f"{kernel.id} {reason}")
        if grid > MAX_GRID:
            raise UsageError(
                f"{kernel.id} would need {grid} blocks; CUDA launches at most 2^31 - 1"
            )
        last = index == len(grids) - 1
        target = "out" if last else ("ping", "pong")[index % 2]
        if not last:
            scratch[target] = max(scratch.get(target, 0), grid * problem.reduction.acc_size)
        stage = stage_of(problem.reduction, index, len(grids))
        passes.append(Pass(stage, grid, n, source, target, block))
        source = target
    if grids:
        blocks = fixed.partials if fixed else grids[0][0]
        scratch |= _scratch_bytes(kernel, problem, blocks)
    preset = "out" if problem.rows and (kernel.finish == "atomic" or not grids) else None
    depth = 0
    for grid, n in grids:
        shape = block, items, max(1, grid // problem.rows), n  # for each row
        depth += fixed.depth if fixed else depth_of(kernel, *shape)
    return Plan(kernel, problem, block, items, tuple(passes), scratch, preset, depth, sms)


def _recorded_plan(kernel: Kernel, program: Program, problem: Problem) -> Plan:
    """The plan of recorded host code. Its summation order is unknown, so the depth is that of a
    serial sum."""
    n, rows = problem.n, problem.rows
    run = program.run(n, rows)
    reason = kernel.precondition.why_not(n, rows)
    if run is None or reason:
        near = sorted(program.shapes, key=lambda shape: abs(shape[0] * shape[1] - n * rows))[:3]
        shapes = ", ".join(f"--n {length} --rows {count}" for length, count in near)
        why = f"was not recorded for n = {n} x {rows} rows; recorded are {shapes}"
        raise UsageError(f"{kernel.id} {reason or why}")
    passes = tuple(
        Pass("only", prod(step.grid), n, "in", "out", prod(step.block), run.source)
        for step in run.launches
    )
    depth = n + len(passes)
    return Plan(
        kernel, problem, kernel.block, kernel.items, passes, dict(run.buffers), None, depth,
        recorded=run,
    )  # fmt: skip


def _scratch_bytes(kernel: Kernel, problem: Problem, partials: int) -> dict[str, int]:
    """Bytes of each scratch buffer that the entry point takes."""
    if kernel.finish == "last_block":
        counts = problem.rows + (kernel.walk == "tickets")  # the last one counts drawn tickets
        return {"partials": partials * problem.reduction.acc_size, "counter": 4 * counts}
    if kernel.workspace:
        return {"workspace": kernel.workspace_bytes(problem.reduction, partials)}
    return {}


def _grids(
    kernel: Kernel, problem: Problem, block: int, items: int, limits: DeviceLimits, sms: int | None
) -> list[tuple[int, int]]:
    """Blocks and elements per row of each launch; none without elements, since results are preset.
    A limit of SMs limits the blocks, since blocks are spread over all SMs before two share one."""
    n, rows = problem.n, problem.rows
    if problem.elements == 0:
        return []
    grid = _grid(kernel, rows, n, block, items, limits)
    grids = [(min(grid, sms or grid), n)]
    while kernel.relaunches and grids[-1][0] > rows:
        n = grids[-1][0] // rows
        once = kernel.finish == "relaunch_one_block"
        grid = 1 if once else _grid(kernel, rows, n, block, items, limits)
        if grid >= grids[-1][0]:
            raise UsageError(
                f"{kernel.id}: {grid} blocks of {block} x {items} elements leave as many "
                "partials for the next launch: give a larger --block"
            )
        grids.append((grid, n))
    return grids


def _grid(kernel: Kernel, rows: int, n: int, block: int, items: int, limits: DeviceLimits) -> int:
    cover = rows * ceil_div(n, block * items)
    if kernel.fixed_warps:
        cover = min(cover, ceil_div(32 * kernel.fixed_warps, block))
    match kernel.grid:
        case "cover":  # a warp may load several short rows
            return ceil_div(rows * n, block * items) if kernel.walk == "warp_stride" else cover
        case "fill":
            return min(cover, limits.sm_count * (limits.threads_per_sm // block))
        case "per_sm":
            return min(cover, limits.sm_count)
        case "fixed":
            return min(cover, kernel.fixed_grid or 1)
        case "block_per_row":
            return rows
        case "warp_per_row":
            return ceil_div(rows, block // 32)
        case "thread_per_row":
            return ceil_div(rows, block)
        case "cluster":
            return CLUSTER
        case "fill_by_row":
            resident = limits.sm_count * (limits.threads_per_sm // block)
            return rows * max(1, min(ceil_div(n, block * items), resident // rows))
        case _:
            return 1
