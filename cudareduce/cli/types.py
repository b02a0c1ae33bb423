"""Parameter types: which values they accept, and the message for others."""

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

#: File types that cannot be read to their end, as tests of a mode.
DEVICES = (stat.S_ISCHR, stat.S_ISBLK)
#: File types that cannot be overwritten either.
NO_PLAIN_FILE = (*DEVICES, stat.S_ISFIFO, stat.S_ISSOCK)
#: Linux limits in bytes: of a file name, and of a path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095


class Sizes(click.ParamType[tuple[int, ...]]):
    """One size, a list, or a range."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        from cudareduce.reduction.sizes import parse_sizes

        if isinstance(value, tuple):
            return value
        try:
            return tuple(parse_sizes(value))
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Count(click.ParamType[int]):
    """An integer between two limits, written like a size (2^20, 1Mi)."""

    name = "N"

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        from cudareduce.reduction.sizes import parse_size

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
    """A list of integers between two limits, and ranges that double."""

    name = "N,..."

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        from cudareduce.reduction.sizes import parse_range

        if isinstance(value, tuple):
            return value
        try:
            numbers = [number for part in value.split(",") for number in parse_range(part)]
        except UsageError:
            numbers = []
        if not numbers or not all(self._low <= number <= self._high for number in numbers):
            limits = f"from {self._low} to {self._high}"
            self.fail(
                f"{reprlib.repr(value)} is not a list of whole numbers {limits}: write 8, "
                "8,16,132 or 8..128 (which doubles)",
                param, ctx,
            )  # fmt: skip
        return tuple(dict.fromkeys(numbers))


class CountOrWord(click.ParamType[int | str]):
    """An integer between two limits, or one of several words."""

    name = "N"

    def __init__(self, low: int, high: int, words: tuple[str, ...]) -> None:
        self._count, self._words = Count(low, high), words

    def convert(self, value: Any, param: Any, ctx: Any) -> int | str:
        return value if value in self._words else self._count.convert(value, param, ctx)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        return completed(self._words, incomplete)


class Amount(click.ParamType[float]):
    """A finite number, above 0 (or at least 0 with `zero`), up to a limit."""

    name = "NUMBER"

    def __init__(self, high: float, *, zero: bool = False) -> None:
        self._high, self._zero = high, zero

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (0 < number <= self._high or (self._zero and number == 0)):
            limits = f"{'from 0' if self._zero else 'above 0 and'} up to {self._high:g}"
            self.fail(f"{reprlib.repr(value)} is not a number {limits}", param, ctx)
        return number


class Word(click.ParamType[str]):
    """One of several words."""

    name = "WORD"

    def __init__(self, known: Iterable[str]) -> None:
        self.known = tuple(known)

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if value not in self.known:
            self.fail(f"{reprlib.repr(value)} is not one of: {', '.join(self.known)}", param, ctx)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        return completed(self.known, incomplete)


class Words(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of words, or `all`."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in words:
            if word not in (*self.known, "all"):
                known = ", ".join(self.known)
                self.fail(f"{reprlib.repr(word)} is not one of: {known}, all", param, ctx)
        return self.known if "all" in words else words

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        before, comma, _ = incomplete.rpartition(",")
        taken = before.split(",")
        words = [word for word in self.known if word not in taken] + ([] if comma else ["all"])
        return completed([f"{before}{comma}{word}" for word in words], incomplete)


class Peers(click.ParamType[tuple[str, ...]]):
    """A comma-separated list of libraries or of single calls such as `cub:run_to_run`, or `all`."""

    name = "NAMES"

    def __init__(self, known: tuple[str, ...]) -> None:
        self._libraries = Words(self.name, known)

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip().lower().removeprefix("peer:") for word in value.split(",")]
        libraries = [word.partition(":")[0] for word in words]
        known = self._libraries.convert(",".join(libraries), param, ctx)
        if words == libraries:
            return known
        from cudareduce.libraries.catalogue import listings

        peers = {peer.name for listing in listings(known) for peer in listing.libraries()}
        for word in words:
            if ":" in word and word not in peers:
                self.fail(
                    f"{reprlib.repr(word)} is not a library call: see `cudareduce list peers`",
                    param, ctx,
                )  # fmt: skip
        return known if "all" in words else tuple(dict.fromkeys(words))

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        return self._libraries.shell_complete(ctx, param, incomplete)


class Place(click.Path):
    """The path of a file or directory. `refused` are tests of a mode (such as `stat.S_ISCHR`) for
    file types that are not accepted."""

    def __init__(self, refused: tuple[Callable[[int], bool], ...] = (), **kinds: bool) -> None:
        super().__init__(path_type=Path, **kinds)
        self._refused = refused

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        problem = why_no_name(os.fspath(value)) or self._why_refused(value)
        if problem:
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)

    def _why_refused(self, value: Any) -> str | None:
        try:
            mode = Path(value).stat().st_mode
        except OSError as error:  # reported where the file is opened, except for endless links
            if str(value) == "-" and self._refused:  # an input
                return "standard input is not supported: name a file"
            return f"{value} is a link to itself" if error.errno == errno.ELOOP else None
        if any(kind(mode) for kind in self._refused):
            return f"{value} is a device or a pipe: name a file"
        return None


class ArraySource(click.ParamType[str]):
    """The word host, or a file."""

    name = "host|FILE.npy"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if value == "host":
            return "host"
        return str(Place(NO_PLAIN_FILE, dir_okay=False).convert(value, param, ctx))

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        return [*completed(("host",), incomplete), CompletionItem(incomplete, type="file")]


class Name(click.ParamType[str]):
    """A text that can be a name."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        problem = why_no_name(value)
        if problem:
            self.fail(problem, param, ctx)
        return str(value)


class Named(click.ParamType[str]):
    """The name of a kernel (or file), of a suite, or one of `words`."""

    def __init__(
        self, name: str, *, kernels: bool = True, suites: bool = False,
        words: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self._kernels, self._suites, self._words = name, kernels, suites, words

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        problem = why_no_name(value)
        if problem:
            raise click.UsageError(f"{self.name}: {problem}", ctx)
        return str(value)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        from cudareduce.library.registry import kernel_files, kernels_folder

        folders = (kernels_folder(), *(ctx.params.get("folders") or ()))
        names = []
        if self._kernels:
            names += sorted(path.stem for folder in folders for path in kernel_files(folder))
            folder, slash, _ = incomplete.rpartition("/")
            paths = sorted(Path(f"{folder}{slash}").glob("*.cu"))
            names += [f"{folder}{slash}{path.name}" for path in paths]
        if self._suites:
            suites = (path for folder in folders for path in folder.glob("suites/*.toml"))
            names += sorted(path.stem for path in suites)
        if self._kernels and self._suites:
            names.append("all")
        completions = completed([*names, *self._words], incomplete)
        # Without a match the shell completes file names.
        return completions or [CompletionItem(incomplete, type="file")] * self._kernels


def completed(words: Iterable[str], incomplete: str) -> list[CompletionItem[str]]:
    """The words that start with the typed text."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def why_no_name(text: str) -> str | None:
    """Why a text cannot be the name of a file or kernel; None if it can."""
    if not text:
        return "the name is empty"
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return f"{reprlib.repr(text)} contains control characters"
    parts = [os.fsencode(part) for part in text.split("/")]
    if max(map(len, parts)) > _LONGEST_NAME or len(os.fsencode(text)) > _LONGEST_PATH:
        return f"{reprlib.repr(text)} is too long for a name"
    return None


def options_of(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add
