"""On what condition a kernel is right: what it asks of its input beyond operator and type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cudareduce.reduction.sizes import size_list

#: What becomes of a NaN in a minimum or maximum: it wins, as in NumPy; it is dropped, as C's fmax
#: and IEEE 754's maximumNumber do it; or there must be none.
Nan = Literal["propagate", "drop", "none"]

#: Whether elements must be above 0, and whether none of them may be subnormal besides.
Positive = Literal["", "positive", "normal"]

ALIGNED = "its input is aligned to 16 bytes"


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold of an input for a kernel to be right.

    `multiple` divides its elements, which are one of `sizes` where these are given; it is `aligned`
    to 16 bytes; all elements are `positive`; one of them is `finite`; there are at most `most` of
    them, and none is infinite (`bounded`); there are at most `most_rows` rows. No sum of them
    leaves a type (`within`), or is rounded in it. The index of an extreme that occurs several times
    may be `any` of its indices.
    """

    multiple: int = 1
    sizes: tuple[int, ...] = ()
    aligned: bool = False
    positive: Positive = ""
    finite: bool = False
    nan: Nan = "propagate"
    most: int = 0
    bounded: bool = False
    most_rows: int = 0
    within: str = ""
    any: bool = False
    of_file: bool = False  # the sizes are those in an external file, which cannot be varied

    @property
    def texts(self) -> tuple[str, ...]:
        """Its parts in words that follow `right if`."""
        parts = {
            f"n is a multiple of {self.multiple}": self.multiple > 1 and not self.sizes,
            f"n is {size_list(self.sizes or (0,))}": bool(self.sizes) and not self.of_file,
            f"n = {size_list(self.sizes or (0,))}, the size in the file": self.of_file,
            ALIGNED: self.aligned,
            "its input is positive": self.positive == "positive",
            "its input is positive and not subnormal": self.positive == "normal",
            "one of its elements is finite": self.finite,
            "a NaN may be dropped": self.nan == "drop",
            "none of its elements is NaN": self.nan == "none",
            "none of its elements is infinite": self.bounded,
            "of equal extremes any will do": self.any,
            f"it has at most {self.most} elements": self.most > 0,
            f"it has at most {self.most_rows} rows": self.most_rows > 0,
            f"its sums fit {self.within}": "int" in self.within,
            f"nothing is lost by rounding to {self.within}": "float" in self.within,
        }
        return tuple(text for text, holds in parts.items() if holds)

    def near(self, n: int) -> tuple[int, ...]:
        """The multiples next to `n`, on either side; `n` itself where it is one."""
        below = n // self.multiple * self.multiple
        return (n,) if below == n else (below, below + self.multiple)

    def near_rows(self, rows: int) -> int:
        """The nearest number of rows for which it holds."""
        return min(rows, self.most_rows or rows)

    def why_not(self, n: int, rows: int = 0) -> str | None:
        """Why it does not hold for `n` elements in each of these rows, in words that follow a
        kernel's name; None if it does. No rows are those that nobody has counted."""
        if self.sizes and n not in self.sizes:
            return f"is right if n is {size_list(self.sizes)}, not {n}"
        if n > (self.most or n):
            return f"is right if it has at most {self.most} elements, not {n}"
        if n % self.multiple:
            return f"is right if n is a multiple of {self.multiple}, not {n}"
        if rows > (self.most_rows or rows):
            return f"is right if it has at most {self.most_rows} rows, not {rows}"
        return None


ANY_INPUT = Condition()
