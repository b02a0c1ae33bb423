"""What was found of the order in which a call adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cudareduce.launch.tree import Tree
from cudareduce.problem.dtypes import DTYPES
from cudareduce.verify.verdict import Cause

#: `fixed`: one order, which is known; `varies`: another one from call to call; `other`: more than
#: additions of two values in one type; `wrong`: it does not add up, or fails; `skip`: it was not
#: found, for lack of time or of what it takes.
Outcome = Literal["fixed", "varies", "other", "wrong", "skip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`reason` says why there is no order, or what is remarkable; `trees` are the one that is known
    and the smaller sample before it; `adds_in` is the type that its sums are
    rounded to, as answers to random elements show. `fault`: the process may be of no
    more use."""

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
        """The order, as far as it is known."""
        return self.trees[-1] if self.trees else None

    @property
    def bound(self) -> float | None:
        """How far an answer may be off, as a share of the sum of magnitudes: gamma_depth (Higham,
        Accuracy and Stability of Numerical Algorithms, 4.2); None where it does not follow."""
        if self.tree is None or not self.tree.exact or self.adds_in is None:
            return None
        roundoff = DTYPES[self.adds_in].epsilon / 2
        return self.tree.depth * roundoff / (1 - self.tree.depth * roundoff)
