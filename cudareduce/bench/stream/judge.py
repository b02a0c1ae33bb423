"""Whether a run was right: the answer of every piece, and what is folded of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cudareduce.bench.stream.content import Content
from cudareduce.bench.stream.schedule import Piece
from cudareduce.launch.plan import Plan, Problem
from cudareduce.problem.inputs import Array
from cudareduce.problem.reference import Reference
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, skipped, worse


class Judge:
    """Knows what the pieces of an array must give, and the whole: each within the bound of its own
    plan, the whole with a rounding more for each piece that is folded."""

    def __init__(
        self, content: Content, pieces: Sequence[Piece], plans: Mapping[int, Plan], pattern: str
    ) -> None:
        self._pieces, self._pattern = pieces, pattern
        self._plans = [plans[piece.count] for piece in pieces]
        self._right = [content.of(piece.start, piece.end) for piece in pieces]
        n = pieces[-1].end
        self._right_whole = content.of(0, n)
        self._acc = content.reduction.acc
        self._beyond = any(map(self._is_beyond, (*self._right, self._right_whole)))
        depth = max(plan.depth for plan in self._plans) + len(pieces)
        self._whole = replace(self._plans[0], problem=Problem(content.reduction, n), depth=depth)
        self._effort = Effort(
            frozenset({(n, 1)}), frozenset({pattern}), frozenset(), len(pieces)
        )  # fmt: skip

    def verdict(self, parts: Array, whole: Array) -> Verdict:
        """On the answers of all pieces and of the whole: a failure names the first piece that is
        wrong."""
        found = RIGHT
        if self._beyond:
            name = self._acc.name
            return skipped("unfit", f"its elements leave the range of {name}: --acc takes another")
        for piece, plan, right in zip(self._pieces, self._plans, self._right, strict=True):
            one = judge(plan, parts[piece.number : piece.number + 1], right, self._pattern)
            if one is not None and one.outcome == "fail":
                return self._counted(replace(one, reason=f"{self._place(piece)}{one.reason}"))
        one = judge(self._whole, whole, self._right_whole, self._pattern)
        if one is not None:
            found = one
        return self._counted(found)

    def _is_beyond(self, right: Reference) -> bool:
        """Whether finite elements combine to what its type does not hold, on some way or other."""
        if self._acc.kind != "float" or right.magnitude is None:
            return False
        return bool((np.finfo(self._acc.storage).max < right.magnitude).any()
                    and np.isfinite(right.magnitude).all())  # fmt: skip

    def _place(self, piece: Piece) -> str:
        if len(self._pieces) == 1:
            return ""
        return f"elements {piece.start} to {piece.end - 1}, piece {piece.number + 1} of " \
               f"{len(self._pieces)}: "  # fmt: skip

    def _counted(self, verdict: Verdict) -> Verdict:
        return worse(verdict, replace(RIGHT, effort=self._effort))
