"""What made a result: the tool, its revision, and the words it was called with."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudareduce import __version__


def tool(argv: Sequence[str]) -> dict[str, Any]:
    """The `tool` field of a result file."""
    return {"name": "cudareduce", "version": __version__, "git": _git(), "argv": list(argv)}


def _git() -> str | None:
    """The revision of the checkout that runs, marked if it was changed; None outside one."""
    folder = Path(__file__).resolve().parent.parent.parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip() or None
