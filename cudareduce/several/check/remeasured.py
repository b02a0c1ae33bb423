"""Collectives measured once more by jobs of ranks, on this host or by those of a launcher."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.backends import choose_backend, gpu_count, open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.gate.bencher import INTERRUPTED, Cut, Remeasured
from cudareduce.gate.request import Remeasuring
from cudareduce.machine.device import DeviceInfo
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from cudareduce.several.check.jobs import RunJob, follow, lead, started_here
from cudareduce.several.check.stored import Job, only_suspects
from cudareduce.several.launcher import OUT_OF_TIME
from cudareduce.several.rendezvous import connect, find_placement
from cudareduce.temporary import temporary_folder

#: What of a job's exit codes leaves a result: all is right, or something is wrong.
_WHOLE = (0, 3)
_NO_TIME = "no time was left to measure it"


def by_ranks(jobs: Sequence[Job], judge: Callable[[RunJob], int]) -> int:
    """Judge by jobs of ranks that are started here or, where a launcher has started this program as
    several, by those: rank 0 judges, and all end with its exit code. A UsageError if these are not
    as many as jobs take; raises RankLost, and what judging raises."""
    here = find_placement(os.environ)
    if here is None:
        return judge(started_here)
    ranks = sorted({job.ranks for job in jobs})
    if ranks != [here.size]:
        raise UsageError(
            f"{' and '.join(map(str, ranks))} ranks are to be measured, and {here.launcher} has "
            f"started {here.size}: start as many, or run check alone, which starts them itself"
        )
    with connect(here, here.file("-check")) as comm:
        return follow(comm) if here.rank else lead(comm, judge)


def device_of(ranks: int, remeasuring: Remeasuring) -> DeviceInfo:
    """What a result says of the machine. An EnvironmentProblem where not each rank has a GPU."""
    spec, _ = choose_backend("cuda", 0, not remeasuring.no_cache)
    gpus = gpu_count()
    if gpus < ranks:
        raise EnvironmentProblem(
            f"{ranks} ranks with a GPU each are to be measured, and here "
            f"{'is one' if gpus == 1 else f'are {gpus}'}: check it where there are as many"
        )
    with open_backend(spec) as backend:
        return backend.info()


@dataclass(frozen=True, slots=True)
class Ranks:
    """Measures jobs, which `run` runs; of what is `stored` it says if there was no time for it."""

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
