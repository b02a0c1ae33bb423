"""Kernels of one file that are stages of one reduction: each reads what the one before has
written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from pathlib import Path

from cudareduce.cuda_source import text
from cudareduce.errors import UsageError
from cudareduce.library.host_code import HostCall, number_at
from cudareduce.library.kernel import Kernel
from cudareduce.reduction.dtypes import DTYPES

#: Where a kernel's arguments are that it reads and writes, and how many it takes, by its name.
Places = Mapping[str, tuple[int, int, int]]


def links_of(path: Path, words: str) -> list[str]:
    """The kernels that `--chain` names, with their template arguments. Raises UsageError."""
    names, depth = [""], 0
    for letter in words:
        depth += (letter == "<") - (letter == ">")
        if letter == "," and depth == 0:
            names.append("")
        else:
            names[-1] += letter
    links = [name.strip() for name in names]
    if len(links) < 2 or not all(links):
        raise UsageError(f"{path}: --chain takes kernels with commas, as in --chain partials,total")
    return links


def own_chains(calls: Sequence[HostCall], places: Places) -> list[tuple[str, ...]]:
    """The chains that launches of a file make, by names: a kernel goes on with what another one has
    written before in the same function, and the host not replaced. Every launch of a kernel that
    goes on must do so, and the last of a chain is launched with one block."""
    found: dict[tuple[str, ...], None] = {}
    alone: set[str] = set()
    written: dict[tuple[int, str], tuple[tuple[str, ...], HostCall]] = {}
    for call in calls:
        read, write, count = places.get(call.name, (0, 0, -1))
        where = call.function
        if len(call.arguments) != count or where is None:
            continue
        taken = text(call.arguments[read])
        before, writer = written.get((where, taken), ((), call))
        if before and _is_replaced(taken, writer, call):
            before = ()
        chain = before if call.name in before else (*before, call.name)
        written[where, text(call.arguments[write])] = chain, call
        if not before:
            alone.add(call.name)
        found[chain] = None
    shorter = {other[:k] for other in found for k in range(1, len(other))}
    ends = {c.name for c in calls if number_at(c.scope, c.configuration[0]) == 1}
    return [
        chain for chain in found
        if chain not in shorter and len(chain) > 1 and chain[-1] in ends
        and alone.isdisjoint(chain[1:])
    ]  # fmt: skip


def _is_replaced(array: str, one: HostCall, other: HostCall) -> bool:
    """Whether the host copies something to an array between two launches."""
    first, second = one.configuration[0], other.configuration[0]
    root = first
    while root.parent is not None:
        root = root.parent
    between = (root.text or b"")[first.end_byte : second.start_byte].decode(errors="replace")
    return re.search(rf"\bcudaMemcpy\w*\s*\(\s*{re.escape(array)}\s*,", between) is not None


def joined(path: Path, links: Sequence[Kernel]) -> Kernel:
    """One kernel of several that run one after the other. Raises UsageError if one leaves nothing
    to the next, or something that the next does not read."""
    for one, following in pairwise(links):
        if one.finish == "atomic":
            raise UsageError(
                f"{path}: {one.id} leaves one value and no partials: give --chain without "
                f"{following.id}"
            )
    head = links[0]
    dtypes = tuple(name for name in head.dtypes if _passes(links, name))
    ops = tuple(op for op in head.ops if all(op in link.ops for link in links))
    if not dtypes or not ops:
        raise UsageError(
            f"{path}: {links[1].id} does not read what {head.id} writes: their types or operators "
            "differ, so they are no --chain"
        )
    chain = reduce(_before, reversed(links))  # from the last to the first
    name = "+".join(link.entry.removeprefix("run_") for link in links)
    return replace(chain, id=name, title=f"{name} of {path.name}", dtypes=dtypes, ops=ops)


def _before(then: Kernel, one: Kernel) -> Kernel:
    """A kernel with another one behind it, which may need each of its blocks."""
    always = one.exactly or (one.fixed_grid is not None and then.whole_tiles)
    return replace(one, then=then, finish=then.finish, exactly=always)


def _passes(links: Sequence[Kernel], dtype: str) -> bool:
    """Whether what is made of elements of a type is read by the next, link by link; from the first
    on it stays of one type."""
    left = set()
    for link in links:
        if dtype not in link.dtypes:
            return False
        dtype = link.partials if link.partials in DTYPES else dtype
        left.add(dtype)
    return len(left) == 1
