"""The names of the libraries. Options import this module alone."""

from __future__ import annotations

from collections.abc import Sequence

#: In the order of tables; each is a module of this package, but cub and thrust, which share one.
NAMES = (
    "cub", "thrust", "torch", "triton", "cupy", "compute", "pycuda", "cublas", "cutile", "jax",
    "numba",
)  # fmt: skip


def meant(library: str, names: Sequence[str]) -> bool:
    """True if the names given to --peers select a library, by its name or that of its package."""
    library = library.removeprefix("peer:")
    return library in names or library.partition(":")[0] in names
