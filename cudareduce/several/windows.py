"""Memory that every rank has and all ranks can address, laid out alike in each.

It lies on each rank's GPU; among processes without GPUs it is a file that all map.
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

#: Blocks of a grid that can wait for those of other ranks.
MOST_BLOCKS = 1024
_ALIGNED = 4096
#: Bytes in front of an output, and behind it, that nobody may write: all that there is behind the
#: rest of a pack.
GUARD_BYTES = _ALIGNED - 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything lies in a window, in bytes from its start: a rank's status, flags of what
    starts all ranks together, flags of engines, input, output, mail, and boxes for whole arrays."""

    start: int
    flags: int
    input: int
    output: int
    mail: int
    boxes: int
    nbytes: int


def flags_bytes(ranks: int) -> int:
    """Bytes of one engine's flags: a word for each block of each rank."""
    return 4 * ranks * MOST_BLOCKS


def layout(
    ranks: int, array_bytes: int, mail_bytes: int, boxes_bytes: int = 0, engines: int = 1
) -> Layout:
    """A window for arrays of so many bytes, and so many of mail and of boxes, where so many engines
    have flags of their own."""
    output = array_bytes + _ALIGNED  # a pack's rest, and the guard; one more lies in front
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
    """Some bytes of this rank's window, as a backend's buffer."""

    address: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Where each rank's window begins, as this rank addresses it, and which one is its own."""

    addresses: tuple[int, ...]
    rank: int
    layout: Layout

    @property
    def status(self) -> Part:
        """Whether this rank has waited too long, and for whom: two words, which stay until they
        are cleared."""
        return self.part(0, 8)

    def words(self, late: int = 0, latest: int = 0) -> tuple[int, ...]:
        """What kernels know of all this, as the structure `Ranks` has it; `late` is the rank that
        comes late where races are looked for, and `latest` the block of it that does most of
        all."""
        return (*self.addresses, self.rank, late, latest)

    def part(self, offset: int, nbytes: int, rank: int | None = None) -> Part:
        """Some bytes of the own window, or of another rank's."""
        return Part(self.addresses[self.rank if rank is None else rank] + offset, nbytes)


@contextmanager
def mapped_windows(comm: Communicator, parts: Layout) -> Iterator[Windows]:
    """Windows in files that the processes of one host map; cleared. Raises RankLost, and
    EnvironmentProblem where ranks are on several hosts."""
    check_host(comm)
    with temporary_folder() as folder:
        own = Path(folder, "window")
        try:
            with own.open("wb") as file:
                file.truncate(parts.nbytes)
            maps = [_mapped(Path(path), parts.nbytes) for path in comm.all_gather(str(own))]
            comm.barrier()  # nobody removes what another one has still to open
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
    """Memory of this rank's GPU, cleared, and that of others which it has opened."""

    @property
    def address(self) -> int: ...

    @property
    def handle(self) -> bytes:
        """What another process opens it with."""

    def open(self, handle: bytes) -> int:
        """Where another process' memory begins, here. Raises EnvironmentProblem."""

    def give_up(self) -> None:
        """Address no other process' memory any more."""

    def free(self) -> None:
        """Give it back, once nobody addresses it."""


#: Allocates so many bytes of it. Raises OutOfMemory.
Allocate = Callable[[int], PeerMemory]


@contextmanager
def device_windows(comm: Communicator, parts: Layout, allocate: Allocate) -> Iterator[Windows]:
    """Windows in the memory of each rank's GPU; cleared. Raises RankLost, OutOfMemory, and
    EnvironmentProblem where one cannot address another's."""
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
        comm.barrier()  # nobody frees what another one still addresses
    finally:
        own.give_up()
        own.free()


def check_host(comm: Communicator) -> None:
    """Raises EnvironmentProblem where ranks are on several hosts, and RankLost."""
    hosts = sorted(set(comm.all_gather(socket.gethostname())))
    if len(hosts) > 1:
        raise EnvironmentProblem(
            f"ranks exchange through memory that all can address, and these are on "
            f"{', '.join(hosts)}: start them on one host"
        )


def _mapped(path: Path, nbytes: int) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), nbytes)
