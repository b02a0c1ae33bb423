"""A foreign file loses its host code and keeps its lines."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.library.device_part import constants, device_part, read_unit

#: Pieces of files whose name a kernel uses, with the line that must stay.
KEPT = (
    "template <typename T>\n__device__ T MARK(T x) { return x + x; }\n",
    "__host__ __device__\n__forceinline__ int MARK() { int a[] = {1}; return a[0]; }\n",
    "#define MARK 32\n",
    "struct MARK { float a; int b; };\n",
    "typedef struct { float a; } MARK;\n",
    "using MARK = float;\n",
    "enum kinds { first, MARK };\n",
    "constexpr int MARK = 256;\n",
    "__constant__ int MARK[] = {1, 2, 3};\n",
    "namespace inner {\n__device__ int MARK() { return 1; }\n}\n",
    "#if MARK\n#endif\n",
    "namespace MARK = cooperative_groups;\n",
)
DROPPED = (
    "int main()\n{\n    kernel<<<1, 256>>>(0, 0, 1);\n    if (1) { return 0; }\n}\n",
    "#include <iostream>\n",
    "using std::theirs_cout;\n",
    "struct theirs_timer { cudaEvent_t start; void stop() { constexpr int a = 1; } };\n",
    "std::vector<int> theirs_values = {1, 2};\n",
    "template void theirs_launch<int>(int *a);\n",
    "__device__ float theirs_unused(float x) { return tex1D<float>(theirs_texture, x); }\n",
    "__global__ void theirs_other(fp8 *a) {}\n",
    '#include "cublas_v2.h"\n',
    '#include "helper_cuda.h"\n',
    '#include "stdlib.h"\n',
    "static void theirs_zero(int *p) { for (int k = 0; k < 3; k++) p[k] = 0; }\n",
    '// a comment with { braces ( and "quotes"\n',
    "/* several\n   lines } of\n   comment */\n",
    'const char *text() { return "} not code {"; }\n',
    "\n",
)


@settings(max_examples=200, deadline=None)
@given(pieces=st.lists(st.sampled_from(KEPT + DROPPED), max_size=12))
def test_every_line_keeps_its_number(pieces: list[str]) -> None:
    text, marks = "", []
    for k, piece in enumerate(pieces):
        text += piece.replace("MARK", f"mark_{k}_")
        marks += [f"mark_{k}_"] * ("MARK" in piece)
    text += f"__global__ void wanted(int *in) {{ {'; '.join(marks)}; }}"
    after = device_part(read_unit(Path("nowhere/theirs.cu"), text), "wanted").split("\n")
    before = text.split("\n")
    assert len(after) == len(before)
    for mark in marks:
        line, _ = (number for number, words in enumerate(before) if mark in words)
        assert after[line] == before[line]
    host = ("main", "iostream", "cublas", "helper", "stdlib", "theirs_")
    assert not any(word in line for line in after for word in host)


def test_the_numbers_that_a_kernel_reaches() -> None:
    text = """#define COUNT (1 << 20)
#define UNUSED 77
const int TOTAL = 64 * 1024; // 99
__global__ void other() { int x = 55; }
__global__ void kernel(const int *a, int *b, int n)
{
    if (n > COUNT || n > 1'000'000u || n > TOTAL || n > 0x7fff || n * 2.5f > 4e3) b[0] = a[1 << 99];
}
"""
    found = constants(read_unit(Path("theirs.cu"), text), "kernel")
    assert {2**20, 10**6, 2**16} <= set(found)
    assert not {77, 55, 99 + 1, 0x7FFF, 4000} & set(found)
    assert max(found) == 2**63


def test_headers_are_looked_for_in_further_folders(tmp_path: Path) -> None:
    (tmp_path / "far.h").write_text("typedef float real;\n")
    source = '#include "far.h"\n__global__ void kernel(real *a) {}\n'
    assert read_unit(Path("theirs.cu"), source).missing == ("far.h",)
    found = read_unit(Path("theirs.cu"), source, [tmp_path])
    assert found.missing == ()
    assert "typedef float real" in device_part(found, "kernel")
