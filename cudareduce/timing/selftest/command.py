"""The command `selftest`: tests how reliably this machine measures."""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.backends.selection import choose_backend, open_timed
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.progress import say
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import run_texts
from cudareduce.timing.selftest.findings import as_json, selftest_sections, trustworthy
from cudareduce.timing.selftest.parts import Selftest

#: Default kernels: fast ones, so that most of the time is spent on cache flushes.
KERNELS = ("reduce_v3_add_during_load", "reduce_v6_multi_add", "reduce_v7_shuffle")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestRequest:
    """The options of `selftest`; `max_time` is in seconds."""

    kernels: tuple[str, ...]
    device: int
    max_time: float
    strict: bool
    no_cache: bool
    quiet: bool
    outputs: Outputs
    argv: tuple[str, ...] = ()


def selftest(request: SelftestRequest) -> int:
    """Run all parts, print and store the findings. Returns 0; with `strict` 4 unless the machine is
    proven reliable; 130 after Ctrl-C, with the findings so far. Raises UsageError, and
    EnvironmentProblem without a GPU."""
    request.outputs.check()
    deadline = Deadline(request.max_time)
    cases = _cases(request.kernels or KERNELS)
    spec, _ = choose_backend("cuda", request.device, not request.no_cache)
    with open_timed(spec) as backend:
        device = backend.info()
        parts = Selftest(backend, spec, cases, deadline)
        findings = parts.run(lambda text: say(text, request.quiet))
    protocol = {"rounds": 9, "max_time_s": deadline.seconds, "selftest": as_json(findings)}
    run = Run(tool(request.argv), device, protocol, ())
    publish(request.outputs, list(selftest_sections(findings, device.name)), run_texts(run))
    if findings.interrupted:
        return 130
    return 4 if request.strict and not trustworthy(findings) else 0


def _cases(names: tuple[str, ...]) -> list[Case]:
    """The kernels to test with. Raises UsageError if one does not sum float32 over the grid."""
    reduction = reduction_of("sum", "float32")
    choices = load_registry().choose(names)
    for kernel in (choice.kernel for choice in choices):
        if kernel.why_not(reduction) or kernel.scope != "grid":
            raise UsageError(
                f"selftest needs kernels that sum float32 over the grid, and {kernel.id} does not"
            )
    return [Case(c.kernel, reduction, c.kernel.block, c.kernel.items) for c in choices]
