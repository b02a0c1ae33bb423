"""What a kernel teaches, in words: the change, its reason and price, what it gained, where it was
published and what was wrong in print."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap

from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Registry, steps_of
from cudareduce.report.numbers import measured_text, size_text
from cudareduce.results.gains import Gain, gains, newest, stored_runs

#: Columns of a key, and of a line: in a pipe, and on a narrow terminal as many as it has.
_KEY, _LINE, _NARROWEST = 12, 100, 60


def facts_text(registry: Registry, kernel: Kernel, results: Sequence[Path]) -> str:
    """The kernel's facts, a line or more each; gains are of these results, else of the package's.
    A result that does not load is a UsageError."""
    here = shutil.get_terminal_size((_LINE, 0)).columns if sys.stdout.isatty() else _LINE
    width = min(_LINE, max(_NARROWEST, here))
    lines = [kernel.id]
    for key, value in _facts(registry, kernel, results):
        indent = " " * _KEY
        lines += wrap(
            f"{key:<{_KEY}}{value}", width, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


def _facts(
    registry: Registry, kernel: Kernel, results: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    """What is known of it, under the words that say what it is; what is not there is left out."""
    yield "title", kernel.title
    if kernel.change:
        yield "change", kernel.change
    if kernel.expect:
        yield "expect", kernel.expect
    for gain in own_gains(registry, results).get(kernel.id, ()):
        yield "measured", gain_text(gain)
    yield "after", kernel.after or "nothing: it begins a lineage"
    behind = steps_of(registry.kernels).get(kernel.id, ())
    if behind:
        yield "before", ", ".join(step.id for step in behind)
    if kernel.techniques:
        yield "techniques", ", ".join(kernel.techniques)
    for suite, names in registry.published(kernel).items():
        yield "published", f"{suite}: {', '.join(names)}"
    yield from (("in print", erratum) for erratum in _errata(registry, kernel))
    yield "operators", ", ".join(kernel.ops)
    yield "types", ", ".join(kernel.dtypes)
    yield "blocks", f"{kernel.block} of {', '.join(map(str, kernel.blocks))}"
    yield "file", str(kernel.path)


def _errata(registry: Registry, kernel: Kernel) -> Iterator[str]:
    """What was wrong with it where it was published."""
    for suite in registry.suites.values():
        for row in suite.rows:
            if row.kernel == kernel.id and row.erratum:
                yield f"{suite.id}, {row.name}: {row.erratum}"


def own_gains(registry: Registry, results: Sequence[Path]) -> Mapping[str, Sequence[Gain]]:
    """What each kernel gained, on each card once: by these results, else by the package's."""
    after = {kernel.id: kernel.after for kernel in registry.kernels.values()}
    found: dict[str, list[Gain]] = {}
    for gain in newest(gains(results or stored_runs(), after)).values():
        found.setdefault(gain.kernel, []).append(gain)
    return found


def gain_text(gain: Gain) -> str:
    """How many times as fast as the step before, on what, where and when."""
    return f"{times_text(gain)} times as fast as {gain.before}: {measured_on(gain)}"


def measured_on(gain: Gain) -> str:
    """The problem, the card and the day."""
    r = gain.record
    rows = f" x {size_text(r.rows)} rows" if r.rows > 1 else ""
    return (
        f"{r.reduced} of {size_text(r.n)} {r.dtype}{rows}, {r.timing}, {gain.device}, "
        f"{gain.created[:10]}"
    )


def times_text(gain: Gain) -> str:
    """The ratio, with its interval where there is one."""
    low, high = gain.ends or (None, None)
    return measured_text(gain.ratio, low, high)
