"""Which libraries there are, and what of them is here; none is imported to say so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module, metadata

from cudareduce.peers.contract import Peer
from cudareduce.peers.names import NAMES
from cudareduce.report.numbers import DASH
from cudareduce.report.sections import Section

_WHERE = {
    "any": "any",
    "primary": "the primary one",
    "own": "a process of its own",
}


@dataclass(frozen=True, slots=True)
class Listing:
    """Where a library's peers stand: module and attribute, as `cudareduce.peers.torch:PEERS`."""

    place: str

    def peers(self) -> tuple[Peer, ...]:
        """Its peers; the module is ours and imports the library only when a peer is loaded."""
        module, _, name = self.place.partition(":")
        found: tuple[Peer, ...] = getattr(import_module(module), name)
        return found


#: Two libraries come out of one shared object.
_IN_CCCL = {"cub": "CUB", "thrust": "THRUST"}


def listings(names: Sequence[str]) -> tuple[Listing, ...]:
    """Where the peers of these libraries stand, in the order of tables."""
    return tuple(
        Listing(f"cudareduce.peers.{'cccl' if name in _IN_CCCL else name}:"
                f"{_IN_CCCL.get(name, 'PEERS')}")
        for name in NAMES if name in names
    )  # fmt: skip


def peers_section() -> Section:
    """Every peer, the version that is here, and what brings those that are not."""
    rows = []
    absent: dict[str, tuple[str, ...]] = {}
    for peer in (peer for listing in listings(NAMES) for peer in listing.peers()):
        version = version_here(peer)
        rows.append((peer.name, version or DASH, _WHERE[peer.context], _what(peer)))
        if version is None:
            absent[peer.install] = (*absent.get(peer.install, ()), peer.name)
    notes = [f"{', '.join(names)}: {install}" for install, names in absent.items()]
    header = ("peer", "version", "CUDA context", "time")
    return Section(f"{len(rows)} peers of --peers", header, tuple(rows), tuple(notes), 4)


def peers_json() -> str:
    """The same as an array of objects."""
    peers = [peer for listing in listings(NAMES) for peer in listing.peers()]
    return json.dumps(
        [
            {"id": peer.id, "version": version_here(peer), "context": peer.context,
             "host_only": peer.host_only, "install": peer.install}
            for peer in peers
        ],
        indent=1,
    )  # fmt: skip


def _what(peer: Peer) -> str:
    return "the host's" if peer.host_only else "the device's"


def version_here(peer: Peer) -> str | None:
    """The version of the library that would be called; None where there is none."""
    if peer.version_here is not None:
        return peer.version_here()
    try:
        return metadata.version(peer.package)
    except metadata.PackageNotFoundError:
        return None
