"""From rows to records: times as shares of copying alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cudareduce.bench.records import bandwidth, chosen_of, conditions_of, effort_of
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.rows import Row
from cudareduce.bench.stream.trial import COPY, Tried
from cudareduce.problem.operators import Reduction
from cudareduce.results.record import COPYING, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecorder:
    """What records of one array have in common: it lies in a `source`, and `chunk` elements are the
    most that are copied at once; each of so many `ranks`, if there are, has a share of it."""

    backend: str
    settings: Settings
    reduction: Reduction
    n: int
    source: str
    pattern: str
    chunk: int
    ranks: int | None = None

    def records(self, tried: Tried) -> list[Record]:
        """Copying alone, where it was timed, then every row."""
        found = []
        times = tried.measured.timings
        copying = times.get(COPY)
        nbytes = self.n * self.reduction.dtype.size
        ceiling = nbytes / copying.median_us / 1e3 if copying else None
        conditions = conditions_of(tried.measured.conditions)
        if copying:
            found.append(replace(
                self._copying(), **bandwidth(copying, nbytes, None, ceiling), **conditions
            ))  # fmt: skip
        for k, row in enumerate(tried.rows):
            record = self._record(row)
            if k in times and row.verdict.outcome == "pass":
                figures = bandwidth(times[k], nbytes, None, ceiling)
                record = replace(record, **figures, **conditions)
            found.append(record)
        return found

    def _copying(self) -> Record:
        chunk_bytes = self.chunk * self.reduction.dtype.size
        return Record(
            kernel=COPYING, block=None, items=None, grid=None, passes=None, scope="copy",
            verdict="pass", reason="", way="copy", chunk_bytes=chunk_bytes, **self._shared(),
        )  # fmt: skip

    def _record(self, row: Row) -> Record:
        """A row without times."""
        case, verdict = row.case, row.verdict
        plan = row.plans[row.pieces[0].count] if row.prepared else None
        size = self.reduction.dtype.size
        return Record(
            kernel=case.kernel.id, block=case.block, items=case.items,
            grid=max((step.grid for step in plan.passes), default=0) if plan else None,
            passes=len(plan.passes) if plan else None, scope=case.kernel.scope,
            verdict=verdict.outcome, reason=verdict.reason, error=verdict.error,
            bound=verdict.bound, error_ulp=verdict.ulp,
            pct_bound=100 * (verdict.error or 0.0) / verdict.bound if verdict.bound else None,
            distinct=verdict.distinct, launches=verdict.launches, suite=case.suite,
            name=case.name, source_sha=case.kernel.sha, cause=verdict.cause,
            chosen=chosen_of(case.kernel),
            conditions=verdict.conditions if verdict.outcome == "pass" else (),
            way=row.way, chunk_bytes=row.chunk * size if row.chunk else None,
            **effort_of(verdict), **self._shared(),
        )  # fmt: skip

    def _shared(self) -> dict[str, Any]:
        return {
            "op": self.reduction.op.name, "dtype": self.reduction.dtype.name,
            "acc": self.reduction.acc.name, "n": self.n, "rows": 1, "backend": self.backend,
            "timing": "cold", "region": "total", "pattern": self.pattern, "source": self.source,
            "ranks": self.ranks,
        }  # fmt: skip
