"""Identify which reduction a program computes by comparing its results on small inputs with
candidates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cudareduce.catalog.program import Address, FillStep, KernelStep, Program, Run, WriteStep
from cudareduce.external.trial import Fault, Trials
from cudareduce.reduction.dtypes import DTYPES, DType
from cudareduce.reduction.inputs import Array, as_numbers, stored
from cudareduce.reduction.operators import OPERATORS, Map, Reduction
from cudareduce.reduction.reference import reference

#: How the results lie: one; one for each row, elements of a row side by side or `columns` apart;
#: partial results that the host combines.
Layout = Literal["one", "rows", "columns", "partials"]
#: Elements on which programs are identified: more are slow to emulate, fewer tell too little.
_FEWEST, _MOST = 16, 2**17
#: The most elements of an input that is tried.
_LARGEST = 2**22
_SIZES = 3
#: Tried if nothing fits these: a grid of many threads may only copy fewer elements.
_LARGE = 2**16
#: A sum may count an element so often, of a wrong program: what scales more is another function.
_MOST_COUNTED = 4
#: Bits of whole numbers that a float64 holds.
_EXACT_BITS = 53
#: Bits of the exponent of the largest float, if these are not 128.
_LARGEST_EXPONENT = {"float16": 16, "float64": 1024}
#: The largest element of 16 bits that tells an extreme: most others are told apart, too.
_MOST_SPREAD = 2.0**11

#: Inputs of each size; the first ones are needed, the last shows what an extreme begins at.
_KINDS, _NEEDED = ("signed", "positive", "ones", "negative"), 3

Fold = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Candidate:
    """An operator with its transform. `fold` reduces the last axis in float64."""

    op: str
    map: str | None
    words: str
    fold: Callable[[Array, Array | None], Array]
    reduction: Reduction | None = None  # of one that the options name
    root: bool = False  # the square root of a sum


def _total(x: Array) -> Array:
    return np.asarray(x.sum(axis=-1))


_ONE = (
    Candidate("sum", None, "sum", lambda a, _: _total(a)),
    Candidate("mean", None, "mean", lambda a, _: _total(a) / a.shape[-1]),
    Candidate("max", None, "maximum", lambda a, _: a.max(axis=-1)),
    Candidate("min", None, "minimum", lambda a, _: a.min(axis=-1)),
    Candidate("sum", "a * a", "sum of squares", lambda a, _: _total(a * a)),
    Candidate("sum", "fabs(a)", "sum of magnitudes", lambda a, _: _total(np.abs(a))),
    Candidate("mean", "a * a", "mean of squares", lambda a, _: _total(a * a) / a.shape[-1]),
    Candidate("max", "fabs(a)", "largest magnitude", lambda a, _: np.abs(a).max(axis=-1)),
    Candidate("min", "fabs(a)", "least magnitude", lambda a, _: np.abs(a).min(axis=-1)),
    Candidate("sum", "a != 0", "number of elements that are not 0", lambda a, _: _total(a != 0)),
    Candidate("sum", "a > 0", "number of elements above 0", lambda a, _: _total(a > 0)),
    Candidate("argmax", None, "index of the maximum", lambda a, _: a.argmax(axis=-1)),
    Candidate("argmin", None, "index of the minimum", lambda a, _: a.argmin(axis=-1)),
    Candidate("prod", None, "product", lambda a, _: a.prod(axis=-1)),
    Candidate(
        "sum",
        "a * a",
        "square root of the sum of squares",
        lambda a, _: np.sqrt(_total(a * a)),
        root=True,
    ),
)


def _comparisons(value: float) -> Iterator[Candidate]:
    """Candidates that count elements with some relation to a value, such as `a == 3`."""
    text = f"{value:g}"
    yield Candidate("sum", f"a == {text}", f"number of elements equal to {text}",
                    lambda a, _: _total(a == value))  # fmt: skip
    yield Candidate("sum", f"a > {text}", f"number of elements above {text}",
                    lambda a, _: _total(a > value))  # fmt: skip
    yield Candidate("sum", f"a >= {text}", f"number of elements from {text} on",
                    lambda a, _: _total(a >= value))  # fmt: skip
    yield Candidate("sum", f"a < {text}", f"number of elements below {text}",
                    lambda a, _: _total(a < value))  # fmt: skip


def _overflows(a: Array, kind: DType) -> bool | None:
    """For a product that overflows its type, whether the result is meaningless (integers: the
    bits depend on the order of factors); None if it does not overflow."""
    size = np.log2(np.abs(np.where(a == 0, 1, a))).sum(axis=-1).max(initial=0)
    if kind.kind != "float":
        return True if size >= _EXACT_BITS else None
    return False if size >= _LARGEST_EXPONENT.get(kind.name, 128) else None


_FOLDS: dict[str, Fold] = {
    "sum": _total,
    "mean": lambda x: _total(x) / x.shape[-1],
    "max": lambda x: x.max(axis=-1),
}


def _two(op: str, text: str, words: str, f: Callable[[Array, Array], Array]) -> Candidate:
    def fold(a: Array, b: Array | None) -> Array:
        assert b is not None
        return _FOLDS[op](f(a, b))

    return Candidate(op, text, words, fold)


_SQUARED = "(a - b) * (a - b)"
_TWO = (
    _two("sum", "a * b", "dot product", lambda a, b: a * b),
    _two("sum", _SQUARED, "sum of squared differences", lambda a, b: (a - b) ** 2),
    _two("sum", "fabs(a - b)", "sum of absolute differences", lambda a, b: np.abs(a - b)),
    _two("sum", "a + b", "sum of both arrays", lambda a, b: a + b),
    _two("mean", _SQUARED, "mean of squared differences", lambda a, b: (a - b) ** 2),
    _two("mean", "fabs(a - b)", "mean of absolute differences", lambda a, b: np.abs(a - b)),
    _two("mean", "a * b", "mean of products", lambda a, b: a * b),
    _two("max", "fabs(a - b)", "largest absolute difference", lambda a, b: np.abs(a - b)),
    _two("sum", "a != b", "number of elements that differ", lambda a, b: a != b),
    _two("sum", "a == b", "number of equal elements", lambda a, b: a == b),
)


def _named(reduction: Reduction) -> Candidate:
    """The reduction that the options name, as a candidate."""

    def fold(a: Array, b: Array | None) -> Array:
        second = [] if b is None else [np.broadcast_to(b, a.shape)]
        elements, *others = (stored(x.ravel(), reduction.dtype) for x in (a, *second))
        return np.asarray(reference(reduction, elements, len(a), *others).expected, float)

    text = reduction.map.expression if reduction.map else None
    words = reduction.op.expression or reduction.op.name
    words = f"{words} of {text}" if text else words
    return Candidate(reduction.op.name, text, words, fold, reduction)


@dataclass(frozen=True, slots=True)
class Identity:
    """The reduction that a program computes, also in words, and the layout of its results.
    `words` is empty if the results show no operator. `fit` is the share of inputs on which it
    fits, 0 if it is only the nearest candidate. `changes_input` is True if a run changes its
    input."""

    reduction: Reduction
    words: str
    layout: Layout
    fit: float = 1.0
    changes_input: bool = False
    one_row: bool = False
    root: bool = False


@dataclass(frozen=True, slots=True)
class _Observed:
    """The elements of one input and the results as numbers. `results` come from memory filled
    with one byte, `again` from memory filled with another."""

    a: Array
    b: Array | None
    results: Array
    again: Array

    @property
    def is_stable(self) -> bool:
        """True if the results do not depend on the initial content of memory."""
        return np.array_equal(self.results, self.again, equal_nan=True)


class Identification:
    """Identifies one program that reads elements of `dtype`, from two inputs if `twice`."""

    def __init__(
        self, trials: Trials, program: Program, dtype: str,
        sizes: Mapping[Run, tuple[int, int | None]], values: Sequence[float] = (),
        named: Sequence[Reduction] = (),
    ) -> None:  # fmt: skip
        self._trials, self._program = trials, program
        self._dtype, self._stores = DTYPES[dtype], DTYPES[program.result]
        self._values = values  # that every launch gets, and that elements may be compared with
        self._candidates = tuple(map(_named, named))
        self._sizes = sizes  # elements of each input, by run
        self.faults: list[str] = []
        self.changes_input = False
        self._runs: list[Run] = []
        self.counts: dict[Run, int] = {}  # results that each run wrote

    def identify(self, integers: Mapping[Run, tuple[int, ...]]) -> Identity | None:
        """The candidate that fits the most inputs; None if none fits."""
        runs = self.chosen()
        scores: dict[tuple[Candidate, Layout, bool], int] = {}
        observed: dict[Run, list[_Observed]] = {}
        for k, run in enumerate(runs):
            if k == _SIZES and scores:
                break
            seen = observed[run] = self._observe(run)
            if any("no end" in fault for fault in self.faults):
                break
            if not seen:
                continue
            in_place = run.result.buffer == "in"  # the host finds no partial results among elements
            for candidate, layout, one_row, fits in self._fitting(seen):
                if in_place and layout == "partials":
                    continue
                key = candidate, layout, one_row
                scores[key] = scores.get(key, 0) + fits
        if scores:
            best = max(scores.values())
            fit = best / sum(len(seen) or len(_KINDS) for seen in observed.values())
            fitting = [key for key, score in scores.items() if score == best]
            chosen = self._preferred(fitting, observed, integers)
            return replace(self._identity(*chosen), fit=fit)
        self._runs = [run for run in runs if observed.get(run)]
        return None

    def nearest(self) -> Identity | None:
        """The reduction that a wrong program was probably meant to compute, if `identify` found
        none; None if no candidate is close."""
        if self.changes_input and any(run.result.buffer != "in" for run in self._runs):
            return None  # it writes where this takes the input to be
        for run in self._runs:
            nearest = self._nearest(run)
            if nearest is not None:
                return replace(self._identity(*nearest, False), fit=0.0)
        return None

    def chosen(self) -> list[Run]:
        """Runs of different sizes: some hundred elements, odd and round numbers."""
        runs = [r for r in self._program.runs if (self._sizes[r][1] or 0) <= _LARGEST]
        few = [r for r in runs if _FEWEST <= self._sizes[r][0] <= _MOST]
        few = few or [r for r in runs if 1 < self._sizes[r][0] <= _LARGEST]
        wanted = (1000, 4096, 2048, 513, 96)

        def distance(size: int) -> Callable[[Run], float]:
            return lambda run: abs(np.log(self._sizes[run][0] / size))

        near = [min(few, key=distance(size)) for size in wanted if few]
        large = [min(few, key=distance(_LARGE))] if few else []
        own = [run for run in self._program.runs[:1] if run in few]  # at the size in the file
        return list(dict.fromkeys((*list(dict.fromkeys(near))[:_SIZES], *large, *own)))

    def _observe(self, run: Run) -> list[_Observed]:
        """The results on three inputs; empty if a run faults."""
        found = []
        for kind in _KINDS[: None if self._dtype.kind != "uint" else -1]:
            a, b = self._inputs(run, kind)
            written = self._written(run, a, b)
            if written is None:
                return []
            results, again, count = written
            self.counts[run] = max(count, self.counts.get(run, 0))
            second = None if b is None else _wide(b, self._dtype)
            found.append(_Observed(_wide(a, self._dtype), second, results, again))
        count = self.counts[run]
        return [replace(o, results=o.results[:count], again=o.again[:count]) for o in found]

    def untouched(self) -> set[str]:
        """The buffers to which a small run writes nothing; empty if it faults."""
        runs = [run for run in self.chosen() if self._sizes[run][0] >= _FEWEST]
        found: set[str] = set()
        for byte in (0xFF, 0x01) if runs else ():
            a, b = self._inputs(runs[0], "positive")
            inputs = {"in": a} if b is None else {"in": a, "other": b}
            answer = self._trials.run(self._program, runs[0], inputs, byte=byte)
            if isinstance(answer, Fault):
                return set()
            before = {name: x.tobytes() for name, x in inputs.items()}
            same = {
                name for name, held in answer.items()
                if held == before.get(name, bytes([byte]) * len(held))
            }  # fmt: skip
            found = found & same if byte == 0x01 else same
        return found

    def fault_in(self, trials: Trials, *, zeros: bool = False, data: bytes | None = None) -> str:
        """Why a small run faults in the race-detecting build; "" if it does not. With `zeros`,
        whether it faults whatever the elements are. With `data`, the run at the size in the file
        on that input."""
        runs = self.chosen()[:1] if data is None else self._program.runs[:1]
        for run in runs:
            a, b = self._given(run, data)
            if zeros:
                a, b = np.zeros_like(a), None if b is None else np.zeros_like(b)
            inputs = {"in": a} if b is None else {"in": a, "other": b}
            answer = trials.run(self._program, run, inputs, wanted=("in",))
            if isinstance(answer, Fault):
                return answer.reason
        return ""

    def fault_of_all(self, *, own: bool, data: bytes | None = None) -> str:
        """Why all small runs fault, or the run at the size in the file if that is the program's
        `own` size, on the file's `data` if known. "" if a run does not fault or does not end."""
        reasons = []
        for run in self._program.runs[:1] if own else self.chosen():
            if self._sizes[run][0] > _LARGEST:
                return ""
            a, b = self._given(run, data if own else None)
            inputs = {"in": a} if b is None else {"in": a, "other": b}
            answer = self._trials.run(self._program, run, inputs, wanted=("in",))
            if not isinstance(answer, Fault) or "no end" in answer.reason:
                return ""
            reasons.append(f"n = {self._sizes[run][0]}: {answer.reason}")
        return reasons[0] if reasons else ""

    def requested(self) -> Identity | None:
        """The reduction named by the options, for a program that computes something else; None
        if they name none."""
        for candidate in self._candidates:
            for run in self._runs:
                layout: Layout = "one" if self.counts.get(run, 1) == 1 else "partials"
                return replace(self._identity(candidate, layout, False), fit=0.0)
        return None

    def supposed(self) -> Identity:
        """A sum, as a stand-in for a program that is wrong for every operator."""
        two = any(other is not None for _, other in self._sizes.values())
        identity = self._identity(_TWO[0] if two else _ONE[0], "one", False)
        return replace(identity, words="", fit=0.0)

    def count(self, run: Run) -> int | None:
        """The number of results that a run writes; None if it faults."""
        written = self._written(run, *self._inputs(run, "positive"))
        return None if written is None else written[2]

    def _inputs(self, run: Run, kind: str) -> tuple[Array, Array | None]:
        count, other = self._sizes[run]
        rng = np.random.default_rng([len(kind), count])
        arrays = []
        for n in (count, other or 0):
            if kind == "ones":
                x = np.ones(n)
                x[rng.permutation(n)[:6]] = 2
            else:
                top = 1000 if self._dtype.size > 2 else 100 if other is None else 30
                low = 1 if kind == "positive" or self._dtype.kind == "uint" else -top
                x = rng.integers(low, -2 if kind == "negative" else top, n).astype(float)
                if kind == "signed" and n > 3:  # extremes that are there once, and a 0
                    x[rng.permutation(n)[:3]] = top + 11, min(low, 0) - 13 * (low < 0), 0
            if kind in ("signed", "positive") and n > _FEWEST:
                for value in self._values:
                    x[rng.permutation(n)[:5]] = value
            arrays.append(stored(x, self._dtype))
        return arrays[0], arrays[1] if other is not None else None

    def results(
        self, program: Program, run: Run, nbytes: int, like: Run | None = None
    ) -> Array | None:
        """The first `nbytes` of results of a run on the positive inputs of `like`; None if it
        faults."""
        a, b = self._inputs(like or run, "positive")
        inputs = {"in": a} if b is None else {"in": a, "other": b}
        answer = self._trials.run(program, run, inputs, wanted=(run.result.buffer,))
        if isinstance(answer, Fault):
            return None
        held = answer[run.result.buffer][run.result.offset :][:nbytes]
        return _wide(np.frombuffer(held, self._stores.storage), self._stores)

    def _given(self, run: Run, data: bytes | None) -> tuple[Array, Array | None]:
        """Positive inputs; or `data` as the first input if it has the right length."""
        a, b = self._inputs(run, "positive")
        known = data is not None and len(data) == a.nbytes
        return (np.frombuffer(data, a.dtype).reshape(a.shape), b) if known and data else (a, b)

    def _results(self, run: Run, a: Array, b: Array | None) -> Array | None:
        """The values that a run writes to its result, as numbers; None if it faults."""
        written = self._written(run, a, b)
        return None if written is None else written[0][: self.counts.get(run, written[2])]

    def _written(self, run: Run, a: Array, b: Array | None) -> tuple[Array, Array, int] | None:
        """The result buffer after two runs, from memory filled with two different bytes, and the
        number of values that both runs wrote."""
        held = []
        inputs = {"in": a} if b is None else {"in": a, "other": b}
        for byte in (0xFF, 0x01):
            answer = self._trials.run(
                self._program, run, inputs, byte=byte, wanted=(run.result.buffer, "in")
            )
            if isinstance(answer, Fault):
                self.faults.append(answer.reason)
                return None
            self.changes_input |= answer["in"] != a.tobytes()
            held.append(answer[run.result.buffer])
            if run.result.buffer == "in":
                break
        size, start = self._stores.size, run.result.offset
        most = min(run.count, (len(held[0]) - start) // size)
        raw = [np.frombuffer(h, self._stores.storage, most, start) for h in held]
        bits = [r.view(f"u{size}") for r in raw]
        written = np.ones(most, bool)
        if len(bits) > 1:
            poison = [int.from_bytes(bytes([byte]) * size, "little") for byte in (0xFF, 0x01)]
            written = (bits[0] != poison[0]) | (bits[1] != poison[1])
        elif most:
            given = a.view(np.uint8).tobytes()[start:]
            old = np.frombuffer(given, f"u{size}", min(most, len(given) // size))
            written[: len(old)] = bits[0][: len(old)] != old
            written[0] = written.any()
        before = _prepared(run)
        if before is not None and run.result.buffer != "in":
            old = np.frombuffer(before, f"u{size}", min(most, (len(before) - start) // size), start)
            written[: len(old)] &= bits[0][: len(old)] != old
            written[0] = True
        count = int(np.flatnonzero(written)[-1]) + 1 if written.any() else 0
        return _wide(raw[0], self._stores), _wide(raw[-1], self._stores), count

    def _fitting(self, seen: Sequence[_Observed]) -> Iterator[tuple[Candidate, Layout, bool, int]]:
        """The candidates that fit all inputs of one size except negative ones, with the layout
        of results and the number of inputs that fit."""
        candidates: tuple[Candidate, ...] = _TWO
        if seen[0].b is None:
            candidates = (*_ONE, *(c for value in self._values for c in _comparisons(value)))
        inputs = 1 if seen[0].b is None else 2
        named = [c for c in self._candidates if c.reduction and c.reduction.inputs == inputs]
        for candidate in (*named, *candidates):
            for layout, one_row in _layouts(seen[0], candidate):
                fits = [
                    self._fits(one, one.results, candidate, layout, one_row)
                    and (one.is_stable or self._fits(one, one.again, candidate, layout, one_row))
                    for one in seen
                ]
                if all(fits[:_NEEDED]):
                    yield candidate, layout, one_row, sum(fits)

    def _fits(
        self, one: _Observed, results: Array, candidate: Candidate, layout: Layout, one_row: bool
    ) -> bool:
        a, b = _arranged(one, layout, one_row)
        if candidate in _TWO and b is None:
            return False
        with np.errstate(all="ignore"):
            expected = np.atleast_1d(candidate.fold(a, b))
            got = results[: len(expected)]
            if layout == "partials" and _is_copy(one):
                return False
            if layout == "partials":
                got = np.atleast_1d(_combined(candidate, results))
                expected = expected[:1]
            if len(got) != len(expected):
                return False
            if candidate.op.startswith("arg"):
                return _same_elements(a, got, expected)
            return self._close(got, expected, candidate, a)

    def _close(self, got: Array, expected: Array, candidate: Candidate, a: Array) -> bool:
        kind = self._stores
        if candidate.root and kind.kind != "float":
            return False
        if candidate.op == "prod" and (nothing := _overflows(a, kind)) is not None:
            return nothing or bool((~np.isfinite(got) | (got == 0)).all())
        if kind.kind != "float":
            bits = 8 * kind.size
            if candidate.op == "mean" or not np.isfinite(expected).all():
                return bool(np.array_equal(got, np.trunc(expected)))
            return bool(np.array_equal(got, expected)) or (
                bool((np.abs(expected) < 2.0**53).all())
                and bool(np.array_equal(got % 2.0**bits, expected % 2.0**bits))
            )
        narrow = min(self._dtype.size, kind.size) == 2 and candidate.op not in ("max", "min")
        rtol = 3e-2 if narrow else 1e-5
        if candidate.op in ("max", "min"):
            rtol = 0.0
        size = np.abs(candidate.fold(np.abs(a), None)) if narrow and candidate in _ONE else expected
        scale = rtol * float(np.max(np.abs(size))) if narrow else 0
        return bool(np.allclose(got, expected, rtol=rtol, atol=scale, equal_nan=False))

    def _preferred(
        self, fitting: Sequence[tuple[Candidate, Layout, bool]],
        observed: Mapping[Run, Sequence[_Observed]], integers: Mapping[Run, tuple[int, ...]],
    ) -> tuple[Candidate, Layout, bool]:  # fmt: skip
        """The first of the candidates that fit equally well. Partial results of equal tiles look
        like rows; they are rows only if a kernel gets a length or number of rows."""
        first = fitting[0]
        partial = next((key for key in fitting if key[1] == "partials"), None)
        if first[1] != "rows" or partial is None:
            return first
        for run, seen in observed.items():
            if seen:
                rows = len(seen[0].results)
                length = len(seen[0].a) // rows
                if {rows, length} & set(integers[run]):
                    return first
        return partial

    def _nearest(self, run: Run) -> tuple[Candidate, Layout] | None:
        """The candidate that a wrong program was probably meant for: an extreme if its result is
        an element on one side of the median, a sum if each element counts a few times."""
        n, other = self._sizes[run]
        rng = np.random.default_rng(n)
        if other is not None:
            return (_TWO[0], "one") if self._adds(run, n, rng) else self._near_pair(run)
        if self._dtype.kind == "float":
            scale = min(1.0, _MOST_SPREAD / n) if self._dtype.size == 2 else 1.0
            spread = stored(scale * (rng.permutation(n) + 1 + rng.random(n)), self._dtype)
        else:
            top = min(2**20, 2 ** (8 * self._dtype.size - 1) - 1)
            spread = stored(rng.integers(1, top, n).astype(float), self._dtype)
        seen = self._results(run, spread, None)
        if seen is None or not len(seen) or len(seen) > max(1, n // 8):
            return None
        zero = self._results(run, stored(np.zeros(n), self._dtype), None)
        if zero is None or np.array_equal(zero, seen, equal_nan=True):
            return None
        layout: Layout = "one" if len(seen) == 1 else "partials"
        numbers = _wide(spread, self._dtype)
        if np.isin(seen, numbers).all() and len(np.unique(seen)) == len(seen):
            middle = float(np.median(numbers))
            if (seen > middle).all() or (seen < middle).all():
                return _ONE[2 if seen[0] > middle else 3], layout
        return (_ONE[0], layout) if self._adds(run, n, rng) else None

    def _near_pair(self, run: Run) -> tuple[Candidate, Layout] | None:
        """The candidate that fits if all elements of the second input are equal, which hides
        wrong indices into it; None if there is none."""
        seen = []
        for kind, value in (("signed", 3.0), ("positive", 5.0), ("ones", 1.0)):
            a, b = self._inputs(run, kind)
            assert b is not None
            b = stored(np.full(len(b), value), self._dtype)
            results = self._results(run, a, b)
            if results is None:
                return None
            seen.append(_Observed(_wide(a, self._dtype), _wide(b, self._dtype), results, results))
        found = next((f for f in self._fitting(seen) if f[1] in ("one", "partials")), None)
        return None if found is None else found[:2]

    def _adds(self, run: Run, n: int, rng: np.random.Generator) -> bool:
        """True if the results add up to a sum in which elements count a few times or not at all:
        0 for zeros, and additive for random zeros and ones."""
        half = rng.integers(0, 2, n).astype(float)
        other = self._sizes[run][1]
        b = None if other is None else stored(np.ones(other), self._dtype)
        totals, count = [], 0
        for x in (half, 1 - half, np.ones(n), 2 * half):
            results = self._results(run, stored(x, self._dtype), b)
            if results is None or not len(results):
                return False
            totals.append(float(np.nansum(results)))
            count = len(results)
        first, second, both, twice = totals
        few = 2 * count <= both <= _MOST_COUNTED * n
        whole = all(np.isfinite(total) and total == round(total) for total in totals)
        return few and whole and both == first + second and twice == 2 * first

    def _identity(self, candidate: Candidate, layout: Layout, one_row: bool) -> Identity:
        mapped, named = None, candidate.reduction
        if candidate.map is not None:
            inputs = named.inputs if named else 2 if candidate in _TWO else 1
            mapped = Map(candidate.map, inputs, one_row)
        acc, narrow = self._stores, None
        if acc.size == 2 and acc.kind == "float":
            acc, narrow = DTYPES["float32"], self._stores
        if candidate.op in ("max", "min") and not mapped:
            acc = self._dtype if narrow is None else acc
        if candidate.op.startswith("arg"):
            acc = self._dtype if self._dtype.size > 2 else DTYPES["float32"]
            narrow = None
        op = named.op if named else OPERATORS[candidate.op]
        reduction = Reduction(
            op, self._dtype, acc, mapped, columns=layout == "columns", stored=narrow
        )
        words = candidate.words
        if layout in ("rows", "columns"):
            words = f"{words} of each {layout.removesuffix('s')}"
        return Identity(
            reduction, words, layout, changes_input=self.changes_input, one_row=one_row,
            root=candidate.root,
        )  # fmt: skip


def _prepared(run: Run) -> bytes | None:
    """What the host writes to the whole result buffer before the first launch."""
    held = None
    for step in run.steps:
        match step:
            case KernelStep():
                break
            case FillStep(target) if target == Address(run.result.buffer):
                held = bytes([step.byte]) * step.nbytes
            case WriteStep(target) if target == Address(run.result.buffer):
                held = step.value.data
    return held


def _wide(data: Array | None, dtype: DType) -> Array:
    """Stored elements as float64, which is exact for all values used here."""
    return np.asarray(() if data is None else as_numbers(data, dtype), np.float64)


def _layouts(one: _Observed, candidate: Candidate) -> Iterator[tuple[Layout, bool]]:
    """The layouts that the number of results allows: one result, rows, columns or partial
    results."""
    count, k = len(one.a), len(one.results)
    second = 0 if one.b is None else len(one.b)
    if not k:
        return
    if second in (0, count):
        yield "one", False
    if 1 < k < count and count % k == 0:
        rows: tuple[Layout, Layout] = ("rows", "columns")
        for layout in rows:
            if second and (candidate in _TWO or candidate.reduction):
                if second == count:
                    yield layout, False
                if second >= count // k:
                    yield layout, True
            else:
                yield layout, False
    own = candidate.reduction is not None and candidate.reduction.op.expression
    if candidate.root:
        return
    if k < count and (own or candidate.op in ("sum", "max", "min", "prod")):
        yield "partials", False  # one block's, too


def _is_copy(one: _Observed) -> bool:
    """True if the results are a copy of the first elements."""
    count = len(one.results)
    differ = len(np.unique(one.results)) > _FEWEST // 2
    return differ and np.array_equal(one.results, one.a[:count])


def _arranged(one: _Observed, layout: Layout, one_row: bool) -> tuple[Array, Array | None]:
    """The elements arranged so that each row is on the last axis."""
    b = one.b if one.b is not None and len(one.b) else None
    if layout in ("one", "partials"):
        return one.a[np.newaxis], None if b is None else b[np.newaxis, : len(one.a)]
    k = len(one.results)
    length = len(one.a) // k

    def matrix(x: Array) -> Array:
        return x.reshape(k, length) if layout == "rows" else x.reshape(length, k).T

    second = None
    if b is not None:
        second = b[np.newaxis, :length] if one_row else matrix(b)
    return matrix(one.a), second


def _combined(candidate: Candidate, partials: Array) -> Array:
    """Partial results combined as the host would."""
    named = candidate.reduction
    if named is not None and named.op.expression:
        plain = replace(named, dtype=named.acc, map=None)
        return np.asarray(reference(plain, stored(partials, named.acc), 1).expected, float)
    match candidate.op:
        case "max":
            return np.asarray(partials.max())
        case "min":
            return np.asarray(partials.min())
        case "prod":
            return np.asarray(partials.prod())
    return np.asarray(partials.sum())


def _same_elements(a: Array, got: Array, expected: Array) -> bool:
    """True if the indices point to elements equal to the extremes."""
    places = got.astype(np.int64)
    if not ((got == places) & (places >= 0) & (places < a.shape[1])).all():
        return False
    rows = np.arange(len(a))
    return bool(np.array_equal(a[rows, places], a[rows, expected.astype(np.int64)]))
