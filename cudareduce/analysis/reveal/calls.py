"""The targets of `reveal`: kernels and libraries by name, for every size and type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cudareduce.analysis.reveal.probing import why_not
from cudareduce.backends.selection import BackendSpec, default_cache
from cudareduce.catalog.registry import Choice, Registry
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries import catalogue
from cudareduce.libraries.catalogue import Listing
from cudareduce.libraries.contract import Library
from cudareduce.libraries.names import NAMES
from cudareduce.machine import DeviceLimits
from cudareduce.progress import say
from cudareduce.reduction.operators import Reduction
from cudareduce.verify.verdict import Cause


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """A kernel on one problem."""

    case: Case
    plan: Plan

    @property
    def problem(self) -> Problem:
        """The problem, in the kernel's own shape."""
        return self.plan.problem

    @property
    def name(self) -> str:
        """The name in results."""
        return self.case.kernel.id


@dataclass(frozen=True, slots=True)
class LibraryTarget:
    """A library call on one problem; `listing` locates its module."""

    listing: Listing
    library_name: str
    problem: Problem

    @property
    def library(self) -> Library:
        """The library."""
        return next(
            library for library in self.listing.libraries() if library.name == self.library_name
        )

    @property
    def name(self) -> str:
        """The name in results."""
        return f"peer:{self.library_name}"


@dataclass(frozen=True, slots=True)
class Job:
    """Reveal one target. The limits in s are `limit_s` for all probes, and `first_s` each for the
    import of a library and its first result. `folder` is the cache of a library's compiled code."""

    spec: BackendSpec
    call: KernelTarget | LibraryTarget
    limit_s: float
    first_s: float
    folder: str

    @property
    def alone(self) -> str | None:
        """The name of a library that needs its own process, else None."""
        if isinstance(self.call, LibraryTarget) and self.call.library.context == "own":
            return self.call.name
        return None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Compile the kernels of several targets in parallel, into the cache."""

    spec: BackendSpec
    calls: tuple[KernelTarget, ...]


#: The name that selects all libraries.
_ALL_LIBRARIES = "peers"
#: Largest input in bytes. Much smaller sizes show the same order.
_MOST_BYTES = 2**32
_ON_CPU = "runs on a GPU, and this is the CPU emulator"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A kernel or library that does not support a problem, and why."""

    name: str
    problem: Problem
    reason: str
    cause: Cause = "unfit"


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedTargets:
    """The kernels and libraries that are selected by name."""

    kernels: tuple[Choice, ...] = ()
    libraries: tuple[tuple[catalogue.Listing, Library], ...] = ()

    def only(self, name: str) -> SelectedTargets:
        """The selection reduced to the kernel or library with this name in results."""
        return SelectedTargets(
            kernels=tuple(choice for choice in self.kernels if choice.kernel.id == name),
            libraries=tuple(pair for pair in self.libraries if pair[1].id == name),
        )


def select_targets(
    names: Sequence[str], registry: Registry, files: LaunchOptions, quiet: bool,
    shapes: Sequence[tuple[int, int]],
) -> SelectedTargets:  # fmt: skip
    """Select kernels and libraries by name; `files` are the options for external kernel files,
    which are recorded at `shapes`. Raises UsageError for an unknown name."""
    own = [name for name in names if _library(name, registry) is None]

    take = ExternalFiles(files, partial(say, quiet=quiet), shapes, default_cache())
    library_names = (*NAMES, _ALL_LIBRARIES)
    kernels = registry.choose(own, take, libraries=library_names) if own else []
    libraries = {
        library.name: (listing, library)
        for name in names for listing, library in _libraries_of(name, _library(name, registry))
    }  # fmt: skip
    return SelectedTargets(kernels=tuple(kernels), libraries=tuple(libraries.values()))


def _library(name: str, registry: Registry) -> str | None:
    """The package of a library's name, or `peers`; None if it is the name of a kernel."""
    library = name.removeprefix("peer:").partition(":")[0]
    if name in registry.kernels or name in registry.suites:
        return None
    return library if library in (*NAMES, _ALL_LIBRARIES) or name.startswith("peer:") else None


def _libraries_of(name: str, library: str | None) -> Iterator[tuple[catalogue.Listing, Library]]:
    if library is None:
        return
    full_name = name.removeprefix("peer:")
    listings = catalogue.listings(NAMES if library == _ALL_LIBRARIES else (library,))
    found = [(listing, library) for listing in listings for library in listing.libraries()]
    if full_name not in (library, _ALL_LIBRARIES):
        found = [(listing, library) for listing, library in found if library.name == full_name]
    if not found:
        raise UsageError(f"no library is called {name!r}: see cudareduce list peers")
    yield from found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Reductions and sizes to reveal, with block size and items per thread; None is the kernel's
    own value."""

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    rows: int
    block: int | None
    items: int | None


def calls(
    what: SelectedTargets, shapes: Shapes, limits: DeviceLimits, lacks: Sequence[str], *, gpu: bool
) -> Iterator[KernelTarget | LibraryTarget | Refusal]:
    """Each target on each problem, or its refusal. Integer types are ignored if float types are
    requested, too. Raises UsageError for an input that is too large."""
    floats = [r for r in shapes.reductions if r.dtype.kind == "float"]
    for reduction in floats or shapes.reductions:
        for n in shapes.sizes:
            problem = Problem(reduction, n, shapes.rows)
            if problem.input_bytes > _MOST_BYTES:
                raise UsageError(
                    f"{problem.elements} elements of {reduction.dtype.name} are too many for "
                    "reveal: give a smaller --n, or fewer --rows (only the first is probed)"
                )
            for choice in what.kernels:
                yield _kernel_call(choice, problem, shapes, limits, lacks)
            for listing, library in what.libraries:
                reason = why_not(reduction, n) or library.why_not(problem)
                if reason:
                    yield Refusal(library.id, problem, reason)
                elif not gpu:
                    yield Refusal(library.id, problem, _ON_CPU, cause="machine")
                else:
                    yield LibraryTarget(listing, library.name, problem)


def _kernel_call(
    choice: Choice, problem: Problem, shapes: Shapes, limits: DeviceLimits, lacks: Sequence[str]
) -> KernelTarget | Refusal:
    kernel, reduction = choice.kernel, problem.reduction
    block = shapes.block or choice.block or kernel.block
    size = reduction.dtype.size
    items = shapes.items or choice.items or kernel.items_of(size)
    case = Case(kernel, reduction, block, items)
    reason = kernel.why_not_block(block) or kernel.why_not_items(items, size)
    if reduction.op.name == "sum":
        reason = kernel.why_not(reduction) or reason
    if reason is None:
        try:
            plan = case.plan(problem.n, problem.rows, limits)
        except UsageError as error:
            reason = str(error).removeprefix(f"{kernel.id} ")
    reason = why_not(reduction, kernel.shape(problem.n, problem.rows)[0]) or reason
    if reason:
        return Refusal(kernel.id, problem, reason)
    lacking = next((word for word in kernel.requires if word in lacks), None)
    if lacking:
        why = f"needs hardware that the CPU does not emulate: {lacking}"
        return Refusal(kernel.id, problem, why, cause="machine")
    return KernelTarget(case, plan)
