"""Tables: what `tune` found fastest on a GPU, kept as JSON in the user's data folder, or shipped.

A table holds for GPUs that are alike in what decides how fast a reduction is; the driver is no part
of that. An entry holds for the kernel's text that was measured, and for sizes near its own; for
rows only where they lie alike to wide loads.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf, log2
from pathlib import Path
from typing import Any, cast, get_args

from cudareduce.auto.facts import Pick
from cudareduce.auto.rows import packing
from cudareduce.errors import UsageError
from cudareduce.library.header import Grid
from cudareduce.library.kernel import Kernel
from cudareduce.machine.device import DeviceInfo
from cudareduce.machine.host import user_dir
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.problem.sizes import counted
from cudareduce.results.store import Unfit, is_missing, read_json, values_of, write_text

#: Raised when a reader of the old one would misread a table.
SCHEMA = 1
#: What GPUs of one table have in common.
_ALIKE = ("name", "cc", "sm_count", "l2_bytes", "memory_clock_khz", "bus_bits")
#: As on the command line.
_MOST_ITEMS = 2**16
#: An entry speaks for sizes and numbers of rows up to so many times its own, or a part of it.
_NEAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was fastest for `rows` rows of `n` elements: threads a block, elements a thread and the
    rule for the grid, of the kernel whose text has this hash. `fixed`: among those that add floats
    in a fixed order. `time_us` with its 95 % interval is what it took when it was `measured`."""

    op: str
    dtype: str
    acc: str
    n: int
    rows: int
    fixed: bool
    kernel: str
    block: int
    items: int
    grid: str
    source_sha: str
    time_us: float
    time_us_low: float | None = None
    time_us_high: float | None = None
    measured: str = ""

    @property
    def problem(self) -> tuple[object, ...]:
        """What it is the answer to: a table holds one entry for each."""
        return self.op, self.dtype, self.acc, self.n, self.rows, self.fixed

    @property
    def pick(self) -> Pick:
        """What it says to take."""
        return Pick(self.kernel, self.block, self.items, cast(Grid, self.grid))

    def distance(self, reduction: Reduction, n: int, rows: int) -> float:
        """How far a problem is from this one: 0 is itself; infinite where this says nothing of it.
        Another operator counts as near if it is as wide and no less than that of its kind."""
        if (self.rows == 1) != (rows == 1) or not (n and rows and self.n and self.rows):
            return inf
        steps = max(abs(log2(n / self.n)), abs(log2(rows / self.rows)))
        if steps > log2(_NEAR) or (rows != 1 and self._packing(self.n) != self._packing(n)):
            return inf
        if self.is_of(reduction):
            return steps
        return 1 + steps if _kind(self.reduction) == _kind(reduction) else inf

    def _packing(self, n: int) -> int:
        return packing(n * self.reduction.dtype.size)

    def is_of(self, reduction: Reduction) -> bool:
        """Whether it was measured with this very operator on these types."""
        own = reduction.op.name, reduction.dtype.name, reduction.acc.name
        return own == (self.op, self.dtype, self.acc)

    @property
    def reduction(self) -> Reduction:
        """What was computed; names that are not known are a KeyError, and what makes no sense is a
        UsageError."""
        natural = reduction_of(self.op, self.dtype)
        if natural.acc.name == self.acc:
            return natural
        return reduction_of(self.op, self.dtype, self.acc)


def _kind(reduction: Reduction) -> tuple[object, ...]:
    """What reductions have in common that cost alike."""
    op = reduction.op
    return reduction.dtype.size, reduction.acc_size, op.indexed, op.commutative, op.has_finish


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of one kind of GPU, with the `path` that it was read from; `left_out` is what
    does not hold here, in a line each."""

    path: Path
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()

    def near(self, reduction: Reduction, n: int, rows: int, *, fixed: bool) -> Iterator[Entry]:
        """What may say something of a problem, nearest first."""
        near = [
            (entry.distance(reduction, n, rows), entry)
            for entry in self.entries if entry.fixed == fixed
        ]  # fmt: skip
        for distance, entry in sorted(near, key=lambda one: one[0]):
            if distance < inf:
                yield entry

    def holding(self, kernels: Mapping[str, Kernel]) -> Table:
        """The table without entries whose kernel has changed, or does not take what they say."""
        stale = [entry for entry in self.entries if _is_stale(entry, kernels)]
        fresh = [entry for entry in self.entries if not _is_stale(entry, kernels)]
        whys = [_why_unfit(entry, kernels[entry.kernel]) for entry in fresh]
        left_out = []
        if stale:
            names = ", ".join(dict.fromkeys(entry.kernel for entry in stale))
            left_out.append(
                f"{self.path} was measured with other texts of {names}: what it says of these is "
                "left out; cudareduce tune measures them again"
            )
        unfit = [f"{e.kernel} {why}" for e, why in zip(fresh, whys, strict=True) if why]
        if unfit:
            more = ", and more" if len(set(unfit)) > 1 else ""
            left_out.append(
                f"{self.path}: {counted(len(unfit), 'entry', 'entries')} left out, since "
                f"{unfit[0]}{more}; cudareduce tune writes it anew"
            )
        sound = tuple(e for e, why in zip(fresh, whys, strict=True) if not why)
        return Table(self.path, sound, tuple(left_out))


def _is_stale(entry: Entry, kernels: Mapping[str, Kernel]) -> bool:
    """Whether the kernel that was measured is not the one that is here."""
    kernel = kernels.get(entry.kernel)
    return kernel is None or kernel.sha != entry.source_sha


def _why_unfit(entry: Entry, kernel: Kernel) -> str | None:
    """Why a kernel cannot have been launched as an entry says, in words, or None if it can."""
    reduction = entry.reduction
    if entry.grid not in kernel.grids:
        return f"takes the grid {' or '.join(kernel.grids)}, not {entry.grid}"
    if entry.fixed and kernel.varies(reduction):
        return f"adds {reduction.acc.name} in no fixed order"
    return (
        kernel.why_not(reduction)
        or kernel.why_not_shape(entry.n, entry.rows)
        or kernel.why_not_block(entry.block)
        or kernel.why_not_items(entry.items, reduction.dtype.size)
    )


def file_name(info: DeviceInfo) -> str:
    """What the table of a GPU is called, on every machine."""
    alike = json.dumps(_alike(info), sort_keys=True)
    slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[:40]
    return f"{slug}-{hashlib.sha256(alike.encode()).hexdigest()[:8]}.json"


def _alike(info: DeviceInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in _ALIKE}


def user_folder() -> Path:
    """Where tables of the user's are kept."""
    import platformdirs

    return user_dir(platformdirs.user_data_dir) / "tables"


def shipped_folder() -> Path:
    """Where those are that come with the package."""
    return Path(__file__).resolve().parent / "tables"


def tables_of(info: DeviceInfo, kernels: Mapping[str, Kernel]) -> tuple[Table, ...]:
    """The user's table for a GPU, and the shipped one, as far as they are there and hold for these
    kernels; one that does not load is a UsageError."""
    places = [folder / file_name(info) for folder in (user_folder(), shipped_folder())]
    return tuple(read_table(p).holding(kernels) for p in places if not is_missing(p))


def read_table(path: Path) -> Table:
    """Read a table; what is none is a UsageError that says what to do with it."""
    place = ""
    try:
        with suppress(OSError):  # of which reading tells
            if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe might never end
                raise Unfit("it is no plain file")
        data = read_json(path)
        if type(data) is not dict or type(data.get("entries")) is not list:
            raise Unfit("it has no entries")
        if data.get("schema") != SCHEMA or type(data["schema"]) is not int:
            raise Unfit(f"it has not schema {SCHEMA}")
        entries = []
        for number, values in enumerate(data["entries"], 1):
            place = f"entry {number}: "
            entries.append(_checked(Entry(**_named(values))))
    except (Unfit, UsageError) as error:
        why = f"{place}{error}".removesuffix("; make it again")
        raise UsageError(
            f"{path} is no table of cudareduce tune: {why}; delete it, and tune again"
        ) from None
    return Table(path, tuple(entries))


def _named(values: Any) -> dict[str, Any]:
    return dict(zip(Entry.__dataclass_fields__, values_of(Entry, values), strict=True))


def _checked(entry: Entry) -> Entry:
    """The entry, if it can be one."""
    try:
        _ = entry.reduction
    except (KeyError, UsageError):
        raise Unfit(f"there is no {entry.op} of {entry.dtype} in {entry.acc}") from None
    for name in ("n", "rows", "block", "items", "time_us"):
        if getattr(entry, name) <= 0:
            raise Unfit(f"{name} is not above 0")
    if entry.items > _MOST_ITEMS:  # a block would never come to an end of them
        raise Unfit(f"items is above {_MOST_ITEMS}")
    if entry.grid not in get_args(Grid):
        raise Unfit(f"grid is not one of {', '.join(get_args(Grid))}")
    return entry


def write_table(
    folder: Path, info: DeviceInfo, entries: Sequence[Entry], kernels: Mapping[str, Kernel]
) -> Path | None:
    """Put entries into the table of a GPU, in the place of those for the same problems, and leave
    out what no longer holds for these kernels; where it is, None where nothing has changed. What
    cannot be written is a UsageError, and so is a table there that does not load."""
    path = folder / file_name(info)
    before = Table(path, ()) if is_missing(path) else read_table(path).holding(kernels)
    if not entries and not before.left_out:
        return None
    if not folder.is_absolute():  # where there is no home
        raise UsageError("there is no home folder to keep a table in: set XDG_DATA_HOME")
    kept = {entry.problem: entry for entry in (*before.entries, *entries)}
    whole = {
        "schema": SCHEMA, "device": _alike(info),
        "entries": [asdict(entry) for entry in sorted(kept.values(), key=_order)],
    }  # fmt: skip
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from None
    write_text(path, json.dumps(whole, indent=1, allow_nan=False) + "\n")
    return path


def _order(entry: Entry) -> tuple[object, ...]:
    return entry.op, entry.dtype, entry.acc, entry.fixed, entry.rows, entry.n
