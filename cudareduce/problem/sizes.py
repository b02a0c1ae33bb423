"""Sizes as people write them: 33554432, 2^25, 32Mi, 1e6, lists with commas, ranges that double."""

from __future__ import annotations

import re

from cudareduce.errors import UsageError

_NUMBER = re.compile(
    r"(?P<base>\d+)\^(?P<power>\d+)(?P<plus>[+-]\d+)?"
    r"|(?P<scaled>\d+)(?P<unit>Ki|Mi|Gi|Ti|k|M|G|T)?"
    r"|(?P<mantissa>\d+(?:\.\d+)?)e(?P<exponent>\d+)"
)
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9,
          "T": 10**12}  # fmt: skip
#: No allocation can hold more bytes than this; a larger size is a slip of the pen.
LARGEST = 2**48


def parse_size(text: str) -> int:
    """One size: a whole number of elements from 0 to 2^48; anything else is a UsageError."""
    match = _NUMBER.fullmatch(text.strip().replace("_", ""))
    if match is None:
        raise UsageError(
            f"{text!r} is not a size: write a whole number from 0, as 33554432, 2^25, 32Mi or 1e6"
        )
    if match["base"]:
        if int(match["power"]) > 64:
            raise UsageError(f"{text!r} is too large: at most 2^48 elements")
        value = int(pow(int(match["base"]), int(match["power"]))) + int(match["plus"] or 0)
    elif match["scaled"]:
        value = int(match["scaled"]) * _UNITS.get(match["unit"] or "", 1)
    else:
        exact = float(match["mantissa"]) * 10.0 ** min(int(match["exponent"]), 300)
        if exact != int(exact):
            raise UsageError(f"{text!r} is not a whole number of elements")
        value = int(exact)
    if not 0 <= value <= LARGEST:
        raise UsageError(f"{text!r} is out of range: between 0 and 2^48 elements")
    return value


def parse_sizes(text: str) -> list[int]:
    """Sizes with commas between them, each once, in the order given; A..B doubles from A up to B.
    An empty range, and what is no size, is a UsageError."""
    sizes: dict[int, None] = {}
    for part in text.split(","):
        first, dots, last = part.partition("..")
        if not dots:
            sizes[parse_size(part)] = None
            continue
        low, high = parse_size(first), parse_size(last)
        if not 0 < low <= high:
            raise UsageError(f"the range {part!r} is empty: write SMALL..LARGE, from 1 up")
        while low <= high:
            sizes[low] = None
            low *= 2
    return list(sizes)
