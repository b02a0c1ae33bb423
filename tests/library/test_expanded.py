"""Macros that stand for words of CUDA, put in their place."""

from __future__ import annotations

import time

from cudareduce.library.expanded import expanded, macros_in


def whole(source: str) -> str:
    return expanded(source, macros_in(source))


def test_qualifiers_come_in_the_place_of_their_name() -> None:
    source = "#define KERNEL __global__ void  // of ours\nKERNEL fold(int *x) {}\n"
    assert whole(source).splitlines()[1].split() == ["__global__", "void", "fold(int", "*x)", "{}"]


def test_a_kernel_that_a_macro_makes_bears_the_name_it_is_given() -> None:
    source = (
        "#define MAKE(NAME, T) \\\n__global__ void NAME##_all(const T *x, T *y) \\\n{ *y = *x; }\n"
        "MAKE(sum, float)\nint after;\n"
    )
    made = whole(source)
    assert "__global__ void sum_all(const float *x, float *y)" in made
    assert made.splitlines().index("int after;") == 4


def test_what_stands_for_nothing_of_cuda_stays() -> None:
    source = '#define N 12\nint n = N;\nconst char *words = "__global__";\n'
    assert whole(source) == source


def test_two_meanings_are_none() -> None:
    source = "#define K __global__\n#undef K\n#define K __device__\nK void f() {}\n"
    assert whole(source) == source


def test_words_about_clusters_are_left_out() -> None:
    made = whole("__global__ void __cluster_dims__(2,\n1, 1) fold(int *x) {}\n")
    assert "__cluster_dims__" not in made
    assert made.count("\n") == 2


def test_nobody_waits_for_a_text_that_no_person_has_written() -> None:
    began = time.monotonic()
    whole("__cluster_dims__(" * 20_000)
    bomb = "#define A __device__ " + "x" * 2000 + "\n" + "A " * 20_000
    assert whole(bomb) == bomb
    assert time.monotonic() - began < 20
