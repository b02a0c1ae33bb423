"""The prelude: C++ declarations that are inserted before a kernel file to make a translation unit.

Types, operator, block size and items are declarations instead of macros, since a macro `T` or `In`
would break CUDA's headers. `#line` makes compilers and profilers report lines of the kernel file.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

from cudareduce.backends.protocol import Source
from cudareduce.catalog.kernel import Kernel
from cudareduce.reduction.dtypes import DType
from cudareduce.reduction.operators import Operator, Reduction

#: The pass of a plan for which a translation unit is compiled. Only "first" and "only" convert
#: elements to accumulators (`lift`); only "last" and "only" convert accumulators to results
#: (`finish`).
Stage = Literal["only", "first", "middle", "last"]
#: A translation unit: its stage, and the index of its text in an external program.
Unit = tuple[Stage, int]

#: Threads of an SM by compute capability (CUDA C++ Programming Guide, technical specifications).
_SM_THREADS = """\
#if __CUDA_ARCH__ == 750
[[maybe_unused]] constexpr unsigned SM_THREADS = 1024;
#elif __CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1100
[[maybe_unused]] constexpr unsigned SM_THREADS = 1536;
#else
[[maybe_unused]] constexpr unsigned SM_THREADS = 2048;
#endif"""
#: The bits of a bfloat16 are the upper half of a float's. This conversion compiles to one
#: instruction for the upper half of a word. That of CUDA's header takes two and one more register:
#: 512 threads with 32 elements then need 51 registers, and half as many blocks are resident
#: (sm_90).
_LIFT_BFLOAT16 = (
    "    static __device__ Acc lift(Element x, size_t) "
    "{ return __uint_as_float((unsigned)__bfloat16_as_ushort(x) << 16); }"
)
_HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}


def _limits(scalar: DType) -> tuple[str, str]:
    """The lowest and highest value of a type as C++ literals."""
    if scalar.kind == "float":
        return "-INFINITY", "INFINITY"
    bits = 8 * scalar.size
    suffix = "" if bits < 64 else "ll"
    if scalar.kind == "uint":
        return "0", f"{2**bits - 1}u{suffix}"
    top = f"{2 ** (bits - 1) - 1}{suffix}"
    return f"-{top} - 1", top


def device_folder() -> Path:
    """The folder of the operators' CUDA headers."""
    return Path(str(files("cudareduce.launch") / "device"))


@cache
def _read(name: str, folder: Path | None) -> str:
    """The text of a device header: from `folder` if it has the file, else from this package."""
    path = (folder or device_folder()) / f"{name}.cuh"
    path = path if path.is_file() else device_folder() / path.name
    return path.read_text(encoding="utf-8")


def operator_text(op: Operator, folder: Path | None = None) -> str:
    """The CUDA C++ source of an operator: struct `Operator`, from which `Op` derives."""
    text = _read("expression" if op.expression else op.name, folder)
    text = text.replace("EXPRESSION", op.expression).replace("IDENTITY", op.identity_text)
    return _read(op.needs, folder) + text if op.needs else text


def prelude(
    reduction: Reduction, stage: Stage, block: int, items: int, vector: int, *,
    maps: bool = False, folder: Path | None = None, out: str = "",
) -> str:  # fmt: skip
    """Declarations of types, operator and launch constants for one stage: `block` threads with
    `items` elements each, of which one load takes `vector`. With `maps` the kernel applies the
    transform itself, else `lift` does. Operators come from `folder`, by default from this package.
    `out`, if not empty, is the text that declares type Out."""
    lowest, highest = _limits(reduction.acc)
    lines = (
        [f"#include <{_HEADERS[reduction.dtype.name]}>"] if reduction.dtype.name in _HEADERS else []
    )
    lines += [
        f"using Element = {reduction.dtype.cpp};",
        f"using Scalar = {reduction.acc.cpp};",
        f"[[maybe_unused]] constexpr Scalar LOWEST = {lowest}, HIGHEST = {highest};",
        operator_text(reduction.op, folder),
    ]
    if reduction.op.indexed or reduction.op.words > 1:
        lines.append(_read("struct_shuffles", folder))
    lifts, finishes = stage in ("only", "first"), stage in ("only", "last")
    lines += [
        f"using In = {'Element' if lifts else 'Acc'};",
        "" if out else f"using Out = {'Result' if finishes else 'Acc'};",
        "struct Op : Operator {",
    ]
    if not lifts:
        lines.append("    static __device__ Acc lift(Acc partial, size_t) { return partial; }")
    elif reduction.dtype.name == "bfloat16" and not reduction.op.indexed and not reduction.map:
        lines.append(_LIFT_BFLOAT16)
    elif reduction.map and not maps:
        term = reduction.terms.cpp if reduction.terms != reduction.acc else "Acc"
        lines.append(
            f"    static __device__ Acc lift(Element x, size_t) {{ {term} a = {term}(x); "
            f"return Acc({reduction.map.expression}); }}"
        )
    if not finishes:
        lines.append("    static __device__ Acc finish(Acc partial) { return partial; }")
    lines += [
        "};",
        f"[[maybe_unused]] constexpr unsigned BLOCK = {block}, ITEMS = {items}, VECTOR = {vector};",
        _SM_THREADS,
    ]
    return "\n".join(lines) + "\n" + out


def stage_of(reduction: Reduction, index: int, count: int) -> Stage:
    """The stage of pass `index` of `count`; always "only" if all stages have the same code."""
    if count == 1 or reduction.one_stage:
        return "only"
    if index == 0:
        return "first"
    return "last" if index == count - 1 else "middle"


def source(
    kernel: Kernel, reduction: Reduction, stage: Stage, block: int, items: int, out: str = ""
) -> Source:
    """The translation unit of a kernel for one stage. If front matter gives items in bytes, later
    stages use the same number of bytes of partials. `out` is as in `prelude`."""
    first = stage in ("only", "first")
    size = reduction.dtype.size if first else reduction.acc_size
    if kernel.items_bytes and not first:
        items = max(1, items * reduction.dtype.size // size)
    head = prelude(
        reduction, stage, block, items, kernel.vector_of(size),
        maps=kernel.map is not None, folder=kernel.prelude, out=out,
    )  # fmt: skip
    if kernel.fixed_warps:
        head += f"constexpr unsigned FIXED_WARPS = {kernel.fixed_warps};\n"
    text = f'{head}#line 1 "{kernel.path}"\n{kernel.code}'
    return Source(text, kernel.entry, kernel.path)
