"""The device code of a file: what a kernel needs, at the author's lines."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.external.device_code import DeviceFile, read_device_file

#: Pieces that a kernel uses by the name MARK.
KEPT = (
    "template <typename T>\n__device__ T MARK(T x) { return x + x; }\n",
    "__host__ __device__\n__forceinline__ int MARK() { int a[] = {1}; return a[0]; }\n",
    "struct MARK { float a; int b; };\n",
    "typedef struct { float a; } MARK;\n",
    "using MARK = float;\n",
    "enum kinds { first, MARK };\n",
    "constexpr int MARK = 256;\n",
    "__constant__ int MARK[] = {1, 2, 3};\n",
    "namespace inner {\n__device__ int MARK() { return 1; }\n}\n",
    "namespace MARK = cooperative_groups;\n",
)
DROPPED = (
    "int main()\n{\n    kernel<<<1, 256>>>(0, 0, 1);\n    if (1) { return 0; }\n}\n",
    "#include <iostream>\n",
    "struct theirs_timer { cudaEvent_t start; void stop() { constexpr int a = 1; } };\n",
    "std::vector<int> theirs_values = {1, 2};\n",
    "template void theirs_launch<int>(int *a);\n",
    "__global__ void theirs_other(fp8 *a) {}\n",
    '#include "cublas_v2.h"\n',
    '#include "helper_cuda.h"\n',
    "PYBIND11_MODULE(theirs, m)\n",
    "/* several\n   lines } of\n   comment */\n",
    'const char *theirs_text() { return "} not code {"; }\n',
    "\n\n\n\n\n\n",
)


def file_of(text: str, path: Path = Path("theirs.cu"), *include: Path) -> DeviceFile:
    return read_device_file(path, text, include, ())


def places(code: str) -> dict[int, str]:
    """Each line of device code by its number in the author's file."""
    found, number = dict[int, str](), 0
    for line in code.split("\n"):
        directive = re.match(r'#line (\d+) "theirs.cu"', line)
        if directive:
            number = int(directive[1])
        else:
            found[number] = line
            number += 1
    return found


@settings(max_examples=25, deadline=None)
@given(pieces=st.lists(st.sampled_from(KEPT + DROPPED), max_size=10))
def test_each_line_leads_to_the_authors(pieces: list[str]) -> None:
    text, marks = "", []
    for k, piece in enumerate(pieces):
        text += piece.replace("MARK", f"mark_{k}_")
        marks += [f"mark_{k}_"] * ("MARK" in piece)
    text += f"__global__ void wanted(int *in) {{ {'; '.join(marks)}; }}"
    code = file_of(text).code({"wanted"})
    before = text.split("\n")
    for mark in marks:
        line = next(number for number, words in enumerate(before, 1) if mark in words)
        assert mark in places(code)[line]
    assert not any(word in code for word in ("main", "iostream", "cublas", "helper", "theirs_"))


def test_headers_are_found_in_include_folders(tmp_path: Path) -> None:
    (tmp_path / "far.h").write_text("typedef float real;\n")
    source = '#include "far.h"\n__global__ void kernel(real *a) {}\n'
    assert "real;" in file_of(source, Path("theirs.cu"), tmp_path).code({"kernel"})
    assert file_of(source).source.missing == ("far.h",)


def test_branches_for_architectures_are_left_to_the_compiler() -> None:
    source = """__global__ void kernel(int *a)
{
#if __CUDA_ARCH__ >= 900
    a[0] = 1;
#else
    a[0] = 2;
#endif
}
"""
    code = file_of(source).code({"kernel"})
    assert "#if __CUDA_ARCH__ >= 900" in code and "a[0] = 1" in code and "a[0] = 2" in code


def test_warp_functions_before_cuda_9_get_a_mask() -> None:
    source = "__global__ void kernel(int *a) { a[0] = __shfl_down(a[1], 1); }\n"
    assert "#define __shfl_down(...) __shfl_down_sync(~0u, __VA_ARGS__)" in (
        file_of(source).code({"kernel"})
    )


def test_kernels_have_templates_parameters_and_launch_bounds() -> None:
    source = """#define KERNEL __global__
namespace ns {
template <class T, unsigned N = 4>
KERNEL void __launch_bounds__(128) first(const T *a, int n) {}
}
"""
    [function] = file_of(source).kernels()
    assert (function.name, function.template_names) == ("ns::first", ["T", "N"])
    assert function.parameters == ("const T * a", "int n") and function.most_threads == 128


def test_the_code_is_the_same_in_each_temporary_folder() -> None:
    text = "#include <cuda_runtime.h>\n__global__ void kernel(float *x) { x[0] = 1; }\n"
    first, second = (file_of(text).code(["kernel"], set()) for _ in range(2))
    assert first == second and "#include <cuda_runtime.h>" in first
