// Host program of a transform: reduces rows of transformed elements. transforms.py prepends the types
// Element, Narrow (the accumulator) and Term, and the macros FLOATS, EXTREMUM, LARGEST, INPUTS and
// EXPRESSION, in a and b.
//
// Arguments: elements per row, number of rows. Standard input: for each row up to 2^16 elements of the
// first input, then as many of the second, and so on.
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
#if FLOATS
// A value and a bound of its rounding error in Narrow: |value - device's value| <= error.
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
#define FUNCTION(NAME, UNITS)                                                                    \
    static Number NAME(Number x) { return of([](Wide w) { return ::NAME##l(w); }, x, UNITS); }   \
    static Number NAME##f(Number x) { return NAME(x); }
FUNCTION(sqrt, 1)
FUNCTION(exp, 8)
FUNCTION(log, 8)
FUNCTION(sin, 8)
FUNCTION(cos, 8)
FUNCTION(tanh, 8)
#undef FUNCTION
static Number mapped(Number a, Number b) { return Number(EXPRESSION); }

// Accumulates a row and writes four numbers: the result, the sum of magnitudes, a bound of the error
// from the transform's roundings, and the sum of magnitudes in units of the last binary digit of all
// values, which is infinite if a value is rounded.
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
#else
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
#endif
#undef EXPRESSION
static const size_t MOST = 1 << 16;
static Element a[MOST], b[MOST];
static size_t read_some(Element *into, size_t count)
{
    return fread(into, sizeof(Element), count < MOST ? count : MOST, stdin);
}
int main(int, char **words)
{
    size_t n = strtoull(words[1], nullptr, 10), rows = strtoull(words[2], nullptr, 10);
    for (size_t row = 0; row < rows; row++) {
        Row all;
        for (size_t left = n, count; left; left -= count) {
            count = read_some(a, left);
            if (!count || (INPUTS == 2 && read_some(b, count) != count))
                return 1;
            for (size_t k = 0; k < count; k++)
                all.add(mapped(Number(a[k]), Number(INPUTS == 2 ? b[k] : a[k])));
        }
        if (!all.write())
            return 1;
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
