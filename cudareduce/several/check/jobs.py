"""Jobs of ranks, one after the other: the same command once for each rank, in processes begun anew.

Ranks are started here or, where a launcher has started this program as several ranks, by each of
these one of them: rank 0 says what, the others follow it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.errors import CudareduceError
from cudareduce.several.communicator import Communicator, RankLost
from cudareduce.several.launcher import OUT_OF_TIME, PROGRAM, start, worst_of_ranks
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
