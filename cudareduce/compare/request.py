"""The options of `compare` and `check` as typed requests, and the thresholds of a comparison."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cudareduce.errors import UsageError
from cudareduce.libraries.names import NAMES, meant
from cudareduce.library.mapped import read_map
from cudareduce.library.registry import hint
from cudareduce.library.toml import BadToml, line_of, parse, quoted
from cudareduce.reduction.operators import Map
from cudareduce.report.publish import Outputs

#: Default seconds to measure rows in doubt for longer.
BUDGET_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How to compare. `threshold` is a share (0.05 is 5 %), None that of the file or the default;
    `thresholds` is a TOML file with thresholds per kernel; `everything` shows rows that are SAME.
    """

    threshold: float | None = None
    thresholds: Path | None = None
    strict: bool = False
    allow_gone: bool = False
    no_same_code: bool = False
    cross_device: bool = False
    everything: bool = False

    @property
    def read(self) -> tuple[Path, ...]:
        """The input files, which no output may overwrite."""
        return () if self.thresholds is None else (self.thresholds,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Options of `compare`: two stored runs."""

    old: Path
    new: Path
    judging: Judging
    outputs: Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasuring:
    """Which kernels to measure again, and where. `rounds`: None for as many as in the baseline.
    `time_limit`: seconds to verify one kernel. `peers`: libraries to measure alongside. `map`: the
    transform. `max_time`: seconds for everything."""

    kernels: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    rounds: int | None = None
    device: int = 0
    time_limit: float | None = None
    no_cache: bool = False
    quiet: bool = False
    peers: tuple[str, ...] = ()
    map: str | None = None
    budget: float | None = None
    max_time: float | None = None

    @property
    def budget_s(self) -> float:
        return BUDGET_S if self.budget is None else self.budget

    @property
    def mapped(self) -> Map | None:
        """The parsed transform. Raises UsageError."""
        return None if self.map is None else read_map(self.map, "--map")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Options of `check --baseline`: a stored run to measure again."""

    baseline: Path
    update_baseline: bool
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """The problems to measure where no stored run defines them."""

    n: tuple[int, ...]
    rows: int
    op: tuple[str, ...]
    dtype: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRequest:
    """Options of `check --base`: a revision or folder of kernels to measure alongside; `ranks` for
    collectives, None for one per GPU."""

    base: str
    ranks: int | None = None
    problems: Problems
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRequest:
    """Options of `check --self`: this tree against itself, `times` times."""

    times: int
    problems: Problems
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTreesRequest:
    """Options of `check --compile --base`: the architectures (None for the default ones), and how
    to time what compiles differently."""

    arch: tuple[int, ...] | None = None
    timed: BaseRequest


#: Above the difference between two processes on one H200 (1 %), two cards of one model (4 %), and
#: usual drivers.
DEFAULT_THRESHOLD = 0.05
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds as shares: 0.05 is 5 %. `by_kernel`: ids and patterns in the order of the file."""

    default: float = DEFAULT_THRESHOLD
    by_kernel: tuple[tuple[str, float], ...] = ()

    def of(self, kernel: str, engine: str | None = None) -> float:
        """The threshold of a kernel: by exact name, else by the first matching pattern, else the
        default. For a collective the name of the engine comes first."""
        for called in (engine, kernel):
            exact = [value for name, value in self.by_kernel if name == called]
            matching = [
                value for name, value in self.by_kernel if called and fnmatchcase(called, name)
            ]
            if exact or matching:
                return (exact or matching)[0]
        return self.default


def parse_threshold(text: Any) -> float:
    """Parse `3%` as 0.03. Raises UsageError for a bare number, which could mean either, and outside
    of 0% to 1000%."""
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
    """Thresholds of a TOML file; `default`, a share from the command line, overrides the file's.
    Raises UsageError if the file cannot be read, has other content, or names a kernel that is
    neither `known` nor a library."""
    if path is None:
        return Thresholds(DEFAULT_THRESHOLD if default is None else default)
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
    general = data.pop("default", f"{100 * DEFAULT_THRESHOLD:g}%")
    if data or not isinstance(kernels, dict):
        wrong = next(iter(data), "kernel")
        raise UsageError(
            f'{path}: {wrong}: a threshold file has default = "5%" and a table [kernel] with lines '
            'such as "reduce_v7_shuffle" = "3%"'
        )
    by_kernel = tuple((name, threshold(name, value)) for name, value in kernels.items())
    rows = (*known, *(f"peer:{library}" for library in NAMES))  # which need not be installed
    for name in kernels:
        if not (name.startswith("peer:") and meant(name, NAMES)) and not any(
            fnmatchcase(row, name) for row in rows
        ):
            raise UsageError(
                f"{path}:{line_of(text, name) or 1}: no kernel is called {quoted(name)}: "
                f"{hint(name, list(known))}"
            )
    general = threshold("default", general)
    return Thresholds(general if default is None else default, by_kernel)
