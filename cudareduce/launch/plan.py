"""From a kernel and a problem to launches: grid, passes, buffers, bytes and addition depth.

Pure: no device, no clock. The byte count behind GB/s and the depth behind the error bound come from
the same object that is launched, so they cannot disagree with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.device import DEFAULT_LIMITS, DeviceLimits
from cudareduce.errors import UsageError
from cudareduce.launch.fixed_warps import fixed_warps
from cudareduce.launch.order import claimed
from cudareduce.launch.prelude import Stage, stage_of
from cudareduce.launch.tree import Tree
from cudareduce.library.header import UNORDERED
from cudareduce.library.kernel import Kernel
from cudareduce.problem.operators import Reduction

#: Largest grid in x that CUDA launches (CUDA C++ Programming Guide, technical specifications).
MAX_GRID = 2**31 - 1
#: Blocks of a cluster: no more are portable (the same, thread block clusters).
CLUSTER = 8


@dataclass(frozen=True, slots=True)
class Problem:
    """`rows` reductions of `n` elements each, lying one behind the other."""

    reduction: Reduction
    n: int
    rows: int = 1

    @property
    def elements(self) -> int:
        """Elements of the whole input."""
        return self.n * self.rows

    @property
    def input_bytes(self) -> int:
        """Bytes of the whole input."""
        return self.elements * self.reduction.dtype.size


@dataclass(frozen=True, slots=True)
class Pass:
    """One launch of `grid` blocks: `n` elements a row from `source` to `target`, names of
    buffers."""

    stage: Stage
    grid: int
    n: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is launched for one problem, and what follows from it.

    A block has `block` threads, a thread takes `items` elements at a time; no launch has more than
    `sms` blocks, so that no more SMs work. `preset` names the buffer that must hold the identity,
    or without elements the answer, when the first pass starts; writing it is part of the timed
    region, and so is clearing those that are `zeroed`. `scratch` gives the bytes of each buffer
    besides input and output. `depth` bounds the number of roundings any element passes through, so
    that a sum is within gamma_depth * sum|x| (Higham, Accuracy and Stability of Numerical
    Algorithms, 4.2).
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

    @property
    def zeroed(self) -> tuple[str, ...]:
        """The scratch buffers that are cleared when the first pass starts."""
        return tuple(room.name for room in self.kernel.rooms if room.zeroed and self.passes)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The translation units that it launches, each once."""
        return tuple(dict.fromkeys(step.stage for step in self.passes))

    @property
    def behind(self) -> tuple[str, ...]:
        """The scratch buffers that the entry point takes behind its counts."""
        rooms = (room.name for room in self.kernel.rooms)
        names = ("partials", "counter", "workspace", *rooms)
        return tuple(name for name in names if name in self.scratch)

    @property
    def outputs(self) -> int:
        """How many values the last launch leaves: answers, or partials for the host to fold."""
        return self.passes[0].grid if self.folds_on_host else self.problem.rows

    @property
    def room(self) -> int:
        """How many values the output has room for: where a kernel of others has answers of its own
        making, it may have kept a partial for each block there."""
        own = self.kernel.guessed is not None and self.kernel.finish == "none" and self.passes
        return max(self.outputs, self.passes[-1].grid if own else 1)

    @property
    def folds_on_host(self) -> bool:
        """True if what the launches leave are partials."""
        return self.kernel.finish == "host" and bool(self.passes)

    @property
    def tree(self) -> Tree:
        """The order in which the first row is added up, as far as the kernel's header determines
        it: what must have come together before others do. Costs a moment an element."""
        rows = max(1, self.problem.rows)
        fixed = fixed_warps(self.kernel, self.problem.n, self.problem.reduction.dtype.size)
        if fixed and self.passes:
            return fixed.tree()
        shapes = [(max(1, step.grid // rows), step.n) for step in self.passes]
        return claimed(self.kernel, shapes, self.block, self.items)

    @property
    def bytes_moved(self) -> int:
        """The algorithm's own traffic in bytes: every input read once, every output written
        once."""
        return self.problem.input_bytes + self.outputs * self.problem.reduction.result_size


def plan(
    kernel: Kernel,
    problem: Problem,
    *,
    block: int | None = None,
    items: int | None = None,
    limits: DeviceLimits = DEFAULT_LIMITS,
    sms: int | None = None,
) -> Plan:
    """Plan the launches of one problem; `block` and `items` are the kernel's own unless given, and
    `sms` is how many SMs may work, at most.

    What the kernel or CUDA cannot take is a UsageError: rows, or a length of them, that the kernel
    does not reduce, a part of a tile where it takes whole ones, more than 2^31 - 1 blocks.
    """
    reason = kernel.why_not_shape(problem.n, problem.rows)
    if reason:
        raise UsageError(f"{kernel.id} {reason}")
    block = block or kernel.block
    items = items or kernel.items_of(problem.reduction.dtype.size)
    shapes = _shapes(kernel, problem, block, items, limits, sms)
    fixed = fixed_warps(kernel, problem.n, problem.reduction.dtype.size)
    passes: list[Pass] = []
    scratch: dict[str, int] = {}
    source = "in"
    for index, (grid, n) in enumerate(shapes):
        if kernel.whole_tiles and n % (block * items):
            raise UsageError(
                f"{kernel.id} takes no count, so n must be a multiple of {block * items}, not {n}"
            )
        if grid > MAX_GRID:
            raise UsageError(
                f"{kernel.id} would need {grid} blocks; CUDA launches at most 2^31 - 1"
            )
        last = index == len(shapes) - 1
        target = "out" if last else ("ping", "pong")[index % 2]
        if not last:
            scratch[target] = max(scratch.get(target, 0), grid * problem.reduction.acc_size)
        stage = stage_of(problem.reduction, index, len(shapes))
        passes.append(Pass(stage, grid, n, source, target))
        source = target
    if shapes:
        scratch |= _behind(kernel, problem, fixed.partials if fixed else shapes[0][0], block)
    answers_preset = kernel.finish == "atomic" or not shapes
    preset = "out" if problem.rows and answers_preset else None
    depth = sum(  # a block may take several rows
        fixed.depth if fixed else _depth(kernel, max(1, grid // problem.rows), n, block, items)
        for grid, n in shapes
    )
    return Plan(kernel, problem, block, items, tuple(passes), scratch, preset, depth, sms)


def _behind(kernel: Kernel, problem: Problem, partials: int, block: int) -> dict[str, int]:
    """Bytes of each buffer that the entry point takes behind its counts."""
    if kernel.finish == "last_block":
        counts = problem.rows + (kernel.walk == "tickets")  # those that were drawn, behind the rest
        return {"partials": partials * problem.reduction.acc_size, "counter": 4 * counts}
    if kernel.workspace:
        return {"workspace": kernel.workspace_bytes(problem.reduction, partials)}
    blocks = max(partials, problem.rows)
    sizes = blocks, partials * block, problem.elements
    return {room.name: room.bytes(*sizes) for room in kernel.rooms}


def _shapes(
    kernel: Kernel, problem: Problem, block: int, items: int, limits: DeviceLimits, sms: int | None
) -> list[tuple[int, int]]:
    """Grid and elements per row of each pass. Without elements nothing is launched; answers are
    preset. A cap on SMs is one on blocks, since several blocks spread over SMs before they share
    one; whoever asks for it asks only kernels whose blocks stride."""
    n, rows = problem.n, problem.rows
    if problem.elements == 0:
        return []
    asked = kernel.fixed_grid if kernel.guessed is not None else None
    grid = asked or _grid(kernel, rows, n, block, items, limits)
    shapes = [(min(grid, sms or grid), n)]
    while kernel.relaunches and shapes[-1][0] > rows:
        n = shapes[-1][0] // rows
        once = kernel.finish == "relaunch_one_block"
        shapes.append((1 if once else _grid(kernel, rows, n, block, items, limits), n))
    return shapes


def _grid(kernel: Kernel, rows: int, n: int, block: int, items: int, limits: DeviceLimits) -> int:
    cover = rows * _parts(n, block * items)
    if kernel.fixed_warps:
        cover = min(cover, _parts(32 * kernel.fixed_warps, block))
    match kernel.grid:
        case "cover":
            return cover
        case "fill":
            return min(cover, limits.sm_count * (limits.threads_per_sm // block))
        case "per_sm":
            return min(cover, limits.sm_count)
        case "fixed":
            return min(cover, kernel.fixed_grid or 1)
        case "block_per_row":
            return rows
        case "warp_per_row":
            return _parts(rows, block // 32)
        case "thread_per_row":
            return _parts(rows, block)
        case "cluster":
            return CLUSTER
        case "fill_by_row":
            held = limits.sm_count * (limits.threads_per_sm // block)
            return rows * max(1, min(_parts(n, block * items), held // rows))
        case _:
            return 1


def _depth(kernel: Kernel, blocks: int, n: int, block: int, items: int) -> int:
    """Additions an element can pass through in one launch with `blocks` blocks a row: its thread's
    own, the block's, and where blocks meet in one launch, those of the partials: the n of Higham's
    gamma_n, 4.2. An addition to the identity rounds nothing, so `k` values cost `k - 1`."""
    match kernel.walk:
        case "element":
            return n - 1
        case "lane":
            return _steps(32)
        case "warp_stride":
            return items * _parts(n, 32 * items) - 1 + (kernel.vector > 1) + _steps(32)
        case "warp_stream":  # a tile's elements and lanes, then the tiles
            own = items + _steps(32) + _parts(n, block * items * blocks)
        case "tickets":  # chance may leave all tiles to one block; each is a sum of its own
            own = items + _parts(n, max(32, block - 32) * items)
        case "tile":
            own = items
        case "grid_stride":
            own = items * _parts(n, block * items * blocks)
        case _:
            own = _parts(_parts(n, blocks), block)
    serial = kernel.fold == "warps_then_serial"
    folded = _steps(32) + block // 32 - 1 if serial else _steps(block)
    depth = own - 1 + folded + (kernel.vector > 1)  # the ends of which wide loads leave
    if kernel.finish in (*UNORDERED, "cluster"):
        depth += blocks - 1
    if kernel.finish in ("last_block", "mailbox"):
        depth += _parts(blocks, block) - 1 + folded
    return depth


def _parts(whole: int, part: int) -> int:
    """How many parts of this size make up the whole, the last one perhaps shorter."""
    return -(-whole // part)


def _steps(count: int) -> int:
    """How many times `count` must be halved until one is left."""
    return (count - 1).bit_length()
