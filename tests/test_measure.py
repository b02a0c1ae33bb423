"""How measuring goes about it: order, backlog, discarded samples, rounds, intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from cudareduce.measure import Timing, interval, measure, noise_pct


@dataclass
class Replay:
    """A timer whose clock advances by what is run, and which writes down what happens."""

    clock: float = 0.0
    log: list[str] = field(default_factory=list)
    late: Callable[[int], bool] = lambda count: False
    marks: int = 0

    def run(self, name: str, us: float) -> Callable[[], None]:
        def go() -> None:
            self.clock += us
            self.log.append(name)

        return go

    def displace(self) -> None:
        self.clock += 110
        self.log.append("flush")

    def mark(self) -> float:
        self.marks += 1
        self.log.append("event")
        return self.clock

    def reached(self, event: float) -> bool:
        return self.late(self.marks)

    def elapsed_us(self, start: float, end: float) -> float:
        return end - start

    def synchronize(self) -> None:
        self.log.append("wait")


def test_a_round_goes_forward_and_back_and_each_sample_is_cold() -> None:
    timer = Replay()
    into: dict[str, Timing] = {}
    entrants = {name: timer.run(name, us) for name, us in (("A", 9000), ("B", 8000), ("C", 7000))}
    measure(timer, entrants, 1, into, lambda: timer.log.append("round"))
    tail = timer.log[-1 - 6 * 5 :]
    assert [e for e in tail if e in "ABC"] == ["A", "B", "C", "C", "B", "A"]
    assert tail[:5] == ["flush", "event", "A", "event", "wait"]
    assert tail[-1] == "round"
    assert into["B"] == Timing((8000.0,), 2, 8000.0, None, 0)


def test_short_kernels_get_more_samples() -> None:
    timer = Replay()
    into: dict[str, Timing] = {}
    measure(timer, {"short": timer.run("s", 40), "long": timer.run("l", 60000)}, 2, into)
    assert (into["short"].samples, into["long"].samples) == (84, 4)
    assert into["short"].noise_pct == 0


def test_a_sample_that_contains_host_time_is_taken_again_behind_a_longer_backlog() -> None:
    timer = Replay()
    late = iter([True, True])
    timer.late = lambda count: timer.log.count("flush") > 1 and next(late, False)
    into: dict[str, Timing] = {}
    measure(timer, {"A": timer.run("A", 300000)}, 1, into)
    assert into["A"].discarded == 2
    assert into["A"].samples == 2
    assert into["A"].rounds_us == (300000.0,)


def test_an_entrant_that_is_always_late_has_no_time() -> None:
    timer = Replay()
    timer.late = lambda count: True
    into: dict[str, Timing] = {}
    measure(timer, {"A": timer.run("A", 300000)}, 2, into)
    assert into == {}


def test_interrupted_rounds_leave_whole_ones() -> None:
    timer = Replay()
    into: dict[str, Timing] = {}
    rounds = iter(range(10))

    def stop() -> None:
        if next(rounds) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(timer, {"A": timer.run("A", 5000)}, 9, into, stop)
    assert len(into["A"].rounds_us) == 3


def test_the_interval_is_the_order_of_rounds() -> None:
    assert interval([5, 1, 9, 3, 7, 2, 8, 4, 6]) == (2, 8)
    assert interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert interval([1, 2, 3, 4, 5]) is None
    assert interval([]) is None
    assert interval(range(1, 22)) == (6, 16)  # a table of the binomial distribution: 97 %


def test_noise_is_the_interquartile_range() -> None:
    assert noise_pct([10, 10, 10]) is None
    assert noise_pct([8, 9, 10, 11, 12, 9, 10, 11]) == pytest.approx(20)
