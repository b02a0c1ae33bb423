"""Compiles kernels with nvcc through PyCUDA, and loads the machine code."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from math import inf
from os import cpu_count
from pathlib import Path
from typing import Any

import numpy as np

from cudareduce.backends.cuda import driver
from cudareduce.backends.cuda.driver_module import DriverModule, external_module, nvcc_text
from cudareduce.backends.protocol import Program, Source
from cudareduce.budget import Deadline
from cudareduce.cuda_source import NVCC_FLAGS, waits_for_grid, with_standard
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault
from cudareduce.machine import installed
from cudareduce.temporary import temporary_folder


class CudaProgram:
    """A loaded translation unit. `function` is PyCUDA's function object. It is None for cooperative
    kernels and external programs, which are launched through `driver_module`."""

    def __init__(
        self, pycuda_driver: Any, source: Source, cubin: bytes, module: Any,
        driver_module: DriverModule | None,
    ) -> None:  # fmt: skip
        self._driver, self._module, self.driver_module = pycuda_driver, module, driver_module
        self.entry, self.variables = source.entry, source.variables
        self.binary_sha = hashlib.sha256(cubin).hexdigest()
        self.function: Any = module.get_function(source.entry) if module else None

    def set_constant(self, name: str, *values: int) -> None:
        find = self.driver_module.variable if self.driver_module else self._module.get_global
        address, _ = find(name)
        self._driver.memcpy_htod(address, np.array(values, np.uint64))


class Modules:
    """Compiles kernels for one GPU in parallel, and loads them into the current context.

    Cubins are cached in memory, and between runs in the folder `cache`. A file with the hash of
    each cubin detects damage, since the driver crashes on damaged cubins.
    """

    def __init__(self, pycuda_driver: Any, device: Any, *, cache: Path | None) -> None:
        self._driver, self._device = pycuda_driver, device
        self._temporary = temporary_folder() if cache is None else None
        self._folder = Path(self._temporary.name if self._temporary else cache or "", "cubin")
        self._folder.mkdir(parents=True, exist_ok=True)
        for cubin, seal, sha in self._cached():
            if not seal.exists() or seal.read_text() != sha:
                cubin.unlink(missing_ok=True)
                seal.unlink(missing_ok=True)
        self._cubins: dict[str, bytes] = {}

    def _cached(self) -> Iterator[tuple[Path, Path, str]]:
        """Each cached cubin, the file with its expected hash, and its actual hash."""
        for cubin in self._folder.glob("*.cubin"):
            sha = hashlib.sha256(cubin.read_bytes()).hexdigest()
            yield cubin, cubin.with_suffix(".sha256"), sha

    def close(self) -> None:
        """Delete the cache if it is temporary."""
        if self._temporary:
            self._temporary.cleanup()

    def build(
        self, sources: Sequence[Source], progress: Callable[[], None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:  # fmt: skip
        """Compile and load sources in parallel; results are cached. The result is None for sources
        that were not compiled by the deadline. Raises EnvironmentProblem without nvcc."""

        def compiled(source: Source) -> bytes | BuildError:
            try:
                text = nvcc_text(source)
                return self._cubins.get(text) or self._compile(text)
            except BuildError as error:
                return error
            finally:
                progress()

        pool = ThreadPoolExecutor(cpu_count())
        try:
            running = [pool.submit(compiled, source) for source in sources]
            left_s = deadline.left_s if deadline else inf
            wait(running, None if left_s == inf else left_s)
        finally:  # PyCUDA offers no way to end a running nvcc
            pool.shutdown(wait=False, cancel_futures=True)
        for _, seal, sha in self._cached():
            if not seal.exists():
                seal.write_text(sha)
        return [
            self._load(source, future.result()) if future.done() else None
            for source, future in zip(sources, running, strict=True)
        ]

    @cached_property
    def _nvcc(self) -> tuple[str, str] | None:
        return next(installed("nvcc"), None)

    @property
    def nvcc_release(self) -> str | None:
        """The release of nvcc, such as 13.0; None without nvcc."""
        return ".".join(self._nvcc[1].split(".")[:2]) if self._nvcc else None

    def _compile(self, text: str) -> bytes:
        if self._nvcc is None:
            raise EnvironmentProblem(
                "nvcc was not found: install the CUDA toolkit and put its bin folder on the PATH, "
                "or pip install 'cudareduce[compile]'"
            )
        major, minor = self._device.compute_capability()
        try:
            return bytes(driver.compiler().compile(
                text, nvcc=self._nvcc[0], options=with_standard(NVCC_FLAGS, text), no_extern_c=True,
                arch=f"sm_{major}{minor}", cache_dir=str(self._folder),
            ))  # fmt: skip
        except self._driver.CompileError as error:
            errors = error.stderr or ""  # bytes if the preprocessor failed
            errors = errors.decode(errors="replace") if isinstance(errors, bytes) else errors
            lines = [line for line in errors.splitlines() if line.strip()]
            raise BuildError("\n".join(lines[:10]) or str(error)) from None

    def _load(self, source: Source, cubin: bytes | BuildError) -> Program | BuildError:
        if isinstance(cubin, BuildError):
            return cubin
        try:
            return self._program(source, cubin)
        except (self._driver.Error, KernelFault):  # a cached cubin may be damaged
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return self._program(source, self._compile(nvcc_text(source)))
        except (self._driver.Error, KernelFault) as error:
            return BuildError(f"{source.path}: the driver does not load {source.entry}: {error}")

    def _program(self, source: Source, cubin: bytes) -> Program:
        module, driver_module = None, None
        if source.kernels:
            driver_module = external_module(driver.library(), cubin, source)
        elif waits_for_grid(source.text):
            driver_module = DriverModule(driver.library(), cubin, [source.entry])
        else:
            module = driver.source_module(self._driver, cubin)
        self._cubins[nvcc_text(source)] = cubin
        return CudaProgram(self._driver, source, cubin, module, driver_module)
