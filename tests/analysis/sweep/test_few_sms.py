"""The curve of bandwidth over SMs: its order, its bars, its dips, and what it stands beside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.analysis.sweep import curve_sections, curves, dips
from cudareduce.bench.jobs import Jobs
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Record, Run
from tests.conftest import read_result
from tests.fake_gpu import fake_gpu
from tests.libraries.fakes import use_fakes
from tests.simulate import CEILING_GB_S, record

Call = Callable[..., tuple[int, str, str]]
N = 2**28
#: Shares of the ceiling that the ring had on an H200, in per cent.
RING = {8: 31.1, 32: 92.0, 40: 95.5, 48: 94.4, 64: 91.7, 96: 93.6, 132: 98.9}


def at(percent: float, sms: int | None, kernel: str = "ring", wobble: float = 0.0005) -> Record:
    us = (4 * N + 4) / (CEILING_GB_S * percent / 100) / 1e3
    times = [us * (1 + wobble * (k - 4)) for k in range(9)]
    return record(kernel, N, times, sms=sms)


def ring(wobble: float = 0.0005) -> list[Record]:
    return [at(percent, sms, wobble=wobble) for sms, percent in RING.items()]


def test_more_sms_that_are_slower_are_reported() -> None:
    assert [(r.sms, fewer.sms) for r, fewer in dips(ring())] == [(48, 40), (64, 40), (96, 40)]
    [section] = curve_sections(Run({}, DeviceInfo("Card"), {}, tuple(ring())))
    assert "ring: slower on 64 SMs than on 40: %ceil 91.7 and 95.5" in section.notes


def test_noise_over_sms_is_not_reported_as_a_dip() -> None:
    assert [r.sms for r, _ in dips(ring(wobble=0.02))] == []


def test_kernels_keep_the_requested_order_and_libraries_follow() -> None:
    records = [at(97, None, "peer:cub"), *reversed(ring()), at(50, 8, "fill")]
    assert [[(r.kernel, r.sms) for r in curve] for curve in curves(records)] == [
        [("ring", sms) for sms in RING], [("fill", 8)], [("peer:cub", None)],
    ]  # fmt: skip
    [section] = curve_sections(Run({}, DeviceInfo("Card"), {}, tuple(records)))
    assert [row[:2] for row in section.rows[-2:]] == [("fill", "8"), ("peer:cub", "all")]
    assert section.rules == (len(RING), len(RING) + 1)


def test_bars_are_shares_of_the_ceiling() -> None:
    records = (*ring(), at(104, None, "peer:more"))
    [section] = curve_sections(Run({}, DeviceInfo("Card"), {}, records))
    bars = [row[-1] for row in section.rows]
    assert {len(bar) for bar in bars} == {25}
    assert [bar.count("█") for bar in bars] == [8, 23, 24, 24, 23, 23, 25, 25]


def test_every_problem_has_a_table() -> None:
    other = [replace(r, op="max") for r in ring()]
    found = curve_sections(Run({}, DeviceInfo("Card"), {}, (*ring(), *other)))
    assert [section.title.partition(" of ")[0] for section in found] == ["sum", "max"]
    assert all(len(section.rows) == len(RING) for section in found)


def test_kernels_without_a_time_are_listed_with_the_reason() -> None:
    skipped = replace(at(50, 8, "tree"), verdict="skip", reason="takes no --sms", time_us=None)
    wrong = replace(skipped, kernel="bad", verdict="fail", reason="off by one")
    [section] = curve_sections(Run({}, DeviceInfo("Card"), {}, (skipped, wrong)))
    assert section.rows == ()
    assert section.notes == ("tree: skipped, takes no --sms", "bad: WRONG: off by one")


@pytest.mark.long
def test_a_sweep_over_sms_has_kernels_and_libraries_in_one_table(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Libraries stand in the same table, from the same rounds; one size is enough."""
    monkeypatch.setattr(Jobs, "emulator", None)
    use_fakes(monkeypatch, "FINE")
    stored = tmp_path / "run.json"
    with fake_gpu(monkeypatch, cache):
        code, out, err = cudareduce(
            "sweep", "reduce_tiles_acq_rel", "--sms", "2,1", "--n", "2^15", "--rounds", "6",
            "--peers", "all", "--json", stored, "--quiet",
        )  # fmt: skip
    assert code == 0, err
    lines = [line.split() for line in out.splitlines() if "█" in line]
    assert [words[-4] for words in lines] == ["1", "2", "all"]
    assert (lines[0][0], lines[2][0]) == ("reduce_tiles_acq_rel", "peer:fine")
    records = read_result(stored.read_text())["records"]
    assert {r["sms"] for r in records if r["time_us"]} == {1, 2, None}
    assert not any(r["aligned_n"] for r in records)
