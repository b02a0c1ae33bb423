"""What `list` prints: suites, kernels, the technique matrix."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from cudareduce.compiled.compile import Shape, main_reduction, ptx_text, sass_text
from cudareduce.errors import UsageError
from cudareduce.escapes import shown
from cudareduce.library.foreign import adopting
from cudareduce.library.guesses import FileOptions
from cudareduce.library.header import SOURCES, TECHNIQUES
from cudareduce.library.kernel import Kernel
from cudareduce.library.lesson import diff
from cudareduce.library.registry import Choice, Registry, load_registry, steps_of
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.problem.sizes import counted
from cudareduce.report.numbers import measured_text, size_text
from cudareduce.report.section import Section
from cudareduce.report.terminal import PIPE, coloured
from cudareduce.results.gains import Gain, gains, newest, stored_runs

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree


def list_json(registry: Registry, suite: str | None) -> str:
    """An array of kernels, in the suite's order where one is named."""
    return json.dumps([_object(registry, c.kernel) for c in chosen_of(registry, suite)], indent=1)


def _object(registry: Registry, kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "family": kernel.family,
        "title": kernel.title,
        "scope": kernel.scope,
        "order": kernel.order,
        "finish": kernel.finish,
        "dtypes": list(kernel.dtypes),
        "ops": list(kernel.ops),
        "after": kernel.after,
        "techniques": list(kernel.techniques),
        "published": registry.published(kernel),
        "requires": list(kernel.requires),
        "blocks": list(kernel.blocks),
        "block": kernel.block,
        "items": kernel.items,
        "min_cc": kernel.min_cc,
    }


def chosen_of(registry: Registry, suite: str | None) -> list[Choice]:
    """All kernels, or those of one suite."""
    if suite is None:
        return registry.choose(["all"])
    return registry.choose([registry.suite(suite).id])


def list_section(registry: Registry, suite: str | None) -> list[Section]:
    """The suites, unless one is named, the kernels, then which of them uses which technique."""
    chosen = chosen_of(registry, suite)
    if suite:
        about = registry.suite(suite)
        title = f"{about.id}: {about.title} ({about.source})"
        errata = tuple(f"{row.name}: {row.erratum}" for row in about.rows if row.erratum)
        header: tuple[str, ...] = ("published as", "kernel", "what it is")
        rows: tuple[tuple[str, ...], ...] = tuple(
            (c.name or "", c.kernel.id, c.kernel.title) for c in chosen
        )
    else:
        title, errata = counted(len(chosen), "kernel"), ()
        header = ("kernel", "family", "scope", "what it is")
        rows = tuple((k.id, k.family, k.scope, k.title) for k in (c.kernel for c in chosen))
    begins = [k for k, c in enumerate(chosen) if k and not suite and c.kernel.after is None]
    table = Section(title, header, rows, errata, len(header), tuple(begins))
    suites = [] if suite else [_suites(registry)]
    return [*suites, table, _matrix(chosen)]


def _suites(registry: Registry) -> Section:
    """The published experiments, with how many versions each has."""
    header = ("suite", "what it is", "versions", "source")
    rows = [(s.id, s.title, str(len(s.rows)), s.source) for s in registry.suites.values()]
    return Section(f"{len(rows)} suites", header, tuple(rows), texts=len(header))


def _matrix(chosen: list[Choice]) -> Section:
    """Techniques down, kernels across: names are longer than there are kernels on a screen."""
    used = [word for word in TECHNIQUES if any(word in c.kernel.techniques for c in chosen)]
    rows = [(word, *("x" if word in c.kernel.techniques else "" for c in chosen)) for word in used]
    header = ("technique", *(str(k + 1) for k in range(len(chosen))))
    numbered = ", ".join(f"{k + 1} {c.name or c.kernel.id}" for k, c in enumerate(chosen))
    notes = (numbered, *(f"{word}: {TECHNIQUES[word]}" for word in used))
    return Section("Techniques", header, tuple(rows), notes)


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


def print_tree(registry: Registry, chosen: Sequence[Choice], results: Sequence[Path]) -> None:
    """The lineages of the chosen kernels, whole: those that others come from stand there too."""
    from rich.console import Console
    from rich.tree import Tree

    gained = own_gains(registry, results)
    kernels = _with_ancestors(registry, [choice.kernel for choice in chosen])
    root = Tree("", hide_root=True, guide_style="dim")
    branches: dict[str | None, Tree] = {}
    for kernel in kernels.values():  # in order of lineage: a step stands behind what it is from
        above = branches.get(kernel.after, root)
        branches[kernel.id] = above.add(_node(kernel, gained))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    with console.capture() as captured:
        console.print(root)
    text = "".join(line.rstrip() + "\n" for line in captured.get().splitlines())
    sys.stdout.write(text + "\n" + "".join(f"{note}\n" for note in _notes(kernels, gained)))


def _with_ancestors(registry: Registry, kernels: Sequence[Kernel]) -> dict[str, Kernel]:
    wanted: set[str] = set()
    for kernel in kernels:
        each: Kernel | None = kernel
        while each is not None and each.id not in wanted:
            wanted.add(each.id)
            each = registry.kernels.get(each.after or "")
    return {name: kernel for name, kernel in registry.kernels.items() if name in wanted}


def _node(kernel: Kernel, gained: Mapping[str, Sequence[Gain]]) -> Text:
    from rich.text import Text

    found = [f"{times_text(gain)}x {_card(gain)}" for gain in gained.get(kernel.id, ())]
    parts = [(shown(kernel.id), "bold"), *((f"  {text}", "green") for text in found)]
    title = (f"  {shown(kernel.title)}", "dim")
    return Text.assemble(*parts, title, no_wrap=True, overflow="ellipsis")


def _card(gain: Gain) -> str:
    return shown(gain.device.removeprefix("NVIDIA ").split(" ")[0])


def _notes(kernels: Mapping[str, Kernel], gained: Mapping[str, Sequence[Gain]]) -> list[str]:
    """What the numbers are of: each problem and card once."""
    of = {shown(measured_on(gain)) for name in kernels for gain in gained.get(name, ())}
    if not of:
        return ["no run says what steps gained: cudareduce bench all --json run.json, then "
                "cudareduce list --tree --results run.json"]  # fmt: skip
    return ["x: how many times as fast as the step above it; " + "; ".join(sorted(of))]


#: The most kernels that an error names.
_NAMED = 10
#: What may stand in a source besides what can be seen.
_LAYOUT = "\n\t"


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """What `show` was asked for: at most one of `diff`, `ptx` and `sass`; `results` are files whose
    times count before those of the package."""

    kernel: str
    files: FileOptions
    diff: bool
    ptx: bool
    sass: bool
    arch: int
    op: str | None
    dtype: str | None
    block: int | None
    items: int | None
    results: tuple[Path, ...]
    folders: tuple[Path, ...]


def show(request: ShowRequest) -> int:
    """Print what was asked for, in colour on a terminal."""
    if request.diff + request.ptx + request.sass > 1:
        raise UsageError("--diff, --ptx and --sass are three things to see: name one of them")
    registry = load_registry(request.folders)
    kernel = _one(registry, request.kernel, request.files)
    if request.diff:
        _print(diff_text(registry, kernel), "diff")
    elif request.ptx or request.sass:
        shape = Shape(request.arch, _reduction(request, kernel), request.block, request.items)
        _print(ptx_text(kernel, shape) if request.ptx else sass_text(kernel, shape), "ptx")
    else:
        _print(facts_text(registry, kernel, request.results) + "\n\n", None)
        _print(kernel.path.read_text(encoding="utf-8", errors="replace"), "cuda")
    return 0


def _one(registry: Registry, name: str, files: FileOptions) -> Kernel:
    """The kernel of this name, or that of a file by what is said of it; a UsageError if it is not
    that of one."""
    found = registry.choose([name], adopting(files.guesses(), lambda words: None))
    if len(found) != 1 and name.endswith(SOURCES):
        entries = ", ".join(choice.kernel.entry for choice in found)
        raise UsageError(f"{name} has {len(found)} kernels; name one with --entry: {entries}")
    if len(found) != 1:
        names = ", ".join(choice.kernel.id for choice in found[:_NAMED])
        names += ", ... (see cudareduce list)" if len(found) > _NAMED else ""
        raise UsageError(f"{name!r} names {len(found)} kernels; show one of: {names}")
    return found[0].kernel


def _reduction(request: ShowRequest, kernel: Kernel) -> Reduction:
    """What it is compiled for: where nothing is said the sum of float32, or the first that it
    takes."""
    usual = main_reduction(kernel)
    if usual is None:
        raise UsageError(f"{kernel.id} takes no operator and type of this tool's")
    return reduction_of(
        request.op or usual.op.name, request.dtype or usual.dtype.name, None, kernel.map
    )


def diff_text(registry: Registry, kernel: Kernel) -> str:
    """What changed against the step before; a UsageError if there is none."""
    if kernel.after is None:
        raise UsageError(
            f"{kernel.id} begins a lineage: there is nothing before it to compare with"
        )
    before = registry.kernels.get(kernel.after)
    if before is None:
        raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
    return diff(before, kernel)


def _print(text: str, language: str | None) -> None:
    """Text on standard output; on a terminal with the colours of its language."""
    text = shown(text, _LAYOUT)
    if language is None or not coloured():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    # PTX has no lexer of its own there; both it and machine code read well as assembly.
    lexer = {"ptx": "gas"}.get(language, language)
    highlighted = Syntax(text, lexer, theme="ansi_dark", background_color="default").highlight(text)
    highlighted.rstrip()
    Console(highlight=False).print(highlighted, soft_wrap=True)
