"""The machine besides its GPU: processor, name, and what its tools say of themselves."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer

#: A compiler tells its version in a fraction of a second; one that is broken may never end.
ANSWER_LIMIT_S = 10.0
#: No tool has more to say of its version; a broken one may never stop talking.
_MOST_BYTES = 64 << 10


def user_dir(find: Callable[..., str]) -> Path:
    """The folder of the user's that a function of platformdirs names; where there is no home, and
    nothing in its place, a path that is not absolute."""
    try:
        return Path(find("cudareduce", appauthor=False))
    except RuntimeError:  # Path.expanduser, which found none
        return Path("~")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool printed when asked for its version; `problem` says in words why that is not to be
    relied upon."""

    path: str
    text: str
    problem: str | None = None


def ask(path: str, limit_s: float = ANSWER_LIMIT_S) -> Answer:
    """Run a tool with --version; nothing that it does, or does not do, raises."""
    try:
        process = subprocess.Popen(
            [path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Answer(path, "", f"cannot be run: {error.strerror}")

    def end() -> None:
        # A wrapper's own children hold the pipe open when only the wrapper is ended.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    began, timer = time.monotonic(), Timer(limit_s, end)
    timer.start()
    with process:
        assert process.stdout is not None
        text = process.stdout.read(_MOST_BYTES).decode("utf-8", "replace")
        process.stdout.close()
        code = process.wait()
        timer.cancel()
    if time.monotonic() - began >= limit_s:
        return Answer(path, text, f"does not answer within {limit_s:g} s")
    if code:
        return Answer(path, text, f"exits with {code}")
    if not text.strip():
        return Answer(path, text, "says nothing")
    return Answer(path, text)


def installed(tool: str) -> Iterator[tuple[str, str]]:
    """Paths and versions of a tool of the CUDA toolkit: on the PATH, then from its PyPI package,
    which puts it where no PATH leads. One that does not work is passed over."""
    on_path = shutil.which(tool)
    for path in [*([on_path] if on_path else []), *map(str, packaged(f"bin/{tool}"))]:
        answer = ask(path)
        version = re.search(r"\bV(\d+(?:\.\d+)+)", answer.text)
        if version and not answer.problem:
            yield path, version[1]


def packaged(path: str) -> list[Path]:
    """A file of the CUDA toolkit in NVIDIA's PyPI packages, wherever they are installed."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or ()) if package else []
    return [found for folder in folders for found in sorted(Path(folder).glob(f"*/{path}"))]


def cpu_model() -> str:
    """The processor's name; where the kernel does not tell it, its architecture."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        named = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(\S.*)$", text, re.MULTILINE)
        if named:
            return " ".join(named[1].split())
    return platform.processor() or platform.machine() or "unknown"


def cpu_count() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def host_name() -> str:
    """What the machine calls itself."""
    return platform.node() or "unknown"


def system() -> str:
    """The distribution and its kernel."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}"


def compiler_version() -> str | None:
    """The first line that g++ says of its version; None where it is not found or does not work."""
    path = shutil.which("g++")
    answer = ask(path) if path else None
    return answer.text.strip().splitlines()[0] if answer and not answer.problem else None
