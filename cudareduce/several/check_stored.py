"""`check` of what `collective` has stored: jobs of ranks that measure it again.

Each look of the gate is a job, whose processes are all begun anew; what a job writes is what the
gate compares.
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
from cudareduce.several.check_trees import base_exchanges, engine_of, in_pairs, paired
from cudareduce.several.kernels import exchanges_of, shared_folders
from cudareduce.several.remeasure import Job, Ranks, RunJob, asked_of, by_ranks, device_of, jobs_of
from cudareduce.temporary import temporary_folder


def check_ranks(request: CheckRequest, stored: Run) -> int:
    """Measure stored collectives again and judge; the exit code, the same on all ranks of a
    launcher. Raises as `check` does, and RankLost."""
    old = asked_of(stored, request.remeasuring)
    jobs = jobs_of(old, stored, request.remeasuring)
    return by_ranks(jobs, partial(_judged, request, old, jobs))


def _judged(request: CheckRequest, old: Run, jobs: Sequence[Job], run: RunJob) -> int:
    """What rank 0 of a launcher does, or who was started alone; the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    rounds = remeasuring.rounds or int(old.protocol.get("rounds") or DEFAULT_ROUNDS)
    check_rounds(request, rounds)
    thresholds = thresholds_of(request.judging, registry, old.records)
    device = device_of(max(job.ranks for job in jobs), remeasuring)
    device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
    now = Run(tool(request.argv), device, old.protocol, ())
    rules, notes = rules_between(old, now, thresholds, request.judging)
    plan = check_plan(rules, remeasuring)
    ranks = Ranks(old, tuple(jobs), rounds, remeasuring, plan.deadline, run)
    outcome = measure_until_decided(ranks.measure, old.records, plan)
    with temporary_folder() as temporary:
        afresh, told = _beside_base(ranks, device, Path(temporary))
        outcome = confirm_slower(outcome, afresh, plan)
    notes += told if any(row.confirmed is not None for row in outcome.rows) else []
    now = outcome.measured.as_run(now, rounds)
    return concluded(request, Checked(old=old, now=now, outcome=outcome, rules=rules, notes=notes),
                     registry)  # fmt: skip


def _beside_base(ranks: Ranks, now: DeviceInfo, folder: Path) -> tuple[Measure, list[str]]:
    """Measures engines beside what they were when the baseline was made, where git has the very
    kernels and what they share is as it was, so that nothing but the change stands between the two;
    and what is to be said of it."""
    heads = (kernels_folder() / EXCHANGES, *ranks.remeasuring.folders)
    revision = revision_of(ranks.stored, now)
    if revision is None:
        return ranks.measure, []
    try:
        if not all(is_unchanged(revision, shared) for shared in shared_folders()):
            return ranks.measure, []  # both sides would run what may be slower by now
        base = base_exchanges(revision, heads, folder / "base")
    except UsageError:
        return ranks.measure, []
    texts = {(r.kernel, r.engine): r.source_sha for r in ranks.stored.records}
    base = {
        name: kernel for name, kernel in base.items()
        if texts.get((kernel.collective, engine_of(kernel))) == kernel.sha
    }  # fmt: skip
    twins = folder / "twins"
    twins.mkdir()
    pairs = paired(exchanges_of(heads), base, twins)
    folders = (*ranks.remeasuring.folders, twins)
    both = replace(ranks, remeasuring=replace(ranks.remeasuring, folders=folders))
    told = [f"measured again in the same rounds as the kernels of {revision}"] if base else []
    return in_pairs(both.measure, pairs), told
