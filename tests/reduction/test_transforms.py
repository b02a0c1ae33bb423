"""Operators of one's own: compiled, tested for their laws, folded for reference, run by kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.library.registry import load_registry
from cudareduce.reduction.dtypes import DTYPES, accumulator
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.reference import Reference
from cudareduce.reduction.transforms import broken_law, compiled, own_operator
from cudareduce.verify.verdict import judge

Call = Callable[..., tuple[int, str, str]]
AVERAGE = "a == 0 ? b : b == 0 ? a : (a + b) / 2"


def test_fold_is_serial_and_wide() -> None:
    op = own_operator("a + b", "0", DTYPES["float32"], 1e-6)
    one = compiled(op, DTYPES["float32"], DTYPES["float32"])
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
def test_laws_are_found_out(text: str, identity: str, dtype: str, commutes: bool) -> None:
    op = own_operator(text, identity, DTYPES[dtype], 0)
    assert op.commutative == commutes
    assert broken_law(op, DTYPES[dtype]) is None
    one = compiled(op, DTYPES[dtype], accumulator(DTYPES[dtype]))
    assert len(one.identity()) == accumulator(DTYPES[dtype]).size


def test_what_is_not_associative_is_named_with_a_triple() -> None:
    op = own_operator(AVERAGE, "0", DTYPES["float64"], 0)
    warning = broken_law(op, DTYPES["float64"])
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
def test_bad_operators(text: str, identity: str | None, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        own_operator(text, identity, DTYPES["float32"], 0)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(exit(0), a)", "prints, or ends the process it runs in: mend the expression"),
        ('system("sleep 0.1; id")', "prints, or ends the process it runs in: mend the expression"),
        ("(abort(), a)", "crashes with SIGABRT: mend the expression"),
        ("a + *(volatile int *)0", "crashes with SIGSEGV: mend the expression"),
        ("([] { volatile int x = 1; while (x); }(), a)", " s: mend the expression"),
    ],
)
def test_what_would_end_or_hang_the_process_it_runs_in(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr("cudareduce.reduction.transforms._START_S", 0.5)
    with pytest.raises(UsageError) as caught:
        own_operator(text, "0", DTYPES["float32"], 1e-5)
    assert str(caught.value).endswith(message)


def test_a_product_of_many_is_right(cudareduce: Call) -> None:
    """Of random values it would be less than float32 can tell from 0."""
    code, out, _ = cudareduce(
        "verify", "reduce_v7_shuffle", "--n", "1000,65537", "--backend", "cpu",
        "--op-expr", "a * b", "--identity", 1,
    )  # fmt: skip
    assert code == 0, out


@pytest.mark.long
def test_kernels_run_it(cudareduce: Call) -> None:
    options = ("--n", "1,1000,4097", "--backend", "cpu", "--quiet")
    for kernel, text, identity, dtype in (
        ("reduce_v7_shuffle", "fmaxf(a, b)", "-INFINITY", "float32"),
        ("reduce_ordered_last_block", "a ^ b", "0", "int8,uint64"),
    ):
        own = ("--op-expr", text, "--identity", identity, "--dtype", dtype)
        code, out, _ = cudareduce("verify", kernel, *own, *options)
        assert code == 0, out


def test_one_that_does_not_commute_needs_a_kernel_that_keeps_the_order(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "verify", "reduce_v7_shuffle", "reduce_ordered_block", "--op-expr", "b == 0 ? a : b",
        "--identity", 0, "--dtype", "int32", "--n", 1000, "--backend", "cpu", "--quiet",
    )  # fmt: skip
    assert code == 0
    assert "does not commute and this kernel does not keep the order" in out.replace("\n", " ")
    assert "right" in out


def test_a_broken_law_is_a_warning(cudareduce: Call) -> None:
    _, _, err = cudareduce(
        "verify", "reduce_v7_shuffle", "--op-expr", AVERAGE, "--identity", 0, "--n", 1,
        "--backend", "cpu",
    )  # fmt: skip
    assert "Warning: " in err
    assert "is not associative" in err


@pytest.mark.long
def test_an_infinite_answer_equals_itself_and_nothing_else(cudareduce: Call) -> None:
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
