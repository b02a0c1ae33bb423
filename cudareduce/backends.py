"""Which backend runs: the GPU where there is a usable one, else the CPU, and never in silence."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from cudareduce.backend import TIMED_BACKENDS, Backend, BackendName, CountingBackend, TimedBackend
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine.host import user_dir

if TYPE_CHECKING:
    from cudareduce.gpu.cuda import CudaBackend


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """What it takes to open a backend, here or in a child process.

    `cache` is where what it compiles is kept; None is a folder that goes with the process.
    `hazards` chooses the emulator's build that watches every access, `threads` is how many
    processors the emulator uses, by default all. `bare` leaves memory on the GPU to tools that
    watch it.
    """

    name: BackendName
    device: int = 0
    cache: Path | None = None
    hazards: bool = False
    threads: int | None = None
    bare: bool = False

    @property
    def timed(self) -> bool:
        """True if its launches can be timed."""
        return self.name in TIMED_BACKENDS

    def with_cache(self, folder: Path) -> BackendSpec:
        """This one, which keeps what it compiles there if it has no place of its own for it."""
        return replace(self, cache=self.cache or folder) if self.name == "cpu" else self


def default_cache() -> Path:
    """Where compiled kernels are kept between runs."""
    import platformdirs

    return user_dir(platformdirs.user_cache_dir)


def why_unusable(folder: Path) -> str | None:
    """Why nothing can be kept in a folder, or it cannot be made; None if it can. Nothing is left
    there."""
    if not folder.is_absolute():
        return "there is no home folder"
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with TemporaryFile(dir=there):
            return None
    except OSError as error:
        return error.strerror


def choose_backend(
    wanted: str, device: int, use_cache: bool
) -> tuple[BackendSpec, tuple[str, ...]]:
    """The backend to use where `auto`, `cuda` or `cpu` is wanted, and remarks: why `auto` had to
    fall back, why nothing is kept. Raises EnvironmentProblem if `cuda` is wanted and cannot be
    had."""
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
        remarks.append(
            f"No usable GPU: {problem}. Kernels run on the CPU emulator: answers are checked, "
            "nothing is timed."
        )
        return cpu, tuple(remarks)


def gpu_count() -> int:
    """How many GPUs the driver sees; 0 without one, or without PyCUDA."""
    from cudareduce.gpu import driver

    try:
        return int(driver.load().Device.count())
    except EnvironmentProblem:
        return 0


@contextmanager
def counting_emulator(cache: Path | None) -> Iterator[CountingBackend]:
    """The emulator's build that counts what warps ask of memory. Raises EnvironmentProblem without
    g++."""
    from cudareduce.emulator.cpu import CpuBackend

    with CpuBackend(cache=cache, counts=True) as backend:
        yield backend


def open_timed(spec: BackendSpec) -> TimedBackend:
    """The GPU that a spec names, for what only a GPU can do. Raises EnvironmentProblem."""
    return open_cuda(spec)


def emulator_beside(spec: BackendSpec) -> BackendSpec | None:
    """The emulator: that of a spec or, beside a GPU, one that keeps what it compiles in the same
    place; None where no g++ is found."""
    if not spec.timed:
        return spec
    return BackendSpec("cpu", cache=spec.cache) if shutil.which("g++") else None


def never_timed(wanted: str) -> bool:
    """True of a backend's name, as it is asked for, that can have no times."""
    return wanted == "cpu"


def open_cuda(spec: BackendSpec) -> CudaBackend:
    """The GPU that a spec names, through PyCUDA. Raises EnvironmentProblem."""
    from cudareduce.gpu.cuda import CudaBackend

    return CudaBackend(spec.device, cache=spec.cache, bare=spec.bare)


def open_backend(spec: BackendSpec, *, catch_faults: bool = False) -> Backend:
    """Open a backend; `catch_faults` makes an invalid access on the CPU name its kernel. Raises
    EnvironmentProblem."""
    if spec.name == "cuda":
        return open_cuda(spec)
    from cudareduce.emulator.cpu import CpuBackend

    backend = CpuBackend(cache=spec.cache, hazards=spec.hazards, threads=spec.threads)
    if catch_faults:
        backend.catch_faults()
    return backend
