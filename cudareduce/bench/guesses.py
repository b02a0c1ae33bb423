"""The grid of a file without a header: another guess is tried before the first counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cudareduce.bench.cases import case
from cudareduce.bench.session import Session
from cudareduce.library.header import GridRule
from cudareduce.library.registry import Choice
from cudareduce.progress import say
from cudareduce.verify.shapes import guess_net


def settled(session: Session, choices: Sequence[Choice], quiet: bool) -> list[Choice]:
    """The choices, of those whose grid is a guess with the one that gives right answers; where
    that is not the first, it is said."""
    return [_settled(session, choice, quiet) for choice in choices]


def _settled(session: Session, choice: Choice, quiet: bool) -> Choice:
    kernel = choice.kernel
    if "grid" not in (kernel.guessed or ()) or kernel.scope == "rows":
        return choice
    if "gridDim" not in kernel.text:
        return choice
    other: GridRule = "fill" if kernel.grid == "cover" else "cover"
    second = replace(choice, kernel=replace(kernel, grid=other))
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
    verdict = session.tried(found, guess_net(found))
    return None if verdict is None or verdict.outcome == "skip" else verdict.outcome == "pass"
