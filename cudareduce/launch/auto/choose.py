"""Selects the launch of `auto`: from a table, else by the rule, else any kernel that works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import AUTO_FIXED
from cudareduce.errors import UsageError
from cudareduce.launch.auto.rule import Facts, Pick, fills_rings, picks
from cudareduce.launch.auto.table import Table
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import Reduction


@dataclass(frozen=True, slots=True)
class Chooser:
    """Selects a kernel of the package and its launch shape. `name` is `auto` or `auto:fixed`."""

    name: str
    kernels: Mapping[str, Kernel]
    facts: Facts
    tables: tuple[Table, ...] = ()

    def choose(
        self, reduction: Reduction, n: int, rows: int, *, aligned: bool = True
    ) -> Case | None:
        """The case for `rows` rows of `n` elements; None if no kernel supports them. `aligned`: the
        input starts at a multiple of 16 bytes, as in the measurements of tables. Entries for a
        single array also apply to other addresses, since its time does not depend on them."""
        known = self._from_tables(reduction, n, rows) if aligned or rows == 1 else ()
        candidates = chain(known, self._from_rule(reduction, n, rows, aligned))
        return next(self._launchable(candidates, reduction, n, rows), None)

    def _from_tables(self, reduction: Reduction, n: int, rows: int) -> Iterator[Pick]:
        """Launches from the tables, nearest problem first. An entry for another operator or type
        applies only if the rule selects the same kernel for both: a sum of integers can use kernels
        that a sum of floats cannot."""
        if self.facts.sms is not None:
            if rows == 1 and reduction.op.commutative and fills_rings(reduction, n, self.facts):
                for table in self.tables:
                    yield from table.on_some_sms(self.facts.sms)
            return
        fixed = self.name == AUTO_FIXED
        for table in self.tables:
            for entry in table.near(reduction, n, rows, fixed=fixed):
                if entry.is_of(reduction) or (
                    self._rule_kernel(entry.reduction, n, rows)
                    == self._rule_kernel(reduction, n, rows)
                ):
                    yield entry.pick

    def _rule_kernel(self, reduction: Reduction, n: int, rows: int) -> str:
        """The name of the kernel that is selected without a table; empty if there is none."""
        cases = self._launchable(self._from_rule(reduction, n, rows), reduction, n, rows)
        return next((case.kernel.entry for case in cases), "")

    def _from_rule(
        self, reduction: Reduction, n: int, rows: int, aligned: bool = True
    ) -> Iterator[Pick]:
        """Launches by the rule, then every kernel with its defaults, family `limit` first."""
        yield from picks(reduction, n, rows, self.facts, aligned=aligned)
        yield from map(Pick, sorted(self.kernels, key=lambda k: self.kernels[k].family != "limit"))

    def _launchable(
        self, candidates: Iterable[Pick], reduction: Reduction, n: int, rows: int
    ) -> Iterator[Case]:
        """The cases of those candidates that support the problem."""
        for pick in candidates:
            case = self.case(pick, reduction)
            if case is None or case.kernel.shape(n, rows) != (n, rows):
                continue  # warp kernels take an array as rows, which is another problem
            try:
                case.plan(n, rows, self.facts.limits)
            except UsageError:
                continue
            yield case

    def case(self, pick: Pick, reduction: Reduction) -> Case | None:
        """The case of a launch; None if its kernel does not exist, does not support the reduction,
        block size or items, or does not run on this GPU."""
        kernel = self.kernels.get(pick.kernel)
        if kernel is None or self._excluded(kernel, reduction):
            return None
        size = reduction.dtype.size
        some_sms = self.facts.sms is not None  # then each block has an SM to itself
        shape = (None, None) if some_sms and pick.blocks is None else (pick.block, pick.items)
        block = shape[0] or (max(kernel.blocks) if some_sms else kernel.block)
        items = shape[1] or kernel.items_of(size)
        if kernel.why_not_block(block) or kernel.why_not_items(items, size):
            return None
        renamed = replace(
            kernel, id=self.name, symbol=kernel.entry, after=kernel.id,
            grid="fixed" if pick.blocks else pick.grid or kernel.grid,
            fixed_grid=pick.blocks or kernel.fixed_grid,
        )  # fmt: skip
        return Case(renamed, reduction, block, items)

    def _excluded(self, kernel: Kernel, reduction: Reduction) -> bool:
        """True if a kernel must not be selected for a reduction."""
        return (
            kernel.foreign
            or kernel.why_not(reduction) is not None
            or not self.facts.run(kernel)
            or (self.name == AUTO_FIXED and kernel.varies(reduction))
        )
