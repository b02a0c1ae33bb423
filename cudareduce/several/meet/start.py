"""Ranks of one host, started by the tool itself: the same command once for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.errors import worst_exit_code
from cudareduce.several.meet.patience import GAVE_UP
from cudareduce.several.meet.place import OWN
from cudareduce.temporary import temporary_folder

#: What a rank runs, before the words of the command line.
PROGRAM = (sys.executable, "-m", "cudareduce")
#: What ranks end with by themselves, what a job that a deadline has ended, and what a rank with an
#: error of this program's own.
_OWN_CODES, OUT_OF_TIME, _INTERNAL = (0, 2, 3, 4, 5, 6), 4, 70
#: How long the others may go on when one has ended with an error, in s: they learn of it by
#: themselves, unless they stand still; and when rank 0 has, which has told them.
_GRACE_S, _TOLD_S = 12.0, 2.0
_LOOK_S = 0.05
#: Lines of a rank that has said nothing but on its standard error.
_MOST_LINES = 20


def start(
    size: int, argv: Sequence[str], *, printing: bool = True, deadline: Deadline | None = None
) -> int:
    """Run `cudareduce ARGV` as so many ranks and wait for them; the exit code of the worst. Rank 0
    prints, unless it is told not to, and writes what is to be written; what others print on
    standard error is shown if they end with an error that rank 0 has not told. OUT_OF_TIME if the
    deadline has ended them."""
    with temporary_folder() as folder:
        meeting = Path(folder, "meeting.json")
        ranks: list[subprocess.Popen[bytes]] = []
        try:
            out = None if printing else subprocess.DEVNULL
            ranks.extend(_rank(rank, size, argv, meeting, out) for rank in range(size))
            _wait(ranks, deadline)
            standing = [rank for rank, process in enumerate(ranks) if process.poll() is None]
        finally:  # also where the user has interrupted it, and be it while they start
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
        if standing and deadline is not None and deadline.passed:
            return OUT_OF_TIME
        _tell_crashes(ranks, standing, meeting.parent)
    return worst_of_ranks([process.returncode for process in ranks])


def worst_of_ranks(codes: Sequence[int]) -> int:
    """The exit code of ranks that ended with these. One that no rank ends with by itself, as that
    of a signal, or Python's own, is a rank that is lost; who has lost one whose kernel does not end
    has lost it to that."""
    ended = next((code for code in codes if code == _INTERNAL or code > 128), None)
    if {3, 6} <= set(codes) <= set(_OWN_CODES):
        return 3
    return ended or worst_exit_code({code if code in _OWN_CODES else 6 for code in codes})


def _rank(
    rank: int, size: int, argv: Sequence[str], meeting: Path, out: int | None
) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        OWN.rank: str(rank), OWN.size: str(size), OWN.local_rank: str(rank), OWN.job: str(meeting),
    }  # fmt: skip
    command = [*PROGRAM, *argv]
    if rank == 0:
        return subprocess.Popen(command, env=environment, stdout=out)
    with _errors(meeting.parent, rank).open("wb") as errors:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=errors,
        )  # fmt: skip


def _errors(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.txt"


def _wait(ranks: Sequence[subprocess.Popen[bytes]], deadline: Deadline | None = None) -> None:
    """Until all have ended, or some time after rank 0, which ends with all others, or any one with
    an error, or the deadline."""
    until = inf if deadline is None else time.monotonic() + deadline.left_s
    while None in [process.poll() for process in ranks] and time.monotonic() < until:
        if ranks[0].returncode == 0 or any(process.returncode for process in ranks):
            grace = _TOLD_S if ranks[0].returncode else _GRACE_S
            until = min(until, time.monotonic() + grace)
        time.sleep(_LOOK_S)


def _tell_crashes(
    ranks: Sequence[subprocess.Popen[bytes]], standing: Sequence[int], folder: Path
) -> None:
    """What has become of ranks that a signal has ended, and what these have printed, and those that
    had an internal error or waited too long: they could tell nobody else. Those that were still
    `standing` at the end were ended here, which is worth a word unless rank 0 has told why."""
    told = 0 not in standing and ranks[0].returncode > 0
    for rank, process in enumerate(ranks):
        if told and rank in standing:
            continue
        text, code = _printed(folder, rank), process.returncode
        if code < 0 or code == _INTERNAL or GAVE_UP in text:
            for line in text.splitlines()[-_MOST_LINES:]:
                print(f"rank {rank}: {line}", file=sys.stderr)
        if code < 0:
            what = "stood still and was ended" if rank in standing else _ended_by(-code)
            print(f"rank {rank} {what}", file=sys.stderr)


def _printed(folder: Path, rank: int) -> str:
    with suppress(OSError):
        return _errors(folder, rank).read_text(errors="replace")
    return ""


def _ended_by(number: int) -> str:
    """What a signal says: a kernel that reads or writes out of bounds ends its rank by one."""
    name = signal.strsignal(number) or f"signal {number}"
    out = number in (signal.SIGSEGV, signal.SIGBUS)
    return f"was ended: {name}" + (": see what its kernel reads and writes" if out else "")
