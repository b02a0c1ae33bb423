"""The names of the libraries, in a module without imports for the options."""

from __future__ import annotations

from collections.abc import Sequence

#: In the order of tables. Each has a module of its name, except cub and thrust, which share cccl.
NAMES = (
    "cub", "thrust", "torch", "triton", "cupy", "compute", "pycuda", "cublas", "cutile", "jax",
    "numba",
)  # fmt: skip


def is_selected(library: str, names: Sequence[str]) -> bool:
    """True if `names` (of --peers) contain the library or its package."""
    library = library.removeprefix("peer:")
    return library in names or library.partition(":")[0] in names
