"""Triton: a reduction in two stages, as kernel writers write it, compiled ahead of time."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.cubin import Cubin, launcher

_OPS = ("sum", "min", "max", "mean")
_TYPES = {
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "i8",
    "uint8": "u8", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip
#: Elements that a program takes at a time, its warps, and how many programs the first stage has.
_BLOCK, _WARPS, _PROGRAMS = 4096, 8, 1056
#: What the JIT asks of a value before it loads 16 bytes at a time.
_DIVISOR = 16
#: The first with the compiler's interface of today.
_LEAST = (3, 2)


def load() -> str:
    """Import it."""
    import triton

    version = str(triton.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < _LEAST:
        raise AbsentError(f"triton {version} is too old: 3.2 or newer is needed")
    return version


@cache
def _compiled(
    op: str, dtype: str, acc: str, last: bool, even: tuple[bool, ...], arch: int
) -> Cubin:
    """One stage, the `last` or the one before, specialised as the JIT does: `even` says of input,
    answers, length and count whether they are multiples of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from cudareduce.peers import triton_kernels

    kind = {"min": 1, "max": 2}.get(op, 0)
    signature = {"x": f"*{_TYPES[dtype]}", "out": f"*{_TYPES[acc]}", "n": "i64", "count": "i64"}
    constants = {"kind": kind, "mean": op == "mean" and last, "block": _BLOCK}
    first = len(signature)
    attributes = {(k,): [["tt.divisibility", _DIVISOR]] for k, whole in enumerate(even) if whole}
    source = ASTSource(
        triton_kernels.stage, signature | dict.fromkeys(constants, "constexpr"),
        {(first + k,): value for k, value in enumerate(constants.values())}, attributes,
    )  # fmt: skip
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": _WARPS})
    about = made.metadata
    if getattr(about, "global_scratch_size", 0) or getattr(about, "profile_scratch_size", 0):
        raise RuntimeError("its kernel wants scratch memory, which a plain launch does not give")
    return Cubin(bytes(made.asm["cubin"]), about.name, 32 * about.num_warps, about.shared)


def _prepare(given: Given) -> Ready:
    problem, acc = given.problem, given.reduction.acc
    programs = max(1, min(_PROGRAMS, -(-problem.n // _BLOCK)))
    stage = partial(_stage, given, count=problem.n)
    if programs == 1:
        return Ready(stage(given.reduction.dtype.name, given.address, given.out, problem.n, 1))
    partials = given.allocate(programs * acc.size)
    first = stage(
        given.reduction.dtype.name, given.address, partials, problem.n, programs, last=False
    )
    second = stage(acc.name, partials, given.out, programs, 1)

    def run() -> None:
        first()
        second()

    return Ready(run)


def _stage(
    given: Given, dtype: str, source: int, target: int, n: int, programs: int, *, count: int,
    last: bool = True,
) -> Any:  # fmt: skip
    even = tuple(value % _DIVISOR == 0 for value in (source, target, n, count))
    reduction = given.reduction
    cubin = _compiled(reduction.op.name, dtype, reduction.acc.name, last, even, given.arch)
    # Behind ours two pointers to scratch memory, of which the kernel wants none.
    return launcher(cubin, programs, [source, target, n, count, 0, 0], given.stream)


def _why_not(problem: Problem) -> str | None:
    return takes(problem, _OPS, tuple(_TYPES), rows=False)


def _called(problem: Problem) -> str:
    op = problem.reduction.op.name
    return (
        f"two stages of tl.{'sum' if op == 'mean' else op}, cubin, BLOCK {_BLOCK}, {_WARPS} warps"
    )


PEERS = (
    Peer(
        name="triton", package="triton", install="pip install triton", context="any", load=load,
        why_not=_why_not, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
