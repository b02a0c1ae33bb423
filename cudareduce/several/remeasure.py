"""Measure stored collectives again, by jobs of fresh ranks that run `collective`.

Ranks are started here. If a launcher started several ranks of `check`, each of them starts one rank
of every job: rank 0 decides, the others follow it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import get_args

from cudareduce.backends import choose_backend, gpu_count, open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError, EnvironmentProblem, UsageError
from cudareduce.gate.measure import INTERRUPTED, Cut, Remeasured
from cudareduce.gate.request import Remeasuring
from cudareduce.machine.device import DeviceInfo
from cudareduce.problem.dtypes import DTYPES
from cudareduce.report.sections import first_few
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from cudareduce.several.collectives import MOST_RANKS, OPS, Collective
from cudareduce.several.command import check_room
from cudareduce.several.communicator import Communicator, RankLost
from cudareduce.several.engines import AutoEngine
from cudareduce.several.kernels import load_kernels
from cudareduce.several.launcher import OUT_OF_TIME, PROGRAM, start, worst_of_ranks
from cudareduce.several.rendezvous import connect, find_placement
from cudareduce.temporary import temporary_folder

#: Runs `cudareduce ARGV` as some ranks until the deadline; returns the worst exit code, or
#: OUT_OF_TIME. Only standard error is shown.
RunJob = Callable[[int, Sequence[str], Deadline], int]


def start_here(ranks: int, argv: Sequence[str], deadline: Deadline) -> int:
    """Run a job whose ranks are all started by this process."""
    return start(ranks, argv, printing=False, deadline=deadline)


def lead(comm: Communicator, judge: Callable[[RunJob], int]) -> int:
    """Rank 0's part under a launcher: judge by jobs of all ranks, and broadcast the exit code.
    Raises RankLost, and what judging raises."""
    numbers = count()
    with temporary_folder() as folder:

        def run(_: int, argv: Sequence[str], deadline: Deadline) -> int:
            words = [*argv, "--meet", str(Path(folder, f"meeting-{next(numbers)}.json"))]
            comm.broadcast(words)
            own = _run(words, deadline)
            every = comm.gather(own)
            return own if own == OUT_OF_TIME else worst_of_ranks(every)

        try:
            code = judge(run)
        except CudareduceError as error:
            with suppress(RankLost):
                comm.broadcast(error.exit_code)
            raise
    comm.broadcast(code)
    return code


def follow(comm: Communicator) -> int:
    """The other ranks' part: run rank 0's commands until it broadcasts the exit code. Raises
    RankLost."""
    while not isinstance(said := comm.broadcast(), int):
        comm.gather(_run(said, Deadline()))
    return said


def _run(argv: Sequence[str], deadline: Deadline) -> int:
    """Run one rank of a job in the launcher's environment."""
    left = None if deadline.seconds is None else deadline.left_s
    with subprocess.Popen([*PROGRAM, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          env=os.environ) as process:  # fmt: skip
        try:
            code = process.wait(left)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            process.kill()
    return code


#: The largest --rounds.
_MOST_ROUNDS = 10_000
_FIRST_FEW = 6


@dataclass(frozen=True, slots=True)
class Job:
    """One collective and operator: ranks, types, sizes and engines (all correct ones if empty).
    `links` tells if link bandwidth is measured with the largest size."""

    collective: str
    op: str
    ranks: int
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    links: bool

    def holds(self, record: Record) -> bool:
        """True if the job measures this record's problem, whatever the engine."""
        return (
            (record.kernel, record.op, record.ranks) == (self.collective, self.op, self.ranks)
            and record.dtype in self.dtypes
            and record.n in self.sizes
        )

    def argv(self, rounds: int, remeasuring: Remeasuring, result: Path) -> list[str]:
        """The command line of `cudareduce` that measures the job and writes `result`."""
        return [
            "collective", self.collective, "--op", self.op, "--dtype", ",".join(self.dtypes),
            "--n", ",".join(map(str, self.sizes)), "--engine", ",".join(self.engines),
            "--rounds", str(min(rounds, _MOST_ROUNDS)), "--backend", "cuda",
            "--json", str(result),
            *(word for folder in remeasuring.folders for word in ("--kernels", str(folder))),
            *(["--no-cache"] if remeasuring.no_cache else []),
            *(["--quiet"] if remeasuring.quiet else []),
        ]  # fmt: skip


def select_records(stored: Run, remeasuring: Remeasuring) -> Run:
    """The records that the given names select, of collectives or engines; all without names. Raises
    UsageError if there is none."""
    refuse_single_gpu_options(remeasuring)
    names = remeasuring.kernels
    records = tuple(
        r for r in stored.records
        if not names
        or any(fnmatchcase(is_called, name) for name in names
               for is_called in (r.kernel, r.engine or ""))
    )  # fmt: skip
    if not records:
        held = dict.fromkeys(r.engine or r.kernel for r in stored.records)
        raise UsageError(
            f"the baseline holds no {' '.join(names)}; it has: {first_few(held, _FIRST_FEW)}"
        )
    return replace(stored, records=records)


def refuse_single_gpu_options(remeasuring: Remeasuring) -> None:
    """Raise UsageError for options that apply to one GPU only."""
    for name, value in (
        ("--peers", remeasuring.peers), ("--map", remeasuring.map),
        ("--device", remeasuring.device), ("--time-limit", remeasuring.time_limit),
    ):  # fmt: skip
        if value:
            raise UsageError(f"{name} is about reductions of one GPU: leave it out of collectives")


def jobs_of(run: Run, stored: Run, remeasuring: Remeasuring) -> tuple[Job, ...]:
    """The jobs that measure these records again. They run the engines that the stored run
    requested, or that are named now, except kernels that no longer exist. Raises UsageError for
    records that `collective` does not measure."""
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for record in run.records:
        _check(record)
        groups.setdefault((record.kernel, record.op, record.ranks or 0), []).append(record)
    named = run.protocol.get("engines")
    jobs = []
    for (collective, op, ranks), records in groups.items():
        alike = [r for r in stored.records if (r.kernel, r.op, r.ranks) == (collective, op, ranks)]
        links = any(r.link_gb_s for r in alike)
        sizes = {r.n for r in records} | ({max(r.n for r in alike)} if links else set())
        check_room(max(sizes), ranks)
        held = dict.fromkeys(r.engine or "" for r in records)
        wanted = held if remeasuring.kernels or named is None else named
        engines = _still_there(collective, tuple(wanted), remeasuring)
        if engines or not wanted:
            jobs.append(Job(
                collective, op, ranks, tuple(dict.fromkeys(r.dtype for r in records)),
                tuple(sorted(sizes)), engines, links,
            ))  # fmt: skip
    if not jobs:
        raise UsageError(
            "none of the baseline's engines is there any more: name the folder of their kernels "
            "with --kernels"
        )
    return tuple(jobs)


def suspect_jobs(jobs: Sequence[Job], suspects: Sequence[Record]) -> list[Job]:
    """The jobs restricted to these records. The largest size stays if link bandwidth is measured
    with it, since that shows machine-wide drift."""
    again = []
    for job in jobs:
        for dtype in job.dtypes:
            mine = [r for r in suspects if r.dtype == dtype and job.holds(r)]
            sizes = {r.n for r in mine} | ({max(job.sizes)} if job.links else set())
            if mine:
                engines = tuple(dict.fromkeys(r.engine or "" for r in mine))
                again.append(replace(
                    job, dtypes=(dtype,), sizes=tuple(sorted(sizes)), engines=engines
                ))  # fmt: skip
    return again


def _still_there(
    collective: str, engines: tuple[str, ...], remeasuring: Remeasuring
) -> tuple[str, ...]:
    """The engines without kernels that no longer exist."""
    exchanges = load_kernels(remeasuring.folders)
    known = {f"peer:{kernel.short}" for kernel in exchanges.values()
             if kernel.collective == collective}  # fmt: skip
    known.add(AutoEngine.name)
    return tuple(name for name in engines if not name.startswith("peer:") or name in known)


def _check(record: Record) -> None:
    """Raise UsageError for a record that `collective` does not measure."""
    for what, value, known in (
        ("collective", record.kernel, get_args(Collective)), ("operator", record.op, OPS),
        ("type", record.dtype, tuple(DTYPES)),
        ("number of ranks", record.ranks, tuple(range(2, MOST_RANKS + 1))),
    ):  # fmt: skip
        if value not in known:
            raise UsageError(
                f"the baseline holds {value!r}, which is no {what} of `collective`: measure again "
                "with the command that wrote it, and compare the two files"
            )
    if record.engine and record.engine.startswith(("nccl:", "nccl-symm:")):
        raise UsageError(
            f"the baseline holds {record.engine}, of a file that --nccl named then: name the "
            "engines to check, or use check --library nccl=OLD,NEW"
        )
    if record.n < 1 or not record.engine or "," in record.engine:
        raise UsageError(
            "the baseline holds a collective without elements, or an engine: measure it again with "
            "`collective`"
        )


#: Exit codes of jobs that wrote a result: all right, or something wrong.
_WHOLE = (0, 3)
_NO_TIME = "no time was left to measure it"


def judge_on_ranks(jobs: Sequence[Job], judge: Callable[[RunJob], int]) -> int:
    """Run `judge` here, or on rank 0 of a launcher's ranks. Returns the exit code. Raises
    UsageError if the launcher's ranks are not as many as the jobs need, RankLost, and what `judge`
    raises."""
    here = find_placement(os.environ)
    if here is None:
        return judge(start_here)
    ranks = sorted({job.ranks for job in jobs})
    if ranks != [here.size]:
        raise UsageError(
            f"{' and '.join(map(str, ranks))} ranks are to be measured, and {here.launcher} has "
            f"started {here.size}: start as many, or run check alone, which starts them itself"
        )
    with connect(here, here.file("-check")) as comm:
        return follow(comm) if here.rank else lead(comm, judge)


def device_of(ranks: int, remeasuring: Remeasuring) -> DeviceInfo:
    """The device's description. Raises EnvironmentProblem if there are fewer GPUs than ranks."""
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
class RankMeasure:
    """Measures jobs with `run`. Records of `stored` without time left are skipped."""

    stored: Run
    jobs: tuple[Job, ...]
    rounds: int
    remeasuring: Remeasuring
    deadline: Deadline
    run: RunJob

    def measure(self, suspects: Sequence[Record] | None, times: int) -> Remeasured:
        """Measure all jobs, or those of `suspects`, with `times` times the rounds. Ctrl-C and lost
        ranks end it, and it returns what was measured."""
        records: list[Record] = []
        remarks: list[str] = []
        cut = None
        jobs = self.jobs if suspects is None else suspect_jobs(self.jobs, suspects)
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
        """The result of a job, or why it ended."""
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
        """The job's records, skipped for lack of time."""
        return replace(self.stored, protocol={}, records=tuple(
            replace(record, verdict="skip", reason=_NO_TIME, cause="time", time_us=None,
                    time_us_low=None, time_us_high=None, rounds_us=(), host_us=None)
            for record in self.stored.records if job.holds(record)
        ))  # fmt: skip
