"""Triton: a typical two-stage reduction, compiled ahead of time."""

from __future__ import annotations

from functools import cache

from cudareduce.backends.protocol import Launch
from cudareduce.launch.plan import Problem
from cudareduce.libraries.contract import AbsentError, CallRequest, Library, PreparedCall
from cudareduce.libraries.interop import Cubin, in_order, launcher

_TYPES = {
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int8": "i8",
    "uint8": "u8", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64",
}  # fmt: skip
#: Elements that a program loads at a time, its warps, and most programs of the first stage.
_BLOCK, _WARPS, _PROGRAMS = 4096, 8, 1056
#: Divisor of addresses and sizes with which the JIT emits 16-byte loads.
_DIVISOR = 16
#: The first release with this interface of the compiler.
_OLDEST = (3, 2)


def _load() -> str:
    import triton

    version = str(triton.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST:
        raise AbsentError(f"triton {version} is too old: 3.2 or newer is needed")
    return version


@cache
def _compiled(
    name: str, pointers: tuple[str, ...], constants: tuple[int, ...], divisible: tuple[bool, ...],
    arch: int,
) -> Cubin:  # fmt: skip
    """Compile a kernel of triton_kernels.py with pointers to these types, specialised like the JIT:
    `divisible` says for each pointer and count whether it is a multiple of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from cudareduce.libraries import triton_kernels

    function = getattr(triton_kernels, name)
    first = len(divisible)
    kinds = [f"*{_TYPES[dtype]}" for dtype in pointers]
    kinds += ["i64"] * (first - len(pointers)) + ["constexpr"] * len(constants)
    attributes = {(k,): [["tt.divisibility", _DIVISOR]] for k in range(first) if divisible[k]}
    source = ASTSource(
        function, dict(zip(function.arg_names, kinds, strict=True)),
        {(first + k,): value for k, value in enumerate(constants)}, attributes,
    )  # fmt: skip
    kernel = triton.compile(
        source, target=GPUTarget("cuda", arch, 32), options={"num_warps": _WARPS}
    )
    metadata = kernel.metadata
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
        raise RuntimeError("its kernel needs scratch memory, which a plain launch does not provide")
    return Cubin(
        bytes(kernel.asm["cubin"]), metadata.name, 32 * metadata.num_warps, metadata.shared
    )


def _launch(
    request: CallRequest, name: str, pointers: tuple[str, ...], constants: tuple[int, ...],
    programs: int, *arguments: int,
) -> Launch:  # fmt: skip
    divisible = tuple(value % _DIVISOR == 0 for value in arguments)
    cubin = _compiled(name, pointers, constants, divisible, request.arch)
    # Two more arguments are addresses of scratch memory, which the kernel does not need.
    return launcher(cubin, programs, [*arguments, 0, 0], request.stream)


def _prepare(request: CallRequest) -> PreparedCall:
    if request.problem.rows != 1:
        return PreparedCall(_rows(request))
    programs = max(1, min(_PROGRAMS, -(-request.problem.n // _BLOCK)))
    is_arg = request.reduction.op.name.startswith("arg")
    return PreparedCall((_arg_stages if is_arg else _stages)(request, programs))


def _kind(request: CallRequest) -> int:
    return {"min": 1, "max": 2}.get(request.reduction.op.name.removeprefix("arg"), 0)


def _stages(request: CallRequest, programs: int) -> Launch:
    """Two launches: one partial result per program, then their reduction."""
    n, dtype, acc = request.problem.n, request.reduction.dtype.name, request.reduction.acc
    is_mean = request.reduction.op.name == "mean"

    def stage(dtype: str, source: int, target: int, size: int, count: int, last: bool) -> Launch:
        constants = _kind(request), int(is_mean and last), _BLOCK
        return _launch(
            request, "stage", (dtype, acc.name), constants, count, source, target, size, n
        )  # fmt: skip

    if programs == 1:
        return stage(dtype, request.address, request.out, n, 1, True)
    partials = request.allocate(programs * acc.size)
    return in_order(
        stage(dtype, request.address, partials, n, programs, False),
        stage(acc.name, partials, request.out, programs, 1, True),
    )


def _arg_stages(request: CallRequest, programs: int) -> Launch:
    """Two launches: the extremum and its index per program, then the index of the first
    extremum."""
    dtype, acc = request.reduction.dtype.name, request.reduction.acc
    values, indices = request.allocate(programs * acc.size), request.allocate(programs * 8)

    def stage(dtype: str, source: int, target: int, size: int, count: int, last: bool) -> Launch:
        pointers, constants = (
            (dtype, "int64", acc.name, "int64"),
            (_kind(request), int(last), _BLOCK),
        )
        return _launch(
            request, "arg_stage", pointers, constants, count, source, indices, values, target, size
        )  # fmt: skip

    return in_order(
        stage(dtype, request.address, indices, request.problem.n, programs, False),
        stage(acc.name, values, request.out, programs, 1, True),
    )


def _rows(request: CallRequest) -> Launch:
    """One launch: several short rows per program, or one long row."""
    problem, dtype, acc = request.problem, request.reduction.dtype.name, request.reduction.acc.name
    width = min(_BLOCK, 1 << (problem.n - 1).bit_length())
    height = _BLOCK // width
    programs = -(-problem.rows // height)
    counts = problem.n, problem.rows
    if request.reduction.op.name.startswith("arg"):
        return _launch(
            request, "arg_rows", (dtype, acc, "int64"), (_kind(request), height, width), programs,
            request.address, request.out, request.out, *counts,
        )  # fmt: skip
    is_mean = int(request.reduction.op.name == "mean")
    return _launch(
        request, "rows", (dtype, acc), (_kind(request), is_mean, height, width), programs,
        request.address, request.out, *counts,
    )  # fmt: skip


def _called(problem: Problem) -> str:
    op = problem.reduction.op.name
    word = {"mean": "sum", "argmin": "min", "argmax": "max"}.get(op, op)
    how = "two stages of" if problem.rows == 1 else "programs of rows by"
    return f"{how} tl.{word}, cubin, BLOCK {_BLOCK}, {_WARPS} warps"


LIBRARIES = (
    Library(
        name="triton", package="triton", install="pip install triton", context="any",
        ops=("sum", "min", "max", "mean", "argmin", "argmax"), dtypes=tuple(_TYPES),
        load=_load, called=_called, prepare=_prepare,
    ),
)  # fmt: skip
