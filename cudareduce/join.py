"""From verdicts and timings to records: bandwidth, shares of theory and ceiling, speed-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from cudareduce.execute import Case
from cudareduce.measure import Timing, interval
from cudareduce.operators import Reduction
from cudareduce.plan import DeviceLimits
from cudareduce.record import Record
from cudareduce.registry import Registry
from cudareduce.session import Settings
from cudareduce.verify import Verdict


@dataclass(slots=True)
class Group:
    """What is known so far of cases that are measured against each other."""

    what: Reduction
    n: int
    verdicts: dict[Case, Verdict]
    shas: dict[Case, str | None]
    timings: dict[Case, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    floors: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Join:
    """What records have in common within a run."""

    backend: str
    limits: DeviceLimits
    peak_gb_s: float | None
    settings: Settings
    registry: Registry

    def records(self, group: Group, cases: Sequence[Case]) -> list[Record]:
        """One record for each case that has a verdict, in the order given."""
        known = [case for case in cases if case in group.verdicts]
        records = []
        for k, case in enumerate(known):
            record = self._record(group, case)
            if case in group.timings:
                baseline = self._baseline(case, known)
                before = known[k - 1] if case.suite and k else _find(known, case.kernel.after)
                record = replace(record, **_speedups(group, case, baseline, before))
            records.append(record)
        return records

    def _record(self, group: Group, case: Case) -> Record:
        asked, what, verdict = self.settings, group.what, group.verdicts[case]
        n, rows = case.kernel.shape(group.n, asked.rows)
        ran = verdict.outcome != "skip"
        plan = case.plan(group.n, asked.rows, self.limits) if ran else None
        record = Record(
            kernel=case.kernel.id,
            op=what.op.name,
            dtype=what.dtype.name,
            acc=what.acc.name,
            n=n,
            rows=rows,
            block=case.block,
            items=case.items,
            grid=max((step.grid for step in plan.passes), default=0) if plan else None,
            passes=len(plan.passes) if plan else None,
            backend=self.backend,
            scope=case.kernel.scope,
            timing="cold",
            region=asked.region,
            pattern=asked.pattern,
            verdict=verdict.outcome,
            reason=verdict.reason,
            error=verdict.error,
            bound=verdict.bound,
            suite=case.suite,
            name=case.name,
            source_sha=case.kernel.sha,
            cubin_sha=group.shas.get(case),
        )
        timing = group.timings.get(case)
        if timing is None or plan is None:
            return record
        read = plan.problem.input_bytes
        moved = read if asked.region == "first-pass" else plan.bytes_moved
        ceiling = read / group.ceiling.median_us / 1e3 if group.ceiling else None
        return replace(record, **_bandwidth(timing, moved, self.peak_gb_s, ceiling))

    def _baseline(self, case: Case, known: Sequence[Case]) -> Case | None:
        """The kernel asked for, else the suite's first row, else the root of the lineage."""
        if self.settings.baseline:
            return _find(known, self.settings.baseline)
        if case.suite:
            return next(other for other in known if other.suite == case.suite)
        return _find(known, self.registry.root(case.kernel).id)


def _find(cases: Sequence[Case], kernel: str | None) -> Case | None:
    return next((case for case in cases if case.kernel.id == kernel), None)


def _bandwidth(
    timing: Timing, moved: int, peak_gb_s: float | None, ceiling_gb_s: float | None
) -> dict[str, Any]:
    """The fields that a time and a byte count give; GB = 10^9 bytes."""
    gb_s = moved / timing.median_us / 1e3
    low, high = timing.interval_us or (None, None)
    return {
        "time_us": timing.median_us,
        "time_us_low": low,
        "time_us_high": high,
        "time_us_min": timing.min_us,
        "noise_pct": timing.noise_pct,
        "samples": timing.samples,
        "discarded": timing.discarded,
        "rounds_us": timing.rounds_us,
        "bytes": moved,
        "gb_s": gb_s,
        "pct_peak": 100 * gb_s / peak_gb_s if peak_gb_s else None,
        "ceiling_gb_s": ceiling_gb_s,
        "pct_ceiling": 100 * gb_s / ceiling_gb_s if ceiling_gb_s else None,
    }


def _speedups(
    group: Group, case: Case, baseline: Case | None, before: Case | None
) -> dict[str, Any]:
    """Formed round by round, so that what moves both kernels in a round cancels."""

    def ratios(other: Case | None) -> list[float]:
        old = group.timings[other].rounds_us if other in group.timings else ()
        return [a / b for a, b in zip(old, group.timings[case].rounds_us, strict=False)]

    against, step = ratios(baseline), ratios(before)
    low, high = interval(against) or (None, None)
    return {
        "baseline": baseline.kernel.id if baseline and against else None,
        "speedup": median(against) if against else None,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_prev": median(step) if step else None,
    }
