"""A call that is to be revealed, as it is handed to the process that makes it."""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.backends import BackendSpec
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.contract import Peer


@dataclass(frozen=True, slots=True)
class KernelCall:
    """A kernel's launches."""

    case: Case
    plan: Plan

    @property
    def problem(self) -> Problem:
        """What is reduced, in the kernel's own shape."""
        return self.plan.problem

    @property
    def name(self) -> str:
        """What results call it."""
        return self.case.kernel.id


@dataclass(frozen=True, slots=True)
class PeerCall:
    """A library's call, by where the library's peers stand."""

    listing: Listing
    peer_name: str
    problem: Problem

    @property
    def peer(self) -> Peer:
        """The peer."""
        return next(peer for peer in self.listing.peers() if peer.name == self.peer_name)

    @property
    def name(self) -> str:
        """What results call it."""
        return f"peer:{self.peer_name}"


@dataclass(frozen=True, slots=True)
class Job:
    """Reveal one call: its probes within `limit_s` seconds, and before them the import of a library
    and its first answer within `first_s` each. `folder` is where what is compiled for a library is
    kept."""

    spec: BackendSpec
    call: KernelCall | PeerCall
    limit_s: float
    first_s: float
    folder: str

    @property
    def alone(self) -> str | None:
        """The library that wants a process to itself, if it is one that does."""
        if isinstance(self.call, PeerCall) and self.call.peer.context == "own":
            return self.call.name
        return None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Compile what several calls launch, all together; later each finds it in the cache."""

    spec: BackendSpec
    calls: tuple[KernelCall, ...]
