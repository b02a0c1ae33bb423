"""Verdicts for CI services: annotations, step summary, comment, JUnit XML.

Formats: GitHub's workflow commands and step summary (docs.github.com, Workflow commands for GitHub
Actions), and JUnit XML as GitLab and Jenkins read it.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from cudareduce.progress import say
from cudareduce.report.markdown import to_markdown
from cudareduce.report.publish import Outputs, Texts, publish
from cudareduce.report.section import Section
from cudareduce.text import first_few, group_by, lines_shown, shown

#: Marks the pull request comment, so that a workflow can find and replace it.
MARKER = "<!-- cudareduce -->"
#: Matches code, in which GitHub creates no links, and elsewhere the beginnings of links.
_LINK = re.compile(
    r"(`+).*?\1|\b(?:https?|ftp)(?=://)|\bwww(?=\.)|\bGH(?=-\d)|\b[\da-f]{39}(?=[\da-f]\b)",
    re.IGNORECASE,
)
#: GitHub rejects comments above 65 536 characters.
_LONGEST_COMMENT = 65_000
#: GitHub shows ten annotations of a kind for each step and drops the rest silently.
_MAX_ANNOTATIONS, _FIRST_FEW = 10, 20
#: GitHub rejects a step summary above 1 MiB.
_SUMMARY_BYTES = 2**20

#: The file and line of a kernel, or None if unknown.
Places = Callable[[str], "tuple[Path, int] | None"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One verdict for CI: `what` is the problem, `text` the description, `seconds` the time of one
    reduction."""

    kernel: str
    what: str
    verdict: str
    text: str
    outcome: Literal["passed", "failed", "skipped"]
    seconds: float = 0.0


def workflow_commands(
    findings: Sequence[Finding], places: Places, environment: Mapping[str, str]
) -> list[str]:
    """GitHub annotations of failures, one per kernel, in the order of the findings: up to ten, or
    nine and a summary of the others."""
    if environment.get("GITHUB_ACTIONS") != "true":
        return []
    kernels = group_by((f for f in findings if f.outcome == "failed"), lambda f: f.kernel)
    shown = list(kernels)
    shown = shown if len(shown) <= _MAX_ANNOTATIONS else shown[: _MAX_ANNOTATIONS - 1]
    root = Path(environment.get("GITHUB_WORKSPACE", ".")).resolve()
    lines = [_annotation(kernels[name], places(name), root) for name in shown]
    left = [f"{some[0].verdict} {name}" for name, some in kernels.items() if name not in shown]
    if left:
        more = f"{len(left)} more fail: {first_few(left, _FIRST_FEW)}"
        lines.append(f"::error title=cudareduce::{_escape(more)}; the step summary lists them")
    return lines


def _annotation(findings: Sequence[Finding], place: tuple[Path, int] | None, root: Path) -> str:
    """The annotation of a kernel: its first finding, and the number of further ones."""
    finding, *others = findings
    fields = {"title": f"{finding.verdict}: {finding.kernel}"}
    if place is not None:
        path = place[0].resolve()
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        fields = {"file": inside.as_posix(), "line": str(place[1])} | fields
    listed = ",".join(f"{key}={_escape(value, ':,')}" for key, value in fields.items())
    more = f"; and {len(others)} more of this kernel" if others else ""
    return f"::error {listed}::{_escape(f'{finding.what}: {finding.text}{more}')}"


def _escape(text: str, also: str = "") -> str:
    """Escape a message for a GitHub workflow command; `also` lists further characters to escape."""
    text = lines_shown(text, "\n")
    for character in "%\r\n" + also:
        text = text.replace(character, f"%{ord(character):02X}")
    return text


def tell_ci(findings: Sequence[Finding], sections: Sequence[Section], places: Places) -> list[str]:
    """Append the sections to the step summary. Returns the workflow commands to print."""
    append_summary(sections, os.environ)
    return workflow_commands(findings, places, os.environ)


def publish_findings(
    outputs: Outputs, sections: Sequence[Section], findings: Sequence[Finding], texts: Texts, *,
    suite: str = "cudareduce", printed: Texts | None = None, places: Places = lambda kernel: None,
    notes: Sequence[str] = (), quiet: bool = False,
) -> None:  # fmt: skip
    """Write and print verdicts, with JUnit XML, a step summary and annotations. For formats that
    cannot contain `notes`, these are printed to standard error."""
    publish(
        outputs, sections, {"junit": lambda: junit(findings, suite), **texts}, printed=printed,
        commands=tell_ci(findings, sections, places),
    )  # fmt: skip
    if (outputs.piped or outputs.style) in ("json", "benchmark_json", "junit"):
        for note in notes:
            say(note, quiet)


def append_summary(found: Sequence[Section], environment: Mapping[str, str]) -> None:
    """Append the sections as Markdown to GitHub's step summary, up to its size limit; do nothing if
    there is none."""
    name = environment.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    text = f"{to_markdown(found)}\n".encode()
    try:
        room = _SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        if len(text) > room:
            notice = b"\n\nCut off here: a step summary holds 1 MiB.\n"
            whole = text[: max(room - len(notice), 0)].rpartition(b"\n")[0]
            text = (whole + notice)[: max(room, 0)]
        with path.open("ab") as file:
            file.write(text)
    except OSError as error:  # a summary that cannot be written must not change the verdict
        print(f"cannot append the summary to {path}: {error.strerror}", file=sys.stderr)


def comment_of(text: str) -> str:
    """Markdown as a pull request comment: with the marker, without automatic links to addresses,
    issues and commits, and cut to the length limit."""
    text = _LINK.sub(lambda found: found[0] if found[1] else f"{found[0]}&#8203;", text)
    text = f"{MARKER}\n\n{text}"
    if len(text) <= _LONGEST_COMMENT:
        return text
    whole = text[:_LONGEST_COMMENT].rpartition("\n\n")[0]
    return f"{whole}\n\nCut off here: a comment holds 65 536 characters.\n"


def junit(findings: Sequence[Finding], name: str) -> str:
    """JUnit XML with a test case for each finding, in a suite called `name`."""
    suite = ElementTree.Element("testsuite", name=name)
    for finding in findings:
        case = ElementTree.SubElement(
            suite, "testcase", classname=shown(finding.kernel),
            name=shown(finding.what), time=f"{finding.seconds:.9f}",
        )  # fmt: skip
        text = lines_shown(f"{finding.verdict}: {finding.text}", "\n")
        if finding.outcome == "passed":
            ElementTree.SubElement(case, "system-out").text = text
        else:
            kind = {"failed": "failure", "skipped": "skipped"}[finding.outcome]
            ElementTree.SubElement(case, kind, type=finding.verdict, message=text)
    counts = Counter(finding.outcome for finding in findings)
    suite.set("tests", str(len(findings)))
    suite.set("failures", str(counts["failed"]))
    suite.set("errors", "0")
    suite.set("skipped", str(counts["skipped"]))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, "unicode")}\n'
