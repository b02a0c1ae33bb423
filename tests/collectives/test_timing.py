"""Times, skew and verification of timed calls, on simulated GPUs with given costs of launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pytest

from cudareduce.collectives.collective import CollectiveExperiment, run_collective
from cudareduce.collectives.kernels import kernels_of, load_kernels
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record
from tests.collectives.rank_processes import connected, run_ranks
from tests.fake_gpu import FakeGpu

SIZES = (1000,)
#: The kernels that are measured: two of the package, and one that a test writes.
MEASURED = ("one_shot", "two_shot", "forgets")


@dataclass(frozen=True)
class RankOptions:
    """Options of a rank: more folders of kernels, and by what factor its launches are longer."""

    rank: int
    folder: Path
    kernels: tuple[Path, ...]
    factors: Mapping[str, float]


def _measure_rank(options: RankOptions) -> list[Record]:
    gpu = FakeGpu(options.folder / "compiled", factors=options.factors, noise=0.0, threads=1)
    kernels = kernels_of(load_kernels(options.kernels), "all-reduce")
    correct = tuple(kernels[short] for short in kernels if short in MEASURED)
    experiment = CollectiveExperiment(
        collective="all-reduce", kernels=correct, auto=correct[:1], by_host=True, sizes=SIZES,
        timed=True, rounds=2,
    )  # fmt: skip
    with gpu, connected(options.rank, 2, options.folder) as comm:
        records, links = run_collective(experiment, reduction_of("sum", "float32"), comm, gpu)
    assert links.write_gb_s is None  # the array is too small
    return records


def measure_ranks(
    folder: Path, kernels: tuple[Path, ...] = (), factors: Mapping[str, float] | None = None
) -> list[Record]:
    """The records of two ranks, which have the same times. `factors` apply to rank 1."""
    ranks = [RankOptions(0, folder, kernels, {}), RankOptions(1, folder, kernels, factors or {})]
    first, other = run_ranks(_measure_rank, ranks)
    assert [r.time_us for r in first] == [r.time_us for r in other]
    return first


@pytest.mark.long
def test_engines_have_times_and_skews(folder: Path) -> None:
    slow = {"all_reduce_two_shot": 1.05}
    records = measure_ranks(folder, factors=slow)
    timed = {(r.engine, r.n): r for r in records if r.time_us}
    names = ("auto", "one_shot", "two_shot")
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
    records = measure_ranks(folder, factors={"all_reduce_one_shot": 4.0})
    apart = [r for r in records if r.engine == "peer:one_shot"]
    assert [(r.time_us, r.verdict) for r in apart] == [(None, "pass")]
    assert all("apart in every sample" in r.reason for r in apart)
    assert all(r.time_us for r in records if r.engine == "peer:two_shot")


@pytest.mark.slow
def test_a_result_that_is_wrong_only_when_timed_is_wrong(folder: Path) -> None:
    """The kernel is right in builds with delays, which are verified before timing."""
    wrong = folder / "kernels"
    wrong.mkdir()
    text = next(k.text for k in load_kernels().values() if k.id == "all_reduce_two_shot")
    body = text.replace("all_reduce_two_shot", "all_reduce_forgets").replace(
        "    ranks.meet(flags, 2 * call);",
        "    if (DELAY_CLOCKS == 0 && call % 2) return;\n    ranks.meet(flags, 2 * call);",
        1,
    )
    assert body.count("DELAY_CLOCKS") == 1
    (wrong / "all_reduce_forgets.cu").write_text(body)
    (record,) = [r for r in measure_ranks(folder, (wrong,)) if r.engine == "peer:forgets"]
    assert record.verdict == "fail"
    assert "element 0 is wrong" in record.reason
