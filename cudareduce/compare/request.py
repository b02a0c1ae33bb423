"""The options of `compare` and `check` as typed requests, and the thresholds of a comparison."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from cudareduce.catalog.front_matter import BadToml, line_of, parse, quoted
from cudareduce.catalog.map_expression import read_map
from cudareduce.catalog.registry import hint, kernels_folder
from cudareduce.errors import UsageError
from cudareduce.libraries.names import NAMES, is_selected
from cudareduce.reduction.operators import Map, Reduction, reduction_of
from cudareduce.report.publish import Outputs

#: Defaults: seconds to measure uncertain rows for longer, and rounds.
BUDGET_S, DEFAULT_ROUNDS = 60.0, 9
_LIBRARY_SIZES = tuple(2**k for k in range(10, 29, 2))


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

    @property
    def again(self) -> list[str]:
        """The options for the same comparison."""
        words = ["--cross-device"] * self.cross_device + ["--no-same-code"] * self.no_same_code
        words += ["--thresholds", str(self.thresholds)] if self.thresholds else []
        return words + (["--threshold", f"{100 * self.threshold:g}%"] if self.threshold else [])


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Options of `compare`: two stored runs."""

    old: Path
    new: Path
    judging: Judging
    outputs: Outputs


class Versions(NamedTuple):
    """Two versions of the library `name`: files of NCCL, or CCCL source trees."""

    name: str
    old: Path
    new: Path

    def __str__(self) -> str:
        return f"{self.name}={self.old},{self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """Options of `check`. The baseline is a stored run, a tree of kernels (`base`, a revision or a
    folder), this tree itself (`times` comparisons), or the old version of a `library`.

    `rounds` is None for as many as in the baseline, `ranks` for one per GPU, `arch` for the
    architectures of the baseline or the default ones. `time_limit` is in seconds per kernel,
    `max_time` for everything, `budget` for more rounds of uncertain kernels.
    """

    baseline: Path | None = None
    base: str | None = None
    times: int | None = None
    library: Versions | None = None
    compiling: bool = False
    update_baseline: bool = False
    kernels: tuple[str, ...] = ()
    folders: tuple[Path, ...] = ()
    n: tuple[int, ...] | None = None
    rows: int | None = None
    op: tuple[str, ...] | None = None
    dtype: tuple[str, ...] | None = None
    map: str | None = None
    arch: tuple[int, ...] | None = None
    ranks: int | None = None
    peers: tuple[str, ...] = ()
    rounds: int | None = None
    budget: float | None = None
    max_time: float | None = None
    time_limit: float | None = None
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()

    @property
    def mode(self) -> str:
        """The options that select the kind of check, as messages name them."""
        if self.library is not None:
            return f"--library {self.library.name}"
        if self.times is not None:
            return "--self"
        if self.base is not None:
            return "--compile --base" if self.compiling else "--base"
        return "--compile" if self.compiling else "--baseline"

    @property
    def mapped(self) -> Map | None:
        """The transform of --map, parsed. Raises UsageError."""
        return None if self.map is None else read_map(self.map, "--map")

    @property
    def budget_s(self) -> float:
        return BUDGET_S if self.budget is None else self.budget

    @property
    def default_rounds(self) -> int:
        return DEFAULT_ROUNDS if self.rounds is None else self.rounds

    @property
    def reductions(self) -> list[Reduction]:
        """All requested reductions: each operator with each type. Raises UsageError."""
        ops, dtypes = self.op or ("sum",), self.dtype or ("float32",)
        return [reduction_of(op, dtype, None, self.mapped) for op, dtype in product(ops, dtypes)]

    @property
    def heads(self) -> tuple[Path, ...]:
        """The folders of this tree's kernels."""
        return self.folders or (kernels_folder(),)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.n or (_LIBRARY_SIZES if self.library else (2**25,))

    @property
    def again(self) -> list[str]:
        """The options that compare the same kernels on the same problems again."""
        words = [word for folder in self.folders for word in ("--kernels", str(folder))]
        words += ["--map", self.map] if self.map else []
        words += ["--peers", ",".join(self.peers)] if self.peers else []
        if self.library:
            words = ["--library", str(self.library)]
        elif self.base is None:
            words += ["--baseline", str(self.baseline)]
        else:
            words += ["--base", self.base, "--n", ",".join(map(str, self.sizes))]
            words += ["--op", ",".join(self.op)] if self.op not in (None, ("sum",)) else []
            words += (
                ["--dtype", ",".join(self.dtype)] if self.dtype not in (None, ("float32",)) else []
            )
            words += ["--rows", str(self.rows)] if self.rows not in (None, 1) else []
            words += ["--ranks", str(self.ranks)] if self.ranks else []
        return words + self.judging.again

    def unused_option(self) -> str | None:
        """The first option that the mode does not use, if one is given."""
        for name in _UNUSED[self.mode].split():
            if any(getattr(part, name, None) for part in (self, self.judging, self.outputs)):
                return f"--{_OPTIONS.get(name, name.replace('_', '-'))}"
        return None


#: Fields that are named otherwise on the command line.
_OPTIONS = {"everything": "all", "compiling": "compile", "folders": "kernels", "times": "self"}
_PROBLEMS, _TIMED = "n rows op dtype ranks", "rounds budget max_time map time_limit no_cache peers"
_LIBRARY = (
    "folders baseline base times compiling update_baseline rows arch map peers ranks max_time "
    "cross_device no_same_code"
)
#: The options without effect in each mode. --device is reported by the command line instead.
_UNUSED = {
    "--baseline": f"arch {_PROBLEMS}",
    "--base": "arch update_baseline peers cross_device json",
    "--self": "arch base baseline compiling ranks update_baseline strict allow_gone no_same_code "
    "cross_device junit benchmark_json comment everything peers",
    "--compile": f"{_PROBLEMS} {_TIMED} threshold thresholds strict no_same_code cross_device "
    "everything json benchmark_json",
    "--compile --base": "update_baseline peers cross_device json map ranks",
    "--library nccl": f"{_LIBRARY} device time_limit",
    "--library cub": _LIBRARY,
}


#: Above the difference between two processes on one H200 (1 %), two cards of one model (4 %), and
#: usual drivers.
DEFAULT_THRESHOLD = 0.05
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)


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
        if not (name.startswith("peer:") and is_selected(name, NAMES)) and not any(
            fnmatchcase(row, name) for row in rows
        ):
            raise UsageError(
                f"{path}:{line_of(text, name) or 1}: no kernel is called {quoted(name)}: "
                f"{hint(name, list(known))}"
            )
    general = threshold("default", general)
    return Thresholds(general if default is None else default, by_kernel)
