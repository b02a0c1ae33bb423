"""The calls to reveal: kernels and libraries by name, for every size and type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cudareduce.backends import BackendSpec, default_cache
from cudareduce.errors import UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan, Problem
from cudareduce.libraries import catalogue
from cudareduce.libraries.catalogue import Listing
from cudareduce.libraries.contract import Library
from cudareduce.libraries.names import NAMES
from cudareduce.library.registry import Choice, Registry
from cudareduce.machine.device import DeviceLimits
from cudareduce.progress import say
from cudareduce.reduction.operators import Reduction
from cudareduce.reveal.probing import why_not
from cudareduce.verify.verdict import Cause


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A call of a kernel."""

    case: Case
    plan: Plan

    @property
    def problem(self) -> Problem:
        """The problem, in the shape that the kernel sees."""
        return self.plan.problem

    @property
    def name(self) -> str:
        """The name in results."""
        return self.case.kernel.id


@dataclass(frozen=True, slots=True)
class PeerCall:
    """A call of a library; `listing` locates its module."""

    listing: Listing
    peer_name: str
    problem: Problem

    @property
    def peer(self) -> Library:
        """The library."""
        return next(peer for peer in self.listing.libraries() if peer.name == self.peer_name)

    @property
    def name(self) -> str:
        """The name in results."""
        return f"peer:{self.peer_name}"


@dataclass(frozen=True, slots=True)
class Job:
    """Reveal one call: its probes within `limit_s` seconds; before that, the import of a library
    and its first result within `first_s` each. `folder` keeps code compiled for a library."""

    spec: BackendSpec
    call: KernelCall | PeerCall
    limit_s: float
    first_s: float
    folder: str

    @property
    def alone(self) -> str | None:
        """The name of a library that needs a process of its own, else None."""
        if isinstance(self.call, PeerCall) and self.call.peer.context == "own":
            return self.call.name
        return None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Compile the kernels of several calls in parallel; later each is found in the cache."""

    spec: BackendSpec
    calls: tuple[KernelCall, ...]


#: The name that selects all libraries.
_ALL_PEERS = "peers"
#: Largest input: only one row is probed, and an order shows at much smaller sizes.
_MOST_BYTES = 2**32
_ON_CPU = "runs on a GPU, and this is the CPU emulator"


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is not supported, and why."""

    name: str
    problem: Problem
    reason: str
    cause: Cause = "unfit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The kernels and libraries selected by names."""

    kernels: tuple[Choice, ...] = ()
    peers: tuple[tuple[catalogue.Listing, Library], ...] = ()

    def only(self, name: str) -> Chosen:
        """Only the kernel or library with this name in results, if selected."""
        return Chosen(
            kernels=tuple(choice for choice in self.kernels if choice.kernel.id == name),
            peers=tuple(pair for pair in self.peers if pair[1].id == name),
        )


def chosen(
    names: Sequence[str], registry: Registry, files: LaunchOptions, quiet: bool,
    shapes: Sequence[tuple[int, int]],
) -> Chosen:  # fmt: skip
    """Select kernels and libraries by name; `files` are the options for external kernel files,
    which are recorded at `shapes`. Raises UsageError for an unknown name."""
    own = [name for name in names if _library(name, registry) is None]

    take = ExternalFiles(files, partial(say, quiet=quiet), shapes, default_cache())
    libraries = (*NAMES, _ALL_PEERS)
    kernels = registry.choose(own, take, libraries=libraries) if own else []
    peers = {
        peer.name: (listing, peer)
        for name in names for listing, peer in _peers(name, _library(name, registry))
    }  # fmt: skip
    return Chosen(kernels=tuple(kernels), peers=tuple(peers.values()))


def _library(name: str, registry: Registry) -> str | None:
    """The library of a name, or `peers`; None if it is the name of a kernel."""
    library = name.removeprefix("peer:").partition(":")[0]
    if name in registry.kernels or name in registry.suites:
        return None
    return library if library in (*NAMES, _ALL_PEERS) or name.startswith("peer:") else None


def _peers(name: str, library: str | None) -> Iterator[tuple[catalogue.Listing, Library]]:
    if library is None:
        return
    asked = name.removeprefix("peer:")
    listings = catalogue.listings(NAMES if library == _ALL_PEERS else (library,))
    found = [(listing, peer) for listing in listings for peer in listing.libraries()]
    if asked not in (library, _ALL_PEERS):
        found = [(listing, peer) for listing, peer in found if peer.name == asked]
    if not found:
        raise UsageError(f"no library is called {name!r}: see cudareduce list peers")
    yield from found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Sizes and types to reveal, with the requested block size and items per thread; None is the
    kernel's own."""

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    rows: int
    block: int | None
    items: int | None


def calls(
    what: Chosen, shapes: Shapes, limits: DeviceLimits, lacks: Sequence[str], *, gpu: bool
) -> Iterator[KernelCall | PeerCall | Refused]:
    """Every call, or why it is not supported. Integers are ignored if floats are requested too.
    Raises UsageError for an input that is too large."""
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
            for listing, peer in what.peers:
                reason = why_not(reduction, n) or peer.why_not(problem)
                if reason:
                    yield Refused(peer.id, problem, reason)
                elif not gpu:
                    yield Refused(peer.id, problem, _ON_CPU, cause="machine")
                else:
                    yield PeerCall(listing, peer.name, problem)


def _kernel_call(
    choice: Choice, problem: Problem, shapes: Shapes, limits: DeviceLimits, lacks: Sequence[str]
) -> KernelCall | Refused:
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
        return Refused(kernel.id, problem, reason)
    lacking = next((word for word in kernel.requires if word in lacks), None)
    if lacking:
        why = f"needs hardware that the CPU does not emulate: {lacking}"
        return Refused(kernel.id, problem, why, cause="machine")
    return KernelCall(case, plan)
