"""A connection between two ranks, over which lines of JSON go."""

from __future__ import annotations

import fcntl
import json
import select
import socket
import termios
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from cudareduce.errors import EnvironmentProblem

#: How long a rank may be silent, or take nothing, in s.
SILENCE_S = 7.0
#: What somebody says at last who is not lost.
_LEAVES = b'{"leaves": true}'
#: Bytes of what has come that are looked at before they are taken.
_LOOKED_AT = 2**16
#: How long the other end is waited for when a run ends, in s.
_END_S = 2.0


class RankLost(EnvironmentProblem):
    """A rank is missing, has ended, or stands still."""


@dataclass(slots=True)
class Link:
    """A connection to one rank on a host: when it was last heard of, and what values have come from
    there that nobody has asked for yet; `ended` is why there will be no more, once that is told,
    and `left` whether that is in order."""

    rank: int
    host: str
    socket: socket.socket
    heard: float = field(default_factory=time.monotonic)
    values: list[Any] = field(default_factory=list)
    _sending: Lock = field(default_factory=Lock)
    ended: str = ""
    left: bool = False
    _rest: list[bytes] = field(default_factory=list)
    _held: bytes = b""

    def send(self, **message: Any) -> None:
        """One line, from whichever thread. Raises RankLost if nobody is there, or takes it."""
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self.socket.sendall(data)
        except TimeoutError:
            raise self.silent() from None
        except OSError:
            with suppress(OSError):
                self.look()  # it may have said why
            raise self.lost("has ended") from None

    def beat(self, **message: Any) -> None:
        """Say that this rank lives, and what else there is to say, if that takes no waiting: the
        others have a right to it too."""
        if self._sending.locked() or not select.select([], [self.socket], [], 0)[1]:
            return
        with suppress(RankLost):  # whoever waits for that rank finds out
            self.send(**message)

    def look(self) -> None:
        """See whether the other end lives, from another thread than the one that takes what has
        come, and take nothing. Raises RankLost where it does not."""
        if select.select([self.socket], [], [], 0)[0]:
            came = self.socket.recv(_LOOKED_AT, socket.MSG_PEEK)
            for line in came.split(b"\n"):
                if line.startswith(b'{"lost"'):
                    raise RankLost(json.loads(line)["lost"])
            if self.left or _LEAVES in came:
                return
            if not came:
                raise self.lost("has ended")
        held = fcntl.ioctl(self.socket, termios.FIONREAD, bytes(4))
        if held != self._held:
            self._held, self.heard = held, time.monotonic()
        self.check_silence()

    def check_silence(self) -> None:
        """Raises RankLost where nothing has been heard for too long."""
        if time.monotonic() - self.heard > SILENCE_S:
            raise self.silent()

    def receive(self) -> None:
        """Take what has come. Raises RankLost where that is the end."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            raise RankLost(self.ended) if self.ended else self.lost("has ended")
        self.heard = time.monotonic()
        self._rest.append(data)
        if b"\n" not in data:  # a line of megabytes comes in many parts
            return
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
        for message in map(json.loads, lines):
            if "lost" in message:
                self.ended = message["lost"]
            self.left = self.left or "leaves" in message
            if "value" in message:
                self.values.append(message["value"])

    def end(self) -> None:
        """Close it, when the other end has: what that still sends to one that is closed would wipe
        out what it was told last."""
        until = time.monotonic() + _END_S
        self.beat(leaves=True)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
            self.socket.settimeout(_END_S)
            while self.socket.recv(1 << 20) and time.monotonic() < until:
                pass
        self.socket.close()

    def silent(self) -> RankLost:
        """The error that says that this rank stands still."""
        return self.lost(f"has not been heard of for {SILENCE_S:.0f} s")

    def lost(self, what: str) -> RankLost:
        """The error that says what has become of this rank."""
        return RankLost(
            f"rank {self.rank} on {self.host} {what}: see what it printed, and that all ranks run "
            "the same command"
        )
