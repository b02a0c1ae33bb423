"""Types of options: what they take, and how a wrong value is answered."""

from __future__ import annotations

import errno
import math
import os
import reprlib
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cudareduce.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])

#: What cannot be read to its end.
DEVICES = (stat.S_ISCHR, stat.S_ISBLK)
#: What cannot be written anew, either.
NO_PLAIN_FILE = (*DEVICES, stat.S_ISFIFO, stat.S_ISSOCK)
#: What Linux takes, in bytes: a name in a folder, and a whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095


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


class Count(click.ParamType[int]):
    """A whole number between two limits, written as a size is."""

    name = "N"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """The number."""
        from cudareduce.problem.sizes import parse_size

        if isinstance(value, int):
            return value
        try:
            number = parse_size(value)
        except UsageError:
            number = None
        if number is None or not self._low <= number <= self._high:
            shown = reprlib.repr(value)
            limits = f"from {self._low} to {self._high}"
            self.fail(f"{shown} is not a whole number {limits}", param, ctx)
        return number


class Counts(click.ParamType[tuple[int, ...]]):
    """Whole numbers between two limits, with commas, and ranges that double."""

    name = "N,..."

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """The numbers, each once."""
        from cudareduce.problem.sizes import parse_range

        if isinstance(value, tuple):
            return value
        try:
            numbers = [number for part in value.split(",") for number in parse_range(part)]
        except UsageError:
            numbers = []
        if not numbers or not all(self._low <= number <= self._high for number in numbers):
            limits = f"from {self._low} to {self._high}"
            self.fail(
                f"{reprlib.repr(value)} is no list of whole numbers {limits}: write 8, 8,16,132 or "
                "8..128, which doubles",
                param, ctx,
            )  # fmt: skip
        return tuple(dict.fromkeys(numbers))


class CountOrWord(click.ParamType[int | str]):
    """A whole number between two limits, or one of some words in its place."""

    name = "N"

    def __init__(self, low: int, high: int, words: tuple[str, ...]) -> None:
        self._count, self._words = Count(low, high), words

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        """The number, or the word."""
        return value if value in self._words else self._count.convert(value, param, ctx)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """Words that begin so."""
        return completed(self._words, incomplete)


class Amount(click.ParamType[float]):
    """A finite number up to a limit; above 0, or from 0 on."""

    name = "NUMBER"

    def __init__(self, high: float, *, zero: bool = False) -> None:
        self._high, self._zero = high, zero

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """The number; `nan`, `inf` and what overflows are none."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (0 < number <= self._high or (self._zero and number == 0)):
            limits = f"{'from 0' if self._zero else 'above 0 and'} up to {self._high:g}"
            self.fail(f"{reprlib.repr(value)} is not a number {limits}", param, ctx)
        return number


class Word(click.ParamType[str]):
    """One of some known words."""

    name = "WORD"

    def __init__(self, known: Iterable[str]) -> None:
        self.known = tuple(known)

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """The word."""
        if value not in self.known:
            self.fail(f"{reprlib.repr(value)} is not one of: {', '.join(self.known)}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """Words that begin so."""
        return completed(self.known, incomplete)


class Words(click.ParamType[tuple[str, ...]]):
    """A list of known words with commas, or `all`."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """The words, each known."""
        if isinstance(value, tuple):
            return value
        words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in words:
            if word not in (*self.known, "all"):
                known = ", ".join(self.known)
                self.fail(f"{reprlib.repr(word)} is not one of: {known}, all", param, ctx)
        return self.known if "all" in words else words

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """What may follow the last comma."""
        before, comma, _ = incomplete.rpartition(",")
        taken = before.split(",")
        words = [word for word in self.known if word not in taken] + ([] if comma else ["all"])
        return completed([f"{before}{comma}{word}" for word in words], incomplete)


class Peers(click.ParamType[tuple[str, ...]]):
    """Libraries, or single ways to call one as results name them, with commas, or `all`."""

    name = "NAMES"

    def __init__(self, known: tuple[str, ...]) -> None:
        self._libraries = Words(self.name, known)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """The names, each known, in small letters."""
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower().removeprefix("peer:") for word in value.split(",")]
        libraries = [word.partition(":")[0] for word in words]
        known = self._libraries.convert(",".join(libraries), param, ctx)
        if words == libraries:
            return known
        from cudareduce.peers.catalogue import listings

        peers = {peer.name for listing in listings(known) for peer in listing.libraries()}
        for word in words:
            if ":" in word and word not in peers:
                self.fail(
                    f"{reprlib.repr(word)} is no way to call a library: `cudareduce list peers` "
                    "shows them", param, ctx,
                )  # fmt: skip
        return known if "all" in words else tuple(dict.fromkeys(words))

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """Libraries that may follow the last comma."""
        return self._libraries.shell_complete(ctx, param, incomplete)


def completed(words: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    """Those that begin as what is typed does, for a shell."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


class Place(click.Path):
    """A file or a folder, by a name that can be one. `refused` are the kinds of what is there that
    it must not be: tests of its mode, as `stat.S_ISCHR`."""

    def __init__(self, refused: tuple[Callable[[int], bool], ...] = (), **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)
        self._refused = refused

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The path."""
        problem = why_no_name(os.fspath(value)) or self._why_refused(value)
        if problem:
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)

    def _why_refused(self, value: Any) -> str | None:
        try:
            mode = Path(value).stat().st_mode
        except OSError as error:  # whoever opens it says so, but resolves its name before
            if str(value) == "-" and self._refused:  # to be read
                return "standard input is not read: name a file"
            return f"{value} is a link to itself" if error.errno == errno.ELOOP else None
        if any(kind(mode) for kind in self._refused):
            return f"{value} is a device or a pipe: name a file"
        return None


def why_no_name(text: str) -> str | None:
    """Why nothing can be called this, or None: it is empty, it has control characters, or it is
    longer than file systems allow."""
    if not text:
        return "the name is empty"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return f"{reprlib.repr(text)} has control characters in it, as no name here has"
    parts = [os.fsencode(part) for part in text.split("/")]
    if max(map(len, parts)) > _LONGEST_NAME or len(os.fsencode(text)) > _LONGEST_PATH:
        return f"{reprlib.repr(text)} is too long for a name"
    return None


class Name(click.ParamType[str]):
    """A text that can be a name."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """The same text."""
        problem = why_no_name(value)
        if problem:
            self.fail(problem, param, ctx)
        return str(value)


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
