"""The registry of kernels and suites: every `.cu` file in the kernels folder is a kernel.

The id of a kernel is its file name; nothing else registers it. A suite is a published experiment,
which lists kernels in its author's order and with its author's names.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.catalog.front_matter import SOURCES
from cudareduce.catalog.kernel import Adopt, Kernel, load_kernel, load_kernels
from cudareduce.catalog.suite import Suite, load_suite
from cudareduce.errors import UsageError
from cudareduce.text import first_few

_PACKAGE = Path(__file__).resolve().parent.parent
#: The folder of multi-GPU exchange kernels, which have different front matter
#: (collectives/kernels.py).
EXCHANGES = "ranks"

#: The prefix of kernel names that short names omit.
PREFIX = "reduce_"
#: The largest number of kernels that an error message lists.
_LISTED = 10

#: Names for the best kernel for a problem. `auto:fixed` selects only kernels with a fixed summation
#: order, whose float sums are bitwise reproducible.
AUTO, AUTO_FIXED = "auto", "auto:fixed"


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel to run; `name` is its name in `suite`, if a suite was requested.

    For `auto` and `auto:fixed`, `candidates` are the kernels of which one is selected for
    each problem, and `kernel` is a placeholder."""

    kernel: Kernel
    suite: str | None = None
    name: str | None = None
    block: int | None = None
    items: int | None = None
    candidates: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """All kernels by id, in order of lineage, and all suites by id."""

    kernels: Mapping[str, Kernel]
    suites: Mapping[str, Suite]

    def choose(
        self, patterns: Sequence[str], adopt: Adopt | None = None, *, auto: bool = False,
        libraries: Sequence[str] = (),
    ) -> list[Choice]:  # fmt: skip
        """The kernels that match these names, in order, without duplicates.

        A name is a kernel, a short name (`v7_shuffle`, or words of one kernel's name only), a
        suite, a family, a glob, FILE.cu, or `all`, which is the default; if `auto` is true, also
        `auto` or `auto:fixed`. `adopt` converts external files to kernels. A file's kernel with the
        name of another kernel is renamed to its path. Raises UsageError for an ambiguous name, and
        for an unknown one, with similar names, also of `libraries`.
        """
        chosen: dict[tuple[str, int | None, int | None], Choice] = {}
        taken = {name: kernel.path.resolve() for name, kernel in self.kernels.items()}
        taken |= dict.fromkeys((AUTO, AUTO_FIXED), Path())  # not allowed as kernel names
        families = dict.fromkeys(kernel.family for kernel in self.kernels.values())
        known = [
            *self.kernels,
            *self.suites,
            *families,
            *((AUTO, AUTO_FIXED) if auto else ()),
            *libraries,
        ]
        what = "kernel, suite or library" if libraries else "kernel or suite"
        for pattern in patterns or ["all"]:
            matches = self._match(pattern, adopt)
            if matches is None:
                raise UsageError(f"no {what} is called {pattern!r}: {hint(pattern, known)}")
            for choice in matches:
                if choice.candidates and not auto:
                    raise UsageError(
                        f"{pattern} selects a kernel for each problem: name a kernel here "
                        f"(`cudareduce bench {pattern}` prints the one it selects)"
                    )
                kernel = choice.kernel
                path = Path() if choice.candidates else kernel.path.resolve()
                if taken.setdefault(kernel.id, path) != path:
                    kernel = replace(kernel, id=_path_name(kernel), symbol=kernel.entry)
                key = kernel.id, choice.block, choice.items
                chosen.setdefault(key, replace(choice, kernel=kernel))
        for kernel in (choice.kernel for choice in chosen.values()):
            if kernel.after == kernel.entry:
                raise UsageError(f"{kernel.path}: after: {kernel.after!r} is this kernel itself")
            if kernel.after is not None and kernel.after not in taken:
                raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
        return list(chosen.values())

    def _match(self, pattern: str, adopt: Adopt | None) -> Iterable[Choice] | None:
        if pattern == "all":
            return [Choice(kernel) for kernel in self.kernels.values()]
        if pattern in self.kernels:
            return [Choice(self.kernels[pattern])]
        if pattern in (AUTO, AUTO_FIXED):
            candidates = tuple(self.kernels.values())
            placeholder = replace(candidates[0], id=pattern, after=None)
            return [Choice(placeholder, candidates=candidates)]
        if pattern in self.suites:
            return [
                Choice(self.kernels[row.kernel], pattern, row.name, row.block, row.items)
                for row in self.suites[pattern].rows
            ]
        if pattern.endswith(SOURCES):
            path = Path(pattern)
            kernels = load_kernels(path, adopt) if adopt is not None else [load_kernel(path)]
            return [Choice(kernel) for kernel in kernels]
        family = [kernel for kernel in self.kernels.values() if kernel.family == pattern]
        if family and PREFIX + pattern in self.kernels:
            ids = first_few([PREFIX + pattern, *(kernel.id for kernel in family)], _LISTED)
            raise UsageError(f"{pattern!r} is a kernel and a family: name some of {ids}")
        if family:
            return [Choice(kernel) for kernel in family]
        names = fnmatch.filter(self.kernels, full_name(pattern, self.kernels))
        return [Choice(self.kernels[name]) for name in names] or None

    def suite(self, name: str) -> Suite:
        """The suite of this name. Raises UsageError with a list of all suites if there is none."""
        if name not in self.suites:
            names = ", ".join(self.suites)
            raise UsageError(f"there is no suite {name!r}; the suites are: {names}")
        return self.suites[name]

    def published(self, kernel: Kernel) -> dict[str, list[str]]:
        """The names of a kernel in each suite that contains it, by suite id."""
        return {
            suite.id: names
            for suite in self.suites.values()
            if (names := [row.name for row in suite.rows if row.kernel == kernel.id])
        }

    @property
    def names(self) -> list[str]:
        """All possible row names of results except those of libraries and files."""
        return [*self.kernels, AUTO, AUTO_FIXED]

    @property
    def roots(self) -> dict[str, str]:
        """The id of the first kernel of each kernel's lineage, by kernel id."""
        return {name: self.root(kernel).id for name, kernel in self.kernels.items()}

    def place(self, name: str) -> tuple[Path, int] | None:
        """File and line of a kernel's entry point; None for a name that is not in the registry."""
        kernel = self.kernels.get(name)
        return (kernel.path, kernel.entry_line) if kernel else None

    def root(self, kernel: Kernel) -> Kernel:
        """The first kernel of a kernel's lineage."""
        while (before := self.kernels.get(kernel.after or "")) is not None:
            kernel = before
        return kernel


def _path_name(kernel: Kernel) -> str:
    """A unique name: the path of the file, followed by the kernel's name if that differs."""
    return str(kernel.path) if kernel.id == kernel.path.stem else f"{kernel.path}:{kernel.id}"


def hint(name: str, names: Sequence[str]) -> str:
    """A hint for an unknown name: similar names, or how to list all."""
    similar = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    similar += [other for other in names if name in other and other not in similar][:3]
    return f"did you mean {' or '.join(similar)}?" if similar else "`cudareduce list` shows them"


def full_name(name: str, kernels: Collection[str]) -> str:
    """Expand a short name or glob: `v7_shuffle` and `v7` become `reduce_v7_shuffle`. Other names
    are returned unchanged. Raises UsageError for words in the names of several kernels."""
    for full in (name, PREFIX + name):
        if fnmatch.filter(kernels, full):
            return full
    matches = [kernel for kernel in kernels if f"_{name}_" in f"_{kernel}_"]
    if len(matches) > 1:
        raise UsageError(f"{name!r} is ambiguous: name one of {first_few(matches, _LISTED)}")
    return matches[0] if matches else name


def is_requested(kernel: str, names: Sequence[str], choices: Iterable[Choice]) -> bool:
    """True if the names on the command line include this kernel of a baseline, which may have been
    deleted since."""
    if (
        not names
        or "all" in names
        or any(
            fnmatch.fnmatchcase(kernel, prefix + name) for name in names for prefix in ("", PREFIX)
        )
    ):
        return True
    return any(choice.kernel.id == kernel for choice in choices)


def kernels_folder() -> Path:
    """The folder of kernels: in the package if it is installed, next to it in a checkout. Raises
    UsageError if there is none."""
    for folder in (_PACKAGE / "kernels", _PACKAGE.parent / "kernels"):
        if folder.is_dir():
            return folder
    raise UsageError("the kernels folder is missing: install cudareduce again")


def kernel_files(folder: Path) -> list[Path]:
    """The kernel files in a folder and in its subfolders, sorted by path."""
    files = [*folder.glob("*.cu"), *folder.glob("*/*.cu")]
    return sorted(path for path in files if path.parent != folder / EXCHANGES)


def steps_of(kernels: Mapping[str, Kernel]) -> dict[str | None, list[Kernel]]:
    """The direct successors of each kernel, by its id; under None the kernels without
    predecessor."""
    successors: dict[str | None, list[Kernel]] = {}
    for kernel in kernels.values():
        successors.setdefault(kernel.after, []).append(kernel)
    return successors


def _sort_by_lineage(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels in depth-first order of lineages, so that each follows its predecessor. Those of
    the same family come first, then by name. Raises UsageError for a circular lineage."""
    steps = steps_of(kernels)
    ordered: dict[str, Kernel] = {}

    def follow(after: str | None, family: str | None) -> None:
        for kernel in sorted(steps.get(after, ()), key=lambda k: (k.family != family, k.id)):
            ordered[kernel.id] = kernel
            follow(kernel.id, kernel.family)

    follow(None, None)
    circle = next((kernel for kernel in kernels.values() if kernel.id not in ordered), None)
    if circle is not None:
        raise UsageError(
            f"{circle.path}: after: {circle.after!r} leads back to {circle.id}: a lineage begins "
            "with a kernel that has no after"
        )
    return ordered


def load_registry(extra: Sequence[Path] = ()) -> Registry:
    """Load all kernels and suites, also those in the user's folders `extra` and their subfolders.

    Raises UsageError for a missing folder, an invalid file, two kernels of the same name, and a
    predecessor or a kernel of a suite that does not exist.
    """
    kernels: dict[str, Kernel] = {}
    suites: dict[str, Suite] = {}
    built_in = kernels_folder()
    for folder in (built_in, *extra):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of kernels")
        for path in kernel_files(folder):
            family = path.parent.name if path.parent != folder else folder.name
            kernel = load_kernel(path, family, foreign=folder != built_in)
            if kernel.id in kernels:
                raise UsageError(f"{path} and {kernels[kernel.id].path} have the same name")
            kernels[kernel.id] = kernel
        for path in sorted(folder.glob("suites/*.toml")):
            suites[path.stem] = load_suite(path)
    for kernel in kernels.values():
        if kernel.after is not None and kernel.after not in kernels:
            raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
    for suite in suites.values():
        for row in suite.rows:
            if row.kernel not in kernels:
                raise UsageError(f"suite {suite.id}: {row.name}: no kernel {row.kernel!r}")
    return Registry(_sort_by_lineage(kernels), suites)
