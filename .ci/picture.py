"""Draw docs/table.svg: tables of stored runs in a terminal of 80 columns.

Run it when the results or the tables change: python .ci/picture.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from cudareduce.report.section import Section
from cudareduce.report.sections import sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results" / "nvidia-h200"
PICTURE = ROOT / "docs" / "table.svg"
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


def main() -> None:
    """Print the tables and convert the output to SVG."""
    printed = StringIO()
    terminal = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    with patch.dict(os.environ, terminal), redirect_stdout(printed):
        print_sections(tables())
    console = Console(record=True, width=COLUMNS, file=StringIO())
    # The blank line at the end leaves room for descenders of the last line.
    console.print(Text.from_ansi(printed.getvalue().rstrip() + "\n "))
    title = "cudareduce bench all --n 2^25; cudareduce bench auto --libraries all"
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id="table")
    # Use the monospaced font of the reader instead of a downloaded one.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")
    PICTURE.write_text("\n".join(map(str.rstrip, svg.splitlines())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
