"""A connection between two ranks, over which lines of JSON go."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from cudareduce.errors import EnvironmentProblem


class RankLost(EnvironmentProblem):
    """A rank is missing, has ended, or stands still."""


@dataclass(slots=True)
class Link:
    """A connection to one rank on a host: when it was last heard of, and what values have come from
    there that nobody has asked for yet."""

    rank: int
    host: str
    socket: socket.socket
    heard: float = field(default_factory=time.monotonic)
    values: list[Any] = field(default_factory=list)
    _sending: Lock = field(default_factory=Lock)
    _rest: bytes = b""

    def send(self, **message: Any) -> None:
        """One line, from whichever thread. Raises RankLost if nobody is there."""
        data = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self.socket.sendall(data)
        except OSError:
            raise self.lost("has ended") from None

    def receive(self) -> None:
        """Take what has come. Raises RankLost where that is the end, or says that another one is
        lost."""
        try:
            data = self.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            raise self.lost("has ended")
        self.heard = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for message in map(json.loads, lines):
            if "lost" in message:
                raise RankLost(message["lost"])
            if "value" in message:
                self.values.append(message["value"])

    def lost(self, what: str) -> RankLost:
        """The error that says what has become of this rank."""
        return RankLost(
            f"rank {self.rank} on {self.host} {what}: see what it printed, and that all ranks run "
            "the same command"
        )
