"""A change of order is an exit code; what cannot be told is not passed over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudareduce.errors import UsageError
from cudareduce.reveal.compare import compared, exit_code
from cudareduce.reveal.table import Order

ONE = Order(
    kernel="peer:a", dtype="float32", acc="float32", n=64, rows=1, outcome="fixed", depth=6,
    hashes={"64": "aaa"}, adds_in="float32", version="1.0",
)  # fmt: skip
NONE = {"hashes": {}, "depth": None, "adds_in": None}
CASES = {
    "same": (ONE, ONE, "SAME", 0),
    "newer": (ONE, replace(ONE, version="2.0"), "SAME", 0),
    "changed": (ONE, replace(ONE, version="2.0", hashes={"64": "bbb"}), "CHANGED", 1),
    "wider": (ONE, replace(ONE, outcome="other", adds_in="float64"), "CHANGED", 1),
    "varies now": (ONE, replace(ONE, outcome="varies", **NONE), "CHANGED", 1),
    "varied before": (replace(ONE, outcome="varies", **NONE), ONE, "CHANGED", 1),
    "varies": (*[replace(ONE, outcome="varies", **NONE)] * 2, "SAME", 0),
    "not found": (ONE, replace(ONE, outcome="skip", cause="time", **NONE), "UNCERTAIN", 4),
    "never known": (*[replace(ONE, outcome="other", **NONE)] * 2, "UNCERTAIN", 4),
    "wrong": (ONE, replace(ONE, outcome="wrong", **NONE), "WRONG", 3),
    "smaller sample": (
        replace(ONE, hashes={"16": "a", "64": "b"}), replace(ONE, hashes={"16": "a"}), "SAME", 0,
    ),
    "other sample": (ONE, replace(ONE, hashes={"16": "a"}), "UNCERTAIN", 4),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    old, new, verdict, code = CASES[case]
    (pair,) = compared([old], [new], files=True)
    assert (pair.verdict, exit_code([pair])) == (verdict, code)
    assert ("version 1.0, now 2.0" in pair.reason) == (old.version != new.version)


def test_what_one_file_lacks() -> None:
    other = replace(ONE, kernel="peer:b")
    gone = compared([ONE, other], [ONE], files=True)
    assert [(pair.shown.kernel, pair.verdict) for pair in gone] == [
        ("peer:a", "SAME"), ("peer:b", "GONE"),
    ]  # fmt: skip
    assert exit_code(gone) == 4
    new = compared([ONE], [ONE, other], files=True)
    assert ([pair.verdict for pair in new], exit_code(new)) == (["SAME", "NEW"], 0)
    # Of names only what both sides have is asked for.
    assert [pair.verdict for pair in compared([ONE, other], [ONE], files=False)] == ["SAME"]


def test_nothing_in_common() -> None:
    with pytest.raises(UsageError, match="no call in common"):
        compared([ONE], [replace(ONE, n=65)], files=False)
