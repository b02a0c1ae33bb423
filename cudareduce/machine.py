"""Facts about this machine: host, packages, caches, GPUs and their clocks."""

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

#: Time limit of `TOOL --version` in seconds: a broken tool may never end.
VERSION_LIMIT_S = 10.0
#: Limit of the output of `TOOL --version` in bytes: a broken tool may print without end.
_MOST_BYTES = 64 << 10


def user_dir(find: Callable[..., str]) -> Path:
    """The user's folder for this program, from a function of platformdirs such as user_cache_path.
    Without a home directory, a relative path."""
    try:
        return Path(find("cudareduce", appauthor=False))
    except RuntimeError:  # from Path.expanduser
        return Path("~")


@dataclass(frozen=True, slots=True)
class VersionOutput:
    """The output of `TOOL --version`. `problem` is the reason why the tool does not work, None if
    it works."""

    path: str
    text: str
    problem: str | None = None


def run_version(path: str, limit_s: float = VERSION_LIMIT_S) -> VersionOutput:
    """Run a tool with --version. Never raises: failures are in the result's `problem`."""
    try:
        process = subprocess.Popen(
            [path, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return VersionOutput(path, "", f"cannot be run: {error.strerror}")

    def end() -> None:
        # Kill the process group, since children of a wrapper script would keep the pipe open.
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
        return VersionOutput(path, text, f"does not end within {limit_s:g} s")
    if code:
        return VersionOutput(path, text, f"exits with {code}")
    if not text.strip():
        return VersionOutput(path, text, "prints nothing")
    return VersionOutput(path, text)


def installed(tool: str) -> Iterator[tuple[str, str]]:
    """Paths and versions of the working copies of a CUDA toolkit program: first on PATH, then in
    its PyPI package, whose folder is not on PATH."""
    on_path = shutil.which(tool)
    for path in [*([on_path] if on_path else []), *map(str, packaged(f"bin/{tool}"))]:
        output = run_version(path)
        version = re.search(r"\bV(\d+(?:\.\d+)+)", output.text)
        if version and not output.problem:
            yield path, version[1]


def packaged(path: str) -> list[Path]:
    """The paths of a CUDA toolkit file in installed PyPI packages of NVIDIA."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or ()) if package else []
    return [file for folder in folders for file in sorted(Path(folder).glob(f"*/{path}"))]


def cpu_model() -> str:
    """The processor's model name, or its architecture if /proc/cpuinfo has no name."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        name = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(\S.*)$", text, re.MULTILINE)
        if name:
            return " ".join(name[1].split())
    return platform.processor() or platform.machine() or "unknown"


def cpu_count() -> int:
    """The number of cores that this process may use (CPU affinity)."""
    return len(os.sched_getaffinity(0))


def host_name() -> str:
    return platform.node() or "unknown"


def system() -> str:
    """The distribution, and the version of the operating system kernel."""
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        name = platform.system()
    return f"{name}, {platform.system()} {platform.release()}"


def compiler_version() -> str | None:
    """The first line of g++ --version; None if g++ is missing or does not work."""
    path = shutil.which("g++")
    output = run_version(path) if path else None
    return output.text.strip().splitlines()[0] if output and not output.problem else None


#: The resolution of times between two CUDA events: all times measured on an H200 are multiples.
EVENT_TICK_US = 0.032


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The properties of a device that launch shapes depend on."""

    sm_count: int
    threads_per_sm: int


#: The limits of an H200, used where there is no GPU.
DEFAULT_LIMITS = DeviceLimits(sm_count=132, threads_per_sm=2048)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The device as recorded in result files, with the fields of `schema.DEVICE_FIELDS`; None is
    unknown.

    `peak_gb_s` is the theoretical bandwidth: twice the memory clock (two transfers per cycle) times
    the bus width. `host` is the machine's host name. On the emulator, `cpu` is the processor model
    and `gxx` the first line of g++ --version.
    """

    name: str
    cc: str | None = None
    sm_count: int | None = None
    threads_per_sm: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    memory_clock_khz: int | None = None
    bus_bits: int | None = None
    peak_gb_s: float | None = None
    uuid: str | None = None
    ecc: bool | None = None
    mig: bool | None = None
    power_limit_w: float | None = None
    driver: str | None = None
    cuda: str | None = None
    nvcc: str | None = None
    cpu: str | None = None
    host: str | None = None
    gxx: str | None = None


def theoretical_gb_s(memory_clock_khz: int, bus_bits: int) -> float | None:
    """The theoretical bandwidth in GB/s, from the clock and bus width that the driver reports; None
    if it reports 0, as on some boards."""
    return 2 * memory_clock_khz * bus_bits / 8 / 1e6 or None


#: NVML's clock event reasons that are throttling, by the bits in nvml.h.
_THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The state of a GPU at one moment, or over a round; None is unknown. `reasons` are the bits of
    NVML's clock event reasons."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    reasons: int | None = None

    @property
    def throttled(self) -> tuple[str, ...]:
        """The reasons why the GPU throttled its clocks, as texts; empty if it did not."""
        return tuple(text for bit, text in _THROTTLES.items() if (self.reasons or 0) & bit)


#: The fraction of available memory that may be used.
_MEMORY_FRACTION = 0.9


def why_too_large(nbytes: int) -> str | None:
    """Why `nbytes` do not fit into host memory; None if they fit or the free memory is unknown."""
    available = available_bytes()
    if available is None or nbytes < available * _MEMORY_FRACTION:
        return None
    return f"needs {nbytes / 2**30:.1f} GiB of host memory, {available / 2**30:.1f} GiB available"


def available_bytes() -> int | None:
    """The memory that Linux reports as available without swapping, in bytes; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return int(kib) * 1024 if kib else None
