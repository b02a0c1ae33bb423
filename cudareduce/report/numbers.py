"""Formats numbers with units, rounded to their significant digits."""

from __future__ import annotations

from math import floor, log10

from cudareduce.machine import EVENT_TICK_US
from cudareduce.reduction.sizes import counted

DASH = "-"
#: The smallest uncertainty of a time in us: half a step of the event clock.
HALF_TICK_US = EVENT_TICK_US / 2


def decimals(half_width: float) -> int:
    """The number of digits after the point so that the last one has the magnitude of the
    uncertainty (above 0); negative if that digit is before the point."""
    return -floor(log10(half_width))


def measured_text(
    value: float | None, low: float | None, high: float | None, finest: float = 0.0
) -> str:
    """A value with half of its interval, rounded to the first digit of the interval: 34.82±.05.
    Without an interval, three significant digits. `finest` is the resolution of the measurement."""
    if value is None:
        return DASH
    if low is None or high is None:
        return plain_text(value)
    # at most three decimals, unless the value is too small for them
    least = abs(value) / 20 if 0 < abs(value) < 0.01 else 0.001
    half = max((high - low) / 2, finest, least)
    places = decimals(half)
    return _with_half(value, half, places)


def _with_half(value: float, half: float, places: int, sign: str = "") -> str:
    """A value and its uncertainty with the same number of decimals: 34.82±.05."""
    return f"{_rounded(value, places, sign)}±{_rounded(half, places).removeprefix('0')}"


def _rounded(value: float, places: int, sign: str = "") -> str:
    """A value rounded to `places` decimal places; a rounded 0 has no sign."""
    rounded = round(value, places) + 0.0
    return f"{rounded:{sign if rounded else ''}.{max(0, places)}f}"


def time_text(value: float | None, low: float | None, high: float | None) -> str:
    """A time in us, rounded to the precision of its interval, which is not shown."""
    if value is None:
        return DASH
    half = (high - low) / 2 if low is not None and high is not None else value * 1e-2
    half = max(half, HALF_TICK_US, value * 1e-4)
    return _rounded(value, min(3, decimals(half)))


def ratio_text(value: float | None) -> str:
    """A speed-up without an interval."""
    if value is None:
        return DASH
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def plain_text(value: float | None, digits: int = 3) -> str:
    """A number with `digits` significant digits, without an exponent."""
    if value is None:
        return DASH
    if value == 0:
        return "0"
    places = digits - 1 - floor(log10(abs(value)))
    return _rounded(value, min(places, 6))


def share_text(value: float | None, spread: float | None = None) -> str:
    """A percentage without `%`. `spread` is half of its interval as a fraction of the value."""
    if value is None:
        return DASH
    return _rounded(value, 1 if spread is None else min(1, decimals(max(value * spread, 1e-3))))


def rate_text(value: float | None) -> str:
    """A rate in GB/s with three significant digits; without decimals from 100 GB/s."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def bytes_text(size: float) -> str:
    """A number of bytes: 4.20 MB; 1 MB = 10^6 bytes."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{plain_text(size / scale)} {unit}"
    return f"{plain_text(size)} bytes"


def memory_text(nbytes: int) -> str:
    """A number of bytes in the largest unit that needs no decimals: 64 MiB, 64 MB, 17 bytes."""
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "GB": 10**9, "MB": 10**6, "kB": 10**3}
    whole = [(nbytes // scale, unit) for unit, scale in units.items() if nbytes % scale == 0]
    if not nbytes or not whole:
        return counted(nbytes, "byte")
    count, unit = min(whole)
    return f"{count} {unit}"


def error_text(value: float | None) -> str:
    """An error or error bound with two significant digits; an exact 0 is shown as 0."""
    if value is None:
        return DASH
    return "0" if value == 0 else f"{value:.2g}"


def size_text(n: int) -> str:
    """An element count, with its power of two if it is one: 1 024 (2^10)."""
    grouped = f"{n:,}".replace(",", " ")
    if n >= 1024 and n & (n - 1) == 0:
        return f"{grouped} (2^{n.bit_length() - 1})"
    return grouped


def short_size(n: int) -> str:
    """An element count as the command line takes it: 2^20, 1000."""
    return f"2^{n.bit_length() - 1}" if n >= 1024 and n & (n - 1) == 0 else str(n)


def change_text(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """The change from old to new in per cent, with its sign and half of its interval: +7.0±.3%.
    A change that rounds to 0 has no sign."""
    value = 100 * (ratio - 1)
    if low is None or high is None:
        return f"{_rounded(value, 1, '+')}%"
    half = max(100 * (high - low) / 2, 0.01)
    return f"{_with_half(value, half, max(0, decimals(half)), '+')}%"


def sms_text(sms: int) -> str:
    """1 SM, 2 SMs."""
    return counted(sms, "SM")
