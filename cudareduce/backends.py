"""Which backend runs: the GPU where there is a usable one, else the CPU, and never in silence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cudareduce.backend import TIMED_BACKENDS, Backend, BackendName, TimedBackend
from cudareduce.errors import EnvironmentProblem

if TYPE_CHECKING:
    from cudareduce.gpu.cuda import CudaBackend


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """What it takes to open a backend, here or in a child process.

    `cache` is where the CPU backend keeps what it compiled; None is a folder that goes with the
    process. `hazards` chooses the emulator's build that watches every access.
    """

    name: BackendName
    device: int = 0
    cache: Path | None = None
    use_cache: bool = True
    hazards: bool = False

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

    return Path(platformdirs.user_cache_dir("cudareduce", appauthor=False))


def choose_backend(wanted: str, device: int, use_cache: bool) -> tuple[BackendSpec, str | None]:
    """The backend to use where `auto`, `cuda` or `cpu` is wanted, and where `auto` had to fall back
    the reason why. Raises EnvironmentProblem if `cuda` is wanted and cannot be had."""
    cuda = BackendSpec("cuda", device, use_cache=use_cache)
    cpu = BackendSpec("cpu", cache=default_cache() if use_cache else None, use_cache=use_cache)
    if wanted == "cpu":
        return cpu, None
    try:
        with open_cuda(cuda):
            return cuda, None
    except EnvironmentProblem as problem:
        if wanted == "cuda":
            raise
        return cpu, str(problem)


def open_timed(spec: BackendSpec) -> TimedBackend:
    """The GPU that a spec names, for what only a GPU can do. Raises EnvironmentProblem."""
    return open_cuda(spec)


def never_timed(wanted: str) -> bool:
    """True of a backend's name, as it is asked for, that can have no times."""
    return wanted == "cpu"


def open_cuda(spec: BackendSpec) -> CudaBackend:
    """The GPU that a spec names, through PyCUDA. Raises EnvironmentProblem."""
    from cudareduce.gpu.cuda import CudaBackend

    return CudaBackend(spec.device, cache=spec.use_cache)


def open_backend(spec: BackendSpec, *, catch_faults: bool = False) -> Backend:
    """Open a backend; `catch_faults` makes an invalid access on the CPU name its kernel. Raises
    EnvironmentProblem."""
    if spec.name == "cuda":
        return open_cuda(spec)
    from cudareduce.emulator.cpu import CpuBackend

    backend = CpuBackend(cache=spec.cache, hazards=spec.hazards)
    if catch_faults:
        backend.catch_faults()
    return backend
