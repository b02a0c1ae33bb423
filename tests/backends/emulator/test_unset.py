"""Variables without an initial value are filled in the translated text."""

from __future__ import annotations

import pytest

from cudareduce.backends.emulator.translation import instrument


@pytest.mark.parametrize(
    ("body", "filled"),
    [
        ("float v;", "float v; cudaemu::unset(v);"),
        ("int a = 0, b;", "int a = 0, b; cudaemu::unset(b);"),
        ("T r[4][2], *p;", "T r[4][2], *p; cudaemu::unset(r); cudaemu::unset(p);"),
        ("__shared__ float s[32];", "__shared__ float s[32];"),
        ("extern __shared__ int all[];", "extern __shared__ int all[];"),
        ("for (int i; i < 3; i++) ;", "for (int i; i < 3; i++) ;"),
        ("int f(int);", "int f(int);"),
        ("double d{1};", "double d{1};"),
        ("/* one */ int a;", "/* one */ int a; cudaemu::unset(a);"),
        ("#pragma unroll\n  int a;", "#pragma unroll\n  int a; cudaemu::unset(a);"),
        *(
            (f"{words} s[4];",) * 2
            for words in (
                "extern __shared__ __align__(sizeof(T)) unsigned char",
                "__shared__ __align__(16) T",
                "__shared__ alignas(16) float",
                "__align__(16) __shared__ T",
                "static __shared__ T",
                "volatile __shared__ T",
                "__shared__ typename T::X",
                "typedef float",
                "using X = T; __shared__ X",
            )
        ),
    ],
)
def test_uninitialized_variables_are_filled_in_their_line(body: str, filled: str) -> None:
    around = "__global__ void f(float *in)\n{{\n  {}\n}}\nint outside;\n"
    assert instrument(around.format(body)) == around.format(filled)
