"""Parses element counts: 33554432, 33 554 432, 2^25, 32Mi, 1e6, comma-separated lists, and ranges
A..B of sizes that double."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from itertools import pairwise

from cudareduce.errors import UsageError

_NUMBER = re.compile(
    r"(?P<base>\d+)\^(?P<power>\d+)(?P<plus>[+-]\d+)?"
    r"|(?P<scaled>\d+)(?P<unit>Ki|Mi|Gi|Ti|k|M|G|T)?"
    r"|(?P<whole>\d+)(?:\.(?P<part>\d+))?e(?P<exponent>\d+)",
    re.ASCII,
)
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 10**3, "M": 10**6, "G": 10**9,
          "T": 10**12}  # fmt: skip
#: Larger than any memory, so a larger size must be a typing error.
LARGEST = 2**48
#: Limit of characters in a size, since long powers would take long to compute.
_LONGEST = 40
#: A number with groups of digits separated by plain, no-break, figure, thin or narrow spaces.
_SPACED = re.compile("\\d{1,3}(?:[ \u00a0\u2007\u2009\u202f]\\d{3})+", re.ASCII)
#: Digit groups with commas: one number or a list of sizes.
_WITH_COMMAS = re.compile(r"\d{1,3}(?:,\d{3}){1,4}", re.ASCII)
_FORMS = "33554432, 2^25, 32Mi or 1e6"


def parse_size(text: str) -> int:
    """A whole number of elements from 0 to 2^48. Raises UsageError."""
    word, shown = text.strip(), reprlib.repr(text)
    if _SPACED.fullmatch(word):
        word = "".join(word.split())
    strange = next((letter for letter in word if not letter.isascii()), None)
    if strange:
        raise UsageError(
            f"{shown} has {strange!r} in it: write a size in plain digits, as {_FORMS}"
        )
    if "**" in word:
        raise UsageError(f"{shown} is not a size: write powers with ^, as 2^25")
    if len(word) > _LONGEST:
        raise UsageError(f"{shown} is too long for a size: at most 2^48 elements")
    match = _NUMBER.fullmatch(word.replace("_", ""))
    if match is None:
        raise UsageError(f"{shown} is not a size: write a whole number from 0, as {_FORMS}")
    value = _value(match)
    if value is None:
        raise UsageError(f"{shown} is not a whole number of elements")
    if not 0 <= value <= LARGEST:
        raise UsageError(f"{shown} is out of range: between 0 and 2^48 elements")
    return value


def _value(match: re.Match[str]) -> int | None:
    """The value of a parsed size, None if it is not a whole number. Values beyond the range may be
    inexact."""
    if match["base"]:
        power = min(int(match["power"]), 64)  # larger powers of 2 and more are out of range anyway
        return int(pow(int(match["base"]), power)) + int(match["plus"] or 0)
    if match["scaled"]:
        return int(match["scaled"]) * _UNITS.get(match["unit"] or "", 1)
    part = match["part"] or ""
    digits = int(match["whole"] + part) * 10 ** min(int(match["exponent"]), _LONGEST)
    value, rest = divmod(digits, 10 ** len(part))
    return None if rest else value


def parse_sizes(text: str) -> list[int]:
    """The sizes in a comma-separated list of sizes and ranges A..B, without duplicates. Raises
    UsageError for invalid sizes, an empty range, and text that may be one number or a list."""
    if _WITH_COMMAS.fullmatch(text.strip()) and not _surely_a_list(text):
        parts = text.strip().split(",")
        raise UsageError(
            f"{text!r} can be read in two ways: did you mean {''.join(parts)} or the list "
            f"{', '.join(parts)}?"
        )
    return list(dict.fromkeys(size for part in text.split(",") for size in parse_range(part)))


def parse_range(text: str) -> list[int]:
    """The sizes of a range A..B, which double from A up to B, or a single size. Raises
    UsageError."""
    first, dots, last = text.partition("..")
    if not dots:
        return [parse_size(text)]
    low, high = parse_size(first), parse_size(last)
    if not 0 < low <= high:
        raise UsageError(f"the range {reprlib.repr(text)} is empty: write SMALL..LARGE, from 1 up")
    return [low << k for k in range((high // low).bit_length())]


def counted(count: int, one: str, more: str | None = None) -> str:
    """A count with its noun in singular or plural: 1 element, 2 elements."""
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def size_list(sizes: Sequence[int]) -> str:
    """A list of sizes for a sentence: 1, 2 or 3."""
    *most, last = map(str, sizes)
    return f"{', '.join(most)} or {last}" if most else last


def _surely_a_list(text: str) -> bool:
    """True if comma-separated groups of three digits must be a list and not one number: they are
    increasing and round, such as 128,256,512 or 100,200."""
    values = [int(part) for part in text.split(",")]
    rising = all(a < b for a, b in pairwise(values))
    return rising and all(v % 10 == 0 or v & (v - 1) == 0 for v in values)
