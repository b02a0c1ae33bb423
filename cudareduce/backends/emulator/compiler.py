"""Runs g++ with a time limit and classifies its errors: an error in the kernel, a CUDA feature that
the emulator lacks, or a broken compiler."""

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
from multiprocessing import parent_process
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, EnvironmentProblem, NotEmulated
from cudareduce.machine import VERSION_LIMIT_S

#: Time limit of one g++ process in seconds; compiling a kernel takes less than one.
LIMIT_S = 120.0

_ADVICE = "reinstall it (Debian, Ubuntu: apt-get install --reinstall g++)"
#: Messages of g++ when one of its own processes crashes.
_CRASH = re.compile(r"internal compiler error|signal terminated program|terminated with signal")
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_UNDEFINED = re.compile(
    r"(?:\S*ld: )?(?:\./)*(?P<place>.+:\d+): undefined reference to `(?P<name>.*)'$"
)
#: C++ features that need the C++ runtime library, which is not linked to kernels. For each feature,
#: the undefined symbols that the linker reports.
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

#: Error messages of g++; below, those about unknown names.
_ERROR = re.compile(r"^(?P<place>\S+?:\d+)(?::\d+)?: (?:fatal )?error: (?P<what>.*)$", re.MULTILINE)
_UNKNOWN = tuple(
    re.compile(pattern)
    for pattern in (
        r"'(?P<name>\w+)' was not declared in this scope",
        r"'(?P<name>\w+)' (?:does not name a type|has not been declared|is not a template)",
        r"there are no arguments to '(?P<name>\w+)' that depend on a template parameter",
        r"'(?P<name>\w+)' (?:is not a member of|in namespace) "
        r"'(?P<scope>(?:cooperative_groups|cg|cuda|nvcuda)\b[\w:]*)'",  # or the usual alias
        r"'(?:const )?(?:class |struct )?(?P<scope>(?:cooperative_groups|cuda)::[\w:]*)[^']*' "
        r"has no member named "
        r"'(?P<name>\w+)'",
    )
)
_ABSENT_HEADER = re.compile(r"(?P<name>\S+): No such file or directory")
_PTX = "inline PTX"

#: Names of headers in the CUDA toolkit.
_CUDA_HEADERS = re.compile(
    r"(?:cub|thrust|cuda|nv|nvtx3|cooperative_groups|crt|cute|cutlass)/"
    r"|(?:cuda|curand|cublas|cufft|cusparse|cusolver|nvtx|texture|surface|mma|sm_\d+_)\w*\.hp?p?$"
)
#: CUDA functions and types that the emulator lacks.
_CUDA_NAMES = re.compile(
    r"(?:tex|surf)(?:1D|2D|3D|Cubemap)\w*|cuda[A-Z]\w*|cu(?:Float|Double)?Complex|cuC\w+f?"
    r"|curand\w*|cub|thrust|nvcuda|wmma|malloc|free|alloca"
    r"|__(?:nv|half|bfloat|mbarrier|cluster|cvta|pipeline|u128Atomic|vib)\w+|awbarrier_\w+"
    r"|__is(?:Shared|Global|Local|Constant|GridConstant|CtaShared|ClusterShared)"
    r"|__(?:fadd2|fmul2|ffma2|fmaf_ieee)_r\w|__hcmadd|h2?tanh_approx|__prof_trigger|__pm[0-3]"
    r"|(?:__)?(?:j[01n]|y[01n]|norm|rnorm|norm4d|rnorm3d|rnorm4d|normcdf|normcdfinv|erfcinv|erfcx"
    r"|erfinv|cyl_bessel_i[01]|sinpi|cospi|sincospi|remquo|scalbln|nan|__tanh)f?"
    r"|__threadfence_cluster|clusterDim|clusterIdx|__barrier_sync(?:_count)?|__uni_sync"
)
_NO_HEAP = re.compile(r"(?P<place>\S+:\d+): undefined reference to `operator (?:new|delete)")


class OutOfTime(Exception):
    """The deadline passed before g++ had finished."""


class Compiler:
    """The g++ of this machine. Raises EnvironmentProblem if there is none or it is broken."""

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
        """The output of g++ --version."""
        try:
            code, out, errors = self._call(
                ["--version"], None, Path("/"), Deadline(VERSION_LIMIT_S)
            )
        except OutOfTime:
            raise EnvironmentProblem(
                f"{self.path} --version did not finish within {VERSION_LIMIT_S:g} s: {_ADVICE}"
            ) from None
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
        """Run g++ to create the file `output`; `text` is the standard input of g++. Raises
        BuildError for errors in the code, NotEmulated for a CUDA feature that the emulator lacks,
        OutOfTime at the deadline, and EnvironmentProblem if g++ is broken."""
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
        feature = missing_feature(errors)
        raise NotEmulated(feature) if feature else BuildError(_error_lines(errors))

    def stop(self) -> None:
        """Kill running compilations."""
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
                # Temporary files of a killed g++ are removed with the folder.
                env={**os.environ, "LC_ALL": "C", "TMPDIR": str(folder)},
                # So that its child processes can be killed too; a worker is killed as a group.
                process_group=None if parent_process() else 0,
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
            with process:  # closes its pipes
                pass
        return process.returncode, out, errors

    def _broken(self, code: int, errors: str) -> EnvironmentProblem:
        lines = [line for line in errors.splitlines() if line.strip()]
        crash = next((line for line in lines if _CRASH.search(line)), None)
        if code < 0:
            what = f"was ended by {signal.Signals(-code).name}"
        elif crash is not None:
            what = f"crashed ({crash.strip().rstrip('.')})"
        elif code == 0:
            what = "ended without an error and wrote no file"
        else:
            what = f"ended with code {code} ({lines[-1].strip() if lines else 'no message'})"
        return EnvironmentProblem(f"{self.path} {what}: {_ADVICE}")


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _error_lines(errors: str) -> str:
    """The error lines of g++ without warnings; of linker errors, one line per source line that
    refers to undefined symbols."""
    errors = errors.replace(_NO_EXCEPTIONS, f"throw {_NO_LIBRARY}")
    errors = _NO_HEADER.sub(rf"\g<0>: {_NO_HEADER_ADVICE}", errors)
    errors = _OLD_WARP.sub(
        r"error: \g<name> is of before CUDA 9, and no compiler has it any more: write "
        r"\g<name>_sync(0xffffffff, ...)", errors,
    )  # fmt: skip
    undefined: dict[str, list[str]] = {}
    for line in errors.splitlines():
        symbol = _UNDEFINED.match(line)
        if symbol:
            undefined.setdefault(symbol["place"], []).append(symbol["name"])
    lines = [f"{place}: error: {_explain_undefined(s)}" for place, s in undefined.items()]
    return "\n".join((lines or _without_warnings(errors))[:_SHOWN_LINES])


def _without_warnings(errors: str) -> list[str]:
    """The output of g++ without warnings and the notes that follow them."""
    kept, keep = [], True
    for line in errors.splitlines():
        message = re.search(r":\d+: (?P<kind>warning|error|fatal error|note): ", line)
        if message and message["kind"] != "note":
            keep = message["kind"] != "warning"
        if keep and not line.startswith(("cc1plus: ", "compilation terminated")):
            kept.append(line)
    return kept


def _explain_undefined(symbols: Sequence[str]) -> str:
    for feature, pattern in _CXX_LIBRARY.items():
        if any(re.match(pattern, symbol) for symbol in symbols):
            return f"{feature} {_NO_LIBRARY}"
    return f"{symbols[0]} is not defined"


def missing_feature(errors: str) -> str | None:
    """A message that names the CUDA feature that the emulator lacks, with file and line, if that
    causes the first error; None if the kernel itself is wrong."""
    error, heap = _ERROR.search(errors), _NO_HEAP.search(errors)
    if error is None and heap is not None:
        return f"{heap['place'].removeprefix('./')}: the emulator has no new and delete yet"
    if error is None:
        return None
    what = error["what"]
    if _PTX in what:
        return f"{error['place']}: cannot be decided here: {what}"
    header = _ABSENT_HEADER.match(what)
    if header is not None:
        known = _CUDA_HEADERS.match(header["name"])
        return f"{error['place']}: the emulator has no <{header['name']}> yet" if known else None
    for unknown in _UNKNOWN:
        match = unknown.search(what)
        if match is None:
            continue
        scope = match.groupdict().get("scope")
        if scope or _CUDA_NAMES.fullmatch(match["name"]):
            name = f"{scope}::{match['name']}" if scope else match["name"]
            return f"{error['place']}: the emulator has no {name} yet"
    return None
