"""Runs as a GPU might have given them: rounds with noise inside and drift between them.

The model is the one the verdicts are judged by: samples scatter within a round, to the right, and
each round of each kernel is shifted as a whole. What it makes says so in its `tool` field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from cudareduce.intervals import interval
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Record, Run

H200 = DeviceInfo(
    name="NVIDIA H200", cc="9.0", sm_count=132, threads_per_sm=2048, l2_bytes=62914560,
    memory_bytes=150_000_000_000, memory_clock_khz=3201000, bus_bits=6016, peak_gb_s=4814.3,
    uuid="GPU-00000000-0000-0000-0000-00000000000a", ecc=True, mig=False, power_limit_w=700.0,
    driver="580.159.04", cuda="13.0", nvcc="13.0",
)  # fmt: skip
#: Microseconds above the ceiling's at 2^25, roughly as the ladder runs on an H200.
KERNELS = {
    "reduce_v0_baseline": 298.0,
    "reduce_v1_no_divergence": 173.0,
    "reduce_v2_no_bank_conflict": 128.0,
    "reduce_v3_add_during_load": 55.0,
    "reduce_v4_unroll_last_warp": 35.0,
    "reduce_v5_completely_unroll": 32.0,
    "reduce_v6_multi_add": 11.0,
    "reduce_v7_shuffle": 11.0,
}
SIZES = (2**22, 2**25, 2**28)
CEILING_GB_S = 4194.3


def rounds(
    rng: np.random.Generator, us: float, count: int = 9, drift: float = 0.003,
    within: float = 0.005, samples: int = 42,
) -> tuple[float, ...]:  # fmt: skip
    """Round medians of samples that scatter by `within`, rounds shifted by `drift`, in steps of
    32 ns as events give them."""
    spread = np.exp(rng.gumbel(0, within / 1.2825, (count, samples)))  # sd of a Gumbel is 1.2825
    times = us * spread * np.exp(rng.normal(0, drift, (count, 1)))
    return tuple(float(t) for t in np.round(np.median(times, axis=1) / 0.032) * 0.032)


def record(kernel: str, n: int, times: Sequence[float], **changes: object) -> Record:
    """A record that these rounds give."""
    middle = median(times)
    low, high = interval(times) or (None, None)
    moved = 4 * n + 4
    gb_s = moved / middle / 1e3
    sha = hashlib.sha256(kernel.encode()).hexdigest()
    made = Record(
        kernel=kernel, op="sum", dtype="float32", acc="float32", n=n, rows=1, block=256, items=8,
        grid=max(n // 2048, 1), passes=3, backend="cuda", scope="grid", timing="cold",
        region="total", pattern="random", verdict="pass", reason="", error=1e-3, bound=1.0,
        time_us=middle, time_us_low=low, time_us_high=high, time_us_min=min(times),
        noise_pct=0.6, samples=42 * len(times), discarded=0, rounds_us=tuple(times), bytes=moved,
        gb_s=gb_s, pct_peak=100 * gb_s / 4814.3, ceiling_gb_s=CEILING_GB_S,
        pct_ceiling=100 * gb_s / CEILING_GB_S, source_sha=sha, cubin_sha=sha,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def run(
    seed: int,
    *,
    slower: Mapping[str, float] | None = None,
    kernels: Iterable[str] = KERNELS,
    sizes: Iterable[int] = SIZES,
    count: int = 9,
    drift: float = 0.003,
    device: DeviceInfo = H200,
    new_code: Iterable[str] = (),
    **changes: object,
) -> Run:
    """A whole run; kernels in `slower` take that share more, those in `new_code` other code."""
    rng = np.random.default_rng(seed)
    records = []
    for n in sizes:
        for kernel in kernels:
            us = 4 * n / CEILING_GB_S / 1e3 + KERNELS.get(kernel, 20.0) * n / 2**25 + 3
            us *= 1 + (slower or {}).get(kernel, 0.0)
            made = record(kernel, n, rounds(rng, us, count, drift), **changes)
            if kernel in (slower or {}) or kernel in new_code:
                made = replace(made, cubin_sha=hashlib.sha256(b"new" + kernel.encode()).hexdigest())
            records.append(made)
    tool = {
        "name": "cudareduce", "version": "0.1.0", "git": None, "argv": ["bench", "fastcuda"],
        "simulated": f"no GPU made these times: tests/simulate.py, seed {seed}",
    }  # fmt: skip
    protocol: dict[str, Any] = {
        "kernels": ["fastcuda"], "block": None, "items": None, "timing": "cold",
        "region": "total", "rounds": count, "seed": 0, "floors_us": {},
    }  # fmt: skip
    created = "2026-01-01T00:00:00+00:00"
    return Run(tool, device, protocol, tuple(records), created)
