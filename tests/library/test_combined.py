"""By what a text combines."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.library.body import Body
from cudareduce.library.combined import bits_in, ops_in
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("a = fmaxf(a, b);", ("max",)),
        ("a = MIN(a, x[k]);", ("min",)),
        ("if (x[k] > a) a = x[k];", ("max", "min")),
        ("for (int k = 0; k < n; k++) a += x[k];", ()),
        ("y[0] = a / n;", ("mean",)),
        ("y[0] = a / (float)n; s *= 2;", ("mean",)),
        ("a *= x[k];", ("prod",)),
        ("a = minus(a, b) / 2;", ()),
    ],
)
def test_what_a_text_may_combine_by(body: str, ops: tuple[str, ...]) -> None:
    assert ops_in(f"void f() {{ {body} }}") == ops


def test_an_array_that_is_read_before_it_is_set_holds_something() -> None:
    assert Body("{ int a = place[i]; place[0] = a; }").reads_first("place")
    assert not Body("{ place[i] = 0; if (x[place[i]] < x[k]) place[i] = k; }").reads_first("place")
    assert not Body("{ other[0] = 1; }").reads_first("place")


@pytest.mark.parametrize(("body", "sign"), [
    ("a ^= x[k]; atomicXor(y, a);", "^"), ("atomicOr(y, a);", "|"), ("a &= x[k];", "&"),
    ("a |= x[k]; b &= a;", ""), ("a += x[k] ^ 1;", ""),
])  # fmt: skip
def test_by_what_a_text_combines_bits(body: str, sign: str) -> None:
    assert bits_in(f"void f() {{ {body} }}") == sign


def test_a_name_of_a_mean_beside_an_extreme_says_neither() -> None:
    text = "__global__ void %s(const float *a, float *b, int n) { b[0] = fmaxf(a[0], a[n - 1]); }"
    for name, alone in (("max_of", True), ("mean_max", False), ("sum_and_max", False)):
        (kernel,) = adopt(Path("theirs.cu"), text % name, Guesses()).kernels
        assert (kernel.ops == ("max",)) is alone
