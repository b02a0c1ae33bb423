"""The names of the libraries; light, so that options can list them."""

from __future__ import annotations

from collections.abc import Sequence

#: In the order in which tables show them; each is a module of this package.
NAMES = (
    "cub", "thrust", "torch", "triton", "cupy", "compute", "pycuda", "cublas", "cutile", "jax",
    "numba",
)  # fmt: skip


def meant(peer: str, names: Sequence[str]) -> bool:
    """Whether names as --peers takes them, of libraries or single peers, mean a peer."""
    peer = peer.removeprefix("peer:")
    return peer in names or peer.partition(":")[0] in names
