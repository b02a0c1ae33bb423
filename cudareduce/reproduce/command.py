"""`reproduce`: a published experiment."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from cudareduce.bench.command import _bench, _bench_code, write
from cudareduce.budget import Deadline
from cudareduce.errors import worst_exit_code
from cudareduce.library.registry import load_registry
from cudareduce.report.terminal import to_reader
from cudareduce.reproduce.experiments import experiments, fastcuda_lines, merged, tables
from cudareduce.reproduce.profiler import Profile, profile
from cudareduce.results.record import Run


def run_reproduce(name: str, options: Mapping[str, Any]) -> int:
    """A published experiment as its author ran it, his figures beside ours."""
    registry = load_registry()
    suite = registry.suite(name)
    about = suite.experiment
    runs: list[Run] = []
    codes: set[int] = set()
    profiled = Profile({}, "it takes a GPU")
    deadline = Deadline(options["max_time"])  # one for all experiments
    for each in experiments(suite, registry.kernels):
        asked = dict(options) | {
            "n": [each.n], "rows": each.rows, "op": (about["op"],), "dtype": (about["dtype"],),
            "pattern": about.get("pattern", "random"), "region": about.get("region", "total"),
            "deadline": deadline,
            **dict.fromkeys(("op_expr", "acc", "block", "items", "baseline_kernel")),
        }  # fmt: skip
        run, outcome, spec = _bench((name,), each.choices, registry, asked)
        runs.append(run)
        codes.add(_bench_code(outcome))
        if outcome.interrupted:
            break
        if spec.name == "cuda" and any("utilisation_pct" in row.published for row in suite.rows):
            profiled = profile(spec, outcome.cases, each.n, each.rows, asked["pattern"])
    whole = merged(suite, runs, profiled)
    if options["style"] == "fastcuda":
        with to_reader():
            sys.stdout.write(fastcuda_lines(whole))
    else:
        write(whole, tables(whole, registry), options)
    return 130 if 130 in codes else worst_exit_code(codes)
