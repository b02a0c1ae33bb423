"""A foreign file loses its host code and keeps its lines."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.library.device_part import device_part

#: Pieces of files, with the line that must stay if it is for the device.
KEPT = (
    "__global__ void kernel(float *out, int n)\n{\n    out[0] = n + MARK;\n}\n",
    "template <typename T>\n__device__ T twice(T x) { return x + x + MARK; }\n",
    "#define MARK 32\n",
    "struct MARK { float a; int b; };\n",
    "constexpr int MARK = 256;\n",
    "__constant__ int MARK[] = {1, 2, 3};\n",
    "namespace inner {\n__device__ int MARK() { return 1; }\n}\n",
    "#if MARK\n#endif\n",
    '#include "MARK.cuh"\n',
)
DROPPED = (
    "int main()\n{\n    kernel<<<1, 256>>>(0, 0, 1);\n    if (1) { return 0; }\n}\n",
    "#include <iostream>\n",
    '#include "cublas_v2.h"\n',
    '#include "helper_cuda.h"\n',
    '#include "stdlib.h"\n',
    "static void host(int *p) { for (int k = 0; k < 3; k++) p[k] = 0; }\n",
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
    before, after = text.split("\n"), device_part(text, Path()).split("\n")
    assert len(after) == len(before)
    for mark in marks:
        [line] = [number for number, words in enumerate(before) if mark in words]
        assert after[line] == before[line]
    host = ("main", "iostream", "cublas", "helper", "stdlib")
    assert not any(word in line for line in after for word in host)
