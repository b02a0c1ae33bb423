"""`selftest` from options to verdict: words, tables, and a JSON that holds all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cudareduce.backends import BackendSpec, open_cuda
from cudareduce.bench.command import write
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.library.registry import load_registry
from cudareduce.problem.operators import reduction
from cudareduce.progress import say
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import check_outputs
from cudareduce.selftest.findings import trustworthy
from cudareduce.selftest.parts import Selftest
from cudareduce.selftest.tables import as_json, selftest_sections

#: One relaunch with a first addition, one with many items, one with shuffles: all fast enough for
#: the flush, and not the kernel, to take most of the time.
KERNELS = ("reduce_v3_add_during_load", "reduce_v6_multi_add", "reduce_v7_shuffle")


def run_selftest(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Test, print, store; 0, with --strict 4 unless the machine was seen to be good enough, and 130
    after Ctrl-C, with what there was by then."""
    check_outputs(options)
    deadline = Deadline(options["max_time"])
    what = reduction("sum", "float32")
    choices = load_registry().choose(list(names) or list(KERNELS))
    for choice in choices:
        reason = choice.kernel.why_not(what)
        if reason or choice.kernel.scope != "grid":
            raise UsageError(
                f"selftest sums float32 over the grid, which {choice.kernel.id} does not"
            )
    cases = [Case(c.kernel, what, c.kernel.block, c.kernel.items) for c in choices]
    spec = BackendSpec("cuda", options["device"], use_cache=not options["no_cache"])
    with open_cuda(spec) as backend:
        device = backend.info()
        found = Selftest(backend, spec, cases, deadline).run(
            lambda text: say(text, options["quiet"])
        )
    protocol = {"rounds": 9, "max_time_s": deadline.seconds, "selftest": as_json(found)}
    run = Run(tool(options["argv"]), device, protocol, ())
    write(run, list(selftest_sections(found, device.name)), {**options, "csv": None})
    if found.interrupted:
        return 130
    return 4 if options["strict"] and not trustworthy(found) else 0
