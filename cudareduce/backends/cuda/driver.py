"""Imports PyCUDA and loads the driver library, with a message for each cause of failure. No other
module imports PyCUDA."""

from __future__ import annotations

import ctypes
import warnings
from functools import cache
from importlib import import_module
from typing import Any

from cudareduce.errors import EnvironmentProblem

#: Limit in bytes of dynamic shared memory per block without cuFuncSetAttribute.
DEFAULT_SHARED = 48 * 1024
#: Rebuilds PyCUDA without pip's cache of built wheels.
_REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir pycuda"


def load() -> Any:
    """Import and initialise pycuda.driver. Raises EnvironmentProblem with the cause of failure."""
    try:
        import pycuda.driver as driver
    except ImportError as error:
        raise EnvironmentProblem(_why_not(error)) from None
    try:
        driver.init()
    except driver.Error as error:
        raise EnvironmentProblem(
            f"the CUDA driver does not start ({error}): check nvidia-smi"
        ) from None
    return driver


def compiler() -> Any:
    """Import pycuda.compiler without the warnings of nvcc. Call `load` first."""
    import pycuda.compiler

    warnings.filterwarnings("ignore", "The CUDA compiler succeeded, but said", UserWarning)
    return pycuda.compiler


def source_module(driver: Any, cubin: bytes) -> Any:
    """A PyCUDA SourceModule that loads machine code. PyCUDA's own constructor takes source text and
    runs nvcc's preprocessor for its cache key, which takes 0.3 s per kernel, not in parallel."""

    class Compiled(compiler().SourceModule):  # type: ignore[misc]
        def __init__(self) -> None:
            self.module = driver.module_from_buffer(cubin)
            self._bind_module()

    return Compiled()


def has_driver() -> bool:
    """True if the NVIDIA driver is installed, as far as this process sees."""
    try:
        library()
    except OSError:
        return False
    return True


@cache
def library() -> ctypes.CDLL:
    """The CUDA driver library, for functions that PyCUDA does not wrap. They use the current
    context. Call `load` first."""
    return ctypes.CDLL("libcuda.so.1")


def explained(library: Any, code: int) -> str:
    """The driver's description of an error code."""
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"CUDA error {code}: {(text.value or b'').decode()}"


def why_refused(library: Any, name: str, *arguments: Any) -> str | None:
    """Call a function of the driver library. Returns its error as text, None if it succeeds."""
    code = getattr(library, name)(*arguments)
    return f"the driver refuses {name} ({explained(library, code)})" if code else None


def submodule(name: str) -> Any:
    """Import another submodule of PyCUDA. Raises ImportError."""
    return import_module(f"pycuda.{name}")


def release() -> str:
    """PyCUDA's version. Raises ImportError."""
    return str(import_module("pycuda").VERSION_TEXT)


def _why_not(error: ImportError) -> str:
    """The cause of a failed import of PyCUDA, with a remedy."""
    if isinstance(error, ModuleNotFoundError) and str(error.name).startswith("pycuda"):
        return (
            "PyCUDA is not installed: `cudareduce info` has the command, and says what else the "
            "GPU needs"
        )
    if "libcuda.so" in str(error):
        return (
            "libcuda.so.1 was not found: install the NVIDIA driver, or start the container "
            "with GPU support"
        )
    if "undefined symbol: cu" in str(error):
        return (
            f"PyCUDA cannot be loaded ({error}): the NVIDIA driver is older than the CUDA headers "
            f"it was built with, so update the driver, or build PyCUDA again: {_REBUILD}"
        )
    return f"PyCUDA cannot be loaded ({error}): build it again: {_REBUILD}"
