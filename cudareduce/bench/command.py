"""What `bench` and `verify` do between the options and the exit code."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cudareduce.backend import DeviceInfo
from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.bench.records import Join
from cudareduce.bench.runner import Bench, Outcome
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.trial import methods
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.gpu.bindings import load as load_bindings
from cudareduce.intervals import CONFIDENCE, MIN_ROUNDS
from cudareduce.library.foreign import Guesses, adopt
from cudareduce.library.kernel import Adopt, Kernel
from cudareduce.library.registry import Choice, Registry, load_registry
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.inputs import why_no_pattern
from cudareduce.problem.operators import Operator, Reduction, reduction
from cudareduce.progress import phase, say
from cudareduce.report.markdown import to_markdown
from cudareduce.report.sections import Section, sections
from cudareduce.report.terminal import print_sections, to_reader
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_outputs, to_csv, to_json, write_text
from cudareduce.timing.timer import FLUSH_BYTES


def run_bench(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Verify, time, print, store."""
    run, code = timed_run(names, options)
    write(run, sections(run, options.get("columns", ())), options)
    return code


def timed_run(names: tuple[str, ...], options: Mapping[str, Any]) -> tuple[Run, int]:
    """Verify and time what the options name; the result, and the exit code it deserves."""
    registry = load_registry(options["folders"])
    choices = registry.choose(names, _adopter(options))
    baseline = options["baseline_kernel"]
    if baseline is not None and baseline not in {choice.kernel.id for choice in choices}:
        raise UsageError(f"--baseline-kernel {baseline} is not measured here: name it too")
    run, outcome, _ = _bench(names, choices, registry, options)
    return run, _bench_code(outcome)


def _bench(
    names: tuple[str, ...],
    choices: Sequence[Choice],
    registry: Registry,
    options: Mapping[str, Any],
) -> tuple[Run, Outcome, BackendSpec]:
    with opened(options) as (session, device):
        peak = options["peak_gb_s"] or device.peak_gb_s
        device = replace(device, peak_gb_s=peak)
        limits = session.backend.limits()
        join = Join(session.backend.name, limits, peak, session.settings, registry)
        outcome = Bench(session, join).run(choices)
        how = protocol(session, names, outcome) | {"peak_gb_s": options["peak_gb_s"]}
        run = Run(tool(options["argv"]), device, how, outcome.records)
        return run, outcome, session.spec


def _bench_code(outcome: Outcome) -> int:
    codes = {2} if outcome.build_failed else set()
    if outcome.untimed:
        codes |= {6}
    return 130 if outcome.interrupted else _exit_code(outcome.records, codes)


@contextmanager
def opened(options: Mapping[str, Any]) -> Iterator[tuple[Session, DeviceInfo]]:
    """A session on the backend asked for; what falls back says so."""
    quiet = options["quiet"]
    check_outputs(options)
    settings = Settings(
        reductions=_reductions(options),
        sizes=tuple(options["n"] or ()),
        rows=options["rows"],
        block=options["block"],
        items=options["items"],
        pattern=options.get("pattern", "random"),
        only_pattern=options.get("only_pattern"),
        region=options.get("region", "total"),
        seed=options["seed"],
        rounds=options.get("rounds", 0),
        baseline=options.get("baseline_kernel"),
        time_limit_s=options["time_limit"],
        timings=options.get("timing", ("cold",)),
        graph=options.get("graph", False),
        deadline=options.get("deadline") or Deadline(options.get("max_time")),
    )
    for what in settings.reductions:
        reason = why_no_pattern(settings.only_pattern or settings.pattern, what)
        if reason:
            raise UsageError(reason)
    spec, fallen_back = choose_backend(
        options["backend"], options["device"], not options["no_cache"]
    )
    if fallen_back:
        say(
            f"No usable GPU: {fallen_back}. Kernels run on the CPU emulator: answers are checked, "
            "nothing is timed.",
            quiet,
        )
    with tempfile.TemporaryDirectory(prefix="cudareduce-") as temporary:
        if spec.name == "cpu" and spec.cache is None:
            spec = replace(spec, cache=Path(temporary))
        if spec.name == "cuda" and any(method.needs_bindings for method in methods(settings)):
            load_bindings()  # before anything is compiled
        with open_backend(spec) as backend:
            session = Session(backend, spec, settings, partial(phase, quiet=quiet))
            try:
                yield session, backend.info()
            finally:
                session.close()


def _adopter(options: Mapping[str, Any]) -> Adopt:
    """Takes a file without a header for what it looks like, and says so."""
    keys = ("entry", "block", "items", "grid", "finish", "shared")
    guesses = Guesses(**{key: options[key] for key in keys})

    def take(path: Path, text: str) -> Kernel:
        adopted = adopt(path, text, guesses)
        say(adopted.assumed, options["quiet"])
        return adopted.kernel

    return take


def _reductions(options: Mapping[str, Any]) -> tuple[Reduction, ...]:
    """Each operator on each type; an operator of one's own is tested first."""
    found = []
    for dtype in options["dtype"]:
        ops: list[str | Operator] = list(options["op"])
        if options["op_expr"] is not None:
            from cudareduce.problem.expression import broken_law, own_operator

            own = own_operator(
                options["op_expr"], options["identity"], DTYPES[dtype], options["rtol"]
            )
            warning = broken_law(own, DTYPES[dtype])
            if warning:
                say(f"Warning: {warning}.")
            ops = [own]
        found += [reduction(op, dtype, options["acc"]) for op in ops]
    return tuple(found)


def write(run: Run, found: list[Section], options: Mapping[str, Any]) -> None:
    makers: dict[str, Callable[[], str]] = {
        "csv": lambda: to_csv(run),
        "json": lambda: to_json(run),
        "markdown": lambda: to_markdown(found),
    }
    for name, make in makers.items():
        if options[name] is not None:
            write_text(options[name], make())
    with to_reader():
        if options["style"] == "table":
            print_sections(found)
        else:
            sys.stdout.write(makers[options["style"]]())


def _exit_code(records: tuple[Record, ...] | list[Record], codes: set[int]) -> int:
    verdicts = {record.verdict for record in records}
    codes |= {3} if "fail" in verdicts else set()
    if verdicts == {"skip"}:
        codes |= {6}
    return worst_exit_code(codes)


def protocol(session: Session, names: tuple[str, ...], outcome: Outcome) -> dict[str, Any]:
    """How a run was measured, and what was asked for, so that it can be asked for again."""
    asked = session.settings
    return {
        "kernels": list(names or ("all",)),
        "rows": asked.rows,
        "block": asked.block,
        "items": asked.items,
        "timing": ",".join(asked.timings),
        "graph": asked.graph,
        "region": asked.region,
        "rounds": asked.rounds,
        "max_time_s": asked.deadline.seconds,
        "flush_bytes_read": FLUSH_BYTES if session.backend.name == "cuda" else None,
        "confidence": CONFIDENCE if asked.rounds >= MIN_ROUNDS else None,
        "seed": asked.seed,
        "floors_us": dict(outcome.floors_us),
        "measured": list(outcome.stories),
        "remarks": list(outcome.remarks),
    }
