"""Draw docs/table.svg: the table of a stored run in a terminal of 80 columns.

Run it when the results or the tables change: python .ci/picture.py
"""

from __future__ import annotations

import os
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from cudareduce.report.sections import sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.store import load

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json"
PICTURE = ROOT / "docs" / "table.svg"
COLUMNS = 80


def main() -> None:
    """Print the first table and convert the output to SVG."""
    printed = StringIO()
    terminal = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    with patch.dict(os.environ, terminal), redirect_stdout(printed):
        print_sections(sections(load(RUN))[:1])
    console = Console(record=True, width=COLUMNS, file=StringIO())
    # The blank line at the end leaves room for descenders of the last line.
    console.print(Text.from_ansi(printed.getvalue().rstrip() + "\n "))
    title = "cudareduce bench all --n 2^25"
    svg = console.export_svg(title=title, theme=MONOKAI, unique_id="table")
    # Use the monospaced font of the reader instead of a downloaded one.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, ", "")
    PICTURE.write_text("\n".join(map(str.rstrip, svg.splitlines())) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
