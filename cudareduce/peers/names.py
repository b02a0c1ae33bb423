"""The names of the libraries; light, so that options can list them."""

from __future__ import annotations

#: In the order in which tables show them; each is a module of this package.
NAMES = (
    "cub", "thrust", "torch", "triton", "cupy", "compute", "pycuda", "cublas", "cutile", "jax",
    "numba",
)  # fmt: skip
