"""Properties of a device: those in result files, those that launch shapes depend on, its state."""

from __future__ import annotations

from dataclasses import dataclass

#: The resolution of times between two CUDA events: all times measured on an H200 are multiples.
EVENT_TICK_US = 0.032


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The properties of a device that launch shapes depend on."""

    sm_count: int
    threads_per_sm: int


#: The limits of an H200, used where there is no GPU.
DEFAULT_LIMITS = DeviceLimits(sm_count=132, threads_per_sm=2048)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device as recorded in result files, with the fields of `schema.DEVICE_FIELDS`; None is
    unknown.

    `peak_gb_s` is the theoretical bandwidth: twice the memory clock (two transfers per cycle) times
    the bus width. `host` is the machine's host name. On the emulator, `cpu` is the processor model
    and `gxx` the first line of g++ --version.
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
    """The theoretical bandwidth in GB/s, from the clock and bus width that the driver reports; None
    if it reports 0, as on some boards."""
    return 2 * memory_clock_khz * bus_bits / 8 / 1e6 or None


#: NVML's clock event reasons that are throttling, by the bits in nvml.h.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a GPU at one moment, or over a round; None is unknown. `reasons` are the bits of
    NVML's clock event reasons."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None

    @property
    def throttled(self) -> tuple[str, ...]:
        """The reasons why the GPU throttled its clocks, as texts; empty if it did not."""
        return tuple(text for bit, text in _THROTTLES.items() if (self.reasons or 0) & bit)
