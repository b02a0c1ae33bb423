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

from cudareduce.backend import BuildError, DeviceInfo
from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.bench import Bench, Outcome
from cudareduce.budget import Deadline
from cudareduce.dtypes import DTYPES
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.execute import Case
from cudareduce.inputs import why_no_pattern
from cudareduce.intervals import CONFIDENCE, MIN_ROUNDS
from cudareduce.join import Group, Join
from cudareduce.operators import Operator, Reduction, reduction
from cudareduce.output import print_sections, to_reader
from cudareduce.profiler import Profile, profile
from cudareduce.progress import phase, say
from cudareduce.provenance import tool
from cudareduce.record import Record, Run
from cudareduce.registry import Adopt, Choice, Kernel, Registry, load_registry
from cudareduce.report import Section, sections, to_markdown, verdict_section
from cudareduce.reproduce import experiments, fastcuda_lines, merged, tables
from cudareduce.session import Session, Settings
from cudareduce.store import check_outputs, to_csv, to_json, write_text
from cudareduce.stranger import Guesses, adopt
from cudareduce.timing.bindings import load as load_bindings
from cudareduce.timing.timer import FLUSH_BYTES
from cudareduce.timing.trial import methods
from cudareduce.verify import ROW_SHAPES, Verdict, edge_sizes

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
    choices = registry.choose(names, _adopter(options))
    baseline = options["baseline_kernel"]
    if baseline is not None and baseline not in {choice.kernel.id for choice in choices}:
        raise UsageError(f"--baseline-kernel {baseline} is not measured here: name it too")
    run, outcome, _ = _bench(names, choices, registry, options)
    return run, _bench_code(outcome)


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


def run_verify(names: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Only the answers, at the sizes asked for or at those where reductions go wrong."""
    registry = load_registry(options["folders"])
    choices = registry.choose(names, _adopter(options))
    with opened(options) as (session, device):
        settings = session.settings
        join = Join(session.backend.name, session.backend.limits(), None, settings, registry)
        records: list[Record] = []
        interrupted, codes = False, set()
        for what in settings.reductions:
            cases = list(session.cases(choices, what))
            verdicts = {case: Verdict("skip", reason) for case, reason in cases if reason}
            runnable = [case for case, reason in cases if not reason]
            shapes = [(n, settings.rows) for n in settings.sizes]
            shapes = shapes or _edge_shapes(session, runnable)
            group = Group(what, max(shapes)[0], verdicts, {})
            try:
                built = session.build(runnable, shapes)
                failed = {c: made for c, made in built.items() if isinstance(made, BuildError)}
                codes |= {2} if failed else set()
                verdicts |= {
                    c: Verdict("skip", f"does not compile: {e}") for c, e in failed.items()
                }
                good = {c: made for c, made in built.items() if not isinstance(made, BuildError)}
                session.verify(good, shapes, verdicts, hazards=True, skip_others=not settings.sizes)
            except KeyboardInterrupt:
                interrupted = True
            records += join.records(group, [case for case, _ in cases])
            if interrupted:
                break
        run = Run(tool(options["argv"]), device, {"sizes": list(settings.sizes)}, tuple(records))
    title = f"answers on {device.name}"
    write(run, [verdict_section(records, title)], options)
    return 130 if interrupted else _exit_code(records, codes)


def _edge_shapes(session: Session, cases: list[Case]) -> list[tuple[int, int]]:
    sizes = edge_sizes(max((case.block for case in cases), default=1))
    if session.backend.name == "cuda" and cases:
        sizes += [*_GPU_SIZES, _BEYOND_32_BITS // cases[0].what.dtype.size]
    return [*((n, 1) for n in sizes), *ROW_SHAPES]


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
            from cudareduce.expression import broken_law, own_operator

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
