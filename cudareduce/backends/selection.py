"""Selects and opens a backend: the GPU if there is a usable one, else the CPU emulator."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from cudareduce.backends.cuda.driver import has_driver
from cudareduce.backends.protocol import (
    TIMED_BACKENDS,
    Backend,
    BackendName,
    CountingBackend,
    TimedBackend,
)
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import user_dir

if TYPE_CHECKING:
    from cudareduce.backends.cuda.cuda import CudaBackend


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """The parameters with which this process or a child opens a backend.

    `cache` is the folder of compiled kernels; None means a temporary one. `hazards` turns on race
    detection in the emulator, `threads` is its number of OS threads, by default one per core.
    `bare` turns off guard bands and poisoning on the GPU, for tools such as compute-sanitizer.
    """

    name: BackendName
    device: int = 0
    cache: Path | None = None
    hazards: bool = False
    threads: int | None = None
    bare: bool = False

    @property
    def timed(self) -> bool:
        """True if launches on this backend can be timed."""
        return self.name in TIMED_BACKENDS

    def with_cache(self, folder: Path) -> BackendSpec:
        """A copy with this cache folder, if the backend is the emulator and has none."""
        return replace(self, cache=self.cache or folder) if self.name == "cpu" else self


def default_cache() -> Path:
    """The default folder of compiled kernels."""
    import platformdirs

    return user_dir(platformdirs.user_cache_dir)


def why_unusable(folder: Path) -> str | None:
    """The reason why a folder cannot be created or written to; None if it can."""
    if not folder.is_absolute():
        return "there is no home folder"
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with TemporaryFile(dir=existing):
            return None
    except OSError as error:
        return error.strerror


def choose_backend(
    wanted: str, device: int, use_cache: bool
) -> tuple[BackendSpec, tuple[str, ...]]:
    """The backend for `auto`, `cuda` or `cpu`, and remarks for the user: the reason why `auto` uses
    the CPU, or why nothing is cached. Raises EnvironmentProblem if `cuda` is not available."""
    cache, remarks = default_cache() if use_cache else None, []
    why = why_unusable(cache) if cache else None
    if why:
        remarks.append(
            f"Nothing is kept in {cache} ({why}): what is compiled goes to a temporary folder; set "
            "XDG_CACHE_HOME to a folder that can be written."
        )
        cache = None
    cuda, cpu = BackendSpec("cuda", device, cache), BackendSpec("cpu", cache=cache)
    if wanted == "cpu":
        return cpu, tuple(remarks)
    try:
        with open_cuda(cuda):
            return cuda, tuple(remarks)
    except EnvironmentProblem as problem:
        if wanted == "cuda":
            raise
        cause = f"No usable GPU: {problem}" if has_driver() else "No NVIDIA driver found"
        remarks.append(f"{cause}: running on the CPU emulator, results are checked, not timed.")
        if device:
            remarks.append(f"--device {device} has no effect: the CPU emulator uses no GPU.")
        return cpu, tuple(remarks)


def gpu_count() -> int:
    """The number of GPUs that the driver sees; 0 without driver or PyCUDA."""
    from cudareduce.backends.cuda import driver

    try:
        return int(driver.load().Device.count())
    except EnvironmentProblem:
        return 0


@contextmanager
def counting_emulator(cache: Path | None) -> Iterator[CountingBackend]:
    """Context manager for an emulator that counts memory accesses. Raises EnvironmentProblem
    without g++."""
    from cudareduce.backends.emulator.cpu import CpuBackend

    with CpuBackend(cache=cache, counts=True) as backend:
        yield backend


def emulator_beside(spec: BackendSpec) -> BackendSpec | None:
    """The parameters of the emulator: `spec` itself if it is of the emulator, else new ones with
    its cache; None without g++."""
    if not spec.timed:
        return spec
    return BackendSpec("cpu", cache=spec.cache) if shutil.which("g++") else None


def never_timed(wanted: str) -> bool:
    """True if --backend names a backend that cannot time launches on any machine."""
    return wanted == "cpu"


def open_cuda(spec: BackendSpec) -> CudaBackend:
    """The GPU of a spec. Raises EnvironmentProblem."""
    from cudareduce.backends.cuda.cuda import CudaBackend

    return CudaBackend(spec.device, cache=spec.cache, bare=spec.bare)


def open_timed(spec: BackendSpec) -> TimedBackend:
    """The GPU of a spec, as the protocol of timed backends. Raises EnvironmentProblem."""
    return open_cuda(spec)


def open_backend(spec: BackendSpec, *, catch_faults: bool = False) -> Backend:
    """Open a backend. With `catch_faults`, an invalid access on the emulator prints kernel and line
    before the process ends. Raises EnvironmentProblem."""
    if spec.name == "cuda":
        return open_cuda(spec)
    from cudareduce.backends.emulator.cpu import CpuBackend

    backend = CpuBackend(cache=spec.cache, hazards=spec.hazards, threads=spec.threads)
    if catch_faults:
        backend.catch_faults()
    return backend
