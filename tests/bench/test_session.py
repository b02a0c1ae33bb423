"""What becomes of cases that a session has no time for, and which exit code a run deserves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cudareduce.bench.command import verdict_codes
from cudareduce.results.record import Record
from cudareduce.results.store import load
from cudareduce.verify.isolation import Isolation, Key
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
        self: Isolation, queues: Mapping[Key, Sequence[Job]], *_: Any
    ) -> Iterator[tuple[Key, Verdict]]:
        for key, jobs in queues.items():
            large = any(n == 5000 for job in jobs for n, _ in job.shapes)
            first = next(iter(queues.values()))[0].prepared.case
            if large and jobs[0].prepared.case != first:
                raise KeyboardInterrupt
            yield key, RIGHT

    monkeypatch.setattr(Isolation, "verify", verify)
    code, out, _ = cudareduce(command, *TWO, "--n", 5000, *QUIET)
    assert code == 130
    late = "skip", "interrupted before it was verified"
    assert sorted(_reasons(out).values()) == [("pass", ""), late]


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


def test_all_sizes_and_operators_are_verified_in_one_phase(cudareduce: Call) -> None:
    some = "--n", "1000,5000", "--op", "sum,max", "--backend", "cpu"
    code, _, err = cudareduce("bench", *TWO, *some)
    assert code == 0
    assert re.findall(r"^\w+: 0 of \d+$", err, re.MULTILINE) == ["verifying: 0 of 4"]


def test_an_array_that_no_memory_holds_is_skipped_before_anything_is_verified(
    cudareduce: Call,
) -> None:
    code, out, err = cudareduce("bench", *TWO, "--n", "2^40", "--backend", "cpu")
    assert code == 6
    assert "skipped, needs 8192.0 GiB of host memory" in out
    assert "verifying" not in err
    assert "launches" not in err


def test_the_quickest_kernel_comes_first_then_the_longest(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: dict[str, None] = {}

    def verify(
        self: Isolation, queues: Mapping[Key, Sequence[Job]], *_: Any
    ) -> Iterator[tuple[Key, Verdict]]:
        for key, jobs in queues.items():
            order.setdefault(jobs[0].prepared.case.kernel.id)
            yield key, RIGHT

    monkeypatch.setattr(Isolation, "verify", verify)
    kernels = "reduce_single_block", "reduce_v6_multi_add", "reduce_v0_baseline"
    assert cudareduce("bench", *kernels, "--n", "2^24", *QUIET)[0] == 0
    assert list(order) == ["reduce_single_block", "reduce_v0_baseline", "reduce_v6_multi_add"]


def test_sizes_without_times_share_one_table(cudareduce: Call) -> None:
    code, out, _ = cudareduce("bench", *TWO, "--n", "2^10..2^12", "--backend", "cpu", "--quiet")
    assert code == 0
    assert out.count("nothing is timed") == 1
    rows = re.findall(r"^ (reduce_v\d)\w+ +(2\^\d+) ", out, re.MULTILINE)
    assert rows == [(k, n) for k in ("reduce_v0", "reduce_v7") for n in ("2^10", "2^11", "2^12")]
    assert " distinct" in out


def test_results_that_vary_are_explained_below_the_table(cudareduce: Call) -> None:
    _, out, _ = cudareduce("bench", "reduce_atomic", "--n", 2000, "--backend", "cpu", "--quiet")
    assert "distinct 3/3: 3 launches on one random input gave 3 results" in out
