"""PyTorch: its reductions, eager and by torch.compile."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

from cudareduce.backends.protocol import Launch
from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import TYPED, AbsentError, CallRequest, Library, PreparedCall
from cudareduce.libraries.interop import input_array, result_array

_NAMES = {"min": "amin", "max": "amax"}
#: The first release with external streams and with views of one type as another.
_OLDEST = (2, 1)
#: Limit for the number of sizes and types that torch.compile compiles in one process.
_MAX_SIZES = 1000


def _load() -> str:
    """Import torch and initialize the primary context. Inductor compiles in this process, since its
    worker processes would outlive the run."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise AbsentError(f"torch {version} is too old: 2.1 or newer is needed")
    if not torch.cuda.is_available():
        raise AbsentError(f"torch {version} sees no GPU: it may be a build for the CPU")
    torch.cuda.init()
    return version


def _tensors(request: CallRequest) -> tuple[Any, Any]:
    """Input and results as tensors, with our stream as torch's current one."""
    import torch

    torch.cuda.set_stream(torch.cuda.ExternalStream(request.stream))
    data = torch.as_tensor(input_array(request), device="cuda")
    if request.reduction.dtype.name == "bfloat16":
        data = data.view(torch.bfloat16)
    return data, torch.as_tensor(result_array(request), device="cuda")


def _function(problem: Problem) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The torch function and its keyword arguments."""
    import torch

    name = problem.reduction.op.name
    words: dict[str, Any] = {"dim": -1}
    if name in TYPED:
        words["dtype"] = getattr(torch, problem.reduction.acc.name)
    return getattr(torch, _NAMES.get(name, name)), words


def _prepare(request: CallRequest) -> PreparedCall:
    return PreparedCall(_with_out(request, *_tensors(request)))


def _on_cpu(request: CallRequest) -> PreparedCall:
    """The same call on tensors in host memory."""
    import torch

    is_bfloat16 = request.reduction.dtype.name == "bfloat16"
    data = torch.from_numpy(request.data.view("int16") if is_bfloat16 else request.data)
    data = (data.view(torch.bfloat16) if is_bfloat16 else data).reshape(request.shape)
    out = torch.empty(request.out_shape, dtype=getattr(torch, request.reduction.result_dtype))
    return PreparedCall(_with_out(request, data, out), out.numpy)


def _with_out(request: CallRequest, data: Any, out: Any) -> Launch:
    import torch

    function, words = _function(request.problem)
    if not _widens_copy(request.problem):
        return partial(function, data, **words, out=out)
    narrow = torch.empty(request.out_shape, dtype=data.dtype, device=data.device)

    def run() -> None:
        function(data, **words, out=narrow)
        out.copy_(narrow)

    return run


def _widens_copy(problem: Problem) -> bool:
    """True if torch's result has a narrower type than `out`, so that a copy follows."""
    reduction = problem.reduction
    return reduction.op.name in ("min", "max") and reduction.dtype != reduction.acc


@cache
def _compiled(problem: Problem) -> Any:
    import torch
    import torch._dynamo

    # each size is compiled separately; after eight, torch would silently run eager
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, _MAX_SIZES)

    function, words = _function(problem)

    def reduce(data: Any, out: Any) -> None:
        out.copy_(function(data, **words))

    return torch.compile(reduce, dynamic=False, fullgraph=True)


def _prepare_compiled(request: CallRequest) -> PreparedCall:
    return PreparedCall(partial(_compiled(request.problem), *_tensors(request)))


def _prepare_as_called(request: CallRequest) -> PreparedCall:
    data, _ = _tensors(request)
    function, words = _function(request.problem)
    return PreparedCall.keeping(lambda: function(data, **words).tolist())


def _call(problem: Problem) -> str:
    """The call as text, without the closing bracket."""
    name = problem.reduction.op.name
    dtype = f", dtype={problem.reduction.acc.name}" if name in TYPED else ""
    return f"torch.{_NAMES.get(name, name)}(t, dim=-1{dtype}"


def _called(problem: Problem) -> str:
    copied = f", then copied to {problem.reduction.acc.name}" if _widens_copy(problem) else ""
    return f"{_call(problem)}, out{copied})"


def _refuses(problem: Problem) -> str | None:
    acc = problem.reduction.acc.name
    if acc.startswith("uint") and not problem.reduction.op.name.startswith("arg"):
        return f"has no kernels for {acc}"
    return None


_TORCH = Library(
    name="torch", package="torch", install="pip install torch", context="primary",
    ops=("sum", "prod", "min", "max", "mean", "argmin", "argmax"), refuses=_refuses,
    dtypes=("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"),
    load=_load, called=_called, prepare=_prepare,
)  # fmt: skip
LIBRARIES = (
    replace(_TORCH, on_cpu=_on_cpu),
    replace(
        _TORCH, name="torch:compile", prepare=_prepare_compiled,
        called=lambda problem: f"{_call(problem)}), torch.compile",
    ),
    replace(
        _TORCH, name="torch:as_called", as_called=True, prepare=_prepare_as_called,
        called=lambda problem: f"{_call(problem)}).tolist()",
    ),
)  # fmt: skip
