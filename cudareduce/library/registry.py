"""The kernels and suites there are: every `.cu` file below the kernels folder, nothing else.

One file is one kernel and its whole registration; its id is the file's name. A suite is a published
experiment that names kernels in its author's order, under its author's names.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.grouping import first_few
from cudareduce.library.header import SOURCES
from cudareduce.library.kernel import Adopt, Kernel, load_kernel, load_kernels
from cudareduce.library.suite import Suite, load_suite

_PACKAGE = Path(__file__).resolve().parent.parent
#: The folder of kernels that several GPUs run together: no reductions of one, and with a header of
#: their own (several/kernels.py).
EXCHANGES = "ranks"

#: The part of a kernel's name that a short name leaves out.
PREFIX = "reduce_"
#: The most kernels that an error lists.
_LISTED = 10

#: What is no kernel, but the best one for a problem: in any order of blocks, and in a fixed one, in
#: which a sum of floats has the same bits each time.
AUTO, AUTO_FIXED = "auto", "auto:fixed"


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel to run, under a suite's name for it where a suite was asked for. One of `among` is
    to be chosen for each problem where there are any, and `kernel` only stands for it."""

    kernel: Kernel
    suite: str | None = None
    name: str | None = None
    block: int | None = None
    items: int | None = None
    among: tuple[Kernel, ...] = ()


@dataclass(frozen=True, slots=True)
class Registry:
    """All kernels in order of lineage, and all suites."""

    kernels: Mapping[str, Kernel]
    suites: Mapping[str, Suite]

    def choose(
        self, patterns: Sequence[str], adopt: Adopt | None = None, *, auto: bool = False,
        libraries: Sequence[str] = (),
    ) -> list[Choice]:  # fmt: skip
        """The kernels that these names stand for, in order, each once.

        A name is a kernel, a short name (`v7_shuffle`, or words that one kernel alone has), a
        suite, a family, a glob, FILE.cu, `all`, `auto` or `auto:fixed`; no names mean `all`. With
        `auto` the names `auto` and `auto:fixed` are allowed. `adopt` makes kernels of external
        files. If two kernels have the same name, the external one is called by its path. Raises
        UsageError for an unknown name, with similar ones (also of `libraries`), and for an
        ambiguous one.
        """
        chosen: dict[tuple[str, int | None, int | None], Choice] = {}
        taken = {name: kernel.path.resolve() for name, kernel in self.kernels.items()}
        taken |= dict.fromkeys((AUTO, AUTO_FIXED), Path())  # which no file may bear
        families = dict.fromkeys(kernel.family for kernel in self.kernels.values())
        near = [
            *self.kernels,
            *self.suites,
            *families,
            *((AUTO, AUTO_FIXED) if auto else ()),
            *libraries,
        ]
        what = "kernel, suite or library" if libraries else "kernel or suite"
        for pattern in patterns or ["all"]:
            found = self._match(pattern, adopt)
            if found is None:
                raise UsageError(f"no {what} is called {pattern!r}: {hint(pattern, near)}")
            for choice in found:
                if choice.among and not auto:
                    raise UsageError(
                        f"{pattern} stands for another kernel from problem to problem: name one "
                        f"here (`cudareduce bench {pattern}` says which it takes)"
                    )
                kernel = choice.kernel
                path = Path() if choice.among else kernel.path.resolve()
                if taken.setdefault(kernel.id, path) != path:
                    kernel = replace(kernel, id=_by_path(kernel), symbol=kernel.entry)
                own = replace(choice, kernel=kernel)
                chosen.setdefault((kernel.id, choice.block, choice.items), own)
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
            among = tuple(self.kernels.values())
            stand_in = replace(among[0], id=pattern, after=None)
            return [Choice(stand_in, among=among)]
        if pattern in self.suites:
            return [
                Choice(self.kernels[row.kernel], pattern, row.name, row.block, row.items)
                for row in self.suites[pattern].rows
            ]
        if pattern.endswith(SOURCES):
            path = Path(pattern)
            found = load_kernels(path, adopt) if adopt is not None else [load_kernel(path)]
            return [Choice(kernel) for kernel in found]
        family = [kernel for kernel in self.kernels.values() if kernel.family == pattern]
        if family and PREFIX + pattern in self.kernels:
            ids = first_few([PREFIX + pattern, *(kernel.id for kernel in family)], _LISTED)
            raise UsageError(f"{pattern!r} is a kernel and a family: name some of {ids}")
        if family:
            return [Choice(kernel) for kernel in family]
        names = fnmatch.filter(self.kernels, full_name(pattern, self.kernels))
        return [Choice(self.kernels[name]) for name in names] or None

    def suite(self, name: str) -> Suite:
        """A suite by its name; an unknown one is a UsageError that lists them."""
        if name not in self.suites:
            names = ", ".join(self.suites)
            raise UsageError(f"there is no suite {name!r}; the suites are: {names}")
        return self.suites[name]

    def published(self, kernel: Kernel) -> dict[str, list[str]]:
        """Under which names which suites carry a kernel, by the suites' ids."""
        return {
            suite.id: names
            for suite in self.suites.values()
            if (names := [row.name for row in suite.rows if row.kernel == kernel.id])
        }

    @property
    def names(self) -> list[str]:
        """What the rows of a result may be called, but for libraries and files."""
        return [*self.kernels, AUTO, AUTO_FIXED]

    @property
    def roots(self) -> dict[str, str]:
        """The kernel that begins each one's lineage, by their ids."""
        return {name: self.root(kernel).id for name, kernel in self.kernels.items()}

    def place(self, name: str) -> tuple[Path, int] | None:
        """File and line where a kernel's entry point begins; None for one that is not here."""
        kernel = self.kernels.get(name)
        return (kernel.path, kernel.entry_line) if kernel else None

    def root(self, kernel: Kernel) -> Kernel:
        """The first kernel of a lineage; a KeyError if a step between is not in the registry."""
        while (before := self.kernels.get(kernel.after or "")) is not None:
            kernel = before
        return kernel


def _by_path(kernel: Kernel) -> str:
    """A name that no other has: its file's, and its own where that is another."""
    return str(kernel.path) if kernel.id == kernel.path.stem else f"{kernel.path}:{kernel.id}"


def hint(name: str, names: Sequence[str]) -> str:
    """What to say of a name that is not among these: the nearest that are."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    near += [other for other in names if name in other and other not in near][:3]
    return f"did you mean {' or '.join(near)}?" if near else "`cudareduce list` shows them"


def full_name(name: str, kernels: Collection[str]) -> str:
    """The name or glob that a short one stands for among these kernels: `v7_shuffle` or `v7` for
    `reduce_v7_shuffle`. Others are returned unchanged. Raises UsageError for words that several
    kernels have in their names."""
    for full in (name, PREFIX + name):
        if fnmatch.filter(kernels, full):
            return full
    found = [kernel for kernel in kernels if f"_{name}_" in f"_{kernel}_"]
    if len(found) > 1:
        raise UsageError(f"{name!r} is ambiguous: name one of {first_few(found, _LISTED)}")
    return found[0] if found else name


def asked_for(kernel: str, names: Sequence[str], choices: Iterable[Choice]) -> bool:
    """True if names on the command line stand for a kernel of a baseline, which may be gone."""
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
    """Where the kernels are: inside an installed package, beside the package in a checkout. Nowhere
    is a UsageError."""
    for folder in (_PACKAGE / "kernels", _PACKAGE.parent / "kernels"):
        if folder.is_dir():
            return folder
    raise UsageError("the kernels folder is missing: install cudareduce again")


def kernel_files(folder: Path) -> list[Path]:
    """The kernels of a folder, in it and one below, in the order of their paths."""
    found = [*folder.glob("*.cu"), *folder.glob("*/*.cu")]
    return sorted(path for path in found if path.parent != folder / EXCHANGES)


def steps_of(kernels: Mapping[str, Kernel]) -> dict[str | None, list[Kernel]]:
    """The kernels that are a step from each, by its id; under None those that begin a lineage."""
    steps: dict[str | None, list[Kernel]] = {}
    for kernel in kernels.values():
        steps.setdefault(kernel.after, []).append(kernel)
    return steps


def _by_lineage(kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """Each kernel behind the one that it is a step from: a lineage is followed to its end before
    its branches, first within its family, then by name."""
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
    """Read every kernel and suite; `extra` folders hold a user's own, one level deep or flat.

    What is no folder, a file that does not load, two kernels of one name, and a header or suite
    that names a kernel which is not there are UsageErrors.
    """
    kernels: dict[str, Kernel] = {}
    suites: dict[str, Suite] = {}
    own = kernels_folder()
    for folder in (own, *extra):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of kernels")
        for path in kernel_files(folder):
            family = path.parent.name if path.parent != folder else folder.name
            kernel = load_kernel(path, family, foreign=folder != own)
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
    return Registry(_by_lineage(kernels), suites)
