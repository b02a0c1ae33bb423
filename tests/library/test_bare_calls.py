"""Calls of macros that no semicolon ends are left out where an item of the file follows."""

from __future__ import annotations

import pytest

from cudareduce.library.bare_calls import without_bare_calls


@pytest.mark.parametrize(("source", "rest"), [
    ("BIND(a, b)\n__global__ void k(int *p) {}\n", "\n__global__ void k(int *p) {}\n"),
    ("BIND(a,\n  (b))\nBIND(c, d)\ntemplate <class T> struct S {};\n",
     "\n\n\ntemplate <class T> struct S {};\n"),
    ("int x;\nBIND(f32, torch::kFloat, float, 1)\n", "int x;\n\n"),
])  # fmt: skip
def test_left_out(source: str, rest: str) -> None:
    assert without_bare_calls(source) == rest


@pytest.mark.parametrize("source", [
    "__launch_bounds__(256)\n__global__ void k(int *p) {}\n",
    "main()\n{\n}\n",
    "MODULE(name, m) {\n}\n",
    "void f() {\n  g(1);\n}\n",
    "void\nf(int *p)\n{\n}\n",
])  # fmt: skip
def test_kept(source: str) -> None:
    assert without_bare_calls(source) == source
