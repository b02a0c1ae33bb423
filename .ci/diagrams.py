"""Draw the diagrams below docs/diagrams/ from stored results and from traces of the emulator.

Run it when kernels, results or the drawing change: python .ci/diagrams.py
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path

import numpy as np

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.emulator.program import Access
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import reduction_of
from cudareduce.reduction.sizes import counted
from cudareduce.report.columns import COLUMNS
from cudareduce.report.numbers import plain_text, time_text
from cudareduce.results.record import Record, Run
from cudareduce.results.schema import FIELDS
from cudareduce.results.store import load

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "diagrams"
RUN = ROOT / "results" / "nvidia-h200" / "bench-float32.json"
N = 2**25
SUITE = "fastcuda"
#: Four warps: large enough for bank conflicts and for steps of whole warps.
THREADS = 128
WARP, BANKS, WORD = 32, 32, 4
#: A phone's width in CSS pixels, and the gap between cells.
WIDTH, MARGIN, GAP = 390, 12, 0.6
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-size: 14px; font-weight: 600 }
.small { font-size: 11px; fill: #59636e }
.on { font-size: 11px; fill: #ffffff }
.back { fill: #ffffff } .box { fill: #f6f8fa; stroke: #8b949e }
.idle { fill: #e2e6ea; stroke: #e2e6ea }
.thread { fill: #1f2328; stroke: #1f2328 } .read { fill: #2f81f7; stroke: #2f81f7 }
.write { fill: #e16f24; stroke: #e16f24 } .both { fill: #8250df; stroke: #8250df }
rect { stroke-width: 0 } .box { stroke-width: 1 } .line { stroke: #59636e; fill: none }
.flush { fill: #c8cdd3 }
.k0 { fill: #2f81f7 } .k1 { fill: #e16f24 } .k2 { fill: #8250df } .k3 { fill: #1a7f37 }
.curve { fill: none; stroke-width: 2 } .grid { stroke: #d0d7de; fill: none }
.c0 { stroke: #2f81f7 } .c1 { stroke: #e16f24 } .c2 { stroke: #8250df } .c3 { stroke: #1a7f37 }
.c4 { stroke: #bf3989 } .c5 { stroke: #7d4e00 } .c6 { stroke: #57606a }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .on { fill: #ffffff }
.back { fill: #0d1117 } .box { fill: #161b22; stroke: #6e7681 }
.idle { fill: #21262d; stroke: #21262d }
.thread { fill: #e6edf3; stroke: #e6edf3 } .both { fill: #a371f7; stroke: #a371f7 }
.line { stroke: #9198a1 } .flush { fill: #484f58 }
.k2 { fill: #a371f7 } .k3 { fill: #3fb950 } .grid { stroke: #30363d }
.c2 { stroke: #a371f7 } .c3 { stroke: #3fb950 } .c5 { stroke: #d29922 } .c6 { stroke: #9198a1 }
}
"""


@dataclass
class Drawing:
    """An SVG of one phone's width that grows downwards."""

    title: str
    height: float = 30
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """A line of text whose baseline is at y."""
        place = f'x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}"'
        self.parts.append(f"<text {place}>{escape(words)}</text>")

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, radius: float = 0
    ) -> None:
        """A filled rectangle."""
        self.parts.append(
            f'<rect x="{x:.4g}" y="{y:.4g}" width="{width:.4g}" height="{height:.4g}" '
            f'rx="{radius:g}" class="{kind}"/>'
        )

    def line(self, *points: float, kind: str = "line") -> None:
        """A polyline through x, y, x, y, ..."""
        pairs = " ".join(f"{x:.4g},{y:.4g}" for x, y in zip(points[::2], points[1::2], strict=True))
        self.parts.append(f'<polyline points="{pairs}" class="{kind}"/>')

    def svg(self) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" '
            f'width="{WIDTH}" role="img">\n<title>{escape(self.title)}</title>\n'
            f"<style>{_STYLE}</style>\n"
            f'<rect width="{WIDTH}" height="{self.height:g}" rx="6" class="back"/>\n'
            f'<text x="{MARGIN}" y="20" class="title">{escape(self.title)}</text>\n'
        )
        return head + "\n".join(self.parts) + "\n</svg>\n"


def pipeline(run: Run) -> str:
    """What happens to one kernel, with the figures of a stored record."""
    record = next(r for r in run.records if (r.kernel, r.n) == ("reduce_v7_shuffle", N))
    row = [COLUMNS[name].cell(record) for name in ("time", "rate", "peak", "ceiling")]
    low, high = (plain_text(value) for value in (record.time_us_low, record.time_us_high))
    steps = [
        ("Kernel", f"{record.kernel}.cu: front matter and text"),
        ("Plan", f"n = 2^25: {record.grid} blocks x {record.block} threads x {record.items} items, "
                 f"{record.passes} launches"),
        ("Verification", f"{record.tried_sizes} sizes, {record.tried_patterns} patterns, "
                         f"{record.tried_launches} launches: right"),
        ("Timing", f"{len(record.rounds_us)} rounds, {record.samples} samples, each checked"),
        ("Record", f"time_us {plain_text(record.time_us)}, 95 % interval {low} to {high}; "
                   f"{sum(map(len, FIELDS.values()))} fields"),
        ("Table", "   ".join(f"{cell} {unit}" for cell, unit in
                             zip(row, ("us", "GB/s", "%peak", "%ceil"), strict=True))),
    ]  # fmt: skip
    drawing = Drawing("From a kernel to a row of a table")
    y = 34.0
    for number, (name, what) in enumerate(steps):
        drawing.rect(MARGIN, y, WIDTH - 2 * MARGIN, 42, "box", 4)
        drawing.text(MARGIN + 10, y + 17, name)
        drawing.text(MARGIN + 10, y + 33, what, "small")
        if name == "Verification":
            drawing.text(WIDTH - MARGIN - 10, y + 17, "WRONG: no time, exit code 3", "small", "end")
        if number + 1 < len(steps):
            drawing.line(WIDTH / 2, y + 42, WIDTH / 2, y + 54)
            drawing.line(WIDTH / 2 - 4, y + 50, WIDTH / 2, y + 54, WIDTH / 2 + 4, y + 50)
        y += 54
    drawing.height = y
    return drawing.svg()


def rounds(run: Run) -> str:
    """One round to scale, and the medians of all rounds with their intervals."""
    names = (
        "reduce_v5_completely_unroll", "reduce_v6_multi_add", "reduce_v7_shuffle",
        "reduce_shared_accumulate",
    )  # fmt: skip
    by_name = {record.kernel: record for record in run.records if record.n == N}
    chosen = [by_name[name] for name in names]
    flush_us = run.protocol["flush_bytes_read"] / (chosen[0].ceiling_gb_s or 1) / 1e3
    drawing = Drawing("Cold-cache rounds")
    drawing.text(MARGIN, 40, "One round, to scale: forward, then backward", "small")
    wide = WIDTH - 2 * MARGIN
    scale = wide / sum(flush_us + (record.time_us or 0) for record in chosen)
    for half, order in enumerate((chosen, chosen[::-1])):
        x, y = float(MARGIN), 48 + 24 * half
        for record in order:
            drawing.rect(x, y, flush_us * scale - 1, 18, "flush")
            x += flush_us * scale
            width = (record.time_us or 0) * scale
            drawing.rect(x, y, width - 1, 18, f"k{chosen.index(record)}")
            x += width
    drawing.rect(MARGIN, 100, 10, 10, "flush")
    megabytes = run.protocol["flush_bytes_read"] >> 20
    drawing.text(MARGIN + 15, 109, f"flush: read {megabytes} MiB, {flush_us:.0f} us", "small")
    drawing.text(MARGIN, 136, f"Medians of {len(chosen[0].rounds_us)} rounds, in us", "small")
    y = 150.0
    for number, record in enumerate(chosen):
        y = _medians(drawing, y, number, record)
    drawing.text(MARGIN, y + 5, "-2 %", "small")
    drawing.text(WIDTH / 2, y + 5, "median and its 95 % interval (grey)", "small", "middle")
    drawing.text(WIDTH - MARGIN, y + 5, "+2 %", "small", "end")
    drawing.height = y + 16
    return drawing.svg()


def _medians(drawing: Drawing, y: float, number: int, record: Record) -> float:
    """The medians of a kernel's rounds around its time, 2 % of it left and right."""
    middle, low, high = record.time_us or 0, record.time_us_low or 0, record.time_us_high or 0
    wide = WIDTH - 2 * MARGIN

    def place(value: float) -> float:
        return MARGIN + wide * min(max((value / middle - 0.98) / 0.04, 0), 1)

    drawing.text(MARGIN, y + 10, record.kernel.removeprefix("reduce_"))
    drawing.text(WIDTH - MARGIN, y + 10, time_text(middle, low, high) + " us", "", "end")
    drawing.rect(MARGIN, y + 17, wide, 14, "idle", 3)
    drawing.rect(place(low), y + 17, place(high) - place(low), 14, "flush")
    for value in record.medians_us:
        drawing.parts.append(
            f'<circle cx="{place(value):.4g}" cy="{y + 24:g}" r="3.5" class="k{number}"/>'
        )
    return y + 40


#: The steps from the last published kernel to the limit.
STORY = (
    "reduce_v0_baseline", "reduce_v6_multi_add", "reduce_v7_shuffle", "reduce_fill",
    "reduce_tiles", "reduce_tiles_last_block", "reduce_tiles_acq_rel", "reduce_tiles_mailbox",
    "reduce_tiles_self_reset",
)  # fmt: skip


def limit(run: Run) -> str:
    """The bandwidth of each step in percent of that of a read-only kernel, for two sizes."""
    drawing = Drawing("Percent of a read-only kernel's bandwidth")
    sizes = ((2**20, "k0", "2^20 floats"), (N, "k1", "2^25 floats"))
    for number, (_, kind, words) in enumerate(sizes):
        drawing.rect(MARGIN + 100 * number, 31, 9, 9, kind)
        drawing.text(MARGIN + 100 * number + 13, 40, words, "small")
    y, wide = 54.0, WIDTH - 2 * MARGIN
    for name in STORY:
        drawing.text(MARGIN, y + 8, name.removeprefix("reduce_"))
        shares = []
        for number, (size, kind, _) in enumerate(sizes):
            record = next(r for r in run.records if (r.kernel, r.n) == (name, size))
            share = record.pct_ceiling or 0
            shares.append(f"{share:.0f} %")
            drawing.rect(MARGIN, y + 13 + 7 * number, wide, 6, "idle")
            drawing.rect(MARGIN, y + 13 + 7 * number, wide * share / 100, 6, kind)
        drawing.text(WIDTH - MARGIN, y + 8, " and ".join(shares), "small", "end")
        y += 36
    drawing.height = y
    return drawing.svg()


def few_sms(run: Run) -> str:
    """The bandwidth of a kernel on some of the SMs, in percent of that of a read-only kernel."""
    drawing = Drawing(f"{run.records[0].kernel} on few SMs")
    drawing.text(MARGIN, 40, "Percent of a read-only kernel's bandwidth on all SMs", "small")
    y, left = 52.0, MARGIN + 60
    for record in run.records:
        share = record.pct_ceiling or 0
        drawing.text(left - 8, y + 9, f"{record.sms} SMs", "small", "end")
        drawing.rect(left, y, WIDTH - MARGIN - left, 11, "idle")
        drawing.rect(left, y, (WIDTH - MARGIN - left) * share / 100, 11, "k0")
        drawing.text(left + 6, y + 9, f"{share:.0f} %", "on")
        y += 19
    drawing.height = y
    return drawing.svg()


#: The libraries of the chart in README, by their names in result files.
LIBRARIES = {
    "cub:run_to_run": "CUB", "cub:not_guaranteed": "CUB, atomics", "torch": "PyTorch",
    "torch:compile": "torch.compile", "triton": "Triton", "cupy": "CuPy", "cublas": "cuBLAS",
}  # fmt: skip


def libraries(runs: Sequence[Run]) -> str:
    """The time of each library over that of `auto`, by size, with a panel for each run."""
    drawing = Drawing("Time of libraries, relative to auto")
    drawing.text(MARGIN, 40, "sum of float32, cold cache; higher is slower", "small")
    left, right, tall, highest = MARGIN + 22, WIDTH - MARGIN, 150, 3.2
    y = 58.0
    for run in runs:
        times = {
            (record.kernel.removeprefix("peer:"), record.n): record.time_us
            for record in run.records if record.time_us and record.context == "primary"
        }  # fmt: skip
        sizes = sorted({n for name, n in times if name == "auto"})
        low, high = np.log2(sizes[0]), np.log2(sizes[-1])
        drawing.text(left, y, run.device.name, "small")
        bottom = y + 8 + tall

        def x_of(n: int, low: float = low, high: float = high) -> float:
            return left + (right - left) * float((np.log2(n) - low) / (high - low))

        def y_of(ratio: float, bottom: float = bottom) -> float:
            return bottom - tall * (min(ratio, highest) - 0.8) / (highest - 0.8)

        for ratio in (1.0, 1.5, 2.0, 2.5, 3.0):
            drawing.line(left, y_of(ratio), right, y_of(ratio), kind="grid")
            drawing.text(left - 4, y_of(ratio) + 4, f"{ratio:g}", "small", "end")
        for exponent in range(10, 31, 4):
            drawing.text(x_of(2**exponent), bottom + 14, f"2^{exponent}", "small", "middle")
        for number, name in enumerate(LIBRARIES):
            points = [
                (x_of(n), y_of(time / auto))
                for n in sizes if (time := times.get((name, n))) and (auto := times["auto", n])
            ]  # fmt: skip
            drawing.line(*(value for point in points for value in point), kind=f"curve c{number}")
        y = bottom + 34
    for number, name in enumerate(LIBRARIES.values()):
        x, row = MARGIN + 124 * (number % 3), y + 16 * (number // 3)
        drawing.line(x, row - 4, x + 16, row - 4, kind=f"curve c{number}")
        drawing.text(x + 21, row, name, "small")
    drawing.height = y + 16 * (len(LIBRARIES) // 3) + 12
    return drawing.svg()


@dataclass
class Step:
    """Accesses of a block between two points where its threads wait for each other."""

    accesses: list[Access] = field(default_factory=list)

    def threads(self) -> set[int]:
        """The threads that access memory or exchange registers."""
        return {thread for access in self.accesses for thread in _threads(access)}

    def words(self, kind: str) -> set[int]:
        """The 4-byte words of these accesses."""
        return {a.offset // WORD for a in self.accesses if a.kind == kind}

    def has(self, *kinds: str) -> bool:
        """Whether there is an access of one of these kinds."""
        return any(access.kind in kinds for access in self.accesses)

    def conflict(self) -> int:
        """The most words of one bank of shared memory that a warp accesses at once."""
        seen: dict[tuple[str, int, int, int], int] = defaultdict(int)
        banks: dict[tuple[object, ...], set[int]] = defaultdict(set)
        for a in self.accesses:
            if a.kind.startswith("shared"):
                time = seen[a.kind, a.thread, a.barriers, a.collectives]
                seen[a.kind, a.thread, a.barriers, a.collectives] += 1
                word = a.offset // WORD
                at = (a.kind, a.barriers, a.collectives, time, a.thread // WARP, word % BANKS)
                banks[at].add(word)
        return max(map(len, banks.values()), default=1)


def _threads(access: Access) -> Iterable[int]:
    if access.kind != "exchange":
        return [access.thread]
    return [access.thread + lane for lane in range(WARP) if access.bytes >> lane & 1]


def trace(backend: CpuBackend, kernel: Kernel) -> list[Step]:
    """The steps of one block of a kernel on the emulator, for a sum of float32."""
    n = THREADS * kernel.items_of(WORD)
    case = Case(kernel, reduction_of("sum", "float32"), THREADS, kernel.items_of(WORD))
    plan = case.plan(n, 1, DEFAULT_LIMITS)
    programs = build(backend, {case: [plan]})[case]
    if isinstance(programs, BuildError):
        raise programs
    data = backend.upload(np.ones(n, np.float32))
    bound = Bound(backend, plan, programs, data)
    backend.accesses()
    bound.run()
    accesses = backend.accesses()
    start = min(a.offset for a in accesses if a.kind.startswith("shared"))
    return steps_of([
        replace(a, offset=a.offset - start) if a.kind.startswith("shared") else a for a in accesses
    ])  # fmt: skip


def steps_of(accesses: Sequence[Access]) -> list[Step]:
    """Accesses in steps: a step ends with an exchange of registers, or with writes before reads."""
    groups: dict[tuple[int, int], list[Access]] = defaultdict(list)
    for access in accesses:
        groups[access.barriers, access.collectives].append(access)
    steps = [Step()]
    for _, group in sorted(groups.items()):
        plain = Step([a for a in group if a.kind != "exchange"])
        if plain.has("shared read") and steps[-1].has("shared write"):
            steps.append(Step())
        steps[-1].accesses += plain.accesses
        exchanges = [a for a in group if a.kind == "exchange"]
        if exchanges:
            steps += [Step(exchanges), Step()]
    return [step for step in steps if step.accesses]


def ladder_step(kernel: Kernel, name: str, steps: Sequence[Step]) -> str:
    """Active threads and accessed words in each step of a block."""
    drawing = Drawing(f"{name}: {kernel.title.lower()}")
    legend = (
        ("thread", "active"), ("read", "read"), ("write", "written"), ("both", "read and written"),
    )  # fmt: skip
    x = float(MARGIN)
    for kind, words in legend:
        drawing.rect(x, 31, 9, 9, kind)
        drawing.text(x + 13, 40, words, "small")
        x += 30 + 6 * len(words)
    y, tree = 50.0, 0
    for step in steps:
        if step.has("global read"):
            label = f"load {len(step.words('global read'))} elements"
        elif step.has("global write"):
            label = "write the partial result"
        elif step.has("exchange"):
            label = "shuffle between registers"
        elif step.has("shared read") and step.has("shared write"):
            tree += 1
            label = f"tree, step {tree}"
        else:
            label = f"{'read' if step.has('shared read') else 'write'} shared memory"
        threads = step.threads()
        warps = {thread // WARP for thread in threads}
        active = f"{counted(len(threads), 'thread')}, {counted(len(warps), 'warp')}"
        if step.conflict() > 1:
            active += f", {step.conflict()}-way bank conflict"
        drawing.text(MARGIN, y + 10, label)
        drawing.text(WIDTH - MARGIN, y + 10, active, "small", "end")
        y = _cells(drawing, y + 15, 1, lambda k, on=threads: "thread" if k in on else "idle")
        if step.has("global read"):
            read = step.words("global read")
            rows = (max(read) + 1) // THREADS
            y = _cells(drawing, y, rows, lambda k, on=read: "read" if k in on else "idle")
        if step.has("shared read", "shared write"):
            read, written = step.words("shared read"), step.words("shared write")
            y = _cells(drawing, y, 1, lambda k, r=read, w=written: _access(k in r, k in w))
        y += 8
    drawing.text(
        MARGIN, y + 8, f"First row: threads 0 to {THREADS - 1}. Rows below: words in", "small"
    )
    drawing.text(MARGIN, y + 22, "memory (loads: global; all others: shared).", "small")
    drawing.height = y + 32
    return drawing.svg()


def _access(read: bool, written: bool) -> str:
    return "both" if read and written else "read" if read else "write" if written else "idle"


def _cells(drawing: Drawing, y: float, rows: int, kind: Callable[[int], str]) -> float:
    """Rows of cells, one for each thread or word, runs of one kind as one rectangle."""
    cell = (WIDTH - 2 * MARGIN) / THREADS
    high = 8 if rows == 1 else 4
    for row in range(rows):
        kinds = [kind(row * THREADS + k) for k in range(THREADS)]
        for found in dict.fromkeys(kinds):
            path, middle = "", y + high / 2
            for k in range(THREADS):
                if kinds[k] == found and (k == 0 or kinds[k - 1] != found):
                    end = next((e for e in range(k, THREADS) if kinds[e] != found), THREADS)
                    path += f"M{MARGIN + k * cell:.4g} {middle:g}H{MARGIN + end * cell - GAP:.4g}"
            dashes = f'stroke-width="{high}" stroke-dasharray="{cell - GAP:.4g} {GAP}"'
            drawing.parts.append(f'<path d="{path}" {dashes} class="{found}"/>')
        y += high + 1
    return y + 1


def diagrams() -> dict[str, str]:
    """Every diagram by its file name."""
    run, registry = load(RUN), load_registry(())
    made = {"pipeline.svg": pipeline(run), "rounds.svg": rounds(run), "limit.svg": limit(run)}
    runs = [
        RUN.parent.parent / gpu / "libraries-float32.json" for gpu in ("nvidia-h100", "nvidia-h200")
    ]
    made["libraries.svg"] = libraries([load(path) for path in runs])
    made["few-sms.svg"] = few_sms(load(RUN.parent / "few-sms.json"))
    with CpuBackend(cache=None, counts=True) as backend:
        for row in registry.suite(SUITE).rows:
            kernel = registry.kernels[row.kernel]
            version = row.name.split()[0]
            steps = trace(backend, kernel)
            made[f"{SUITE}-{version.lower()}.svg"] = ladder_step(kernel, version, steps)
    return made


def main() -> None:
    """Write the diagrams."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in diagrams().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
