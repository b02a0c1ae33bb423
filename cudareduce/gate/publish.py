"""Verdicts to wherever they were asked for: the terminal, files, and what the CI service reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cudareduce.gate.ci_output import Finding, append_summary, entry_line, junit, workflow_commands
from cudareduce.registry import Registry
from cudareduce.report import Section, print_sections, to_markdown
from cudareduce.store import check_writable, write_text


def check_outputs(options: Mapping[str, Any]) -> None:
    """Fail before anything is measured if a file could not be written."""
    for key in ("markdown", "json", "junit", "benchmark_json"):
        if options.get(key) is not None:
            check_writable(options[key])


def publish(
    found: Sequence[Section],
    findings: Sequence[Finding],
    as_json: Callable[[], str],
    registry: Registry,
    options: Mapping[str, Any],
) -> None:
    """Print what was asked for on standard output, write the files, tell the CI service."""
    if options["style"] == "json":
        sys.stdout.write(as_json())
    elif options["style"] == "markdown":
        sys.stdout.write(to_markdown(found))
    else:
        print_sections(found)
    if options["markdown"] is not None:
        write_text(options["markdown"], to_markdown(found))
    if options["junit"] is not None:
        write_text(options["junit"], junit(findings, "cudareduce"))
    append_summary(found, os.environ)

    def place(kernel: str) -> tuple[Path, int] | None:
        known = registry.kernels.get(kernel)
        return (known.path, entry_line(known.text, known.entry)) if known else None

    # a program that reads JSON from standard output must not find commands in it
    stream = sys.stderr if options["style"] == "json" else sys.stdout
    sys.stdout.flush()
    for line in workflow_commands(findings, place, os.environ):
        print(line, file=stream, flush=True)
