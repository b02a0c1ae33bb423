"""Orders as they are stored and compared: one row a call, in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from cudareduce.errors import UsageError
from cudareduce.problem.dtypes import DTYPES
from cudareduce.results.store import is_missing, read_json
from cudareduce.reveal.found import Outcome
from cudareduce.verify.verdict import Cause

SCHEMA, KIND = 1, "orders"
#: What stands between the two columns of a picture's line.
BETWEEN = " = "
#: Counts are below this, in files of any origin.
_MOST = 2**63
_WORDS: Mapping[str, Sequence[str | None]] = {
    "outcome": get_args(Outcome), "cause": (None, *get_args(Cause)),
}  # fmt: skip
_ANEW = "make it with cudareduce reveal --json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was found of one call, of `rows` rows of `n` elements each.

    `hashes` name its tree by how many elements were compared: all, or the samples of a larger one;
    `depth` is in additions, of a sample the least that it may be; `bound` is the share of the sum
    of magnitudes by which an answer may be off. `outcome` and `cause` are as in `found`, `version`
    and `called` are those of a library.
    """

    kernel: str
    dtype: str
    acc: str
    n: int
    rows: int
    outcome: str
    block: int | None = None
    items: int | None = None
    reason: str = ""
    cause: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    depth: int | None = None
    exact: bool = False
    bound: float | None = None
    adds_in: str | None = None
    probes: int = 0
    called: str | None = None
    version: str | None = None
    picture: tuple[str, ...] = ()

    @property
    def hash(self) -> str | None:
        """The hash of the largest tree."""
        return self.hashes[max(self.hashes, key=int)] if self.hashes else None

    @property
    def problem(self) -> tuple[str, str, int, int]:
        """What is reduced."""
        return self.dtype, self.acc, self.n, self.rows

    @property
    def key(self) -> tuple[object, ...]:
        """What is one row."""
        return self.kernel, *self.problem, self.block, self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Orders found on one device, and by which tool."""

    tool: Mapping[str, Any]
    device: str
    orders: tuple[Order, ...]


def to_json(table: Table) -> str:
    """One order a line, so that a diff of the file shows which have changed."""
    head = {"kind": KIND, "schema": SCHEMA, "tool": dict(table.tool), "device": table.device}
    rows = ",\n".join(f"  {json.dumps(asdict(order), allow_nan=False)}" for order in table.orders)
    return f'{json.dumps(head, indent=1)[:-2]},\n "orders": [\n{rows}\n ]\n}}\n'


def load(path: Path) -> Table:
    """Read a table; one that is missing, cut short, or another kind of file is a UsageError."""
    if is_missing(path):
        raise UsageError(f"there is no {path}: {_ANEW}")
    data = read_json(path)
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise UsageError(f"{path} is no table of orders: {_ANEW}")
    if data.get("schema") != SCHEMA:
        raise UsageError(
            f"{path} has schema {data.get('schema')!r:.20}, this version reads {SCHEMA}: {_ANEW}"
        )
    try:
        rows = _fitting(data.get("orders"), list, "orders")
        orders = tuple(_order(values, number) for number, values in enumerate(rows, 1))
        if not orders:
            raise ValueError("it has no row")
        tool, device = _fitting(data.get("tool"), dict, "tool"), data.get("device")
        return Table(tool=tool, device=_fitting(device, str, "device"), orders=orders)
    except ValueError as error:
        raise UsageError(f"{path} is not a whole table of orders: {error}; {_ANEW}") from None


def _order(values: Any, number: int) -> Order:
    """One row of a table. A ValueError says what is wrong with it."""
    known = _fitting(values, dict, f"row {number}")
    kinds = get_type_hints(Order)
    taken = {f.name: known.get(f.name) for f in fields(Order)}
    for name, value in taken.items():
        where = f"{name} of row {number}"
        if name == "hashes":
            words = _fitting(value, dict, where)
            if not all(_is_count(key) and type(h) is str for key, h in words.items()):
                raise ValueError(f"{where} is not what it should be")
        elif name == "picture":
            taken[name] = tuple(_fitting(line, str, where) for line in _fitting(value, list, where))
        elif name in ("dtype", "acc") and _fitting(value, str, where) not in DTYPES:
            raise ValueError(f"{where} is no type known here")
        elif name in _WORDS and value not in _WORDS[name]:
            raise ValueError(f"{where} is no word known here")
        elif not (isinstance(value, kinds[name]) and not _is_switch(value, name)):
            raise ValueError(f"{where} is not what it should be")
        elif isinstance(value, int) and not 0 <= value < _MOST:
            raise ValueError(f"{where} is negative, or too large")
    return Order(**taken)


def _is_count(text: str) -> bool:
    """Whether a text is a number of elements, as they are the keys of hashes."""
    return text.isdecimal() and len(text) < len(str(_MOST))


def _is_switch(value: object, name: str) -> bool:
    """Whether a number is a true or a false."""
    return isinstance(value, bool) and name != "exact"


def _fitting(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{where} is not what it should be")
    return value
