"""What a real GPU gave: the same kernels, benched by fresh processes one after the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations

import pytest

from cudareduce.gate.compare import Rules, compare
from cudareduce.gate.decide import with_confirmation
from cudareduce.gate.request import Thresholds
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from tests.conftest import ROOT

FOLDER = ROOT / "results" / "nvidia-h200"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    found = [load(path) for path in sorted(FOLDER.glob("baseline*.json"))]
    assert len({run.device.uuid for run in found}) == 1
    assert len({run.created for run in found}) == len(found) >= 3
    return found


def test_identical_code_is_never_called_slower(
    runs: list[Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every pair of runs in both directions, without the guard for identical machine code and
    without a second measurement, at less than half of the default threshold."""
    rules = Rules(Thresholds(0.02), same_code=False)
    found: Counter[str] = Counter()
    for one, other in combinations(runs, 2):
        for old, new in ((one, other), (other, one)):
            found += Counter(row.verdict for row in compare(old.records, new.records, rules))
    with capsys.disabled():
        print(f"\n  H200, identical code, threshold 2 %: {dict(found)}")
    assert found.total() >= 400
    assert found["SLOWER"] == found["FASTER"] == 0
    assert found["SAME"] >= 0.95 * found.total()


@pytest.mark.parametrize(("percent", "least"), [(3, 0.95), (10, 1.0)])
def test_what_takes_longer_is_called_slower(
    runs: list[Run], percent: int, least: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real rounds, made longer by a known share, and confirmed by a third run made longer too."""
    rules = Rules(Thresholds(0.02), same_code=False)
    found: Counter[str] = Counter()
    for old, new, third in permutations(runs[:3]):
        slower = longer(third, 1 + percent / 100)
        rows = compare(old.records, longer(new, 1 + percent / 100), rules)
        second = compare(old.records, slower, rules)
        found += Counter(row.verdict for row in with_confirmation(rows, second, rules))
    with capsys.disabled():
        print(f"\n  H200, {percent} % longer, threshold 2 %: {dict(found)}")
    assert found.total() >= 400
    assert found["SLOWER"] >= least * found.total()


def longer(run: Run, factor: float) -> list[Record]:
    """Records of other machine code that takes so many times as long in every round."""
    return [
        record
        if record.time_us is None
        else replace(
            record,
            time_us=record.time_us * factor,
            rounds_us=tuple(us * factor for us in record.medians_us),
            cubin_sha="of other code",
        )
        for record in run.records
    ]


def test_fresh_processes_agree_within_half_a_per_cent(runs: list[Run]) -> None:
    """From 2^24 elements on, for kernels whose answers do not depend on the order of atomics."""
    apart = [
        abs(old.time_us / new.time_us - 1)
        for one, other in combinations(runs, 2)
        for old, new in zip(one.records, other.records, strict=True)
        if old.time_us and new.time_us and old.n * old.rows >= 2**24 and old.distinct == 1
    ]
    assert len(apart) > 100
    assert sorted(apart)[int(0.95 * len(apart))] < 0.005
    assert max(apart) < 0.01
