"""What is only tried of a file without a header, in a time of its own: what it may be meant for,
what it asks of its input, how far it goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import getloadavg

from cudareduce.bench.jobs import Jobs
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case, Prepared
from cudareduce.machine.host import cpu_count
from cudareduce.reduction.inputs import varies
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.test_sets import TestSet
from cudareduce.verify.verdict import HANGS, Verdict, is_synchronisation_fault, skipped

#: What is only tried, and takes so many seconds, is not worth more.
_TRIED_S = 2.5
#: Of a kernel that has taken as long so often nothing more is tried.
_MOST_SLOW = 3
#: A machine with more work than this has others to wait for.
_MOST_CROWDED = 3.0
#: The most of what is left that one of several kernels gets: a third.
_SHARES = 3


def budget(seconds: float) -> Deadline:
    """A deadline for what takes so many seconds at most, up to so many times as long where others
    use the processors."""
    crowded = getloadavg()[0] / cpu_count()
    return Deadline(seconds * min(max(1.0, crowded), _MOST_CROWDED))


def _shows(case: Case) -> bool:
    """Whether what its map makes tells elements apart; of one that does not compile others say."""
    with suppress(UsageError):
        return not case.reduction.map or varies(case.reduction, positive=case.asks.positive)
    return True


def may_be_mended(case: Case, verdict: Verdict) -> bool:
    """Whether a file without a header that is wrong may be right launched otherwise, or on a
    condition: a race, or no end, is wrong on every input."""
    sure = is_synchronisation_fault(verdict.reason) or HANGS in verdict.reason
    return verdict.outcome == "fail" and case.kernel.guessed is not None and not sure


class Tries:
    """Tries cases in child processes, each for a short time, and all of them until a deadline."""

    def __init__(self, jobs: Jobs, isolation: Isolation, deadline: Deadline) -> None:
        self._jobs, self._isolation, self._deadline = jobs, isolation, deadline
        self._slow: Counter[str] = Counter()
        self._cut: set[str] = set()

    @contextmanager
    def one_of(self, kernels: int, deadline: Deadline) -> Iterator[Deadline]:
        """Within, one of so many kernels is tried, for a share of what a deadline leaves."""
        before = self._deadline
        share_s = deadline.left_s / min(kernels, _SHARES)
        self._deadline = Deadline(min(share_s, before.left_s))
        try:
            yield self._deadline
        finally:
            self._deadline = before

    def verdict(self, case: Case, nets: Iterable[TestSet]) -> Verdict | None:
        """The verdict on a case from nets alone; None if it takes nothing of them, or in no time
        that there is, or shows nothing."""
        title = case.kernel.title
        if not _shows(case):
            return None
        if self._deadline.passed or self._slow[title] >= _MOST_SLOW:
            self._cut.add(title)
            return None
        limit_s = self._jobs.settings.time_limit_s or _TRIED_S
        jobs = [  # beside a GPU, too, nothing but these decides
            replace(job, limit_s=min(job.limit_s, limit_s), optional=False)
            for job in self._jobs.of(Prepared(case, {}, {}, {}), (), tuple(nets))
        ]
        count = min(cpu_count(), len(jobs))
        tried = self._isolation.verify({case: jobs}, count, self._deadline, lambda _: None)
        found = next((verdict for _, verdict in tried), None)
        if found is not None and HANGS in found.reason:
            self._slow[title] += 1
        if self._slow[title] or (jobs and found is None):
            self._cut.add(title)
        return found

    def verdicts(self, sets: Mapping[Case, Sequence[TestSet]]) -> dict[Case, Verdict]:
        """Verdicts on cases from test sets alone, those for which there is time."""
        queues = {
            case: [
                replace(job, limit_s=min(job.limit_s, _TRIED_S), optional=False)
                for job in self._jobs.of(Prepared(case, {}, {}, {}), (), tuple(own))
            ]
            for case, own in sets.items()
        }
        queues = {case: jobs for case, jobs in queues.items() if jobs}
        return dict(self._isolation.verify(queues, cpu_count(), self._deadline, lambda _: None))

    def standing(self, case: Case, verdict: Verdict) -> Verdict:
        """The verdict on a case that stands. Where it is a guess that is wrong, and there was no
        time to try all that it may be meant for, nothing is decided."""
        guessed = case.kernel.guessed and may_be_mended(case, verdict)
        if not guessed or case.kernel.title not in self._cut:
            return verdict
        longer = "what else it may be meant for took too long to try: --time-limit 60 gives longer"
        return skipped("machine", f"cannot be decided here: {verdict.reason}; {longer}")
