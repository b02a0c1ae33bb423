"""The generator on a toy, proofs that are of something, and one mutant that must be killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cudareduce.catalog.registry import Registry
from tests.conftest import ROOT
from tests.mutants.__main__ import Subject, main, some, subjects
from tests.mutants.judge import opened
from tests.mutants.operators import operators
from tests.mutants.results import Entry, Fate, is_enough, proofs, read, summary, write
from tests.mutants.rules import mutants_of

SCORES = ROOT / "tests" / "data" / "mutation_scores.json"
STORED_SCORES: dict[str, int] = json.loads(SCORES.read_text())
SAMPLE = 10

TOY = """/*+++
block = 256
+++*/
#pragma unroll 8
__device__ void toy(const In *in, Acc *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const unsigned tid = threadIdx.x;  // tid < n
    shared[tid] = Op::identity();
    __syncthreads();
    if (tid < n)
        out[0] = Op::combine(shared[tid], shared[tid + 1]);
}
"""


def test_one_thing_changes_at_a_time() -> None:
    mutants = mutants_of(TOY)
    changes = {(mutant.rule, mutant.line, mutant.now) for mutant in mutants}
    assert {
        ("barrier", 10, "(void)0;"),
        ("bound", 11, "if (tid <= n)"),
        ("bound", 11, "if (tid < (n - 1))"),
        ("condition", 11, "if (true)"),
        ("deletion", 9, ";"),
        ("identity", 9, "shared[tid] = Acc{};"),
        ("index", 8, "const unsigned tid = blockIdx.x; // tid < n"),
        ("index", 9, "shared[tid - 1] = Op::identity();"),
        ("number", 12, "out[1] = Op::combine(shared[tid], shared[tid + 1]);"),
        ("operator", 12, "out[0] = Op::combine(shared[tid], shared[tid - 1]);"),
        ("room", 7, "__shared__ Acc shared[(BLOCK) - 1];"),
    } <= changes
    assert {mutant.line for mutant in mutants} == {*range(7, 13)}
    assert not [mutant for mutant in mutants if mutant.rule == "order"]
    assert len({mutant.text for mutant in mutants} | {TOY}) == len(mutants) + 1


def test_shares_are_the_whole() -> None:
    subject = Subject("toy", TOY, [], lambda mutants: iter(()))
    whole = some(subject, (), None, "1/1")
    shares = [some(subject, (), None, f"{k}/3") for k in (1, 2, 3)]
    assert sorted(m.text for share in shares for m in share) == sorted(m.text for m in whole)
    assert some(subject, (), 5, "1/1") == some(subject, (), 5, "1/1") != whole
    assert not [m for m in some(subject, ("bound",), None, "1/1") if m.rule == "bound"]


def _entry(fate: Fate) -> Entry:
    return Entry("toy", "bound", 1, "a < b", "a <= b", fate, "")


def test_results_of_mutants_are_merged_and_summarised(tmp_path: Path) -> None:
    others: list[Fate] = ["same", "proved", "unbuilt", "survived", "survived", "survived"]
    entries = [*[_entry("killed")] * 97, *map(_entry, others)]
    for k in (0, 1):
        write(entries[k::2], tmp_path / f"{k}.json")
    merged = read([tmp_path / "0.json", tmp_path / "1.json"])
    assert is_enough(merged)
    assert not is_enough(entries[1:])
    assert "97.0 %" in summary(merged)
    assert summary(merged).count("+ a <= b") == 3


@pytest.mark.long
def test_proofs_are_of_mutants(registry: Registry) -> None:
    texts = operators() | {name: kernel.code for name, kernel in registry.kernels.items()}
    there = {name: {(m.was, m.now) for m in mutants_of(text)} for name, text in texts.items()}
    assert not [key for key in proofs() if key[1:] not in there[key[0]]]


def test_a_barrier_is_missed(registry: Registry, cache: Path) -> None:
    kernel = registry.kernels["reduce_v2_no_bank_conflict"]
    [*barriers] = [mutant for mutant in mutants_of(kernel.text) if mutant.rule == "barrier"]
    with opened(cache, 2, 20.0) as judge:
        [one, other] = judge.judge(kernel, barriers)
    assert one.fate == other.fate == "killed"
    assert "data race in shared memory" in one.reason


@pytest.mark.slow
@pytest.mark.parametrize("kernel", STORED_SCORES)
def test_as_many_mutants_are_killed_as_before(kernel: str, cache: Path) -> None:
    """The stored score is the number of killed mutants in a fixed sample of each kernel."""
    with opened(cache, 1, 20.0) as judge:
        [subject] = subjects(judge, [kernel])
        judged = list(subject.judged(some(subject, (), SAMPLE, "1/1")))
    killed = sum(one.fate == "killed" for one in judged)
    if os.environ.get("CUDAREDUCE_UPDATE_GOLDEN"):
        stored = json.loads(SCORES.read_text()) | {kernel: killed}
        SCORES.write_text(json.dumps(stored, indent=1) + "\n")
    assert killed >= STORED_SCORES[kernel], [one for one in judged if one.fate != "killed"]


@pytest.mark.slow
def test_most_of_a_sample_are_killed(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    with pytest.raises(SystemExit) as ended:
        main(["--sample", "8", "--json", str(output)])
    assert ended.value.code == 0, summary(read([output]))
