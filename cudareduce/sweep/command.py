"""`sweep`: the times of kernels over a range of sizes, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from cudareduce.bench.command import timed_run, write
from cudareduce.errors import UsageError
from cudareduce.sweep.latency import (
    MIN_SIZES,
    crossovers,
    fit,
    lines,
)
from cudareduce.sweep.tables import sweep_sections


def run_sweep(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Time a range, fit, print, store."""
    if options["backend"] == "cpu":
        raise UsageError("sweep fits times, and the CPU emulator has none: use --backend cuda")
    if len([n for n in options["n"] if n]) < MIN_SIZES:
        raise UsageError(f"sweep fits a line: give --n at least {MIN_SIZES} sizes, as 2^10..2^30")
    run, code = timed_run(names, {**options, "backend": "cuda"})
    found = lines(run.records)
    models = [fit(line) for line in found]
    crossed = sorted(crossovers(found), key=lambda crossing: crossing.n)
    protocol = {
        **run.protocol,
        "models": [asdict(model) for model in models],
        "crossovers": [asdict(crossing) for crossing in crossed],
    }
    run = replace(run, protocol=protocol)
    write(run, sweep_sections(run, found, models, crossed), options)
    return code
