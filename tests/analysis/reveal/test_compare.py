"""Comparison of orders: exit codes, and UNCERTAIN for rows that cannot be decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cudareduce.analysis.reveal.compare import exit_code, pair_orders, section
from cudareduce.analysis.reveal.orders import Order
from cudareduce.errors import UsageError

ONE = Order(
    kernel="peer:a", dtype="float32", acc="float32", n=64, rows=1, outcome="fixed", depth=6,
    hashes={"64": "aaa"}, adds_in="float32", version="1.0",
)  # fmt: skip
NONE: dict[str, Any] = {"hashes": {}, "depth": None, "adds_in": None}
VARIES = replace(ONE, outcome="varies", **NONE)
OTHER = replace(ONE, outcome="other", **NONE)
UNFIT = replace(ONE, outcome="skip", cause="unfit", reason="takes int32", **NONE)
ABSENT = replace(UNFIT, cause="machine", reason="not installed")
CASES: dict[str, tuple[Order, Order, str, int]] = {
    "same": (ONE, ONE, "SAME", 0),
    "newer": (ONE, replace(ONE, version="2.0"), "SAME", 0),
    "changed": (ONE, replace(ONE, version="2.0", hashes={"64": "bbb"}), "CHANGED", 1),
    "wider": (ONE, replace(ONE, outcome="other", adds_in="float64"), "CHANGED", 1),
    "varies now": (ONE, VARIES, "CHANGED", 1),
    "varied before": (VARIES, ONE, "CHANGED", 1),
    "varies": (VARIES, VARIES, "SAME", 0),
    "not found": (ONE, replace(ONE, outcome="skip", cause="time", **NONE), "UNCERTAIN", 4),
    "unfit": (UNFIT, UNFIT, "UNFIT", 0),
    "unfit before": (UNFIT, ONE, "UNCERTAIN", 4),
    "absent": (ABSENT, ABSENT, "UNCERTAIN", 4),
    "never known": (OTHER, OTHER, "UNCERTAIN", 4),
    "wrong": (ONE, replace(ONE, outcome="wrong", **NONE), "WRONG", 3),
    "smaller sample": (
        replace(ONE, hashes={"16": "a", "64": "b"}), replace(ONE, hashes={"16": "a"}), "SAME", 0,
    ),
    "other sample": (ONE, replace(ONE, hashes={"16": "a"}), "UNCERTAIN", 4),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_two_orders_have_a_verdict_and_an_exit_code(case: str) -> None:
    old, new, verdict, code = CASES[case]
    (pair,) = pair_orders([old], [new], files=True)
    assert (pair.verdict, exit_code([pair])) == (verdict, code)
    assert ("version 1.0, now 2.0" in pair.reason) == (old.version != new.version)


def test_targets_of_one_file_only() -> None:
    other = replace(ONE, kernel="peer:b")
    gone = pair_orders([ONE, other], [ONE], files=True)
    assert [(pair.shown.kernel, pair.verdict) for pair in gone] == [
        ("peer:a", "SAME"), ("peer:b", "GONE"),
    ]  # fmt: skip
    assert exit_code(gone) == 4
    new = pair_orders([ONE], [ONE, other], files=True)
    assert ([pair.verdict for pair in new], exit_code(new)) == (["SAME", "NEW"], 0)
    # Of names only what both sides have is asked for.
    assert [pair.verdict for pair in pair_orders([ONE, other], [ONE], files=False)] == ["SAME"]


@pytest.mark.parametrize(
    ("other", "says"),
    [(replace(ONE, n=65), "one is of n = 64 float32, the other of n = 65 float32; give both the"),
     (replace(ONE, kernel="k"), "one is of peer:a, the other of k; reveal the same names for both"),
     (replace(ONE, block=64), "give both the same names, sizes, types, --block and --items")],
)  # fmt: skip
def test_sides_without_a_common_target(other: Order, says: str) -> None:
    with pytest.raises(UsageError, match=f"no call in common: {says}"):
        pair_orders([ONE], [other], files=True)


def test_the_first_different_sum_is_shown() -> None:
    drawn = replace(ONE, exact=True, picture=("64 = 2 x 32 in halves, 1 apart", "  32 = a"))
    other = replace(drawn, hashes={"64": "bbb"}, picture=(drawn.picture[0], "  32 = b"), depth=7)
    told = section(pair_orders([drawn], [other], files=True), "t")
    assert told.notes == (
        "peer:a, n = 64: CHANGED: a sum of 32: a, now b; depth 6, now 7",
    )  # fmt: skip


def test_two_names_fit_80_columns() -> None:
    """The one that is the same in all rows is a note, and two kernels have no versions."""
    kernel = replace(ONE, kernel="reduce_v6_multi_add", version=None, hashes={"64": "bbb"})
    told = section(pair_orders([kernel], [ONE], files=False), "t")
    assert told.header == ("verdict", "call", "n", "hash", "now")
    assert told.rows == (("CHANGED", "peer:a", "64", "bbb", "aaa"),)
    assert told.notes[0] == "hash: of reduce_v6_multi_add; now: of the call"
    assert "version" not in told.notes[1]
    told = section(pair_orders([ONE, replace(ONE, kernel="b")], [kernel], files=False), "t")
    assert {row[1] for row in told.rows} == {"peer:a", "b"}
