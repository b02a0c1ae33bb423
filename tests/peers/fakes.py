"""Libraries that are none, on a GPU that is none: one that is right, and others that misbehave."""

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

import cudareduce.backends
from cudareduce.errors import OutOfMemory
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.contract import AbsentError, DeviceInput, Library, PreparedCall
from cudareduce.peers.session import LibraryRunner
from cudareduce.problem.inputs import as_numbers
from cudareduce.workers import Parent
from tests.fake_gpu import FakeGpu, quick

#: What stays locked, and mapped.
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

        cudareduce.backends.open_cuda = opened  # type: ignore[assignment]
        super().__init__(parent)


def use_fakes(monkeypatch: pytest.MonkeyPatch, names: str) -> None:
    """Make --peers mean these fakes, on a fake GPU."""
    monkeypatch.setattr("cudareduce.peers.session.LibraryRunner", FakeRunner)
    listed = tuple(Listing(f"tests.peers.fakes:{name}") for name in names.split(","))
    monkeypatch.setattr("cudareduce.peers.catalogue.listings", lambda names: listed)


def summed(given: DeviceInput, factor: float = 1.0, us: float = 10.0) -> PreparedCall:
    """A launch that sums as NumPy does, and takes as long as it is told."""
    nbytes = given.problem.input_bytes

    def run() -> None:
        bits = np.frombuffer(ctypes.string_at(given.address, nbytes), given.data.dtype)
        rows = as_numbers(bits, given.reduction.dtype).reshape(given.problem.rows, -1)
        values = rows.sum(axis=1, dtype=np.float64) * factor
        out = values.astype(given.reduction.result_dtype)
        ctypes.memmove(given.out, out.ctypes.data, out.nbytes)
        GPUS[0].clock += us
        GPUS[0].host += 7

    return PreparedCall(run)


def called(given: DeviceInput) -> PreparedCall:
    """The same, as people call it."""
    ready = summed(given)

    def run() -> None:
        ready.run()
        GPUS[0].host += 50

    nbytes = 4 * given.problem.rows
    return PreparedCall(run, lambda: np.frombuffer(ctypes.string_at(given.out, nbytes), np.float32))


def narrow(given: DeviceInput) -> PreparedCall:
    """What loads single elements where neither length nor start is even."""
    return summed(given, us=10.0 if given.problem.n % 4 == 0 == given.address % 16 else 40.0)


def raising(error: Exception) -> Callable[[DeviceInput], PreparedCall]:
    """What fails when it is prepared."""

    def prepare(given: DeviceInput) -> PreparedCall:
        raise error

    return prepare


def ending(act: Callable[[], object]) -> Callable[[DeviceInput], PreparedCall]:
    """What takes its process with it, or never comes back, on the input that is timed."""

    def prepare(given: DeviceInput) -> PreparedCall:
        ready = summed(given)
        if given.problem.n < 4096:
            return ready

        def run() -> None:
            act()
            ready.run()

        return PreparedCall(run)

    return prepare


def breaking(given: DeviceInput) -> PreparedCall:
    """What leaves a device that takes no more work."""

    def fails() -> None:
        raise RuntimeError("sticky")

    def run() -> None:
        GPUS[0].finish = fails  # type: ignore[method-assign]
        raise RuntimeError("CUDA error 700: illegal address")

    return PreparedCall(run)


def keeping(given: DeviceInput) -> PreparedCall:
    """What adds once, and gives that answer ever after."""
    ready, kept = summed(given), list[bytes]()

    def run() -> None:
        ready.run()
        kept[:] = kept or [ctypes.string_at(given.out, 4 * given.problem.rows)]
        ctypes.memmove(given.out, kept[0], len(kept[0]))

    return PreparedCall(run)


def later(given: DeviceInput, after: int, act: Callable[[], object]) -> PreparedCall:
    """What is right in so many calls, and then does something else besides."""
    ready, calls = summed(given), [0]

    def run() -> None:
        ready.run()
        calls[0] += 1
        if calls[0] > after:
            act()

    return PreparedCall(run)


def writing(given: DeviceInput, after: int = 0) -> PreparedCall:
    """What overwrites its input, from one of its calls on."""
    return later(given, after, lambda: ctypes.memset(given.address, 0, given.problem.input_bytes))


def runtime(name: str) -> Callable[[], str]:
    """What maps a file of this name, as a library does that brings its own CUDA runtime."""

    def load() -> str:
        path = Path(tempfile.mkdtemp()) / name
        path.write_bytes(b"\x7fELF")
        with path.open("rb") as file:
            MAPPED.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        return name.removeprefix("libcudart.so.")

    return load


def garbling() -> None:
    """Write to every socket that is open, as if it were one's own."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:"):
                os.write(int(entry.name), b"\0\0\0\4what")


def noisy() -> str:
    print("what it always says")
    return "1.0"


def forking() -> None:
    """End with a process of one's own that stays, and holds what was open."""
    if os.fork() == 0:
        time.sleep(99)
    os.abort()


def twice() -> str:
    """A library that forks when it is imported, and goes on in both."""
    os.fork()
    return "1.0"


def mute() -> None:
    """Close what is said to nobody."""
    sys.stdout = None
    with suppress(OSError):
        os.close(1)


class SpeechlessError(Exception):
    """What has no words, and fails when it is asked for them."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def giving(answers: Any) -> Callable[[DeviceInput], PreparedCall]:
    """What gives this for its answers, whatever it was asked."""
    return lambda given: PreparedCall(lambda: None, lambda: answers)


def on_host(given: DeviceInput) -> PreparedCall:
    """A library that adds in the host's memory."""
    return PreparedCall(lambda: None, lambda: given.data.astype(np.float64).sum())


def alone(act: Callable[[], object]) -> Callable[[DeviceInput], PreparedCall]:
    """A library on streams of its own, that does this at its first call."""

    def run() -> None:
        act()

    return lambda given: PreparedCall(run, lambda: 0)


def spawning() -> str:
    """A library whose helper is in a session of its own, and names the process of the run."""
    subprocess.Popen(["sleep", f"99.{os.getppid()}"], start_new_session=True)
    return "1.0"


def slow(given: DeviceInput) -> PreparedCall:
    time.sleep(1)
    return summed(given)


def absent() -> str:
    raise ModuleNotFoundError("No module named 'absent'", name="absent")


def too_old() -> str:
    raise AbsentError("fake 0.9 is too old: 1.0 or newer is needed")


def broken() -> str:
    raise ImportError("libfake.so.1: cannot open shared object file")


def fake(
    name: str, prepare: Callable[[DeviceInput], PreparedCall] = summed, **fields: Any
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
    """A library that makes a lock of several processes when it is imported, as tqdm does."""
    LOCKS.append(multiprocessing.RLock())
    return "1.0"


def refusing(given: DeviceInput) -> PreparedCall:
    """What asks for memory in each call, which a stream that is captured has none of."""
    ready = summed(given)

    def run() -> None:
        if GPUS[0].capturing:
            raise RuntimeError("operation not permitted when stream is capturing")
        ready.run()

    return PreparedCall(run)


def elsewhere(given: DeviceInput) -> PreparedCall:
    """What does its work on a stream of its own, and leaves nothing in a graph."""
    ready = summed(given)
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
    fake("faults", lambda given: PreparedCall(os.abort) if given.address % 16 else summed(given)),
    fake("off_by_one", lambda given: summed(given, 1.5 if given.address % 16 else 1.0)),
)  # fmt: skip
AS_CUB = (fake("cub", load=lambda: "1.3.0"),)
SLOW_CUB = (fake("cub", lambda given: summed(given, us=12.0)),)
WRONG_CUB = (fake("cub", lambda given: summed(given, 1.5)),)
MISSING = (
    fake("absent", load=absent), fake("too_old", load=too_old), fake("broken", load=broken),
)  # fmt: skip
FAILING = (
    fake("no_code", raising(RuntimeError("CUDA error: no kernel image is available"))),
    fake("no_memory", raising(OutOfMemory("its pool is empty"))),
    fake("no_host_memory", raising(MemoryError("Unable to allocate 8 GiB"))),
    fake("wrong", lambda given: summed(given, 1.5)),
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
WRITING = (fake("writes", writing), fake("writes_later", lambda given: writing(given, 6)))
LATER = (
    fake("later", lambda given: later(given, 6, lambda: ctypes.memset(given.out, 0, 4))),
    fake("later:as_called", lambda given: PreparedCall(
        later(given, 6, lambda: ctypes.memset(given.out, 0, 4)).run, called(given).fetch,
    ), as_called=True),
)  # fmt: skip
BREAKING = (fake("breaks", breaking),)
RUNTIMES = (
    fake("runtime_12", load=runtime("libcudart.so.12")),
    fake("runtime_13", load=runtime("libcudart.so.13")),
)  # fmt: skip
