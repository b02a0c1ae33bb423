"""Stored runs, whole and with something changed, for pictures to be made of."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from cudareduce.collectives.engines import engine_record
from cudareduce.collectives.timing import Batch, LinkRates, with_bandwidth, with_times
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load
from tests.conftest import ROOT

H200, H100 = ROOT / "results" / "nvidia-h200", ROOT / "results" / "nvidia-h100"
BENCH, SWEEP = H200 / "bench-2p25-float32.json", H200 / "sweep.json"
PEERS, TYPES = H200 / "libraries-float32.json", ROOT / "tests" / "data" / "types.json"
BEFORE, AFTER = (ROOT / "tests" / "data" / f"simulated-{when}.json" for when in ("before", "after"))


def with_records(run: Run, records: list[Record]) -> Run:
    return replace(run, records=tuple(records))


def over_sms(path: Path = SWEEP) -> Run:
    """The largest size of two kernels, on ever more SMs, of which few reach less."""
    run = load(path)
    largest = max(r.n for r in run.records)
    ours = [r for r in run.records if r.n == largest][:2]
    return with_records(
        run,
        [
            replace(r, sms=sms, gb_s=(r.gb_s or 0.0) * sms / 132, gb_s_low=None, gb_s_high=None)
            for r in ours
            for sms in (8, 16, 32, 64, 132)
        ],
    )


def collectives() -> Run:
    """An all-reduce by three engines over the bytes of arrays, of which one is wrong at a size."""
    record_of = partial(engine_record, "all-reduce", reduction_of("sum", "float32"), 2, "cuda")
    links = LinkRates(337.0, 365.0)
    wrong = record_of("peer:no_barrier", 40, verdict="fail", reason="does not wait")
    records = [wrong]
    for engine, floor_us, gb_s in (("peer:one_shot", 9.5, 337), ("nccl", 8.9, 322)):
        for n in (2**k for k in range(10, 29, 2)):
            times = [floor_us + 4 * n / gb_s / 1e3 + 0.01 * k for k in range(6)]
            batches = [Batch((us,) * 8, (0.4,) * 8, us - 1.5, 9.7, None) for us in times]
            plain = record_of(engine, n, distinct=1, launches=10, tried_launches=64)
            records.append(with_bandwidth(with_times(plain, batches, 4 * n), links))
    return with_records(replace(load(SWEEP), protocol={"rounds": 6, "timing": "warm"}), records)


def many(records: int) -> Run:
    """So many, of made-up kernels over the sizes of a sweep."""
    run = load(SWEEP)
    one = [r for r in run.records if r.kernel == run.records[0].kernel]
    found = [
        replace(r, kernel=f"reduce_{k}", gb_s=(r.gb_s or 1.0) * (1 - k / 500))
        for k in range(records // len(one) + 1)
        for r in one
    ]
    return with_records(run, found[:records])
