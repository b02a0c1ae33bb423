"""How many different answers launches on one input give."""

from __future__ import annotations

from cudareduce.launch.bound import Bound
from cudareduce.verify.inputs import repeats
from cudareduce.verify.timed_input import TimedInput


def distinct_answers(bound: Bound, cost_us: float, given: TimedInput) -> tuple[int, int]:
    """How many different answers some launches on the input that is `given` give, bit by bit, and
    how many they were; one takes about `cost_us`."""
    launches = repeats(cost_us)
    seen = set()
    for _ in range(launches):
        if bound.plan.kernel.in_place:
            given.renew()
        bound.poison()
        bound.run()
        seen.add(bound.answers().tobytes())
    return len(seen), launches
