"""Several result files at once, as a shell's pattern names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.progress import say
from cudareduce.results.record import Run
from cudareduce.results.store import read_json, run_of


def runs_of(paths: Sequence[Path]) -> dict[Path, Run]:
    """The runs of these files. Of several, those that hold no records, such as what `reveal` and
    `selftest` store, are left out, and that is said; none at all, and one that is damaged, is a
    UsageError."""
    found, others = {}, []
    for path in paths:
        data = read_json(path)
        if len(paths) > 1 and isinstance(data, dict) and not data.get("records"):
            others.append(path)
        else:
            found[path] = run_of(path, data)
    names = ", ".join(map(str, others))
    if not found:
        raise UsageError(f"none holds records of bench: {names}; write some with bench --json")
    if others:
        say(f"left out, without records of bench: {names}")
    return found
