"""PyTorch: reductions of its own, and what torch.compile makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from cudareduce.backend import Launch
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.interop import answers_array, given_array

_OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax")
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64")
_NAMES = {"min": "amin", "max": "amax"}
#: Streams that are not torch's own, and views of one type as another.
_LEAST = (2, 1)
#: Sizes and types that torch.compile makes code for in one process.
_MOST_SIZES = 1000


def load() -> str:
    """Import it and let it take the primary context; it compiles here, and in no further
    processes, which would outlive this one."""
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch

    version = str(torch.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST:
        raise AbsentError(f"torch {version} is too old: 2.1 or newer is needed")
    if not torch.cuda.is_available():
        raise AbsentError(f"torch {version} sees no GPU: it may be a build for the CPU")
    torch.cuda.init()
    return version


def _tensors(given: Given) -> tuple[Any, Any]:
    """Input and answers as tensors, with our stream made torch's current one."""
    import torch

    torch.cuda.set_stream(torch.cuda.ExternalStream(given.stream))
    data = torch.as_tensor(given_array(given), device="cuda")
    if given.reduction.dtype.name == "bfloat16":
        data = data.view(torch.bfloat16)
    return data, torch.as_tensor(answers_array(given), device="cuda")


def _function(problem: Problem) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The reduction as people write it, and its words, with the accumulator's type."""
    import torch

    reduction, name = problem.reduction, problem.reduction.op.name
    words: dict[str, Any] = {"dim": -1}
    if name in ("sum", "prod", "mean"):
        words["dtype"] = getattr(torch, reduction.acc.name)
    return getattr(torch, _NAMES.get(name, name)), words


def _prepare(given: Given) -> Ready:
    return Ready(_bound(given, *_tensors(given)))


def _on_cpu(given: Given) -> Ready:
    """The same call of tensors in the host's memory."""
    import torch

    narrow = given.reduction.dtype.name == "bfloat16"
    data = torch.from_numpy(given.data.view("int16") if narrow else given.data)
    data = (data.view(torch.bfloat16) if narrow else data).reshape(given.shape)
    out = torch.empty(given.out_shape, dtype=getattr(torch, given.reduction.result_dtype))
    return Ready(_bound(given, data, out), out.numpy)


def _bound(given: Given, data: Any, out: Any) -> Launch:
    import torch

    reduction, (function, words) = given.reduction, _function(given.problem)
    if reduction.op.name in ("min", "max") and reduction.dtype != reduction.acc:
        narrow = torch.empty(given.out_shape, dtype=data.dtype, device=data.device)

        def widened() -> None:
            function(data, **words, out=narrow)
            out.copy_(narrow)

        return widened
    return partial(function, data, **words, out=out)


@cache
def _compiled(problem: Problem) -> Any:
    import torch
    import torch._dynamo

    # Each size compiles the same code anew; after eight it would be run as it is, without a word.
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, _MOST_SIZES)

    function, words = _function(problem)

    def reduce(data: Any, out: Any) -> None:
        out.copy_(function(data, **words))

    return torch.compile(reduce, dynamic=False, fullgraph=True)


def _prepare_compiled(given: Given) -> Ready:
    return Ready(partial(_compiled(given.problem), *_tensors(given)))


def _prepare_as_called(given: Given) -> Ready:
    data, _ = _tensors(given)
    function, words = _function(given.problem)
    held: list[Any] = []

    def run() -> None:
        held[:] = [function(data, **words).tolist()]

    return Ready(run, lambda: held[0])


def _called(ending: str, problem: Problem) -> str:
    reduction, name = problem.reduction, problem.reduction.op.name
    words = ["t", "dim=-1"]
    if name in ("sum", "prod", "mean"):
        words.append(f"dtype={reduction.acc.name}")
    elif name in ("min", "max") and reduction.dtype != reduction.acc and ending == "out":
        ending = "out, then copied to " + reduction.acc.name
    whole = f"torch.{_NAMES.get(name, name)}({', '.join(words)}"
    endings = {"compile": "), torch.compile", "as_called": ").tolist()"}
    return whole + endings.get(ending, f", {ending})")


def _why_not(problem: Problem) -> str | None:
    reason, acc = takes(problem, _OPS, _DTYPES), problem.reduction.acc.name
    if reason is None and acc.startswith("uint"):
        reason = (
            None if problem.reduction.op.name.startswith("arg") else f"has no kernels for {acc}"
        )
    return reason


def _peer(name: str, called: str, prepare: Callable[[Given], Ready], **fields: Any) -> Peer:
    return Peer(
        name=name, package="torch", install="pip install torch", context="primary", load=load,
        why_not=_why_not, called=partial(_called, called), prepare=prepare, **fields,
    )  # fmt: skip


PEERS = (
    _peer("torch", "out", _prepare, on_cpu=_on_cpu),
    _peer("torch:compile", "compile", _prepare_compiled),
    _peer("torch:as_called", "as_called", _prepare_as_called, as_called=True),
)
