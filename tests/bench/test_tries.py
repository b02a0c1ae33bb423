"""What is only tried ends with its share of the time, and with a kernel that is too slow."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.bench.tries import Tries
from cudareduce.budget import Deadline
from cudareduce.verify.verdict import HANGS, RIGHT, Verdict, skipped


@dataclass(frozen=True)
class _Job:
    """As there are beside a GPU, which the verdict is left to."""

    limit_s: float = 20.0
    optional: bool = True


class _Always:
    """Children that always say the same, and keep what they were asked."""

    def __init__(self, verdict: Verdict, time_limit_s: float | None = None) -> None:
        self.verdict_, self.asked = verdict, list[_Job]()
        self.settings = SimpleNamespace(time_limit_s=time_limit_s)

    def of(self, *_: Any) -> tuple[_Job, ...]:
        return (_Job(),)

    def verify(self, queues: Any, *_: Any) -> Iterator[tuple[Any, Verdict]]:
        for case, jobs in queues.items():
            self.asked += jobs
            yield case, self.verdict_


def tries(always: _Always) -> Tries:
    return Tries(always, always, Deadline())  # type: ignore[arg-type]


class _Case:
    kernel = SimpleNamespace(title="k of k.cu", guessed=("block",))
    reduction = SimpleNamespace(map=None)


CASE: Any = _Case()


def test_nothing_is_tried_once_the_share_is_spent() -> None:
    always = _Always(RIGHT)
    some = tries(always)
    with some.one_of(3, Deadline(0)):
        assert some.verdict(CASE, ()) is None
    assert not always.asked
    assert some.verdict(CASE, ()) == RIGHT


def test_one_of_many_gets_a_third_of_what_is_left() -> None:
    with tries(_Always(RIGHT)).one_of(8, Deadline(30, lambda: 0.0)) as share:
        assert share.seconds == 10


def test_a_kernel_that_is_too_slow_three_times_is_tried_no_more() -> None:
    always = _Always(skipped("time", f"{HANGS} 2.5 s"))
    some = tries(always)
    found = [some.verdict(CASE, ()) for _ in range(5)]
    assert len(always.asked) == 3
    assert found[3:] == [None, None]


@pytest.mark.parametrize(("asked_s", "limit_s"), [(None, 2.5), (15.0, 15.0), (60.0, 20.0)])
def test_what_is_tried_decides_beside_a_gpu_too(asked_s: float | None, limit_s: float) -> None:
    """Else what does not compile on the emulator would be right on a first try."""
    always = _Always(RIGHT, asked_s)
    tries(always).verdict(CASE, ())
    assert always.asked == [_Job(limit_s, optional=False)]


def test_what_is_wrong_beside_what_took_too_long_is_not_decided() -> None:
    wrong = Verdict("fail", "n = 1: got 2, expected 4")
    some = tries(_Always(skipped("time", f"{HANGS} 2.5 s")))
    assert some.standing(CASE, wrong) == wrong
    some.verdict(CASE, ())
    found = some.standing(CASE, wrong)
    assert found.outcome == "skip"
    assert found.reason.startswith("cannot be decided here: n = 1: got 2, expected 4; what else")
    for sure in (Verdict("fail", "a race: data race in shared memory: k.cu:3"), RIGHT):
        assert some.standing(CASE, sure) == sure


def test_what_was_tried_to_its_end_stands() -> None:
    wrong = Verdict("fail", "n = 1: got 2, expected 4")
    some = tries(_Always(wrong))
    some.verdict(CASE, ())
    assert some.standing(CASE, wrong) == wrong
