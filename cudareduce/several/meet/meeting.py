"""What ranks say to each other on the host: a star of connections round rank 0.

Each rank says every second that it lives. So one that has ended or stands still is found out within
`SILENCE_S`, with its number and its host, and rank 0 tells all others: nobody waits for ever.
"""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from cudareduce.several.meet.link import SILENCE_S, Link, RankLost

#: How often a rank says that it lives, in s.
BEAT_S = 1.0


class Meeting:
    """The connections of one rank: those of rank 0 to all others in order, of others to rank 0.
    Enter it as a context manager; leaving it ends them."""

    def __init__(self, rank: int, size: int, links: list[Link]) -> None:
        self.rank, self.size, self._links = rank, size, links
        self._over = Event()
        self._beating = Thread(target=self._beat, daemon=True)
        self._beating.start()

    def gather(self, value: Any) -> list[Any]:
        """On rank 0 the values of all ranks, in order; elsewhere nothing. Raises RankLost."""
        if self.rank:
            self._links[0].send(value=value)
            return []
        return [value, *self._next()]

    def share(self, value: Any = None) -> Any:
        """What rank 0 gives, on all ranks. Raises RankLost."""
        if self.rank:
            return self._next()[0]
        for link in self._links:
            link.send(value=value)
        return value

    def everybody(self, value: Any) -> list[Any]:
        """The values of all ranks, in order, on all of them. Raises RankLost."""
        values: list[Any] = self.share(self.gather(value))
        return values

    def barrier(self) -> None:
        """Wait until all ranks are here. Raises RankLost."""
        self.everybody(None)

    def _next(self) -> list[Any]:
        """One value from each connection."""
        try:
            with selectors.DefaultSelector() as selector:
                for link in self._links:
                    selector.register(link.socket, selectors.EVENT_READ, link)
                while not all(link.values for link in self._links):
                    for key, _ in selector.select(BEAT_S):
                        key.data.receive()
                    self._find_ended()
        except RankLost as error:
            if self.rank == 0:
                self._tell(str(error))
            raise
        return [link.values.pop(0) for link in self._links]

    def _find_ended(self) -> None:
        for link in self._links:
            if link.ended and not link.values:
                raise RankLost(link.ended)
            if time.monotonic() - link.heard > SILENCE_S:
                raise link.silent()

    def _tell(self, why: str) -> None:
        """Let those at the other ends know why the run ends; rank 0 tells all."""
        for link in self._links:
            with suppress(RankLost):
                link.send(lost=why)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            for link in self._links:
                link.beat()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RankLost):
            self._tell(f"rank {self.rank} on {socket.gethostname()}: {error}")
        self._over.set()
        self._beating.join()
        for link in self._links:
            link.end()
