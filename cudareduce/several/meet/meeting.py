"""What ranks say to each other on the host: a star of connections round rank 0.

Each rank says every second that it lives. So one that has ended or stands still is found out within
`SILENCE_S`, with its number and its host, and rank 0 tells all others: nobody waits for ever, and
not in a kernel either, which only the end of the process ends.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from cudareduce.several.meet.link import Link, RankLost
from cudareduce.several.meet.patience import say_last

#: How often a rank says that it lives, in s, and looks whether others do; what is said twice
#: running ends it.
BEAT_S = 1.0


class Meeting:
    """The connections of one rank: those of rank 0 to all others in order, of others to rank 0.
    Enter it as a context manager; leaving it ends them. If the process that started it, its
    `parent`, is told, it ends with that."""

    def __init__(self, rank: int, size: int, links: list[Link], parent: int | None = None) -> None:
        self.rank, self.size, self._links, self._parent = rank, size, links, parent
        self._doing = ""
        self._over, self._listening = Event(), False
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

    @contextmanager
    def at(self, doing: str) -> Iterator[None]:
        """Within, this is what all ranks are at, which whoever loses one of them tells."""
        self._doing = doing
        try:
            yield
        finally:
            self._doing = ""

    def _next(self) -> list[Any]:
        """One value from each connection."""
        self._listening = True
        try:
            with selectors.DefaultSelector() as selector:
                for link in self._links:
                    selector.register(link.socket, selectors.EVENT_READ, link)
                while not all(link.values for link in self._links):
                    for key, _ in selector.select(BEAT_S):
                        key.data.receive()
                    self._find_ended()
        except RankLost as error:
            if self.rank > 0:
                raise
            self._tell(self._lost(error))
            raise RankLost(self._lost(error)) from None
        finally:
            self._listening = False
        return [link.values.pop(0) for link in self._links]

    def _find_ended(self) -> None:
        for link in self._links:
            if link.ended and not link.values:
                raise RankLost(link.ended)
            link.check_silence()

    def _lost(self, error: Exception) -> str:
        """Why a rank is lost, and what with, unless somebody has told that."""
        told = not self._doing or self._doing in str(error)
        return str(error) if told else f"{error}; all were at {self._doing}"

    def _tell(self, why: str) -> None:
        """Let those at the other ends know why the run ends; rank 0 tells all."""
        for link in self._links:
            with suppress(RankLost):
                link.send(lost=why)

    def _beat(self) -> None:
        first = None
        while not self._over.wait(BEAT_S):
            for link in self._links:
                link.beat()
            why = self._why_to_end()
            if first and why:
                self._end(first)  # what is said later may be of those who have ended for it
            first = why

    def _why_to_end(self) -> str | None:
        """Why what this rank is at has no sense any more, if it does not find out by itself: it is
        not listening, but in a kernel or a library, and may wait there for who is lost."""
        if self._parent not in (None, os.getppid()):
            os.kill(os.getpid(), signal.SIGTERM)  # in order, if that is to be had
            return "what started the ranks has ended"
        try:
            for link in () if self._listening else self._links:
                link.look()
        except (RankLost, OSError) as error:
            return self._lost(error)
        return None

    def _end(self, why: str) -> None:
        """End this process, as soon as the others have had time to look why."""
        for link in self._links:
            link.beat(lost=why)
        say_last(why)
        time.sleep(1.1 * BEAT_S)  # the end wipes out what they have not seen
        os._exit(RankLost.exit_code)

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, RankLost):
            self._tell(f"rank {self.rank} on {socket.gethostname()}: {error}")
        self._over.set()
        self._beating.join()
        for link in self._links:
            link.end()
