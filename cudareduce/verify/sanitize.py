"""NVIDIA's compute-sanitizer over a job: four tools, each with a child process of its own.

Run as a program, this is that child: it does the job that a file holds, on memory without guards or
poison, which would hide from the tools what they look for.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import cudareduce
from cudareduce.backends import open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine.host import packaged
from cudareduce.temporary import temporary_folder
from cudareduce.verify.inputs import Inputs
from cudareduce.verify.job import Job, verify_job
from cudareduce.verify.verdict import RIGHT, Verdict

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: A kernel is slower under a tool, and the tool and the driver take seconds to start.
_SLOWER, _START_S = 20.0, 120.0
_MARK = "========="
#: What is no finding: the head, the end, what the host's side has to say, and races of which the
#: tool itself says that they may be none.
_NO_FINDING = re.compile(
    r"COMPUTE-SANITIZER|.*SUMMARY|Warning|Saved host|Host Frame|Target application|Program hit"
    r"|Error: process didn't|LEAK"
)
#: The tool's own troubles: then it has watched nothing.
_TROUBLE = re.compile(
    r"Internal Sanitizer Error|Error: (?:Device not supported|Target application terminated|No "
    r"attachable|Failed|Could not|Unable)|Unable to"
)
_DETAILS = re.compile(r"(?:at|by|and|Address|Access|in)\b")


def find_sanitizer() -> str:
    """Where the tool is. Raises EnvironmentProblem."""
    places = [shutil.which("compute-sanitizer"), *map(str, packaged("bin/compute-sanitizer"))]
    found = next(filter(None, places), None)
    if found is None:
        raise EnvironmentProblem(
            "compute-sanitizer was not found: install the CUDA toolkit, or its package "
            "cuda-sanitizer, and put the folder of compute-sanitizer on the PATH"
        )
    return found


def sanitized(job: Job, deadline: Deadline) -> Verdict:
    """The verdict of all tools on a job: wrong with what the first of them finds, and marked where
    one could not tell. Raises EnvironmentProblem without the tools."""
    sanitizer = find_sanitizer()
    with temporary_folder() as folder:
        task = Path(folder, "job")
        task.write_bytes(pickle.dumps(job))
        ends = monotonic() + min(_START_S + _SLOWER * job.limit_s, deadline.left_s)
        running = [_Watched(sanitizer, tool, task) for tool in TOOLS]
        try:
            found = [one.verdict(ends) for one in running]
        finally:
            for one in running:
                one.kill()
    wrong = next((verdict for verdict in found if verdict.outcome == "fail"), None)
    if wrong:
        return wrong
    reasons = [verdict.reason for verdict in found if verdict.reason]
    return replace(RIGHT, reason="; ".join(reasons), undecided=bool(reasons))


@dataclass(frozen=True, slots=True)
class Report:
    """What a tool has written: its first finding in one sentence, or what kept it from looking."""

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
    """Where, and by whom: what stands indented below a finding, as far as it fits a sentence."""
    told = []
    for line in lines[:3]:
        detail = line.strip()
        if not line.startswith("  ") or not _DETAILS.match(detail):
            break
        told.append(detail)
    return told


class _Watched:
    """A tool at work on a job."""

    def __init__(self, sanitizer: str, tool: str, task: Path) -> None:
        self._tool, self._log = tool, task.with_suffix(f".{tool}")
        self._errors = task.with_suffix(f".{tool}.err")
        home = Path(cudareduce.__file__).parent.parent
        paths = [str(home), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sanitizer, "--tool", tool, "--log-file", str(self._log), "--print-limit", "10",
                    "--report-api-errors", "no", sys.executable, "-m", "cudareduce.verify.sanitize",
                    str(task),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors,
                start_new_session=True,
                env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)},
            )  # fmt: skip

    def verdict(self, ends: float) -> Verdict:
        """What it finds until then, on the monotonic clock."""
        what = f"compute-sanitizer --tool {self._tool}"
        try:
            left_s = ends - monotonic()
            code = self._process.wait(None if left_s == float("inf") else max(0.0, left_s))
        except subprocess.TimeoutExpired:
            return replace(RIGHT, reason=f"{what} did not end in time", undecided=True)
        text = self._log.read_text(errors="replace") if self._log.exists() else ""
        report = read_report(text)
        if report.finding:
            return Verdict("fail", f"{what}: {report.finding}")
        said = self._errors.read_text(errors="replace").strip().splitlines()
        if code or report.trouble or not report.finished:
            why = report.trouble or next(reversed(said), f"it ended with code {code}")
            return replace(RIGHT, reason=f"{what} could not tell: {why}", undecided=True)
        return RIGHT

    def kill(self) -> None:
        """End it with all that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def main(task: str) -> None:
    """The child: do a job. The tool says what it thinks of it."""
    job: Job = pickle.loads(Path(task).read_bytes())
    with open_backend(job.spec) as backend:
        verify_job(job, backend, Inputs())


if __name__ == "__main__":
    main(sys.argv[1])
