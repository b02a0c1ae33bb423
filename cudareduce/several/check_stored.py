"""`check --baseline` of stored collectives: measures them again with jobs of ranks.

Each measurement is a job of fresh processes, and the gate compares the result files of the jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.gate.command import Checked, check_plan, check_rounds, concluded, thresholds_of
from cudareduce.gate.decide import Measure, confirm_slower, measure_until_decided
from cudareduce.gate.measure import DEFAULT_ROUNDS
from cudareduce.gate.report import rules_between
from cudareduce.gate.request import CheckRequest
from cudareduce.gate.trees import is_unchanged, revision_of
from cudareduce.library.registry import EXCHANGES, kernels_folder, load_registry
from cudareduce.machine.device import DeviceInfo
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.several.check_trees import (
    baseline_kernels,
    engine_name,
    measure_pairs,
    pair_kernels,
)
from cudareduce.several.kernels import kernels_in, source_folders
from cudareduce.several.remeasure import (
    Job,
    RankMeasure,
    RunJob,
    device_of,
    jobs_of,
    judge_on_ranks,
    select_records,
)
from cudareduce.temporary import temporary_folder


def check_ranks(request: CheckRequest, stored: Run) -> int:
    """Measure stored collectives again and judge them. Returns the exit code, the same on all ranks
    of a launcher. Raises as `check` does, and RankLost."""
    old = select_records(stored, request.remeasuring)
    jobs = jobs_of(old, stored, request.remeasuring)
    return judge_on_ranks(jobs, partial(_judged, request, old, jobs))


def _judged(request: CheckRequest, old: Run, jobs: Sequence[Job], run: RunJob) -> int:
    """The part of rank 0, or of a process without a launcher. Returns the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    rounds = remeasuring.rounds or int(old.protocol.get("rounds") or DEFAULT_ROUNDS)
    check_rounds(request, rounds)
    thresholds = thresholds_of(request.judging, registry, old.records)
    device = device_of(max(job.ranks for job in jobs), remeasuring)
    device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
    now = Run(tool(request.argv), device, old.protocol, ())
    rules, notes = rules_between(old, now, thresholds, request.judging)
    plan = check_plan(rules, remeasuring)
    ranks = RankMeasure(old, tuple(jobs), rounds, remeasuring, plan.deadline, run)
    outcome = measure_until_decided(ranks.measure, old.records, plan)
    with temporary_folder() as temporary:
        afresh, told = _beside_base(ranks, device, Path(temporary))
        outcome = confirm_slower(outcome, afresh, plan)
    notes += told if any(row.confirmed is not None for row in outcome.rows) else []
    now = outcome.measured.as_run(now, rounds)
    return concluded(request, Checked(old=old, now=now, outcome=outcome, rules=rules, notes=notes),
                     registry)  # fmt: skip


def _beside_base(ranks: RankMeasure, now: DeviceInfo, folder: Path) -> tuple[Measure, list[str]]:
    """How to confirm slower rows, with a note. Where git has the kernels of the baseline, and the
    code they share is unchanged, they run in the same rounds as engines of their own."""
    heads = (kernels_folder() / EXCHANGES, *ranks.remeasuring.folders)
    revision = revision_of(ranks.stored, now)
    if revision is None:
        return ranks.measure, []
    try:
        if not all(is_unchanged(revision, shared) for shared in source_folders()):
            return ranks.measure, []  # shared code changed: it would run on both sides
        base = baseline_kernels(revision, heads, folder / "base")
    except UsageError:
        return ranks.measure, []
    texts = {(r.kernel, r.engine): r.source_sha for r in ranks.stored.records}
    base = {
        name: kernel for name, kernel in base.items()
        if texts.get((kernel.collective, engine_name(kernel))) == kernel.sha
    }  # fmt: skip
    twins = folder / "twins"
    twins.mkdir()
    pairs = pair_kernels(kernels_in(heads), base, twins)
    folders = (*ranks.remeasuring.folders, twins)
    both = replace(ranks, remeasuring=replace(ranks.remeasuring, folders=folders))
    told = [f"measured again in the same rounds as the kernels of {revision}"] if base else []
    return measure_pairs(both.measure, pairs), told
