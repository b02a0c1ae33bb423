"""Parameter types of options: parsing, error messages and shell completion."""

from __future__ import annotations

import errno
import os
import reprlib
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

from cudareduce.errors import UsageError

if TYPE_CHECKING:
    from cudareduce.compare.request import Versions

T = TypeVar("T")
#: File types that cannot be read to their end, as tests of a mode.
DEVICES = (stat.S_ISCHR, stat.S_ISBLK)
#: File types that cannot be overwritten either.
NO_PLAIN_FILE = (*DEVICES, stat.S_ISFIFO, stat.S_ISSOCK)
#: Linux limits in bytes: of a file name, and of a path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
_LONGEST_THRESHOLD = 20
#: The libraries of which two versions can be compared.
_LIBRARIES = ("nccl", "cub")


class Completed(click.ParamType[T], Generic[T]):
    """A parameter whose possible words the shell completes."""

    name = "TEXT"

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        """The words to suggest for an incomplete word."""
        return ()

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        return [
            CompletionItem(word) for word in self.words(incomplete, ctx)
            if word.startswith(incomplete)
        ]  # fmt: skip


class Parsed(Completed[T], ABC):
    """Parses a text with `parse`, which raises UsageError; other values are defaults."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """The value of a text. Raises UsageError."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Sizes(Parsed[tuple[int, ...]]):
    """One size, a list, or a range."""

    name = "SIZES"

    def parse(self, text: str) -> tuple[int, ...]:
        from cudareduce.reduction.sizes import parse_sizes

        return tuple(parse_sizes(text))


class Count(Parsed[int | str]):
    """An integer between two limits, written like a size (2^20, 1Mi), or one of several words."""

    name = "N"

    def __init__(self, low: int, high: int, words: tuple[str, ...] = ()) -> None:
        self._low, self._high, self._words = low, high, words

    def parse(self, text: str) -> int | str:
        from cudareduce.reduction.sizes import parse_size

        if text in self._words:
            return text
        try:
            number = parse_size(text)
        except UsageError:
            number = None
        if number is None or not self._low <= number <= self._high:
            limits = f"from {self._low} to {self._high}"
            raise UsageError(f"{reprlib.repr(text)} is not a whole number {limits}")
        return number

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        return self._words


class Counts(Parsed[tuple[int, ...]]):
    """A list of integers between two limits, and ranges that double."""

    name = "N,..."

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high

    def parse(self, text: str) -> tuple[int, ...]:
        from cudareduce.reduction.sizes import parse_range

        try:
            numbers = [number for part in text.split(",") for number in parse_range(part)]
        except UsageError:
            numbers = []
        if not numbers or not all(self._low <= number <= self._high for number in numbers):
            limits = f"from {self._low} to {self._high}"
            raise UsageError(
                f"{reprlib.repr(text)} is not a list of whole numbers {limits}: write 8, "
                "8,16,132 or 8..128 (which doubles)"
            )
        return tuple(dict.fromkeys(numbers))


class Amount(Parsed[float]):
    """A finite number, above 0 (or at least 0 with `zero`), up to a limit."""

    name = "NUMBER"

    def __init__(self, high: float, *, zero: bool = False) -> None:
        self._high, self._zero = high, zero

    def parse(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not (0 < number <= self._high or (self._zero and number == 0)):
            limits = f"{'from 0' if self._zero else 'above 0 and'} up to {self._high:g}"
            raise UsageError(f"{reprlib.repr(text)} is not a number {limits}")
        return number


class Threshold(Parsed[float]):
    """A percentage, as a share."""

    name = "PERCENT"

    def parse(self, text: str) -> float:
        from cudareduce.compare.request import parse_threshold

        if len(text) > _LONGEST_THRESHOLD:
            raise UsageError(f"{reprlib.repr(text)} is not a threshold: write 5% or 2.5%")
        return parse_threshold(text)


class Architectures(Parsed[tuple[int, ...]]):
    """A list of compute capabilities without the point."""

    name = "ARCHS"

    def parse(self, text: str) -> tuple[int, ...]:
        words = [word.strip().removeprefix("sm_") for word in text.split(",")]
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) < 4 and int(word) >= 50):
                raise UsageError(f"{reprlib.repr(word)} is not an architecture: write 75,80,90")
        return tuple(dict.fromkeys(int(word) for word in words))


class Word(Parsed[str]):
    """One of several words, or an alias of one."""

    name = "WORD"

    def __init__(self, known: Iterable[str], aliases: Mapping[str, str] = {}) -> None:
        self.known, self._aliases = tuple(known), aliases

    def parse(self, text: str) -> str:
        word = self._aliases.get(text, text)
        if word not in self.known:
            raise UsageError(f"{reprlib.repr(text)} is not one of: {', '.join(self.known)}")
        return word

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        return self.known


class Words(Parsed[tuple[str, ...]]):
    """A comma-separated list of words or of their aliases, or `all`."""

    def __init__(
        self, name: str, known: Iterable[str], aliases: Mapping[str, str] = {}
    ) -> None:  # fmt: skip
        self.name, self.known, self._aliases = name, tuple(known), aliases

    def parse(self, text: str) -> tuple[str, ...]:
        typed = (word.strip() for word in text.split(","))
        words = tuple(dict.fromkeys(self._aliases.get(word, word) for word in typed))
        for word in words:
            if word not in (*self.known, "all"):
                known = ", ".join(self.known)
                raise UsageError(f"{reprlib.repr(word)} is not one of: {known}, all")
        return self.known if "all" in words else words

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        before, comma, _ = incomplete.rpartition(",")
        taken = before.split(",")
        words = [word for word in self.known if word not in taken] + ([] if comma else ["all"])
        return [f"{before}{comma}{word}" for word in words]


class Peers(Words):
    """A comma-separated list of libraries or of single calls such as `cub:run_to_run`, or `all`."""

    def __init__(self, known: tuple[str, ...]) -> None:
        super().__init__("NAMES", known)

    def parse(self, text: str) -> tuple[str, ...]:
        words = [word.strip().lower().removeprefix("peer:") for word in text.split(",")]
        libraries = [word.partition(":")[0] for word in words]
        known = super().parse(",".join(libraries))
        if words == libraries:
            return known
        from cudareduce.libraries.catalogue import listings

        calls = {peer.name for listing in listings(known) for peer in listing.libraries()}
        for word in words:
            if ":" in word and word not in calls:
                raise UsageError(
                    f"{reprlib.repr(word)} is not a library call: see `cudareduce list peers`"
                )
        return known if "all" in words else tuple(dict.fromkeys(words))


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
        if stat.S_ISDIR(mode) and not self.dir_okay:
            return f"{value} is a directory: name a file"
        if not stat.S_ISDIR(mode) and not self.file_okay:
            return f"{value} is a file: name a directory"
        if self.readable and not os.access(value, os.R_OK):
            return f"permission to read {value} is denied: change its mode or name another"
        return None


class Files(Parsed[tuple[Path, ...]]):
    """Comma-separated files."""

    name = "FILE,..."

    def parse(self, text: str) -> tuple[Path, ...]:
        names = text.split(",")
        for problem in filter(None, map(why_no_name, names)):
            raise UsageError(problem)
        return tuple(map(Path, names))


class LibraryVersions(Parsed["Versions"]):
    """`--library NAME=OLD,NEW`."""

    name = "NAME=OLD,NEW"

    def parse(self, text: str) -> Versions:
        from cudareduce.compare.request import Versions

        form = f"NAME=OLD,NEW, where NAME is {' or '.join(_LIBRARIES)}"
        name, equals, paths = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} names no library: write {form}")
        if name not in _LIBRARIES:
            raise UsageError(f"{name!r} is no library that is compared: write {form}")
        files = Files().parse(paths)
        if len(files) != 2:
            raise UsageError(f"two versions are compared: write {name}=OLD,NEW")
        return Versions(name, *files)


class ArraySource(Completed[str]):
    """The word host, or a file."""

    name = "host|FILE.npy"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if value == "host":
            return "host"
        return str(Place(NO_PLAIN_FILE, dir_okay=False).convert(value, param, ctx))

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        return ("host",)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        words = super().shell_complete(ctx, param, incomplete)
        return [*words, CompletionItem(incomplete, type="file")]


class Name(Parsed[str]):
    """A text that can be a name."""

    name = "NAME"

    def parse(self, text: str) -> str:
        if problem := why_no_name(text):
            raise UsageError(problem)
        return text


class Named(Completed[str]):
    """The name of a kernel (or file), of a suite, of a family, or one of further words."""

    def __init__(
        self, name: str, *, kernels: bool = True, suites: bool = False, families: bool = False,
        words: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.name, self._kernels, self._suites, self._families = name, kernels, suites, families
        self._words = words

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if problem := why_no_name(value):
            raise click.UsageError(f"{self.name}: {problem}", ctx)
        return str(value)

    def words(self, incomplete: str, ctx: click.Context) -> Iterable[str]:
        from cudareduce.catalog.registry import PREFIX, kernel_files, kernels_folder

        folders = (kernels_folder(), *(ctx.params.get("folders") or ()))
        files = [path for folder in folders for path in kernel_files(folder)]
        families = {path.parent.name for path in files if path.parent not in folders}
        if self._kernels:
            names = sorted(path.stem for path in files)
            yield from names
            if incomplete:
                yield from sorted({n.removeprefix(PREFIX) for n in names} - families - {*names})
            folder, slash, _ = incomplete.rpartition("/")
            for path in sorted(Path(f"{folder}{slash}").glob("*.cu")):
                yield f"{folder}{slash}{path.name}"
        if self._suites:
            suites = (path for folder in folders for path in folder.glob("suites/*.toml"))
            yield from sorted(path.stem for path in suites)
        if self._families:
            yield from sorted(families)
        if self._kernels and self._suites:
            yield "all"
        yield from self._words

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        completions = super().shell_complete(ctx, param, incomplete)
        # Without a match the shell completes file names.
        return completions or [CompletionItem(incomplete, type="file")] * self._kernels


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
