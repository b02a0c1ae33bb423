"""Facts of a device: what a result says of it, what launch shapes depend on, and its state."""

from __future__ import annotations

from dataclasses import dataclass

#: Times between two CUDA events come in steps of this: every time measured on an H200 is a multiple
#: of it.
EVENT_TICK_US = 0.032


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a launch shape depends on."""

    sm_count: int
    threads_per_sm: int


#: An H200, which a plan is made for where there is no GPU.
DEFAULT_LIMITS = DeviceLimits(sm_count=132, threads_per_sm=2048)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a result must say of the machine it was made on; None is unknown.

    `peak_gb_s` is theory: twice the memory clock (two transfers a cycle, as the driver reports it)
    times the bus width. `host` is the machine's own name; where the device is the emulator, `cpu`
    is what it runs on, and `gxx` what g++ says of its version.
    """

    name: str
    cc: str | None = None
    sm_count: int | None = None
    threads_per_sm: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_clock_khz: int | None = None
    bus_bits: int | None = None
    peak_gb_s: float | None = None
    uuid: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    cuda: str | None = None
    nvcc: str | None = None
    cpu: str | None = None
    host: str | None = None
    gxx: str | None = None


def theoretical_gb_s(memory_clock_khz: int, bus_bits: int) -> float | None:
    """Peak bandwidth in GB/s, twice the clock times the width, from what the driver reports; None
    where it reports 0, as on some boards."""
    return 2 * memory_clock_khz * bus_bits / 8 / 1e6 or None


#: Event reasons that mean less than full speed against one's will, as nvml.h numbers them.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a GPU at a moment, or over a round; None is unknown."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None

    @property
    def throttled(self) -> tuple[str, ...]:
        """Why the GPU ran slower than it could, in words; empty if it did not."""
        return tuple(text for bit, text in _THROTTLES.items() if (self.reasons or 0) & bit)
