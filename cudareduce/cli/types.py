"""Types of options: what they take, and how a wrong value is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cudareduce.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


class Sizes(click.ParamType[tuple[int, ...]]):
    """`--n`: one size, a list, or a range."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Sizes in elements."""
        from cudareduce.problem.sizes import parse_sizes

        if isinstance(value, tuple):
            return value
        try:
            return tuple(parse_sizes(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Words(click.ParamType[tuple[str, ...]]):
    """A list of known words with commas, or `all`."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """The words, each known."""
        if isinstance(value, tuple):
            return value
        if value == "all":
            return self.known
        words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in words:
            if word not in self.known:
                self.fail(f"{word!r} is not one of: {', '.join(self.known)}, all", param, ctx)
        return words


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
