"""What the parameters of a kernel get that is not what it seemed, by what was found of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudareduce.library.arguments import Argument
from cudareduce.library.body import Body
from cudareduce.library.matrix import SHAPE
from cudareduce.library.parameters import Parameter
from cudareduce.library.refused import Roles, is_one_row
from cudareduce.library.row_index import Rows


def count_of_rows(
    parameters: Sequence[Parameter], gets: Mapping[str, str], body: Body
) -> Parameter | None:
    """What counts rows: of several the one by which something is apart."""
    counts = [p for p in parameters if gets[p.name] == "rows"]
    return next((p for p in counts if body.factors(p.name)), next(iter(counts), None))


def otherwise(
    body: Body, found: Rows, roles: Roles, count: Parameter | None,
    parameters: Sequence[Parameter], gets: Mapping[str, str], says: Sequence[Argument],
) -> tuple[Argument, ...]:  # fmt: skip
    """What parameters get of what is not rows as it seemed, unless somebody has said so: where the
    vector comes before the matrix, and where all threads, which take a row or a column each, add to
    one place, so that there is one answer."""
    read, other, write = roles
    said = any(one.what in ("in", "in2") for one in says)
    if not said and other and is_one_row(body, read) and not is_one_row(body, other):
        return Argument("", other.name, "in"), Argument("", read.name, "in2")
    rows, named = count_of_rows(parameters, gets, body), {one.name for one in says}
    one = body.atomics(write.name) and not body.each(write.name)
    if found.grid != "thread_per_row" or not one or not rows or not count:
        return ()
    across, down = (rows, count) if found.columns else (count, rows)
    shape = dict(zip((across.name, down.name), SHAPE, strict=True))
    return tuple(Argument("", *pair) for pair in shape.items()) if named.isdisjoint(shape) else ()
