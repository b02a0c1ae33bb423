"""What a reader must know beside the numbers, in words that say what to do."""

from __future__ import annotations

from collections.abc import Iterator

from cudareduce.intervals import MIN_ROUNDS
from cudareduce.machine.device import EVENT_TICK_US
from cudareduce.problem.sizes import counted
from cudareduce.timing.rounds import Measurement, Timing

#: Half an interval, as a share of its time, above which a reader should look for the cause; 0.1 to
#: 1 % is usual on an idle H200.
_WIDE = 0.03
#: A spread of three ticks is the event clock's own.
_CLOCK_TICKS_US = 3 * EVENT_TICK_US
#: Share by which the clock may differ between rounds; it stays within one step on a steady H200.
_CLOCK_SHARE = 0.02


def remarks(measured: Measurement, max_time_s: float | None, others: int = 0) -> Iterator[str]:
    """Everything worth saying about how a measurement went; nothing if it went well. `max_time_s`
    is the limit of the run, `others` how many other processes used the GPU."""
    yield from _cut(measured, max_time_s)
    if not measured.steady:
        yield (
            "times had not come to rest after 3 s of warm-up: something else uses the GPU, or its "
            "clock wanders; see whether nvidia-smi shows other processes"
        )
    yield from _throttled(measured)
    yield from _clocks(measured)
    widest = max((_half_interval(timing) for timing in measured.timings.values()), default=0.0)
    if others:
        worst = max((_noise(timing) for timing in measured.timings.values()), default=0.0)
        plural = "es" if others > 1 else ""
        yield (
            f"{others} other process{plural} used this GPU; noise reaches {worst:.1f} %: wait "
            "until it is free, or take another one with --device"
        )
    elif widest > _WIDE:
        yield (
            f"intervals of up to ±{100 * widest:.0f} %: look for what else uses the GPU; more "
            "--rounds narrow them"
        )


def _cut(measured: Measurement, max_time_s: float | None) -> Iterator[str]:
    if max_time_s is None or measured.rounds == measured.planned:
        return
    limit = f"--max-time {max_time_s:g} s"
    if not measured.rounds:
        yield f"{limit} left no time for one round, so nothing was timed: give it more"
        return
    few = ", too few for an interval" if measured.rounds < MIN_ROUNDS else ""
    yield f"{limit} cut {measured.planned} rounds to {measured.rounds}{few}"


def _throttled(measured: Measurement) -> Iterator[str]:
    slow = [c.throttled for c in measured.conditions if c.throttled]
    if slow:
        why = " and ".join(sorted({word for words in slow for word in words}))
        yield (
            f"the GPU was throttled ({why}) in {len(slow)} of {measured.rounds} rounds, after "
            f"{measured.repeated} had been repeated: these are times of a throttled card; cool it "
            "or raise its power limit"
        )
    elif measured.repeated:
        rounds = counted(measured.repeated, "throttled round was", "throttled rounds were")
        yield f"{rounds} repeated"


def _clocks(measured: Measurement) -> Iterator[str]:
    """Both clocks are to stand still; neither is known without NVML."""
    known = {
        ("SM", "--lock-gpu-clocks"): [c.sm_mhz for c in measured.conditions],
        ("memory", "--lock-memory-clocks"): [c.memory_mhz for c in measured.conditions],
    }
    for (name, lock), read in known.items():
        clocks = [mhz for mhz in read if mhz is not None]
        if clocks and max(clocks) > min(clocks) * (1 + _CLOCK_SHARE):
            yield (
                f"the {name} clock moved between {min(clocks):.0f} and {max(clocks):.0f} MHz from "
                "round to round: differences smaller than that are not the kernels'; lock it with "
                f"nvidia-smi {lock} if you may"
            )


def _noise(timing: Timing) -> float:
    """Noise in per cent; none where the spread is that of the event clock itself."""
    pct = timing.noise_pct or 0.0
    return pct if pct / 100 * timing.median_us > _CLOCK_TICKS_US else 0.0


def _half_interval(timing: Timing) -> float:
    """As a share of the time; none where that is what the event clock resolves."""
    low, high = timing.interval_us or (0.0, 0.0)
    half_us = (high - low) / 2
    return half_us / timing.median_us if half_us > _CLOCK_TICKS_US else 0.0
