"""JAX: on streams of its own, in a process of its own, so only the host's time can be told."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes

_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax")
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64",
           "uint64")  # fmt: skip


def load() -> str:
    """Import it, so that it takes no more memory than it needs."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    jax.config.update("jax_enable_x64", True)
    if jax.default_backend() != "gpu":
        raise AbsentError(f"jax {jax.__version__} sees no GPU: its CUDA plug-in is missing")
    return str(jax.__version__)


def _on_cpu(given: Given) -> Ready:
    """The same call on the processor."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return _prepare(given)


def _prepare(given: Given) -> Ready:
    import jax
    import jax.numpy as jnp

    problem, reduction = given.problem, given.reduction
    data = given.data.reshape(given.shape)
    if reduction.dtype.name == "bfloat16":
        data = data.view(jnp.bfloat16.dtype)
    x = jax.device_put(data)

    def refill() -> None:
        nonlocal x
        x = jax.device_put(data.copy())  # which may go on reading what it was given

    x.block_until_ready()
    call = partial(getattr(jnp, reduction.op.name), axis=None if problem.rows == 1 else 1)
    if reduction.op.name in ("sum", "prod", "mean"):
        call = partial(call, dtype=reduction.acc.storage)
    compiled = jax.jit(call)
    held: list[Any] = []

    def run() -> None:
        held[:] = [compiled(x).block_until_ready()]

    def fetch() -> Any:
        return np.asarray(held[0])

    return Ready(run, fetch, refill)


def _called(problem: Problem) -> str:
    reduction = problem.reduction
    dtype = reduction.op.name in ("sum", "prod", "mean")
    words = f"x, dtype={reduction.acc.name}" if dtype else "x"
    return f"jax.jit(jnp.{reduction.op.name}({words})), block_until_ready, host time"


def _why_not(problem: Problem) -> str | None:
    return takes(problem, _OPS, _DTYPES)


PEERS = (
    Peer(
        name="jax", package="jax", install="pip install 'jax[cuda13]'", context="own", load=load,
        why_not=_why_not, called=_called, prepare=_prepare, on_cpu=_on_cpu,
    ),
)  # fmt: skip
