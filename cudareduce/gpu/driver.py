"""PyCUDA, or in words what keeps it from being there: the only module that imports it."""

from __future__ import annotations

from typing import Any

from cudareduce.errors import EnvironmentProblem


def load() -> Any:
    """PyCUDA's driver module, initialised; each way it can be missing is an EnvironmentProblem with
    its own message."""
    try:
        import pycuda.driver as driver
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("pycuda"):
            raise EnvironmentProblem(
                "PyCUDA is not installed: pip install 'cudareduce[cuda]' (it builds against the "
                "CUDA toolkit's headers)"
            ) from None
        raise
    except ImportError as error:
        if "libcuda" in str(error):
            raise EnvironmentProblem(
                "libcuda.so.1 was not found: install the NVIDIA driver, or start the container "
                "with GPU support"
            ) from None
        raise EnvironmentProblem(
            f"PyCUDA cannot be loaded ({error}): build it again against the installed CUDA toolkit "
            "with pip install --force-reinstall --no-binary :all: pycuda"
        ) from None
    try:
        driver.init()
    except driver.Error as error:
        raise EnvironmentProblem(
            f"the CUDA driver does not start ({error}): check nvidia-smi"
        ) from None
    return driver


def compiler() -> Any:
    """PyCUDA's compiler module; `load` comes first and says what is missing."""
    import pycuda.compiler

    return pycuda.compiler


def nvcc_version() -> str | None:
    """The release of the nvcc on the PATH; None where there is none."""
    from pytools.prefork import ExecError

    try:
        words = str(compiler().get_nvcc_version("nvcc")).split()
    except ExecError:
        return None
    return words[words.index("release") + 1].rstrip(",") if "release" in words else None
