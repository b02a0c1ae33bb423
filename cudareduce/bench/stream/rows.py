"""The rows of a table: each kernel by each way, planned, compiled and verified on the lengths that
it will meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Literal

from cudareduce.bench.cases import cases
from cudareduce.bench.session import Session
from cudareduce.bench.stream.asked import Streaming
from cudareduce.bench.stream.content import FOLDED
from cudareduce.bench.stream.schedule import Piece, schedule
from cudareduce.launch.case import Case, Prepared, Shape
from cudareduce.launch.plan import Plan
from cudareduce.library.registry import Choice
from cudareduce.problem.operators import Reduction
from cudareduce.verify.verdict import RIGHT, Verdict, skipped, worse

#: Elements on which all patterns are tried within a second.
_QUICK = 2**22
#: How an array comes to the kernel.
WayName = Literal["pinned", "mapped", "pageable"]


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel by one way: the pieces of the array, and why it is not tried, or what is known of
    the kernel on such lengths. `prepared` is None where it is not tried."""

    case: Case
    way: WayName
    chunk: int | None
    pieces: tuple[Piece, ...]
    verdict: Verdict
    prepared: Prepared | None = None

    @property
    def plans(self) -> dict[int, Plan]:
        """The plan of each length."""
        assert self.prepared is not None
        return {p.count: self.prepared.plans[p.count, 1] for p in self.pieces}


@dataclass(frozen=True, slots=True)
class Rows:
    """All of one problem; `interrupted`: Ctrl-C came while kernels were verified."""

    rows: tuple[Row, ...]
    interrupted: bool = False


def rows_of(
    session: Session, choices: Sequence[Choice], reduction: Reduction, n: int,
    chunks: Sequence[int], streaming: Streaming,
) -> Rows:  # fmt: skip
    """Rows of every kernel, those of the package and of others alike: verified on whole chunks and
    on the parts of the last, where they run as they do elsewhere."""
    sizes = tuple(dict.fromkeys((*chunks, n)))
    settings = replace(session.settings, reductions=(reduction,), instead=(), sizes=sizes)
    with closing(Session(session.backend, session.spec, settings, session.phase)) as own:
        planned = [
            row for choice in choices
            for row in _of_choice(own, choice, reduction, n, chunks, streaming)
        ]  # fmt: skip
        open_rows = [row for row in planned if row.verdict.outcome == "pass"]
        lengths = _lengths(open_rows)
        shapes = {case: [*some, *_pieces(case, open_rows)] for case, some in lengths.items()}
        prepared, unbuilt = own.prepare(list(shapes), shapes)
        found = own.verify(prepared, lengths, unbuilt)
    known = {one.case: one for one in prepared}
    rows = tuple(_joined(row, known, found.verdicts) for row in planned)
    return Rows(rows, found.interrupted)


def _of_choice(
    session: Session, choice: Choice, reduction: Reduction, n: int, chunks: Sequence[int],
    streaming: Streaming,
) -> Iterator[Row]:  # fmt: skip
    """Rows of one kernel, of `auto` each with what it takes for a chunk, or for the whole."""
    size = reduction.dtype.size
    (some,) = cases(session, [choice]).values()

    def row(way: WayName, chunk: int | None) -> Row:
        at = chunk or n
        case, verdict = next((one, v) for one, v in some if one.at(at))
        case = replace(case, only=None)
        pieces = schedule(n, chunk, size) if chunk else (Piece(0, 0, n),)
        reason = _why_not(case, reduction, at)
        if verdict is None and reason:
            verdict = skipped("unfit", reason)
        return Row(case, way, chunk, pieces, verdict or RIGHT)

    yield from (row("pinned", chunk) for chunk in chunks)
    if streaming.file is None:
        yield row("mapped", None)
    yield row("pageable", max(chunks))


def _why_not(case: Case, reduction: Reduction, n: int) -> str | None:
    """Why a kernel's answers for chunks give none for the whole."""
    op, kernel = reduction.op, case.kernel
    if op.expression or op.name not in FOLDED:
        return f"streams are folded by {', '.join(FOLDED)}, not by {op.title}"
    if reduction.map or kernel.map:
        return "maps are not streamed: reduce an array of what it makes"
    if kernel.finish == "host":
        return "leaves partials for the host to fold"
    if kernel.shape(n, 1) != (n, 1):
        return "leaves an answer for each row of its own"
    return "overwrites its input" if kernel.in_place else None


def _lengths(rows: Sequence[Row]) -> dict[Case, list[Shape]]:
    """What each case is verified on beforehand: the lengths of its pieces, as far as that is
    quick; of all of them each answer is judged later."""
    found: dict[Case, dict[Shape, None]] = {}
    for row in rows:
        own = found.setdefault(row.case, {})
        own |= {(min(piece.count, _QUICK), 1): None for piece in row.pieces}
    return {case: list(some) for case, some in found.items()}


def _pieces(case: Case, rows: Sequence[Row]) -> list[Shape]:
    """All that a case is launched on."""
    mine = (row for row in rows if row.case == case)
    return list(dict.fromkeys((piece.count, 1) for row in mine for piece in row.pieces))


def _joined(row: Row, prepared: Mapping[Case, Prepared], verdicts: Mapping[Case, Verdict]) -> Row:
    """The row with what is known of its case."""
    if row.verdict.outcome != "pass":
        return row
    verdict = verdicts[row.case]
    one = prepared.get(row.case)
    if one is None or verdict.outcome != "pass":
        return replace(row, verdict=verdict)
    missing = next((p for p in row.pieces if (p.count, 1) not in one.plans), None)
    if missing:
        why = one.refusals.get((missing.count, 1), "does not take the length of a piece")
        return replace(row, verdict=worse(verdict, skipped("unfit", why)))
    # errors are those of the array itself
    verdict = replace(verdict, error=None, bound=None, ulp=None)
    return replace(row, verdict=verdict, prepared=one)
