"""Large-index test: elements whose index or byte offset needs more than 31 or 32 bits, and blocks
whose index needs more than 16.

The machine need not have the memory. The input is reserved address space, 0 except for a few marked
elements, and only single blocks of the launch run. The partial result that a block leaves shows
which marks it counted. A kernel may divide its work otherwise than its front matter says, so it is
judged only if small launches behave as expected. An access outside of the input is always a fault.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from cudareduce.backends.protocol import Buffer, SparseBackend
from cudareduce.catalog.front_matter import UNORDERED
from cudareduce.errors import KernelFault, OutOfMemory
from cudareduce.launch.bound import KEPT, arguments
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.inputs import Array, as_numbers, as_results, stored
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import preset
from cudareduce.verify.test_sets import LARGE_INDEX, TestSet, tile_of
from cudareduce.verify.verdict import RIGHT, Verdict

#: Iterations of a grid-stride loop that are marked: kernels may unroll it by two or four.
MARKED_ITERATIONS = 4
#: Most elements that are marked.
_MOST_MARKED = 2**23


@dataclass(frozen=True, slots=True)
class Probe:
    """`count` marked elements from `start` on. `block` reduces `share` of them, with
    the index `first` first, and leaves its partial result in `slot`."""

    block: int
    slot: int
    start: int
    count: int
    share: int
    first: int


def probes(plan: Plan) -> Iterator[Probe]:
    """The elements that single blocks should reduce according to the front matter."""
    n, rows = plan.problem.n, plan.problem.rows
    kernel, grid, tile = plan.kernel, plan.passes[0].grid, plan.block * plan.items
    rows_a_block = {
        "block_per_row": 1,
        "warp_per_row": plan.block // 32,
        "thread_per_row": plan.block,
    }
    per_block = rows_a_block[kernel.grid] * n if kernel.grid in rows_a_block else tile
    size = plan.problem.reduction.dtype.size
    if kernel.grid in ("cover", "block_per_row", "warp_per_row"):
        borders = (_SIGNED // size, _UNSIGNED // size, _SIGNED, _UNSIGNED)
        blocks = {0, grid // 3, grid // 2 + 1, grid - 1}
        blocks |= {border // per_block + 1 for border in borders}
        for b in sorted(b for b in blocks if b < grid):
            if kernel.grid == "warp_per_row":
                row = min(b * (plan.block // 32) + 1, rows - 1)
                yield Probe(row // (plan.block // 32), row, row * n, n, n, 0)
            else:
                first = 0 if kernel.grid == "block_per_row" else b * tile
                slot = b * rows // grid if rows > 1 else b
                yield Probe(b, slot, b * per_block, per_block, per_block, first)
    elif kernel.scope == "rows" and rows > 1:
        row = rows - grid + grid // 2
        yield Probe(row % grid, row, row * n, n, n, 0)
    elif kernel.walk in ("contiguous", "stream_fold") or grid == 1:
        yield Probe(grid - 1, grid - 1, n - tile, tile, tile, n - tile)
    else:
        turns, b = MARKED_ITERATIONS * grid * tile, grid // 2
        count, start = min(turns, _MOST_MARKED), n - turns
        yield Probe(b, b, start, count, MARKED_ITERATIONS * tile, start + b * tile)


#: Number of sizes within 24 bits that show how a kernel divides its work.
_SMALL_SIZES = 2
#: Limits of packed indices, and of signed and unsigned 32-bit offsets.
_PACKED, _SIGNED, _UNSIGNED = 2**24, 2**31, 2**32
#: Elements that a grid as large as the device reads per iteration.
_ITERATION = 2**19
#: Most elements of one block at the small sizes.
_SMALL_WORK = 2**20
#: Blocks of a growing grid at the small sizes: as many as a 16-bit index allows.
_SMALL_BLOCKS = 2**15 - 1
#: 16-bit floats whose sum has more digits than they have. Sums below `_EXACT`, 2^24 of the small
#: ones, are exact in float32.
_LARGE_SMALL, _EXACT = (256.0, 0.125), 2**21
#: Elements of a row: odd, at most as many as a warp has lanes, and enough for few rows.
_ROW, _SHORT_ROW, _LONG_ROW = 257, 31, 4097
#: Tiles of a row that several blocks share.
_TILES_OF_ROW = 3
#: Seconds of processor time for one block, and for one that is expected to need more but may end
#: at once.
_MOST_S, _SHORT_S = 0.4, 0.03
#: Where a block stores its partial result of one word for the block that folds them: the buffer,
#: its words per block, and the index of the word.
_SLOTS = {
    "last_block": ("partials", 1, 0), "mailbox": ("workspace", 2, 0),
    "self_reset": ("workspace", 0, 0), "one_word": ("workspace", 0, 1),
}  # fmt: skip
#: Partial results per thread of the block that folds them, and seconds that this may take.
_PARTIALS, _FOLD_S = 16, 2.0
#: Seconds, and multiple of the expected time, to wait for a block that should end.
_START_S, _SLOWER = 0.1, 20


@dataclass(frozen=True, slots=True)
class _BlockRun:
    """One block that ran: `wrong` says what was not as expected; `ended` is False if it was stopped
    after `seconds` of processor time."""

    block: int
    wrong: str
    ended: bool
    seconds: float


def large_index_test_sets(case: Case) -> Iterator[TestSet]:
    """Sizes that show how the kernel divides its work, then sizes beyond 32 bits and, in case a
    block takes too long to get there, beyond fewer bits."""
    kernel, tile, size = case.kernel, tile_of(case), case.reduction.dtype.size
    packed = (
        case.reduction.op.indexed and kernel.finish in UNORDERED
    )  # a value and an index in one word
    within = case.reduction.within
    rounds = within is not None and within.size == 2  # marks may be rounded
    if case.reduction.map or packed or rounds:
        return  # a transform may hide marks
    fills = kernel.grid in ("fill", "per_sm", "fixed", "fill_by_row")
    grid = (kernel.fixed_grid or max(1, _ITERATION // tile)) if fills else 1
    limits = DeviceLimits(sm_count=grid, threads_per_sm=case.block)
    strides = fills or kernel.grid == "one"
    if kernel.scope == "grid" and kernel.finish == "none" and kernel.grid != "one":
        return  # where its blocks leave their results is unknown
    covers = kernel.scope == "rows" and (kernel.grid, kernel.finish) == ("cover", "atomic")
    alone = kernel.finish == "none" or kernel.grid.endswith(
        "_per_row"
    )  # an atomic finish would add to old content
    by_row = kernel.scope == "warp" or (kernel.scope == "rows" and alone)
    if kernel.scope == "rows" and strides and not by_row and kernel.grid != "fill_by_row":
        return  # the front matter does not say how rows are split between blocks
    n = _SHORT_ROW if kernel.scope == "warp" else _LONG_ROW if strides else _ROW
    by_row, n = by_row or covers, _TILES_OF_ROW * tile if covers else n
    unit = (n if by_row else tile) * (grid * MARKED_ITERATIONS if strides else 1)
    borders = sorted((_UNSIGNED, _SIGNED, _UNSIGNED // size, _PACKED), reverse=True)
    work = grid * _SMALL_WORK if strides else _SMALL_BLOCKS * unit
    most = min(_PACKED, work)
    learned = ((2 if strides else 37) * unit, max(most // unit, 3) * unit)
    sizes = dict.fromkeys((*learned, *((border // unit + 2) * unit for border in borders)))
    rows = case.precondition.nearest_rows
    shapes = tuple((n, rows(elements // n)) if by_row else (elements, 1) for elements in sizes)
    shapes = tuple(
        dict.fromkeys((n, k) for n, k in shapes if n * k <= (case.precondition.most or n * k))
    )
    if len(shapes) > _SMALL_SIZES and not any(
        case.precondition.why_not(*shape) for shape in shapes
    ):
        yield TestSet(case=case, shapes=shapes, limits=limits, level=LARGE_INDEX)


def verify_large_indices(
    backend: SparseBackend, prepared: Prepared, shapes: Sequence[Shape]
) -> Verdict:
    """The verdict on a case from the sizes of `large_index_test_sets`; right if none can be
    formed."""
    as_expected, pace_s = bool(_mark_sign(prepared.case.reduction)), 0.0
    folds, block = True, prepared.case.block
    for k, shape in enumerate(shapes):
        plan = prepared.plans[shape]
        work = plan.problem.elements // plan.passes[0].grid
        is_long = not as_expected or pace_s * work > _MOST_S
        if is_long and k > _SMALL_SIZES:
            continue
        limit_s = _SHORT_S if is_long else _START_S + _SLOWER * pace_s * work
        try:
            found = list(_run_blocks(backend, plan, prepared, limit_s, narrow=k >= _SMALL_SIZES))
        except OutOfMemory:  # address space is limited here
            return RIGHT
        if k < _SMALL_SIZES:
            as_expected = as_expected and not any(one.wrong for one in found)
            folds = folds and (k > 0 or _fold_difference(backend, plan, prepared, limit_s) == "")
            pace_s = max(one.seconds for one in found) / work if k == _SMALL_SIZES - 1 else 0.0
            continue
        for one in found if as_expected else ():
            if one.wrong and (one.ended or not is_long):
                rows = f" x {shape[1]} rows" if shape[1] != 1 else ""
                where = f"n = {shape[0]}{rows}, block {one.block} of {plan.passes[0].grid}"
                return Verdict("fail", f"{where}: {one.wrong}")
        if not is_long:
            break
    larger = [plan for shape in shapes[_SMALL_SIZES:] if (plan := prepared.plans[shape]).passes]
    enough = [plan for plan in larger if _PARTIALS * block < plan.passes[0].grid <= _MOST_MARKED]
    if folds and enough:
        plan = min(enough, key=lambda plan: plan.problem.n)
        wrong = _fold_difference(backend, plan, prepared, _FOLD_S)
        if wrong:
            return Verdict("fail", f"n = {plan.problem.n}, the last block: {wrong}")
    return RIGHT


def _fold_difference(
    backend: SparseBackend, plan: Plan, prepared: Prepared, limit_s: float
) -> str | None:
    """How the result of the block that arrives last, run alone, differs from that of the partial
    results that it finds; empty if it does not, None if that cannot be seen."""
    step, reduction, grid = plan.passes[0], plan.problem.reduction, plan.passes[0].grid
    plain = reduction.op.name in ("sum", "max", "min") and reduction.stored is None
    if plan.kernel.finish != "last_block" or plan.problem.rows > 1 or not plain or grid < 2:
        return None
    sign, program = _mark_sign(reduction), prepared.programs[step.unit]
    shared = plan.kernel.shared_bytes(reduction, plan.block)
    with _reserve_buffers(backend, plan) as buffers:
        if buffers["counter"].nbytes != 4:
            return None
        _elements(buffers["counter"], 0, np.dtype("uint32"), 1)[0] = grid - 1
        partials = _elements(buffers["partials"], 0, np.dtype(reduction.acc.storage), grid)
        partials[: grid - 1 if reduction.op.name == "sum" else 0] = 1
        partials[grid - 2] = sign
        expected = partials.sum(dtype=float) if reduction.op.name == "sum" else float(sign)
        out = _elements(buffers["out"], 0, np.dtype(reduction.result_dtype), 1)
        out.view(np.uint8)[:] = 0xFF
        args = arguments(plan, step, buffers)
        try:
            done = backend.run_alone(grid - 1, limit_s, program, grid, plan.block, args, shared)
        except KernelFault as fault:
            return str(fault)
        untouched = (out.view(np.uint8) == 0xFF).all()
        if done is None or untouched:
            return None
        got = float(out[0])
    of = f"of {grid} partial results"
    return "" if got == expected else f"got {got:g}, expected {expected:g} {of}"


def _mark_sign(reduction: Reduction) -> int:
    """The sign of marks that change the result among zeros; 0 if there are none."""
    if reduction.op.expression:
        return 0
    below = reduction.dtype.kind != "uint"
    return {"sum": 1, "max": 1, "argmax": 1, "min": -below, "argmin": -below}.get(
        reduction.op.name, 0
    )


def _run_blocks(
    backend: SparseBackend, plan: Plan, prepared: Prepared, limit_s: float, *, narrow: bool = False
) -> Iterator[_BlockRun]:
    """Run the probes of a plan, each for at most `limit_s`, until one does not end; `narrow` as in
    `_mark_values`."""
    problem, step = plan.problem, plan.passes[0]
    reduction, sign = problem.reduction, _mark_sign(problem.reduction)
    marked, program = list(probes(plan)), prepared.programs[step.unit]
    shared = plan.kernel.shared_bytes(reduction, plan.block)
    if reduction.op.needs_count:
        program.set_constant("COUNT", problem.n)
    with _reserve_buffers(backend, plan) as buffers:
        for k, probe in enumerate(marked if sign else ()):
            values = stored(_mark_values(reduction, probe, sign * (k + 1), narrow), reduction.dtype)
            _elements(buffers["in"], probe.start, values.dtype, probe.count)[:] = values
        args = arguments(plan, step, buffers)
        for k, probe in enumerate(marked):
            left = _result_slot(plan, probe, buffers)
            left[:] = np.frombuffer(_initial_content(plan), left.dtype)
            for name in buffers.keys() & KEPT:
                backend.zero(buffers[name])
            seconds: float | None = 0.0
            try:
                seconds = backend.run_alone(
                    probe.block, limit_s, program, step.grid, plan.block, args, shared
                )
                numbers = _mark_values(reduction, probe, sign * (k + 1), narrow)
                wrong = _difference(plan, probe, left, numbers) if sign else ""
            except KernelFault as fault:
                wrong = str(fault)
            if seconds is None:
                yield _BlockRun(probe.block, f"no end after {limit_s:.2g} s", False, limit_s)
                return
            yield _BlockRun(probe.block, wrong, True, seconds)


@contextmanager
def _reserve_buffers(backend: SparseBackend, plan: Plan) -> Iterator[dict[str, Buffer]]:
    """The buffers of a plan as zeroed address space. Raises OutOfMemory."""
    reduction = plan.problem.reduction
    sizes = {"in": plan.problem.input_bytes, "out": plan.outputs * reduction.result_size}
    with ExitStack() as stack:
        buffers = {}
        for name, nbytes in (sizes | plan.scratch).items():
            buffers[name] = backend.reserve(nbytes)
            stack.callback(backend.free, buffers[name])
        yield buffers


def _elements(buffer: Buffer, first: int, dtype: np.dtype, count: int) -> Array:
    """A view of `count` elements of a buffer."""
    memory = ctypes.c_char * (count * dtype.itemsize)
    place = buffer.address + first * dtype.itemsize
    return np.frombuffer(memoryview(memory.from_address(place)), dtype)


def _is_final(plan: Plan) -> bool:
    """True if the first launch stores results, not partial results."""
    alone = plan.kernel.finish not in _SLOTS or plan.passes[0].grid == 1
    return len(plan.passes) == 1 and alone and not plan.folds_on_host


def _result_slot(plan: Plan, probe: Probe, buffers: Mapping[str, Buffer]) -> Array:
    """A view of the slot in which a block leaves its partial or final result."""
    reduction, finish = plan.problem.reduction, plan.kernel.finish
    together = finish == "atomic" and plan.problem.rows == 1
    name, slot = plan.passes[0].target, 0 if together else probe.slot
    if finish in _SLOTS and not _is_final(plan):
        name, slots_a_block, first = _SLOTS[finish]
        slot = slots_a_block * slot + first
    kept = (reduction.stored or reduction.acc).storage
    dtype = np.dtype(kept if reduction.op.words == 1 else f"V{reduction.acc_size}")
    if reduction.op.indexed and _is_final(plan):
        dtype = np.dtype("int64")
    elif reduction.op.indexed:
        dtype = np.dtype([("value", dtype), ("index", "int64")], align=True)
    return _elements(buffers[name], slot, dtype, 1)


def _initial_content(plan: Plan) -> bytes:
    """The content of that slot before the launch."""
    reduction = plan.problem.reduction
    if plan.kernel.finish == "atomic":
        return preset(reduction, empty=False)
    return b"\xff" * (reduction.result_size if _is_final(plan) else reduction.acc_size)


def _mark_values(reduction: Reduction, probe: Probe, value: int, narrow: bool) -> Array:
    """The values of marks. With `narrow` the iterations of the grid have large, small, small and
    large values, so that each thread adds both, even with a loop that is unrolled by two. A running
    sum in 16 bits loses the small ones; one in 32 bits is exact."""
    numbers = np.full(probe.count, float(value))
    if reduction.op.name == "sum":
        numbers[1::2] *= 2  # an index in float skips elements, which equal marks hide
    turn = probe.share // MARKED_ITERATIONS
    wide = reduction.op.name == "sum" and reduction.dtype.name in ("float16", "bfloat16")
    if narrow and wide and probe.share != probe.count and 2 * turn * sum(_LARGE_SMALL) < _EXACT:
        turns = (*_LARGE_SMALL, *reversed(_LARGE_SMALL))
        numbers *= np.resize(np.repeat(turns, probe.count // MARKED_ITERATIONS), probe.count)
    return numbers


def _difference(plan: Plan, probe: Probe, left: Array, numbers: Array) -> str:
    """Describe how a partial result differs from the expected one, which counts each mark once;
    empty if it does not."""
    reduction, place = plan.problem.reduction, probe.first
    op = reduction.op
    shared = numbers.sum() * probe.share / probe.count
    expected = shared if op.name == "sum" else numbers[0]
    if not op.indexed:
        got, together = left[0].item(), [expected]
        if op.name == "sum" and probe.share != probe.count:  # vector loads may span all iterations
            together.append(numbers[probe.block * probe.share :][: probe.share].sum())
        if reduction.stored is not None:
            got = as_numbers(left, reduction.stored)[0].item()
            together = as_results(np.array(together), reduction).tolist()
        return "" if got in together else f"got {got:g}, expected {expected:g}"
    index = left[0].item() if _is_final(plan) else left["index"][0].item()
    return "" if index == place else f"got the element at {index}, expected that at {place}"
