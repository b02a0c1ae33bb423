"""Kernels by themselves, before ranks run them together.

One that hangs or faults would take its rank with it, and what an array over ranks holds does not
tell all that may be wrong with a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudareduce.bench.edges import at_edges
from cudareduce.bench.races import with_races
from cudareduce.bench.session import Session
from cudareduce.launch.case import Case
from cudareduce.several.communicator import Communicator
from cudareduce.verify.verdict import Verdict

#: Elements of a share at most that is verified by itself; the exchange verifies longer ones.
_MOST = 2**22


def by_themselves(session: Session, cases: Sequence[Case], comm: Communicator) -> list[Verdict]:
    """The verdict on each case at the edges and at the session's sizes, from rank 0 to all: as on
    one GPU, where a user's file is in child processes. Raises RankLost, and on rank 0 may raise
    KeyboardInterrupt."""
    own = [] if comm.rank else _verdicts(session, cases)
    told = comm.broadcast([[v.outcome, v.reason, v.cause] for v in own])
    return [Verdict(outcome, reason, cause=cause) for outcome, reason, cause in told]


def _verdicts(session: Session, cases: Sequence[Case]) -> list[Verdict]:
    prepared, at = at_edges(session, cases)
    sizes = [(n, 1) for n in session.settings.sizes if n <= _MOST]
    found = session.verify(
        prepared, dict.fromkeys(cases, sizes), with_races(session, at), skip_others=True
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return [found.verdicts[case] for case in cases]
