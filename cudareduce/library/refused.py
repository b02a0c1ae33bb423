"""Kernels of others that are no reductions, though they are called as one is."""

from __future__ import annotations

from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.body import Body
from cudareduce.library.combining import adds_up, combines, works_alone
from cudareduce.library.header import Finish, RowGrid
from cudareduce.library.parameters import Parameter
from cudareduce.library.syntax import Function
from cudareduce.library.thread_partials import is_of_elements, is_of_threads

#: What tells one block from another.
_OF_BLOCKS = frozenset(["blockIdx.x", "blockIdx.y"])

#: The body of a kernel that somebody has yet to write.
_NOTHING = frozenset(["{", "}", ";", "return"])
_PRINTS = frozenset(["printf"])
_FROM_ELSEWHERE = "such as their mean or maximum, which is found elsewhere and not understood"
#: What a kernel reads, a second array of that, and what it writes.
Roles = tuple[Parameter, Parameter | None, Parameter]


def _given_one(body: Body, roles: Roles, rows: RowGrid | None) -> str | None:
    """In the same words: which of two arrays is none of elements, since one value of it counts for
    all of them, or one for each row, which stands where the answer does."""
    read, other, write = roles
    for one in filter(None, (read, other)):
        if body.in_one_place(one.name):
            return f"takes one value of {one.name} for all of its elements, {_FROM_ELSEWHERE}"
        where = body.places(one.name)
        if rows and where and where <= body.places(write.name):
            zero = f"--arg {one.name}=zeroed:grid takes it as 0, and --map says what it adds then"
            return f"takes one value of {one.name} for each row, {_FROM_ELSEWHERE}; {zero}"
    return None


def why_no_reduction(
    function: Function, body: Body, roles: Roles, rows: RowGrid | None, count: Parameter | None
) -> str | None:
    """What a kernel with this count does instead of reducing, in words that follow its name:
    nothing, each thread writes what it makes of its own, rows of answers are as far apart as those
    of elements, an array holds what is found elsewhere, elements say themselves to which place they
    are added. None if nothing tells."""
    read, other, write = roles
    if read == write and body.words <= _NOTHING:
        return "does nothing, so it is no reduction"
    if read == write and not body.changes(write.name) and body.called <= _PRINTS:
        return "writes nothing, so it is no reduction"
    if rows and count and read != write and body.follows(write.name, frozenset([count.name])):
        return (
            f"writes rows of answers to {write.name}, as far apart as those of elements, as a "
            "softmax does, so it is no reduction"
        )
    if other is not None and (one := _given_one(body, roles, rows)):
        return one
    if not combines(function.body):
        alone = "threadIdx.x" in body.words and not adds_up(function.body, write.name)
        own = rows or alone or body.each(write.name) == "threads"
        return "combines nothing, so it is no reduction" if own else None
    apart = body.each(write.name) == "threads" and "gridDim.x" in body.words
    alone = read != write and not rows and works_alone(function.body)
    counted = count.name if count and not body.factors(count.name) else ""  # no matrix's length
    if alone and counted and is_of_elements(function.body, write.name, counted):
        return (
            f"sets a place of {write.name} for each element, as a map, a scan or a window does, so "
            "it is no reduction"
        )
    if alone and apart and not is_of_threads(function.body, read.name, write.name):
        return (
            f"leaves in {write.name} what threads have made of their elements, not one of each, "
            "which is not understood"
        )
    chosen = read != write and body.follows(write.name, frozenset([read.name]))
    if chosen and body.atomics(write.name):
        return (
            f"adds to places of {write.name} that its elements choose, as a histogram does, which "
            "is not understood"
        )
    return None


def is_one_row(body: Body, parameter: Parameter) -> bool:
    """Whether no block tells which elements of an array are taken, as of a vector that a matrix is
    multiplied by."""
    return body.follows(parameter.name, _OF_BLOCKS) is False


def check_ends(path: Path, kernel: str, finish: Finish, tile: int) -> None:
    """A UsageError if each launch leaves as many partials as it has taken."""
    if finish == "relaunch" and tile == 1:
        raise UsageError(
            f"{path}: {kernel} is launched again on what its blocks leave, which is a value for "
            "each element: say a larger --block, or --finish host"
        )
