"""What `compare` and `check` were asked for, as typed requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cudareduce.library.mapped import read_map
from cudareduce.problem.operators import Map
from cudareduce.report.publish import Outputs

#: Seconds that what is in doubt is measured longer for, unless asked otherwise.
BUDGET_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """How to judge: `threshold` is a share (0.05 is 5 %), None that of the file or the default;
    `thresholds` a TOML file of single kernels' ones; `everything` shows what is the SAME, too."""

    threshold: float | None = None
    thresholds: Path | None = None
    strict: bool = False
    allow_gone: bool = False
    no_same_code: bool = False
    cross_device: bool = False
    everything: bool = False

    @property
    def read(self) -> tuple[Path, ...]:
        """The files that it is read from, which no output may replace."""
        return () if self.thresholds is None else (self.thresholds,)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Two stored runs to judge."""

    old: Path
    new: Path
    judging: Judging
    outputs: Outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasuring:
    """Which kernels to measure again, and where; `rounds` is None for as many as before,
    `time_limit` the seconds for the verification of one kernel, `peers` libraries to measure
    beside, `map` what is made of elements before they are combined, `max_time` the seconds of the
    whole."""

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
        """Seconds that what is in doubt may be measured longer for."""
        return BUDGET_S if self.budget is None else self.budget

    @property
    def mapped(self) -> Map | None:
        """The map as it is understood; one that is no map is a UsageError."""
        return None if self.map is None else read_map(self.map, "--map")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """A stored run to measure again."""

    baseline: Path
    update_baseline: bool
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """What kernels are given where no stored run says it."""

    n: tuple[int, ...]
    rows: int
    op: tuple[str, ...]
    dtype: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseRequest:
    """Another tree of kernels, a revision or a folder, to measure beside this one; collectives
    among so many `ranks`, None one for each GPU."""

    base: str
    ranks: int | None = None
    problems: Problems
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRequest:
    """This tree against itself, so many times."""

    times: int
    problems: Problems
    remeasuring: Remeasuring
    judging: Judging
    outputs: Outputs
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledTreesRequest:
    """Two trees to compile for `arch`, None the usual architectures, and how to measure what
    comes out otherwise."""

    arch: tuple[int, ...] | None = None
    timed: BaseRequest
