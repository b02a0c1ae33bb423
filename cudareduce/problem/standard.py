"""Which C++ a text is written in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cudareduce.problem.parsing import parsed, without_comments

#: What nvcc compiles kernels with, for a GPU that runs them and for the gate that has none.
NVCC_FLAGS = ("-std=c++17", "-O3")
#: What texts in C++20 have, and no others: concepts, and functions whose parameters are `auto`,
#: which of the older standard only lambdas may be.
_NEWER = re.compile(
    r"\bconcept\s+\w+\s*=|\brequires\b|#[ \t]*include[ \t]*<concepts>|\bconsteval\b|\bconstinit\b"
    r"|\b(?!(?:for|if|while|switch|catch)\b)\w+[ \t]*\((?:[^()]*,)?\s*(?:const\s+)?auto\b[\s&*]*\w+"
)


@lru_cache(maxsize=64)
def standard_of(code: str) -> str:
    """The compiler's option for the standard that a text needs."""
    newer = _NEWER.search(code) and _NEWER.search(without_comments(parsed(code)))
    return "-std=c++20" if newer else "-std=c++17"


def in_standard(flags: Sequence[str], code: str) -> list[str]:
    """Options of a compiler, with the standard that a text needs for their own."""
    return [standard_of(code), *(flag for flag in flags if not flag.startswith("-std="))]
