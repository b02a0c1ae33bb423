"""Which pictures results make: the kind that was named, else the one that fits what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.plot.change import change
from cudareduce.plot.chosen import Problem, elements, one_device, problems, short
from cudareduce.plot.figure import Figure
from cudareduce.plot.gpus import gpus
from cudareduce.plot.ladder import ladder
from cudareduce.plot.names import KINDS
from cudareduce.plot.over_bytes import over_bytes
from cudareduce.plot.over_sizes import FEWEST, over_sizes
from cudareduce.plot.over_sms import over_sms
from cudareduce.plot.speedup import speedup
from cudareduce.plot.winners import winners
from cudareduce.report.numbers import short_size
from cudareduce.results.record import Record, Run

#: Kinds that take more than one run.
_OF_SEVERAL = ("change", "gpus")
#: Kinds of which several files of one device may each have a part.
_JOINED = ("sizes", "speedup", "ladder", "busbw")
#: So many names or sizes an error tells.
_SOME = 6


def figures(
    runs: Sequence[Run], kind: str | None, only: Sequence[str] = (), sizes: Sequence[int] = ()
) -> list[Figure]:
    """The pictures of one kind, None being the fitting one. What holds nothing to draw is a
    UsageError that says what would."""
    found = [p for run in runs for p in problems(run, only)]
    if not found:
        raise UsageError(_nothing(runs, only))
    kind = kind or fitting(runs, found)
    if kind not in _OF_SEVERAL:
        one_device(runs)
    if kind in _JOINED:
        _check_once(_joined(found))
    drawn = _change(runs, only) if kind == "change" else _drawn(kind, found, sizes)
    if not drawn and sizes and _drawn(kind, found, ()):
        there = sorted({elements(r) for p in found for r in p.records})
        raise UsageError(
            f"these results hold no times at {_some(sizes)}: there are those at {_some(there)}"
        )
    if not drawn:
        raise UsageError(f"nothing to draw as {kind}: it shows {KINDS[kind]}")
    return drawn


def all_figures(run: Run) -> dict[str, list[Figure]]:
    """Every kind that one run has pictures of, by its name."""
    found = problems(run)
    drawn = {kind: _drawn(kind, found, ()) for kind in KINDS if kind not in _OF_SEVERAL}
    return {kind: figures for kind, figures in drawn.items() if figures}


def compared(runs: Sequence[Run]) -> dict[str, list[Figure]]:
    """The pictures that several runs have together: of two of one device and command what changed,
    of several devices each in per cent of its ceiling."""
    found = [p for run in runs for p in problems(run)]
    if len({run.device.name for run in runs}) > 1:
        beside = list[Figure](gpus(found))
        return {"gpus": beside} if beside else {}
    if found and fitting(runs, found) == "change":
        return {"change": _change(runs, ())}
    return {}


def fitting(runs: Sequence[Run], found: Sequence[Problem]) -> str:
    """The kind that shows most of what there is."""
    records = [r for p in found for r in p.records]
    if len({run.device.name for run in runs}) > 1:
        return "gpus"
    if len(runs) == 2 and {_what(r) for r in runs[0].records} == {
        _what(r) for r in runs[1].records
    }:
        return "change"
    if all(r.collective for r in records):
        return "busbw"
    if any(r.sms is not None for r in records):
        return "sms"
    if any(len({elements(r) for r in p.records}) > FEWEST for p in found):
        return "sizes"
    if len({r.dtype for r in records}) > 1 and any(r.scope == "library" for r in records):
        return "winners"
    return "ladder"


def _what(r: Record) -> tuple[object, ...]:
    return (
        r.kernel,
        r.name,
        r.reduced,
        r.dtype,
        r.n,
        r.rows,
        r.context,
        r.sms,
        r.offset,
        r.way,
        r.chunk_bytes,
    )


def _drawn(kind: str, found: Sequence[Problem], sizes: Sequence[int]) -> list[Figure]:
    joined = [
        p for p in (_joined(found) if kind in _JOINED else found)
        if (kind == "busbw") == p.records[0].collective
    ]  # fmt: skip
    drawn: list[Figure | None] = []
    if kind == "sizes":
        drawn = [lines for p in joined for lines in over_sizes(p)]
    elif kind == "busbw":
        drawn = [over_bytes(p) for p in joined]
    elif kind == "ladder":
        drawn = [bars for p in joined for bars in ladder(p, sizes)]
    elif kind == "speedup":
        drawn = [speedup(p) for p in joined]
    elif kind == "winners":
        drawn = [winners(joined)]
    elif kind == "sms":
        drawn = [lines for p in joined for lines in over_sms(p)]
    elif kind == "gpus":
        drawn = list(gpus(joined, sizes))
    return [figure for figure in drawn if figure is not None]


def _joined(found: Sequence[Problem]) -> list[Problem]:
    """One problem for each title: files of one device that hold different sizes of it."""
    groups: dict[str, list[Problem]] = {}
    for p in found:
        groups.setdefault(p.title, []).append(p)
    return [
        Problem(
            title,
            group[0].device,
            tuple(r for p in group for r in p.records),
            tuple(r for p in group for r in p.undrawn),
        )
        for title, group in groups.items()
    ]


def _check_once(joined: Sequence[Problem]) -> None:
    for p in joined:
        seen = Counter((short(r), elements(r), r.sms) for r in p.records)
        (twice, *_), times = seen.most_common(1)[0]
        if times > 1:
            raise UsageError(
                f"these results hold several times of {twice} for one problem: draw one, or "
                "two as before and after with --kind change"
            )


def _change(runs: Sequence[Run], only: Sequence[str]) -> list[Figure]:
    if len(runs) != 2:
        raise UsageError("before and after are two results: name two files")
    one_device(runs)
    old, new = ([r for p in problems(run, only) for r in p.records] for run in runs)
    return [change(old, new, f"{_when(runs)}, {shown(runs[1].device.name)}")]


def _when(runs: Sequence[Run]) -> str:
    """From which day to which; of one day with the time, UTC."""
    one_day = runs[0].created[:10] == runs[1].created[:10]
    old, new = (shown(run.created[: 16 if one_day else 10].replace("T", " ")) for run in runs)
    return f"{old} to {new}"


def _some(sizes: Sequence[int]) -> str:
    """A few sizes as people type them."""
    return ", ".join(map(short_size, sizes[:_SOME])) + (", ..." if len(sizes) > _SOME else "")


def _nothing(runs: Sequence[Run], only: Sequence[str]) -> str:
    records = [r for run in runs for r in run.records]
    if not records:
        return "these results hold no records: bench again"
    if only and any(problems(run) for run in runs):
        names = sorted({r.kernel for run in runs for p in problems(run) for r in p.records})
        some = ", ".join(names[:_SOME]) + (", ..." if len(names) > _SOME else "")
        return f"no timed kernel is called {' or '.join(only)}: there are {some}"
    if all(r.verdict == "fail" for r in records):
        return "every answer in these results is wrong, and only what is right is drawn"
    why = next((r.reason for r in records if r.reason), "")
    return (
        "these results hold no times on a GPU, and pictures show times: bench on a GPU"
        + (f" (the first reason: {why})" if why else "")
    )  # fmt: skip
