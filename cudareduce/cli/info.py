"""The output of `info`: what this machine can run. Problems are reported as notes, not errors."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from cudareduce import __version__, machine
from cudareduce.analysis.profile.ncu import ADMINISTRATORS, ALLOW, INSTALL_NCU, counters
from cudareduce.backends.selection import BackendSpec, default_cache, open_timed, why_unusable
from cudareduce.errors import CudareduceError
from cudareduce.libraries.catalogue import libraries_here
from cudareduce.report.numbers import DASH
from cudareduce.report.section import Section

MISSING, ABSENT = "not found", "not installed"
#: Builds PyCUDA without curand, which is unused and cannot be linked from NVIDIA's packages.
BUILD_PYCUDA = (
    "pip install --config-settings=--global-option=--conf:CUDA_ENABLE_CURAND=False "
    "pycuda nvidia-ml-py"
)
#: Optional tools: their purpose, and how to install them.
_MORE = {
    "nvidia-ml-py": "clocks, power and throttling: pip install nvidia-ml-py",
    "cuda-bench": "comparing selftest with NVBench: pip install 'cudareduce[nvbench]'",
    "ncu": f"profile, which reads hardware counters: {INSTALL_NCU}",
    "compute-sanitizer": "verify --sanitize: the CUDA toolkit (Debian: apt-get install "
    "nvidia-cuda-toolkit)",
}


@dataclass(frozen=True, slots=True)
class GpuState:
    """The properties of a GPU, or the `problem`; reasons for throttling, the number of other
    processes on it, and why NVML reports nothing (`silent`)."""

    rows: tuple[tuple[str, str], ...] = ()
    problem: str | None = None
    name: str = ""
    throttled: tuple[str, ...] = ()
    others: int = 0
    silent: str | None = None


def notes(found: Mapping[str, str], gpu: GpuState, headers: Path | None) -> Iterator[str]:
    """How to install what is missing, most important first, and the verdict last."""
    if gpu.problem:
        yield f"{gpu.problem} Kernels are verified on the CPU and not timed."
    yield from _for_a_gpu(found, headers)
    if found["g++"] == MISSING:
        yield "No g++, which the CPU backend needs (Debian: apt-get install g++)."
    if found["ncu"] != MISSING and found["counters"] == ADMINISTRATORS and os.geteuid():
        yield f"{ALLOW}."
    if gpu.silent:
        yield f"{gpu.silent}."
    for name, text in _MORE.items():
        if found[name] in (MISSING, ABSENT):
            yield f"No {name}, for {text}"
    yield _verdict(found, gpu)


def _verdict(found: Mapping[str, str], gpu: GpuState) -> str:
    if gpu.problem:
        cpu = "ready" if found["g++"] != MISSING else "not ready"
        return f"Not ready to measure; {cpu} to verify on the CPU."
    why = [
        *(["nvcc is missing"] if found["nvcc"] == MISSING else []),
        *([f"the GPU is throttled ({', '.join(gpu.throttled)}): cool it, or raise its "
           "power limit"] if gpu.throttled else []),
        *([f"{gpu.others} other process{'es' * (gpu.others > 1)} on the GPU: wait, or choose "
           "another with --device"] if gpu.others else []),
    ]  # fmt: skip
    return f"Not ready to measure: {'; '.join(why)}." if why else f"Ready to measure on {gpu.name}."


def _for_a_gpu(found: Mapping[str, str], headers: Path | None) -> Iterator[str]:
    """How to install what a GPU needs."""
    if found["driver"] == MISSING:
        yield (
            "No driver: install NVIDIA's (580 or newer for CUDA 13), or start the container with "
            "GPU support (docker run --gpus all)."
        )
    if found["nvcc"] == MISSING:
        yield "No nvcc, which compiles kernels: pip install 'cudareduce[compile]'."
    if found["pycuda"] != ABSENT:
        return
    if headers is None:
        yield (
            "No cuda.h and cudaProfiler.h, which PyCUDA is built from: "
            "pip install 'cudareduce[compile]'."
        )
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        yield (
            "No Python.h, which PyCUDA is built from: install the headers of this Python (Debian: "
            "apt-get install python3-dev)."
        )
    where = f'CPATH="{headers}" ' if headers else ""
    yield f"No PyCUDA: {where}{BUILD_PYCUDA}"


_LIBRARIES = (
    "numpy", "pycuda", "nvidia-ml-py", "cuda-bench", "click", "rich",
    "tabulate",
)  # fmt: skip
_TOOLS = ("nvcc", "g++", "ncu", "compute-sanitizer")
Row = tuple[str, str]


def info_section(device: int) -> Section:
    rows = [("cudareduce", __version__), ("python", platform.python_version()), *_machine()]
    rows += [(name, _version(name)) for name in _LIBRARIES]
    with ThreadPoolExecutor(len(_TOOLS)) as pool:  # hanging tools time out together
        rows += zip(_TOOLS, pool.map(_tool, _TOOLS), strict=True)
    headers, driver = _cuda_headers(), _driver()
    rows += [("cuda.h", str(headers or MISSING)), ("driver", driver)]
    rows.append(("compiled kernels", _cache()))
    here, absent = libraries_here()
    libraries = f"{', '.join(here) or 'none'}; absent: {', '.join(absent) or 'none'}"
    rows.append(("libraries", libraries))
    rows.append(("counters", counters()))
    gpu = _gpu(device)
    rows += gpu.rows
    found = dict(rows)
    return Section(
        "This machine", ("what", "found"), tuple(rows), tuple(notes(found, gpu, headers)), 2
    )


def _machine() -> list[Row]:
    return [
        ("system", machine.system()),
        ("host", machine.host_name()),
        ("cpu", f"{machine.cpu_model()}, {machine.cpu_count()} cores for this process"),
        ("output", f"{sys.stdout.encoding}{', a terminal' if sys.stdout.isatty() else ''}"),
    ]


def _version(package: str) -> str:
    try:
        # None after an incomplete installation.
        return importlib.metadata.version(package) or "unknown version"
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def _tool(name: str) -> str:
    on_path = shutil.which(name)
    output = machine.run_version(on_path) if on_path else None
    if name == "nvcc" and (output is None or output.problem):
        packaged = next((path for path, _ in machine.installed("nvcc")), None)
        output = machine.run_version(packaged) if packaged else output
    if output is None:
        return MISSING
    where = f"{output.path}: " if output.path != on_path or output.problem else ""
    return where + (output.problem or _release(output.text))


def _release(text: str) -> str:
    """The line with the version, without control characters."""
    lines = [line.strip() for line in text.splitlines() if any(c.isdigit() for c in line)]
    releases = [line for line in lines if "release" in line]
    chosen = next(iter(releases + lines), "unknown version")
    return "".join(c for c in chosen if c.isprintable())[:120]


def _cuda_headers() -> Path | None:
    """The directory of the headers that PyCUDA is built from."""
    nvcc = shutil.which("nvcc")
    toolkit = [Path(nvcc).resolve().parent.parent / "include"] if nvcc else []
    packaged = [path.parent for path in machine.packaged("include/cuda.h")]
    for folder in (*toolkit, Path("/usr/local/cuda/include"), Path("/usr/include"), *packaged):
        if (folder / "cuda.h").is_file() and (folder / "cudaProfiler.h").is_file():
            return folder
    return None


def _driver() -> str:
    version = ctypes.c_int()
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return MISSING
    if failed:
        return f"libcuda.so.1 fails with error {failed}"
    return f"for CUDA up to {version.value // 1000}.{version.value % 1000 // 10}"


def _cache() -> str:
    folder = default_cache()
    why = why_unusable(folder)
    if why is None:
        return str(folder)
    return f"{folder}: cannot be written ({why}); set XDG_CACHE_HOME to a writable directory"


def _gpu(device: int) -> GpuState:
    try:
        with open_timed(BackendSpec("cuda", device)) as backend:
            facts, monitor = backend.info(), backend.monitor()
            now, others = monitor.read(), monitor.other_processes()
    except CudareduceError as problem:
        # Without PyCUDA the message would only refer to `cudareduce info`.
        reason = "" if _version("pycuda") == ABSENT else f": {problem}"
        return GpuState((("gpu", "none usable"),), f"No GPU{reason}.")
    except Exception as error:  # a broken PyCUDA may raise anything
        problem_text = f"No GPU: {type(error).__name__} in PyCUDA: {error}."
        return GpuState((("gpu", "none usable"),), problem_text)
    values = {**asdict(facts), "sm_mhz": now.sm_mhz, "memory_mhz": now.memory_mhz,
            "power_w": now.power_w, "temperature_c": now.temperature_c,
            "throttled": ", ".join(now.throttled) or "no", "other processes": others}  # fmt: skip
    rows = tuple((f"gpu {key}", DASH if v is None else str(v)) for key, v in values.items())
    return GpuState(rows, None, facts.name, now.throttled, others, monitor.problem)
