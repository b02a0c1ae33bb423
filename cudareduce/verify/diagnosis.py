"""Explanation of a wrong result: which elements a kernel loses, adds twice or ignores.

The multiplicity of each element (how often it is added) is measured with inputs that are zero but
for a few powers of 8: each octal digit of the sum is the multiplicity of one element.
"""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from time import process_time

import numpy as np

from cudareduce.backends.protocol import Backend
from cudareduce.errors import CudareduceError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Prepared, Shape
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.inputs import Array, stored
from cudareduce.reduction.operators import Reduction

#: Limits of an explanation: CPU time and elapsed time in s.
_LIMIT_S, _WAIT_S = 2.5, 8.0
#: Largest sizes for which single elements, and ranges of elements, are measured.
_MOST, _LARGEST = 8192, 1 << 22
#: Number of ones whose sum is exact in every type.
_MOST_ONES = 256
#: How many elements a sentence lists.
_NAMED = 3
#: Range of integers that a type represents exactly, as a power of two.
_EXACT_BITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_PATTERN = re.compile(r"n = \d+(?: x \d+ rows)?, (?P<name>[\w-]+)")
_ERROR = re.compile(r"error (?P<error>[\d.e+-]+), bound (?P<bound>[\d.e+-]+)")
#: Factor by which a sum in a narrower type (float16 instead of float32) may exceed the bound.
_MOST_ROUNDING = 1e5
#: Patterns whose sums are exact in any order.
_EXACT = ("exact", "ones", "twos", "zeros", "factors")
#: Patterns with NaN or infinity.
_SPECIAL = ("nan", "-nan", "inf", "-inf", "clash", "named")


class _Cause(Exception):
    """A cause that is detected during the measurement; the message describes it."""


def _unwritten(rows: Array) -> _Cause:
    """Finite elements have given NaN, with which the emulator fills memory, in these rows."""
    if rows.all():
        return _Cause("memory that no thread has written is in the result")
    return _Cause(f"the result of row {np.argmax(rows)} of {len(rows)} is never written")


def explain(backend: Backend, ready: Prepared, failed: Shape, reason: str) -> str:
    """One sentence on the cause of a wrong result at a shape, or nothing if none is found.

    On the emulator the measurement runs in a process of its own, which may crash or hang.
    """
    if not _is_measurable(ready.case.reduction):
        return ""
    if not backend.traits.isolated:  # a larger launch might fault and end the GPU's context
        one = replace(ready, plans={failed: ready.plans[failed]})
        return _explain(backend, one, failed, reason, process_time() + _LIMIT_S)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 1)
            os.dup2(null, 2)
            sentence = _explain(backend, ready, failed, reason, process_time() + _LIMIT_S)
            os.write(writer, sentence.encode())
        os._exit(0)
    os.close(writer)
    try:
        answered, _, _ = select.select([reader], [], [], _WAIT_S)
        text = os.read(reader, 4096) if answered else b""
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return text.decode(errors="replace")


def _is_measurable(reduction: Reduction) -> bool:
    plain = reduction.map is None and reduction.inputs == 1 and not reduction.columns
    return plain and reduction.op.name in ("sum", "mean", "max", "min")


def _explain(backend: Backend, ready: Prepared, failed: Shape, reason: str, deadline: float) -> str:
    """The sentence for the failed shape. If that is too small to show a pattern, the sentence for a
    larger shape that fails, too."""
    tile, sentence = _tile(ready), ""
    several = [
        shape for shape in sorted(ready.plans) if shape[1] == 1 and 2 * tile < shape[0] <= _MOST
    ]
    longest_tail = sorted(several, key=lambda shape: -(shape[0] % tile))[:1]
    shapes = [failed, *(longest_tail if failed[0] < 2 * tile else ())]
    measured = False
    notes: Callable[[], list[str]] = getattr(backend, "notes", list)
    notes()  # those of earlier launches
    for shape in dict.fromkeys(shapes):
        if not 0 < shape[0] * shape[1] <= _LARGEST:
            continue
        try:
            counts, seen = measure(backend, ready, shape, deadline), ""
        except _Cause as error:
            counts, seen = None, str(error)
        for cause in (*notes(), seen):
            if cause:
                return cause
        if counts is not None:
            found = describe(counts, tile, ready.case.reduction.op.name)
            measured = measured or shape == failed
            if found:
                sentence = found if shape == failed else f"at n = {shape[0]} {found}"
    return sentence or (_other_cause(ready, reason) if measured else "")


def _tile(ready: Prepared) -> int:
    return ready.case.block * ready.case.items


def measure(backend: Backend, ready: Prepared, shape: Shape, deadline: float) -> Array | None:
    """The multiplicity of each element in the first faulty row: how often it is added. For a
    maximum or minimum 1 for elements that can win, else 0. None if it cannot be measured before the
    deadline."""
    n, rows = shape
    reduction = ready.case.reduction
    low, values = _digits(reduction)
    buffer = backend.upload(stored(np.full(rows * n, low), reduction.dtype))
    bound = Bound(backend, ready.plans[shape], ready.programs, buffer)

    def results(first: int, some: Array) -> Array:
        """The result of each row for `some` values from `first` on."""
        if process_time() > deadline:
            raise TimeoutError
        data = np.full((rows, n), low)
        data[:, first : first + len(some)] = some
        backend.write(buffer, stored(data.ravel(), reduction.dtype))
        bound.poison()
        bound.run()
        found = np.asarray(bound.results(), float).reshape(rows, -1)[:, 0]
        if not np.isfinite(found).all():
            if len(some):  # an overflow, unless zeros give the same
                results(0, some[:0])
                raise OverflowError
            raise _unwritten(~np.isfinite(found))
        return np.rint(found * n) if reduction.op.name == "mean" else found

    try:
        if n > _MOST:
            return _counts_of_ranges(n, results) if rows == 1 and low == 0 else None
        counts = np.ones((rows, n), np.int64)
        for first in range(0, n, len(values)):
            some = values[: n - first]
            found = results(first, some)
            counts[:, first : first + len(some)] = _multiplicities(found, some, reduction)
        if (counts == 1).all() and low == 0 and (results(0, values[:n]) != values[:n].sum()).any():
            raise _Cause("a launch finds what an earlier one has left in global memory")
        if (counts == 1).all() and low == 0 and n <= _MOST_ONES:
            together = results(0, np.ones(n))
            few = int(together[np.argmax(together != n)])
            if 0 <= few < n:
                raise _Cause(
                    "each element alone is added, but of "
                    f"{n} together only {few} are: threads overwrite each other's sums"
                )
    except (CudareduceError, TimeoutError, OverflowError):
        return None
    finally:
        bound.release()
    wrong = np.flatnonzero((counts != 1).any(axis=1))
    return np.asarray(counts[wrong[0] if len(wrong) else 0])


def _counts_of_ranges(n: int, results: Callable[[int, Array], Array]) -> Array:
    """The multiplicities of many elements. Ranges are halved until random weights show that all
    elements of a range have the same multiplicity."""
    counts = np.zeros(n, np.int64)
    weights = np.random.default_rng(0).integers(1, 4, n).astype(float)
    ranges = [(0, n)]
    while ranges:
        first, end = ranges.pop()
        part = weights[first:end]
        count = float(results(first, part)[0]) / part.sum()
        if count == round(count) or end - first == 1:
            counts[first:end] = round(count)
            continue
        half = first + (1 << (end - first - 1).bit_length() - 1)
        ranges += [(first, half), (half, end)]
    return counts


def _digits(reduction: Reduction) -> tuple[float, Array]:
    """The value of all other elements, and values whose sum encodes the multiplicity of each."""
    if reduction.op.name in ("max", "min"):
        return 1.0, np.array([2.0 if reduction.op.name == "max" else 0.0])
    digits = min(_bits(kind) for kind in (reduction.dtype, reduction.acc)) // 3
    if reduction.stored is not None:
        digits = min(digits, _bits(reduction.stored) // 3)
    largest = _bits(reduction.dtype)
    return 0.0, np.array([8.0**k for k in range(max(digits, 1)) if 3 * k < largest])


def _bits(kind: DType) -> int:
    """Exponent of the largest power of two up to which a type represents all integers."""
    return _EXACT_BITS.get(kind.name, min(8 * kind.size, 53) - (kind.kind == "int"))


def _multiplicities(results: Array, values: Array, reduction: Reduction) -> Array:
    """The multiplicity of each value in each row, decoded from the results."""
    if reduction.op.name in ("max", "min"):
        return np.asarray(results[:, None] == values[None, :], np.int64)
    whole = np.rint(results).astype(np.int64)[:, None]
    return np.asarray(whole // values.astype(np.int64)[None, :] % 8)


def describe(counts: Sequence[int] | Array, tile: int, op: str) -> str:
    """A sentence about the elements that are not added exactly once; empty if all are."""
    counts = np.asarray(counts)
    n, verb = len(counts), "ignored" if op in ("max", "min") else "never added"
    if n > 1 and (counts == 0).all():
        return f"no element is {'considered' if verb == 'ignored' else 'added'}"
    again = sorted({int(count) for count in counts if count > 1})
    if n > 1 and len(again) == 1 and (counts == again[0]).all():
        return f"every element is added {_times(again[0])}"
    lost = np.flatnonzero(counts == 0)
    kept = np.flatnonzero(counts)
    kept_in = _ranges(kept)
    one_tile = len(kept_in) == 1 and kept[0] % tile == 0 and len(kept) == min(tile, n - kept[0])
    if one_tile and len(kept) < n and not again:
        verb = "considered" if verb == "ignored" else "added"
        others = "the results of all other blocks are lost or overwritten"
        return f"only {_listed(kept_in)} are {verb}: {others}"
    if op == "sum" and _only_the_largest(counts):
        return "only the largest element of several is added: the result is their maximum"
    if len(again) > 2:
        often = f"{np.count_nonzero(counts > 1)} of {n} elements are added more than once"
        return f"{often} and {len(lost)} never" if len(lost) else often
    parts = [f"{_subject(lost, n, counts)} {verb}"] if len(lost) else []
    for count in again:
        indices = np.flatnonzero(counts == count)
        parts.append(f"{_subject(indices, n, counts)} added {_times(count)}")
    overlap = len(lost) and again and lost[-1] == n - 1
    return ("the tiles of blocks overlap: " if overlap else "") + " and ".join(parts)


def _only_the_largest(counts: Array) -> bool:
    """True if of each group of digits only the largest one is in the result."""
    kept = np.flatnonzero(counts)
    group = kept[0] + 1 if len(kept) else 0
    expected = np.arange(len(counts)) % group == group - 1 if group > 1 else counts > 1
    expected[-1] = True
    return len(kept) > 1 and np.array_equal(counts, expected.astype(counts.dtype))


def _subject(indices: Array, n: int, counts: Array) -> str:
    text = _places(indices, n, counts)
    return f"{text} {'is' if text.startswith(('element ', 'the last element')) else 'are'}"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _places(indices: Array, n: int, counts: Array) -> str:
    """Indices as text: ranges, ranges in every period, every k-th element, or the first few."""
    ranges = _ranges(indices)
    if len(ranges) == 1 and indices[-1] == n - 1 and indices[0] > 0:
        return (
            f"the last {len(indices)} of {n} elements" if len(indices) > 1 else "the last element"
        )
    steps = np.diff(indices)
    if len(indices) > _NAMED and steps[0] > 1 and (steps == steps[0]).all():
        return f"elements {indices[0]}, {indices[1]}, {indices[2]} and so on"
    if len(ranges) > 1:
        period = _period(counts)
        if period:
            inside = [(a, b) for a, b in _ranges(indices[indices < period])]
            if inside and len(inside) <= _NAMED:
                return f"{_listed(inside)} of every {period}"
    if len(ranges) <= _NAMED:
        return _listed(ranges)
    return f"{len(indices)} of {n} elements ({_listed(ranges[:_NAMED])} and more)"


def _listed(ranges: Iterable[tuple[int, int]]) -> str:
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in ranges]
    single = len(texts) == 1 and " to " not in texts[0]
    *others, last = texts
    text = f"{', '.join(others)} and {last}" if others else last
    return f"element{'' if single else 's'} {text}"


def _ranges(indices: Array) -> list[tuple[int, int]]:
    """Runs of consecutive indices, first and last."""
    parts = np.split(indices, np.flatnonzero(np.diff(indices) != 1) + 1)
    return [(int(part[0]), int(part[-1])) for part in parts if len(part)]


def _period(counts: Array) -> int:
    """The smallest period of the multiplicities, seen at least twice; a part of a tile at the end
    need not follow it. 0 if there is none."""
    n = len(counts)
    changes = np.flatnonzero(np.diff(counts)) + 1
    for period in sorted({int(b - a) for a in changes for b in changes[:64] if b > a}):
        whole = n // period * period
        if 2 * period <= n and (counts[: whole - period] == counts[period:whole]).all():
            return period
    return 0


def _other_cause(ready: Prepared, reason: str) -> str:
    """The cause of a wrong result where each element is added exactly once."""
    reduction, match = ready.case.reduction, _PATTERN.match(reason)
    if match is None or "misaligned" in reason:  # the measurement had another input
        return ""
    pattern = match["name"]
    verb = "considered" if reduction.op.name in ("max", "min") else "added once"
    if pattern in _SPECIAL:
        return f"each element is {verb}, but NaN or infinity is not handled"
    if reduction.op.name in ("max", "min"):
        return ""
    if reduction.acc.kind != "float":
        return "each element is added once, so a sum exceeds the type that holds it in between"
    if pattern in _EXACT:  # a narrower type, or what an earlier launch left
        return ""
    error = _ERROR.search(reason)
    if error is None or float(error["error"]) > _MOST_ROUNDING * float(error["bound"]):
        return ""
    return "each element is added once, so the error comes from rounding"
