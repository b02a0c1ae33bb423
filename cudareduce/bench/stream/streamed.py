"""All kernels on all arrays of a run, streamed; what `bench`, `verify` and `check` share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudareduce.bench.session import Session
from cudareduce.bench.stream.asked import Streaming, chunks
from cudareduce.bench.stream.records import StreamRecorder
from cudareduce.bench.stream.rows import rows_of
from cudareduce.bench.stream.together import ALONE, Together
from cudareduce.bench.stream.trial import Tried, tried
from cudareduce.errors import UsageError
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.problem.patterns import GIVEN
from cudareduce.results.record import Record

#: Those that `verify` tries where nobody says: rounded sums, and exact ones.
_PATTERNS = ("random", "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Records of a run, how its rounds went, and what to say of them; `tried`: timing was begun.
    `interrupted`: Ctrl-C ended it, and it holds what there was by then."""

    records: tuple[Record, ...] = ()
    stories: tuple[Mapping[str, Any], ...] = ()
    remarks: tuple[str, ...] = ()
    tried: bool = False
    interrupted: bool = False


def streamed(
    session: Session, choices: Sequence[Choice], streaming: Streaming, together: Together = ALONE
) -> Streams:
    """Every kernel on every array that the session's settings name, or on one's share of them. What
    does not go together is a UsageError, KernelFault what the device does not go on after."""
    settings = session.settings
    if settings.rows != 1:
        raise UsageError(f"--rows {settings.rows}: an array is streamed as one row; leave it out")
    shares = settings.shares(choices)
    for reduction in shares:  # all before the first is made
        for n in settings.sizes:
            chunks(streaming, reduction, len(together.share(n)))
    done: list[Streams] = []
    for reduction, some in shares.items():
        for n in settings.sizes:
            done.append(_one(session, some, streaming, reduction, n, together))
            if done[-1].interrupted:
                return _all(done)
    return _all(done)


def _one(
    session: Session, choices: Sequence[Choice], streaming: Streaming, reduction: Reduction,
    n: int, together: Together,
) -> Streams:  # fmt: skip
    settings, own = session.settings, together.share(n)
    patterns = tuple(_patterns(session))
    streaming, length = streaming.part(own), len(own)
    counts = chunks(streaming, reduction, length)
    rows = rows_of(session, choices, reduction, length, counts, streaming)
    found = Tried(rows=rows.rows, interrupted=True)
    if not rows.interrupted:
        found = tried(session, reduction, length, rows.rows, streaming, patterns, together)
    recorder = StreamRecorder(
        backend=session.backend.name, settings=settings, reduction=reduction, n=n,
        source=streaming.source, pattern=GIVEN if streaming.file else patterns[-1],
        chunk=max(counts), ranks=together.ranks,
    )  # fmt: skip
    story = {
        "op": reduction.op.name, "dtype": reduction.dtype.name, "acc": reduction.acc.name, "n": n,
        "rows": 1, "timing": "cold", "rounds": found.measured.rounds,
    }  # fmt: skip
    return Streams(
        records=together.agreed(tuple(recorder.records(found))),
        stories=(story,) if found.tried else (),
        remarks=found.remarks,
        tried=found.tried,
        interrupted=found.interrupted,
    )


def _patterns(session: Session) -> Iterator[str]:
    """What arrays hold: that of the timing, or of the verification."""
    settings = session.settings
    if settings.rounds:
        yield settings.pattern
    elif settings.only_pattern:
        yield settings.only_pattern
    else:
        yield from _PATTERNS


def _all(done: Sequence[Streams]) -> Streams:
    return Streams(
        records=tuple(r for one in done for r in one.records),
        stories=tuple(s for one in done for s in one.stories),
        remarks=tuple(dict.fromkeys(text for one in done for text in one.remarks)),
        tried=any(one.tried for one in done),
        interrupted=any(one.interrupted for one in done),
    )
