"""Windows: one block of memory per rank that all ranks can address, all with the same layout.

A window is on the rank's GPU. Without GPUs it is a file that all processes map.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backends.cuda.peer_memory import IpcMemory
from cudareduce.backends.protocol import Backend
from cudareduce.collectives.communicator import Communicator
from cudareduce.errors import EnvironmentProblem
from cudareduce.temporary import temporary_folder

#: The largest number of blocks that can wait for other ranks.
MOST_BLOCKS = 1024
_ALIGNED = 4096
#: Guard bytes before and after an output: an alignment, less a pack that may be partly written.
GUARD_BYTES = _ALIGNED - 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets in a window: status at 0, then flags of the start barrier, flags of engines,
    input, output, `mail` (slots of the LL protocol), and `slots` for whole arrays."""

    start: int
    flags: int
    input: int
    output: int
    mail: int
    slots: int
    nbytes: int


def flags_bytes(ranks: int) -> int:
    """Bytes of one engine's flags: a word per block of each rank."""
    return 4 * ranks * MOST_BLOCKS


def layout(
    ranks: int, array_bytes: int, mail_bytes: int, slots_bytes: int = 0, engines: int = 1
) -> Layout:
    """The layout of a window for arrays, mail and slots of these sizes, with the flags of `engines`
    engines."""
    output = array_bytes + _ALIGNED  # the rest of a pack and the guard; another guard precedes it
    offsets, end = [], 0
    for size in (_ALIGNED, _ALIGNED, engines * flags_bytes(ranks), array_bytes, GUARD_BYTES, output,
                 mail_bytes, slots_bytes):  # fmt: skip
        offsets.append(end)
        end += -(-size // _ALIGNED) * _ALIGNED
    _, start, flags, inputs, _, outputs, mail, slots = offsets
    return Layout(start, flags, inputs, outputs, mail, slots, end)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of this rank's window, as a backend's buffer."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Windows:
    """The addresses in this process of the windows of all ranks. `rank` is this process."""

    addresses: tuple[int, ...]
    rank: int
    layout: Layout

    @property
    def status(self) -> Part:
        """Two words that a kernel sets when a wait times out: a flag, and the rank it waited
        for."""
        return self.part(0, 8)

    def words(self, late: int = 0, latest: int = 0) -> tuple[int, ...]:
        """The fields of the device structure `Ranks`. In builds with delays, rank `late` is
        delayed, and its block `latest` twice as long."""
        return (*self.addresses, self.rank, late, latest)

    def part(self, offset: int, nbytes: int) -> Part:
        return Part(self.addresses[self.rank] + offset, nbytes)


@contextmanager
def open_windows(comm: Communicator, backend: Backend, parts: Layout) -> Iterator[Windows]:
    """Zeroed windows while the block runs: in GPU memory, or in mapped files on the emulator.
    Raises RankLost, OutOfMemory, and EnvironmentProblem if ranks are on several hosts or cannot
    address each other's memory."""
    hosts = sorted(set(comm.all_gather(socket.gethostname())))
    if len(hosts) > 1:
        raise EnvironmentProblem(
            f"ranks must be on one host to address each other's memory, and these are on "
            f"{', '.join(hosts)}: start them on one host"
        )
    opened = _device_windows if backend.timed() else _mapped_windows
    with opened(comm, parts) as windows:
        yield windows


@contextmanager
def _mapped_windows(comm: Communicator, parts: Layout) -> Iterator[Windows]:
    """Windows in files that the processes of one host map."""
    with temporary_folder() as folder:
        own = Path(folder, "window")
        try:
            with own.open("wb") as file:
                file.truncate(parts.nbytes)
            maps = []
            for path in comm.all_gather(str(own)):
                with Path(path).open("r+b") as file:
                    maps.append(mmap.mmap(file.fileno(), parts.nbytes))
            comm.barrier()  # no rank removes a file that another has yet to open
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "more than can be addressed"
            raise EnvironmentProblem(
                f"windows of {parts.nbytes} bytes cannot be mapped ({why}): give fewer "
                "elements with --n"
            ) from None
        words = [ctypes.c_char.from_buffer(each) for each in maps]
        try:
            yield Windows(tuple(map(ctypes.addressof, words)), comm.rank, parts)
        finally:
            words.clear()  # a map with a view cannot be closed
            for each in maps:
                each.close()


@contextmanager
def _device_windows(comm: Communicator, parts: Layout) -> Iterator[Windows]:
    own = IpcMemory(parts.nbytes)
    try:
        handles = comm.all_gather(own.handle.hex())
        addresses = tuple(
            own.address if rank == comm.rank else own.open(bytes.fromhex(handle))
            for rank, handle in enumerate(handles)
        )
        yield Windows(addresses, comm.rank, parts)
        own.give_up()
        comm.barrier()  # no rank frees memory that another may access
    finally:
        own.give_up()
        own.free()
