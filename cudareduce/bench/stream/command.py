"""`bench --from` and `verify --from`: an array that the card need not hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from cudareduce.bench.cases import why_left_out
from cudareduce.bench.command import verdict_codes
from cudareduce.bench.guesses import settled
from cudareduce.bench.request import (
    BenchRequest,
    ReductionOptions,
    VerifyRequest,
    bench_settings,
    chosen,
    opened,
    verify_settings,
)
from cudareduce.bench.session import Session
from cudareduce.bench.settings import Settings
from cudareduce.bench.stream.measure import ALONE, Together
from cudareduce.bench.stream.source import Streaming, streaming
from cudareduce.bench.stream.trial import Streams, streamed
from cudareduce.bench.telling import closing_line
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.library.registry import Choice, load_registry
from cudareduce.progress import say
from cudareduce.reduction.sizes import counted
from cudareduce.report.publish import publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import run_texts

#: Chunks of `verify` where nobody says, in bytes: small, so that there are several of them, and the
#: lengths where streaming goes wrong, in chunks and elements besides.
_CHUNK_BYTES, _LENGTHS = 1 << 20, ((0, 1), (1, -1), (1, 0), (1, 1), (4, 17))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamBenchRequest:
    """What is to be benched, in an array of a `source` and in these chunks, in bytes."""

    bench: BenchRequest
    source: str
    chunk: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerifyRequest:
    """The same of what is to be verified."""

    verify: VerifyRequest
    source: str
    chunk: tuple[int, ...] = ()


def bench_streams(request: StreamBenchRequest, together: Together = ALONE) -> int:
    """Verify, time, print, store; the exit code. Raises UsageError and EnvironmentProblem, and of
    several ranks RankLost."""
    began, asked = monotonic(), streaming(request.source, request.chunk)
    bench = replace(request.bench, problem=_problem(asked, request.bench.problem))
    _refuse(bench)
    settings = bench_settings(bench)
    with _opened(bench, settings, asked) as (session, choices):
        say(_flattened(asked), bench.machine.quiet)
        done = streamed(session, choices, asked, together)
        run = _run(session, bench, done, request, settings)
    if together.first:
        publish(bench.outputs, sections(run, bench.columns), run_texts(run))
    following = "the same on a machine with a GPU, which times them"
    if session.spec.timed:
        following = "--json run.json, then cudareduce compare run.json LATER.json"
    return together.code(_ended(done, began, following, bench.machine.quiet, strict=bench.strict))


def verify_streams(request: StreamVerifyRequest) -> int:
    """Only the answers: print and store them; the exit code. Raises as `bench_streams` does."""
    began, asked = monotonic(), streaming(request.source, request.chunk)
    verify = request.verify
    if verify.peers or verify.sanitize:
        raise UsageError("--from streams kernels alone: leave out --peers and --sanitize")
    problem = _problem(asked, verify.problem)
    settings = verify_settings(replace(verify, problem=problem))
    with _opened(verify, settings, asked) as (session, choices):
        say(_flattened(asked), verify.machine.quiet)
        done = _at_lengths(session, choices, asked)
        run = _run(session, verify, done, request, settings)
    publish(verify.outputs, sections(run), run_texts(run))
    following = "cudareduce bench --from, which times what is right"
    return _ended(done, began, following, verify.machine.quiet, strict=verify.strict)


def _problem(asked: Streaming, problem: ReductionOptions) -> ReductionOptions:
    """What is reduced: of a file its own length and type. Another type is a UsageError."""
    file = asked.file
    if file is None:
        return problem
    if problem.dtype not in (None, (file.dtype.name,)):
        raise UsageError(
            f"--dtype {','.join(problem.dtype or ())}: {file.path} holds {file.dtype.name}; leave "
            "it out"
        )
    return replace(problem, n=(file.n,), dtype=(file.dtype.name,))


def _flattened(asked: Streaming) -> str:
    """What is said of an array of several dimensions."""
    file = asked.file
    if file is None or len(file.shape) == 1:
        return ""
    shape = " x ".join(map(str, file.shape)) or "one number"
    return f"{file.path}: {shape}, taken as one row of {counted(file.n, 'element')}."


def _refuse(bench: BenchRequest) -> None:
    """What streams have no place for is a UsageError."""
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
    request: BenchRequest | VerifyRequest, settings: Settings, asked: Streaming
) -> Iterator[tuple[Session, list[Choice]]]:
    """A session, and the kernels that are named. Outputs that would overwrite one of these, or the
    array, are a UsageError."""
    quiet, registry = request.machine.quiet, load_registry(request.selection.folders)
    choices = chosen(request, registry, quiet)
    read = (asked.file.path,) if asked.file else ()
    request.outputs.check(*(choice.kernel.path for choice in choices), *read)
    with opened(request.machine, settings) as session:
        say(why_left_out(session, choices), quiet)
        yield session, settled(session, choices, quiet)


def _at_lengths(session: Session, choices: Sequence[Choice], asked: Streaming) -> Streams:
    """Where nobody says how long arrays are, those lengths where a chunk more or less begins."""
    settings = session.settings
    if settings.sizes:
        return streamed(session, choices, asked)
    chunk_bytes = asked.chunk_bytes or (_CHUNK_BYTES,)
    done = Streams()
    for reduction in settings.reductions:
        most = max(chunk_bytes) // reduction.dtype.size
        for whole, more in _LENGTHS:
            n = whole * most + more
            fitting = tuple(c for c in chunk_bytes if c <= n * reduction.dtype.size)
            session.settings = replace(settings, reductions=(reduction,), sizes=(n,))
            one = streamed(session, choices, Streaming(None, fitting))
            done = replace(done, records=(*done.records, *one.records), interrupted=one.interrupted)
            if one.interrupted:
                return done
    return done


def _run(
    session: Session, request: BenchRequest | VerifyRequest, done: Streams,
    stream: StreamBenchRequest | StreamVerifyRequest, settings: Settings,
) -> Run:  # fmt: skip
    """The run, with what was asked for, so that it can be asked for again."""
    protocol: dict[str, Any] = {
        "kernels": list(request.selection.kernels or ("all",)),
        "from": stream.source, "chunk_bytes": list(stream.chunk) or None, "rows": 1,
        "block": settings.block, "items": settings.items, "timing": "cold", "region": "total",
        "graph": False, "rounds": settings.rounds, "max_time_s": settings.deadline.seconds,
        "seed": settings.seed, "timed_seed": settings.timed_seed,
        "measured": list(done.stories), "remarks": list(done.remarks),
    }  # fmt: skip
    return Run(tool(request.argv), session.backend.info(), protocol, done.records)


def _ended(done: Streams, began: float, following: str, quiet: bool, *, strict: bool) -> int:
    """Say how it went; the exit code."""
    line = closing_line(done.records, monotonic() - began, following, interrupted=done.interrupted)
    say(line, quiet)
    if done.interrupted:
        return 130
    codes = verdict_codes(done.records)
    times = [r.time_us for r in done.records if r.verdict == "pass"]
    if done.tried and not any(times):
        codes |= {4}
    if strict and any(r.cause in ("machine", "time") for r in done.records):
        codes |= {4}
    return worst_exit_code(codes)
