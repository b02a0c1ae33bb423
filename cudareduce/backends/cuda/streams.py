"""Gates that hold a stream, and CUDA graphs, through the driver library."""

from __future__ import annotations

import ctypes
from typing import Any

from cudareduce.backends.cuda.driver import why_refused
from cudareduce.backends.protocol import Launch
from cudareduce.errors import EnvironmentProblem

#: CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL.
_WAIT_GEQ, _THREAD_LOCAL = 0, 1


def _call(library: Any, name: str, *arguments: Any) -> None:
    why = why_refused(library, name, *arguments)
    if why:
        raise EnvironmentProblem(f"{why}: time cold launches instead")


class StreamGate:
    """A `Gate`: the stream waits until `word`, in host memory mapped at `address`, reaches the
    number of gates closed so far. Opening a gate late therefore never opens the next one. Raises
    EnvironmentProblem."""

    def __init__(self, library: Any, stream: int, word: Any, address: int) -> None:
        self._library, self._word, self._closed = library, word, int(word[0])
        self._stream, self._address = ctypes.c_void_p(stream), ctypes.c_uint64(address)

    def close(self) -> None:
        self._closed += 1
        value = ctypes.c_uint32(self._closed)
        _call(
            self._library, "cuStreamWaitValue32_v2", self._stream, self._address, value, _WAIT_GEQ
        )

    def open(self) -> None:
        self._word[0] = self._closed


class CapturedGraph:
    """A CUDA graph, captured from the work that `run` enqueues. Raises EnvironmentProblem."""

    def __init__(self, library: Any, stream: int, run: Launch) -> None:
        self._library, self._stream = library, ctypes.c_void_p(stream)
        self._graph, self._executable = ctypes.c_void_p(), ctypes.c_void_p()
        _call(library, "cuStreamBeginCapture_v2", self._stream, _THREAD_LOCAL)
        try:
            run()
        finally:  # end the capture, or the stream accepts no more work
            _call(library, "cuStreamEndCapture", self._stream, ctypes.byref(self._graph))
        _call(
            library, "cuGraphInstantiateWithFlags", ctypes.byref(self._executable), self._graph,
            ctypes.c_uint64(0),
        )  # fmt: skip
        _call(library, "cuGraphUpload", self._executable, self._stream)

    @property
    def launch(self) -> Launch:
        call, executable, stream = self._library.cuGraphLaunch, self._executable, self._stream

        def launch() -> None:
            code = call(executable, stream)
            if code:
                raise EnvironmentProblem(f"the driver refuses to replay a graph ({code})")

        return launch

    def close(self) -> None:
        _call(self._library, "cuGraphExecDestroy", self._executable)
        _call(self._library, "cuGraphDestroy", self._graph)
