"""Find the summation order of a call from probes (FPRev, arXiv 2411.00442).

A probe sums ones and a pair of masks, M and -M. Ones that are added to M before -M is added are
lost, since M + k == M. The result counts the other ones, which gives the size of the smallest
subtree with both masks. These sizes determine the summation tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal

import numpy as np

from cudareduce.backends.protocol import Backend, Buffer, TimedBackend
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan, Problem
from cudareduce.launch.tree import Forest, Tree
from cudareduce.libraries.calls import open_memory
from cudareduce.libraries.contract import CallRequest, Library, as_results
from cudareduce.libraries.job import library_plan
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.inputs import Array, as_numbers, digits, stored
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.reference import reference
from cudareduce.reduction.sizes import counted
from cudareduce.verify.verdict import Cause, judge

#: `fixed`: the same order in all calls; `varies`: the order changes between calls; `other`: not
#: only additions of two values in one type; `wrong`: the sum is wrong, or the call fails; `skip`:
#: unknown, since the time limit was reached or the machine lacks something.
Outcome = Literal["fixed", "varies", "other", "wrong", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The summation order of a call, or the `reason` why there is none.

    `trees` holds the summation tree, preceded by that of a smaller sample if there is one.
    `adds_in` is the type in which sums are rounded, derived from random elements. `fault`: the
    worker must not be reused.
    """

    outcome: Outcome
    reason: str = ""
    trees: tuple[Tree, ...] = ()
    probes: int = 0
    adds_in: str | None = None
    called: str | None = None
    version: str | None = None
    cause: Cause | None = None
    fault: bool = False

    @property
    def tree(self) -> Tree | None:
        """The summation tree of the largest sample."""
        return self.trees[-1] if self.trees else None

    @property
    def bound(self) -> float | None:
        """Error bound gamma_depth relative to the sum of magnitudes (Higham, Accuracy and Stability
        of Numerical Algorithms, 4.2); None if the tree is not exact."""
        if self.tree is None or not self.tree.exact or self.adds_in is None:
            return None
        roundoff = DTYPES[self.adds_in].epsilon / 2
        return self.tree.depth * roundoff / (1 - self.tree.depth * roundoff)


#: Exponents M of the mask 1.5 * 2^M and k of a "one", 2^k, by the type of the elements. The factor
#: 1.5 keeps the unit in the last place the same above and below the mask. Except for float16 the
#: mask also absorbs ones in an accumulator with twice the digits.
_EXPONENTS = {"float16": (15, -24), "bfloat16": (100, 0), "float32": (100, 0), "float64": (600, 0)}
#: Range of the exponents of random elements, +-: wide enough that every sum is rounded.
_SPREAD = {"float16": 10, "bfloat16": 16, "float32": 8, "float64": 8}


@dataclass(frozen=True, slots=True)
class Masks:
    """The values of probes: `mask` absorbs `one`, and ones can be counted."""

    reduction: Reduction
    one: float
    mask: float

    def elements(self, *numbers: float) -> Array:
        """Numbers as stored elements."""
        return stored(np.array(numbers, "float64"), self.reduction.dtype)

    def least(self, n: int) -> float:
        """The smallest mask that absorbs `n` ones in the accumulator, but not in a wider one."""
        exponent = digits(self.reduction.acc) + n.bit_length() + 1
        return min(1.5 * self.one * 2.0**exponent, self.mask)

    def ones(self, count: int) -> Array:
        """Ones as stored elements."""
        return np.repeat(self.elements(self.one), count)


def masks_of(reduction: Reduction) -> Masks:
    """The probe values for a sum of floats."""
    mask, one = _EXPONENTS[reduction.dtype.name]
    return Masks(reduction, 2.0**one, 1.5 * 2.0**mask)


def why_not(reduction: Reduction, n: int) -> str | None:
    """Why the order of a reduction cannot be revealed, as a phrase that follows a name, or None."""
    if reduction.op.name != "sum":
        return f"is probed as a sum only, not as {reduction.op.name}: use --op sum"
    if reduction.dtype.kind != "float":
        return (
            f"has no visible order: sums of {reduction.dtype.name} are exact in any order; use a "
            "floating-point --dtype"
        )
    if n == 0:
        return "has nothing to add: use --n 1 or more"
    mask, one = _EXPONENTS[reduction.dtype.name]
    indices = digits(reduction.acc)
    absorbed = 2 ** max(0, mask - indices - one) - 1  # fewer than half of the mask's last place
    most = min(absorbed, 2**indices)
    if n > most:
        return (
            f"cannot be probed with {n} elements: of {reduction.dtype.name}, added up in "
            f"{reduction.acc.name}, ones can be counted and absorbed up to {most}"
        )
    return None


def random(reduction: Reduction, n: int, seed: int, *, cancels: bool = False) -> Array:
    """Random elements of many magnitudes, so that the last bits of their sum depend on the order.
    With `cancels`, the sum consists of rounding errors only."""
    rng = np.random.default_rng([seed, n])
    spread = _SPREAD[reduction.dtype.name]
    numbers = rng.standard_normal(n) * 2.0 ** rng.integers(-spread, spread, n)
    if cancels:
        half = n // 2
        numbers[half : 2 * half] = -rng.permutation(numbers[:half])
    return stored(numbers.astype("float32" if reduction.dtype.size < 8 else "float64"),
                  reduction.dtype)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """The call that is probed.

    `write` stores elements at an index of the input, `read_input` returns those of the first row.
    `run` makes the call and returns the result of the first row. Each step of the iterator
    `schedules` selects another thread schedule for the next call.
    """

    write: Callable[[int, Array], None]
    read_input: Callable[[], Array]
    run: Callable[[], float]
    schedules: Callable[[int], Iterator[object]]


def _on_device(
    backend: Backend, source: Buffer, problem: Problem, run: Callable[[], float],
    schedules: Callable[[int], Iterator[object]],
) -> Call:  # fmt: skip
    """A call whose input is a buffer of the backend."""
    dtype = problem.reduction.dtype
    return Call(
        lambda index, elements: backend.write(source, elements, index * dtype.size),
        lambda: backend.download(source, dtype.storage, problem.n), run, schedules,
    )  # fmt: skip


def _one_schedule(repeats: int) -> Iterator[object]:
    """The schedules of library calls, which cannot be changed."""
    return repeat("", repeats)


@contextmanager
def kernel_call(backend: Backend, case: Case, plan: Plan) -> Iterator[Call]:
    """The launches of a kernel. Raises BuildError and OutOfMemory; a call raises KernelFault."""
    programs = build(backend, {case: [plan]})[case]
    if isinstance(programs, BuildError):
        raise programs
    with ExitStack() as stack:
        source = backend.upload(np.zeros(plan.problem.input_bytes, np.uint8))
        stack.callback(backend.free, source)
        bound = Bound(backend, plan, programs, source)
        stack.callback(bound.release)

        def run() -> float:
            bound.run()
            return float(bound.results()[0])

        def schedules(repeats: int) -> Iterator[object]:
            yield from backend.schedules(repeats, quick=False)
            next(iter(backend.schedules(1, quick=True)))  # back to the first schedule

        yield _on_device(backend, source, plan.problem, run, schedules)


@contextmanager
def library_call(
    backend: TimedBackend, library: Library, problem: Problem, data: Array, folder: str
) -> Iterator[Call]:
    """A library call on `data` in device memory. Raises what the library raises."""
    source = backend.upload(data)
    try:
        with open_memory(backend) as allocated:
            call = allocated.prepare(library, problem, data, source, folder)

            def run() -> float:
                call.run()
                return float(call.results()[0])

            yield _on_device(backend, source, problem, run, _one_schedule)
    finally:
        backend.free(source)


@contextmanager
def own_process_call(
    library: Library, problem: Problem, data: Array, folder: str
) -> Iterator[Call]:
    """A call of a library with its own streams. Each call copies the input from host memory
    again."""
    request = CallRequest(problem=problem, data=data.copy(), folder=folder)
    ready = library.prepare(request)

    def write(index: int, elements: Array) -> None:
        request.data[index : index + len(elements)] = elements

    def run() -> float:
        assert ready.refill is not None
        assert ready.fetch is not None
        ready.refill()
        ready.run()
        return float(as_results(problem, ready.fetch())[0])

    yield Call(write, lambda: request.data[: problem.n], run, _one_schedule)


class OutOfTime(Exception):
    """The time limit has passed before a probe."""


class Contradiction(Exception):
    """No order of additions gives the results of the probes, which the message names."""


class Prober:
    """Finds the size of the smallest partial sum that contains two elements of the first row, by
    one call per pair.

    `beat` is called before each probe as a heartbeat.
    """

    def __init__(
        self, call: Call, masks: Masks, n: int, rows: int, deadline: Deadline,
        beat: Callable[[], None],
    ) -> None:  # fmt: skip
        self._call, self._masks, self._n, self._elements = call, masks, n, n * rows
        self._deadline, self._beat = deadline, beat
        self._known: dict[tuple[int, int], int] = {}
        self._set: dict[int, float] = {}
        self.probes = 0

    def total(self) -> float:
        """The number of ones that the call counts without masks. Must be the first probe."""
        self._call.write(0, self._masks.ones(self._elements))
        return self._counted()

    def meeting_size(self, first: int, second: int) -> int:
        """The size of the smallest partial sum that contains both elements. Raises Contradiction
        and OutOfTime."""
        pair = (first, second) if first < second else (second, first)
        if pair not in self._known:
            self._known[pair] = self._probed(*pair)
        return self._known[pair]

    def _probed(self, first: int, second: int) -> int:
        left = self.count(first, second)
        size = self._n - left
        if not 2 <= size <= self._n or size != int(size):
            raise Contradiction(f"masks at {first} and {second} leave {left:.9g} of {self._n} ones")
        return int(size)

    def less_absorbed(self, first: int, second: int) -> str:
        """A description if the smallest mask for the accumulator's type absorbs fewer ones than a
        large mask, which means a wider accumulator; else empty. Raises Contradiction and
        OutOfTime."""
        left, acc = self._n - self.meeting_size(first, second), self._masks.reduction.acc.name
        result = self.count(first, second, self._masks.least(self._n))
        if result == left:
            return ""
        return (
            f"a mask that absorbs all but {left} ones in {acc} leaves {result:.9g}, as in a wider "
            "accumulator"
        )

    def count(self, first: int, second: int, mask: float | None = None) -> float:
        """The number of ones that are counted with a mask at one index and its negative at
        another."""
        mask = self._masks.mask if mask is None else mask
        wanted = {first: mask, second: -mask}
        for index in self._set.keys() | wanted.keys():
            number = wanted.get(index, self._masks.one)
            if self._set.get(index) != number:
                self._call.write(index, self._masks.elements(number))
        self._set = wanted
        return self._counted()

    def _counted(self) -> float:
        if self._deadline.passed:
            raise OutOfTime
        self._beat()
        self.probes += 1
        return self._call.run() / self._masks.one


#: Up to this size every element is a leaf of the tree; above it, a sample is.
EXACT_UP_TO = 4096
#: Number of evenly spaced elements in a full sample.
_EVENLY = 32

#: Returns the size of the smallest partial sum that contains two elements.
MeetingSize = Callable[[int, int], int]


def samples(n: int) -> tuple[tuple[int, ...], ...]:
    """The leaves of the trees to build: all elements, or a small and a larger sample of elements
    near likely edges of blocks, tiles and strides."""
    if n <= EXACT_UP_TO:
        return (tuple(range(n)),)
    powers = [2**k for k in range(n.bit_length()) if 2**k < n]
    few = {0, *powers, n - 1}
    more = {*(odd * power for power in powers for odd in (3, 5, 7)),
            *(power - 1 for power in powers), *(n - power for power in powers),
            *(n * k // _EVENLY for k in range(_EVENLY))}  # fmt: skip
    return tuple(sorted(few)), tuple(sorted(k for k in few | more if k < n))


def build_tree(leaves: Sequence[int], n: int, meeting_size: MeetingSize) -> Tree:
    """Build the summation tree over these leaves of `n` elements. Raises Contradiction if no tree
    has the probed sizes, and what `meeting_size` raises.

    A pivot leaf is probed with all others. The leaves with the same meeting size form one subtree
    beside the pivot's, or several if they also meet each other at that size.
    """
    forest, exact = Forest(leaves), n == len(leaves)
    below = dict.fromkeys(range(len(leaves)), 1)

    def fits(leaf: int, size: int, below_count: int, *, all_of_it: bool) -> None:
        if below_count > size or (all_of_it and below_count != size):
            raise Contradiction(
                f"element {leaf} is in a sum of {size} elements that holds {below_count}"
            )

    def checked(tree: int, leaf: int) -> int:
        fits(leaf, forest.size(tree), below[tree], all_of_it=exact)
        return tree

    def subtree(group: Sequence[int]) -> int:
        pivot = group[len(group) // 2]  # the middle, since a chain may start at either end
        levels: dict[int, list[int]] = {}
        for leaf in group:
            if leaf != pivot:
                levels.setdefault(meeting_size(leaves[pivot], leaves[leaf]), []).append(leaf)
        tree = pivot
        for size in sorted(levels):  # ascending: a contradiction shows before all are probed
            fits(leaves[pivot], size, below[tree] + len(levels[size]), all_of_it=False)
            sibling = subtree(levels[size])
            several = forest.size(sibling) == size  # they also meet each other at this size
            others = forest.parts(sibling) if several else (checked(sibling, leaves[pivot]),)
            parts = (checked(tree, leaves[pivot]), *others)
            tree = forest.join(parts, size)
            below[tree] = sum(below[part] for part in parts)
        return tree

    return forest.tree(n, checked(subtree(range(len(leaves))), leaves[0]))


#: Calls on one input whose results are compared bit by bit.
REPEATS = 10
#: The same after contradicting probes: an order that changes rarely needs more calls.
_MORE_REPEATS = 100
#: Random inputs on which a tree must reproduce the results of the call bit by bit.
_TRIALS = 5
#: Random pairs of elements that are probed to confirm the tree.
_PAIRS = 16
#: The wider type tried if the results are more exact than their own type allows.
_WIDER = "float64"


@dataclass(frozen=True, slots=True)
class Examination:
    """Finds the summation order of a call within `limit_s` seconds. `beat` is called before each
    probe."""

    call: Call
    problem: Problem
    limit_s: float
    beat: Callable[[], None] = lambda: None

    def run(self) -> ProbeResult:
        """The summation order of the first row. Raises what the call raises."""
        count, distinct, wrong = self._repeated(REPEATS)
        if wrong:
            return ProbeResult(outcome="wrong", reason=wrong)
        if distinct > 1:
            return ProbeResult(outcome="varies", reason=_varying(count, distinct))
        deadline = Deadline(self.limit_s)
        result = self._probed(deadline)
        if result.outcome == "other":  # the order may change rarely
            again = self._probed(deadline)
            count, distinct, _ = self._repeated(_MORE_REPEATS)
            why = _varying(count, distinct) if distinct > 1 else ""
            if not why and again.outcome != "skip" and again != result:
                why = "no fixed order: repeated probes give another one"
            if why:
                result = ProbeResult(
                    outcome="varies", reason=why, probes=result.probes + again.probes
                )
        if result.outcome in ("other", "varies") and not result.trees:
            wrong = self._repeated(REPEATS, judged=True)[-1]
            return replace(result, outcome="wrong", reason=wrong) if wrong else result
        return result

    def _probed(self, deadline: Deadline) -> ProbeResult:
        """Build the tree from probes and confirm it with random elements."""
        n, masks = self.problem.n, masks_of(self.problem.reduction)
        prober = Prober(self.call, masks, n, self.problem.rows, deadline, self.beat)
        result = ProbeResult(outcome="skip")
        try:
            total = prober.total()
            if total != n:
                why = f"counts {total:.9g} of {n} ones: see cudareduce verify"
                return replace(result, outcome="wrong", reason=why, probes=prober.probes)
            for leaves in samples(n):
                tree = build_tree(leaves, n, prober.meeting_size)
                _confirm(tree, prober)
                # Random elements check an exact tree.
                wider = "" if tree.exact else prober.less_absorbed(leaves[0], leaves[-1])
                if wider:
                    result = ProbeResult(outcome="other", reason=f"not only additions: {wider}")
                    break
                result = replace(result, outcome="fixed", trees=(*result.trees, tree))
        except OutOfTime:
            result = _out_of_time(result, prober.probes)
        except Contradiction as contradiction:
            why = f"not only additions in one order: {contradiction}"
            result = ProbeResult(outcome="other", reason=why)
        return replace(self._with_rounding_type(result), probes=prober.probes)

    def _repeated(self, calls: int, *, judged: bool = False) -> tuple[int, int, str]:
        """Repeat calls on one input. Returns the numbers of calls and of distinct results, and an
        error if a result exceeds the bound of every summation order. The bound is checked if
        results differ, or with `judged`."""
        elements, reduction = self._write(0, cancels=True), self.problem.reduction
        results = [self._call() for _ in self.call.schedules(calls)]
        distinct = np.unique(np.array(results).view(np.uint64)).view(np.float64)
        wrong = ""
        if not np.array_equal(self.call.read_input(), elements):
            wrong = "it writes to its input"
        elif judged or len(distinct) > 1:
            plan = library_plan("", Problem(reduction, self.problem.n))
            ref = reference(reduction, elements, 1)
            verdicts = (judge(plan, np.array([value], reduction.result_dtype), ref, "random")
                        for value in distinct)  # fmt: skip
            wrong = next((v.reason for v in verdicts if v and v.outcome == "fail"), "")
        return len(results), len(distinct), f"{wrong}: see cudareduce verify" if wrong else ""

    def _with_rounding_type(self, result: ProbeResult) -> ProbeResult:
        """The result with `adds_in`: the type whose rounding reproduces the results of the call. If
        neither the accumulator's type nor a wider one does, the outcome is `other`."""
        tree, reduction = result.tree, self.problem.reduction
        if tree is None or not (tree.exact or tree.binary):
            return result
        if not tree.binary:
            more = sum(len(join.parts) > 2 for join in tree.joins)
            sums = "1 sum takes" if more == 1 else f"{more} sums take"
            why = (
                f"not only additions of two values in one order: {sums} in more at once, or in an "
                "order that depends on the values"
            )
            return replace(result, outcome="other", reason=why)
        numbers, results = self._trials(tree)
        acc = reduction.acc.name
        if _reproduces(tree, acc, acc, numbers, results):
            return replace(result, adds_in=acc) if tree.exact else result
        wide = _reproduces(tree, _WIDER, acc, numbers, results)
        how = (
            f"it adds in {_WIDER}, a wider type" if wide
            else "this order gives different last bits"
        )  # fmt: skip
        return replace(result, outcome="other", reason=f"not only additions in {acc}: {how}")

    def _trials(self, tree: Tree) -> tuple[list[Array], list[float]]:
        """Random numbers for the leaves of a tree, with zeros elsewhere, and the results of the
        call."""
        numbers, results = [], []
        for seed in range(1, 1 + _TRIALS):  # a sum that cancels consists of rounding errors
            elements = self._write(seed, tree.leaves, cancels=seed > 1)
            numbers.append(as_numbers(elements[list(tree.leaves)], self.problem.reduction.dtype))
            results.append(self._call())
        return numbers, results

    def _write(
        self, seed: int, indices: Sequence[int] | None = None, *, cancels: bool = False
    ) -> Array:
        """Write random elements into every row, at all or some indices; returns those of a row."""
        reduction, n = self.problem.reduction, self.problem.n
        elements = np.zeros(n, reduction.dtype.storage)
        where = slice(None) if indices is None else list(indices)
        count = n if indices is None else len(indices)
        elements[where] = random(reduction, count, seed, cancels=cancels)
        self.call.write(0, np.tile(elements, self.problem.rows))
        return elements

    def _call(self) -> float:
        self.beat()
        return self.call.run()


def _varying(count: int, distinct: int) -> str:
    return f"no fixed order: {count} calls give {distinct} results"


def _reproduces(
    tree: Tree, dtype: str, acc: str, numbers: Sequence[Array], results: Sequence[float]
) -> bool:
    """True if adding in the order of the tree in `dtype`, then rounding to `acc`, gives these
    results."""
    return all(
        float(np.float64(tree.value(row, dtype)).astype(acc)) == result
        for row, result in zip(numbers, results, strict=True)
    )


def _confirm(tree: Tree, prober: Prober) -> None:
    """Check the tree against probes of random pairs. Raises Contradiction and OutOfTime."""
    count = len(tree.leaves)
    if count < 2:
        return
    rng = np.random.default_rng(count)
    for _ in range(_PAIRS):
        first, second = sorted(map(int, rng.choice(count, 2, replace=False)))
        size, leaves = prober.meeting_size(tree.leaves[first], tree.leaves[second]), tree.leaves
        if size != tree.meets(first, second):
            raise Contradiction(
                f"masks at {leaves[first]} and {leaves[second]} meet in a sum of {size} elements, "
                f"and in one of {tree.meets(first, second)} according to other probes"
            )


def _out_of_time(result: ProbeResult, probes: int) -> ProbeResult:
    """The result after the time limit: that of the smaller sample, or a skip."""
    if result.tree is None:
        why = f"--time-limit was reached after {counted(probes, 'probe')}"
        return replace(result, reason=why, cause="time")
    why = (
        "--time-limit was reached before more than "
        f"{counted(len(result.tree.leaves), 'element')} were compared"
    )
    return replace(result, reason=why)
