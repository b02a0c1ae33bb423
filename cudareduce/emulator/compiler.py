"""g++ as a process: found, run within a time limit, its own failures told from a kernel's."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.emulator.missing import missing
from cudareduce.errors import BuildError, EnvironmentProblem, NotEmulated
from cudareduce.machine.host import ANSWER_LIMIT_S

#: Seconds after which a call of g++ is taken for one that hangs; a kernel takes less than one.
LIMIT_S = 120.0

_ADVICE = "reinstall it (Debian, Ubuntu: apt-get install --reinstall g++)"
#: A line of g++ about a process of its own that went down, and no fault of what it compiles.
_CRASH = re.compile(r"internal compiler error|signal terminated program|terminated with signal")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_UNDEFINED = re.compile(
    r"(?:\S*ld: )?(?:\./)*(?P<place>.+:\d+): undefined reference to `(?P<name>.*)'$"
)
#: What these parts of C++ call in its library, which is not linked to a kernel.
_CXX_LIBRARY = {
    "typeid and dynamic_cast": r"typeinfo for|__dynamic_cast|__cxa_bad_",
    "a static variable set when first reached": r"__cxa_guard_",
}
_NO_LIBRARY = "cannot be used in a kernel: no C++ library is linked to it"
_NO_EXCEPTIONS = "exception handling disabled, use '-fexceptions' to enable"
_NO_HEADER = re.compile(r"fatal error: .+: No such file or directory$", re.MULTILINE)
_NO_HEADER_ADVICE = (
    "put it beside the file, say -I DIR, or take the line out if only host code needs it"
)
_OLD_WARP = re.compile(
    r"error: '(?P<name>__(?:shfl(?:_up|_down|_xor)?|any|all|ballot))' was not.*$", re.M
)
_SHOWN_LINES = 10


class OutOfTime(Exception):
    """The deadline came before g++ was done."""


class Compiler:
    """The g++ of this machine. An EnvironmentProblem if there is none, and whenever it fails at
    anything but what it was given to compile."""

    def __init__(self) -> None:
        found = shutil.which("g++")
        if found is None:
            raise EnvironmentProblem(
                "g++ was not found: install it (Debian, Ubuntu: apt-get install g++) "
                "to run kernels on the CPU"
            )
        self.path = found
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    @cached_property
    def version(self) -> str:
        """What it says of itself."""
        try:
            answer = self._call(["--version"], None, Path("/"), Deadline(ANSWER_LIMIT_S))
        except OutOfTime:
            raise EnvironmentProblem(
                f"{self.path} does not tell its version within {ANSWER_LIMIT_S:g} s: {_ADVICE}"
            ) from None
        code, out, errors = answer
        if code != 0 or not out:
            raise self._broken(code, errors)
        return out

    def make(
        self,
        output: Path,
        arguments: Sequence[str],
        text: str | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Run g++ in the folder of `output`, which it is to make; `text` is its standard input.
        Raises BuildError, and OutOfTime at the deadline."""
        command = [*arguments, "-o", output.name]
        code, _, errors = self._call(command, text, output.parent, deadline or Deadline())
        if code == 0 and output.is_file() and output.stat().st_size > 0:
            return
        if not output.parent.is_dir():
            raise EnvironmentProblem(f"{output.parent} was removed while it was used: run again")
        if _NO_SPACE.search(errors):
            raise EnvironmentProblem(f"{output.parent.parent} is full: make room to compile there")
        if code <= 0 or _CRASH.search(errors) or "error" not in errors:
            raise self._broken(code, errors)
        lacks = missing(errors)
        raise NotEmulated(lacks) if lacks else BuildError(_complaint(errors))

    def stop(self) -> None:
        """End what runs: for a run that is interrupted."""
        with self._lock:
            running = list(self._running)
        for process in running:
            _kill(process)

    def _call(
        self, arguments: Sequence[str], text: str | None, folder: Path, deadline: Deadline
    ) -> tuple[int, str, str]:
        try:
            process = subprocess.Popen(
                [self.path, *arguments],
                stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                encoding="utf-8",
                errors="replace",
                # What g++ leaves behind when it is killed goes with the folder.
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
                process_group=0,  # so that what it has started can be ended with it
            )
        except OSError as error:
            raise EnvironmentProblem(
                f"{self.path} does not run ({error.strerror}): {_ADVICE}"
            ) from None
        with self._lock:
            self._running.add(process)
        try:
            out, errors = process.communicate(text, timeout=min(LIMIT_S, deadline.left_s))
        except subprocess.TimeoutExpired:
            if deadline.passed:
                raise OutOfTime from None
            raise EnvironmentProblem(
                f"{self.path} was not done after {LIMIT_S:g} s: see whether a file's macros or "
                f"templates have no end, else {_ADVICE}"
            ) from None
        finally:
            with self._lock:
                self._running.discard(process)
            if process.poll() is None:
                _kill(process)
            with process:  # closes its pipes, however it ended
                pass
        return process.returncode, out, errors

    def _broken(self, code: int, errors: str) -> EnvironmentProblem:
        lines = [line for line in errors.splitlines() if line.strip()]
        crash = next((line for line in lines if _CRASH.search(line)), None)
        if code < 0:
            what = f"was ended by {signal.Signals(-code).name}"
        elif crash is not None:
            what = f"went down ({crash.strip().rstrip('.')})"
        elif code == 0:
            what = "ended without an error and made nothing"
        else:
            what = f"ended with code {code} ({lines[-1].strip() if lines else 'no message'})"
        return EnvironmentProblem(f"{self.path} {what}: {_ADVICE}")


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _complaint(errors: str) -> str:
    """The compiler's own lines, and of the linker's one for each place that lacks something."""
    errors = errors.replace(_NO_EXCEPTIONS, f"throw {_NO_LIBRARY}")
    errors = _NO_HEADER.sub(rf"\g<0>: {_NO_HEADER_ADVICE}", errors)
    errors = _OLD_WARP.sub(
        r"error: \g<name> is of before CUDA 9, and no compiler has it any more: write "
        r"\g<name>_sync(0xffffffff, ...)", errors,
    )  # fmt: skip
    undefined: dict[str, list[str]] = {}
    for line in errors.splitlines():
        found = _UNDEFINED.match(line)
        if found:
            undefined.setdefault(found["place"], []).append(found["name"])
    lines = [f"{place}: error: {_lacking(names)}" for place, names in undefined.items()]
    return "\n".join((lines or _without_warnings(errors))[:_SHOWN_LINES])


def _without_warnings(errors: str) -> list[str]:
    """The lines about errors: what follows a warning, up to the next error, belongs to it."""
    kept, keep = [], True
    for line in errors.splitlines():
        told = re.search(r":\d+: (?P<kind>warning|error|fatal error|note): ", line)
        if told and told["kind"] != "note":
            keep = told["kind"] != "warning"
        if keep and not line.startswith(("cc1plus: ", "compilation terminated")):
            kept.append(line)
    return kept


def _lacking(names: Sequence[str]) -> str:
    for what, pattern in _CXX_LIBRARY.items():
        if any(re.match(pattern, name) for name in names):
            return f"{what} {_NO_LIBRARY}"
    return f"{names[0]} is not defined"
