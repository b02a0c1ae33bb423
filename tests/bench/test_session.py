"""What becomes of cases that a session has no time for, and which exit code a run deserves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cudareduce.bench.command import verdict_codes
from cudareduce.launch.case import Case
from cudareduce.results.record import Record
from cudareduce.results.store import load
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.jobs import Job
from cudareduce.verify.verdict import RIGHT, Verdict
from tests.conftest import ROOT, read_result

Call = Callable[..., tuple[int, str, str]]
TWO = ("reduce_v0_baseline", "reduce_v7_shuffle")
QUIET = ("--backend", "cpu", "--quiet", "--format", "json")


def _reasons(out: str) -> dict[str, tuple[str, str]]:
    return {r["kernel"]: (r["verdict"], r["reason"]) for r in read_result(out)["records"]}


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_what_there_was_no_time_for_has_no_verdict(cudareduce: Call, command: str) -> None:
    code, out, _ = cudareduce(command, *TWO, "--n", 2**22, "--max-time", 0.01, *QUIET)
    assert code == 4
    late = "skip", "--max-time 0.01 s was spent before it was verified"
    assert _reasons(out) == dict.fromkeys(TWO, late)


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_what_ctrl_c_came_before_has_no_verdict(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Right at the edges is not right at the size that was asked for."""

    def verify(
        self: Isolation, queues: Mapping[Case, Sequence[Job]], *_: Any
    ) -> Iterator[tuple[Case, Verdict]]:
        for case, jobs in queues.items():
            large = any(n == 5000 for job in jobs for n, _ in job.shapes)
            if large and case.kernel.id == TWO[1]:
                raise KeyboardInterrupt
            yield case, RIGHT

    monkeypatch.setattr(Isolation, "verify", verify)
    code, out, _ = cudareduce(command, *TWO, "--n", 5000, *QUIET)
    assert code == 130
    assert _reasons(out) == {
        TWO[0]: ("pass", ""), TWO[1]: ("skip", "interrupted before it was verified"),
    }  # fmt: skip


def _record(verdict: str, cause: str | None = None) -> Record:
    known = load(ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json").records[0]
    return replace(known, verdict=verdict, cause=cause)


@pytest.mark.parametrize(
    ("records", "codes"),
    [
        ([_record("pass"), _record("skip", "unfit")], set()),
        ([_record("pass"), _record("fail")], {3}),
        ([_record("pass"), _record("skip", "unbuilt")], {2}),
        ([_record("skip", "unfit")], {2}),
        ([_record("skip", "unfit"), _record("skip", "time")], {4}),
        ([_record("skip", "time"), _record("skip", "machine")], {6}),
    ],
)
def test_the_cause_of_a_skip_decides_the_exit_code(records: list[Record], codes: set[int]) -> None:
    assert verdict_codes(records) == codes
