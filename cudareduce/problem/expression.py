"""A user's own operator: its expression compiled by g++, as the reference and to test its laws.

The device gets the same expression; here it is folded one element after the other in a wider type,
which is right for any associative operator and says nothing about how a kernel goes about it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cudareduce.errors import UsageError
from cudareduce.problem.dtypes import DType, accumulator
from cudareduce.problem.operators import Operator
from cudareduce.problem.program import Program, program_of

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
#include <cstdio>
#include <cstdlib>
#include <cstring>
using namespace std;
using Element = {element};
using Wide = {wide};
using Narrow = {narrow};
static Wide combine(Wide a, Wide b) {{ return Wide({expression}); }}
template <class T> static T *read_all(size_t count)
{{
    T *values = static_cast<T *>(malloc((count + 1) * sizeof(T)));
    if (!values || fread(values, sizeof(T), count, stdin) != count)
        exit(1);
    return values;
}}
static bool write_one(const void *value, size_t bytes)
{{
    return fwrite(value, bytes, 1, stdout) == 1;
}}
int main(int, char **words)
{{
    bool whole = true;
    size_t n = strtoull(words[2], nullptr, 10), rows = strtoull(words[3], nullptr, 10);
    if (!strcmp(words[1], "identity")) {{
        Narrow value = Narrow({identity});
        whole = write_one(&value, sizeof value);
    }} else if (!strcmp(words[1], "fold")) {{
        for (size_t row = 0; row < rows; row++) {{
            Element *in = read_all<Element>(n);
            Wide value = Wide({identity});
            for (size_t k = 0; k < n; k++)
                value = combine(value, Wide(in[k]));
            free(in);
            whole = whole && write_one(&value, sizeof value);
        }}
    }} else {{
        Wide *a = read_all<Wide>(n), *b = read_all<Wide>(n);
        for (size_t k = 0; k < n; k++) {{
            Wide value = combine(a[k], b[k]);
            whole = whole && write_one(&value, sizeof value);
        }}
    }}
    return whole && fflush(stdout) == 0 ? 0 : 1;
}}
"""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An operator's expression as a program for one pair of types: `wide` is the NumPy dtype that
    it reckons in, `narrow` the accumulator's. What `Program.run` raises it may raise wherever it is
    run."""

    program: Program
    wide: str
    narrow: str

    def identity(self) -> bytes:
        """The identity, as the bytes of one accumulator."""
        return self._run(["identity", "0", "0"], np.empty(0), 1, self.narrow).tobytes()

    def fold(self, rows: np.ndarray) -> np.ndarray:
        """Each row folded from its first element to its last; `rows` is two-dimensional, with
        16-bit floats as float32."""
        count, n = rows.shape
        given = np.ascontiguousarray(rows)
        return self._run(["fold", str(n), str(count)], given, count, self.wide)

    def combine(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The operator on pairs `a[k]`, `b[k]`, both of the wide type, as is what comes back."""
        given = np.concatenate([a, b])
        return self._run(["pairs", str(len(a)), "1"], given, len(a), self.wide)

    def _run(self, words: list[str], given: np.ndarray, count: int, kind: str) -> np.ndarray:
        return self.program.run(words, [given], count, kind)


@cache
def compiled(op: Operator, dtype: DType, acc: DType) -> Compiled:
    """Compile an expression, once a process; the compiler's words where it does not compile are a
    UsageError, a g++ that is missing or does not work is an EnvironmentProblem."""
    cpp, wide = _WIDE.get(acc.name, (acc.cpp, acc.storage))
    text = _SOURCE.format(
        element="float" if _is_half(dtype) else dtype.cpp, wide=cpp, narrow=acc.cpp,
        expression=op.expression, identity=op.identity_text,
    )  # fmt: skip
    called = f"--op-expr {op.expression!r} with --identity {op.identity_text!r}"
    return Compiled(program_of(text, called, acc.name), wide, acc.storage)


def own_operator(expression: str, identity: str | None, dtype: DType, rtol: float) -> Operator:
    """The operator of an expression, with its laws tested on random values.

    `rtol` is how far a float answer may be off, relatively. An identity that is missing or is none
    is a UsageError; so is what does not compile, and a missing g++ is an EnvironmentProblem.
    Whether the operator commutes is found out here; that it is associative is what every kernel
    relies on, so `broken_law` says when it is not.
    """
    if not expression.strip():
        raise UsageError("--op-expr is empty: write C++ in a and b, such as 'a > b ? a : b'")
    if not identity or not identity.strip():
        raise UsageError(
            "--op-expr needs --identity, the value that changes nothing, such as --identity 0"
        )
    if not (expression + identity).isprintable():
        raise UsageError("--op-expr and --identity take one line of C++ without control characters")
    bare = Operator(
        expression, expression, True, True, needs="compare_and_swap",
        expression=expression, identity_text=identity, rtol=rtol,
    )  # fmt: skip
    one = compiled(bare, dtype, accumulator(dtype))
    a, b, _ = _values(one)
    one.combine(a[:1], b[:1])  # what prints, ends or crashes does so at once
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
    return replace(bare, commutative=commutes)


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
