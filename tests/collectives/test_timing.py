"""Ranks are timed from one start, by the slowest of them, and what is timed is verified: on
simulated GPUs, whose clocks go on by what they are told that a launch costs."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from cudareduce.collectives import windows
from cudareduce.collectives.collective import CollectiveExperiment, run_collective
from cudareduce.collectives.communicator import Placement, connect
from cudareduce.collectives.kernels import kernels_of, load_kernels
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record
from cudareduce.workers import fork_server
from tests.fake_gpu import FakeGpu, FilePeerMemory

SIZES = (1000,)


@dataclass(frozen=True)
class Asked:
    """What a rank is told: which folder holds its kernels, and how much longer each takes."""

    rank: int
    folder: Path
    kernels: tuple[Path, ...] = ()
    factors: Mapping[str, float] | None = None


def _one(asked: Asked) -> list[Record]:
    """What one of two ranks finds."""
    gpu = FakeGpu(asked.folder / "compiled", factors=asked.factors or {}, noise=0.0, threads=1)
    known = kernels_of(load_kernels(asked.kernels), "all-reduce")
    chosen = tuple(k for k in known.values() if k.wrong is None)
    asks = CollectiveExperiment(
        collective="all-reduce", kernels=chosen, auto=chosen[:1], by_host=True, sizes=SIZES,
        timed=True, rounds=2,
    )  # fmt: skip
    vars(windows)["IpcMemory"] = lambda nbytes: FilePeerMemory(nbytes, asked.folder)
    here = Placement("cudareduce", asked.rank, 2, asked.rank, "a job")
    with gpu, connect(here, str(asked.folder / "m")) as met:
        records, links = run_collective(asks, reduction_of("sum", "float32"), met, gpu)
    assert links.write_gb_s is None  # too small to tell
    return records


def together(asked: Asked, slow: Mapping[str, float] | None = None) -> list[Record]:
    """What two ranks find, of which the second is `slow` at something."""
    second = Asked(1, asked.folder, asked.kernels, slow or asked.factors)
    with ProcessPoolExecutor(2, fork_server()) as pool:
        first, other = pool.map(_one, (asked, second))
    assert [r.time_us for r in first] == [r.time_us for r in other]
    return first


@pytest.mark.long
def test_engines_have_times_and_skews(folder: Path) -> None:
    slow = {"all_reduce_two_shot": 1.05}
    records = together(Asked(0, folder), slow)
    timed = {(r.engine, r.n): r for r in records if r.time_us}
    names = ("auto", "one_shot", "packets", "two_shot", "writes")
    assert set(timed) == {(f"peer:{name}", n) for name in names for n in SIZES}
    for (engine, n), r in timed.items():
        assert (r.verdict, r.ranks, len(r.rounds_us), r.samples) == ("pass", 2, 2, 16)
        assert r.time_us and r.algbw_gb_s == pytest.approx(4 * n / r.time_us / 1e3)
        assert r.busbw_gb_s == r.algbw_gb_s  # of two ranks
        assert r.time_us == pytest.approx(median(r.medians_us))
        late = 0.1 if engine == "peer:two_shot" else 0.0  # 5 % of 2 us
        assert r.skew_us == pytest.approx(late, abs=1e-6)
        assert r.loop_us == pytest.approx((2 + late) + 1.28 / 64, rel=1e-3)
    hosts = [r for r in records if r.engine == "host"]
    assert [(r.n, r.time_us) for r in hosts] == [(n, None) for n in SIZES]
    assert all(r.host_us and r.host_us > 0 for r in hosts)


@pytest.mark.slow
def test_samples_with_ranks_apart_are_discarded(folder: Path) -> None:
    records = together(Asked(0, folder), {"all_reduce_one_shot": 4.0})
    apart = [r for r in records if r.engine == "peer:one_shot"]
    assert [(r.time_us, r.verdict) for r in apart] == [(None, "pass")]
    assert all("apart in every sample" in r.reason for r in apart)
    assert all(r.time_us for r in records if r.engine == "peer:two_shot")


@pytest.mark.slow
def test_a_result_that_is_wrong_only_when_timed_is_wrong(folder: Path) -> None:
    """Right up to the sizes that are verified alone, which a build that stumbles is; not beyond."""
    wrong = folder / "kernels"
    wrong.mkdir()
    text = next(k.text for k in load_kernels().values() if k.id == "all_reduce_two_shot")
    body = text.replace("all_reduce_two_shot", "all_reduce_forgets").replace(
        "    ranks.meet(flags, 2 * call);",
        "    if (STUMBLE == 0 && call % 2) return;\n    ranks.meet(flags, 2 * call);",
        1,
    )
    assert body.count("STUMBLE") == 1
    (wrong / "all_reduce_forgets.cu").write_text(body)
    records = together(Asked(0, folder, (wrong,)))
    found = [r for r in records if r.engine == "peer:forgets"]
    assert [r.verdict for r in found] == ["fail"]
    assert "element 0 is wrong" in found[0].reason
