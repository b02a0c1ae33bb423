"""Stream gates and CUDA graphs through cuda-bindings, which alone this module imports, on demand.

The driver's functions act on the context that PyCUDA has made current; streams are passed as
handles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudareduce.backend import Launch
from cudareduce.errors import EnvironmentProblem


def load() -> Any:
    """The driver's functions. Raises EnvironmentProblem if cuda-bindings is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EnvironmentProblem(
            f"--timing warm, --graph and collective need cuda-bindings ({error}): "
            "pip install 'cudareduce[graph]', or time cold launches of one GPU"
        ) from None
    return driver


def _checked(driver: Any, name: str, *arguments: Any) -> Any:
    """Call a function of the driver; its result. Raises EnvironmentProblem for an error code."""
    code, *values = getattr(driver, name)(*arguments)
    if int(code) != 0:
        raise EnvironmentProblem(
            f"the driver refuses {name} ({getattr(code, 'name', code)}): time cold launches instead"
        )
    return values[0] if values else None


class StreamGate:
    """A `Gate`: the stream waits until a `word` of host memory, at `address` on the GPU, reaches
    the number of gates closed so far, so a late opening never opens the next gate. Raises
    EnvironmentProblem."""

    def __init__(self, stream: int, word: Any, address: int) -> None:
        self._driver = load()
        self._word, self._closed = word, int(word[0])
        flags = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        self._wait = (self._driver.CUstream(stream), address, int(flags))

    def close(self) -> None:
        stream, address, flags = self._wait
        self._closed += 1
        _checked(self._driver, "cuStreamWaitValue32", stream, address, self._closed, flags)

    def open(self) -> None:
        self._word[0] = self._closed


class CapturedGraph:
    """A `Graph` of the work that `run` enqueues. Raises EnvironmentProblem."""

    def __init__(self, stream: int, run: Launch) -> None:
        self._driver = driver = load()
        self._stream = driver.CUstream(stream)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        _checked(driver, "cuStreamBeginCapture", self._stream, mode)
        try:
            run()
        finally:  # a stream left capturing takes no more work
            self._graph = _checked(driver, "cuStreamEndCapture", self._stream)
        self._executable = _checked(driver, "cuGraphInstantiate", self._graph, 0)
        _checked(driver, "cuGraphUpload", self._executable, self._stream)

    @property
    def launch(self) -> Launch:
        call: Callable[[Any, Any], Any] = self._driver.cuGraphLaunch
        executable, stream = self._executable, self._stream

        def launch() -> None:
            [code] = call(executable, stream)
            if int(code) != 0:
                raise EnvironmentProblem(f"the driver refuses to replay a graph ({code!r})")

        return launch

    def close(self) -> None:
        _checked(self._driver, "cuGraphExecDestroy", self._executable)
        _checked(self._driver, "cuGraphDestroy", self._graph)
