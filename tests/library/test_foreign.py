"""Files that were not written for this tool: recognised, called as they stand, verified."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")

WHOLE_TILES = """#include <bits/stdc++.h>
#include "cuda_runtime.h"
#define BLOCK_SIZE 256
__global__ void tree(float *d_in, float *d_out) {
    __shared__ float cells[BLOCK_SIZE];
    unsigned tid = threadIdx.x;
    cells[tid] = d_in[blockIdx.x * blockDim.x + tid];
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) { cells[tid] += cells[tid + s]; }
        __syncthreads();
    }
    if (tid == 0) d_out[blockIdx.x] = cells[0];
}
int main() {
    std::vector<float> host(1 << 20);  // } a brace in a comment {
    printf("{");
    tree<<<4096, BLOCK_SIZE>>>(nullptr, nullptr);
}
"""

TEMPLATES = """#include <stdio.h>
#include <cooperative_groups.h>
#include "helper_cuda.h"
namespace cg = cooperative_groups;
template <class T> struct Cells {
    __device__ inline operator T *() { extern __shared__ int raw[]; return (T *)raw; }
};
template <class T, unsigned int blockSize, bool nIsPow2>
__global__ void strided(T *g_idata, T *g_odata, unsigned int n) {
    T *cells = Cells<T>();
    unsigned tid = threadIdx.x, width = blockSize * gridDim.x;
    T sum = 0;
    for (unsigned i = blockIdx.x * blockSize + tid; i < n; i += width) sum += g_idata[i];
    cells[tid] = sum;
    cg::sync(cg::this_thread_block());
    if (tid == 0) {
        for (unsigned k = 1; k < blockSize; k++) sum += cells[k];
        g_odata[blockIdx.x] = sum;
    }
}
__global__ void two_numbers(const int *x, int *y, int n, int m) { y[0] = x[0] + n + m; }
template <class T> void launch(int blocks, T *a, T *b) {
    strided<T, 256, true><<<blocks, 256, 1024>>>(a, b, 1);
}
template void launch<int>(int blocks, int *a, int *b);
extern "C" bool isPow2(unsigned x) { return (x & (x - 1)) == 0; }
"""

ATOMIC = """namespace mine { namespace {
static int host_only(int x) { return x; }
__device__ int same(int x) { return x; }
} }
__global__ void __launch_bounds__(256)
add_all(int *total, const int *__restrict__ numbers, size_t count)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(total, mine::same(numbers[i]));
}
"""


@pytest.fixture
def given(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "theirs.cu"
        path.write_text(text)
        return path

    return write


def bench(cudareduce: Call, path: Path, *options: object) -> tuple[int, str, str]:
    code, out, err = cudareduce("bench", path, "--backend", "cpu", *options)
    return code, out.replace("\n", " "), err


def test_without_a_count_it_takes_whole_tiles_and_leaves_partials(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    path = given(WHOLE_TILES)
    code, out, err = bench(cudareduce, path, "--n", 2**16)
    assert code == 0, out
    assert " right " in out
    assert "tree reads d_in, writes d_out, takes whole tiles; block 256, items 1, grid cover" in err
    assert "finish host" in err
    code, out, _ = bench(cudareduce, path, "--n", 1000, "--quiet")
    assert code == 2
    assert "is right if n is a multiple of 256, not 1000" in out


@pytest.mark.long
def test_templates_take_the_types_and_the_block(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    path = given(TEMPLATES)
    options: tuple[object, ...] = ("--entry", "strided", "--n", 5001, "--dtype", "int32,float64")
    code, out, err = bench(cudareduce, path, *options)
    assert code == 0, out
    assert "strided<In, BLOCK, false> reads g_idata, writes g_odata, counts with n" in err
    assert "2048 bytes of dynamic shared memory" in err
    options = ("--entry", "strided<In, 128, true>", "--block", 128, "--grid", 7, "--n", 5000)
    code, out, _ = bench(cudareduce, path, *options, "--quiet")
    assert code == 0, out


def test_a_template_parameter_with_a_default_is_one(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    path = given(
        TEMPLATES.replace(
            "template <class T, unsigned int", "template <class T = float, unsigned int"
        )
        .replace("blockSize, bool", "blockSize = 64, bool")
        .replace("bool nIsPow2>", "bool nIsPow2 = true>")
    )
    options = ("--entry", "strided", "--n", 5001, "--dtype", "int32", "--quiet")
    code, out, _ = bench(cudareduce, path, *options)
    assert code == 0, out


@pytest.mark.slow
def test_const_tells_the_input_and_an_atomic_its_finish(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    path = given(ATOMIC)
    code, out, err = bench(cudareduce, path, "--n", 5000, "--dtype", "int32")
    assert code == 0, out
    assert "add_all reads numbers, writes total, counts with count" in err
    assert "finish atomic" in err
    code, out, _ = bench(cudareduce, path, "--n", 5000, "--quiet")  # what it takes
    assert code == 0, out
    assert "sum of 5 000 int32" in out
    code, out, _ = bench(cudareduce, path, "--n", 5000, "--dtype", "float32", "--quiet")
    assert code == 2
    assert "takes int32, not float32" in out


ELEMENTS = """DECLARED
__global__ void block_sums(const READ *in, WRITTEN *out, COUNT n)
{
    WRITTEN sum = 0;
    for (COUNT i = blockIdx.x * 256; i < n && i < (blockIdx.x + 1) * 256; i++)
        sum += (WRITTEN)in[i];
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
"""


@pytest.mark.parametrize(
    ("read", "written", "count", "declared", "dtype"),
    [
        ("half", "float", "int", '#include "cuda_fp16.h"', "float16"),
        ("__nv_bfloat16", "float", "int", "#include <cuda_bf16.h>", "bfloat16"),
        ("unsigned char", "int", "int", "", "uint8"),
        ("std::int8_t", "int", "std::size_t", "#include <cstdint>", "int8"),
        ("float", "double", "u64", "typedef unsigned long long u64;", "float32"),
        ("my::real", "my::real", "idx", "using idx = int; namespace my { typedef double base; "
         "using real = base; }", "float64"),
        ("REAL", "REAL", "int", "#define REAL double", "float64"),
    ],
)  # fmt: skip
def test_elements_and_counts_of_many_names(
    cudareduce: Call, given: Callable[[str], Path], read: str, written: str, count: str,
    declared: str, dtype: str,
) -> None:  # fmt: skip
    words = {"DECLARED": declared, "READ": read, "WRITTEN": written, "COUNT": count}
    text = ELEMENTS
    for word, meant in words.items():
        text = text.replace(word, meant)
    code, out, _ = cudareduce("verify", given(text), "--n", 1000, "--backend", "cpu", "--quiet")
    assert code == 0, out
    assert re.search(rf"theirs +sum +{dtype} +right", out), out


SPACES = """namespace one { inline int unused() { return 0; } }
namespace red {
using real = float;
__device__ real twice(real x) { return x + x; }
namespace { namespace inner {
template <class real> __global__ void sum(const real *in, real *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
} }
__global__ void sum(const real *in, real *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, twice(in[i]) / 2);
}
}
int main() { red::sum<<<1, 256>>>(nullptr, nullptr, 0); }
"""


@pytest.mark.slow
def test_kernels_in_namespaces(cudareduce: Call, given: Callable[[str], Path]) -> None:
    path = given(SPACES)
    code, out, _ = bench(cudareduce, path, "--n", 1000)
    assert code == 0
    assert "red::inner::sum " in out
    assert "red::sum " in out
    for entry, dtype in (("red::sum", "float32"), ("inner::sum<In>", "int32")):
        options = ("--n", 1000, "--entry", entry, "--dtype", dtype)
        code, out, err = bench(cudareduce, path, *options)
        assert code == 0, out
        assert f"red::{entry.removeprefix('red::')} reads in, writes out" in err


SEVERAL = """__global__ void fill_ones(float *a, int n) { if (threadIdx.x < n) a[threadIdx.x] = 1; }
__global__ void init(const float *a, float *b, int n) { b[0] = n; }
__global__ void mean(const float *a, float *b, int n, float bias) { b[0] = a[0] + bias; }
__device__ half only_of_other(half x) { return nowhere(x); }
__global__ void other(const half *a, float *b, int n) { b[0] = only_of_other(a[0]); }
__global__ void first(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(b, a[i]);
}
__global__ void second(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) atomicAdd(b, a[i]);
}
"""


@pytest.mark.parametrize(
    ("name", "op"),
    [("reduce_max", "max"), ("deviceReduceMax", "max"), ("findLargest", "max"), ("min_1", "min"),
     ("sum_max_threads", "sum"), ("softmax", "sum"), ("argMax", "sum"), ("minus", "sum"),
     ("minmax", "sum"), ("minMax", "sum"), ("reduce", "sum")],
)  # fmt: skip
def test_a_name_tells_an_extreme(name: str, op: str) -> None:
    text = f"__global__ void {name}(const float *a, float *b, int n) {{}}"
    adopted = adopt(Path("theirs.cu"), text, Guesses())
    assert adopted.kernels[0].ops[0] == op
    assert (f", by {op}. Where" in adopted.said[0]) == (op != "sum")


def test_what_it_writes_tells_which_extreme_where_its_name_has_both() -> None:
    text = "__global__ void findMinMax(const float *a, float *least, int n) {}"
    assert adopt(Path("theirs.cu"), text, Guesses()).kernels[0].ops == ("min",)


def test_launches_that_leave_as_much_as_they_take_are_refused() -> None:
    text = """__global__ void part(const float *in, float *out, int n) {
        float sum = 0;
        for (int i = threadIdx.x; i < blockDim.x; i++) sum += in[blockIdx.x * blockDim.x + i];
        if (threadIdx.x == 0 && n) out[blockIdx.x] = sum; }"""
    with pytest.raises(UsageError, match="a value for each element: say a larger --block"):
        adopt(Path("theirs.cu"), text, Guesses(block=1, finish="relaunch"))


def test_no_launch_mends_a_hazard(cudareduce: Call, given: Callable[[str], Path]) -> None:
    text = WHOLE_TILES.replace("        __syncthreads();\n", "")
    code, out, _ = bench(cudareduce, given(text), "--n", 512, "--quiet")
    assert code == 3
    assert "data race in shared memory" in out
    assert "as was assumed" not in out


def test_shuffles_of_before_cuda_9(cudareduce: Call, given: Callable[[str], Path]) -> None:
    text = ATOMIC.replace("mine::same(", "__shfl_down(1, ")
    _, out, err = bench(cudareduce, given(text))
    assert "does not compile" not in out
    assert "taken as __shfl_down(...)=__shfl_down_sync(~0u, __VA_ARGS__), which nothing" in err


@pytest.mark.long
def test_several_kernels_are_rows(cudareduce: Call, given: Callable[[str], Path]) -> None:
    """All that can be called and look as if they reduced, each with what it reaches alone."""
    path = given(SEVERAL)
    code, out, err = bench(cudareduce, path, "--n", 1000, "--dtype", "float32")
    assert code == 3
    assert re.search(r" first .* right ", out)
    assert re.search(r" second .* WRONG ", out)
    assert "other: skipped, takes float16, not float32" in out
    assert " init " not in out
    assert "mean(const float * a, float * b, int n, float bias) cannot be called" in err
    assert "it is not understood what bias gets; say it, as in --arg bias=1.0f" in err
    assert "init: left out by its name, and --entry init takes it" in err
    assert err.count(": left out") == 2
    both = ("--entry", "first", "--entry", "second")
    assert bench(cudareduce, path, *both, "--n", 1000, "--quiet")[0] == 3
    assert bench(cudareduce, path, *both[:2], "--n", 1000, "--quiet")[0] == 0


def test_a_block_of_two_dimensions_adds_each_element_as_often_as_it_is_launched(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "flat.cu"
    path.write_text(
        "__global__ void sum(const int *in, int *out, int n)\n"
        "{\n"
        "    int k = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (k < n)\n"
        "        atomicAdd(out, in[k]);\n"
        "}\n"
        "void run(int *in, int *out, int n)\n"
        "{\n"
        "    dim3 block(16, 16);\n"
        "    sum<<<(n + 15) / 16, block>>>(in, out, n);\n"
        "}\n"
    )
    code, _, err = cudareduce("verify", path, "--n", "100")
    assert code == 2
    assert "sum is not recognised as a reduction" in err


def test_a_vector_may_be_given_before_the_matrix(cudareduce: Call, tmp_path: Path) -> None:
    text = (ROOT / "tests/foreign_shapes/matrix_times_vector.cu").read_text()
    path = tmp_path / "first.cu"
    path.write_text(text.replace(
        "const float *matrix, const float *vector", "const float *vector, const float *matrix"
    ).replace("(matrix, vector,", "(vector, matrix,"))  # fmt: skip
    code, out, err = cudareduce("verify", path)
    assert code == 0 and "right" in out
    assert "vector: second input, matrix: input" in err


@pytest.mark.slow
def test_a_header_of_kernels_is_a_file_of_them(cudareduce: Call, tmp_path: Path) -> None:
    for suffix in (".cuh", ".h", ".hpp"):
        path = (tmp_path / "theirs").with_suffix(suffix)
        path.write_text("#pragma once\n" + ATOMIC)
        code, out, _ = bench(cudareduce, path, "--n", 1000, "--quiet")
        assert code == 0, out


def test_partials_that_the_host_folds_have_the_same_bits(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    options = ("--entry", "strided", "--finish", "host", "--dtype", "float32,float64")
    ask = ("verify", given(TEMPLATES), "--n", 5000, "--backend", "cpu", "--quiet")
    code, out, _ = cudareduce(*ask, *options)
    assert code == 0, out
    assert out.count(" 1/3") == 2


def test_what_only_a_header_can_say(cudareduce: Call, given: Callable[[str], Path]) -> None:
    code, out, _ = bench(cudareduce, given(ATOMIC), "--op", "argmax", "--dtype", "int32", "--quiet")
    assert code == 2
    assert "takes sum, prod, min, max, mean, not argmax: a header with `ops` says what" in out
    options = ("--dtype", "int32", "--acc", "int64", "--quiet")
    code, out, _ = bench(cudareduce, given(ATOMIC), *options)
    assert code == 2
    assert "has no header and writes int32, not int64: say --acc int32, or give it a header" in out


def test_a_wrong_guess_is_a_wrong_answer(cudareduce: Call, given: Callable[[str], Path]) -> None:
    options = ("--n", 5000, "--dtype", "int32", "--finish", "relaunch", "--quiet")
    code, out, _ = bench(cudareduce, given(ATOMIC), *options)
    assert code == 3
    assert "WRONG" in out


@pytest.mark.parametrize(
    ("text", "says", "message"),
    [
        (TEMPLATES, Guesses(entries=("nobody",)), "no __global__ function nobody; it has: strided"),
        (SPACES, Guesses(entries=("sum",)), "sum is one of red::inner::sum, red::sum: say which"),
        ("int main() {}", Guesses(), "no header and no __global__ function"),
        ("template <int Q> __global__ void k(int *a, int *b, int n) { b[Q] = a[0]; }", Guesses(),
         "template parameter 'int Q' of k cannot be guessed: write the arguments"),
        ("__global__ void k(char3 *a, char3 *b, int n) {}", Guesses(), "k reads char3, which is"),
        ("__global__ void k(float3 *a, float *b, int n) {}", Guesses(), "give the file a header"),
        ("__global__ void k(const half *a, half *b, int n) {}", Guesses(),
         "k writes half, and partials of float16 are kept in float32: let it write float"),
        ("__global__ void k(const float *a, int *b, int n) {}", Guesses(), "let it write float"),
        ("__global__ void k(const half *a, float *b, int n) {}", Guesses(finish="relaunch"),
         "k cannot read what it writes: say --finish host"),
        (ATOMIC, Guesses(entries=("add_all<int>",)), "is no template: say --entry add_all"),
    ],
)  # fmt: skip
def test_what_cannot_be_called(text: str, says: Guesses, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        adopt(Path("theirs.cu"), text, says)
    assert message in str(caught.value)


@pytest.mark.long
def test_a_header_that_is_nowhere(cudareduce: Call, given: Callable[[str], Path]) -> None:
    """It is left out, since mostly host code alone needs it, and that is said."""
    missing = '#include "stdio.h"\n#include "no such/one.h"\n'
    path = given(missing + ATOMIC)
    code, _, err = bench(cudareduce, path, "--dtype", "int32", "--n", 1000)
    assert code == 0, err
    assert "finish atomic; stdio.h, no such/one.h are nowhere beside it and left out." in err
    path = given(missing + ATOMIC.replace("(numbers[i])", "(theirs(numbers[i]))"))
    code, out, _ = bench(cudareduce, path, "--dtype", "int32", "--quiet")
    assert code == 2
    assert "'theirs' was not declared" in out


@pytest.mark.slow
def test_headers_beside_it_are_taken_in(
    cudareduce: Call, given: Callable[[str], Path], tmp_path: Path
) -> None:
    """For what is for the device, each once, from the folders that people put them in."""
    folder = tmp_path / "include"
    folder.mkdir()
    guarded = "#ifndef ONCE\n#define ONCE\n%s\n#endif\n"
    host = "#include <vector>\ninline std::vector<int> zeros() { return {0}; }\n"
    (folder / "same.cuh").write_text(guarded % (host + "__device__ int same(int x) { return x; }"))
    (tmp_path / "both.h").write_text('#pragma once\n#include "same.cuh"\n#include "both.h"\n')
    text = '#include "both.h"\n#include "same.cuh"\n' + ATOMIC.replace("mine::same", "same")
    code, out, _ = bench(cudareduce, given(text), "--dtype", "int32", "--n", 1000, "--quiet")
    assert code == 0, out
    code, out, _ = bench(cudareduce, given(text.replace("size_t i", "oops i")), "--quiet")
    assert code == 2
    assert f"theirs.cu:{text[: text.index('size_t i')].count(chr(10)) + 1}:" in out


@pytest.mark.parametrize(
    "text",
    ["typedef " * 2**14, "using a = " + "b " * 2**16, "namespace a { " * 2**14, "{" * 2**14,
     "namespace a { " * 2**13 + "}" * 2**13, "#define a " + "b " * 2**16 + "\n",
     "__global__ void k(" + "a" * 2**17 + " *a) {}"],
)  # fmt: skip
def test_a_long_text_is_read_once(text: str) -> None:
    began = time.process_time()
    kernel = "__global__ void k(const float *a, float *b, int n) {}"
    with suppress(UsageError):  # some of it is no C++
        adopt(Path("theirs.cu"), text + kernel, Guesses())
    assert time.process_time() - began < 2


def test_lines_keep_their_numbers(cudareduce: Call, given: Callable[[str], Path]) -> None:
    path = given(TEMPLATES.replace("sum += cells[k];", "sum += nonsense[k];"))
    line = TEMPLATES[: TEMPLATES.index("sum += cells[k];")].count("\n") + 1
    code, out, _ = cudareduce("bench", path, "--entry", "strided", "--n", 9, "--backend", "cpu",
                              "--quiet")  # fmt: skip
    assert code == 2
    assert f"theirs.cu:{line}:" in out.replace("\n", "")


LAST_BLOCK = """__device__ unsigned arrived = 0;
__device__ float parts[1 << 16];
__global__ void last(const float *in, float *out, int n) {
    __shared__ float cells[256];
    __shared__ bool is_last;
    unsigned t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    cells[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned s = 128; s > 0; s /= 2) {
        if (t < s) cells[t] += cells[t + s];
        __syncthreads();
    }
    if (t == 0) {
        parts[blockIdx.x] = cells[0];
        __threadfence();
        %s
        is_last = atomicAdd(&arrived, 1) == blocks - 1;
    }
    __syncthreads();
    if (!is_last) return;
    float sum = 0;
    for (unsigned k = t; k < gridDim.x; k += 256) sum += __ldcg(parts + k);
    cells[t] = sum;
    __syncthreads();
    if (t == 0) {
        for (unsigned k = 1; k < 256; k++) sum += cells[k];
        *out = sum;
        arrived = 0;
    }
}
"""
ALWAYS_12 = """__global__ void twelfth(const float *in, float *out, int n) {
    float sum = 0;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += 12 * 256) sum += in[i];
    if (gridDim.x != 12) sum = 1e9f;
    atomicAdd(out, sum);
}
"""


@pytest.mark.parametrize(
    ("text", "options", "grid", "then"),
    [
        ("unsigned blocks = gridDim.x;", (), "cover", ""),
        ("unsigned blocks = gridDim.x * 2 / 2;", (), "fill", "right, so it is launched with that"),
        ("unsigned blocks = gridDim.x * 2 / 2;", ("--grid", "cover"), "cover", ""),
    ],
)
def test_a_grid_that_is_compared_with_is_not_strided_by(
    cudareduce: Call, given: Callable[[str], Path], text: str, options: tuple[str, ...],
    grid: str, then: str,
) -> None:  # fmt: skip
    sizes = ("--n", "3,300000", "--finish", "none", "--backend", "cpu")
    code, out, err = cudareduce("verify", given(LAST_BLOCK % text), *sizes, *options)
    assert code == 0, out
    assert f"grid {grid}," in err
    assert then in err
    assert ("with grid fill its answers are wrong" in err) == bool(then)


def test_so_many_blocks_as_are_said_at_every_size(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    sizes = ("--n", "1,3073,100000", "--backend", "cpu")
    code, out, _ = cudareduce("verify", given(ALWAYS_12), *sizes, "--grid", 12)
    assert code == 0, out
    code, out, _ = cudareduce("verify", given(ALWAYS_12), *sizes, "--items", 1)
    assert code == 3
    assert "not as was assumed, --block, --grid, --shared, --finish, --map, --op say better" in out


ARGUMENTS = """struct How { int factor; };
__device__ int scaled(int x, How how) { return x * how.factor; }
__global__ void add_all(const int *x, int *total, int *last, int n, bool twice, How how)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) atomicAdd(total, scaled(x[k], how) << twice);
    if (k == n - 1) *last = k;
}
"""


@pytest.mark.long
def test_parameters_are_said(cudareduce: Call, given: Callable[[str], Path]) -> None:
    path = given(ARGUMENTS)
    options: tuple[object, ...] = ("--n", 1000, "--quiet")
    code, _, err = bench(cudareduce, path, *options)
    assert code == 2
    assert "what twice and how get; say it, as in --arg twice=false --arg how={}" in err
    options = (*options, "--arg", "add_all.twice=false")
    code, _, err = bench(cudareduce, path, *options)
    assert code == 2
    assert "it is not understood what how gets; say it, as in --arg how={}" in err
    code, out, _ = bench(cudareduce, path, *options, "--arg", "how={1}")
    assert code == 0, out
    code, out, _ = bench(cudareduce, path, *options, "--arg", "how=How{2}")
    assert code == 3, out
    code, out, _ = bench(cudareduce, path, *options, "--arg", "how=nobody")
    assert code == 2
    assert "does not compile: <entry point>" in out
    code, _, err = bench(cudareduce, path, *options, "--arg", "n")
    assert code == 2
    assert "--arg n is not NAME=WHAT: write as in --arg counter=zeroed:4" in err


def test_rows_are_those_of_the_command(cudareduce: Call, given: Callable[[str], Path]) -> None:
    path = given(
        "__global__ void row_sums(const int *x, int *sums, int rows, int cols) {\n"
        "    int row = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;\n"
        "    if (row >= rows) return;\n"
        "    for (int k = 0; k < cols; ++k) sum += x[row * cols + k];\n"
        "    sums[row] = sum;\n}\n"
    )
    code, out, err = bench(cudareduce, path, "--n", 33, "--rows", 1000)
    assert code == 0, out
    assert "counts with cols the elements of a row, rows=rows; block 256" in err
    assert "grid thread_per_row" in err
    assert "sum of 33 int32 x 1 000 rows" in out
    code, out, _ = bench(cudareduce, path, "--n", 33, "--rows", 1000, "--grid", 3, "--quiet")
    assert code == 3, out


def test_an_explicit_instantiation_tells_the_type(
    cudareduce: Call, given: Callable[[str], Path]
) -> None:
    text = """template <class T> __global__ void total(const T *in, T *out, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(out, in[i]);
    }
    template __global__ void total<int>(const int *in, int *out, int n);
    """
    code, out, _ = cudareduce("verify", given(text), "--n", 1000, "--backend", "cpu", "--quiet")
    assert code == 0
    assert " sum  int32 " in out
