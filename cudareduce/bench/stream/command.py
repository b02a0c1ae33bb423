"""`bench --from` and `verify --from`: an array that need not fit the device's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from cudareduce.bench.cases import table_warnings
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.request import (
    BenchRequest,
    ReductionOptions,
    VerifyRequest,
    bench_settings,
    external_files,
    open_session,
    select_kernels,
    verify_settings,
)
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.run import SINGLE_RANK, SingleRank, Streams, run_streams
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.bench.summary import run_summary
from cudareduce.catalog.registry import Choice, load_registry
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.publish import publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import run_texts

#: Default bytes of a chunk for `verify`, small to give several of them, and the default lengths
#: (chunks, further elements): those at which streaming goes wrong.
_CHUNK_BYTES, _LENGTHS = 1 << 20, ((0, 1), (1, -1), (1, 0), (1, 1), (4, 17))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBenchRequest:
    """A bench request with the array of a `source` in chunks of these bytes."""

    bench: BenchRequest
    source: str
    chunk: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerifyRequest:
    """A verify request with the array of a `source` in chunks of these bytes."""

    verify: VerifyRequest
    source: str
    chunk: tuple[int, ...] = ()


def bench_streams(request: StreamBenchRequest, ranks: SingleRank = SINGLE_RANK) -> int:
    """Verify, time, print and store; the exit code. Raises UsageError, EnvironmentProblem and, with
    several ranks, RankLost."""
    began, array = monotonic(), streaming(request.source, request.chunk)
    bench = replace(request.bench, problem=_problem(array, request.bench.problem))
    _refuse(bench)
    settings = bench_settings(bench)
    with _opened(bench, settings, array) as (session, choices):
        done = run_streams(session, choices, array, ranks)
        run = _run(session, bench, done, request, settings)
    if ranks.first:
        publish(bench.outputs, sections(run, bench.columns), run_texts(run))
    hint = "Run the same command on a machine with a GPU to measure times."
    if session.spec.timed:
        hint = (
            "To compare a later run: --json run.json, then cudareduce compare run.json LATER.json."
        )
    return ranks.code(_ended(done, began, hint, bench.machine.quiet, strict=bench.strict))


def verify_streams(request: StreamVerifyRequest) -> int:
    """Verify without timing, print and store; the exit code. Raises as `bench_streams` does."""
    began, array = monotonic(), streaming(request.source, request.chunk)
    verify = request.verify
    if verify.peers or verify.sanitize:
        raise UsageError("--from streams kernels alone: leave out --peers and --sanitize")
    settings = verify_settings(replace(verify, problem=_problem(array, verify.problem)))
    with _opened(verify, settings, array) as (session, choices):
        done = _verify_lengths(session, choices, array)
        run = _run(session, verify, done, request, settings)
    publish(verify.outputs, sections(run), run_texts(run))
    hint = "Run cudareduce bench --from to time the correct kernels."
    return _ended(done, began, hint, verify.machine.quiet, strict=verify.strict)


def _problem(array: Streaming, problem: ReductionOptions) -> ReductionOptions:
    """The requested problem; a file has its own length and type. Another type is a UsageError."""
    file = array.file
    if file is None:
        return problem
    if problem.dtype not in (None, (file.dtype.name,)):
        raise UsageError(
            f"--dtype {','.join(problem.dtype or ())}: {file.path} holds {file.dtype.name}; leave "
            "it out"
        )
    return replace(problem, n=(file.n,), dtype=(file.dtype.name,))


def _refuse(bench: BenchRequest) -> None:
    """Raise UsageError for options that streaming does not support."""
    timing = bench.timing
    given = {
        "--peers": bool(bench.peers), "--sms": bool(bench.selection.sms), "--graph": timing.graph,
        "--energy": timing.energy, "--timing": timing.timing != ("cold",),
        "--region": timing.region != "total", "--baseline-kernel": bool(timing.baseline_kernel),
    }  # fmt: skip
    names = [name for name, there in given.items() if there]
    if names:
        raise UsageError(f"--from measures an array on its way to the card: leave out "
                         f"{' and '.join(names)}")  # fmt: skip


@contextmanager
def _opened(
    request: BenchRequest | VerifyRequest, settings: Settings, array: Streaming
) -> Iterator[tuple[Session, list[Choice]]]:
    """A session and the selected kernels. Outputs that would overwrite a kernel or the array are a
    UsageError."""
    quiet, registry = request.machine.quiet, load_registry(request.selection.folders)
    choices = select_kernels(request, registry, external_files(request))
    read = (array.file.path,) if array.file else ()
    request.outputs.check(*(choice.kernel.path for choice in choices), *read)
    with open_session(request.machine, settings) as session:
        say(table_warnings(session, choices), quiet)
        if array.file and len(array.file.shape) != 1:
            shape = " x ".join(map(str, array.file.shape)) or "one number"
            count = counted(array.file.n, "element")
            say(f"{array.file.path}: {shape}, taken as one row of {count}.", quiet)
        yield session, choices


def _verify_lengths(session: Session, choices: Sequence[Choice], array: Streaming) -> Streams:
    """Verify the requested sizes; by default lengths around a chunk."""
    settings = session.settings
    if settings.sizes:
        return run_streams(session, choices, array)
    chunk_bytes = array.chunk_bytes or (_CHUNK_BYTES,)
    done = Streams()
    for reduction in settings.reductions:
        size = reduction.dtype.size
        for chunks, more in _LENGTHS:
            n = chunks * (max(chunk_bytes) // size) + more
            fitting = tuple(nbytes for nbytes in chunk_bytes if nbytes <= n * size)
            session.settings = replace(settings, reductions=(reduction,), sizes=(n,))
            done += replace(run_streams(session, choices, Streaming(None, fitting)), remarks=())
            if done.interrupted:
                return done
    return done


def _run(
    session: Session, request: BenchRequest | VerifyRequest, done: Streams,
    stream: StreamBenchRequest | StreamVerifyRequest, settings: Settings,
) -> Run:  # fmt: skip
    """The run with its protocol, from which it can be repeated."""
    protocol: dict[str, Any] = {
        "kernels": list(request.selection.kernels or ("all",)),
        "from": stream.source, "chunk_bytes": list(stream.chunk) or None, "rows": 1,
        "block": settings.block, "items": settings.items, "timing": "cold", "region": "total",
        "graph": False, "rounds": settings.rounds, "max_time_s": settings.deadline.seconds,
        "seed": settings.seed, "timed_seed": settings.timed_seed,
        "measured": list(done.protocols), "remarks": list(done.remarks),
    }  # fmt: skip
    return Run(tool(request.argv), session.backend.info(), protocol, done.records)


def _ended(done: Streams, began: float, hint: str, quiet: bool, *, strict: bool) -> int:
    """Print the summary of the run; returns the exit code."""
    line = run_summary(done.records, monotonic() - began, hint, interrupted=done.interrupted)
    say(line, quiet)
    if done.interrupted:
        return 130
    codes = verdict_codes(done.records)
    if done.timed and not any(r.time_us for r in done.records if r.verdict == "pass"):
        codes |= {4}
    if strict and any(r.cause in ("machine", "time") for r in done.records):
        codes |= {4}
    return worst_exit_code(codes)
