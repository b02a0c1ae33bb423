"""What ranks can only do if each of them can."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.peers.contract import AbsentError
from cudareduce.several.meet.link import RankLost
from cudareduce.several.meet.meeting import Meeting

Value = TypeVar("Value")


def agreed(meeting: Meeting, make: Callable[[], Value]) -> Value:
    """What this rank makes, once all ranks have made theirs; AbsentError on all of them, with what
    the first of them says, where one cannot. Raises RankLost."""
    found: list[Value] = []
    why = None
    try:
        found.append(make())
    except RankLost:
        raise
    except (AbsentError, UsageError, EnvironmentProblem, KernelFault) as error:
        why = str(error)
    for told in meeting.everybody(why):
        if told:
            raise AbsentError(told)
    return found[0]
