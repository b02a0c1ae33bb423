"""PyCUDA, or in words what keeps it from being there: the only module that imports it."""

from __future__ import annotations

import ctypes
import warnings
from functools import cache
from importlib import import_module
from typing import Any

from cudareduce.errors import EnvironmentProblem

#: There is no wheel of PyCUDA but the one that pip made and keeps.
REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir pycuda"


def load() -> Any:
    """PyCUDA's driver module, initialised; each way it can be missing is an EnvironmentProblem with
    its own message."""
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
    """PyCUDA's compiler module, which does not tell what nvcc only warns of; `load` comes first and
    says what is missing."""
    import pycuda.compiler

    warnings.filterwarnings("ignore", "The CUDA compiler succeeded, but said", UserWarning)
    return pycuda.compiler


def source_module(driver: Any, cubin: bytes) -> Any:
    """A SourceModule of what `compiler` has made of a text. Of the text itself PyCUDA would ask
    nvcc's preprocessor again whether it knows it, 0.3 s for one kernel after the other."""

    class Compiled(compiler().SourceModule):  # type: ignore[misc]
        def __init__(self) -> None:
            self.module = driver.module_from_buffer(cubin)
            self._bind_module()

    return Compiled()


@cache
def library() -> ctypes.CDLL:
    """The driver's own library, for what PyCUDA does not wrap; `load` comes first and says what is
    missing. Its functions act on the context that is current."""
    return ctypes.CDLL("libcuda.so.1")


def explained(library: Any, code: int) -> str:
    """What the driver means by the `code` that one of its library's functions returned."""
    text = ctypes.c_char_p()
    library.cuGetErrorString(code, ctypes.byref(text))
    return f"CUDA error {code}: {(text.value or b'').decode()}"


def reset_persisting_l2() -> None:
    """Make lines of the L2 that a kernel has marked to persist ordinary ones. A GPU that has no
    such lines, before compute capability 8.0, refuses, which is as good."""
    library().cuCtxResetPersistingL2Cache()


def submodule(name: str) -> Any:
    """A part of PyCUDA besides the driver's; raises ImportError where it is not here."""
    return import_module(f"pycuda.{name}")


def release() -> str:
    """PyCUDA's own version; raises ImportError where it is not here."""
    return str(import_module("pycuda").VERSION_TEXT)


def _why_not(error: ImportError) -> str:
    """What keeps PyCUDA from being imported, and what to do about it."""
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
            f"it was built with, so update the driver, or build PyCUDA again: {REBUILD}"
        )
    return f"PyCUDA cannot be loaded ({error}): build it again: {REBUILD}"
