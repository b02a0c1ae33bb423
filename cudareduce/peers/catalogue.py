"""Which libraries there are, and what of them is here; none is imported to say so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata

from cudareduce.peers.contract import AbsentError, Peer
from cudareduce.peers.names import NAMES, meant
from cudareduce.report.numbers import DASH
from cudareduce.report.section import Section

_WHERE = {
    "any": "any",
    "primary": "the primary one",
    "own": "a process of its own",
}


@dataclass(frozen=True, slots=True)
class Listing:
    """Where a library's peers stand: module and attribute, as `cudareduce.peers.torch:PEERS`; those
    that `names` mean, or all."""

    place: str
    names: tuple[str, ...] = ()

    def peers(self) -> tuple[Peer, ...]:
        """Its peers; the module is ours and imports the library only when a peer is loaded."""
        module, _, name = self.place.partition(":")
        found: tuple[Peer, ...] = getattr(import_module(module), name)
        return tuple(peer for peer in found if not self.names or meant(peer.name, self.names))


#: Two libraries come out of one shared object.
_IN_CCCL = {"cub": "CUB", "thrust": "THRUST"}


def listings(names: Sequence[str]) -> tuple[Listing, ...]:
    """Where the peers stand that names of libraries and of single peers mean, in the order of
    tables."""
    libraries = {name.partition(":")[0] for name in names}
    return tuple(
        Listing(f"cudareduce.peers.{'cccl' if name in _IN_CCCL else name}:"
                f"{_IN_CCCL.get(name, 'PEERS')}", () if name in names else tuple(names))
        for name in NAMES if name in libraries
    )  # fmt: skip


def peers_section() -> Section:
    """Every peer, the version that is here, and what brings those that are not."""
    rows = []
    absent: dict[str, tuple[str, ...]] = {}
    for peer in (peer for listing in listings(NAMES) for peer in listing.peers()):
        version, why = _here(peer)
        rows.append((peer.name, version or DASH, _WHERE[peer.context], _what(peer)))
        if version is None:
            absent[why] = (*absent.get(why, ()), peer.name)
    notes = [
        "--peers takes these names, and that of a library, up to the colon, for all of its own"
    ]
    notes += [f"{', '.join(names)}: {why}" for why, names in absent.items()]
    header = ("peer", "version", "CUDA context", "time")
    return Section(f"{len(rows)} peers", header, tuple(rows), tuple(notes), 4)


def libraries_here() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The libraries that are here, with their versions, and those that are not."""
    versions: dict[str, str | None] = {}
    for peer in (peer for listing in listings(NAMES) for peer in listing.peers()):
        library = peer.name.partition(":")[0]
        versions[library] = versions.get(library) or _here(peer)[0]
    here = tuple(f"{name} {version}" for name, version in versions.items() if version)
    return here, tuple(name for name, version in versions.items() if not version)


def peers_json() -> str:
    """The same as an array of objects."""
    peers = [peer for listing in listings(NAMES) for peer in listing.peers()]
    return json.dumps(
        [
            {"id": peer.id, "version": _here(peer)[0], "context": peer.context,
             "host_only": peer.host_only, "install": peer.install}
            for peer in peers
        ],
        indent=1,
    )  # fmt: skip


def _what(peer: Peer) -> str:
    return "the host's" if peer.host_only else "the device's"


def _here(peer: Peer) -> tuple[str | None, str]:
    """The version of the library that would be called; None where there is none, and then what
    brings it."""
    try:
        version: str | None = (peer.version_here or partial(metadata.version, peer.package))()
    except (OSError, ValueError):
        version = None
    except metadata.PackageNotFoundError:
        return None, peer.install
    except AbsentError as error:
        return None, f"{error}: {peer.upgrade}"
    if version is None:
        return None, f"its package does not tell its version: {peer.upgrade}"
    return " ".join(version.split()), ""
