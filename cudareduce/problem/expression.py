"""A user's own operator: its expression compiled by g++, as the reference and to test its laws.

The device gets the same expression; here it is folded one element after the other in a wider type,
which is right for any associative operator and says nothing about how a kernel goes about it.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.problem.dtypes import DType, accumulator
from cudareduce.problem.operators import Operator

#: Wider than the accumulator, so that the reference's own rounding does not count.
_WIDE = {"float32": ("double", "float64"), "float64": ("long double", "longdouble")}
#: Random triples that laws are tested on.
_TRIPLES = 2000
#: Laws hold up to a few roundings in the accumulator's type, which an expression may go through.
_LAW_ROUNDINGS = 8

_SOURCE = """
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
using namespace std;
using Element = {element};
using Wide = {wide};
using Narrow = {narrow};
static Wide combine(Wide a, Wide b) {{ return Wide({expression}); }}
extern "C" {{
void identity(Narrow *out) {{ *out = Narrow({identity}); }}
void fold(const Element *in, Wide *out, size_t n, size_t rows)
{{
    for (size_t row = 0; row < rows; row++) {{
        Wide value = Wide({identity});
        for (size_t k = 0; k < n; k++)
            value = combine(value, Wide(in[row * n + k]));
        out[row] = value;
    }}
}}
void pairs(const Wide *a, const Wide *b, Wide *out, size_t n)
{{
    for (size_t k = 0; k < n; k++)
        out[k] = combine(a[k], b[k]);
}}
}}
"""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An operator's expression as a library, for one pair of types: `wide` is the NumPy dtype that
    it reckons in, `narrow` that of the accumulator."""

    library: ctypes.CDLL
    wide: str
    narrow: str

    def identity(self) -> bytes:
        """The identity, as the bytes of one accumulator."""
        value = np.empty(1, self.narrow)
        self.library.identity(_address(value))
        return value.tobytes()

    def fold(self, rows: np.ndarray) -> np.ndarray:
        """Each row folded from its first element to its last; `rows` is two-dimensional, with
        16-bit floats as float32."""
        data = np.ascontiguousarray(rows)
        out = np.empty(len(data), self.wide)
        count = ctypes.c_size_t(data.shape[1]), ctypes.c_size_t(len(data))
        self.library.fold(_address(data), _address(out), *count)
        return out

    def combine(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The operator on pairs `a[k]`, `b[k]`, both of the wide type, as is what comes back."""
        out = np.empty(len(a), self.wide)
        self.library.pairs(_address(a), _address(b), _address(out), ctypes.c_size_t(len(a)))
        return out


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@cache
def compiled(op: Operator, dtype: DType, acc: DType) -> Compiled:
    """Compile an expression, once a process; the compiler's words where it does not compile are a
    UsageError, a missing g++ is an EnvironmentProblem."""
    cpp, wide = _WIDE.get(acc.name, (acc.cpp, acc.storage))
    text = _SOURCE.format(
        element="float" if _is_half(dtype) else dtype.cpp, wide=cpp, narrow=acc.cpp,
        expression=op.expression, identity=op.identity_text,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="cudareduce-") as folder:
        library = Path(folder, "operator.so")
        command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-w", "-fwrapv", "-shared", "-fPIC",
                   "-fmax-errors=3", "-", "-o", str(library)]  # fmt: skip
        try:
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise EnvironmentProblem(
                "g++ was not found: --op-expr needs it for the reference (Debian: apt-get install "
                "g++)"
            ) from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            said = errors[0].split("error:")[1].strip() if errors else done.stderr
            raise UsageError(
                f"--op-expr {op.expression!r} with --identity {op.identity_text!r} does not "
                f"compile for {acc.name}: {said}; write C++ in a and b, such as 'a > b ? a : b'"
            )
        return Compiled(ctypes.CDLL(str(library)), wide, acc.storage)


def own_operator(expression: str, identity: str | None, dtype: DType, rtol: float) -> Operator:
    """The operator of an expression, with its laws tested on random values.

    `rtol` is how far a float answer may be off, relatively. An identity that is missing or is none
    is a UsageError; so is what does not compile, and a missing g++ is an EnvironmentProblem.
    Whether the operator commutes is found out here; that it is associative is what every kernel
    relies on, so `broken_law` says when it is not.
    """
    if identity is None:
        raise UsageError(
            "--op-expr needs --identity, the value that changes nothing, such as --identity 0"
        )
    bare = Operator(expression, expression, True, True, swaps=True, expression=expression,
                    identity_text=identity, rtol=rtol)  # fmt: skip
    one = compiled(bare, dtype, accumulator(dtype))
    a, b, _ = _values(one)
    rounding = _LAW_ROUNDINGS * accumulator(dtype).epsilon
    neutral = np.full(len(a), np.frombuffer(one.identity(), one.narrow)[0], one.wide)
    for side in (one.combine(neutral, a), one.combine(a, neutral)):
        wrong = np.flatnonzero(~_alike(side, a, rounding))
        if len(wrong):
            k = wrong[0]
            raise UsageError(
                f"{identity} is not an identity of {expression!r}: with {a[k]:g} it gives "
                f"{side[k]:g}; change --identity"
            )
    commutes = bool(_alike(one.combine(a, b), one.combine(b, a), rounding).all())
    return Operator(expression, expression, commutes, True, swaps=True, expression=expression,
                    identity_text=identity, rtol=rtol)  # fmt: skip


def broken_law(op: Operator, dtype: DType) -> str | None:
    """A warning where an expression is not associative, with the triple that shows it; None where
    random triples show nothing. Raises what `compiled` raises."""
    one = compiled(op, dtype, accumulator(dtype))
    a, b, c = _values(one)
    left = one.combine(one.combine(a, b), c)
    right = one.combine(a, one.combine(b, c))
    wrong = np.flatnonzero(~_alike(left, right, _LAW_ROUNDINGS * accumulator(dtype).epsilon))
    if not len(wrong):
        return None
    k = wrong[0]
    return (
        f"{op.expression!r} is not associative: with {a[k]:g}, {b[k]:g}, {c[k]:g} it gives "
        f"{left[k]:g} or {right[k]:g}, depending on the order; no kernel can be right about it"
    )


def _is_half(dtype: DType) -> bool:
    """Sixteen-bit floats reach the reference as float32 numbers."""
    return dtype.kind == "float" and dtype.size == 2


def _values(one: Compiled) -> list[np.ndarray]:
    """Random triples, of both signs where the type has them."""
    rng = np.random.default_rng(0)
    if np.dtype(one.wide).kind == "f":
        return [(rng.random(_TRIPLES) * 8 - 4).astype(one.wide) for _ in range(3)]
    info = np.iinfo(one.wide)
    return [rng.integers(info.min, info.max, _TRIPLES, one.wide, endpoint=True) for _ in range(3)]


def _alike(left: np.ndarray, right: np.ndarray, rtol: float) -> np.ndarray:
    if left.dtype.kind != "f":
        return np.asarray(left == right)
    scale = np.maximum(np.abs(left), np.abs(right))
    return np.asarray((left == right) | (np.abs(left - right) <= rtol * scale))
