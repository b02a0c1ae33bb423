"""Whether a kernel reaches elements whose place, in elements or bytes, takes more than 31 or 32
bits, and those of blocks whose number takes more than 16.

No machine need have the memory: the input is address space, 0 but for a few marked elements, and of
the launch single blocks are run, each alone. What a block then leaves says which marks it counted.
No kernel has to divide its work as its header says, so one is only judged so far out where it did
what was expected of it at sizes that these hold. An access outside the input always is a fault.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np

from cudareduce.backend import Buffer, SparseBackend
from cudareduce.errors import KernelFault, OutOfMemory
from cudareduce.launch.bound import KEPT, arguments
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.library.header import UNORDERED
from cudareduce.machine.device import DeviceLimits
from cudareduce.problem.inputs import Array, as_answers, as_numbers, stored
from cudareduce.problem.operators import Reduction
from cudareduce.problem.reference import preset
from cudareduce.verify.probes import MARKED_TURNS, Probe, probes
from cudareduce.verify.shapes import FAR, Net, tile_of
from cudareduce.verify.verdict import RIGHT, Verdict

#: So many sizes, all of them within 31 bits, show how a kernel divides its work.
_LEARNED = 2
#: Where packed indices end, and offsets in bytes and in elements.
_PACKED, _SIGNED, _UNSIGNED = 2**24, 2**31, 2**32
#: Elements that a grid as large as the device takes in one turn.
_TURN = 2**19
#: The most elements that one block takes where its work is learned.
_LEARNED_WORK = 2**20
#: Blocks, of a grid that grows, where its work is learned: an index of 16 bits holds as many.
_LEARNED_BLOCKS = 2**15 - 1
#: Numbers of 16 bits whose sum has more digits than they have. Below `_EXACT` float32 has all that
#: the sum of two turns has, 2^24 of the small ones.
_LARGE_SMALL, _EXACT = (256.0, 0.125), 2**21
#: Elements of a row: odd, few, no more than a warp has lanes, and enough for rows to be few.
_ROW, _SHORT_ROW, _LONG_ROW = 257, 31, 4097
#: Tiles of a row that several blocks share.
_TILES_OF_ROW = 3
#: Seconds of a processor that one block is worth, and that it has where it is not to be expected
#: that those are enough, in case it ends at once.
_MOST_S, _GLANCE_S = 0.4, 0.03
#: Where a block leaves its partial of one word for the block that folds them: the buffer, how many
#: words it has there for each block, and which of them.
_TOGETHER = {
    "last_block": ("partials", 1, 0), "mailbox": ("workspace", 2, 0),
    "self_reset": ("workspace", 0, 0), "one_word": ("workspace", 0, 1),
}  # fmt: skip
#: Seconds, and times as long as before, that what should end is waited for.
_START_S, _SLOWER = 0.1, 20


@dataclass(frozen=True, slots=True)
class _Seen:
    """What became of one block: `wrong` says what was not as expected, `ended` that it has come to
    its end by itself, after so many `seconds` of a processor."""

    block: int
    wrong: str
    ended: bool
    seconds: float


def far_net(case: Case) -> Iterator[Net]:
    """Sizes that show how the kernel divides its work, then those beyond 32 bits and, for where a
    block takes too long to get there, beyond fewer."""
    kernel, tile, size = case.kernel, tile_of(case), case.reduction.dtype.size
    grows = any(room.each for room in kernel.rooms)  # what does has no room there
    packed = case.reduction.op.indexed and kernel.finish in UNORDERED  # a value and a place
    within = case.reduction.within
    rounds = within is not None and within.size == 2  # marks may have more digits
    if kernel.whole_tiles or kernel.plane or case.reduction.map or grows or packed or rounds:
        return  # who takes no count says nothing of how far it goes, and a map may hide marks
    fills = kernel.grid in ("fill", "per_sm", "fixed", "fill_by_row")
    grid = (kernel.fixed_grid or max(1, _TURN // tile)) if fills else 1
    limits = DeviceLimits(sm_count=grid, threads_per_sm=case.block)
    strides = fills or kernel.grid == "one"
    if kernel.asks.square or (
        kernel.scope == "grid" and kernel.finish == "none" and kernel.grid != "one"
    ):
        return  # where its blocks leave what they find is its own affair
    covers = kernel.scope == "rows" and (kernel.grid, kernel.finish) == ("cover", "atomic")
    alone = kernel.finish == "none" or kernel.grid.endswith("_per_row")  # adds to what is there
    by_row = kernel.scope == "warp" or (kernel.scope == "rows" and alone)
    if kernel.scope == "rows" and strides and not by_row and kernel.grid != "fill_by_row":
        return  # several blocks a row and several rows a block: no header says which
    n = _SHORT_ROW if kernel.scope == "warp" else _LONG_ROW if strides else _ROW
    by_row, n = by_row or covers, _TILES_OF_ROW * tile if covers else n
    unit = (n if by_row else tile) * (grid * MARKED_TURNS if strides else 1)
    caps = [k for k in kernel.constants if _PACKED < k < _SIGNED]  # which it may take at most
    borders = sorted((_UNSIGNED, _SIGNED, _UNSIGNED // size, _PACKED, *caps), reverse=True)
    work = grid * _LEARNED_WORK if strides else _LEARNED_BLOCKS * unit
    most = min(_SIGNED // size // 2, work, *caps)
    learned = ((2 if strides else 37) * unit, max(most // unit, 3) * unit)
    sizes = dict.fromkeys((*learned, *((border // unit + 2) * unit for border in borders)))
    rows = case.asks.near_rows
    shapes = tuple((n, rows(elements // n, n)) if by_row else (elements, 1) for elements in sizes)
    shapes = tuple(dict.fromkeys((n, k) for n, k in shapes if n * k <= (case.asks.most or n * k)))
    if len(shapes) > _LEARNED and not any(case.asks.why_not(*shape) for shape in shapes):
        yield Net(case=case, shapes=shapes, limits=limits, care=FAR)


def verify_far(backend: SparseBackend, prepared: Prepared, shapes: Sequence[Shape]) -> Verdict:
    """The verdict on a case from sizes as `far_net` gives them; right where nothing can be said."""
    as_expected, pace_s = bool(_sign(prepared.case.reduction)), 0.0
    for k, shape in enumerate(shapes):
        plan = prepared.plans[shape]
        work = plan.problem.elements // plan.passes[0].grid
        is_long = not as_expected or pace_s * work > _MOST_S
        if is_long and k > _LEARNED:
            continue
        most_s = _GLANCE_S if is_long else _START_S + _SLOWER * pace_s * work
        try:
            found = list(_seen(backend, plan, prepared, most_s, narrow=k >= _LEARNED))
        except OutOfMemory:  # of address space, which somebody has limited
            return RIGHT
        if k < _LEARNED:
            as_expected = as_expected and not any(one.wrong for one in found)
            pace_s = max(one.seconds for one in found) / work if k == _LEARNED - 1 else 0.0
            continue
        for one in found if as_expected else ():
            if one.wrong and (one.ended or not is_long):
                rows = f" x {shape[1]} rows" if shape[1] != 1 else ""
                where = f"n = {shape[0]}{rows}, block {one.block} of {plan.passes[0].grid}"
                return Verdict("fail", f"{where}: {one.wrong}")
        if not is_long:
            break
    return RIGHT


def _sign(reduction: Reduction) -> int:
    """The sign of marks that stand out among zeros; 0 where none can."""
    if reduction.op.expression:
        return 0
    below = reduction.dtype.kind != "uint"
    return {"sum": 1, "max": 1, "argmax": 1, "min": -below, "argmin": -below}.get(
        reduction.op.name, 0
    )


def _seen(
    backend: SparseBackend, plan: Plan, prepared: Prepared, most_s: float, *, narrow: bool = False
) -> Iterator[_Seen]:
    """Run the probes of a plan, each for `most_s` at most, up to one that does not end; `narrow` is
    what `_numbers` makes of it."""
    problem, step = plan.problem, plan.passes[0]
    reduction, sign = problem.reduction, _sign(problem.reduction)
    marked, program = list(probes(plan)), prepared.programs[step.unit]
    shared = plan.kernel.shared_bytes(reduction, plan.block)
    if reduction.op.needs_count:
        program.set_constant("COUNT", problem.n)
    with _reserved(backend, plan) as buffers:
        for k, probe in enumerate(marked if sign else ()):
            values = stored(_numbers(reduction, probe, sign * (k + 1), narrow), reduction.dtype)
            _part(buffers["in"], probe.start, values.dtype, probe.count, probe.step)[:] = values
        args = arguments(plan, step, buffers)
        for k, probe in enumerate(marked):
            left = _left(plan, probe, buffers)
            left[:] = np.frombuffer(_before(plan), left.dtype)
            for name in buffers.keys() & {*KEPT, *plan.zeroed}:
                backend.zero(buffers[name])
            seconds: float | None = 0.0
            try:
                seconds = backend.run_alone(
                    probe.block, most_s, program, step.grid, plan.block, args, shared
                )
                numbers = _numbers(reduction, probe, sign * (k + 1), narrow)
                wrong = _difference(plan, probe, left, numbers) if sign else ""
            except KernelFault as fault:
                wrong = str(fault)
            if seconds is None:
                yield _Seen(probe.block, f"no end after {most_s:.2g} s", False, most_s)
                return
            yield _Seen(probe.block, wrong, True, seconds)


@contextmanager
def _reserved(backend: SparseBackend, plan: Plan) -> Iterator[dict[str, Buffer]]:
    """The buffers of a plan, all of them 0. Raises OutOfMemory."""
    reduction = plan.problem.reduction
    sizes = {"in": plan.problem.input_bytes, "out": plan.room * reduction.result_size}
    with ExitStack() as stack:
        buffers = {}
        for name, nbytes in (sizes | plan.scratch).items():
            buffers[name] = backend.reserve(nbytes)
            stack.callback(backend.free, buffers[name])
        yield buffers


def _part(buffer: Buffer, first: int, dtype: np.dtype, count: int, step: int = 1) -> Array:
    """Some elements of a buffer, so many apart, to be read and written where they lie."""
    memory = ctypes.c_char * (((count - 1) * step + 1) * dtype.itemsize)
    place = buffer.address + first * dtype.itemsize
    return np.frombuffer(memoryview(memory.from_address(place)), dtype)[::step]


def _finished(plan: Plan) -> bool:
    """Whether the first launch leaves answers, and not partials."""
    alone = plan.kernel.finish not in _TOGETHER or plan.passes[0].grid == 1
    return len(plan.passes) == 1 and alone and not plan.folds_on_host


def _left(plan: Plan, probe: Probe, buffers: Mapping[str, Buffer]) -> Array:
    """Where a block leaves its partial, or its answer."""
    reduction, finish = plan.problem.reduction, plan.kernel.finish
    together = finish == "atomic" and plan.problem.rows == 1
    name, slot = plan.passes[0].target, 0 if together else probe.slot
    if finish in _TOGETHER and not _finished(plan):
        name, slots_a_block, first = _TOGETHER[finish]
        slot = slots_a_block * slot + first
    kept = (reduction.stored or reduction.acc).storage
    dtype = np.dtype(kept if reduction.op.words == 1 else f"V{reduction.acc_size}")
    if reduction.op.indexed and _finished(plan):
        dtype = np.dtype("int64")
    elif reduction.op.indexed:
        dtype = np.dtype([("value", dtype), ("index", "int64")], align=True)
    return _part(buffers[name], slot, dtype, 1)


def _before(plan: Plan) -> bytes:
    """What stands there beforehand."""
    reduction = plan.problem.reduction
    if plan.kernel.finish == "atomic":
        return preset(reduction, empty=False)
    return b"\xff" * (reduction.result_size if _finished(plan) else reduction.acc_size)


def _numbers(reduction: Reduction, probe: Probe, value: int, narrow: bool) -> Array:
    """What is marked with. With `narrow` a turn of a grid has large numbers, the next two small
    ones and the last one large ones again, so that of pairs of turns, too, each place has both: a
    running sum in 16 bits loses the small ones, one in 32 bits none."""
    numbers = np.full(probe.count, float(value))
    turn = probe.share // MARKED_TURNS
    wide = reduction.op.name == "sum" and reduction.dtype.name in ("float16", "bfloat16")
    if narrow and wide and probe.share != probe.count and 2 * turn * sum(_LARGE_SMALL) < _EXACT:
        turns = (*_LARGE_SMALL, *reversed(_LARGE_SMALL))
        numbers *= np.resize(np.repeat(turns, probe.count // MARKED_TURNS), probe.count)
    return numbers


def _difference(plan: Plan, probe: Probe, left: Array, numbers: Array) -> str:
    """In which way a partial is not that of the marks, in words; empty if it is."""
    reduction, place = plan.problem.reduction, probe.first
    op = reduction.op
    shared = numbers.sum() * probe.share / probe.count
    expected = shared if op.name == "sum" else numbers[0]
    if not op.indexed:
        got, together = left[0].item(), [expected]
        if op.name == "sum" and probe.share != probe.count:  # loads may be as wide as all turns
            together.append(numbers[probe.block * probe.share :][: probe.share].sum())
        if reduction.stored is not None:
            got = as_numbers(left, reduction.stored)[0].item()
            together = as_answers(np.array(together), reduction).tolist()
        return "" if got in together else f"got {got:g}, expected {expected:g}"
    index = left[0].item() if _finished(plan) else left["index"][0].item()
    return "" if index == place else f"got the element at {index}, expected that at {place}"
