"""Ways are timed by the slowest rank, and what is timed has arrived: on simulated GPUs, whose
clocks go on by what they are told that a copy or a launch costs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import pytest

from cudareduce.backend import Buffer
from cudareduce.machine.device import DeviceLimits
from cudareduce.results.record import Record
from cudareduce.several import exchange
from cudareduce.several.links import trial
from cudareduce.several.links.trial import measured, steps_of
from cudareduce.several.meet.arrival import meet
from cudareduce.several.meet.meeting import Meeting
from cudareduce.several.meet.place import Place
from cudareduce.verify.forking import fork_server
from tests.fake_gpu import FakeGpu, FilePeerMemory

NBYTES, ROUNDS, THERE_AND_BACK = 2**16, 2, 8
COPIES = ("copy:one_way", "copy:both")
SMS = ("read:one_way", "read:both", "write:one_way", "write:both")
FLAGS, HOST = ("flag:ordered", "flag:relaxed"), ("copy:from_host", "copy:to_host")


class Connected(FakeGpu):
    """A small one, whose copies take 5 us."""

    def __enter__(self) -> Connected:
        return self

    def limits(self) -> DeviceLimits:
        return DeviceLimits(3, 2048)

    def overwrite(self, buffer: Buffer, offset: int, source: Buffer) -> None:
        super().overwrite(buffer, offset, source)
        self.clock += 5.0


@dataclass(frozen=True)
class Asked:
    """Which rank of how many, where its files are, whose device texts, and what is slow."""

    rank: int
    size: int
    folder: Path
    device: Path = exchange._DEVICE
    factors: Mapping[str, float] = field(default_factory=dict)
    rounds: int | None = ROUNDS


def _one(asked: Asked) -> list[Record]:
    """What one rank finds."""
    gpu = Connected(asked.folder / "compiled", factors=asked.factors, noise=0.0, threads=1)
    here = Place("cudareduce", asked.rank, asked.size, asked.rank, "a job")
    steps: list[None] = []
    met = Meeting(0, 1, []) if asked.size == 1 else meet(here, str(asked.folder / "m"))
    few = patch.object(trial, "_FLAGS", THERE_AND_BACK)
    with gpu, met, few, patch.object(exchange, "_DEVICE", asked.device):
        records = measured(
            met, gpu, NBYTES, asked.rounds, lambda: steps.append(None),
            lambda nbytes: FilePeerMemory(nbytes, asked.folder),
        )  # fmt: skip
    assert len(steps) == steps_of(asked.rounds)
    return records


def together(*asked: Asked) -> list[Record]:
    with ProcessPoolExecutor(len(asked), fork_server()) as pool:
        first, *others = pool.map(_one, asked)
    for other in others:
        assert [(r.engine, r.time_us, r.verdict) for r in first] == [
            (r.engine, r.time_us, r.verdict) for r in other
        ]
    return first


def test_ways_have_rates(folder: Path) -> None:
    records = together(Asked(0, 2, folder), Asked(1, 2, folder, factors={"link_read": 1.05}))
    whole = {r.engine or "": r for r in records if r.sms is None}
    assert tuple(whole) == (*COPIES, *SMS, *FLAGS, *HOST)
    assert {(r.kernel, r.verdict, r.ranks, r.samples) for r in records} == {
        ("links", "pass", 2, 8 * ROUNDS)
    }
    event = 1.28
    for engine in COPIES:
        assert whole[engine].time_us == pytest.approx(5 + event)
        assert whole[engine].gb_s == pytest.approx(NBYTES / (5 + event) / 1e3)
    assert whole["write:both"].time_us == pytest.approx(2 + event)
    assert whole["read:both"].time_us == pytest.approx(2.1 + event)  # of the slowest
    assert whole["read:both"].skew_us == pytest.approx(0.1)
    assert whole["read:one_way"].time_us == pytest.approx(2 + event)  # the slow one is idle
    assert whole["read:one_way"].skew_us is None
    for engine in FLAGS:
        assert whole[engine].time_us == pytest.approx((2 + event) / (2 * THERE_AND_BACK))
        assert whole[engine].gb_s is None
    for engine in HOST:
        assert whole[engine].time_us == pytest.approx(50 * NBYTES / 3.5e3 + event)
    few = [r for r in records if r.sms is not None]
    counts = [1, 2]
    assert [(r.engine, r.sms, r.grid) for r in few] == [
        (f"{kind}:both", k, k) for kind in ("read", "write") for k in counts
    ]


def test_one_rank_has_its_host(folder: Path) -> None:
    records = together(Asked(0, 1, folder))
    assert [(r.engine, r.ranks) for r in records] == [(engine, 1) for engine in HOST]
    assert all(r.time_us and r.verdict == "pass" for r in records)


@pytest.mark.slow
def test_an_odd_rank_out_is_idle(folder: Path) -> None:
    records = together(*(Asked(rank, 3, folder, rounds=1) for rank in range(3)))
    assert all(r.time_us and r.verdict == "pass" for r in records)


@pytest.mark.long
@pytest.mark.parametrize(("old", "new", "wrong"), [
    ("first + l * THREADS < packs)\n                to", "first + l * THREADS + 1 < packs)\n to",
     SMS),
    pytest.param("ranks.at<uint4>(beyond(ranks), out), packs", "ranks.here<uint4>(out), packs",
                 SMS[2:], marks=pytest.mark.slow),
    pytest.param("ranks.at<uint4>(beyond(ranks), in)", "ranks.here<uint4>(in)", SMS[:2],
                 marks=pytest.mark.slow),
    ("number != first + rounds", "number != first + rounds - 1", FLAGS),
])  # fmt: skip
def test_what_does_not_arrive_is_told(
    folder: Path, old: str, new: str, wrong: tuple[str, ...]
) -> None:
    device = folder / "device"
    device.mkdir()
    found = 0
    for path in exchange._DEVICE.iterdir():
        text = path.read_text()
        found += text.count(old)
        (device / path.name).write_text(text.replace(old, new))
    assert found == 1
    for rounds in (None, 1):
        records = together(*(Asked(rank, 2, folder, device, rounds=rounds) for rank in range(2)))
        failed = {r.engine: r.reason for r in records if r.verdict == "fail"}
        assert failed.keys() == set(wrong)
        assert all("arrived" in why or "a flag ended" in why for why in failed.values())
        assert not any(r.time_us for r in records if r.engine in wrong)
