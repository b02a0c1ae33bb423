"""nvcc through PyCUDA, and modules loaded from what it makes."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property
from math import inf
from os import cpu_count
from pathlib import Path
from typing import Any, cast

import numpy as np

from cudareduce.backend import Launch, Program, Source
from cudareduce.budget import Deadline
from cudareduce.cuda_source import NVCC_FLAGS, in_standard, meets, parsed, without_comments
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault, TooManyBlocks
from cudareduce.gpu import driver
from cudareduce.gpu.driver import explained
from cudareduce.gpu.external_module import ExternalModule, compiled_text
from cudareduce.machine.host import installed
from cudareduce.reduction.sizes import counted
from cudareduce.temporary import temporary_folder


def waits_for_grid(unit: str) -> bool:
    """Whether blocks wait for their whole grid in the text of a translation unit."""
    return meets(without_comments(parsed(unit)))


class CooperativeFunction:
    """A kernel of a module of its own, loaded from machine code. Raises KernelFault where the
    driver refuses."""

    def __init__(self, library: Any, cubin: bytes, entry: str) -> None:
        self._library = library
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        name = entry.encode()
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise KernelFault(f"the driver refuses {name} ({explained(self._library, code)})")

    def set_constant(self, name: str, *values: int) -> None:
        """Set a `__constant__`, words of 64 bits."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        held = (ctypes.c_uint64 * len(values))(*values)
        self._call(
            "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), self._module,
            name.encode(),
        )  # fmt: skip
        self._call(
            "cuMemcpyHtoD_v2", address, ctypes.byref(held), ctypes.c_size_t(ctypes.sizeof(held))
        )

    def launcher(
        self, grid: int, block: int, arguments: Sequence[tuple[int, ...]], shared: int, stream: int,
        sm_count: int,
    ) -> Launch:  # fmt: skip
        """A ready launch with arguments by their 64-bit words. Raises TooManyBlocks if the GPU,
        which has `sm_count` multiprocessors, does not hold all blocks at one time."""
        each = ctypes.c_int()
        self._call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", ctypes.byref(each), self._function,
            block, ctypes.c_size_t(shared),
        )  # fmt: skip
        most = each.value * sm_count
        if grid > most:
            raise TooManyBlocks(
                f"it waits for its whole grid, and of its {counted(grid, 'block')} of {block} "
                f"threads this GPU holds {most} at one time: launch fewer, with --grid or with "
                "fixed_grid in its header"
            )
        held = [(ctypes.c_uint64 * len(words))(*words) for words in arguments]
        places = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))

        def launch() -> None:
            _ = held
            self._call(
                "cuLaunchCooperativeKernel", self._function, grid, 1, 1, block, 1, 1, shared,
                ctypes.c_void_p(stream), places,
            )  # fmt: skip

        return launch


class CudaProgram:
    """A module loaded from a cubin; `cooperative` is what launches its kernel where that waits for
    its grid, `external` what holds the kernels of an external program."""

    def __init__(
        self,
        driver: Any,
        module: Any,
        entry: str,
        binary_sha: str,
        cooperative: CooperativeFunction | None = None,
        external: ExternalModule | None = None,
    ) -> None:
        self._driver, self._module = driver, module
        self.entry, self.binary_sha = entry, binary_sha
        self.external, self.cooperative = external, cooperative
        self.function = None if external else module.get_function(entry)

    def set_constant(self, name: str, *values: int) -> None:
        if self.cooperative:
            self.cooperative.set_constant(name, *values)
            return
        address, _ = self._module.get_global(name)
        self._driver.memcpy_htod(address, np.array(values, np.uint64))


def _text_of(source: Source) -> str:
    """What nvcc compiles."""
    return compiled_text(source) if source.kernels else source.text


def _hash_of(cubin: Path) -> tuple[Path, str]:
    """Where the hash of a kept cubin stands, and what it should be."""
    return cubin.with_suffix(".sha256"), hashlib.sha256(cubin.read_bytes()).hexdigest()


def _seal(folder: Path) -> None:
    """Write the hash of every cubin beside it that has none yet."""
    for cubin in folder.glob("*.cubin"):
        place, value = _hash_of(cubin)
        if not place.exists():
            place.write_text(value)


def _drop_damaged(folder: Path) -> None:
    """Remove cubins that are not what was written: of a damaged one the driver dies."""
    for cubin in folder.glob("*.cubin"):
        place, value = _hash_of(cubin)
        if not place.exists() or place.read_text() != value:
            for kept in (cubin, place):
                kept.unlink(missing_ok=True)


class Modules:
    """Compiles for one GPU, in parallel, and loads into whichever context is current.

    Machine code is kept for as long as this lives; PyCUDA keeps it between runs too, in the folder
    `cache`, if one is given.
    """

    def __init__(self, pycuda_driver: Any, device: Any, *, cache: Path | None) -> None:
        self._driver, self._device = pycuda_driver, device
        self._temporary = temporary_folder() if cache is None else None
        self._folder = (
            Path(self._temporary.name) if self._temporary else cast(Path, cache) / "cubin"
        )
        self._folder.mkdir(parents=True, exist_ok=True)
        _drop_damaged(self._folder)
        self._cubins: dict[str, bytes] = {}

    def close(self) -> None:
        """Remove what was compiled for this run alone."""
        if self._temporary:
            self._temporary.cleanup()

    def build(
        self,
        sources: Sequence[Source],
        progress: Callable[[], None] = lambda: None,
        deadline: Deadline | None = None,
    ) -> list[Program | BuildError | None]:
        """nvcc for all sources in parallel through PyCUDA's cache; a SourceModule of each, None for
        what there was no time for. Raises EnvironmentProblem without nvcc."""

        def compiled(source: Source) -> bytes | BuildError:
            try:
                text = _text_of(source)
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
        finally:  # an nvcc that runs cannot be ended: it is left alone
            pool.shutdown(wait=False, cancel_futures=True)
        _seal(self._folder)
        return [
            self._loaded(source, future.result()) if future.done() else None
            for source, future in zip(sources, running, strict=True)
        ]

    def _loaded(self, source: Source, cubin: bytes | BuildError) -> Program | BuildError:
        return cubin if isinstance(cubin, BuildError) else self._load(source, cubin)

    @cached_property
    def _nvcc(self) -> tuple[str, str] | None:
        return next(installed("nvcc"), None)

    @property
    def nvcc_release(self) -> str | None:
        """The release of the compiler, such as 13.0; None where there is none."""
        return ".".join(self._nvcc[1].split(".")[:2]) if self._nvcc else None

    def _options(self, code: str) -> dict[str, Any]:
        if self._nvcc is None:
            raise EnvironmentProblem(
                "nvcc was not found: install the CUDA toolkit and put its bin folder on the PATH, "
                "or pip install 'cudareduce[compile]'"
            )
        major, minor = self._device.compute_capability()
        return {
            "nvcc": self._nvcc[0],
            "options": in_standard(NVCC_FLAGS, code),
            "no_extern_c": True,
            "arch": f"sm_{major}{minor}",
            "cache_dir": str(self._folder),
        }

    def _compile(self, text: str) -> bytes:
        try:
            return bytes(driver.compiler().compile(text, **self._options(text)))
        except self._driver.CompileError as error:
            said = error.stderr or ""  # PyCUDA leaves it in bytes where the preprocessor fails
            said = said.decode(errors="replace") if isinstance(said, bytes) else said
            lines = [line for line in said.splitlines() if line.strip()]
            raise BuildError("\n".join(lines[:10]) or str(error)) from None

    def _load(self, source: Source, cubin: bytes) -> Program | BuildError:
        try:
            return self._program(source, cubin)
        except self._driver.Error:  # what was kept between runs may be damaged
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
        try:
            return self._program(source, self._compile(_text_of(source)))
        except (self._driver.Error, KernelFault) as error:
            return BuildError(f"{source.path}: the driver does not load {source.entry}: {error}")

    def _program(self, source: Source, cubin: bytes) -> Program:
        if source.kernels:
            self._cubins[_text_of(source)] = cubin
            sha = hashlib.sha256(cubin).hexdigest()
            external = ExternalModule(driver.library(), cubin, source)
            return CudaProgram(self._driver, None, source.entry, sha, external=external)
        module = driver.source_module(self._driver, cubin)
        self._cubins[source.text] = cubin
        sha = hashlib.sha256(cubin).hexdigest()
        cooperative = None
        if waits_for_grid(source.text):
            cooperative = CooperativeFunction(driver.library(), cubin, source.entry)
        return CudaProgram(self._driver, module, source.entry, sha, cooperative)
