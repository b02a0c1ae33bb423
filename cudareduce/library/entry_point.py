"""The entry point of ours that calls a kernel of others, put behind what of its file it reaches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cudareduce.cuda_source import every, parsed, text
from cudareduce.library.called import Call
from cudareduce.library.outside import place_of
from cudareduce.library.plane import columns_in_words, in_words
from cudareduce.library.template import OURS
from cudareduce.library.undefined import beside_own_shuffles, of_old_warps

#: The limits of numbers are there for whoever includes CUDA's own headers, and files rely on it.
_BEFORE = """#include <climits>
#include <cfloat>
#include <cstdint>
#pragma push_macro("__global__")
#pragma push_macro("__launch_bounds__")
#undef __global__
#undef __launch_bounds__
#define __global__ __device__
#define __launch_bounds__(...)
"""
_AFTER = """
#pragma pop_macro("__launch_bounds__")
#pragma pop_macro("__global__")
#line 1 "<entry point>"
extern "C" __global__ void {entry}({takes})
{{{before}
    ::{call}({arguments});{after}
}}
"""
#: Of one block, whose answer takes the place of an element, or is a place in 32 bits.
_TO_OUT = """
    __syncthreads();
    if (threadIdx.x == 0)
        *out = {};"""
#: Of blocks that each take as many columns as their threads are wide, of which more are launched.
_NO_COLUMNS = """
    if (size_t(blockIdx.x) * {width} >= rows)
        return;"""
#: Of rows, each of which has a place in 32 bits: none at first, and in the end as wide as answers.
_EACH_ROW = """
    for (size_t each = {}, k = threadIdx.x; k < each && blockIdx.x * each + k < rows;
         k += blockDim.x)
        {};
"""
_NO_PLACE = "((int *)out)[blockIdx.x * each + k] = -1"
_PLACE = "answers[blockIdx.x * each + k] = ((const int *)out)[blockIdx.x * each + k]"
_WARP = 32
#: How many rows a block takes.
_ROWS_OF = {"block_per_row": "1", "warp_per_row": "blockDim.x / 32", "thread_per_row": "blockDim.x"}

#: Of a block whose threads are counted in two dimensions, and launched in one.
_PLANE = """__device__ inline unsigned their_thread() {{ return threadIdx.x; }}
__device__ inline unsigned their_block() {{ return blockDim.x; }}
#pragma push_macro("threadIdx")
#pragma push_macro("blockDim")
#undef threadIdx
#undef blockDim
#define threadIdx (uint3{{their_thread() % {width}u, their_thread() / {width}u, 0u}})
#define blockDim (dim3({width}, their_block() / {width}u))
"""
_FLAT = """
#pragma pop_macro("blockDim")
#pragma pop_macro("threadIdx")"""
#: Of a grid whose rows are counted in the second dimension, and launched in one.
_UPRIGHT = """__device__ inline unsigned &their_rows() { __shared__ unsigned rows; return rows; }
__device__ inline uint3 their_place()
{
    unsigned wide = gridDim.x / their_rows();
    return uint3{blockIdx.x % wide, blockIdx.x / wide, 0u};
}
__device__ inline dim3 their_grid() { return dim3(gridDim.x / their_rows(), their_rows()); }
#pragma push_macro("blockIdx")
#pragma push_macro("gridDim")
#undef blockIdx
#undef gridDim
#define blockIdx their_place()
#define gridDim their_grid()
"""
_LYING = """
#pragma pop_macro("gridDim")
#pragma pop_macro("blockIdx")"""
_ROWS = """
    if (threadIdx.x == 0)
        their_rows() = rows;
    __syncthreads();"""
#: Of a kernel that leaves its answer in a variable of its file.
_ANSWER = """__device__ inline void *&their_answer() { __shared__ void *answer; return answer; }
"""
_TO_THEM = """
    if (threadIdx.x == 0)
        their_answer() = out;
    __syncthreads();"""
_OPERATOR = """struct their_operator {
    template <typename T> __device__ T operator()(T x) const { return x; }
    template <typename T> __device__ T operator()(T x, T y) const { return Op::combine(x, y); }
};
"""
#: What stands in front of every file, and may be defined in it in another way.
_OURS = ("Element", "Scalar", "Operator", "Op", "Acc", "Result", "In", "Out", "BLOCK", "ITEMS",
         "VECTOR", "LOWEST", "HIGHEST", "COUNT")  # fmt: skip

#: Types that people call so in a header of their own, which may not be there.
_SHORT = {"u8": "unsigned char", "u32": "unsigned", "u64": "unsigned long long", "i32": "int",
          "i64": "long long", "f32": "float", "f64": "double", "real": "float",
          "Real": "float"}  # fmt: skip


def with_entry_point(
    path: Path, device: str, entry: str, call: Call, names: Mapping[str, bool], width: int | None,
    *, finds: bool,
) -> str:  # fmt: skip
    """The device part of a file, whose kernels become device functions, and an `entry` that calls
    one of them. Lines keep their numbers. Of the file's `names`, with whether they are macros,
    those that are ours, too, become others. With a `width` it sees its threads in rows of so
    many. Short names of types are declared that it declares nowhere, and what warps did without a
    mask. If it `finds` a place, that is made as wide as answers are."""
    first, last = _around(call, width, finds=finds)
    after = _AFTER.format(
        entry=entry, takes=call.takes(finds=finds), call=call.text, arguments=call.arguments,
        before=first, after=last,
    )  # fmt: skip
    both = [name for name in _OURS if name in names]
    before = _OPERATOR if OURS in call.chosen or OURS in call.text else ""
    before += "".join(f'#pragma push_macro("{name}")\n' for name in both)
    before += "".join(f"#define {name} their_{name}\n" for name in both if not names[name])
    before += "".join(
        f"using {name} = {kind};\n" for name, kind in _SHORT.items()
        if name in device and name not in names
    )  # fmt: skip
    for name, words in of_old_warps(device, names).items():
        both.append(name.partition("(")[0])
        before += f'#pragma push_macro("{both[-1]}")\n#define {name} {words}\n'
    before += beside_own_shuffles(names)
    before += (_PLANE.format(width=width) if width else "") + (_UPRIGHT if call.upright else "")
    if call.outside:
        name, place = call.outside.name, place_of(call.outside)
        before += f'{_ANSWER}#pragma push_macro("{name}")\n#undef {name}\n#define {name} {place}\n'
        both.append(name)
    undone = (
        (_LYING if call.upright else "")
        + (_FLAT if width else "")
        + "".join(f'\n#pragma pop_macro("{name}")' for name in both)
    )
    headers = _headers(device) if both else ""
    return f'{_BEFORE}{headers}{before}#line 1 "{path}"\n{device}{undone}{after}'


def _headers(device: str) -> str:
    """What a text includes from the compiler, as names are then changed that occur there, too."""
    paths = (node.child_by_field_name("path") for node in every(parsed(device))
             if node.type == "preproc_include")  # fmt: skip
    names = [text(path) for path in paths if path and path.type == "system_lib_string"]
    return "".join(f"#if __has_include({name})\n#include {name}\n#endif\n" for name in names)


def _around(call: Call, width: int | None, *, finds: bool) -> tuple[str, str]:
    """What an entry point does before the call of a kernel, and after it."""
    rows = in_words(width or _WARP) if call.matrix else _ROWS
    rows = rows if call.upright else columns_in_words() if call.matrix else ""
    before = rows + (_TO_THEM if call.outside else "")
    wide = _WARP if call.lanes else width
    if call.columns and wide:
        before += _NO_COLUMNS.format(width=wide)
    if finds and call.rows:
        fill, copy = (_EACH_ROW.format(_ROWS_OF[call.rows], does) for does in (_NO_PLACE, _PLACE))
        return f"{before}{fill}    __syncthreads();", f"\n    __syncthreads();{copy}"
    if finds or call.answers_in_place:
        return before, _TO_OUT.format("*(const int *)out" if finds else "in[0]")
    return before, ""
