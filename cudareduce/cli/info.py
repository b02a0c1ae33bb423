"""What this machine can run, in words: the first thing to look at when something is missing."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from dataclasses import asdict

from cudareduce import __version__
from cudareduce.backends import BackendSpec, default_cache, open_timed
from cudareduce.errors import EnvironmentProblem
from cudareduce.report.numbers import DASH
from cudareduce.report.sections import Section

_LIBRARIES = (
    "numpy", "pycuda", "nvidia-ml-py", "cuda-bindings", "cuda-bench", "scipy", "click", "rich",
    "tabulate",
)  # fmt: skip


def info_section(device: int) -> Section:
    """GPU, driver, compilers, libraries, and what to do about what is missing."""
    rows = [("cudareduce", __version__), ("python", platform.python_version())]
    rows += [(name, _version(name)) for name in _LIBRARIES]
    rows += [(name, _tool(name)) for name in ("nvcc", "g++", "ncu", "compute-sanitizer")]
    rows.append(("compiled kernels", str(default_cache())))
    notes = []
    try:
        with open_timed(BackendSpec("cuda", device)) as backend:
            facts = asdict(backend.info())
        rows += [(f"gpu {key}", DASH if v is None else str(v)) for key, v in facts.items()]
    except EnvironmentProblem as problem:
        rows.append(("gpu", "none usable"))
        notes.append(f"No GPU: {problem}. Kernels are verified on the CPU, nothing is timed.")
    if shutil.which("g++") is None:
        notes.append("No g++: the CPU backend needs it (Debian: apt-get install g++).")
    return Section("This machine", ("what", "found"), tuple(rows), tuple(notes), 2)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        return "not found"
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    lines = [line for line in said.splitlines() if any(c.isdigit() for c in line)]
    release = [line for line in lines if "release" in line] or lines
    return release[0].strip() if release else path
