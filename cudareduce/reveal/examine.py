"""One call examined: whether it has an order, which, and whether it adds and does nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cudareduce.budget import Deadline
from cudareduce.launch.plan import Problem
from cudareduce.launch.tree import Tree
from cudareduce.peers.job import plan_for
from cudareduce.problem.inputs import Array, as_numbers
from cudareduce.problem.reference import reference
from cudareduce.problem.sizes import counted
from cudareduce.reveal.call import Call
from cudareduce.reveal.found import Found
from cudareduce.reveal.grow import grown, samples
from cudareduce.reveal.masks import masks_of, random
from cudareduce.reveal.probe import Contradiction, OutOfTime, Prober
from cudareduce.verify.verdict import judge

#: Calls on one input whose answers are compared bit by bit.
REPEATS = 10
#: And where probes contradict each other: four blocks that finish in turn seldom change places.
_MORE_REPEATS = 100
#: Inputs on which a tree must give the answers of the call, bit by bit.
_TRIALS = 5
#: Pairs of elements that are probed again once there is a tree.
_PAIRS = 16
#: The type that a call seems to add in where it is more exact than that of its answers.
_WIDER = "float64"


@dataclass(frozen=True, slots=True)
class Examination:
    """What is examined, and the seconds that probes may take; `beat` is called before each."""

    call: Call
    problem: Problem
    limit_s: float
    beat: Callable[[], None] = lambda: None

    def found(self) -> Found:
        """The order of the first row. Raises what the call raises."""
        count, distinct, wrong = self._repeated(REPEATS)
        if wrong:
            return Found(outcome="wrong", reason=wrong)
        if distinct > 1:
            return Found(outcome="varies", reason=_several(count, distinct))
        deadline = Deadline(self.limit_s)
        found = self._probed(deadline)
        if found.outcome == "other":  # or another order now and then
            again = self._probed(deadline)
            count, distinct, _ = self._repeated(_MORE_REPEATS)
            why = _several(count, distinct) if distinct > 1 else ""
            if not why and again.outcome != "skip" and again != found:
                why = "no fixed order: the same probes give another one when they are made again"
            if why:
                found = Found(outcome="varies", reason=why, probes=found.probes + again.probes)
        if found.outcome in ("other", "varies") and not found.trees:
            wrong = self._repeated(REPEATS, judged=True)[-1]
            return replace(found, outcome="wrong", reason=wrong) if wrong else found
        return found

    def _probed(self, deadline: Deadline) -> Found:
        """What probes say, and then random elements."""
        n, masks = self.problem.n, masks_of(self.problem.reduction)
        prober = Prober(self.call, masks, n, self.problem.rows, deadline, self.beat)
        found = Found(outcome="skip")
        try:
            total = prober.total()
            if total != n:
                why = f"counts {total:.9g} of {n} ones: see cudareduce verify"
                return replace(found, outcome="wrong", reason=why, probes=prober.probes)
            for leaves in samples(n):
                tree = grown(leaves, n, prober.meets)
                _probed_again(tree, prober)
                # Of an exact one random elements tell.
                wider = "" if tree.exact else prober.less_absorbed(leaves[0], leaves[-1])
                if wider:
                    found = Found(outcome="other", reason=f"not only additions: {wider}")
                    break
                found = replace(found, outcome="fixed", trees=(*found.trees, tree))
        except OutOfTime:
            found = _out_of_time(found, prober.probes)
        except Contradiction as said:
            why = f"not only additions in one order: {said}"
            found = Found(outcome="other", reason=why)
        return replace(self._judged(found), probes=prober.probes)

    def _repeated(self, calls: int, *, judged: bool = False) -> tuple[int, int, str]:
        """How many calls on one input, how many answers, and what is wrong with those that are
        `judged`, or differ: no order of additions is further off than their bound."""
        elements, reduction = self._write(0, cancels=True), self.problem.reduction
        answers = [self._answer() for _ in self.call.ways(calls)]
        distinct = np.unique(np.array(answers).view(np.uint64)).view(np.float64)
        wrong = ""
        if not np.array_equal(self.call.held(), elements):
            wrong = "it writes to its input"
        elif judged or len(distinct) > 1:
            plan = plan_for("", Problem(reduction, self.problem.n))
            ref = reference(reduction, elements, 1)
            verdicts = (judge(plan, np.array([answer], reduction.result_dtype), ref, "random")
                        for answer in distinct)  # fmt: skip
            wrong = next((v.reason for v in verdicts if v and v.outcome == "fail"), "")
        return len(answers), len(distinct), f"{wrong}: see cudareduce verify" if wrong else ""

    def _judged(self, found: Found) -> Found:
        """With the type that its tree's additions are rounded to, where there is one."""
        tree, reduction = found.tree, self.problem.reduction
        if tree is None or not (tree.exact or tree.binary):
            return found
        if not tree.binary:
            more = sum(len(join.parts) > 2 for join in tree.joins)
            sums = "1 sum takes" if more == 1 else f"{more} sums take"
            why = (
                f"not only additions of two values in one order: {sums} in more at once, or in an "
                "order that depends on the values"
            )
            return replace(found, outcome="other", reason=why)
        numbers, answers = self._trials(tree)
        acc = reduction.acc.name
        if _gives(tree, acc, acc, numbers, answers):
            return replace(found, adds_in=acc) if tree.exact else found
        wide = _gives(tree, _WIDER, acc, numbers, answers)
        how = (
            f"it adds in {_WIDER}, a wider type" if wide
            else "in this order they would give other last bits"
        )  # fmt: skip
        return replace(found, outcome="other", reason=f"not only additions in {acc}: {how}")

    def _trials(self, tree: Tree) -> tuple[list[Array], list[float]]:
        """Numbers for the leaves of a tree among zeros, which change no sum, and the answers of the
        call to them."""
        numbers, answers = [], []
        for seed in range(1, 1 + _TRIALS):  # of what cancels nothing but errors is left
            elements = self._write(seed, tree.leaves, cancels=seed > 1)
            numbers.append(as_numbers(elements[list(tree.leaves)], self.problem.reduction.dtype))
            answers.append(self._answer())
        return numbers, answers

    def _write(
        self, seed: int, places: Sequence[int] | None = None, *, cancels: bool = False
    ) -> Array:
        """Give random elements to every row, all or those at some places; those of the first."""
        reduction, n = self.problem.reduction, self.problem.n
        elements = np.zeros(n, reduction.dtype.storage)
        where = slice(None) if places is None else list(places)
        count = n if places is None else len(places)
        elements[where] = random(reduction, count, seed, cancels=cancels)
        self.call.write(0, np.tile(elements, self.problem.rows))
        return elements

    def _answer(self) -> float:
        self.beat()
        return self.call.answer()


def _several(count: int, distinct: int) -> str:
    return f"no fixed order: {count} calls give {distinct} answers"


def _gives(
    tree: Tree, dtype: str, acc: str, numbers: Sequence[Array], answers: Sequence[float]
) -> bool:
    """Whether the additions of a tree in a type give these answers, rounded to their own."""
    return all(
        float(np.float64(tree.value(row, dtype)).astype(acc)) == answer
        for row, answer in zip(numbers, answers, strict=True)
    )


def _probed_again(tree: Tree, prober: Prober) -> None:
    """Compare pairs that nobody asked for with the tree. Raises Contradiction and OutOfTime."""
    count = len(tree.leaves)
    if count < 2:
        return
    rng = np.random.default_rng(count)
    for _ in range(_PAIRS):
        first, second = sorted(map(int, rng.choice(count, 2, replace=False)))
        size, leaves = prober.meets(tree.leaves[first], tree.leaves[second]), tree.leaves
        if size != tree.meets(first, second):
            raise Contradiction(
                f"masks at {leaves[first]} and {leaves[second]} meet in a sum of {size} elements, "
                f"and in one of {tree.meets(first, second)} by what others say"
            )


def _out_of_time(found: Found, probes: int) -> Found:
    """What there is when the time limit comes: a smaller sample, or nothing."""
    if found.tree is None:
        why = f"--time-limit was spent after {counted(probes, 'probe')}"
        return replace(found, reason=why, cause="time")
    why = (
        "--time-limit was spent before more than "
        f"{counted(len(found.tree.leaves), 'element')} were compared"
    )
    return replace(found, reason=why)
