"""`check` of what `collective` has stored: jobs of ranks that measure it again.

Each look of the gate is a job, whose processes are all begun anew; what a job writes is what the
gate compares.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from cudareduce.backends import choose_backend, gpu_count, open_backend
from cudareduce.budget import Deadline
from cudareduce.device import DeviceInfo
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.gate.bencher import INTERRUPTED, Cut, Remeasured
from cudareduce.gate.checking import Checked, check_rounds, concluded, looks_of, thresholds_of
from cudareduce.gate.judgement import rules_between
from cudareduce.gate.looks import first_look, second_look
from cudareduce.gate.request import CheckRequest, Remeasuring
from cudareduce.gate.rerun import DEFAULT_ROUNDS
from cudareduce.library.registry import load_registry
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from cudareduce.several.arrival import meet
from cudareduce.several.jobs import RunJob, follow, lead, started_here
from cudareduce.several.place import Place, meeting_file, place
from cudareduce.several.start import OUT_OF_TIME
from cudareduce.several.stored import Job, asked_of, jobs_of, only_suspects
from cudareduce.temporary import temporary_folder

#: What else of a job's exit codes leaves a result: all is right, or something is wrong.
_WHOLE = (0, 3)
_NO_TIME = "no time was left to measure it"


def check_ranks(request: CheckRequest, stored: Run) -> int:
    """Measure stored collectives again and judge; the exit code, the same on all ranks of a
    launcher. Raises as `check` does, and RankLost."""
    old = asked_of(stored, request.remeasuring)
    jobs = jobs_of(old, request.remeasuring)
    judge = partial(_judged, request, old, jobs)
    here = place(os.environ)
    if here is None:
        return judge(started_here)
    _check_size(here, jobs)
    with meet(here, meeting_file(here, "-check")) as meeting:
        return follow(meeting) if here.rank else lead(meeting, judge)


def _judged(request: CheckRequest, old: Run, jobs: Sequence[Job], run: RunJob) -> int:
    """What rank 0 of a launcher does, or who was started alone; the exit code."""
    remeasuring, registry = request.remeasuring, load_registry()
    rounds = remeasuring.rounds or int(old.protocol.get("rounds") or DEFAULT_ROUNDS)
    check_rounds(request, rounds)
    thresholds = thresholds_of(request.judging, registry, old.records)
    device = _device(max(job.ranks for job in jobs), remeasuring)
    device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
    now = Run(tool(request.argv), device, old.protocol, ())
    rules, notes = rules_between(old, now, thresholds, request.judging)
    looks = looks_of(rules, remeasuring)
    ranks = _Ranks(old, tuple(jobs), rounds, remeasuring, looks.deadline, run)
    seen = first_look(ranks.measure, old.records, looks)
    seen = second_look(seen, ranks.measure, looks)
    now = seen.measured.as_run(now, rounds)
    return concluded(request, Checked(old=old, now=now, seen=seen, rules=rules, notes=notes),
                     registry)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Ranks:
    """Measures what is stored, by jobs of ranks that `run`."""

    stored: Run
    jobs: tuple[Job, ...]
    rounds: int
    remeasuring: Remeasuring
    deadline: Deadline
    run: RunJob

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Remeasured:
        """All of it, or what these records are of and what else their jobs give, with so many times
        the rounds. Ctrl-C and ranks that are lost end it, with what there is by then."""
        records: list[Record] = []
        remarks: list[str] = []
        cut = None
        jobs = self.jobs if suspects is None else only_suspects(self.jobs, suspects)
        with temporary_folder() as folder:
            for job in jobs:
                try:
                    found = self._found(job, times, Path(folder, "job.json"))
                except KeyboardInterrupt:
                    cut = INTERRUPTED
                    break
                if isinstance(found, Cut):
                    cut = found
                    break
                records += found.records
                remarks += found.protocol.get("remarks") or ()
        return Remeasured(
            old=(), new=tuple(records), floors_us={}, remarks=tuple(dict.fromkeys(remarks)),
            stories=(), cut=cut,
        )  # fmt: skip

    def _found(self, job: Job, times: int, path: Path) -> Run | Cut:
        """What a job gives; what there was no time for is skipped."""
        if self.deadline.passed:
            return self._skipped(job)
        argv = job.argv(times * self.rounds, self.remeasuring, path)
        code = self.run(job.ranks, argv, self.deadline)
        if code == OUT_OF_TIME:
            return self._skipped(job)
        if code not in _WHOLE or not path.exists():
            told = "see what they said on standard error"
            return Cut(f"the {job.ranks} ranks ended with code {code}: {told}", code)
        found = load(path)
        path.unlink()
        return found

    def _skipped(self, job: Job) -> Run:
        """In the place of its records some that say that there was no time."""
        return replace(self.stored, protocol={}, records=tuple(
            replace(record, verdict="skip", reason=_NO_TIME, cause="time", time_us=None,
                    time_us_low=None, time_us_high=None, rounds_us=(), host_us=None)
            for record in self.stored.records if job.holds(record)
        ))  # fmt: skip


def _device(ranks: int, remeasuring: Remeasuring) -> DeviceInfo:
    """What a result says of the machine. An EnvironmentProblem where not each rank has a GPU."""
    spec, _ = choose_backend("cuda", 0, not remeasuring.no_cache)
    gpus = gpu_count()
    if gpus < ranks:
        raise EnvironmentProblem(
            f"the baseline is of {ranks} ranks with a GPU each, and here "
            f"{'is one' if gpus == 1 else f'are {gpus}'}: check it where there are as many"
        )
    with open_backend(spec) as backend:
        return backend.info()


def _check_size(here: Place, jobs: Sequence[Job]) -> None:
    """A UsageError if a launcher has started others than the baseline's ranks."""
    ranks = sorted({job.ranks for job in jobs})
    if ranks != [here.size]:
        raise UsageError(
            f"the baseline is of {' and '.join(map(str, ranks))} ranks, and {here.launcher} has "
            f"started {here.size}: start as many, or run check alone, which starts them itself"
        )
