"""Fake libraries on a fake GPU: one that is right, and others that misbehave."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudareduce.backends.selection
from cudareduce.errors import OutOfMemory
from cudareduce.libraries.catalogue import Listing
from cudareduce.libraries.contract import AbsentError, CallRequest, Library, PreparedCall
from cudareduce.libraries.worker import LibraryRunner
from cudareduce.reduction.inputs import as_numbers
from cudareduce.workers import Parent
from tests.fake_gpu import FakeGpu, quick

#: Locks and mappings that outlive the function that makes them.
LOCKS: list[Any] = []
MAPPED: list[mmap.mmap] = []
#: The fake GPU of this process, whose clock the launches of libraries move.
GPUS: list[FakeGpu] = []


class FakeRunner(LibraryRunner):
    """A worker on a fake GPU."""

    def __init__(self, parent: Parent) -> None:
        def opened(spec: Any) -> FakeGpu:
            GPUS[:] = [quick(spec.cache, 1)]
            return GPUS[0]

        cudareduce.backends.selection.open_cuda = opened  # type: ignore[assignment]
        super().__init__(parent)


def use_fakes(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Make --peers mean these fakes, on a fake GPU."""
    monkeypatch.setattr("cudareduce.libraries.session.LibraryRunner", FakeRunner)
    listed = tuple(Listing(f"tests.libraries.fakes:{name}") for name in names.split(","))
    monkeypatch.setattr("cudareduce.libraries.catalogue.listings", lambda names: listed)


def summed(request: CallRequest, factor: float = 1.0, us: float = 10.0) -> PreparedCall:
    """A call that sums with NumPy and advances the clock of the GPU by `us`."""
    nbytes = request.problem.input_bytes

    def run() -> None:
        bits = np.frombuffer(ctypes.string_at(request.address, nbytes), request.data.dtype)
        rows = as_numbers(bits, request.reduction.dtype).reshape(request.problem.rows, -1)
        values = rows.sum(axis=1, dtype=np.float64) * factor
        out = values.astype(request.reduction.result_dtype)
        ctypes.memmove(request.out, out.ctypes.data, out.nbytes)
        GPUS[0].clock += us
        GPUS[0].host += 7

    return PreparedCall(run)


def called(request: CallRequest) -> PreparedCall:
    """The same call as users write it: it waits and returns the result."""
    ready = summed(request)

    def run() -> None:
        ready.run()
        GPUS[0].host += 50

    nbytes = 4 * request.problem.rows
    return PreparedCall(
        run, lambda: np.frombuffer(ctypes.string_at(request.out, nbytes), np.float32)
    )


def narrow(request: CallRequest) -> PreparedCall:
    """A library that is slow if the length or the address is odd."""
    return summed(request, us=10.0 if request.problem.n % 4 == 0 == request.address % 16 else 40.0)


def raising(error: Exception) -> Callable[[CallRequest], PreparedCall]:
    """A library that raises when it is prepared."""

    def prepare(request: CallRequest) -> PreparedCall:
        raise error

    return prepare


def ending(act: Callable[[], object]) -> Callable[[CallRequest], PreparedCall]:
    """A library that ends or blocks its process on the input that is timed."""

    def prepare(request: CallRequest) -> PreparedCall:
        ready = summed(request)
        if request.problem.n < 4096:
            return ready

        def run() -> None:
            act()
            ready.run()

        return PreparedCall(run)

    return prepare


def breaking(request: CallRequest) -> PreparedCall:
    """A library that leaves the device unusable."""

    def fails() -> None:
        raise RuntimeError("sticky")

    def run() -> None:
        GPUS[0].finish = fails  # type: ignore[method-assign]
        raise RuntimeError("CUDA error 700: illegal address")

    return PreparedCall(run)


def keeping(request: CallRequest) -> PreparedCall:
    """A library that returns its first result for every input."""
    ready, kept = summed(request), list[bytes]()

    def run() -> None:
        ready.run()
        kept[:] = kept or [ctypes.string_at(request.out, 4 * request.problem.rows)]
        ctypes.memmove(request.out, kept[0], len(kept[0]))

    return PreparedCall(run)


def later(request: CallRequest, after: int, act: Callable[[], object]) -> PreparedCall:
    """A library that does something else, too, after so many right calls."""
    ready, calls = summed(request), [0]

    def run() -> None:
        ready.run()
        calls[0] += 1
        if calls[0] > after:
            act()

    return PreparedCall(run)


def writing(request: CallRequest, after: int = 0) -> PreparedCall:
    """A library that overwrites its input after so many calls."""
    return later(
        request, after, lambda: ctypes.memset(request.address, 0, request.problem.input_bytes)
    )


def runtime(name: str) -> Callable[[], str]:
    """A library that loads its own CUDA runtime, of this file name."""

    def load() -> str:
        path = Path(tempfile.mkdtemp()) / name
        path.write_bytes(b"\x7fELF")
        with path.open("rb") as file:
            MAPPED.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        return name.removeprefix("libcudart.so.")

    return load


def garbling() -> None:
    """Write to every open socket."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                os.write(int(entry.name), b"\0\0\0\4what")


def noisy() -> str:
    print("what it always says")
    return "1.0"


def forking() -> None:
    """Abort, and leave a child process that holds the open files."""
    if os.fork() == 0:
        time.sleep(99)
    os.abort()


def twice() -> str:
    """A library that forks when it is imported; both processes go on."""
    os.fork()
    return "1.0"


def mute() -> None:
    """Close the standard output."""
    sys.stdout = None
    with suppress(OSError):
        os.close(1)


class SpeechlessError(Exception):
    """An error whose message cannot be formatted."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def giving(answers: Any) -> Callable[[CallRequest], PreparedCall]:
    """A library that returns these results for every input."""
    return lambda request: PreparedCall(lambda: None, lambda: answers)


def on_host(request: CallRequest) -> PreparedCall:
    """A library that adds in the host's memory."""
    return PreparedCall(lambda: None, lambda: request.data.astype(np.float64).sum())


def alone(act: Callable[[], object]) -> Callable[[CallRequest], PreparedCall]:
    """A library on its own streams that does this when it is called."""

    def run() -> None:
        act()

    return lambda request: PreparedCall(run, lambda: 0)


def spawning() -> str:
    """A library that starts a helper in a session of its own, with the id of the run's process."""
    subprocess.Popen(["sleep", f"99.{os.getppid()}"], start_new_session=True)
    return "1.0"


def slow(request: CallRequest) -> PreparedCall:
    time.sleep(1)
    return summed(request)


def absent() -> str:
    raise ModuleNotFoundError("No module named 'absent'", name="absent")


def too_old() -> str:
    raise AbsentError("fake 0.9 is too old: 1.0 or newer is needed")


def broken() -> str:
    raise ImportError("libfake.so.1: cannot open shared object file")


def fake(
    name: str, prepare: Callable[[CallRequest], PreparedCall] = summed, **fields: Any
) -> Library:
    usual: dict[str, Any] = {
        "load": lambda: "1.2.3",
        "context": "any",
        "ops": ("sum",),
        "dtypes": ("float32",),
        "package": "fake",
    }
    return Library(
        name=name, install="pip install fake",
        called=lambda problem: f"fake.sum, {name}", prepare=prepare, **(usual | fields),
    )  # fmt: skip


FINE = (fake("fine"), fake("fine:as_called", called, as_called=True))


def locked() -> str:
    """A library that makes a lock shared by processes when it is imported, as tqdm does."""
    LOCKS.append(multiprocessing.RLock())
    return "1.0"


def refusing(request: CallRequest) -> PreparedCall:
    """A library that allocates in each call, which stream capture forbids."""
    ready = summed(request)

    def run() -> None:
        if GPUS[0].capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        ready.run()

    return PreparedCall(run)


def elsewhere(request: CallRequest) -> PreparedCall:
    """A library that works on its own stream, so that a captured graph is empty."""
    ready = summed(request)
    return PreparedCall(lambda: None if GPUS[0].replaying else ready.run())


LOCKING = (fake("locking", load=locked),)
CAPTURED = (fake("refuses", refusing), fake("elsewhere", elsewhere))
ON_CPU = (
    fake(
        "both", raising(RuntimeError("there is no GPU")), package="numpy",
        on_cpu=on_host,
    ),
)  # fmt: skip
NARROW = (
    fake("narrow", narrow), fake("words", alignment=16),
    fake("faults",
         lambda request: PreparedCall(os.abort) if request.address % 16 else summed(request)),
    fake("off_by_one", lambda request: summed(request, 1.5 if request.address % 16 else 1.0)),
)  # fmt: skip
AS_CUB = (fake("cub", load=lambda: "1.3.0"),)
SLOW_CUB = (fake("cub", lambda request: summed(request, us=12.0)),)
WRONG_CUB = (fake("cub", lambda request: summed(request, 1.5)),)
MISSING = (
    fake("absent", load=absent), fake("too_old", load=too_old), fake("broken", load=broken),
)  # fmt: skip
FAILING = (
    fake("no_code", raising(RuntimeError("CUDA error: no kernel image is available"))),
    fake("no_memory", raising(OutOfMemory("its pool is empty"))),
    fake("no_host_memory", raising(MemoryError("Unable to allocate 8 GiB"))),
    fake("wrong", lambda request: summed(request, 1.5)),
    fake("raises", raising(ValueError("what is this?\nmore"))),
)  # fmt: skip
CRASHING = (fake("crashes", ending(lambda: os.abort())),)
NOISY = (fake("noisy", load=noisy),)
EXITING = (fake("exits", load=lambda: sys.exit(3)),)
GARBLING = (fake("garbles", ending(garbling)),)
SPAWNING = (fake("spawns", load=spawning),)
SLOW = (fake("slow", slow),)
LONG = (fake("long", load=lambda: "1.2\n+" + "z" * 200),)
HANGING = (fake("hangs", ending(lambda: time.sleep(99))),)
OWN = (
    fake(
        "own", on_host,
        context="own",
    ),
)  # fmt: skip
FORKING = (fake("forks", ending(forking)),)
TWICE = (fake("twice", load=twice),)
SPEECHLESS = (fake("speechless", raising(SpeechlessError())),)
MUTE = (fake("mute", ending(mute)),)
ODD_ANSWERS = (
    fake("none", giving(np.zeros(0, np.float32))), fake("three", giving([1.0, 2.0, 3.0])),
    fake("complex", giving(1j)), fake("object", giving(None)),
    fake("none:own", giving([]), context="own"),
)  # fmt: skip
ALONE = (
    fake("own:aborts", alone(os.abort), context="own"),
    fake("own:hangs", alone(lambda: time.sleep(99)), context="own"),
    fake("own:fine", giving(0), context="own", refuses=lambda problem: "takes nothing"),
)  # fmt: skip
KEEPING = (fake("keeps", keeping),)
WRITING = (fake("writes", writing), fake("writes_later", lambda request: writing(request, 6)))
LATER = (
    fake("later", lambda request: later(request, 6, lambda: ctypes.memset(request.out, 0, 4))),
    fake("later:as_called", lambda request: PreparedCall(
        later(request, 6, lambda: ctypes.memset(request.out, 0, 4)).run, called(request).fetch,
    ), as_called=True),
)  # fmt: skip
BREAKING = (fake("breaks", breaking),)
RUNTIMES = (
    fake("runtime_12", load=runtime("libcudart.so.12")),
    fake("runtime_13", load=runtime("libcudart.so.13")),
)  # fmt: skip
