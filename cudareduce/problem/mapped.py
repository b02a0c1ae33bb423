"""A map before a reduction: a user's expression, whose values are formed and combined on the host.

For floats it is evaluated in a wider type, with a bound for what the accumulator's arithmetic makes
of it beside every value: a running error analysis (Higham, Accuracy and Stability of Numerical
Algorithms, 3.3). Each of + - * / and sqrt rounds once, by half a unit in the last place; of other
functions CUDA allows up to four units here, and nothing is rounded that the type can hold. Integers
wrap as they do on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from cudareduce.problem.dtypes import DType
from cudareduce.problem.operators import Reduction
from cudareduce.problem.program import Program, program_of

#: What a row of floats comes back as.
_FIELDS = 4

_NUMBER = """
typedef long double Wide;
static const Wide UNIT = numeric_limits<Narrow>::epsilon() / 2;
struct Number {
    Wide value = 0, error = 0;
    Number() {}
    template <class T, enable_if_t<is_arithmetic<T>::value, int> = 0>
    Number(T x) : Number(rounded(x, 0, 1)) {}
    Number(Wide v, Wide e) : value(v), error(e) {}
    template <class T, enable_if_t<is_arithmetic<T>::value, int> = 0>
    explicit operator T() const { return T(value); }
    static Number rounded(Wide v, Wide e, Wide units)
    {
        if (!isfinite(v))
            return Number(v, 0);
        if (e == 0 && Wide(Narrow(v)) == v)
            return Number(v, 0);
        if (!(fabsl(v) + e <= numeric_limits<Narrow>::max()))
            return Number(v, INFINITY);
        return Number(v, e + units * UNIT * (fabsl(v) + e) + numeric_limits<Narrow>::denorm_min());
    }
    friend Number operator+(Number a) { return a; }
    friend Number operator-(Number a) { return Number(-a.value, a.error); }
    friend Number operator+(Number a, Number b)
    { return rounded(a.value + b.value, a.error + b.error, 1); }
    friend Number operator-(Number a, Number b) { return a + -b; }
    friend Number operator*(Number a, Number b)
    {
        Wide e = a.error == 0 && b.error == 0 ? 0
            : fabsl(a.value) * b.error + fabsl(b.value) * a.error + a.error * b.error;
        return rounded(a.value * b.value, e, 1);
    }
    friend Number operator/(Number a, Number b)
    {
        Wide q = a.value / b.value;
        if (a.error == 0 && b.error == 0)
            return rounded(q, 0, 1);
        Wide least = fabsl(b.value) - b.error;
        Wide e = least > 0 ? (a.error + fabsl(q) * b.error) / least : INFINITY;
        return rounded(q, e, 1);
    }
    friend bool operator<(Number a, Number b) { return a.value < b.value; }
    friend bool operator>(Number a, Number b) { return a.value > b.value; }
    friend bool operator<=(Number a, Number b) { return a.value <= b.value; }
    friend bool operator>=(Number a, Number b) { return a.value >= b.value; }
    friend bool operator==(Number a, Number b) { return a.value == b.value; }
    friend bool operator!=(Number a, Number b) { return a.value != b.value; }
};
template <class F> static Number of(F f, Number x, Wide units)
{
    Wide v = f(x.value), e = 0;
    if (x.error != 0)
        e = fmaxl(fabsl(f(x.value + x.error) - v), fabsl(f(x.value - x.error) - v));
    return Number::rounded(v, e, units);
}
static Number fabs(Number x) { return Number(fabsl(x.value), x.error); }
static Number fmax(Number a, Number b)
{
    if (a.value != a.value || b.value != b.value)
        return a.value != a.value ? b : a;
    return Number(fmaxl(a.value, b.value), fmaxl(a.error, b.error));
}
static Number fmin(Number a, Number b) { return -fmax(-a, -b); }
static Number fma(Number a, Number b, Number c) { return a * b + c; }
static Number abs(Number x) { return fabs(x); }
static Number fabsf(Number x) { return fabs(x); }
static Number max(Number a, Number b) { return fmax(a, b); }
static Number min(Number a, Number b) { return fmin(a, b); }
static Number fmaxf(Number a, Number b) { return fmax(a, b); }
static Number fminf(Number a, Number b) { return fmin(a, b); }
static Number fmaf(Number a, Number b, Number c) { return fma(a, b, c); }
#define FUNCTION(NAME, UNITS)                                                                    \\
    static Number NAME(Number x) { return of([](Wide w) { return ::NAME##l(w); }, x, UNITS); }   \\
    static Number NAME##f(Number x) { return NAME(x); }
FUNCTION(sqrt, 1)
FUNCTION(exp, 8)
FUNCTION(log, 8)
FUNCTION(sin, 8)
FUNCTION(cos, 8)
FUNCTION(tanh, 8)
#undef FUNCTION
static Number mapped(Number a, Number b) { return Number(EXPRESSION); }

// A row's answer, the sum of its magnitudes, how far the errors of its values may move it, and that
// sum in the largest unit that all values are multiples of, infinite where one is rounded.
struct Row {
    Wide sum = 0, rest = 0, size = 0, slack = 0, extreme = NAN;
    int last = INT_MAX;
    bool nan = false, exact = true;
    void add(Number x)
    {
        Wide v = x.value, next = sum + v;
        if (isfinite(next))
            rest += fabsl(sum) >= fabsl(v) ? (sum - next) + v : (v - next) + sum;
        sum = next;
        size += fabsl(v);
        exact = exact && x.error == 0 && isfinite(v);
        if (exact && v != 0) {
            int power;
            unsigned long long bits = ldexpl(frexpl(fabsl(v), &power), 64);
            last = min(last, power - 64 + __builtin_ctzll(bits));
        }
        nan = nan || v != v;
        if (v == v && (extreme != extreme || (LARGEST ? v > extreme : v < extreme)))
            extreme = v;
        slack = EXTREMUM ? fmaxl(slack, x.error) : slack + x.error;
    }
    bool write()
    {
        Wide all = isfinite(sum) ? sum + rest : sum;
        Wide units = !exact ? INFINITY : last == INT_MAX ? 0 : ldexpl(size, -last);
        Wide fields[] = {EXTREMUM ? (nan ? Wide(NAN) : extreme) : all, size, slack, units};
        return fwrite(fields, sizeof fields, 1, stdout) == 1;
    }
};
"""
_WHOLE = """
typedef Narrow Wide;
typedef Term Number;
static Wide mapped(Term a, Term b) { return Wide(EXPRESSION); }
struct Row {
    Wide sum = 0, extreme = 0;
    bool any = false;
    void add(Wide v)
    {
        sum = Wide(sum + v);
        if (!any || (LARGEST ? v > extreme : v < extreme))
            extreme = v;
        any = true;
    }
    bool write() { return fwrite(EXTREMUM ? &extreme : &sum, sizeof sum, 1, stdout) == 1; }
};
"""
_SOURCE = """
#include <algorithm>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <limits>
using namespace std;
typedef {element} Element;
typedef {narrow} Narrow;
typedef {term} Term;
static const bool EXTREMUM = {extremum}, LARGEST = {largest};
#define EXPRESSION {expression}
{number}
#undef EXPRESSION
static const size_t MOST = 1 << 16;
static Element a[MOST], b[MOST];
static size_t taken(Element *into, size_t count)
{{
    return fread(into, sizeof(Element), count < MOST ? count : MOST, stdin);
}}
int main(int, char **words)
{{
    size_t n = strtoull(words[1], nullptr, 10), rows = strtoull(words[2], nullptr, 10);
    for (size_t row = 0; row < rows; row++) {{
        Row all;
        for (size_t left = n, count; left; left -= count) {{
            count = taken(a, left);
            if (!count || ({inputs} == 2 && taken(b, count) != count))
                return 1;
            for (size_t k = 0; k < count; k++)
                all.add(mapped(Number(a[k]), Number({inputs} == 2 ? b[k] : a[k])));
        }}
        if (!all.write())
            return 1;
    }}
    return fflush(stdout) == 0 ? 0 : 1;
}}
"""
#: Elements of one array that lie behind each other on the program's input, before the other's.
_TURN = 2**16


@dataclass(frozen=True, slots=True)
class Folded:
    """What a map's values give, by rows: the answer, and of floats the sum of magnitudes, how far
    the map's own roundings may move the answer, and that sum counted in the largest unit that all
    values are multiples of, infinite where the map rounds one."""

    answer: np.ndarray
    magnitude: np.ndarray | None = None
    slack: np.ndarray | None = None
    units: np.ndarray | None = None


def try_map(reduction: Reduction) -> None:
    """See that the map of a reduction, if it has one, compiles and does not end its process; raises
    what `fold_mapped` raises."""
    if reduction.map and reduction.why_undefined() is None:
        kind = "float32" if _is_half(reduction.dtype) else reduction.dtype.storage
        fold_mapped(reduction, (np.ones((1, 1), kind),) * reduction.inputs)


def fold_mapped(reduction: Reduction, rows: tuple[np.ndarray, ...]) -> Folded:
    """Reduce what the map of a reduction makes of rows of numbers, of each input one
    two-dimensional array, which have elements. Raises what `program_of` and `Program.run` raise."""
    count, n = rows[0].shape
    kind = "float32" if _is_half(reduction.dtype) else rows[0].dtype
    given = _in_turns([np.ascontiguousarray(one, kind) for one in rows])
    program = _program(replace(reduction, within=None))
    words = [str(n), str(count)]
    if reduction.acc.kind != "float":
        return Folded(program.run(words, given, count, reduction.acc.storage))
    found = program.run(words, given, count * _FIELDS, "longdouble").reshape(count, _FIELDS)
    answer, size, slack, units = found.T
    shares = n if reduction.op.name == "mean" else 1
    with np.errstate(over="ignore"):  # what is beyond float64 is infinite
        size, slack, units = (array.astype(float) for array in (size, slack, units))
    return Folded(answer / shares, size / shares, slack / shares, units)


def _in_turns(rows: list[np.ndarray]) -> list[np.ndarray]:
    """Rows as the program reads them: some elements of one input, then as many of the other."""
    if len(rows) == 1:
        return rows
    return [
        part
        for some in zip(*rows, strict=True)
        for first in range(0, len(some[0]), _TURN)
        for part in (one[first : first + _TURN] for one in some)
    ]


@cache
def _program(reduction: Reduction) -> Program:
    """The program of a reduction's map, compiled once a process."""
    mapped, dtype, acc = reduction.map, reduction.dtype, reduction.acc
    assert mapped is not None
    text = _SOURCE.format(
        element="float" if _is_half(dtype) else dtype.cpp, narrow=acc.cpp, term=reduction.terms.cpp,
        extremum=int(reduction.op.name in ("min", "max")), largest=int(reduction.op.name == "max"),
        expression=mapped.expression, inputs=mapped.inputs,
        number=_NUMBER if acc.kind == "float" else _WHOLE,
    )  # fmt: skip
    return program_of(text, f"the map {mapped.expression!r}", acc.name)


def _is_half(dtype: DType) -> bool:
    """Sixteen-bit floats reach the program as float32 numbers."""
    return dtype.kind == "float" and dtype.size == 2
