"""The entry point of a kernel file: where it is, and whether it takes what it is called with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cudareduce.cuda_source import parse_cuda, without_comments
from cudareduce.errors import UsageError

#: Shared memory that a launch gives its size, outside of comments that have a line of their own.
EXTERN_SHARED = re.compile(
    r"^[^/\n]*(?P<words>\bextern\s+(?:[\w:]+\s+)*?__shared__\b)", re.MULTILINE
)


def definition(text: str, name: str, head: str) -> int | None:
    """Where a function begins whose definition begins with `head`; None if there is none."""
    for found in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        begins = text.rfind(head, 0, found.start())
        ended = max(text.rfind(end, 0, found.start()) for end in ";{")
        if begins > ended:
            return begins
    return None


def check_parameters(
    path: Path, text: str, header: Mapping[str, Any], inputs: Sequence[str] = ("in",)
) -> None:
    """A UsageError where the entry point takes another number of parameters than the header has it
    called with, which has these `inputs`; none where macros may be among them."""
    found = re.search(
        rf"__global__ void[^;{{}}]*?\b{re.escape(path.stem)}\s*\((?P<all>[^()]*)\)", text
    )
    if found is None:
        return
    taken = [words.split() for words in without_comments(parse_cuda(found["all"])).split(",")]
    if not all(len(words) > 1 for words in taken):
        return
    called = [*inputs, "out", "n"]
    called += ["rows"] if header["scope"] in ("rows", "warp") else []
    called += ["partials", "counter"] if header["finish"] == "last_block" else []
    called += ["workspace"] if "workspace" in header else []
    if len(taken) != len(called):
        line = text.count("\n", 0, found.start("all")) + 1
        raise UsageError(
            f"{path}:{line}: {path.stem} takes {len(taken)} parameters, but with scope = "
            f'"{header["scope"]}" and finish = "{header["finish"]}" it is called with '
            f"{len(called)}: {', '.join(called)}; give it those, or the header other words"
        )
