"""From verdicts and timings to records: bandwidth, shares of theory and ceiling, speed-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from cudareduce.backend import DeviceLimits
from cudareduce.bench.group import Group, Timed
from cudareduce.bench.settings import Settings
from cudareduce.gpu.nvml import Conditions
from cudareduce.intervals import interval, paired
from cudareduce.launch.case import Case
from cudareduce.library.registry import Registry
from cudareduce.results.record import Record
from cudareduce.timing.rounds import Timing


def roofline_alarm(label: str, gb_s: float, peak_gb_s: float | None) -> str | None:
    """Why a time cannot be believed; None if it can. Only a cold one is bound by memory."""
    if not label.startswith("cold") or peak_gb_s is None or gb_s <= peak_gb_s:
        return None
    return (
        f"alarm: {gb_s:.4g} GB/s from a cold cache is more than the {peak_gb_s:.4g} GB/s that "
        "theory allows, so its time is not a record: the kernel does not read all of its input, or "
        "the theory is wrong (--peak-gb-s sets it)"
    )


@dataclass(frozen=True, slots=True)
class Join:
    """What records have in common within a run."""

    backend: str
    limits: DeviceLimits
    peak_gb_s: float | None
    settings: Settings
    registry: Registry

    def records(self, group: Group, cases: Sequence[Case]) -> list[Record]:
        """Records of each case that has a verdict, in the order given: one for each method that
        timed it, or one without a time."""
        known = [case for case in cases if case in group.verdicts]
        plain = {case: self._record(group, case) for case in known}
        alarms = {
            (label, case): why
            for label, found in group.timed.items()
            for case, timing in found.timings.items()
            if (why := self._alarm(plain[case], label, case, timing))
        }
        sound = {
            label: {c: t for c, t in found.timings.items() if (label, c) not in alarms}
            for label, found in group.timed.items()
        }
        records = []
        for k, case in enumerate(known):
            baseline = self._baseline(case, known)
            before = _find(known, case.kernel.after)
            if case.suite:
                before = known[k - 1] if k and known[k - 1].suite == case.suite else None
            timed = [
                replace(plain[case], timing=label, verdict="fail", reason=alarms[label, case])
                if (label, case) in alarms
                else self._timed(
                    replace(plain[case], timing=label), found, case,
                    _speedups(sound[label], case, baseline, before),
                )
                for label, found in group.timed.items()
                if case in found.timings
            ]  # fmt: skip
            records += timed or [plain[case]]
        return records

    def _record(self, group: Group, case: Case) -> Record:
        asked, what, verdict = self.settings, group.what, group.verdicts[case]
        n, rows = case.kernel.shape(group.n, asked.rows)
        ran = verdict.outcome != "skip"
        plan = case.plan(group.n, asked.rows, self.limits) if ran else None
        return Record(
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
            timing=asked.timings[0],
            region=asked.region,
            pattern=asked.pattern,
            verdict=verdict.outcome,
            reason=verdict.reason,
            error=verdict.error,
            bound=verdict.bound,
            error_ulp=verdict.ulp,
            pct_bound=100 * (verdict.error or 0.0) / verdict.bound if verdict.bound else None,
            condition=group.conditions.get((n, rows)),
            distinct=verdict.distinct,
            launches=verdict.launches,
            suite=case.suite,
            name=case.name,
            source_sha=case.kernel.sha,
            cubin_sha=group.shas.get(case),
        )

    def _bytes(self, record: Record, case: Case) -> tuple[int, int]:
        """What the algorithm moves in the timed region, and what of it is read."""
        plan = case.plan(record.n, record.rows, self.limits)
        read = plan.problem.input_bytes
        return (read if self.settings.region == "first-pass" else plan.bytes_moved), read

    def _alarm(self, record: Record, label: str, case: Case, timing: Timing) -> str | None:
        """Why a time cannot be, if it cannot: its record is a failure, and nothing is compared with
        it."""
        moved, _ = self._bytes(record, case)
        return roofline_alarm(label, moved / timing.median_us / 1e3, self.peak_gb_s)

    def _timed(
        self, record: Record, found: Timed, case: Case, speedups: Mapping[str, Any]
    ) -> Record:
        """The record with what one method found."""
        timing = found.timings[case]
        moved, read = self._bytes(record, case)
        ceiling = read / found.ceiling.median_us / 1e3 if found.ceiling else None
        return replace(
            record,
            **_bandwidth(timing, moved, self.peak_gb_s, ceiling),
            **speedups,
            **_conditions(found.conditions),
        )

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
        "batch": timing.batch,
        "host_us": timing.host_us,
        "rounds_us": timing.by_round,
        "bytes": moved,
        "gb_s": gb_s,
        "gb_s_low": moved / high / 1e3 if high else None,
        "gb_s_high": moved / low / 1e3 if low else None,
        "pct_peak": 100 * gb_s / peak_gb_s if peak_gb_s else None,
        "ceiling_gb_s": ceiling_gb_s,
        "pct_ceiling": 100 * gb_s / ceiling_gb_s if ceiling_gb_s else None,
    }


def _speedups(
    timings: Mapping[Case, Timing], case: Case, baseline: Case | None, before: Case | None
) -> dict[str, Any]:
    """Formed round by round, so that what moves both kernels in a round cancels."""

    def ratios(other: Case | None) -> list[float]:
        if other is None or other not in timings:
            return []
        return paired(timings[other].by_round, timings[case].by_round)

    against, step = ratios(baseline), ratios(before)
    low, high = interval(against) or (None, None)
    step_low, step_high = interval(step) or (None, None)
    return {
        "baseline": baseline.kernel.id if baseline and against else None,
        "speedup": median(against) if against else None,
        "speedup_low": low,
        "speedup_high": high,
        "speedup_prev": median(step) if step else None,
        "speedup_prev_low": step_low,
        "speedup_prev_high": step_high,
    }


def _conditions(found: Conditions) -> dict[str, Any]:
    return {
        "sm_mhz": found.sm_mhz,
        "memory_mhz": found.memory_mhz,
        "power_w": found.power_w,
        "temperature_c": found.temperature_c,
        "event_reasons": None if found.reasons is None else ", ".join(found.throttled) or "none",
    }
