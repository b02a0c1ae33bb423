"""JAX. It uses its own streams, so it runs in its own process and only host time is measured."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import TYPED, AbsentError, CallRequest, Library, PreparedCall


def _load() -> str:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    jax.config.update("jax_enable_x64", True)
    if jax.default_backend() != "gpu":
        raise AbsentError(f"jax {jax.__version__} sees no GPU: its CUDA plug-in is missing")
    return str(jax.__version__)


def _on_cpu(request: CallRequest) -> PreparedCall:
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    return _prepare(request)


def _prepare(request: CallRequest) -> PreparedCall:
    import jax
    import jax.numpy as jnp

    reduction, data = request.reduction, request.data.reshape(request.shape)
    if reduction.dtype.name == "bfloat16":
        data = data.view(jnp.bfloat16.dtype)
    x = jax.device_put(data)

    def refill() -> None:
        nonlocal x
        x = jax.device_put(data.copy())  # JAX may still read the array after it returns

    x.block_until_ready()
    call = partial(getattr(jnp, reduction.op.name), axis=None if request.problem.rows == 1 else 1)
    if reduction.op.name in TYPED:
        call = partial(call, dtype=reduction.acc.storage)
    compiled = jax.jit(call)
    return replace(PreparedCall.keeping(lambda: compiled(x).block_until_ready()), refill=refill)


def _called(problem: Problem) -> str:
    name = problem.reduction.op.name
    words = f"x, dtype={problem.reduction.acc.name}" if name in TYPED else "x"
    return f"jax.jit(jnp.{name}({words})), block_until_ready, host time"


LIBRARIES = (
    Library(
        name="jax", package="jax", install="pip install 'jax[cuda13]'", context="own",
        ops=("sum", "prod", "min", "max", "mean", "argmin", "argmax"),
        dtypes=("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32",
                "int64", "uint64"),
        load=_load, called=_called, prepare=_prepare, on_cpu=_on_cpu,
    ),
)  # fmt: skip
