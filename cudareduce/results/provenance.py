"""The provenance of a result: version, git revision and command-line arguments."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cudareduce import __version__

#: The folders of an absolute path that is an argument, an option's value, or an item of a list.
_FOLDERS = re.compile(r"(?:^|(?<=[=,]))/(?:[^/,]*/)*(?=[^/,])")


def tool(argv: Sequence[str]) -> dict[str, Any]:
    """Return the `tool` field of a result file. Absolute paths are reduced to file names."""
    words = [_FOLDERS.sub("", word) for word in argv]
    return {"name": "cudareduce", "version": __version__, "git": _git(), "argv": words}


def _git() -> str | None:
    """The git revision of the checkout, marked if there are uncommitted changes; None outside a
    checkout."""
    folder = Path(__file__).resolve().parent.parent.parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
