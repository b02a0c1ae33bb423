"""What `bench` and `verify` do between the options and the exit code."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cudareduce import __version__
from cudareduce.backend import BuildError, DeviceInfo
from cudareduce.backends import choose_backend, open_backend
from cudareduce.bench import Bench, Outcome
from cudareduce.bindings import load as load_bindings
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.execute import Case
from cudareduce.inputs import why_no_pattern
from cudareduce.intervals import CONFIDENCE, MIN_ROUNDS
from cudareduce.join import Group, Join
from cudareduce.operators import reduction
from cudareduce.progress import phase, say
from cudareduce.record import Record, Run
from cudareduce.registry import load_registry
from cudareduce.report import Section, print_sections, sections, to_markdown, verdict_section
from cudareduce.session import Session, Settings
from cudareduce.store import check_writable, to_csv, to_json, write_text
from cudareduce.timer import FLUSH_BYTES
from cudareduce.trial import methods
from cudareduce.verify import Verdict, edge_sizes

#: Where float32 no longer counts by ones, and where offsets in bytes no longer fit 32 bits.
_GPU_SIZES = (2**24 + 1,)
_BEYOND_32_BITS = 2**32 + 12


def run_bench(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Verify, time, print, store."""
    run, code = timed_run(names, options)
    write(run, sections(run, options.get("columns", ())), options)
    return code


def timed_run(names: tuple[str, ...], options: Mapping[str, Any]) -> tuple[Run, int]:
    """Verify and time what the options name; the result, and the exit code it deserves."""
    registry = load_registry(options["folders"])
    choices = registry.choose(names)
    if options["baseline_kernel"] is not None:
        registry.choose([options["baseline_kernel"]])
    with opened(options) as (session, device):
        peak = options["peak_gb_s"] or device.peak_gb_s
        device = replace(device, peak_gb_s=peak)
        limits = session.backend.limits()
        join = Join(session.backend.name, limits, peak, session.settings, registry)
        outcome = Bench(session, join).run(choices)
        run = Run(tool(options), device, _protocol(session, outcome), outcome.records)
    codes = {2} if outcome.build_failed else set()
    if outcome.untimed:
        codes |= {6}
    return run, 130 if outcome.interrupted else _exit_code(outcome.records, codes)


def run_verify(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Only the answers, at the sizes asked for or at those where reductions go wrong."""
    registry = load_registry(options["folders"])
    choices = registry.choose(names)
    with opened(options) as (session, device):
        settings = session.settings
        join = Join(session.backend.name, session.backend.limits(), None, settings, registry)
        records: list[Record] = []
        interrupted, codes = False, set()
        for what in settings.reductions:
            cases = list(session.cases(choices, what))
            verdicts = {case: Verdict("skip", reason) for case, reason in cases if reason}
            runnable = [case for case, reason in cases if not reason]
            sizes = settings.sizes or _edge_sizes(session, runnable)
            group = Group(what, max(sizes), verdicts, {})
            try:
                built = session.build(runnable, sizes)
                failed = {c: made for c, made in built.items() if isinstance(made, BuildError)}
                codes |= {2} if failed else set()
                verdicts |= {
                    c: Verdict("skip", f"does not compile: {e}") for c, e in failed.items()
                }
                good = {c: made for c, made in built.items() if not isinstance(made, BuildError)}
                session.verify(good, sizes, verdicts, hazards=True)
            except KeyboardInterrupt:
                interrupted = True
            records += join.records(group, [case for case, _ in cases])
            if interrupted:
                break
        run = Run(tool(options), device, {"sizes": list(settings.sizes)}, tuple(records))
    title = f"answers on {device.name}"
    write(run, [verdict_section(records, title)], options)
    return 130 if interrupted else _exit_code(records, codes)


def _edge_sizes(session: Session, cases: list[Case]) -> list[int]:
    sizes = edge_sizes(max((case.block for case in cases), default=1))
    if session.backend.name == "cuda" and cases:
        sizes += [*_GPU_SIZES, _BEYOND_32_BITS // cases[0].what.dtype.size]
    return sizes


@contextmanager
def opened(options: Mapping[str, Any]) -> Iterator[tuple[Session, DeviceInfo]]:
    """A session on the backend asked for; what falls back says so."""
    quiet = options["quiet"]
    for key in ("csv", "json", "markdown"):
        if options[key] is not None:
            check_writable(options[key])
    pairs = [(op, dtype) for op in options["op"] for dtype in options["dtype"]]
    settings = Settings(
        reductions=tuple(reduction(op, dtype, options["acc"]) for op, dtype in pairs),
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
        deadline=Deadline(options.get("max_time")),
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


def write(run: Run, found: list[Section], options: Mapping[str, Any]) -> None:
    makers: dict[str, Callable[[], str]] = {
        "csv": lambda: to_csv(run),
        "json": lambda: to_json(run),
        "markdown": lambda: to_markdown(found),
    }
    for name, make in makers.items():
        if options[name] is not None:
            write_text(options[name], make())
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


def _protocol(session: Session, outcome: Outcome) -> dict[str, Any]:
    asked = session.settings
    return {
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


def tool(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "cudareduce", "version": __version__, "git": _git(), "argv": options["argv"]}


def _git() -> str | None:
    """The revision of the checkout that runs, marked if it was changed; None outside one."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return said.stdout.strip() or None
