"""Custom operators and transforms: compiled, tested, and bounded in their rounding errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.reduction.dtypes import DTYPES, accumulator
from cudareduce.reduction.inputs import as_numbers, make_all
from cudareduce.reduction.operators import OPERATORS, Map, Reduction, reduction_of
from cudareduce.reduction.reference import Reference, bound, reference
from cudareduce.reduction.transforms import (
    associativity_warning,
    compile_operator,
    custom_operator,
    reduce_transformed,
)
from cudareduce.verify.verdict import judge

Call = Callable[..., tuple[int, str, str]]
PRODUCT, SQUARE, DISTANCE = Map("a * b", 2), Map("a * a"), Map("(a - b) * (a - b)", 2)
AVERAGE = "a == 0 ? b : b == 0 ? a : (a + b) / 2"


def test_fold_is_serial_and_wide() -> None:
    op = custom_operator("a + b", "0", DTYPES["float32"], 1e-6)
    one = compile_operator(op, DTYPES["float32"], DTYPES["float32"])
    data = np.array([[1e8, 1, -1e8], [1, 2, 3]], "float32")
    assert one.fold(data).tolist() == [1.0, 6.0]  # float32 would have lost the 1


@pytest.mark.parametrize(
    ("text", "identity", "dtype", "commutes"),
    [
        ("a > b ? a : b", "-INFINITY", "float32", True),
        ("a ^ b", "0", "uint64", True),
        ("max(a, b)", "INT_MIN", "int32", True),
        ("b == 0 ? a : b", "0", "int32", False),
    ],
)
def test_commutativity_and_associativity_are_tested(
    text: str, identity: str, dtype: str, commutes: bool
) -> None:
    op = custom_operator(text, identity, DTYPES[dtype], 0)
    assert op.commutative == commutes
    assert associativity_warning(op, DTYPES[dtype]) is None
    one = compile_operator(op, DTYPES[dtype], accumulator(DTYPES[dtype]))
    assert len(one.identity()) == accumulator(DTYPES[dtype]).size


def test_a_counterexample_shows_that_an_operator_is_not_associative() -> None:
    op = custom_operator(AVERAGE, "0", DTYPES["float64"], 0)
    warning = associativity_warning(op, DTYPES["float64"])
    assert warning is not None
    assert "is not associative: with " in warning


@pytest.mark.parametrize(
    ("text", "identity", "message"),
    [
        ("a - b", "0", "0 is not an identity of 'a - b': with "),
        ("a $ b", "0", "does not compile for float32: "),
        ("a + b", "nonsense", "does not compile for float32: "),
        ("a + b", None, "--op-expr needs --identity"),
        (" ", "0", "--op-expr is empty: write C++ in a and b"),
    ],
)
def test_an_invalid_operator_is_a_usage_error(
    text: str, identity: str | None, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        custom_operator(text, identity, DTYPES["float32"], 0)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(exit(0), a)", "prints or ends its process: correct the expression"),
        ('system("sleep 0.1; id")', "prints or ends its process: correct the expression"),
        ("(abort(), a)", "crashes with SIGABRT: correct the expression"),
        ("a + *(volatile int *)0", "crashes with SIGSEGV: correct the expression"),
        ("([] { volatile int x = 1; while (x); }(), a)", " s: correct the expression"),
    ],
)
def test_an_expression_may_not_exit_crash_or_hang(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    limit_s = 0.1 if "while" in text else 60.0
    monkeypatch.setattr("cudareduce.reduction.transforms._START_S", limit_s)
    with pytest.raises(UsageError) as caught:
        custom_operator(text, "0", DTYPES["float32"], 1e-5)
    assert str(caught.value).endswith(message)


def test_a_product_of_many_is_right(cudareduce: Call) -> None:
    """A product of random values would underflow in float32."""
    code, out, _ = cudareduce(
        "verify", "reduce_v7_shuffle", "--n", "1000,65537", "--backend", "cpu",
        "--op-expr", "a * b", "--identity", 1,
    )  # fmt: skip
    assert code == 0, out


@pytest.mark.long
def test_kernels_run_a_custom_operator(cudareduce: Call) -> None:
    options = ("--n", "1,1000,4097", "--backend", "cpu", "--quiet")
    for kernel, text, identity, dtype in (
        ("reduce_v7_shuffle", "fmaxf(a, b)", "-INFINITY", "float32"),
        ("reduce_ordered_last_block", "a ^ b", "0", "int8,uint64"),
    ):
        own = ("--op-expr", text, "--identity", identity, "--dtype", dtype)
        code, out, _ = cudareduce("verify", kernel, *own, *options)
        assert code == 0, out


def test_an_operator_that_does_not_commute_needs_an_ordered_kernel(
    cudareduce: Call,
) -> None:
    code, out, _ = cudareduce(
        "verify", "reduce_v7_shuffle", "reduce_ordered_block", "--op-expr", "b == 0 ? a : b",
        "--identity", 0, "--dtype", "int32", "--n", 1000, "--backend", "cpu", "--quiet",
    )  # fmt: skip
    assert code == 0
    assert "does not commute, and this kernel changes the order" in out.replace("\n", " ")
    assert "right" in out


def test_a_broken_law_is_a_warning(cudareduce: Call) -> None:
    _, _, err = cudareduce(
        "verify", "reduce_v7_shuffle", "--op-expr", AVERAGE, "--identity", 0, "--n", 1,
        "--backend", "cpu",
    )  # fmt: skip
    assert "Warning: " in err
    assert "is not associative" in err


@pytest.mark.long
def test_an_infinite_result_equals_only_itself(cudareduce: Call) -> None:
    """Of nothing the answer is the identity; no bound is so wide that all else is right."""
    code, out, _ = cudareduce(
        "verify", "reduce_v7_shuffle", "--op-expr", "a > b ? a : b", "--identity=-INFINITY",
        "--n", "0,1,1000", "--dtype", "float32,float64", "--backend", "cpu", "--quiet",
    )  # fmt: skip
    assert code == 0, out
    kernel = load_registry().kernels["reduce_v7_shuffle"]
    plan = Case(kernel, reduction_of("sum", "float32"), 256, 8).plan(0)
    ref = Reference(np.array([-np.inf]), tolerance=np.array([np.inf]))
    for answer, outcome in ((-np.inf, "pass"), (np.inf, "fail"), (5.0, "fail"), (np.nan, "fail")):
        verdict = judge(plan, np.array([answer], np.float32), ref, "random")
        assert verdict is not None and verdict.outcome == outcome


_CLAMP = Map("a > 0 ? a : 0")
_IN_NUMPY: dict[Map, Callable[..., np.ndarray]] = {
    PRODUCT: lambda a, b: a * b,
    SQUARE: lambda a: a * a,
    DISTANCE: lambda a, b: (a - b) * (a - b),
    _CLAMP: lambda a: np.maximum(a, a * 0),
}


@pytest.mark.parametrize(
    ("op", "mapped", "dtype"),
    [
        *(("sum", PRODUCT, dtype) for dtype in ("float32", "float64", "float16", "bfloat16")),
        *(("sum", mapped, "int32") for mapped in _IN_NUMPY),
        *((op, mapped, "float32") for op in ("max", "min") for mapped in (DISTANCE, _CLAMP)),
        *(("sum", mapped, "uint8") for mapped in (SQUARE, DISTANCE)),
        ("max", PRODUCT, "bfloat16"),
        ("min", SQUARE, "float16"),
    ],
)
def test_a_transform_is_what_numpy_computes(op: str, mapped: Map, dtype: str) -> None:
    reduction = reduction_of(op, dtype, None, mapped)
    data = make_all("random", reduction, 1000, 1, 3)
    wide = reduction.acc.storage if reduction.acc.kind != "float" else "longdouble"
    values = _IN_NUMPY[mapped](*(as_numbers(one, reduction.dtype).astype(wide) for one in data))
    right = values.sum(dtype=values.dtype) if op == "sum" else getattr(values, op)()
    ref = reference(reduction, data[0], 1, *data[1:])
    assert abs(ref.expected[0] - right) <= 1e-15 * abs(right)


@pytest.mark.parametrize("n", [1, 1000, 70001])
@pytest.mark.parametrize("mapped", [PRODUCT, SQUARE, DISTANCE])
def test_float32_arithmetic_stays_within_the_bound(mapped: Map, n: int) -> None:
    reduction = reduction_of("sum", "float32", None, mapped)
    data = make_all("random", reduction, n, 1, 3)
    values = _IN_NUMPY[mapped](*data)
    ref = reference(reduction, data[0], 1, *data[1:])
    limit = bound(reduction, 20, ref, False)  # the depth of NumPy's pairwise sums
    assert limit is not None
    assert abs(float(np.add.reduce(values)) - float(ref.expected[0])) <= limit[0]
    assert limit[0] < 1e-4 * np.abs(values).sum()


def test_the_roundings_of_a_transform_are_bounded() -> None:
    """One rounding of a product; and of a cancelled difference those of its operands."""
    folded = reduce_transformed(
        reduction_of("sum", "float32", None, SQUARE), (np.array([[0.1]], "f4"),)
    )
    assert folded.magnitude is not None and folded.slack is not None
    assert folded.slack[0] == pytest.approx(2.0**-24 * folded.magnitude[0], rel=1e-6)
    a = np.full((1, 1), 1 / 3, "f4")
    mapped = Map("a * b - a * a", 2)
    folded = reduce_transformed(reduction_of("sum", "float32", None, mapped), (a, a))
    assert folded.slack is not None
    assert folded.result[0] == 0 and folded.slack[0] >= 2.0**-24 / 9


def test_a_transform_that_always_rounds_is_not_exact() -> None:
    reduction = reduction_of("sum", "float32", None, Map("sqrt(a * a + 0.1f)"))
    (data,) = make_all("exact", reduction, 1000)
    assert reference(reduction, data, 1).exact is False


def test_a_value_beyond_the_range_has_no_bound() -> None:
    reduction = reduction_of("sum", "float32", None, Map("exp(a)"))
    assert bound(reduction, 1, reference(reduction, np.array([1000.0], "f4"), 1), False) is None


def test_each_row_has_a_result() -> None:
    reduction = reduction_of("mean", "int32", None, PRODUCT)
    a, b = np.arange(6, dtype="i4"), np.full(6, 2, "i4")
    assert reference(reduction, a, 2, b).expected.tolist() == [2.0, 8.0]


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [("float32", "int32"), ("float16", "uint32"), ("float64", "uint64"), ("int32", "uint32")],
)
def test_a_count_compares_elements_in_their_own_type(dtype: str, acc: str) -> None:
    below = Map("a < 0.5 ? 1u : 0")
    reduction = Reduction(OPERATORS["sum"], DTYPES[dtype], DTYPES[acc], below)
    assert reduction.why_undefined() is None
    (data,) = make_all("random", reduction, 1000, 1, 3)
    numbers = as_numbers(data, reduction.dtype)
    count = reduce_transformed(reduction, (numbers.reshape(1, -1),)).result
    assert count == np.count_nonzero(numbers < 0.5)
    without_map = replace(reduction, map=None).why_undefined() or ""
    assert ("(--map)" in without_map) == dtype.startswith("float")
