"""From what was tried to records: times beside those of the shares alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from cudareduce.backend import BackendName
from cudareduce.bench.records import chosen_of
from cudareduce.intervals import known
from cudareduce.results.record import Record
from cudareduce.several.examine import REPEATS
from cudareduce.several.records import taken
from cudareduce.several.spread.share import cold
from cudareduce.several.spread.trial import Tried
from cudareduce.several.spread.ways import Local
from cudareduce.verify.verdict import Verdict


@dataclass(frozen=True, slots=True)
class SpreadRecorder:
    """What records of one array have in common: its `n` elements lie on so many `ranks`."""

    n: int
    ranks: int
    backend: BackendName

    def records(self, found: Sequence[Tried]) -> list[Record]:
        """A record of each way, those of a kernel one after the other."""
        alone = {one.case: one for one in found if one.way == Local.name}
        return [self._record(one, alone.get(one.case)) for one in found]

    def _record(self, one: Tried, alone: Tried | None) -> Record:
        case, finding = one.case, one.finding
        wrong = finding.wrong if finding else None
        of_all = Verdict("fail", wrong) if wrong else Verdict("pass")
        verdict = one.untried or of_all
        shares = self.n * case.reduction.dtype.size / self.ranks
        plain = Record(
            kernel=case.kernel.id, op=case.reduction.op.name, dtype=case.reduction.dtype.name,
            acc=case.reduction.acc.name, n=self.n, rows=1, block=case.block, items=case.items,
            grid=None, passes=None, backend=self.backend, scope=case.kernel.scope,
            timing="cold" if cold(shares) else "warm", region="total", pattern="exact",
            verdict=verdict.outcome, reason=verdict.reason, suite=case.suite, name=case.name,
            source_sha=case.kernel.sha, cause=verdict.cause,
            distinct=finding.distinct if finding else None,
            launches=REPEATS if finding and finding.distinct is not None else None,
            tried_launches=finding.calls if finding else None,
            chosen=chosen_of(case.kernel), ranks=self.ranks, engine=one.way,
            version=finding.version if finding else None,
        )  # fmt: skip
        if verdict.outcome != "pass" or not one.batches:
            return replace(plain, host_us=one.host_us)
        record = taken(plain, one.batches, self.n * case.reduction.dtype.size)
        times = known(tuple(batch.median_us for batch in alone.batches)) if alone else ()
        return replace(record, local_us=median(times) if times and record.time_us else None)
