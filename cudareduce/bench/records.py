"""Create records from verdicts and timings: bandwidth, percent of peak and ceiling, speed-ups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from cudareduce.bench.settings import Settings
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import AUTO, AUTO_FIXED, Registry
from cudareduce.intervals import interval, paired
from cudareduce.launch.case import Case, Shape
from cudareduce.launch.plan import Plan
from cudareduce.machine import Conditions
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.timing.rounds import Timing
from cudareduce.verify.verdict import Verdict

#: Remark of a run that Ctrl-C ended.
INTERRUPTED = "interrupted: what is missing was not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of one method. `ceiling` is the time of the fastest read-only kernel, `floors` are
    launch overheads in us by name."""

    timings: Mapping[Case, Timing] = field(default_factory=dict)
    ceiling: Timing | None = None
    floors: Mapping[str, float] = field(default_factory=dict)
    conditions: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Verdicts and times of cases of one reduction at `n` elements per row.

    `shas` are hashes of machine code, `times` has one entry per timing method, by label.
    `condition_numbers` are sum|x| / |sum x| by shape, `joules` the energy of one launch.
    `protocols` describe the measured rounds. `tried`: timing has started. `interrupted`: Ctrl-C
    ended it early.
    """

    reduction: Reduction
    n: int
    plans: Mapping[Case, Plan] = field(default_factory=dict)
    verdicts: Mapping[Case, Verdict]
    shas: Mapping[Case, str | None] = field(default_factory=dict)
    times: Mapping[str, Times] = field(default_factory=dict)
    condition_numbers: Mapping[Shape, float] = field(default_factory=dict)
    joules: Mapping[Case, float] = field(default_factory=dict)
    protocols: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    tried: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionResult:
    """All cases of one reduction in the requested order, with a group for each size."""

    cases: tuple[Case, ...]
    runnable: tuple[Case, ...]
    groups: tuple[Group, ...]
    interrupted: bool


def roofline_alarm(label: str, gb_s: float, peak_gb_s: float | None) -> str | None:
    """Why a time is impossible, with its bandwidth and the peak in GB/s, or None. Only cold times
    are limited by memory bandwidth."""
    if not label.startswith("cold") or peak_gb_s is None or gb_s <= peak_gb_s:
        return None
    return (
        f"alarm: {gb_s:.4g} GB/s from a cold cache is more than the {peak_gb_s:.4g} GB/s that "
        "theory allows, so its time is not a record: the kernel does not read all of its input, or "
        "the theory is wrong (--peak-gb-s sets it)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryPass:
    """Records of libraries, and of kernels timed in the same rounds."""

    records: tuple[Record, ...] = ()
    remarks: tuple[str, ...] = ()
    protocols: tuple[Mapping[str, Any], ...] = ()
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Recorder:
    """Creates the records of a run. `peak_gb_s` is the theoretical bandwidth."""

    backend: str
    peak_gb_s: float | None
    settings: Settings
    registry: Registry

    def all_records(self, results: Sequence[ReductionResult]) -> list[Record]:
        """The records of a run."""
        return [
            record
            for result in results for group in result.groups
            for record in self.records(group, result.cases)
        ]  # fmt: skip

    def records(self, group: Group, cases: Sequence[Case]) -> list[Record]:
        """The records of each case with a verdict, in order: one per timing method, or one without
        a time."""
        known = [case for case in cases if case in group.verdicts]
        plain = {case: self._record(group, case) for case in known}
        alarms = {
            (label, case): why
            for label, times in group.times.items()
            for case, timing in times.timings.items()
            if (why := self._alarm(group.plans[case], label, timing))
        }
        sound = {
            label: {c: t for c, t in times.timings.items() if (label, c) not in alarms}
            for label, times in group.times.items()
        }
        records = []
        for k, case in enumerate(known):
            baseline = self._baseline(case, known)
            before = _find(known, case.kernel.after, case.sms)
            if case.suite:
                above = known[k - 1] if k else None
                same = above and (above.suite, above.sms) == (case.suite, case.sms)
                before = above if same else None
            timed = [
                replace(plain[case], timing=label, verdict="fail", reason=alarms[label, case])
                if (label, case) in alarms
                else self._timed(
                    replace(plain[case], timing=label), group.plans[case], times, case,
                    _speedups(sound[label], case, baseline, before), group.joules.get(case),
                )
                for label, times in group.times.items()
                if case in times.timings
            ]  # fmt: skip
            records += timed or [plain[case]]
        return records

    def _record(self, group: Group, case: Case) -> Record:
        settings, reduction, verdict = self.settings, group.reduction, group.verdicts[case]
        n, rows = case.kernel.shape(group.n, settings.rows)
        plan = group.plans.get(case) if verdict.outcome != "skip" else None
        if plan is not None:
            n, rows = plan.problem.n, plan.problem.rows
        return Record(
            op=reduction.op.name,
            map=reduction.map.expression if reduction.map else None,
            dtype=reduction.dtype.name,
            acc=reduction.acc.name,
            n=n,
            rows=rows,
            backend=self.backend,
            timing=settings.timings[0],
            region=settings.region,
            pattern=settings.pattern,
            condition=group.condition_numbers.get((n, rows)),
            cubin_sha=group.shas.get(case),
            sms=case.sms,
            **case_fields(case, verdict, plan),
        )

    def _bytes(self, plan: Plan) -> tuple[int, int]:
        """The bytes that are moved in the timed region, and those of them that are read."""
        read = plan.problem.input_bytes
        return (read if self.settings.region == "first-pass" else plan.bytes_moved), read

    def _alarm(self, plan: Plan, label: str, timing: Timing) -> str | None:
        """Why a time is impossible, or None. The record then fails, and nothing is compared with
        it."""
        moved, _ = self._bytes(plan)
        return roofline_alarm(label, moved / timing.median_us / 1e3, self.peak_gb_s)

    def _timed(
        self, record: Record, plan: Plan, times: Times, case: Case, speedups: Mapping[str, Any],
        joules: float | None,
    ) -> Record:  # fmt: skip
        """The record with the times of one method and the energy of a launch in joules."""
        timing = times.timings[case]
        moved, read = self._bytes(plan)
        one_array = read / plan.problem.reduction.inputs  # which is what a ceiling's launch reads
        ceiling = one_array / times.ceiling.median_us / 1e3 if times.ceiling else None
        return replace(
            record,
            **bandwidth(timing, moved, self.peak_gb_s, ceiling),
            **speedups,
            **conditions_of(times.conditions),
            joules_per_gb=None if joules is None else joules / moved * 1e9,
        )

    def _baseline(self, case: Case, known: Sequence[Case]) -> Case | None:
        """The baseline of speed-ups: the requested kernel, else the first row of the suite, else
        the first kernel of the lineage, on the same number of SMs."""
        if self.settings.baseline_kernel:
            return _find(known, self.settings.baseline_kernel, case.sms)
        if case.suite:
            same = case.suite, case.sms
            return next(other for other in known if (other.suite, other.sms) == same)
        return _find(known, self.registry.root(case.kernel).id, case.sms)


def case_fields(case: Case, verdict: Verdict, plan: Plan | None) -> dict[str, Any]:
    """The fields of a case, its verdict and the launches of its plan."""
    return {
        "kernel": case.kernel.id,
        "block": case.block,
        "items": case.items,
        "grid": max((step.grid for step in plan.passes), default=0) if plan else None,
        "passes": len(plan.passes) if plan else None,
        "scope": case.kernel.scope,
        "verdict": verdict.outcome,
        "reason": verdict.reason,
        "error": verdict.error,
        "bound": verdict.bound,
        "error_ulp": verdict.ulp,
        "pct_bound": 100 * (verdict.error or 0.0) / verdict.bound if verdict.bound else None,
        "distinct": verdict.distinct,
        "launches": verdict.launches,
        "suite": case.suite,
        "name": case.name,
        "source_sha": case.kernel.sha,
        "cause": verdict.cause,
        "chosen": chosen_of(case.kernel),
        "conditions": verdict.conditions if verdict.outcome == "pass" else (),
        **effort_of(verdict),
    }


def chosen_of(kernel: Kernel) -> str | None:
    """The kernel that `auto` selected; None for a kernel that was named."""
    automatic = kernel.id in (AUTO, AUTO_FIXED) and kernel.entry != kernel.id
    return kernel.entry if automatic else None


def effort_of(verdict: Verdict) -> dict[str, Any]:
    """The fields for the test coverage of a verdict."""
    effort = verdict.effort
    return {
        "tried_sizes": len(effort.sizes) or None,
        "tried_patterns": len(effort.patterns) or None,
        "tried_schedules": len(effort.schedules) or None,
        "tried_launches": effort.launches or None,
    }


def _find(cases: Sequence[Case], kernel: str | None, sms: int | None) -> Case | None:
    return next((case for case in cases if (case.kernel.id, case.sms) == (kernel, sms)), None)


def bandwidth(
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
    """Computed per round, so that common changes of both kernels cancel."""

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


def conditions_of(state: Conditions) -> dict[str, Any]:
    """The fields that the state of the device gives."""
    return {
        "sm_mhz": state.sm_mhz,
        "memory_mhz": state.memory_mhz,
        "power_w": state.power_w,
        "temperature_c": state.temperature_c,
        "event_reasons": None if state.reasons is None else ", ".join(state.throttled) or "none",
    }
