"""Draw the pictures of the README, each as a terminal of 80 columns with dark and light colours.

docs/table.svg: tables of stored runs. docs/race.svg: a kernel with a missing barrier, and its
verdict. Run it when the results, the tables or the verdict change: python .ci/picture.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI
from rich.text import Text

from cudareduce.report.section import Section
from cudareduce.report.sections import sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "nvidia-h200"
RACE = ROOT / "tests" / "external" / "cases" / "bare_without_barrier.cu"
COLUMNS = 80
N = 2**25
#: The rows of each run: the ladder with the steps to the fastest kernel, and auto next to
#: libraries.
SHOWN = {
    "bench-float32.json": (
        "v0_baseline", "v1_no_divergence", "v2_no_bank_conflict", "v3_add_during_load",
        "v4_unroll_last_warp", "v5_completely_unroll", "v6_multi_add", "v7_shuffle", "fill",
        "tiles", "tiles_last_block", "tiles_acq_rel", "tiles_self_reset",
    ),
    "libraries-float32.json": (
        "peer:cub:run_to_run", "peer:cub:not_guaranteed", "peer:torch", "peer:torch:compile",
        "peer:triton", "auto", "auto:fixed",
    ),
}  # fmt: skip


def tables() -> Iterator[Section]:
    """The selected rows of both runs, without notes on other rows."""
    for name, kernels in SHOWN.items():
        run = load(RESULTS / name)
        # Next to libraries, in the same CUDA context.
        context = "primary" if "auto" in kernels else None
        shown = tuple(
            record for record in run.records
            if record.n == N and record.verdict == "pass" and record.time_us
            and record.context == context and record.kernel.removeprefix("reduce_") in kernels
        )  # fmt: skip
        yield replace(sections(replace(run, records=shown))[0], notes=())


def print_tables() -> None:
    """Print the tables of stored runs."""
    print_sections(tables())


def print_race() -> None:
    """Print a kernel with a missing barrier, its faulty line in red, and the verdict on it."""
    console = Console(width=COLUMNS, force_terminal=True, highlight=False)
    _, _, source = RACE.read_text(encoding="utf-8").partition("\n")  # without its comment
    with TemporaryDirectory() as folder, chdir(folder):
        Path("block_sum.cu").write_text(source, encoding="utf-8")
        command = [sys.executable, "-m", "cudareduce", "verify", "block_sum.cu"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "1000"}
        environment.pop("FORCE_COLOR")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    (verdict,) = (line for line in done.stdout.splitlines() if "data race" in line)
    where = re.search(r"block_sum\.cu:(\d+): ", verdict)
    assert where, verdict
    for number, line in enumerate(source.splitlines(), 1):
        faulty = number == int(where[1])
        console.print(f"{number:3}  {line}", style="bold red" if faulty else "", markup=False)
    console.print()
    console.print("$ cudareduce verify block_sum.cu", style="bold")
    console.print(verdict, markup=False)


def draw(name: str, title: str, print_text: Callable[[], None]) -> None:
    """Convert what a function prints to docs/NAME.svg and docs/NAME-light.svg."""
    printed = StringIO()
    terminal = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    with patch.dict(os.environ, terminal), redirect_stdout(printed):
        print_text()
    for suffix, theme in (("", MONOKAI), ("-light", DEFAULT_TERMINAL_THEME)):
        console = Console(record=True, width=COLUMNS, file=StringIO())
        # The blank line at the end leaves room for descenders of the last line.
        console.print(Text.from_ansi(printed.getvalue().rstrip() + "\n "))
        svg = console.export_svg(title=title, theme=theme, unique_id=name)
        # Use the monospaced font of the reader instead of a downloaded one.
        svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")
        lines = map(str.rstrip, svg.splitlines())
        picture = ROOT / "docs" / f"{name}{suffix}.svg"
        picture.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    draw(
        "table", "cudareduce bench all --n 2^25; cudareduce bench auto --libraries all",
        print_tables,
    )  # fmt: skip
    draw("race", "block_sum.cu", print_race)
