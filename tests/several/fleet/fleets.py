"""Fleets as they might be: many cards, each a little quicker or slower, made of one stored run.

A card differs from the others by `CARDS`, one of its runs from another by `RUNS`, and each record
of it by `RECORDS`, all as logarithms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from cudareduce.machine.device import DeviceInfo
from cudareduce.several.fleet.store import Cell, Held, Time
from tests.conftest import ROOT
from tests.simulate import H200, KERNELS, record

STORED = ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json"
_KEPT: dict[str, Any] = json.loads(STORED.read_text())
CARDS, RUNS, RECORDS = 0.007, 0.003, 0.002
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_TIMES = ("time_us", "time_us_low", "time_us_high", "time_us_min")
_RATES = ("gb_s", "gb_s_low", "gb_s_high", "pct_peak", "pct_ceiling")


def uuid(card: int) -> str:
    """The name of a card; no two begin alike."""
    return f"GPU-{card * 2654435761 % 2**32:08x}-0000-0000-0000-{card:012x}"


def result(card: int, run: int, factor: float, **device: Any) -> dict[str, Any]:
    """A result file's content: the stored run, on another card, in times `factor`."""
    told = deepcopy(_KEPT)
    told["created"] = (BEGIN + timedelta(days=run)).isoformat(timespec="seconds")
    told["device"] |= {"uuid": uuid(card), "host": f"node{card // 8:03}"} | device
    rng = np.random.default_rng((card, run))
    for each in told["records"]:
        times = float(factor * np.exp(rng.normal(0, RECORDS)))
        each["rounds_us"] = [us * times for us in each["rounds_us"]]
        each |= {name: each[name] * times for name in _TIMES}
        each |= {name: each[name] / times for name in _RATES if each[name] is not None}
    return told


def write_fleet(
    folder: Path, cards: int, runs: int, slow: Mapping[int, float] | None = None, seed: int = 0
) -> None:
    """A file for each run of each card, a folder for each host; those in `slow` take that share
    more."""
    for card, run, factor in _factors(cards, runs, slow or {}, seed):
        place = folder / f"node{card // 8:03}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{card}-{run}.json").write_text(json.dumps(result(card, run, factor)))


def simulated(
    cards: int, runs: int = 2, slow: Mapping[int, float] | None = None, seed: int = 0,
    sizes: tuple[int, ...] = (2**25,), apart: float = CARDS,
) -> Held:  # fmt: skip
    """The same as a store would hold it, without files: eight kernels at these sizes. Cards differ
    by `apart`."""
    cells = {
        k: Cell(record(kernel, n, (40.0,) * 9), 2**29)
        for k, (kernel, n) in enumerate((kernel, n) for n in sizes for kernel in KERNELS)
    }
    devices: dict[int, DeviceInfo] = {}
    times = []
    rng = np.random.default_rng((seed, 1))
    for card, _, factor in _factors(cards, runs, slow or {}, seed, apart):
        number = len(devices)
        devices[number] = DeviceInfo(H200.name, uuid=uuid(card))
        for cell, noise in zip(cells, np.exp(rng.normal(0, RECORDS, len(cells))), strict=True):
            us = float(40.0 * factor * noise)
            times.append(Time(number, cell, us, 1980.0, 3201.0, 300.0, 45.0, "none"))
    return Held(devices, cells, tuple(times))


def _factors(
    cards: int, runs: int, slow: Mapping[int, float], seed: int, apart: float = CARDS
) -> Iterator[tuple[int, int, float]]:
    rng = np.random.default_rng((seed, 0))
    off = rng.normal(0, apart, cards)
    for run in range(runs):
        for card in range(cards):
            moved = off[card] + rng.normal(0, RUNS)
            yield card, run, float(np.exp(moved)) * (1 + slow.get(card, 0.0))
