"""Launches that are not written where the kernel's name is: by functions that are given it, by
variables, tables and addresses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from tests.library.test_own_launch import TILES, adopted, launched


@pytest.mark.parametrize(
    ("before", "host", "expected"),
    [
        ("", "template <class K> void go(K k, int g, int b, float *x, float *y, int n)"
         "{ k<<<g, b>>>(x, y, n); } int main() { go(sums, 40, 96, a, b, 7); }", (96, 1, 40)),
        ("", "template <class K, class... A> void go(const char *s, K k, dim3 g, dim3 b, A... a)"
         "{ k<<<g, b>>>(a...); } int main() { go(\"it\", sums, 12, dim3(64), x, y, n); }",
         (64, 1, 12)),
        ("", "void go(void (*k)(const float *, float *, int), int b, float *x, float *y, int n)"
         "{ k<<<3, b>>>(x, y, n); } int main() { const int t = 128; go(&sums, t, x, y, n); }",
         (128, 1, 3)),
        ("", "void run(float *a, float *b, int n) { auto k = sums; k<<<9, 512>>>(a, b, n); }",
         (512, 1, 9)),
        ("", "struct Step { void (*k)(const float *, float *, int); } steps[] = {{sums}};"
         "void run(float *a, float *b, int n) { steps[0].k<<<5, 32>>>(a, b, n); }", (32, 1, 5)),
        ("", "void run(float *a, float *b, int n) { void *p[] = {&a, (void *)&b, &n};"
         "cudaLaunchKernel((const void *)sums, dim3(6), dim3(192), p, 0, 0); }", (192, 1, 6)),
        # What says nothing that is understood leaves it open.
        ("", "template <class K> void go(K k, int n) { k<<<n / 2 + 3, n / 7>>>(x, y, n); }"
         "int main() { go(sums, n); }", (256, 1, "cover")),
        ("", "void run(void **p) { cudaLaunchKernel((const void *)sums, 6, 192, p, 0, 0); }",
         (256, 1, "cover")),
        # And a kernel of another file is another.
        ("", "void run(float *a, float *b, int n) { theirs<<<1, 32>>>(a, b, n); }",
         (256, 1, "cover")),
    ],
)  # fmt: skip
def test_a_launch_elsewhere_tells_block_and_grid(
    before: str, host: str, expected: tuple[int, int, object]
) -> None:
    strides = TILES.replace("if (k < n) ", "for (; k < n; k += gridDim.x * blockDim.x) ")
    kernel = adopted(strides % (before, host))
    found = kernel.fixed_grid or ("cover" if kernel.grid == "fill" else kernel.grid)
    assert (kernel.block, kernel.items, found) == expected


def test_a_launch_by_its_name_comes_first() -> None:
    by_pointer = "void go(void (*k)(float *, float *, int)) { k<<<4, 512>>>(a, b, n); }"
    own = "void run(float *a, float *b, int n) { sums<<<n / 64, 64>>>(a, b, n); }"
    assert launched(own + by_pointer)[0] == 64


@pytest.mark.parametrize(
    ("before", "host", "said"),
    [
        ("", "void f(int n, int t) { sums<<<7, t>>>(a, b, n); }",
         "(its launch, line 7, which does not tell its block)"),
        ("#define BLOCK 128\n", "void f(int n, int t) { sums<<<n / BLOCK, t>>>(a, b, n); }",
         "its launch, line 8, which does not tell its block"),
        ("", "void f(int n) { sums<<<n, 64>>>(a, b, n); sums<<<n, 32>>>(a, c, n); }",
         "its launches, lines 7, 7, which do not tell one block"),
    ],
)  # fmt: skip
def test_what_launches_do_not_tell_is_said(before: str, host: str, said: str) -> None:
    text = TILES % (before, host)
    assert said in " ".join(adopt(Path("theirs.cu"), text, Guesses()).said)


def test_a_struct_by_its_own_name_is_no_other() -> None:
    text = "struct pair { int a; };\ntypedef struct pair pair;\n"
    text += "__global__ void sum(const pair *x, int *y, int n) { *y = x[0].a; }"
    with pytest.raises(UsageError, match="reads pair, which is none of"):
        adopt(Path("theirs.cu"), text, Guesses())


@pytest.mark.parametrize(
    "words",
    ["go(sums, 3, t, a, b, n); ", "cudaLaunchKernel((void *)sums, 3, t, p, 0, 0); ",
     "void *p[] = {&a, &b, &n}; ", "k<<<3, t>>>(a, b, n); ", "theirs<<<3, k>>>(k, b, k); "],
)  # fmt: skip
def test_a_long_host_function_is_read_once(words: str) -> None:
    went = "template <class K> void go(K k, int g, int b, float *x, float *y, int n)"
    went += "{ k<<<g, b>>>(x, y, n); }\n"
    main = "int main() { int t = 64; auto k = sums; %s cudaLaunchKernel(sums, 3, t, p); }"
    began = time.process_time()
    adopted(TILES % (went, main % (words * 1_000)))
    assert time.process_time() - began < 2
