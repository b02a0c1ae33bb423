"""The choice for one problem: what a table says, else what the formula says, else what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cudareduce.auto.facts import Facts, Pick
from cudareduce.auto.formula import picks
from cudareduce.auto.table import Table
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import AUTO_FIXED
from cudareduce.problem.operators import Reduction


@dataclass(frozen=True, slots=True)
class Chooser:
    """Chooses among the kernels of the package under one of the names in `AUTO`, which is what
    they are then called."""

    name: str
    kernels: Mapping[str, Kernel]
    facts: Facts
    tables: tuple[Table, ...] = ()

    def choose(
        self, reduction: Reduction, n: int, rows: int, *, aligned: bool = True
    ) -> Case | None:
        """The case for `rows` rows of `n` elements, whose start is `aligned` to whole loads or not;
        None if no kernel takes them. Tables are of aligned starts, and rows are what shifts."""
        known = self._known(reduction, n, rows) if aligned or rows == 1 else ()
        found = chain(known, self._ruled(reduction, n, rows, aligned))
        return next(self._taking(found, reduction, n, rows), None)

    def _known(self, reduction: Reduction, n: int, rows: int) -> Iterator[Pick]:
        """What tables say. What they say of another operator or type counts only where the rules
        take one kernel for both: a sum of integers has ways that one of floats has not."""
        fixed = self.name == AUTO_FIXED
        for table in self.tables:
            for entry in table.near(reduction, n, rows, fixed=fixed):
                other = entry.reduction
                if entry.is_of(reduction) or (
                    self._rule(other, n, rows) == self._rule(reduction, n, rows)
                ):
                    yield entry.pick

    def _rule(self, reduction: Reduction, n: int, rows: int) -> str:
        """The kernel that is taken without a table."""
        found = self._taking(self._ruled(reduction, n, rows), reduction, n, rows)
        return next((case.kernel.entry for case in found), "")

    def _ruled(
        self, reduction: Reduction, n: int, rows: int, aligned: bool = True
    ) -> Iterator[Pick]:
        """What the formula says, then what there is."""
        return chain(picks(reduction, n, rows, self.facts, aligned=aligned), self._others())

    def _others(self) -> Iterator[Pick]:
        """Every kernel, those at the limit of the memory first."""
        yield from (Pick(name) for name, k in self.kernels.items() if k.family == "limit")
        yield from (Pick(name) for name, k in self.kernels.items() if k.family != "limit")

    def _taking(
        self, found: Iterable[Pick], reduction: Reduction, n: int, rows: int
    ) -> Iterator[Case]:
        """Of these, what takes the problem."""
        for pick in found:
            case = self.case(pick, reduction)
            if case is None or case.kernel.shape(n, rows) != (n, rows):
                continue  # warp kernels take an array as rows, which is another problem
            try:
                case.plan(n, rows, self.facts.limits)
            except UsageError:
                continue
            yield case

    def case(self, pick: Pick, reduction: Reduction) -> Case | None:
        """A case of what was picked; None if it is not here, or not for this reduction, or not on
        this device."""
        kernel = self.kernels.get(pick.kernel)
        if kernel is None or self._why_left_out(kernel, reduction):
            return None
        size = reduction.dtype.size
        some = self.facts.sms is not None  # where each block has an SM to itself
        shape = (None, None) if some and pick.blocks is None else (pick.block, pick.items)
        block = shape[0] or (max(kernel.blocks) if some else kernel.block)
        items = shape[1] or kernel.items_of(size)
        if kernel.why_not_block(block) or kernel.why_not_items(items, size):
            return None
        called = replace(
            kernel, id=self.name, symbol=kernel.entry, after=kernel.id,
            grid="fixed" if pick.blocks else pick.grid or kernel.grid,
            fixed_grid=pick.blocks or kernel.fixed_grid,
        )  # fmt: skip
        return Case(called, reduction, block, items)

    def _why_left_out(self, kernel: Kernel, reduction: Reduction) -> bool:
        """Whether nothing of a kernel is to be chosen."""
        return (
            kernel.foreign
            or kernel.whole_tiles
            or kernel.why_not(reduction) is not None
            or not self.facts.run(kernel)
            or (self.name == AUTO_FIXED and kernel.varies(reduction))
        )
