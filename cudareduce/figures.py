"""Numbers as text: units, and no more digits than an interval carries."""

from __future__ import annotations

from math import floor, log10

DASH = "-"
#: Times between two events come in steps of this size (measured on an H200).
_EVENT_STEP_US = 0.032


def decimals(half_width: float, value: float) -> int:
    """Digits after the point so that the last one is of the size of the uncertainty."""
    if half_width <= 0:
        half_width = abs(value) * 1e-3 or 1.0
    return min(3, max(0, -floor(log10(half_width))))


def time_text(value: float | None, low: float | None, high: float | None) -> str:
    """Microseconds; without an interval three significant digits."""
    if value is None:
        return DASH
    half = (high - low) / 2 if low is not None and high is not None else value * 1e-2
    half = max(half, _EVENT_STEP_US / 2, value * 1e-4)
    return f"{value:.{decimals(half, value)}f}"


def spread_text(value: float | None, low: float | None, high: float | None) -> str:
    """Half the interval in per cent of the value."""
    if not value or low is None or high is None:
        return DASH
    return f"{max(50 * (high - low) / value, 0.01):.2f}"


def share_text(value: float | None) -> str:
    """Per cent."""
    return DASH if value is None else f"{value:.1f}"


def rate_text(value: float | None) -> str:
    """GB/s: three or four digits."""
    if value is None:
        return DASH
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def ratio_text(value: float | None) -> str:
    """A speed-up."""
    if value is None:
        return DASH
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def error_text(value: float | None) -> str:
    """An error or a bound; exact is 0."""
    if value is None:
        return DASH
    return "0" if value == 0 else f"{value:.2g}"


def size_text(n: int) -> str:
    """An element count, with its power of two where it is one."""
    grouped = f"{n:,}".replace(",", " ")
    if n >= 1024 and n & (n - 1) == 0:
        return f"{grouped} (2^{n.bit_length() - 1})"
    return grouped


def short_size(n: int) -> str:
    """An element count as people type it."""
    return f"2^{n.bit_length() - 1}" if n >= 1024 and n & (n - 1) == 0 else str(n)


def change_text(ratio: float | None) -> str:
    """A ratio as a signed change in per cent."""
    return DASH if ratio is None else f"{100 * (ratio - 1):+.2f}%"
