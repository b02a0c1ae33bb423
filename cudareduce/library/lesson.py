"""What a kernel teaches: its own words, and its diff to the step before."""

from __future__ import annotations

import difflib
from itertools import takewhile

from cudareduce.library.kernel import Kernel

_HEADER_ENDS, _COMMENT = "+++*/\n", "//"


def diff(before: Kernel, kernel: Kernel) -> str:
    """The unified diff of their files."""
    lines = difflib.unified_diff(
        before.text.splitlines(keepends=True), kernel.text.splitlines(keepends=True),
        before.path.name, kernel.path.name,
    )  # fmt: skip
    return "".join(lines)


def words(kernel: Kernel) -> str:
    """The comment that follows its header, as one paragraph; empty where there is none."""
    lines = kernel.text.partition(_HEADER_ENDS)[2].splitlines()
    comment = takewhile(lambda line: line.startswith(_COMMENT), lines)
    return " ".join(line.removeprefix(_COMMENT).strip() for line in comment)
