"""Which rank this process is: what the launcher that started it says in the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cudareduce.errors import UsageError

#: How many ranks there may be; the tables of kernels have room for these.
MOST_RANKS = 8


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables in which a launcher tells a process its rank, their number, its rank among
    those of this host, and a word for the job that no other job on the machine has."""

    name: str
    rank: str
    size: str
    local_rank: str
    job: str


OWN = Launcher("cudareduce", "CUDAREDUCE_RANK", "CUDAREDUCE_RANKS", "CUDAREDUCE_LOCAL_RANK",
               "CUDAREDUCE_JOB")  # fmt: skip
#: In this order: SLURM_PROCID is also set in an interactive shell, for what runs there alone.
LAUNCHERS = (
    OWN,
    Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID"),
    Launcher("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_NAMESPACE"),
    Launcher("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_PORT"),
    Launcher("Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_ID"),
    Launcher("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_JOB_ID"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """One rank of `size`, the `local_rank`-th on its host, of a `job` of a launcher."""

    launcher: str
    rank: int
    size: int
    local_rank: int
    job: str


def meeting_file(here: Place, what: str = "") -> str:
    """Where ranks of a launcher's job meet, if nobody says: a file in this folder that bears the
    job's name and, behind it, for `what` else they do."""
    return f".cudareduce-{re.sub(r'[^0-9A-Za-z.-]', '_', here.job)}{what}.json"


def place(environment: Mapping[str, str]) -> Place | None:
    """Where a launcher has put this process; None if it was started alone. Numbers that make no
    sense are a UsageError."""
    for launcher in LAUNCHERS:
        if launcher.rank not in environment or launcher.size not in environment:
            continue
        size = _number(environment, launcher, launcher.size)
        if size == 1:
            continue
        rank = _number(environment, launcher, launcher.rank)
        local = rank
        if launcher.local_rank in environment:
            local = _number(environment, launcher, launcher.local_rank)
        if rank >= size:
            raise UsageError(
                f"{launcher.name} says {launcher.rank}={rank} of {launcher.size}={size}: ranks "
                "count from 0"
            )
        if size > MOST_RANKS:
            raise UsageError(
                f"{launcher.name} has started {size} ranks, and {MOST_RANKS} are the most that "
                "can meet here: start fewer"
            )
        return Place(launcher.name, rank, size, local, environment.get(launcher.job, "job"))
    return None


def _number(environment: Mapping[str, str], launcher: Launcher, name: str) -> int:
    try:
        value = int(environment[name])
    except ValueError:
        value = -1
    if value < 0 or (name == launcher.size and value == 0):
        raise UsageError(
            f"{launcher.name} says {name}={environment[name]!r}, which is no such number: unset it "
            "to run alone"
        )
    return value
