"""Whether a wrong answer is that of a race: the build that watches is given the sizes at which a
kernel was wrong, too, since it may have been right at those that are usual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cudareduce.bench.session import Session
from cudareduce.launch.case import Case
from cudareduce.verify.test_sets import watched_test_set
from cudareduce.verify.verdict import Verdict, is_synchronisation_fault


def with_races(session: Session, verdicts: Mapping[Case, Verdict]) -> dict[Case, Verdict]:
    """Verdicts on cases, of a user's file that failed with the race that was found, if one was."""
    return {
        case: _told(session, case, verdict)
        if verdict.outcome == "fail"
        and case.kernel.foreign
        and not is_synchronisation_fault(verdict.reason)
        else verdict
        for case, verdict in verdicts.items()
    }  # fmt: skip


def _told(session: Session, case: Case, verdict: Verdict) -> Verdict:
    if session.jobs.emulator is None:
        return verdict
    net = watched_test_set(case, verdict.effort.sizes, session.backend.limits())
    found = session.tries.verdict(case, [net])
    if found is None or not is_synchronisation_fault(found.reason):
        return verdict
    return replace(verdict, reason=found.reason, error=None, bound=None)
