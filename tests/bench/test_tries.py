"""What is only tried ends with its share of the time, and with a kernel that is too slow."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from cudareduce.bench.tries import Tries
from cudareduce.budget import Deadline
from cudareduce.verify.isolate import HANGS
from cudareduce.verify.verdict import RIGHT, Verdict, skipped


class _Always:
    """Children that always say the same, and count how often they were asked."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict_, self.asked = verdict, 0

    def of(self, *_: Any) -> tuple[()]:
        return ()

    def verify(self, queues: Any, *_: Any) -> Iterator[tuple[Any, Verdict]]:
        self.asked += 1
        yield next(iter(queues)), self.verdict_


def tries(always: _Always) -> Tries:
    return Tries(always, always, Deadline())  # type: ignore[arg-type]


class _Case:
    kernel = SimpleNamespace(title="k of k.cu")


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
    assert always.asked == 3
    assert found[3:] == [None, None]
