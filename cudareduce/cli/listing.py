"""The output of `list` and `show`."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from cudareduce.backends.selection import default_cache
from cudareduce.catalog.front_matter import SOURCES, TECHNIQUES
from cudareduce.catalog.kernel import Kernel, diff
from cudareduce.catalog.registry import PREFIX, Choice, Registry, load_registry, steps_of
from cudareduce.compare.machine_code import (
    code_of,
    counts_of,
    find_disassembler,
    parse_resources,
)
from cudareduce.compare.nvcc import entry_symbol, find_nvcc, main_reduction, reading_stage
from cudareduce.errors import BuildError, EnvironmentProblem, UsageError
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import FileOptions
from cudareduce.launch.case import Case, unit_source
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.reduction.sizes import counted
from cudareduce.report.numbers import measured_text, size_text
from cudareduce.report.section import Section
from cudareduce.report.terminal import PIPE, coloured
from cudareduce.results.gains import Gain, gains, newest, stored_runs
from cudareduce.text import group_by, shown, source_shown

#: The fields of a kernel in `list --format json`, in order.
_JSON_FIELDS = (
    "id", "family", "title", "scope", "order", "finish", "dtypes", "ops", "after", "techniques",
    "published", "requires", "blocks", "block", "items", "min_cc",
)  # fmt: skip


def list_json(registry: Registry, suite: str | None) -> str:
    return json.dumps([_object(registry, c.kernel) for c in chosen_of(registry, suite)], indent=1)


def _object(registry: Registry, kernel: Kernel) -> dict[str, Any]:
    return {
        name: registry.published(kernel) if name == "published" else getattr(kernel, name)
        for name in _JSON_FIELDS
    }


def chosen_of(registry: Registry, name: str | None) -> list[Choice]:
    """The kernels of a suite (in its order), of a family, or with this name; None means all."""
    return registry.choose([name or "all"])


def list_section(registry: Registry, name: str | None) -> list[Section]:
    """Tables of the suites (unless a name is given) and of the kernels."""
    chosen = chosen_of(registry, name)
    suite = registry.suites.get(name or "")
    if suite is not None:
        title = f"{suite.id}: {suite.title} ({suite.source})"
        errata = tuple(f"{row.name}: {row.erratum}" for row in suite.rows if row.erratum)
        header: tuple[str, ...] = ("published as", "kernel", "what it is")
        rows: tuple[tuple[str, ...], ...] = tuple(
            (c.name or "", c.kernel.id, c.kernel.title) for c in chosen
        )
    else:
        title, errata = counted(len(chosen), "kernel"), ()
        header = ("kernel", "family", "scope", "what it is")
        rows = tuple((k.id, k.family, k.scope, k.title) for k in (c.kernel for c in chosen))
    lineages = [k for k, c in enumerate(chosen) if k and not name and c.kernel.after is None]
    table = Section(title, header, rows, errata, len(header), tuple(lineages))
    return [table] if name else [_suites(registry), table]


def _suites(registry: Registry) -> Section:
    header = ("suite", "what it is", "versions")
    rows = [(s.id, s.title, str(len(s.rows))) for s in registry.suites.values()]
    return Section(f"{len(rows)} suites", header, tuple(rows), texts=2)


def techniques_section(chosen: Sequence[Choice]) -> Section:
    """The kernels as rows, the techniques as numbered columns."""
    kernels = [choice.kernel for choice in chosen]
    used = [word for word in TECHNIQUES if any(word in k.techniques for k in kernels)]
    rows = [(k.id, *("x" if word in k.techniques else "" for word in used)) for k in kernels]
    notes = (f"{k} {word}: {TECHNIQUES[word]}" for k, word in enumerate(used, 1))
    header = ("kernel", *(str(k + 1) for k in range(len(used))))
    return Section(
        f"Techniques of {counted(len(rows), 'kernel')}", header, tuple(rows), tuple(notes)
    )


#: Width of the keys; widths of a line in a pipe, and at most and at least on a terminal.
_KEY, _LINE, _WIDEST, _NARROWEST = 12, 80, 100, 60


def facts_text(registry: Registry, kernel: Kernel, results: Sequence[Path]) -> str:
    """The facts about a kernel, with gains from these results or else the package's. Raises
    UsageError for an invalid result file."""
    columns = shutil.get_terminal_size((_LINE, 0)).columns if sys.stdout.isatty() else _LINE
    width = min(_WIDEST, max(_NARROWEST, columns))
    lines = [kernel.id]
    for key, value in _facts(registry, kernel, results):
        lines += wrap(
            f"{key:<{_KEY}}{shown(value)}", width, subsequent_indent=" " * _KEY,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines)


def _facts(
    registry: Registry, kernel: Kernel, results: Sequence[Path]
) -> Iterator[tuple[str, str]]:
    yield "title", kernel.title
    if kernel.change:
        yield "change", kernel.change
    if kernel.expect:
        yield "expect", kernel.expect
    for gain in own_gains(registry, results).get(kernel.id, ()):
        day = gain.created[:10]
        measured = f"{problem_of(gain)}, {gain.device}, {day}"
        yield "measured", f"{times_text(gain)} times as fast as {gain.before}: {measured}"
    before = registry.kernels.get(kernel.after or "")
    yield "previous", _step(before) if before else kernel.after or "none: it begins a lineage"
    for step in steps_of(registry.kernels).get(kernel.id, ()):
        yield "next", _step(step)
    if kernel.techniques:
        yield "techniques", ", ".join(kernel.techniques)
    for suite, names in registry.published(kernel).items():
        yield "published", f"{suite}: {', '.join(names)}"
    for suite_ in registry.suites.values():
        for row in suite_.rows:
            if row.kernel == kernel.id and row.erratum:
                yield "in print", f"{suite_.id}, {row.name}: {row.erratum}"
    yield "operators", ", ".join(kernel.ops)
    yield "types", ", ".join(kernel.dtypes)
    yield "blocks", f"{kernel.block} of {', '.join(map(str, kernel.blocks))}"
    yield "file", str(kernel.path)


def _step(kernel: Kernel) -> str:
    return f"{kernel.id}: {kernel.title}"


def own_gains(registry: Registry, results: Sequence[Path]) -> Mapping[str, Sequence[Gain]]:
    """The gains of each kernel over its predecessor, one per GPU model, from these results or else
    the package's."""
    after = {kernel.id: kernel.after for kernel in registry.kernels.values()}
    return group_by(newest(gains(results or stored_runs(), after)), lambda gain: gain.kernel)


def problem_of(gain: Gain) -> str:
    r = gain.record
    rows = f" x {size_text(r.rows)} rows" if r.rows > 1 else ""
    return f"{r.reduced} of {size_text(r.n)} {r.dtype}{rows}, {r.timing}"


def times_text(gain: Gain) -> str:
    low, high = gain.ends or (None, None)
    return measured_text(gain.ratio, low, high)


#: The fewest characters of a title that the tree shows.
_FEWEST = 16


def print_tree(registry: Registry, chosen: Sequence[Choice], results: Sequence[Path]) -> None:
    """Print the lineages of the chosen kernels, including all their predecessors, with one column
    of gains per GPU. A narrow terminal shortens names, then titles."""
    from rich.console import Console
    from rich.text import Text

    gained = own_gains(registry, results)
    wanted: set[str] = set()
    for choice in chosen:
        kernel: Kernel | None = choice.kernel
        while kernel is not None and kernel.id not in wanted:
            wanted.add(kernel.id)
            kernel = registry.kernels.get(kernel.after or "")
    kernels = [kernel for name, kernel in registry.kernels.items() if name in wanted]
    devices = sorted({gain.device for kernel in kernels for gain in gained.get(kernel.id, ())})
    gains = [{g.device: times_text(g) for g in gained.get(kernel.id, ())} for kernel in kernels]
    columns = [
        [card, *(row.get(device, "") for row in gains)]
        for device, card in zip(devices, _cards(devices), strict=True)
    ]
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
    guides = list(_guides(kernels))
    names = ["kernel", *(guide + kernel.id for guide, kernel in zip(guides, kernels, strict=True))]
    right = sum(2 + max(map(len, column)) for column in columns)
    if max(map(len, names)) + right + 2 + _FEWEST > console.width:
        names = ["kernel", *(
            guide + kernel.id.removeprefix(PREFIX)
            for guide, kernel in zip(guides, kernels, strict=True)
        )]  # fmt: skip
    width = max(map(len, names))
    for k, (name, kernel) in enumerate(zip(names, (None, *kernels), strict=True)):
        figures = "".join(f"  {column[k]:>{max(map(len, column))}}" for column in columns)
        title = shown(kernel.title) if kernel else "what it is"
        line = Text.assemble(
            (shown(name).ljust(width), "bold"), (shown(figures), "green"),
            (f"  {title}" if console.width - width - right > _FEWEST else "", "dim"),
        )  # fmt: skip
        line.rstrip()
        line.truncate(console.width, overflow="ellipsis")
        console.print(line, soft_wrap=True)
    shown_gains = [gain for kernel in kernels for gain in gained.get(kernel.id, ())]
    sys.stdout.write("\n")
    for note in _notes(shown_gains):
        lines = wrap(note, console.width, subsequent_indent="    ", break_on_hyphens=False)
        sys.stdout.writelines(f"{line}\n" for line in lines)


def _cards(devices: Sequence[str]) -> list[str]:
    """The model of each GPU, or its full name if two have the same."""
    short = [shown(device.removeprefix("NVIDIA ").split(" ")[0]) for device in devices]
    return short if len(set(short)) == len(short) else [shown(device) for device in devices]


def _guides(kernels: Sequence[Kernel]) -> Iterator[str]:
    """The tree-drawing characters in front of each kernel, in the order of `kernels`. Each kernel
    must follow its predecessor."""
    last = {kernel.after: kernel.id for kernel in kernels}
    below: dict[str | None, str] = {}
    for kernel in kernels:
        if kernel.after is None:
            below[kernel.id] = ""
            yield ""
            continue
        above, is_last = below[kernel.after], last[kernel.after] == kernel.id
        below[kernel.id] = above + ("  " if is_last else "│ ")
        yield above + ("└ " if is_last else "├ ")


def _notes(shown_gains: Sequence[Gain]) -> list[str]:
    """The legend of the gains, with each problem once."""
    if not shown_gains:
        return ["No gains are stored. Run cudareduce bench all --json run.json, then cudareduce "
                "list --tree --results run.json."]  # fmt: skip
    problems = group_by(shown_gains, problem_of)
    measured = [
        f"  {problem}: {', '.join(sorted({f'{g.device} ({g.created[:10]})' for g in gains}))}"
        for problem, gains in sorted(problems.items())
    ]
    return ["Speed relative to the kernel above:", *map(shown, measured)]


#: The largest number of kernels that an error message lists.
_LISTED = 10
#: The sizes at which `show` records an external file.
_RECORDED = (1000, 4096, 65536)


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """The options of `show`."""

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
    """Print a kernel, its diff or its code, in colour on a terminal."""
    if request.diff + request.ptx + request.sass > 1:
        raise UsageError("--diff, --ptx and --sass exclude each other: give only one of them")
    registry = load_registry(request.folders)
    kernel = _kernel(registry, request.kernel, request.files)
    if request.diff:
        _print(diff_text(registry, kernel), "diff")
    elif request.ptx or request.sass:
        _print(code_text(request, kernel), "ptx")
    else:
        _print(facts_text(registry, kernel, request.results) + "\n\n", None)
        _print(kernel.path.read_text(encoding="utf-8", errors="replace"), "cuda")
    return 0


def _kernel(registry: Registry, name: str, files: FileOptions) -> Kernel:
    """The kernel with this name or in this file. Raises UsageError unless there is exactly one."""
    take = ExternalFiles(
        files.with_shape(), lambda words: None, cache=default_cache(), sizes=_RECORDED
    )
    choices = registry.choose([name], take)
    if len(choices) != 1 and name.endswith(SOURCES):
        entries = ", ".join(choice.kernel.entry for choice in choices)
        raise UsageError(f"{name} has {len(choices)} kernels; name one with --entry: {entries}")
    if len(choices) != 1:
        names = ", ".join(choice.kernel.id for choice in choices[:_LISTED])
        names += ", ... (see cudareduce list)" if len(choices) > _LISTED else ""
        raise UsageError(f"{name!r} names {len(choices)} kernels; show one of: {names}")
    return choices[0].kernel


def _reduction(request: ShowRequest, kernel: Kernel) -> Reduction:
    """The requested operator and type, by default float32 sum or the first that is supported."""
    usual = main_reduction(kernel)
    if usual is None:
        raise UsageError(f"{kernel.id} supports no operator and type of cudareduce")
    return reduction_of(
        request.op or usual.op.name, request.dtype or usual.dtype.name, None, kernel.map
    )


#: Comments by opcode; the first match counts.
_WORDS = {
    r"(LDG|LD)(\.\w+)*\.(128|256)": "16 bytes from memory",
    r"(LDG|LD|LDGSTS|UBLKCP)(\.|$)": "from memory",
    r"(STG|ST)(\.|$)": "to memory",
    r"(LDS|LDSM)(\.|$)": "from shared memory",
    r"STS(\.|$)": "to shared memory",
    r"(LDL|STL)(\.|$)": "register spill",
    r"(ATOMG?|REDG?)(\.|$)": "atomic in the L2, serialized",
    r"(ATOMS)(\.|$)": "atomic in shared memory, serialized",
    r"SHFL": "to another lane",
    r"C?REDUX|VOTE|MATCH": "warp-wide",
    r"BAR\.|BAR$": "block barrier",
    r"WARPSYNC|BSYNC": "warp barrier",
    r"MEMBAR": "memory fence",
    r"SYNCS|UTMA|FENCE": "bulk copy or its barrier",
    r"NANOSLEEP": "sleep",
    r"(DADD|DMUL|DFMA|DSETP|DMNMX)(\.|$)": "64-bit arithmetic",
    r"(F2F|F2I|I2F|F2FP|I2FP|F2IP|I2IP|FRND)(\.|$)": "type conversion",
}
#: The column of comments.
_COLUMN = 60


def code_text(request: ShowRequest, kernel: Kernel) -> str:
    """The PTX of the stage that reads the input, or its machine code with resources and comments.
    Raises UsageError if it does not compile, and EnvironmentProblem without a compiler or a
    disassembler."""
    reduction, arch = _reduction(request, kernel), request.arch
    block = request.block or kernel.block
    items = request.items or kernel.items_of(reduction.dtype.size)
    for refused in (kernel.why_not(reduction), kernel.why_not_block(block),
                    kernel.why_not_items(items, reduction.dtype.size)):  # fmt: skip
        if refused:
            raise UsageError(f"{kernel.id} {refused}")
    least = round(10 * float(kernel.min_cc))
    if arch < least:
        raise UsageError(f"{kernel.id} takes cc {kernel.min_cc}: --arch {least}")
    stage = reading_stage(kernel, reduction)
    unit = unit_source(Case(kernel, reduction, block, items), (stage, 0))
    made = find_nvcc().compile(unit, arch)
    if isinstance(made, BuildError):
        raise UsageError(f"{kernel.id} does not compile for sm_{arch}: {made}")
    if request.ptx:
        return made.ptx
    disassembler = find_disassembler()
    if disassembler is None:
        raise EnvironmentProblem(
            "cuobjdump and nvdisasm were not found: pip install 'cudareduce[compile]', or see --ptx"
        )
    entry = entry_symbol(kernel, made)
    instructions = disassembler.listed(made.cubin, entry)
    used = parse_resources(made.messages, entry)
    code = code_of(instructions, entry)
    counts = counts_of(code.opcodes)
    named = [f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items()
             if count and kind not in ("all", "local")]  # fmt: skip
    lines = [
        f"// {kernel.id}, {reduction.op.name} of {reduction.dtype.name}, sm_{arch}, {block} "
        "threads per block",
        f"// {used.registers} registers per thread, {used.shared_bytes} bytes of shared memory per "
        f"block, {used.spill_bytes} bytes spilled",
        f"// {counts['all']} instructions: {', '.join(named)}",
        f"// {code.in_flight} bytes loaded before the first use",
    ]
    for each in instructions:
        text = f"{each.address}  {each.text}"
        word = next((w for what, w in _WORDS.items() if re.match(what, each.opcode)), "")
        lines.append(f"{text:<{_COLUMN}} // {word}" if word else text)
    return "\n".join(lines) + "\n"


def diff_text(registry: Registry, kernel: Kernel) -> str:
    """The changes since the predecessor. Raises UsageError if there is none."""
    if kernel.after is None:
        raise UsageError(f"{kernel.id} has no predecessor to compare with: it begins a lineage")
    before = registry.kernels.get(kernel.after)
    if before is None:
        raise UsageError(f"{kernel.path}: after: there is no kernel {kernel.after!r}")
    return diff(before, kernel)


def _print(text: str, language: str | None) -> None:
    """Print source text, on a terminal with syntax highlighting."""
    text = source_shown(text)
    if language is None or not coloured():
        sys.stdout.write(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    # There is no lexer for PTX or machine code.
    lexer = {"ptx": "gas"}.get(language, language)
    highlighted = Syntax(text, lexer, theme="ansi_dark", background_color="default").highlight(text)
    highlighted.rstrip()
    Console(highlight=False).print(highlighted, soft_wrap=True)
