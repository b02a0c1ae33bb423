"""What was launched, where the name of a row does not say it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cudareduce.problem.sizes import counted
from cudareduce.report.columns import label
from cudareduce.report.numbers import short_size
from cudareduce.results.record import Record


def shape_text(record: Record) -> str:
    """What `auto` took: the kernel and its launch shape."""
    threads, elements = counted(record.block or 0, "thread"), counted(record.items or 0, "element")
    return f"{record.chosen}, {threads} x {elements}"


def choice_notes(records: Iterable[Record]) -> Iterator[str]:
    """What `auto` took, where it took several things at which sizes."""
    taken: dict[str, dict[str, dict[str, None]]] = {}
    for r in records:
        if r.chosen is not None:
            sizes = taken.setdefault(label(r), {}).setdefault(shape_text(r), {})
            sizes[short_size(r.n)] = None
    for name, shapes in taken.items():
        for shape, sizes in shapes.items():
            yield f"{name}: {shape}" + (f" at {', '.join(sizes)}" if len(shapes) > 1 else "")


def few_blocks_notes(records: Iterable[Record]) -> Iterator[str]:
    """Whose blocks are fewer than the SMs that were asked for, since there is no work for more."""
    few: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    asked: dict[tuple[str, int], dict[int, None]] = {}
    for r in records:
        if r.time_us is not None and r.sms is not None and 0 < (r.grid or 0) < r.sms:
            asked.setdefault((label(r), r.grid or 0), {})[r.sms] = None
    for (name, blocks), sms in asked.items():
        few.setdefault((blocks, tuple(sms)), []).append(name)
    for (blocks, several), names in few.items():
        yield (
            f"{', '.join(names)}: {counted(blocks, 'block')} at this n, so what is on "
            f"{', '.join(map(str, several))} SMs is on {blocks}"
        )
