"""What PyCUDA does not wrap, through cuda-bindings: a gate in a stream, and CUDA graphs.

The only module that imports cuda-bindings, and only when one of the two is asked for. The driver's
functions act on the context that PyCUDA has made current; streams travel as their handles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudareduce.backend import Launch
from cudareduce.errors import EnvironmentProblem


def load() -> Any:
    """The driver's functions; where they are missing an EnvironmentProblem that says what to
    install."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise EnvironmentProblem(
            f"--timing warm, --graph and collective need cuda-bindings ({error}): "
            "pip install 'cudareduce[graph]', or time cold launches of one GPU"
        ) from None
    return driver


def _checked(driver: Any, name: str, *arguments: Any) -> Any:
    """Call a function that returns its result behind an error code, and return the result."""
    code, *values = getattr(driver, name)(*arguments)
    if int(code) != 0:
        raise EnvironmentProblem(
            f"the driver refuses {name} ({getattr(code, 'name', code)}): time cold launches instead"
        )
    return values[0] if values else None


class StreamGate:
    """Lets a stream wait for the host without keeping the GPU busy. Raises EnvironmentProblem.

    The stream waits until a word of mapped host memory has counted up to the number of gates closed
    so far, so a gate that is opened late never opens the next one too.
    """

    def __init__(self, stream: int, word: Any, address: int) -> None:
        self._driver = load()
        self._word, self._closed = word, int(word[0])
        flags = self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
        self._wait = (self._driver.CUstream(stream), address, int(flags))

    def close(self) -> None:
        """Enqueue a wait."""
        stream, address, flags = self._wait
        self._closed += 1
        _checked(self._driver, "cuStreamWaitValue32", stream, address, self._closed, flags)

    def open(self) -> None:
        """Let the stream go on."""
        self._word[0] = self._closed


class CapturedGraph:
    """Work captured from a stream, to be enqueued by one call. Raises EnvironmentProblem."""

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
        """One call that enqueues all of it."""
        call: Callable[[Any, Any], Any] = self._driver.cuGraphLaunch
        executable, stream = self._executable, self._stream

        def launch() -> None:
            [code] = call(executable, stream)
            if int(code) != 0:
                raise EnvironmentProblem(f"the driver refuses to replay a graph ({code!r})")

        return launch

    def close(self) -> None:
        """Give the driver's memory back."""
        _checked(self._driver, "cuGraphExecDestroy", self._executable)
        _checked(self._driver, "cuGraphDestroy", self._graph)
