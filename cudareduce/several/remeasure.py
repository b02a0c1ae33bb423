"""Jobs of ranks, one after the other: the same command once for each rank, in processes begun anew.

Ranks are started here or, where a launcher has started this program as several ranks, by each of
these one of them: rank 0 says what, the others follow it.


What of a stored run of collectives is to be measured again, as command lines of `collective`.

Collectives measured once more by jobs of ranks, on this host or by those of a launcher."""

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
from cudareduce.several.engines import Auto
from cudareduce.several.kernels import load_exchanges
from cudareduce.several.launcher import OUT_OF_TIME, PROGRAM, start, worst_of_ranks
from cudareduce.several.rendezvous import connect, find_placement
from cudareduce.temporary import temporary_folder

#: Runs `cudareduce ARGV` as so many ranks; the exit code of the worst, OUT_OF_TIME if the deadline
#: has ended it. What ranks say on standard error is shown, what they print is not.
RunJob = Callable[[int, Sequence[str], Deadline], int]


def started_here(ranks: int, argv: Sequence[str], deadline: Deadline) -> int:
    """A job whose ranks are all started by this process."""
    return start(ranks, argv, printing=False, deadline=deadline)


def lead(comm: Communicator, judge: Callable[[RunJob], int]) -> int:
    """Rank 0 of a launcher's ranks: judge by jobs of all of them, and tell the others the exit code
    that this ends with. Raises RankLost, and what judging raises."""
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
    """Another rank: do what rank 0 says, until it tells the exit code of all. Raises RankLost."""
    while not isinstance(said := comm.broadcast(), int):
        comm.gather(_run(said, Deadline()))
    return said


def _run(argv: Sequence[str], deadline: Deadline) -> int:
    """One rank of a launcher's job, in the environment of this one."""
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


#: More rounds than these no command takes.
_MOST_ROUNDS = 10_000
_FIRST_FEW = 6


@dataclass(frozen=True, slots=True)
class Job:
    """One collective with one operator among so many ranks, on arrays of some types and `sizes`,
    by some engines; by all that are right if none are named. `links` are measured with the largest
    size."""

    collective: str
    op: str
    ranks: int
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    links: bool

    def holds(self, record: Record) -> bool:
        """Whether it measures what a record is of, whatever the engine."""
        return (
            (record.kernel, record.op, record.ranks) == (self.collective, self.op, self.ranks)
            and record.dtype in self.dtypes
            and record.n in self.sizes
        )

    def argv(self, rounds: int, remeasuring: Remeasuring, result: Path) -> list[str]:
        """The words that make `cudareduce` measure it in so many rounds, and write the result."""
        return [
            "collective", self.collective, "--op", self.op, "--dtype", ",".join(self.dtypes),
            "--n", ",".join(map(str, self.sizes)), "--engine", ",".join(self.engines),
            "--rounds", str(min(rounds, _MOST_ROUNDS)), "--backend", "cuda",
            "--json", str(result),
            *(word for folder in remeasuring.folders for word in ("--kernels", str(folder))),
            *(["--no-cache"] if remeasuring.no_cache else []),
            *(["--quiet"] if remeasuring.quiet else []),
        ]  # fmt: skip


def asked_of(stored: Run, remeasuring: Remeasuring) -> Run:
    """The records that the names given now mean, collectives and engines; all without a name. A
    UsageError where none is meant, and where something is asked that collectives have not."""
    refuse_others(remeasuring)
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


def refuse_others(remeasuring: Remeasuring) -> None:
    """A UsageError where something is asked that collectives have not."""
    for name, value in (
        ("--peers", remeasuring.peers), ("--map", remeasuring.map),
        ("--device", remeasuring.device), ("--time-limit", remeasuring.time_limit),
    ):  # fmt: skip
        if value:
            raise UsageError(f"{name} is about reductions of one GPU: leave it out of collectives")


def jobs_of(run: Run, stored: Run, remeasuring: Remeasuring) -> tuple[Job, ...]:
    """What measures these records, of all that are `stored`, again. Engines are those that the run
    named, so that some that came since are measured too, unless names are given now; kernels that
    are there no more are left out. What no `collective` can have written is a UsageError."""
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


def only_suspects(jobs: Sequence[Job], suspects: Sequence[Record]) -> list[Job]:
    """The same for what these records are of. The largest size stays where links are measured with
    it, which tell what the machine does meanwhile."""
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
    """Engines but for kernels that there are no more."""
    exchanges = load_exchanges(remeasuring.folders)
    known = {f"peer:{kernel.short}" for kernel in exchanges.values()
             if kernel.collective == collective}  # fmt: skip
    known.add(Auto.name)
    return tuple(name for name in engines if not name.startswith("peer:") or name in known)


def _check(record: Record) -> None:
    """A UsageError for a record that `collective` does not measure."""
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
            "engines to check, or give both files to check --nccl"
        )
    if record.n < 1 or not record.engine or "," in record.engine:
        raise UsageError(
            "the baseline holds a collective without elements, or an engine: measure it again with "
            "`collective`"
        )


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
