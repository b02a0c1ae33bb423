"""Which calls are to be revealed: kernels and libraries by name, on every size and type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Problem
from cudareduce.library.foreign import adopting
from cudareduce.library.guesses import FileOptions
from cudareduce.library.registry import Choice, Registry
from cudareduce.machine.device import DeviceLimits
from cudareduce.peers import catalogue
from cudareduce.peers.contract import Peer
from cudareduce.peers.names import NAMES
from cudareduce.problem.operators import Reduction
from cudareduce.progress import say
from cudareduce.reveal.job import KernelCall, PeerCall
from cudareduce.reveal.masks import why_not
from cudareduce.verify.verdict import Cause

#: What stands for all libraries.
_ALL_PEERS = "peers"
#: No input is larger: one row is looked at, and an order shows long before.
_MOST_BYTES = 2**32
_ON_CPU = "runs on a GPU, and this is the CPU emulator"


@dataclass(frozen=True, slots=True)
class Refused:
    """What is not tried, and why."""

    name: str
    problem: Problem
    reason: str
    cause: Cause = "unfit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Kernels and libraries that names stand for."""

    kernels: tuple[Choice, ...] = ()
    peers: tuple[tuple[catalogue.Listing, Peer], ...] = ()

    def only(self, name: str) -> Chosen:
        """The one that results call so, if it is among them."""
        return Chosen(
            kernels=tuple(choice for choice in self.kernels if choice.kernel.id == name),
            peers=tuple(pair for pair in self.peers if pair[1].id == name),
        )


def chosen(names: Sequence[str], registry: Registry, files: FileOptions, quiet: bool) -> Chosen:
    """What names stand for, each once, with what is said of files without a header. One that no
    call has is a UsageError."""
    own = [name for name in names if _library(name, registry) is None]

    take = adopting(files.guesses(), partial(say, quiet=quiet))
    libraries = (*NAMES, _ALL_PEERS)
    kernels = registry.choose(own, take, libraries=libraries) if own else []
    peers = {
        peer.name: (listing, peer)
        for name in names for listing, peer in _peers(name, _library(name, registry))
    }  # fmt: skip
    return Chosen(kernels=tuple(kernels), peers=tuple(peers.values()))


def _library(name: str, registry: Registry) -> str | None:
    """The library that a name is of, or `peers`; None if it is not one of a library."""
    library = name.removeprefix("peer:").partition(":")[0]
    if name in registry.kernels or name in registry.suites:
        return None
    return library if library in (*NAMES, _ALL_PEERS) or name.startswith("peer:") else None


def _peers(name: str, library: str | None) -> Iterator[tuple[catalogue.Listing, Peer]]:
    if library is None:
        return
    asked = name.removeprefix("peer:")
    listings = catalogue.listings(NAMES if library == _ALL_PEERS else (library,))
    found = [(listing, peer) for listing in listings for peer in listing.peers()]
    if asked not in (library, _ALL_PEERS):
        found = [(listing, peer) for listing, peer in found if peer.name == asked]
    if not found:
        raise UsageError(f"no library is called {name!r}: see cudareduce list peers")
    yield from found


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """Sizes and types to be tried, in launch shapes asked for, None each kernel's own."""

    reductions: tuple[Reduction, ...]
    sizes: tuple[int, ...]
    rows: int
    block: int | None
    items: int | None


def calls(
    what: Chosen, shapes: Shapes, limits: DeviceLimits, lacks: Sequence[str], *, gpu: bool
) -> Iterator[KernelCall | PeerCall | Refused]:
    """Every call, or why it cannot be. Among floats integers are passed over. An input that is too
    large for all is a UsageError."""
    floats = [r for r in shapes.reductions if r.dtype.kind == "float"]
    for reduction in floats or shapes.reductions:
        for n in shapes.sizes:
            problem = Problem(reduction, n, shapes.rows)
            if problem.input_bytes > _MOST_BYTES:
                raise UsageError(
                    f"{problem.elements} elements of {reduction.dtype.name} are more than reveal "
                    "looks at: give a smaller --n, or fewer --rows, of which it sees the first"
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
