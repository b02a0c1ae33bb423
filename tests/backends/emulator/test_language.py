"""Code that nvcc accepts is accepted, code that it rejects is rejected, and missing features are
named."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.emulator.translation import archs
from cudareduce.backends.protocol import Program, Source
from cudareduce.errors import BuildError, KernelFault, NotEmulated
from cudareduce.verify.verdict import unbuilt
from tests.backends.emulator.test_cpu import take

HEADERS = (
    "algorithm", "array", "atomic", "bitset", "cassert", "cfloat", "chrono", "cinttypes",
    "climits", "cmath", "complex", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "functional", "iostream", "iterator", "limits", "map", "memory", "mutex", "numeric",
    "random", "sstream", "string", "thread", "tuple", "type_traits", "unordered_map",
    "utility", "vector", "assert.h", "math.h", "stdlib.h", "stdio.h", "string.h",
    "stdint.h", "limits.h", "float.h", "time.h", "cuda_runtime.h", "cuda_fp16.h",
    "cuda_bf16.h", "cooperative_groups.h", "cooperative_groups/reduce.h",
    "cooperative_groups/scan.h", "cooperative_groups/memcpy_async.h", "cuda_pipeline.h",
    "math_constants.h", "cuda/atomic", "cuda/barrier", "cuda/pipeline", "cuda/latch",
    "cuda/semaphore", "cuda/functional", "cuda/cmath", "cuda/std/limits",
    "cuda/std/type_traits", "cuda/std/cstdint", "cuda/std/utility", "cuda/std/array",
    "cuda/std/functional", "cuda/std/atomic", "cuda/std/bit", "cuda/std/tuple",
    "cuda/std/cmath",
)  # fmt: skip
#: What a standard header must neither take away nor make ambiguous.
USES = (
    "abs(-3) + abs(-4ll) + abs(-2l) + (int)abs(-1.5f) + (int)abs(-2.5) + (int)fabsf(-1) + min(3, 9)"
    " + max(2u, 1u) + (int)sqrt(4.0f) + (int)pow(2.0f, 2.0f) + (int)floor(1.5f) + (int)fma(1.f, 2.f"
    ", 3.f) + isnan(NAN) + isinf(1.0) + (int)exp2f(1.0f) + (int)__expf(0.0f) + (int)fmax(1.0, 2.0)"
)
VALUE = 3 + 4 + 2 + 1 + 2 + 1 + 3 + 2 + 2 + 4 + 1 + 5 + 1 + 0 + 2 + 1 + 2


def build(cpu: CpuBackend, body: str, first: str = "", head: str = "") -> Program | BuildError:
    text = (
        f'{first}\n#line 1 "some/mine.cu"\nextern "C" __global__ void {head} mine(int *out)\n'
        f"{{\n{body}\n}}\n"
    )
    [built] = cpu.build([Source(text, "mine", Path("some/mine.cu"))])
    assert built is not None
    return built


def result(cpu: CpuBackend, body: str, first: str = "", block: int = 1) -> int:
    program = build(cpu, body, first)
    assert not isinstance(program, BuildError), program
    out = cpu.allocate(4 * block)
    cpu.launcher(program, 1, block, [out])()
    return int(cpu.download(out, "int32", block)[0])


@pytest.mark.parametrize("header", ["cstdlib", "cmath", "algorithm", "memory", "math.h"])
def test_a_header_alone_takes_nothing_away(cpu: CpuBackend, header: str) -> None:
    assert result(cpu, f"*out = {USES};", f"#include <{header}>") == VALUE


@pytest.mark.long
def test_all_headers_together(cpu: CpuBackend) -> None:
    assert result(cpu, f"*out = {USES};", "".join(f"#include <{h}>\n" for h in HEADERS)) == VALUE


@pytest.mark.parametrize(
    ("body", "first", "value"),
    [
        ("__shared__ alignas(16) int cell[2]; cell[1] = 7; *out = cell[1] + alignof(int);", "", 11),
        ("static __shared__ alignas(double) int cell; cell = 5; *out = cell;", "", 5),
        ("*out = twice(4);", "__noinline__ __device__ int twice(int x) { return 2 * x; }", 8),
        ("__builtin_assume(out != nullptr); *out = __builtin_expect(3, 1);", "", 3),
        ("*out = clock64() >= 0 && clock() >= 0 ? 2 : 1;", "", 2),
        ("*out = Guard(3).x;", "struct Guard { int x; __device__ Guard(int y) : x(y) {} "
         "__device__ ~Guard() { __threadfence(); } };", 3),
        ("*out = cuda::ceil_div(10, 4) + cuda::maximum<int>()(2, 5);",
         "#include <cuda/cmath>\n#include <cuda/functional>", 8),
        ("*out = cuda::std::numeric_limits<int>::max() - 1;", "#include <cuda/std/limits>",
         2**31 - 2),
        ("*out = cuda::std::min(cuda::std::popcount(7u), cuda::std::bit_cast<int>(1.0f));",
         "#include <cuda/std/bit>\n#include <cuda/std/algorithm>", 3),
        ("*out = __popc(__activemask());", "", 1),
        ("#ifdef __CUDACC__\n*out = __CUDA_ARCH__;\n#endif", "", 800),
        ("*out = __CUDA_ARCH__;", '/*+++\nmin_cc = "9.0"\n+++*/', 900),
    ],
)  # fmt: skip
def test_an_expression_has_the_value_of_cuda_cpp(
    cpu: CpuBackend, body: str, first: str, value: int
) -> None:
    assert result(cpu, body, first) == value


@pytest.mark.parametrize(
    ("body", "first", "message"),
    [
        ("int n = out[0], cells[n]; *out = cells[0];", "", "variable length array 'cells'"),
        ("*out = min(3, 4l);", "", r"call of overloaded 'min\(int, long int\)' is ambiguous"),
        ("*out = std::max(out[1], 3);", "#include <algorithm>", "std::max is a function of the "
         "host, which nvcc lets no kernel call"),
        ("float x = std::numeric_limits<float>::max(); *out = x;", "#include <limits>",
         "std::numeric_limits is a function of the host"),
        ("*out = 1 + helper(2);", "static int helper(int x) { return x; }",
         "helper is a function of the host"),
        ("__shfl_down(1, 2);", "", "__shfl_down is of before CUDA 9"),
        ("atomicAdd((short *)out, (short)1);", "", "no matching function|invalid conversion"),
    ],
)  # fmt: skip
def test_code_that_nvcc_rejects_is_rejected(
    cpu: CpuBackend, body: str, first: str, message: str
) -> None:
    error = build(cpu, body, first)
    assert isinstance(error, BuildError)
    assert not isinstance(error, NotEmulated)
    [line, *_] = (text for text in str(error).splitlines() if "error: " in text)
    assert line.startswith("some/mine.cu:3:")
    assert "warning" not in str(error)
    assert re.search(message, line), error


@pytest.mark.parametrize(
    ("body", "first"),
    [
        ("constexpr int n = std::max(1, 2); *out = n;", "#include <algorithm>"),
        ("int cells[std::max(1, 2)]; *out = sizeof cells;", "#include <algorithm>"),
        ("*out = helper(2);", "__device__ int helper(int x);\nint helper(int x) { return x; }"),
        ("const auto helper = [](int x) { return x; }; *out = helper(2);",
         "static int helper(int x) { return x; }"),
        ("*out = One().helper(2);", "static int helper(int x) { return x; }\n"
         "struct One { __device__ int helper(int x) { return x; } };"),
        ("*out = helper(2);", "#define MINE __device__\nMINE int helper(int x) { return x; }"),
        ("*out = 1; // helper(2)", "static int helper(int x) { return x; }"),
    ],
)  # fmt: skip
def test_no_host_call_is_seen_where_there_is_none(cpu: CpuBackend, body: str, first: str) -> None:
    assert not isinstance(build(cpu, body, first), BuildError)


@pytest.mark.parametrize(
    ("body", "first", "message"),
    [
        ("*out = erfcinv(0.5);", "", "some/mine.cu:3: the emulator has no erfcinv yet"),
        ("__nv_fp8_e4m3 x;", "", "some/mine.cu:3: the emulator has no __nv_fp8_e4m3 yet"),
        ("cooperative_groups::this_multi_grid();", "#include <cooperative_groups.h>",
         "some/mine.cu:3: the emulator has no cooperative_groups::this_multi_grid yet"),
        ("*out = cuda::warpspeed();", "#include <cuda/atomic>",
         "some/mine.cu:3: the emulator has no cuda::warpspeed yet"),
        ("*out = *new int;", "", "some/mine.cu:3: the emulator has no new and delete yet"),
        ("", "#include <cub/util_type.cuh>",
         "<prelude>:1: the emulator has no <cub/util_type.cuh> yet"),
        ("", "#include <thrust/fill.h>", "<prelude>:1: the emulator has no <thrust/fill.h> yet"),
        ('asm("bar.sync 0;");', "", "some/mine.cu:3: cannot be decided here: inline PTX runs on a "
         "GPU only: add plain C++ under CUDAEMU"),
    ],
)  # fmt: skip
def test_missing_features_of_the_emulator_are_undecided(
    cpu: CpuBackend, body: str, first: str, message: str
) -> None:
    error = build(cpu, body, first)
    assert isinstance(error, NotEmulated)
    assert str(error) == message
    assert unbuilt(error, of_others=False).cause == "machine"
    assert unbuilt(error, of_others=False).reason == message


@pytest.mark.parametrize(
    "body", ["*out = erfcinw(0.5);", "*out = halfBlock;", "", "int x = ;\n*out = erfcinv(x);"]
)
def test_a_misspelt_name_does_not_compile(cpu: CpuBackend, body: str) -> None:
    error = build(cpu, body, "" if body else "#include <helper_cuba.h>")
    assert isinstance(error, BuildError)
    assert not isinstance(error, NotEmulated)
    assert unbuilt(error, of_others=False).cause == "unbuilt"


@pytest.mark.parametrize(
    "head",
    ["__launch_bounds__(64)", "__launch_bounds__(WIDTH * 2, 1)", "__launch_bounds__(64, 2, 1)"],
)
def test_launch_bounds_hold(cpu: CpuBackend, head: str) -> None:
    program = build(cpu, "out[threadIdx.x] = 1;", "constexpr int WIDTH = 32;", head)
    assert not isinstance(program, BuildError), program
    out = cpu.allocate(4 * 128)
    cpu.launcher(program, 1, 64, [out])()
    with pytest.raises(
        KernelFault, match=r"with 128 threads per block, and its __launch_bounds__ allow 64 at most"
    ):
        cpu.launcher(program, 1, 128, [out])()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (800,)),
        ("#if __CUDA_ARCH__ >= 900", (800, 900)),
        ("#if __CUDA_ARCH__ >= 800", (800, 750)),
        ("#if __CUDA_ARCH__ < 700", (800,)),
        ("#if __CUDA_ARCH__ > 800", (800, 810)),
        ('min_cc = "8.0"\n#if __CUDA_ARCH__ >= 800', (800,)),
        ('min_cc = "9.0"\n#if __CUDA_ARCH__ >= 1000', (900, 1000)),
    ],
)
def test_architectures_that_select_different_branches(text: str, expected: tuple[int, ...]) -> None:
    assert archs(Source(text, "mine", Path("mine.cu"))) == expected


def test_conditions_in_the_prelude_add_no_variant() -> None:
    source = planned_source("#if __CUDA_ARCH__ >= 900\n#endif\n")
    assert "__CUDA_ARCH__ == 750" in source.text
    assert archs(source) == (800, 900)
    assert archs(planned_source("")) == (800,)


def planned_source(text: str) -> Source:
    prelude = "#if __CUDA_ARCH__ == 750\n#endif\n"
    return Source(f'{prelude}#line 1 "mine.cu"\n{text}', "mine", Path("mine.cu"))


def test_branches_for_other_architectures_are_run(cpu: CpuBackend, watched: CpuBackend) -> None:
    body = "\n#if __CUDA_ARCH__ >= 900\nout[0] = 2;\n#else\nout[0] = 1;\n#endif\n"
    text = f'extern "C" __global__ void mine(int *out, size_t n) {{{body}}}'
    for backend in (cpu, watched):
        [program] = backend.build([Source(text, "mine", Path("mine.cu"))])
        assert program is not None and not isinstance(program, BuildError)
        seen = set()
        for schedule, n in (("ascending", 1), ("random:1", 2)):
            take(backend, schedule)
            out = backend.upload(np.zeros(1, np.int32))
            backend.launcher(program, 1, 1, [out, n])()
            seen.add(int(backend.download(out, "int32", 1)[0]))
        assert seen == {1, 2}
