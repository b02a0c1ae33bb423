"""Run NVIDIA's compute-sanitizer on a job: four tools, each with its own process.

That process verifies on memory without guards or poison, which would hide faults from the tools.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.backends.selection import open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import packaged
from cudareduce.temporary import temporary_folder
from cudareduce.verify.jobs import Job, verify_job
from cudareduce.verify.patterns import Inputs
from cudareduce.verify.verdict import RIGHT, Verdict
from cudareduce.workers import python_command, running_tool

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: Slowdown of a kernel under a tool, and startup time of tool and driver in s.
_SLOWER, _START_S = 20.0, 120.0
_MARK = "========="
#: Lines of a log that are no finding: head, summary, host frames, and possible races (warnings).
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|.*SUMMARY|Warning|Saved host|Host Frame|Target application|Program hit"
    r"|Error: process didn't|LEAK"
)
#: Failures of the tool itself, after which it has checked nothing.
_TROUBLE = re.compile(
    r"Internal Sanitizer Error|Error: (?:Device not supported|Target application terminated|No "
    r"attachable|Failed|Could not|Unable)|Unable to"
)
_DETAILS = re.compile(r"(?:at|by|and|Address|Access|in)\b")


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises EnvironmentProblem if it is not installed."""
    candidates = [shutil.which("compute-sanitizer"), *map(str, packaged("bin/compute-sanitizer"))]
    path = next(filter(None, candidates), None)
    if path is None:
        raise EnvironmentProblem(
            "compute-sanitizer was not found: install the CUDA toolkit, or its package "
            "cuda-sanitizer, and put the folder of compute-sanitizer on the PATH"
        )
    return path


def sanitized(job: Job, deadline: Deadline) -> Verdict:
    """The verdict of all tools on a job: a failure with the first finding, undecided if a tool has
    no result. Raises EnvironmentProblem if compute-sanitizer is not installed."""
    sanitizer = find_sanitizer()
    by = Deadline(min(_START_S + _SLOWER * job.limit_s, deadline.left_s))
    with temporary_folder() as folder, ExitStack() as stack:
        runs = [_running(sanitizer, tool, job, Path(folder)) for tool in TOOLS]
        tools = [stack.enter_context(run) for run in runs]
        verdicts = [tool.verdict(by) for tool in tools]
    wrong = next((verdict for verdict in verdicts if verdict.outcome == "fail"), None)
    if wrong:
        return wrong
    reasons = [verdict.reason for verdict in verdicts if verdict.reason]
    return replace(RIGHT, reason="; ".join(reasons), undecided=bool(reasons))


@dataclass(frozen=True, slots=True)
class Report:
    """The log of a tool: its first finding in one sentence, or why it could not check."""

    finding: str | None = None
    trouble: str | None = None
    finished: bool = False


def read_report(text: str) -> Report:
    """Read the log of a tool."""
    lines = [
        line.removeprefix(_MARK).rstrip() for line in text.splitlines() if line.startswith(_MARK)
    ]
    finished = any("SUMMARY" in line for line in lines)
    for k, line in enumerate(lines):
        head = line.strip()
        if _TROUBLE.match(head):
            return Report(trouble=head, finished=finished)
        if not head or line.startswith("  ") or _NO_FINDING.match(head):
            continue
        return Report(finding=" ".join([head, *_details(lines[k + 1 :])]), finished=finished)
    return Report(finished=finished)


def _details(lines: Sequence[str]) -> list[str]:
    """The first indented lines below a finding: address, thread and block."""
    details = []
    for line in lines[:3]:
        detail = line.strip()
        if not line.startswith("  ") or not _DETAILS.match(detail):
            break
        details.append(detail)
    return details


@contextmanager
def _running(sanitizer: str, tool: str, job: Job, folder: Path) -> Iterator[_Tool]:
    """A tool that runs a job in its own process. The process is killed at the end of the block."""
    log, errors = folder / f"{tool}.log", folder / f"{tool}.err"
    command = [
        sanitizer, "--tool", tool, "--log-file", str(log), "--print-limit", "10",
        "--report-api-errors", "no", *python_command(_verify, job, folder / f"{tool}.job"),
    ]  # fmt: skip
    with (
        errors.open("wb") as stderr,
        running_tool(command, stdout=subprocess.DEVNULL, stderr=stderr) as process,
    ):
        yield _Tool(tool, process, log, errors)


@dataclass(frozen=True, slots=True)
class _Tool:
    """A running tool."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    errors: Path

    def verdict(self, deadline: Deadline) -> Verdict:
        """The verdict of the tool, undecided if it has none by the deadline."""
        what = f"compute-sanitizer --tool {self.name}"
        try:
            code = self.process.wait(None if deadline.seconds is None else deadline.left_s)
        except subprocess.TimeoutExpired:
            return replace(RIGHT, reason=f"{what} did not end in time", undecided=True)
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        report = read_report(text)
        if report.finding:
            return Verdict("fail", f"{what}: {report.finding}")
        lines = self.errors.read_text(errors="replace").strip().splitlines()
        if code or report.trouble or not report.finished:
            why = report.trouble or next(reversed(lines), f"it ended with code {code}")
            return replace(RIGHT, reason=f"{what} could not tell: {why}", undecided=True)
        return RIGHT


def _verify(job: Job) -> None:
    """Verify a job under a tool. The tool reports its findings; our verdict is ignored."""
    with open_backend(job.spec) as backend:
        verify_job(job, backend, Inputs())
