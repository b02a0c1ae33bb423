"""The precondition of a kernel: what its input must satisfy besides operator and type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cudareduce.reduction.sizes import size_list

#: How a minimum or maximum treats NaN: propagated as in NumPy, dropped as by fmax in C, or not
#: allowed in the input ("none").
Nan = Literal["propagate", "drop", "none"]

#: Whether elements must be above 0 ("positive"), and also not subnormal ("normal").
Positive = Literal["", "positive", "normal"]

ALIGNED = "its input is aligned to 16 bytes"


@dataclass(frozen=True, slots=True)
class Condition:
    """The precondition under which a kernel's result is right.

    The number of elements n is a multiple of `multiple`, at most `most`, and one of `sizes`; 0 and
    () mean any. There are at most `most_rows` rows. The input is `aligned` to 16 bytes. All
    elements are `positive`, at least one is `finite`, and none is infinite (`bounded`). All partial
    sums are exact in the type `within`. With `any`, an indexed operator may return the index of any
    of several equal extremes.
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
    of_file: bool = False  # `sizes` are fixed by an external file and cannot be varied

    @property
    def texts(self) -> tuple[str, ...]:
        """Each part of the condition as a text that completes "right if"."""
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

    def nearest_sizes(self, n: int) -> tuple[int, ...]:
        """The multiples of `multiple` just below and above `n`, or only `n` if it is one."""
        below = n // self.multiple * self.multiple
        return (n,) if below == n else (below, below + self.multiple)

    def nearest_rows(self, rows: int) -> int:
        """The largest allowed number of rows that is at most `rows`."""
        return min(rows, self.most_rows or rows)

    def why_not(self, n: int, rows: int = 0) -> str | None:
        """The reason why `rows` rows of `n` elements violate the condition, as a text that follows
        a kernel's name; None if they do not. 0 rows means that the number is unknown."""
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
