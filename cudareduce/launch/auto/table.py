"""Tables of the fastest launches on a GPU: JSON files, in the package or written by `tune`.

A table applies to GPUs with the same name, compute capability, SM count, L2 and memory. An entry
applies to sizes within a factor of two and, if there are several rows, to rows with the same
alignment. An entry of `tune` is ignored once the source of its kernel has changed.
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

from cudareduce.catalog.front_matter import Grid
from cudareduce.catalog.kernel import Kernel
from cudareduce.errors import UsageError
from cudareduce.launch.auto.rule import Pick, packing
from cudareduce.machine import DeviceInfo, user_dir
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.reduction.sizes import counted
from cudareduce.results.store import Unfit, is_missing, parse, read_json, write_text

#: Incremented when an older reader would misread a table.
SCHEMA = 1
#: The fields of a device in which GPUs of one table agree.
_ALIKE = ("name", "cc", "sm_count", "l2_bytes", "memory_clock_khz", "bus_bits")
#: The upper limit of --items.
_MOST_ITEMS = 2**16
#: An entry applies to sizes and numbers of rows within this factor.
_NEAR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The fastest launch for `rows` rows of `n` elements. `fixed`: among kernels with a fixed
    summation order. A shipped entry has no `source_sha`, which identifies the source of the kernel,
    and may have no `time_us` with its 95 % interval."""

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
    source_sha: str = ""
    time_us: float | None = None
    time_us_low: float | None = None
    time_us_high: float | None = None
    measured: str = ""

    @property
    def problem(self) -> tuple[object, ...]:
        """The problem; a table has one entry per problem."""
        return self.op, self.dtype, self.acc, self.n, self.rows, self.fixed

    @property
    def pick(self) -> Pick:
        """The launch."""
        return Pick(self.kernel, self.block, self.items, cast(Grid, self.grid))

    def distance(self, reduction: Reduction, n: int, rows: int) -> float:
        """Distance of a problem in powers of two; infinite if the entry does not apply. Another
        operator of the same kind and width is further away than the same one."""
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
        """True if the entry is for this operator and these types."""
        names = reduction.op.name, reduction.dtype.name, reduction.acc.name
        return names == (self.op, self.dtype, self.acc)

    @property
    def reduction(self) -> Reduction:
        """The reduction. Raises KeyError for unknown names, UsageError if invalid."""
        natural = reduction_of(self.op, self.dtype)
        if natural.acc.name == self.acc:
            return natural
        return reduction_of(self.op, self.dtype, self.acc)


def _kind(reduction: Reduction) -> tuple[object, ...]:
    """The properties that determine the cost of a reduction."""
    op = reduction.op
    return reduction.dtype.size, reduction.acc_size, op.indexed, op.commutative, op.has_finish


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeSms:
    """The launch for an array of 4-byte elements on at least `least_sms` SMs, but not all SMs."""

    least_sms: int
    kernel: str
    blocks: int
    block: int | None = None
    items: int | None = None

    @property
    def pick(self) -> Pick:
        """The launch."""
        return Pick(self.kernel, self.block, self.items, blocks=self.blocks)


@dataclass(frozen=True, slots=True)
class Table:
    """The table of one GPU model, read from `path`. `left_out` has a message for each group of
    ignored entries."""

    path: Path
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    some_sms: tuple[SomeSms, ...] = ()

    def on_some_sms(self, sms: int) -> Iterator[Pick]:
        """Launches for an array on `sms` SMs, fastest first."""
        for launch in sorted(self.some_sms, key=lambda launch: -launch.least_sms):
            if launch.least_sms <= sms:
                yield launch.pick

    def near(self, reduction: Reduction, n: int, rows: int, *, fixed: bool) -> Iterator[Entry]:
        """The entries near a problem, nearest first. The fastest of all kernels is also the fastest
        of those with a `fixed` order, if it is one of them: the caller checks that."""
        near = [
            (entry.distance(reduction, n, rows), entry.fixed != fixed, entry)
            for entry in self.entries
            if fixed or not entry.fixed
        ]
        for distance, _, entry in sorted(near, key=lambda item: item[:2]):
            if distance < inf:
                yield entry

    def holding(self, kernels: Mapping[str, Kernel]) -> Table:
        """The table without entries whose kernel has changed or does not support the launch."""
        stale = {entry for entry in self.entries if _is_stale(entry, kernels)}
        reasons = {
            entry: _why_unfit(entry, kernels[entry.kernel])
            for entry in self.entries if entry not in stale
        }  # fmt: skip
        left_out = []
        if stale:
            names = ", ".join(
                dict.fromkeys(entry.kernel for entry in self.entries if entry in stale)
            )
            left_out.append(
                f"{self.path} was measured with other versions of {names}, whose entries are "
                "ignored; cudareduce tune measures them again"
            )
        unfit = [f"{entry.kernel} {reason}" for entry, reason in reasons.items() if reason]
        if unfit:
            more = ", and more" if len(set(unfit)) > 1 else ""
            left_out.append(
                f"{self.path}: {counted(len(unfit), 'entry', 'entries')} ignored, since "
                f"{unfit[0]}{more}; cudareduce tune replaces them"
            )
        sound = tuple(entry for entry, reason in reasons.items() if not reason)
        return Table(self.path, sound, tuple(left_out), self.some_sms)


def _is_stale(entry: Entry, kernels: Mapping[str, Kernel]) -> bool:
    """True if the kernel of an entry has changed or is missing."""
    kernel = kernels.get(entry.kernel)
    return kernel is None or entry.source_sha not in ("", kernel.sha)


def _why_unfit(entry: Entry, kernel: Kernel) -> str | None:
    """Why the kernel cannot be launched as in the entry; None if it can."""
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
    """The file name of the table of a GPU, the same on every machine."""
    alike = json.dumps(_alike(info), sort_keys=True)
    slug = re.sub(r"[^a-z0-9]+", "-", info.name.lower()).strip("-")[:40]
    return f"{slug}-{hashlib.sha256(alike.encode()).hexdigest()[:8]}.json"


def _alike(info: DeviceInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in _ALIKE}


def user_folder() -> Path:
    """The folder of the user's tables."""
    import platformdirs

    return user_dir(platformdirs.user_data_dir) / "tables"


def shipped_folder() -> Path:
    """The folder of the tables in the package."""
    return Path(__file__).resolve().parent / "tables"


def tables_of(info: DeviceInfo, kernels: Mapping[str, Kernel]) -> tuple[Table, ...]:
    """The user's table for a GPU, then the shipped one, as far as they exist and apply to these
    kernels. Raises UsageError for one that cannot be loaded."""
    places = [folder / file_name(info) for folder in (user_folder(), shipped_folder())]
    return tuple(read_table(p).holding(kernels) for p in places if not is_missing(p))


def read_table(path: Path) -> Table:
    """Read a table. Raises UsageError with a remedy."""
    place = ""
    try:
        with suppress(OSError):  # reported when the file is read
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
            entries.append(_checked(parse(Entry, values)))
        place = "some_sms: "
        launches = data.get("some_sms", [])
        if type(launches) is not list:
            raise Unfit("it is no list")
        some_sms = tuple(parse(SomeSms, values) for values in launches)
    except (Unfit, UsageError) as error:
        why = f"{place}{error}".removesuffix("; make it again")
        raise UsageError(
            f"{path} is no table of cudareduce tune: {why}; delete it, and tune again"
        ) from None
    return Table(path, tuple(entries), some_sms=some_sms)


def _checked(entry: Entry) -> Entry:
    """The entry, after checking its values."""
    try:
        _ = entry.reduction
    except (KeyError, UsageError):
        raise Unfit(f"there is no {entry.op} of {entry.dtype} in {entry.acc}") from None
    for name in ("n", "rows", "block", "items", "time_us"):
        value = getattr(entry, name)
        if value is not None and value <= 0:
            raise Unfit(f"{name} is not above 0")
    if entry.items > _MOST_ITEMS:  # a loop over more items would take too long
        raise Unfit(f"items is above {_MOST_ITEMS}")
    if entry.grid not in get_args(Grid):
        raise Unfit(f"grid is not one of {', '.join(get_args(Grid))}")
    return entry


def write_table(
    folder: Path, info: DeviceInfo, entries: Sequence[Entry], kernels: Mapping[str, Kernel]
) -> Path | None:
    """Add entries to the table of a GPU, replacing those for the same problems and dropping those
    that no longer apply. Returns the file, None if nothing changed. Raises UsageError if the table
    cannot be read or written."""
    path = folder / file_name(info)
    before = Table(path, ()) if is_missing(path) else read_table(path).holding(kernels)
    if not entries and not before.left_out:
        return None
    if not folder.is_absolute():  # no home folder
        raise UsageError("there is no home folder to keep a table in: set XDG_DATA_HOME")
    kept = {entry.problem: entry for entry in (*before.entries, *entries)}
    lines = [
        json.dumps(_fields_set(entry), allow_nan=False)
        for entry in sorted(kept.values(), key=_order)
    ]
    head = {
        "schema": SCHEMA,
        "device": _alike(info),
        "some_sms": [_fields_set(launch) for launch in before.some_sms],
    }
    text = json.dumps(head)[:-1] + ', "entries": [\n' + ",\n".join(lines) + "\n]}\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another place") from None
    write_text(path, text)
    return path


def _fields_set(value: Entry | SomeSms) -> dict[str, Any]:
    """The fields that are set."""
    return {name: field for name, field in asdict(value).items() if field not in (None, "")}


def _order(entry: Entry) -> tuple[object, ...]:
    return entry.op, entry.dtype, entry.acc, entry.fixed, entry.rows, entry.n
