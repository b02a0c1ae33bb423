"""Verdicts to wherever they were asked for: the terminal, files, and what the CI service reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudareduce.library.registry import Registry
from cudareduce.report.ci import Finding, append_summary, entry_line, junit, workflow_commands
from cudareduce.report.markdown import to_markdown
from cudareduce.report.sections import Section
from cudareduce.report.terminal import print_sections, to_reader
from cudareduce.results.store import write_text


def publish(
    found: Sequence[Section],
    findings: Sequence[Finding],
    as_json: Callable[[], str],
    registry: Registry,
    options: Mapping[str, Any],
) -> None:
    """Write the files, print what was asked for on standard output, tell the CI service."""
    if options["markdown"] is not None:
        write_text(options["markdown"], to_markdown(found))
    if options["junit"] is not None:
        write_text(options["junit"], junit(findings, "cudareduce"))
    append_summary(found, os.environ)

    def place(kernel: str) -> tuple[Path, int] | None:
        known = registry.kernels.get(kernel)
        return (known.path, entry_line(known.text, known.entry)) if known else None

    commands = workflow_commands(findings, place, os.environ)
    with to_reader():
        if options["style"] == "json":
            sys.stdout.write(as_json())
        elif options["style"] == "markdown":
            sys.stdout.write(to_markdown(found))
        else:
            print_sections(found)
            print(*commands, sep="\n", end="\n" * bool(commands))
    if options["style"] != "table":  # whoever reads these must not find commands in them
        print(*commands, sep="\n", end="\n" * bool(commands), file=sys.stderr)
