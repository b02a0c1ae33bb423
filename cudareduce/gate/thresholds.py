"""How large a change counts: one threshold for all kernels, others for single ones from a file."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.library.registry import hint
from cudareduce.library.toml import BadToml, line_of, parse, quoted
from cudareduce.peers.names import NAMES, meant

#: Above what stands between two processes on one H200 (1 %), two cards of one model (4 %) and
#: the usual differences between drivers; a smaller one is worth setting where it has been shown to
#: hold.
DEFAULT = 0.05
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Shares: 0.05 is 5 %. `by_kernel` holds ids and patterns, in the order of the file."""

    default: float = DEFAULT
    by_kernel: tuple[tuple[str, float], ...] = ()

    def of(self, kernel: str, engine: str | None = None) -> float:
        """The threshold of a kernel: under its own name, else the first pattern, else the rest. Of
        a collective the engine's comes before that."""
        for called in (engine, kernel):
            exact = [value for name, value in self.by_kernel if name == called]
            matching = [
                value for name, value in self.by_kernel if called and fnmatchcase(called, name)
            ]
            if exact or matching:
                return (exact or matching)[0]
        return self.default


def parse_threshold(text: Any) -> float:
    """`3%` as 0.03; a bare number could mean either, so it is a UsageError, as all else is that
    does not lie above 0% and up to 1000%."""
    match = _PERCENT.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise UsageError(
            f"{quoted(text)} is not a threshold: write a percentage above 0, as 5% or 2.5%"
        )
    value = float(match[1]) / 100
    if not 0 < value <= 10:
        raise UsageError(f"a threshold of {quoted(text)} makes no sense: between 0% and 1000%")
    return value


def load_thresholds(path: Path | None, default: float | None, known: Collection[str]) -> Thresholds:
    """Thresholds of a TOML file; `default`, a share, is the command line's and replaces the file's.
    A file that cannot be read, holds something else, or names what is neither `known` nor a
    library, is a UsageError."""
    if path is None:
        return Thresholds(DEFAULT if default is None else default)
    try:
        text = path.read_text(encoding="utf-8")
        data = parse(text)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; name a TOML file") from None
    except UnicodeDecodeError:
        raise UsageError(f"cannot read {path}: it is not UTF-8; name a TOML file") from None
    except BadToml as error:
        raise UsageError(f"{path}:{error.line}: the file is not valid TOML: {error}") from None

    def threshold(key: str, value: object) -> float:
        try:
            return parse_threshold(value)
        except UsageError as error:
            raise UsageError(f"{path}:{line_of(text, key) or 1}: {key}: {error}") from None

    kernels = data.pop("kernel", {})
    general = data.pop("default", f"{100 * DEFAULT:g}%")
    if data or not isinstance(kernels, dict):
        wrong = next(iter(data), "kernel")
        raise UsageError(
            f'{path}: {wrong}: a threshold file has default = "5%" and a table [kernel] with lines '
            'such as "reduce_v7_shuffle" = "3%"'
        )
    by_kernel = tuple((name, threshold(name, value)) for name, value in kernels.items())
    for name in kernels:
        if not _names_any(name, known):
            raise UsageError(
                f"{path}:{line_of(text, name) or 1}: no kernel is called {quoted(name)}: "
                f"{hint(name, list(known))}"
            )
    found = threshold("default", general)
    return Thresholds(found if default is None else default, by_kernel)


def _names_any(name: str, known: Collection[str]) -> bool:
    """Whether a name or pattern may be meant for a row: a library need not be there today."""
    if name.startswith("peer:") and meant(name, NAMES):
        return True
    rows = (*known, *(f"peer:{library}" for library in NAMES))
    return any(fnmatchcase(row, name) for row in rows)
