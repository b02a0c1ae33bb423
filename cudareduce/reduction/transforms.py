"""A user's own operator: its expression compiled by g++, as the reference and to test its laws.

The device gets the same expression; here it is folded one element after the other in a wider type,
which is right for any associative operator and says nothing about how a kernel goes about it.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.reduction.dtypes import DType, accumulator
from cudareduce.reduction.operators import Operator, Reduction
from cudareduce.temporary import temporary_folder

#: Seconds that any run of an expression may take, and elements a second, a tenth of what one
#: core folds of a division: what takes longer hangs.
_START_S, _ELEMENTS_PER_S = 5.0, 10e6
#: Seconds that g++ may take; it takes half a one.
_COMPILE_S = 120.0


@dataclass(frozen=True, slots=True)
class Program:
    """A program in a file in memory, which ends with this process; `called` is the option that it
    was made of, as messages have it."""

    file: int
    called: str

    def run(
        self, words: Sequence[str], given: Sequence[np.ndarray], count: int, kind: str
    ) -> np.ndarray:
        """What it makes of arrays on its standard input, one behind the other: `count` values of a
        kind. One that ends by itself, crashes or hangs is a UsageError."""
        limit_s = _START_S + sum(one.nbytes for one in given) / 4 / _ELEMENTS_PER_S
        whole = given[0] if len(given) == 1 else np.concatenate([one.reshape(-1) for one in given])
        try:
            done = subprocess.run(
                [f"/proc/self/fd/{self.file}", *words],
                pass_fds=[self.file],
                input=whole.reshape(-1).view(np.uint8).data,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{self.called} does not end in {limit_s:.2g} s: mend the expression"
            ) from None
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise UsageError(f"{self.called} crashes with {name}: mend the expression")
        if done.returncode or len(done.stdout) != count * np.dtype(kind).itemsize:
            raise UsageError(
                f"{self.called} prints, or ends the process it runs in: mend the expression"
            )
        return np.frombuffer(done.stdout, kind)


def program_of(text: str, called: str, acc: str) -> Program:
    """Compile a program for accumulators of a type; the compiler's words where it does not compile
    are a UsageError, a g++ that is missing or does not work is an EnvironmentProblem."""
    with temporary_folder() as folder:
        program = Path(folder, "expression")
        _compile(text, called, acc, program)
        return Program(_in_memory(program.read_bytes()), called)


def _in_memory(program: bytes) -> int:
    """A file descriptor to run a program by; one that can be written to cannot be run."""
    with os.fdopen(os.memfd_create("expression"), "wb") as file:
        file.write(program)
        file.flush()
        return os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)


def _compile(text: str, called: str, acc: str, program: Path) -> None:
    command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-w", "-fwrapv", "-fmax-errors=3",
               "-ftemplate-depth=64", "-", "-o", str(program)]  # fmt: skip
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=_COMPILE_S,
            env={**os.environ, "LC_ALL": "C", "TMPDIR": str(program.parent)},
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentProblem(
            f"g++ was not found: {called} needs it for the reference (Debian: apt-get install g++)"
        ) from None
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(
            f"g++ did not end within {_COMPILE_S:g} s: see whether it works at all"
        ) from None
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    if errors:
        raise UsageError(
            f"{called} does not compile for {acc}: {errors[0].split('error:')[1].strip()}; write "
            "C++ in a and b, such as 'a > b ? a : b'"
        )
    if done.returncode or not program.exists():
        raise EnvironmentProblem(
            f"g++ ended with code {done.returncode} and made no program: see whether it works"
        )


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
_MAP_SOURCE = """
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
    text = _MAP_SOURCE.format(
        element="float" if _is_half(dtype) else dtype.cpp,
        narrow=acc.cpp, term=reduction.terms.cpp,
        extremum=int(reduction.op.name in ("min", "max")), largest=int(reduction.op.name == "max"),
        expression=mapped.expression, inputs=mapped.inputs,
        number=_NUMBER if acc.kind == "float" else _WHOLE,
    )  # fmt: skip
    return program_of(text, f"the map {mapped.expression!r}", acc.name)
