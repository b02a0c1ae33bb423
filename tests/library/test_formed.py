"""What kernels make of elements, by their text."""

from __future__ import annotations

import time

import pytest

from cudareduce.library.formed import formed


def maps(body: str, other: str = "", **known: str) -> list[str]:
    return [one.expression for one in formed("{" + body + "}", "in", other, known)]


@pytest.mark.parametrize(
    ("body", "expression"),
    [
        ("float x = in[i] - 1.0f; sum += x * x;", "(a - 1.0f) * (a - 1.0f)"),
        ("sum = sum + fabsf(in[row * n + i]);", "fabsf(a)"),
        ("const float *mine = in + row * n; sum += expf(mine[i]);", "expf(a)"),
        ("s[t] = i < n ? in[i] * in[i] : 0.0f;", "a * a"),
        ("sum += pow(__ldg(in + i), 2);", "a * a"),
        ("if (i < n && in[i] > 2) count++;", "a > 2 ? 1 : 0"),
        ("if (in[i] > 2) count++;", "a > 2 ? 1 : 0"),
        ("if (i < n && in[i] > 2) atomicAdd(&found[0], 1);", "a > 2 ? 1 : 0"),
        ("atomicAdd(out, in[i]);", ""),
        ("if (i < n) { if (in[i] < 0) sum -= 1; else sum += in[i]; }", ""),
        ("if (in[i] < 0) sum += 1; else sum += 2 * in[i];", "a < 0 ? 1 : 2 * a"),
        ("sum += scale * in[i];", ""),
        ("sum += twice(in[i]);", ""),
        ("float x = in[i]; x = x + 1; sum += x * x;", ""),
    ],
)
def test_of_one_array(body: str, expression: str) -> None:
    assert [one for one in maps(body) if "a" in one][:1] == ([expression] if expression else [])


def test_of_two_arrays_both_count() -> None:
    assert maps("float d = in[i] - w[i]; sum += fmaxf(0.0f, d);", "w")[0] == "fmaxf(0.0f, a - b)"
    assert maps("sum += in[i] * in[i];", "w") == []


def test_what_parameters_are_given_is_known() -> None:
    assert maps("sum += delta * fabsf(in[i]);", delta="1.0f") == ["1.0f * fabsf(a)"]


def test_what_is_reckoned_in_a_narrower_type_is_made_that() -> None:
    found = formed("{ sum += in[i] * w[i]; }", "in", "w", wraps="int")
    assert [one.expression for one in found] == ["int(a * b)"]


def test_sums_and_multiples_of_elements_are_rather_mistakes() -> None:
    assert maps("sum += in[i] + w[i];", "w") == maps("sum += 2 * in[i] - 1;") == []


def test_elements_as_they_are_are_no_map() -> None:
    assert maps("sum += in[i];") == maps("sum += in[i] * w[i];", "w") == []


def test_texts_of_nobody_take_no_time() -> None:
    chain = "".join(f"float x{k + 1} = x{k} * x{k};" for k in range(2000))
    began = time.monotonic()
    assert maps(f"float x0 = in[i]; {chain} sum += x2000;") is not None
    assert maps("if (in[i]) " * 2000 + "sum += in[i];") is not None
    assert time.monotonic() - began < 5
