"""Whether what is timed is a reduction: every timed launch is judged, off the clock.

A kernel can tell that it is timed: by the number of launches, by what its output holds, by an input
that it has met before. So before each timed launch its output and partials are overwritten and the
input changes, and after it the answer is looked at. All of that takes place before the read that
displaces the cache, or behind the last event.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Generic, Protocol, TypeVar

from cudareduce.backend import Buffer
from cudareduce.launch.plan import Plan
from cudareduce.problem.inputs import Array
from cudareduce.timing.timer import DeviceTimer
from cudareduce.verify.timed_input import TimedInput
from cudareduce.verify.verdict import RIGHT, WROTE_INPUT, Verdict, worse

Key = TypeVar("Key", bound=Hashable)

#: What memory holds before a launch: NaN and -1; numbers; or what the launch before has left, where
#: that is the answer to another input.
_POISONS = (0xFF, 0x01, None)
#: Answers of up to so many bytes are brought to the host after each launch; of more a hash is.
_SMALL_BYTES = 4096


class Watched(Protocol):
    """A call on its buffers: a kernel's launches, or a library's."""

    @property
    def plan(self) -> Plan:
        """What its answers are judged by."""

    @property
    def out(self) -> Buffer | None:
        """Where it leaves answers, None if elsewhere."""

    @property
    def own(self) -> Sequence[Buffer]:
        """All its buffers but the input."""

    def reset(self) -> None:
        """Overwrite all that is its own."""

    def poison(self, byte: int) -> None:
        """Overwrite what an earlier launch may have left."""

    def answers(self) -> Array:
        """Wait, and bring the answers to the host."""


class FirstPass(Protocol):
    """What a figure of the first launch alone leaves out around it."""

    def run_before(self) -> None:
        """Enqueue what comes in front."""

    def run_rest(self) -> None:
        """Enqueue what comes behind."""


class Memory(Generic[Key]):
    """The buffers of all that is timed in one context, but for the input."""

    def __init__(self, bounds: Mapping[Key, Watched], timer: DeviceTimer) -> None:
        self._bounds = bounds
        self._owners = [key for key, bound in bounds.items() for _ in bound.own]
        self._digests = timer.digests([buffer for bound in bounds.values() for buffer in bound.own])

    def name(self, key: Key) -> str:
        """Whose buffers these are, in words."""
        return self._bounds[key].plan.kernel.id

    def held(self) -> list[tuple[Key, int]]:
        """A hash of what each buffer holds, with whose it is."""
        return list(zip(self._owners, self._digests(), strict=True))

    def mended(self, before: list[tuple[Key, int]], by: Key) -> Key | None:
        """Whose buffers one has changed that are not its own, if any; they are reset."""
        now = zip(before, self.held(), strict=True)
        changed = {old[0]: None for old, new in now if old != new and old[0] != by}
        for key in changed:
            self._bounds[key].reset()
        return next(iter(changed), None)


class Witness(Generic[Key]):
    """Watches the timed launches of one entrant in one context; `verdict` is on all of them.

    `undecided`: some answers could not be judged, since the bound is too wide. With `keep_cache`
    the input changes only between passes, for times from a warm cache; `first` is what to run
    around a first pass, where that alone is timed.
    """

    def __init__(
        self,
        key: Key,
        bound: Watched,
        given: TimedInput,
        memory: Memory[Key],
        timer: DeviceTimer,
        *,
        keep_cache: bool,
        first: FirstPass | None = None,
    ) -> None:
        self.verdict, self.undecided = RIGHT, False
        self._key, self._bound, self._given, self._memory = key, bound, given, memory
        self._first, self._keep_cache = first, keep_cache
        # First passes of a warm batch add up in an output that only the first of them finds set.
        sets = bound.plan.preset is not None or bool(bound.plan.zeroed)
        self._blind = first is not None and keep_cache and sets
        leaves = not keep_cache and given.data.tells(bound.plan)
        self._poisons = _POISONS if leaves else _POISONS[:-1]
        self._random = Random()  # no seed: a kernel must not know it
        self._before: list[tuple[Key, int]] = []
        out = bound.out
        few = out is None or out.nbytes <= _SMALL_BYTES
        self._digest = None if few or out is None else timer.digests([out])
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
        if self._bound.plan.kernel.in_place:
            self._given.renew()
        if self._first is not None:
            self._first.run_before()

    def after(self) -> None:
        self._launches += 1
        if self._first is not None:
            self._first.run_rest()
        if self._blind:
            return
        number = self._given.number
        seen = number, self._digest()[0] if self._digest else self._bound.answers().tobytes()
        if seen in self._seen:
            return
        self._seen.add(seen)
        answers = self._bound.answers()  # once more, which is rare
        found = self._given.data.judged(self._bound.plan, answers, number)
        self.undecided = self.undecided or found is None
        if found is not None and (found.outcome == "fail" or number == 0):
            self._add(found)  # the errors that are told are those on the input asked for

    def end(self) -> None:
        if not self._given.restored() and not self._bound.plan.kernel.in_place:
            self.verdict = RIGHT  # whatever was wrong came of this
            self._add(Verdict("fail", WROTE_INPUT))
        other = self._memory.mended(self._before, self._key)
        if other is not None:
            self._add(Verdict("fail", f"it wrote to memory of {self._memory.name(other)}"))

    def _add(self, found: Verdict) -> None:
        if found.outcome == "fail":
            found = replace(found, reason=f"timed launch {self._launches}: {found.reason}")
        self.verdict = worse(self.verdict, found)
