"""What of a stored run of collectives is to be measured again, as command lines of `collective`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

from cudareduce.errors import UsageError
from cudareduce.gate.request import Remeasuring
from cudareduce.problem.dtypes import DTYPES
from cudareduce.report.sections import first_few
from cudareduce.results.record import Record, Run
from cudareduce.several.choice import Auto
from cudareduce.several.collectives import MOST_RANKS, OPS, Collective
from cudareduce.several.command import check_room
from cudareduce.several.exchange import load_exchanges

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
