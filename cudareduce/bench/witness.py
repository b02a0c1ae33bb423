"""Whether what is timed is a reduction: every timed launch is judged, off the clock.

A kernel can tell that it is timed: by the number of launches, by what its output holds, by an input
that it has met before. So before each timed launch its output and partials are overwritten and the
input changes, and after it the answer is looked at. All of that takes place before the read that
displaces the cache, or behind the last event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from cudareduce.bench.timed_input import WROTE_INPUT, TimedInput
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.verdict import RIGHT, Verdict, worse

#: What memory holds before a launch: NaN and -1; numbers; or what the launch before has left, where
#: that is the answer to another input.
_POISONS = (0xFF, 0x01, None)
#: Answers of up to so many bytes are brought to the host after each launch; of more a hash is.
_SMALL_BYTES = 4096


class Memory:
    """The buffers of all cases in one context, but for the input."""

    def __init__(self, bounds: Mapping[Case, Bound], timer: DeviceTimer) -> None:
        self._bounds = bounds
        self._owners = [case for case, bound in bounds.items() for _ in bound.own]
        self._digests = timer.digests([buffer for bound in bounds.values() for buffer in bound.own])

    def held(self) -> list[tuple[Case, int]]:
        """A hash of what each buffer holds, with whose it is."""
        return list(zip(self._owners, self._digests(), strict=True))

    def mended(self, before: list[tuple[Case, int]], by: Case) -> Case | None:
        """Whose buffers a case has changed that are not its own, if any; they are reset."""
        now = zip(before, self.held(), strict=True)
        changed = {old[0]: None for old, new in now if old != new and old[0] != by}
        for case in changed:
            self._bounds[case].reset()
        return next(iter(changed), None)


class Witness:
    """Watches the timed launches of one case in one context; `verdict` is on all of them.

    `undecided`: some answers could not be judged, since the bound is too wide. With `keep_cache`
    the input changes only between passes, for times from a warm cache.
    """

    def __init__(
        self,
        case: Case,
        bound: Bound,
        given: TimedInput,
        memory: Memory,
        timer: DeviceTimer,
        *,
        first_only: bool,
        keep_cache: bool,
    ) -> None:
        self.verdict, self.undecided = RIGHT, False
        self._case, self._bound, self._given, self._memory = case, bound, given, memory
        self._first_only, self._keep_cache = first_only, keep_cache
        # First passes of a warm batch add up in an output that only the first of them finds set.
        self._blind = first_only and keep_cache and bound.plan.preset is not None
        leaves = not keep_cache and given.data.tells(bound.plan)
        self._poisons = _POISONS if leaves else _POISONS[:-1]
        self._random = Random()  # no seed: a kernel must not know it
        self._before: list[tuple[Case, int]] = []
        self._digest = timer.digests([bound.out])
        self._seen: set[tuple[int, bytes | int]] = set()
        self._launches = 0

    def begin(self) -> None:
        self._given.restored()  # whoever ran unwatched may have changed it
        self._given.turn_to(self._random.randrange(2))
        self._before = self._memory.held()

    def before(self) -> None:
        poison = self._random.choice(self._poisons)
        if poison is not None:
            self._bound.poison(poison)
        if not self._keep_cache:
            number = 1 - self._given.number if poison is None else self._random.randrange(2)
            self._given.turn_to(number)
        if self._first_only:
            self._bound.run_before()

    def after(self) -> None:
        self._launches += 1
        if self._first_only:
            self._bound.run_rest()
        if self._blind:
            return
        small = self._bound.out.nbytes <= _SMALL_BYTES
        answers = self._bound.answers() if small else None
        bits = self._digest()[0] if answers is None else answers.tobytes()
        number = self._given.number
        if (number, bits) in self._seen:
            return
        self._seen.add((number, bits))
        answers = self._bound.answers() if answers is None else answers
        found = self._given.data.judged(self._bound.plan, answers, number)
        self.undecided = self.undecided or found is None
        if found is not None and (found.outcome == "fail" or number == 0):
            self._add(found)  # the errors that are told are those on the input asked for

    def end(self) -> None:
        if not self._given.restored():
            self._add(Verdict("fail", WROTE_INPUT))
        other = self._memory.mended(self._before, self._case)
        if other is not None:
            self._add(Verdict("fail", f"it wrote to memory of {other.kernel.id}"))

    def _add(self, found: Verdict) -> None:
        if found.outcome == "fail":
            found = replace(found, reason=f"timed launch {self._launches}: {found.reason}")
        self.verdict = worse(self.verdict, found)
