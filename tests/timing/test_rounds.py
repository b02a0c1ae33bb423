"""How measuring goes about it: order, backlog, discarded samples, rounds, intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import pytest

from cudareduce.budget import Deadline
from cudareduce.intervals import interval, noise_pct, paired
from cudareduce.machine import Conditions
from cudareduce.timing.rounds import (
    Context,
    Contexts,
    Measurement,
    Timing,
    measure,
    remarks,
    same_context,
    warm_up,
)
from cudareduce.timing.sampling import COLD, Method
from cudareduce.timing.timer import DeviceTimer


@dataclass
class Replay:
    """A timer whose clock advances by the cost of each launch, with a log of calls."""

    clock: float = 0.0
    log: list[str] = field(default_factory=list)
    late: Callable[[int], bool] = lambda count: False
    marks: int = 0
    host: float = 0.0
    states: list[Conditions] = field(default_factory=lambda: [Conditions()])

    def run(self, name: str, us: float) -> Callable[[], None]:
        def go() -> None:
            self.clock += us
            self.log.append(name)

        return go

    def reset_persisting(self) -> None:
        pass

    def flush(self) -> None:
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

    finish = synchronize

    def close_gate(self) -> None:
        self.log.append("gate")

    def open_gate(self) -> None:
        self.log.append("go")

    def host_us(self) -> float:
        self.host += 2
        return self.host

    def captured(self, run: Callable[[], None], count: int) -> Callable[[], None]:
        def replay() -> None:
            self.log.append(f"graph of {count}")
            for _ in range(count):
                run()

        return replay

    def conditions(self) -> Conditions:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    @property
    def typed(self) -> DeviceTimer:
        return cast(DeviceTimer, self)

    @property
    def spent_s(self) -> float:
        """The device's clock taken for the host's."""
        return self.clock / 1e6


def always(timer: Replay, entrants: Mapping[str, Callable[[], None]]) -> Contexts:
    return same_context(Context(timer.typed, entrants))


def measured(
    timer: Replay, costs: dict[str, float], rounds: int, method: Method = COLD
) -> Measurement:
    entrants = {name: timer.run(name, us) for name, us in costs.items()}
    return measure(always(timer, entrants), rounds, method, lambda: timer.log.append("round"))


def test_a_round_goes_forward_and_back_and_each_sample_is_cold() -> None:
    timer = Replay()
    into = measured(timer, {"A": 9000, "B": 8000, "C": 7000}, 1)
    tail = timer.log[-1 - 6 * 5 :]
    assert [e for e in tail if e in "ABC"] == ["A", "B", "C", "C", "B", "A"]
    assert tail[:5] == ["flush", "event", "A", "event", "wait"]
    assert tail[-1] == "round"
    assert into.timings["B"] == Timing((8000.0,), 2, 8000.0, None, 0, 2, 1)


def test_a_warm_sample_waits_at_a_gate_until_the_host_has_enqueued() -> None:
    timer = Replay()
    into = measured(timer, {"A": 9000}, 1, Method(cold=False))
    assert timer.log[-7:-1] == ["gate", "event", "A", "event", "go", "wait"]
    assert timer.log[-8] == "A"  # one that is not timed: what ran before left other data behind
    assert into.timings["A"].batch == 1


def test_the_gate_opens_even_when_a_launch_fails() -> None:
    timer = Replay()
    calls = iter(range(1000))

    def run() -> None:
        timer.clock += 400_000
        if next(calls) == 3:  # two windows of warm-up, a run that warms the cache, then this
            raise ValueError("launch failed")

    with pytest.raises(ValueError, match="launch failed"):
        measure(always(timer, {"A": run}), 1, Method(cold=False))
    assert timer.log[-1] == "go"


def test_short_kernels_are_batched_when_warm_and_the_time_is_that_of_one() -> None:
    timer = Replay()
    into = measured(timer, {"short": 4, "long": 30}, 2, Method(cold=False))
    assert (into.timings["short"].batch, into.timings["long"].batch) == (50, 1)
    assert into.timings["short"].median_us == pytest.approx(4)
    assert into.timings["short"].host_us == pytest.approx(2 / 50)
    cold = measured(Replay(), {"short": 4}, 2)
    assert cold.timings["short"].batch == 1


def test_a_batch_never_fills_the_launch_queue() -> None:
    assert Method(cold=False).batch(0.1) == 64


def test_entrants_in_alone_are_not_batched() -> None:
    timer = Replay()
    into = measure(always(timer, {"A": timer.run("A", 1)}), 1, Method(cold=False), alone=("A",))
    assert into.timings["A"].batch == 1


def test_a_graph_holds_the_batch_and_is_captured_once() -> None:
    timer = Replay()
    into = measured(timer, {"A": 10}, 2, Method(cold=False, graph=True))
    assert {e for e in timer.log if e.startswith("graph")} == {"graph of 20"}
    assert into.timings["A"].median_us == pytest.approx(10)
    assert measured(Replay(), {"A": 10}, 1, Method(graph=True)).timings["A"].batch == 1


def test_samples_end_when_the_median_is_stable() -> None:
    timer = Replay()
    into = measured(timer, {"steady": 40, "long": 60000}, 2)
    assert (into.timings["steady"].samples, into.timings["long"].samples) == (4 * 6, 4)
    assert into.timings["steady"].noise_pct == 0


def test_samples_go_on_while_the_median_moves_and_end_with_the_budget() -> None:
    timer = Replay()
    calls = iter(range(100000))

    def restless() -> None:
        timer.clock += 10 + 5 * (next(calls) % 5)

    into = measure(always(timer, {"A": restless}), 1)
    assert into.timings["A"].samples == 2 * 96 / 8  # 96 launches a pass
    into = measure(always(timer, {"A": timer.run("A", 1200)}), 1)
    assert into.timings["A"].samples == 2 * 5  # 5 ms a pass


def test_a_sample_of_a_short_kernel_is_the_mean_of_eight_launches() -> None:
    timer = Replay()
    calls = iter(range(100000))

    def two_faced() -> None:
        timer.clock += 25 if next(calls) % 2 else 26

    into = measure(always(timer, {"A": two_faced}), 3)
    assert into.timings["A"].by_round == (25.5, 25.5, 25.5)
    assert into.timings["A"].min_us == 25.5
    assert (Method().cycle(249, 1), Method().cycle(251, 1), Method().cycle(9, 40)) == (8, 1, 1)


def anew(timer: Replay, entrants: Mapping[str, Callable[[], None]]) -> Contexts:
    """A new context each time."""

    @contextmanager
    def contexts() -> Iterator[Context]:
        timer.log.append("enter")
        yield Context(timer.typed, entrants)
        timer.log.append("leave")

    return contexts


def test_every_half_round_has_a_context_of_its_own_that_ends_before_the_next() -> None:
    timer = Replay()
    into = measure(anew(timer, {"A": timer.run("A", 9000), "B": timer.run("B", 8000)}), 2)
    story = [e for e in timer.log if e in ("A", "B", "enter", "leave")]
    last = story[len(story) - story[::-1].index("enter") - 1 :]
    assert last == ["enter", "A", "B", "B", "A", "leave"]  # each once before it is timed
    assert story.count("enter") == story.count("leave") == into.contexts == 4


def test_a_sample_with_host_time_is_repeated_with_a_longer_backlog() -> None:
    timer = Replay()
    late = iter([True, True])
    timer.late = lambda count: timer.log.count("flush") > 2 and next(late, False)
    into = measured(timer, {"A": 300000}, 1)
    assert into.timings["A"].discarded == 2
    assert into.timings["A"].samples == 2
    assert into.timings["A"].medians_us == (300000.0,)


def test_an_entrant_that_is_always_late_has_no_time() -> None:
    timer = Replay()
    timer.late = lambda count: True
    assert measured(timer, {"A": 300000}, 2).timings == {}


def test_a_round_without_a_sample_does_not_shift_the_pairs() -> None:
    timer = Replay()
    timer.late = lambda count: timer.log.count("round") == 1 and timer.log[-1] == "B"
    into = measured(timer, {"A": 9000, "B": 8000}, 3)
    assert into.timings["B"].by_round == (8000.0, None, 8000.0)
    assert paired(into.timings["A"].by_round, into.timings["B"].by_round) == [1.125, 1.125]


def test_ctrl_c_between_rounds_keeps_the_complete_ones() -> None:
    timer = Replay()
    rounds = iter(range(10))

    def stop() -> None:
        if next(rounds) == 2:
            raise KeyboardInterrupt

    into = measure(always(timer, {"A": timer.run("A", 5000)}), 9, COLD, stop)
    assert into.interrupted
    assert (into.rounds, into.planned) == (3, 9)
    assert len(into.timings["A"].medians_us) == 3


def test_ctrl_c_within_a_round_keeps_the_rounds_before() -> None:
    timer = Replay()

    def kernel() -> None:
        timer.clock += 5000
        if timer.log.count("round") == 2:
            raise KeyboardInterrupt

    into = measure(always(timer, {"A": kernel}), 9, COLD, partial(timer.log.append, "round"))
    assert into.interrupted
    assert (into.rounds, into.timings["A"].by_round) == (2, (5000.0, 5000.0))


def test_a_complete_measurement_is_not_interrupted() -> None:
    assert not measured(Replay(), {"A": 9000}, 2).interrupted


def test_a_deadline_keeps_the_complete_rounds() -> None:
    timer = Replay()
    deadline = Deadline(2.0, lambda: timer.spent_s)
    into = measure(always(timer, {"A": timer.run("A", 200_000)}), 9, deadline=deadline)
    assert 0 < into.rounds < 9
    assert into.timings["A"].samples == 2 * into.rounds
    assert timer.spent_s < 2.4


@pytest.mark.parametrize("left_s", range(1, 8))
def test_a_deadline_within_a_round_or_warm_up_keeps_the_complete_rounds(left_s: int) -> None:
    """The deadline is in a half round or in a warm-up: the third round takes ten times as long."""

    def two_and(left_s: float | None) -> tuple[Measurement, float]:
        timer = Replay()

        def kernel() -> None:
            timer.clock += 100_000 if timer.log.count("round") < 2 else 1_000_000

        contexts = anew(timer, {"A": kernel, "B": kernel})
        deadline = Deadline(left_s, lambda: timer.spent_s)
        rounds = 2 if left_s is None else 9
        step = partial(timer.log.append, "round")
        return measure(contexts, rounds, COLD, step, deadline=deadline), timer.spent_s

    whole, took_s = two_and(None)
    cut, _ = two_and(took_s + left_s)
    assert (cut.rounds, cut.interrupted) == (2, False)
    assert cut.timings == whole.timings
    assert cut.timings["A"].by_round == (100_000.0, 100_000.0)


def test_a_budget_too_small_for_one_round_gives_no_time() -> None:
    timer = Replay()
    deadline = Deadline(0.5, lambda: timer.spent_s)
    into = measure(always(timer, {"A": timer.run("A", 200_000)}), 9, deadline=deadline)
    assert (into.rounds, into.timings) == (0, {})


def test_shares_of_a_deadline_are_equal() -> None:
    now = [0.0]
    whole = Deadline(12.0, lambda: now[0])
    assert whole.share(3).left_s == pytest.approx(4)
    now[0] = 10.0
    assert whole.share(2).left_s == pytest.approx(1)
    now[0] = 13.0
    assert whole.passed
    assert not Deadline().passed


CALM, HOT = Conditions(1980, 3201, 300, 40, 0x1), Conditions(1500, 3201, 700, 90, 0x20)


def test_a_throttled_round_is_repeated_and_forgotten() -> None:
    timer = Replay(states=[CALM, CALM, HOT, HOT, CALM, CALM])
    into = measured(timer, {"A": 400_000}, 2)
    assert (into.rounds, into.repeated, timer.log.count("round")) == (2, 1, 2)
    assert all(not state.throttled for state in into.conditions)


def test_rounds_of_a_card_that_is_always_throttled_are_kept() -> None:
    into = measured(Replay(states=[HOT]), {"A": 400_000}, 7)
    assert (into.rounds, into.repeated) == (7, 3)
    assert into.conditions[0].throttled == ("software thermal slowdown",)


def test_warming_up_ends_when_times_and_clock_are_steady() -> None:
    timer = Replay()
    calls = iter(range(10**6))

    def waking() -> None:
        timer.clock += max(1000, 3000 - 10 * next(calls))

    found = warm_up(timer.typed, {"A": waking}, Deadline())
    assert found.steady
    assert found.costs_us["A"] == pytest.approx(1000, rel=0.006)
    clocks = [Conditions(sm_mhz=mhz) for mhz in (*range(345, 1980, 100), 1980, 1980)]
    timer = Replay(states=clocks)
    assert warm_up(timer.typed, {"A": timer.run("A", 1000)}, Deadline()).steady
    assert timer.clock > 50_000 * len(clocks) * 0.9


def test_warming_up_ends_after_three_seconds_without_steady_times() -> None:
    timer = Replay()
    calls = iter(range(10**6))

    def restless() -> None:
        timer.clock += 1000 * (1 + next(calls))

    assert not warm_up(timer.typed, {"A": restless}, Deadline()).steady
    assert timer.clock < 3.5e6


def test_a_launch_longer_than_the_warm_up_may_be_steady() -> None:
    timer = Replay()
    assert warm_up(timer.typed, {"A": timer.run("A", 4e6)}, Deadline()).steady
    assert timer.log.count("A") == 2


def test_a_warm_up_cut_by_the_deadline_counts_as_steady() -> None:
    timer = Replay()
    assert warm_up(
        timer.typed, {"A": timer.run("A", 4e6)}, Deadline(1.0, lambda: timer.spent_s)
    ).steady


def test_a_kernel_that_is_short_only_when_warm_is_batched_when_warm() -> None:
    timer = Replay()
    cold = False

    def flush() -> None:
        nonlocal cold
        cold = True

    def kernel() -> None:
        nonlocal cold
        timer.clock += 25 if cold else 8
        cold = False

    timer.flush = flush  # type: ignore[method-assign]
    for method, batch, us in ((Method(), 1, 25), (Method(cold=False), 25, 8)):
        into = measure(always(timer, {"A": kernel}), 6, method)
        assert (into.timings["A"].batch, into.timings["A"].median_us) == (batch, us)


def test_a_remark_names_the_clock_that_moved() -> None:
    for moved, told in (
        (Conditions(1500, 3201, 300, 40, 0x1), "the SM clock moved between 1500 and 1980 MHz"),
        (Conditions(1980, 1600, 300, 40, 0x1), "the memory clock moved between 1600 and 3201 MHz"),
    ):
        into = measured(Replay(states=[CALM] * 12 + [moved]), {"A": 400_000}, 7)
        assert [text.partition(" from ")[0] for text in remarks(into, None)] == [told]


def test_an_interval_is_two_order_statistics() -> None:
    assert interval([5, 1, 9, 3, 7, 2, 8, 4, 6]) == (2, 8)
    assert interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert interval([1, 2, 3, 4, 5]) is None
    assert interval([]) is None
    assert interval(range(1, 22)) == (6, 16)  # a table of the binomial distribution: 97 %


def test_noise_is_the_interquartile_range() -> None:
    assert noise_pct([10, 10, 10]) is None
    assert noise_pct([8, 9, 10, 11, 12, 9, 10, 11]) == pytest.approx(20)
