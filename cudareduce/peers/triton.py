"""Triton: a reduction in two stages, as kernel writers write it, compiled ahead of time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cudareduce.backend import Launch
from cudareduce.launch.plan import Problem
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.peers.interop import Cubin, launcher

_OPS = ("sum", "min", "max", "mean", "argmin", "argmax")
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


@dataclass(frozen=True, slots=True)
class _Kernel:
    """One of the kernels: types of its pointers, how many counts follow them, its constants."""

    name: str
    pointers: tuple[str, ...]
    counts: int
    constants: tuple[int, ...]


@cache
def _compiled(kernel: _Kernel, even: tuple[bool, ...], arch: int) -> Cubin:
    """A kernel specialised as the JIT does: `even` says of each argument whether it is a multiple
    of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from cudareduce.peers import triton_kernels

    function = getattr(triton_kernels, kernel.name)
    kinds = [*(f"*{_TYPES[one]}" for one in kernel.pointers), *["i64"] * kernel.counts]
    first = len(kinds)
    kinds += ["constexpr"] * len(kernel.constants)
    attributes = {(k,): [["tt.divisibility", _DIVISOR]] for k, whole in enumerate(even) if whole}
    source = ASTSource(
        function, dict(zip(function.arg_names, kinds, strict=True)),
        {(first + k,): value for k, value in enumerate(kernel.constants)}, attributes,
    )  # fmt: skip
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": _WARPS})
    about = made.metadata
    if getattr(about, "global_scratch_size", 0) or getattr(about, "profile_scratch_size", 0):
        raise RuntimeError("its kernel wants scratch memory, which a plain launch does not give")
    return Cubin(bytes(made.asm["cubin"]), about.name, 32 * about.num_warps, about.shared)


def _launch(given: Given, kernel: _Kernel, programs: int, *arguments: int) -> Launch:
    cubin = _compiled(kernel, tuple(value % _DIVISOR == 0 for value in arguments), given.arch)
    # Behind ours two pointers to scratch memory, of which the kernel wants none.
    return launcher(cubin, programs, [*arguments, 0, 0], given.stream)


def _kind(given: Given) -> int:
    return {"min": 1, "max": 2}.get(given.reduction.op.name.removeprefix("arg"), 0)


def _prepare(given: Given) -> Ready:
    arg = given.reduction.op.name.startswith("arg")
    if given.problem.rows != 1:
        return Ready(_by_rows(given, arg=arg))
    programs = max(1, min(_PROGRAMS, -(-given.problem.n // _BLOCK)))
    steps = _arg_stages(given, programs) if arg else _stages(given, programs)

    def run() -> None:
        for step in steps:
            step()

    return Ready(run)


def _stages(given: Given, programs: int) -> list[Launch]:
    """Values of programs, and the one value of those."""
    problem, dtype, acc = given.problem, given.reduction.dtype.name, given.reduction.acc
    mean = given.reduction.op.name == "mean"

    def stage(dtype: str, source: int, target: int, n: int, many: int, *, last: bool) -> Launch:
        constants = _kind(given), int(mean and last), _BLOCK
        kernel = _Kernel("stage", (dtype, acc.name), 2, constants)
        return _launch(given, kernel, many, source, target, n, problem.n)

    if programs == 1:
        return [stage(dtype, given.address, given.out, problem.n, 1, last=True)]
    partials = given.allocate(programs * acc.size)
    return [
        stage(dtype, given.address, partials, problem.n, programs, last=False),
        stage(acc.name, partials, given.out, programs, 1, last=True),
    ]


def _arg_stages(given: Given, programs: int) -> list[Launch]:
    """Extrema of programs with their places, and the place of the first extremum of those."""
    dtype, acc = given.reduction.dtype.name, given.reduction.acc
    values, places = given.allocate(programs * acc.size), given.allocate(programs * 8)

    def stage(dtype: str, source: int, target: int, n: int, many: int, *, last: bool) -> Launch:
        constants = _kind(given), int(last), _BLOCK
        kernel = _Kernel("arg_stage", (dtype, "int64", acc.name, "int64"), 1, constants)
        return _launch(given, kernel, many, source, places, values, target, n)

    return [
        stage(dtype, given.address, places, given.problem.n, programs, last=False),
        stage(acc.name, values, given.out, programs, 1, last=True),
    ]


def _by_rows(given: Given, *, arg: bool) -> Launch:
    """Some short rows a program, or one long one in steps."""
    problem, dtype, acc = given.problem, given.reduction.dtype.name, given.reduction.acc.name
    width = min(_BLOCK, 1 << (problem.n - 1).bit_length())
    height = _BLOCK // width
    programs = -(-problem.rows // height)
    counts = problem.n, problem.rows
    if arg:
        kernel = _Kernel("arg_rows", (dtype, acc, "int64"), 2, (_kind(given), height, width))
        return _launch(given, kernel, programs, given.address, given.out, given.out, *counts)
    mean = int(given.reduction.op.name == "mean")
    kernel = _Kernel("rows", (dtype, acc), 2, (_kind(given), mean, height, width))
    return _launch(given, kernel, programs, given.address, given.out, *counts)


def _why_not(problem: Problem) -> str | None:
    return takes(problem, _OPS, tuple(_TYPES))


def _called(problem: Problem) -> str:
    op = problem.reduction.op.name
    word = {"mean": "sum", "argmin": "min", "argmax": "max"}.get(op, op)
    how = "two stages of" if problem.rows == 1 else "programs of rows by"
    return f"{how} tl.{word}, cubin, BLOCK {_BLOCK}, {_WARPS} warps"


PEERS = (
    Peer(
        name="triton", package="triton", install="pip install triton", context="any", load=load,
        why_not=_why_not, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
