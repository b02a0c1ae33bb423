"""Windows: memory of each rank that all ranks can address, with the same layout.

A window is on the rank's GPU. Without GPUs it is a file that all processes map.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cudareduce.errors import EnvironmentProblem
from cudareduce.several.communicator import Communicator
from cudareduce.temporary import temporary_folder

#: The largest number of blocks that can wait for other ranks.
MOST_BLOCKS = 1024
_ALIGNED = 4096
#: Guard bytes before and after an output: an alignment, less a pack that may be partly written.
GUARD_BYTES = _ALIGNED - 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets in a window: status at 0, flags of the common start, flags of engines, input,
    output, mail of the LL protocol, and slots for whole arrays."""

    start: int
    flags: int
    input: int
    output: int
    mail: int
    boxes: int
    nbytes: int


def flags_bytes(ranks: int) -> int:
    """Bytes of one engine's flags: a word per block of each rank."""
    return 4 * ranks * MOST_BLOCKS


def layout(
    ranks: int, array_bytes: int, mail_bytes: int, boxes_bytes: int = 0, engines: int = 1
) -> Layout:
    """The layout for arrays, mail and slots of these sizes, and `engines` sets of flags."""
    output = array_bytes + _ALIGNED  # the rest of a pack and the guard; another guard precedes it
    flags = engines * flags_bytes(ranks)
    sizes = (
        _ALIGNED, _ALIGNED, flags, array_bytes, GUARD_BYTES, output, mail_bytes, boxes_bytes
    )  # fmt: skip
    places, at = [], 0
    for size in sizes:
        places.append(at)
        at += -(-size // _ALIGNED) * _ALIGNED
    _, start, flags, given, _, answers, mail, boxes = places
    return Layout(start, flags, given, answers, mail, boxes, at)


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of this rank's window, as a backend's buffer."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Windows:
    """The address of each rank's window in this process, and which is its own."""

    addresses: tuple[int, ...]
    rank: int
    layout: Layout

    @property
    def status(self) -> Part:
        """Two words that a kernel sets when it gives up: a flag, and the rank it waited for."""
        return self.part(0, 8)

    def words(self, late: int = 0, latest: int = 0) -> tuple[int, ...]:
        """The fields of the device structure `Ranks`. `late` is the rank that stumbles, and
        `latest` its block that stumbles longest."""
        return (*self.addresses, self.rank, late, latest)

    def part(self, offset: int, nbytes: int, rank: int | None = None) -> Part:
        """Bytes of this rank's window, or of another rank's."""
        return Part(self.addresses[self.rank if rank is None else rank] + offset, nbytes)


@contextmanager
def mapped_windows(comm: Communicator, parts: Layout) -> Iterator[Windows]:
    """Zeroed windows in files that the processes of one host map. Raises RankLost, and
    EnvironmentProblem if ranks are on several hosts."""
    check_host(comm)
    with temporary_folder() as folder:
        own = Path(folder, "window")
        try:
            with own.open("wb") as file:
                file.truncate(parts.nbytes)
            maps = [_mapped(Path(path), parts.nbytes) for path in comm.all_gather(str(own))]
            comm.barrier()  # no rank removes a file that another has yet to open
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or "more than can be addressed"
            raise EnvironmentProblem(
                f"there is no room for windows of {parts.nbytes} bytes ({why}): give fewer "
                "elements with --n"
            ) from None
        try:
            words = [ctypes.c_char.from_buffer(each) for each in maps]
            addresses = tuple(ctypes.addressof(word) for word in words)
            yield Windows(addresses, comm.rank, parts)
        finally:
            words.clear()
            for each in maps:
                each.close()


class PeerMemory(Protocol):
    """Zeroed memory of this rank's GPU, and memory of other ranks that it has opened."""

    @property
    def address(self) -> int: ...

    @property
    def handle(self) -> bytes:
        """The handle with which another process opens it."""

    def open(self, handle: bytes) -> int:
        """The address of another process's memory here. Raises EnvironmentProblem."""

    def give_up(self) -> None:
        """Close all memory of other processes."""

    def free(self) -> None:
        """Free this memory, which no other process may have open."""


#: Allocates peer memory of this many bytes. Raises OutOfMemory.
Allocate = Callable[[int], PeerMemory]


@contextmanager
def device_windows(comm: Communicator, parts: Layout, allocate: Allocate) -> Iterator[Windows]:
    """Zeroed windows on each rank's GPU. Raises RankLost, OutOfMemory, and EnvironmentProblem if a
    GPU cannot address another's memory."""
    check_host(comm)
    own = allocate(parts.nbytes)
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


def check_host(comm: Communicator) -> None:
    """Raise EnvironmentProblem if ranks are on several hosts, and RankLost."""
    hosts = sorted(set(comm.all_gather(socket.gethostname())))
    if len(hosts) > 1:
        raise EnvironmentProblem(
            f"ranks exchange through memory that all can address, and these are on "
            f"{', '.join(hosts)}: start them on one host"
        )


def _mapped(path: Path, nbytes: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), nbytes)
