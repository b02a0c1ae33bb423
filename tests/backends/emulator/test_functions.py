"""CUDA's built-in functions, one by one, against values that do not come from the emulator.

`tests/data/cuda_functions.json` holds the values of CUDA 13.0 for constants: 16-bit floats are
computed by the host versions, the others are folded by nvcc into machine code.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from pathlib import Path

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Source
from cudareduce.errors import BuildError
from tests.conftest import ROOT

PUT = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T> __device__ void put(unsigned long long *out, T value) {
  *out = 0;
  memcpy(out, &value, sizeof value);
}
#line 1 "some/mine.cu"
"""


def evaluate(cpu: CpuBackend, expressions: Sequence[str]) -> list[int]:
    """The bits of the value of each C++ expression in a kernel."""
    body = "".join(f"put(out + {k}, {e});\n" for k, e in enumerate(expressions))
    text = f'{PUT}extern "C" __global__ void mine(unsigned long long *out) {{\n{body}}}\n'
    [program] = cpu.build([Source(text, "mine", Path("some/mine.cu"))])
    assert program is not None and not isinstance(program, BuildError), program
    out = cpu.allocate(8 * len(expressions))
    cpu.launcher(program, 1, 1, [out])()
    return [int(bits) for bits in cpu.download(out, "uint64", len(expressions))]


def compare(cpu: CpuBackend, expected: dict[str, int]) -> None:
    found = dict(zip(expected, evaluate(cpu, list(expected)), strict=True))
    wrong = {e: (hex(found[e]), hex(bits)) for e, bits in expected.items() if found[e] != bits}
    assert not wrong


@pytest.mark.long
def test_values_that_cuda_computed(cpu: CpuBackend) -> None:
    values = json.loads((ROOT / "tests" / "data" / "cuda_functions.json").read_text())
    compare(cpu, {expression: int(bits, 16) for expression, bits in values.items()})


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def saturated(value: int, bits: int, sign: str) -> int:
    low = -(1 << (bits - 1)) if sign == "s" else 0
    return max(low, min(low + (1 << bits) - 1, value))


WORDS = ((0x80FF0102, 0x7F01FE05), (0x7FFF8000, 0xFFFF0001), (0x12345678, 0x9ABCDEF0))
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "ge": lambda a, b: a >= b, "gt": lambda a, b: a > b,
    "le": lambda a, b: a <= b, "lt": lambda a, b: a < b,
}  # fmt: skip


def choosing(holds: Callable[[int, int], bool], answer: int) -> Callable[[int, int], int]:
    return lambda a, b: answer if holds(a, b) else 0


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("sign", ["s", "u"])
def test_halves_and_bytes_of_a_word(cpu: CpuBackend, count: int, sign: str) -> None:
    bits = 32 // count
    each: dict[str, Callable[[int, int], int]] = {
        f"add{sign}s": lambda a, b: saturated(a + b, bits, sign),
        f"sub{sign}s": lambda a, b: saturated(a - b, bits, sign),
        f"absdiff{sign}": lambda a, b: abs(a - b),
        f"min{sign}": min,
        f"max{sign}": max,
    }
    for name, holds in COMPARISONS.items():
        each[f"set{name}{sign}"] = choosing(holds, 1)
        each[f"cmp{name}{sign}"] = choosing(holds, -1)
    expected: dict[str, int] = {}
    for (name, combine), (x, y) in product(each.items(), WORDS):
        parts = [
            combine(*(signed(w >> shift, bits) if sign == "s" else (w >> shift) % (1 << bits)
                      for w in (x, y)))
            for shift in range(0, 32, bits)
        ]  # fmt: skip
        word = sum((part % (1 << bits)) << (bits * k) for k, part in enumerate(parts))
        expected[f"__v{name}{count}({x:#x}u, {y:#x}u)"] = word
        if name == f"absdiff{sign}":
            expected[f"__vsad{sign}{count}({x:#x}u, {y:#x}u)"] = sum(parts)
    compare(cpu, expected)


def test_integer_functions_compute_what_python_does(cpu: CpuBackend) -> None:
    expected: dict[str, int] = {}
    for a, b in WORDS:
        i, j = signed(a, 32), signed(b, 32)
        ab, ba = a << 32 | b, b << 32 | a
        bytes_a, bytes_b = a.to_bytes(4, "little"), b.to_bytes(4, "little")
        halves = (a & 0xFFFF, a >> 16)
        whole = {
            f"__umul64hi({ab:#x}ull, {ba:#x}ull)": ab * ba >> 64,
            f"__mul64hi((long long){ab:#x}ull, (long long){ba:#x}ull)":
                signed(ab, 64) * signed(ba, 64) >> 64,
            f"__dp4a({a:#x}u, {b:#x}u, 5u)":
                (5 + sum(x * y for x, y in zip(bytes_a, bytes_b, strict=True))) % 2**32,
            f"__dp2a_lo({a:#x}u, {b:#x}u, 5u)":
                (5 + sum(x * y for x, y in zip(halves, bytes_b[:2], strict=True))) % 2**32,
            f"__dp2a_hi({a:#x}u, {b:#x}u, 5u)":
                (5 + sum(x * y for x, y in zip(halves, bytes_b[2:], strict=True))) % 2**32,
            f"__dp2a_hi((int){a:#x}u, (int){b:#x}u, -5)": (-5 + sum(
                signed(x, 16) * signed(y, 8) for x, y in zip(halves, bytes_b[2:], strict=True)
            )) % 2**32,
            f"__sad((int){a:#x}u, (int){b:#x}u, 9u)": (abs(i - j) + 9) % 2**32,
            f"__usad({a:#x}u, {b:#x}u, 9u)": (abs(a - b) + 9) % 2**32,
            # The sign of the byte that digit 8 picks, byte 6, byte 1, byte 0.
            f"__byte_perm({a:#x}u, {b:#x}u, 0x8610u)": int.from_bytes(
                (bytes_a[0], bytes_a[1], bytes_b[2], 255 * (bytes_a[0] >> 7)), "little"),
            f"__brevll({ab:#x}ull)": int(f"{ab:064b}"[::-1], 2),
        }  # fmt: skip
        expected |= {e: value % 2**64 for e, value in whole.items()}
    compare(cpu, expected)


WHOLE: dict[str, Callable[[Fraction], int]] = {
    "rn": round, "rz": int, "ru": math.ceil, "rd": math.floor,
}  # fmt: skip
FLOATS = (1.0, -1.5, 2.5, -3.5, 0.1, 1e-30, 3e38, -1e10, 7e9, -0.75)


def rounded(value: Fraction, how: str, size: int) -> int:
    """The bits of the float of so many bytes that an exact value is rounded to."""
    code, digits, least = {4: ("f", 24, -149), 8: ("d", 53, -1074)}[size]
    if not value:
        return 0
    place = max(math.frexp(abs(float(value)))[1] - digits, least)
    while abs(value) >= Fraction(2) ** (place + digits):  # float() itself has rounded up
        place += 1
    while abs(value) < Fraction(2) ** (place + digits - 1) and place > least:
        place -= 1
    units = value / Fraction(2) ** place
    whole = WHOLE[how](units)
    return int.from_bytes(struct.pack(code, math.ldexp(whole, place)), "little")


def literal(value: float, size: int) -> str:
    return f"{value.hex()}{'f' if size == 4 else ''}"


@pytest.mark.parametrize("how", ["rn", "rz", "ru", "rd"])
@pytest.mark.parametrize("size", [4, 8])
def test_roundings_of_arithmetic(cpu: CpuBackend, how: str, size: int) -> None:
    letter = "fd"[size == 8]
    values = [struct.unpack("f", struct.pack("f", v))[0] for v in FLOATS]
    expected = {}
    for a, b in product(values, values):
        x, y = Fraction(a), Fraction(b)
        p, q = literal(a, size), literal(b, size)
        for name, exact in (("add", x + y), ("sub", x - y), ("mul", x * y), ("div", x / y)):
            if 1e-30 < abs(exact) < 1e38:
                expected[f"__{letter}{name}_{how}({p}, {q})"] = rounded(exact, how, size)
        fma = f"__fma{'f' if size == 4 else ''}_{how}"
        if 1e-30 < abs(x * y + 1) < 1e38:
            expected[f"{fma}({p}, {q}, 1)"] = rounded(x * y + 1, how, size)
    for a in values:
        if abs(a) < 1e38:
            reciprocal = f"__{letter}rcp_{how}({literal(a, size)})"
            expected[reciprocal] = rounded(1 / Fraction(a), how, size)
    compare(cpu, expected)


@pytest.mark.parametrize("how", ["rn", "rz", "ru", "rd"])
def test_roundings_of_conversions(cpu: CpuBackend, how: str) -> None:
    expected = {}
    for k in (1, 16777217, -16777219, 123456789, 2**53 + 1, -(2**62) - 1, 2**63 - 1):
        for size, name in ((4, "float"), (8, "double")):
            expected[f"__ll2{name}_{how}({k}ll)"] = rounded(Fraction(k), how, size)
        if k > 0:
            expected[f"__ull2float_{how}({2 * k}ull)"] = rounded(Fraction(2 * k), how, 4)
        if abs(k) < 2**31:
            expected[f"__int2float_{how}({k})"] = rounded(Fraction(k), how, 4)
    for value in (0.1, -1e30, 1.00000001, 1e-40):
        expected[f"__double2float_{how}({value!r})"] = rounded(Fraction(value), how, 4)
    for value in (2.5, -2.5, 1e10, -1e20, 0.4):
        whole = WHOLE[how](Fraction(value))
        for name, bits, sign in (("int", 32, "s"), ("uint", 32, "u"), ("ll", 64, "s")):
            answer = saturated(whole, bits, sign) % 2**bits
            expected[f"__double2{name}_{how}({value!r})"] = answer
    compare(cpu, expected)


def test_functions_of_the_c_library_are_there_for_both_types(cpu: CpuBackend) -> None:
    names = (
        "sqrt", "cbrt", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10",
        "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "asinh", "atanh", "erf", "erfc", "lgamma", "tgamma", "fabs", "floor", "ceil",
        "trunc", "round", "rint", "rsqrt",
    )  # fmt: skip
    expressions = [f"(double){name}{suffix}(0.5{suffix})" for name in names for suffix in ("", "f")]
    expressions += [f"(double){name}(0.5f)" for name in names]
    values = [struct.unpack("d", b.to_bytes(8, "little"))[0] for b in evaluate(cpu, expressions)]
    of_doubles, of_floats = values[: 2 * len(names) : 2], values[1 : 2 * len(names) : 2]
    assert of_floats == pytest.approx(of_doubles, rel=1e-6)
    assert values[2 * len(names) :] == of_floats  # a float argument picks the float overload
    assert of_doubles[names.index("exp10")] == pytest.approx(10**0.5)
    assert of_doubles[names.index("tgamma")] == pytest.approx(math.gamma(0.5))
