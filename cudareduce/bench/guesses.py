"""What is guessed of a file without a header: another guess is tried before the first counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudareduce.bench.cases import case
from cudareduce.bench.session import Session
from cudareduce.library.foreign import finish_once
from cudareduce.library.header import GridRule
from cudareduce.library.mapped import maps_in
from cudareduce.library.registry import Choice
from cudareduce.progress import say
from cudareduce.verify.shapes import guess_net


def settled(session: Session, choices: Sequence[Choice], quiet: bool) -> list[Choice]:
    """The choices, of those whose grid, map or size is a guess with what gives right answers; where
    that is not the first, it is said."""
    found = []
    for choice in (part for whole in choices for part in _apart(session, whole, quiet)):
        for settle in (_grid, _mapped, _one_tile):
            choice = settle(session, choice, quiet)
        found.append(choice)
    return found


def _apart(session: Session, choice: Choice, quiet: bool) -> list[Choice]:
    """Of a chain that is a guess, and wrong, its kernels as rows of their own if one is right."""
    kernel = choice.kernel
    if not kernel.apart or _is_right(session, choice) is not False:
        return [choice]
    parts = [replace(choice, kernel=part) for part in kernel.apart]
    if not any(_is_right(session, part) for part in parts):
        return [choice]
    say(
        f"{kernel.path}: {kernel.id} is wrong as one row, and not all of its kernels are alone, so "
        "each is a row: --chain says otherwise",
        quiet,
    )
    return parts


def _mapped(session: Session, choice: Choice, quiet: bool) -> Choice:
    """Of a kernel that is wrong about elements, but right about what its text makes of them, the
    latter."""
    kernel = choice.kernel
    asked = any(reduction.map for reduction in session.settings.reductions)
    if "map" not in (kernel.guessed or ()) or kernel.map or asked:
        return choice
    maps = maps_in(kernel.text)
    if not maps or _is_right(session, choice) is not False:
        return choice
    finish = finish_once(kernel)  # launched again on its partials it would map them, too
    for mapped in maps:
        second = replace(choice, kernel=replace(kernel, map=mapped, finish=finish))
        if _is_right(session, second):
            say(
                f"{kernel.path}: its answers are wrong as those of elements, and right as those of "
                f"{mapped.expression}, so it is taken for that: --map says which",
                quiet,
            )
            return second
    return choice


def _one_tile(session: Session, choice: Choice, quiet: bool) -> Choice:
    """Of a kernel that has one block, and is wrong unless that takes all elements at once, what
    takes no more than those."""
    kernel = choice.kernel
    if not (kernel.in_place and kernel.grid == "one" and kernel.guessed):
        return choice
    block = session.settings.block or kernel.block
    most = block * (session.settings.items or kernel.items)
    second = replace(choice, kernel=replace(kernel, most=min(most, kernel.most or most)))
    if _is_right(session, choice) is not False or not _is_right(session, second):
        return choice
    say(
        f"{kernel.path}: its one block is wrong about more than {most} elements, and right up to "
        "them, so it is given no more: --block and --items say how many",
        quiet,
    )
    return second


def _grid(session: Session, choice: Choice, quiet: bool) -> Choice:
    kernel = choice.kernel
    if "grid" not in (kernel.guessed or ()) or kernel.scope == "rows":
        return choice
    if kernel.grid == "one" or "gridDim" not in kernel.text:
        return choice
    other: GridRule = "fill" if kernel.grid == "cover" else "cover"
    second = replace(choice, kernel=replace(kernel, grid=other, exactly=False))
    if _is_right(session, choice) is not False or not _is_right(session, second):
        return choice
    say(
        f"{kernel.path}: with grid {kernel.grid} its answers are wrong, with grid {other} they are "
        f"right, so it is launched with that: --grid says which",
        quiet,
    )
    return second


def _is_right(session: Session, choice: Choice) -> bool | None:
    """Whether a launch on a few blocks gives right answers; None where that is not to be had."""
    reduction = next(iter(session.settings.shares([choice])))
    found, refused = case(session, choice, reduction)
    if refused is not None or session.jobs.emulator is None:
        return None
    verdict = session.tried(found, [guess_net(found)])
    return None if verdict is None or verdict.outcome == "skip" else verdict.outcome == "pass"
