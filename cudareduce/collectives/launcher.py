"""Start the ranks of a command, wait for them, and report those that crashed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

from cudareduce.backends.selection import BackendSpec, gpu_count
from cudareduce.budget import Deadline
from cudareduce.collectives.communicator import (
    OWN_LAUNCHER,
    STARTED_BY,
    TIMED_OUT_TEXT,
    Communicator,
    Placement,
)
from cudareduce.collectives.names import MOST_RANKS
from cudareduce.errors import EnvironmentProblem, UsageError, worst_exit_code
from cudareduce.machine import why_too_large
from cudareduce.progress import say
from cudareduce.temporary import temporary_folder

#: The command line of a rank, before its arguments.
PROGRAM = (sys.executable, "-m", "cudareduce")
#: Bytes that each rank needs per element of each rank's input.
_ELEMENT_BYTES = 8
#: Exit codes that a rank uses, that of a job that the deadline ended, and that of an internal
#: error.
_RANK_CODES, OUT_OF_TIME, _INTERNAL = (0, 2, 3, 4, 5, 6), 4, 70
#: Seconds until the other ranks are killed after one ended with an error, and after rank 0 did,
#: which has printed the reason.
_GRACE_S, _AFTER_RANK_0_S = 12.0, 2.0
_POLL_S = 0.05
#: Lines to show of a rank that printed to its standard error only.
_MOST_LINES = 20
_SHARED = "Ranks share a GPU, and take turns on it: results are checked, nothing is timed."


def default_ranks() -> int:
    """One rank per GPU up to MOST_RANKS, and at least two."""
    return min(MOST_RANKS, max(2, gpu_count()))


def check_memory(n: int, ranks: int) -> None:
    too_large = why_too_large(ranks * ranks * n * _ELEMENT_BYTES)
    if too_large:
        raise EnvironmentProblem(
            f"--n {n}: each of {ranks} ranks computes the inputs of all ranks, which {too_large}; "
            "give fewer elements"
        )


def gpu_of(placement: Placement) -> int:
    """The GPU of a rank: its rank on this host, modulo the number of GPUs."""
    return placement.local_rank % max(1, gpu_count())


def has_own_gpu(
    comm: Communicator, placement: Placement, spec: BackendSpec, *, quiet: bool
) -> bool:
    """True if each rank has a GPU of its own; prints a remark if ranks share one."""
    apart = all(comm.all_gather(placement.local_rank < gpu_count()))
    if spec.timed and not apart:
        say(_SHARED, quiet)
    return spec.timed and apart


def require_equal(comm: Communicator, what: Any) -> None:
    """Raise UsageError on all ranks if the values of `what` differ between ranks. Raises
    RankLost."""
    if len({json.dumps(each) for each in comm.all_gather(what)}) > 1:
        raise UsageError(
            "ranks have different options or kernels: start all with the same command and files"
        )


def start_ranks(
    size: int, argv: Sequence[str], *, printing: bool = True, deadline: Deadline | None = None
) -> int:
    """Run `cudareduce ARGV` as `size` ranks; returns the worst exit code, or OUT_OF_TIME at the
    deadline. Rank 0 prints to standard output unless `printing` is false. What a crashed rank
    printed to standard error is shown."""
    with temporary_folder() as temporary:
        folder = Path(temporary)
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            ranks.extend(
                _start_rank(rank, size, argv, folder, printing=printing) for rank in range(size)
            )
            _wait(ranks, deadline)
            unresponsive = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        finally:  # also after Ctrl-C
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if unresponsive and deadline is not None and deadline.passed:
            return OUT_OF_TIME
        _print_crashes(ranks, unresponsive, folder)
    return worst_of_ranks([process.returncode for process in ranks])


def worst_of_ranks(codes: Sequence[int]) -> int:
    """The exit code of a job whose ranks ended with `codes`. A code that cudareduce does not use,
    such as a signal's, counts as a lost rank (6). The job ends with 3 if ranks end with 3 and 6: a
    rank whose kernel hangs ends with 3, and the others end with 6 because they lose it."""
    ended = next((code for code in codes if code == _INTERNAL or code > 128), None)
    if {3, 6} <= set(codes) <= set(_RANK_CODES):
        return 3
    return ended or worst_exit_code({code if code in _RANK_CODES else 6 for code in codes})


def _start_rank(
    rank: int, size: int, argv: Sequence[str], folder: Path, *, printing: bool
) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        OWN_LAUNCHER.rank: str(rank), OWN_LAUNCHER.size: str(size),
        OWN_LAUNCHER.local_rank: str(rank), OWN_LAUNCHER.job: str(folder / "rendezvous.json"),
        STARTED_BY: str(os.getpid()),
    }  # fmt: skip
    command, null = [*PROGRAM, *argv], subprocess.DEVNULL
    if rank == 0:
        return subprocess.Popen(command, env=environment, stdout=None if printing else null)
    with _errors(folder, rank).open("wb") as errors:
        return subprocess.Popen(command, env=environment, stdin=null, stdout=null, stderr=errors)


def _errors(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.txt"


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: Deadline | None = None) -> None:
    """Wait until all ranks ended, until the deadline, or until the grace period after rank 0 ended
    or a rank failed."""
    until = inf if deadline is None else time.monotonic() + deadline.left_s
    while None in [process.poll() for process in ranks] and time.monotonic() < until:
        if ranks[0].returncode == 0 or any(process.returncode for process in ranks):
            grace = _AFTER_RANK_0_S if ranks[0].returncode else _GRACE_S
            until = min(until, time.monotonic() + grace)
        time.sleep(_POLL_S)


def _print_crashes(
    ranks: Sequence[subprocess.Popen[bytes]], unresponsive: Sequence[int], folder: Path
) -> None:
    """Print what crashed ranks wrote to standard error, and which signal ended them. Ranks that did
    not respond and were killed, `unresponsive`, are named unless rank 0 has printed an error."""
    rank_0_failed = 0 not in unresponsive and ranks[0].returncode > 0
    for rank, process in enumerate(ranks):
        if rank_0_failed and rank in unresponsive:
            continue
        text, code = "", process.returncode
        with suppress(OSError):
            text = _errors(folder, rank).read_text(errors="replace")
        if code < 0 or code == _INTERNAL or TIMED_OUT_TEXT in text:
            for line in text.splitlines()[-_MOST_LINES:]:
                print(f"rank {rank}: {line}", file=sys.stderr)
        if code < 0:
            why = f"was killed: {signal.strsignal(-code) or f'signal {-code}'}"
            if rank in unresponsive:
                why = "did not respond and was killed"
            elif -code in (signal.SIGSEGV, signal.SIGBUS):
                why += ": see what its kernel reads and writes"
            print(f"rank {rank} {why}", file=sys.stderr)
