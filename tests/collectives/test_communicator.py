"""Ranks find each other, say what they have, and notice who is gone."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from cudareduce.collectives import communicator, rendezvous
from cudareduce.collectives.communicator import Communicator, RankLost
from cudareduce.collectives.rendezvous import Placement, connect
from cudareduce.errors import UsageError


def of(rank: int, size: int) -> Placement:
    return Placement("cudareduce", rank, size, rank, "a job")


def together(size: int, where: str, do: Callable[[Communicator], Any]) -> list[Any]:
    """What each of so many ranks returns, which are threads here, or the error it ends with."""

    def one(rank: int) -> Any:
        try:
            with connect(of(rank, size), where) as met:
                return do(met)
        except (RankLost, UsageError, ZeroDivisionError) as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_values_travel_in_the_order_of_ranks(tmp_path: Path) -> None:
    def talk(met: Communicator) -> Any:
        first = met.all_gather({"rank": met.rank, "text": "é" * met.rank})
        met.barrier()
        return first, met.gather(met.rank**2), met.broadcast("of rank 0" if met.rank == 0 else None)

    answers = together(4, str(tmp_path / "m.json"), talk)
    every = [{"rank": rank, "text": "é" * rank} for rank in range(4)]
    assert [answer[0] for answer in answers] == [every] * 4
    assert [answer[1] for answer in answers] == [[0, 1, 4, 9], [], [], []]
    assert {answer[2] for answer in answers} == {"of rank 0"}
    assert list(tmp_path.iterdir()) == []  # the note is gone


def test_large_values_travel_whole(tmp_path: Path) -> None:
    answers = together(3, str(tmp_path / "m"), lambda met: met.all_gather("x" * 3_000_000))
    assert answers == [["x" * 3_000_000] * 3] * 3


def test_an_address_does_as_well() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    assert together(3, where, lambda met: met.all_gather(met.rank)) == [[0, 1, 2]] * 3


def test_the_note_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ARRIVAL_S", 0.5)
    path, seen = tmp_path / "m", []

    def look(_: float) -> None:
        seen.append(stat.S_IMODE(path.stat().st_mode))
        time.sleep(0.6)

    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(connect, of(0, 2), str(path))
        while not path.exists():
            time.sleep(0.01)
        look(0)
        with pytest.raises(RankLost, match="rank 1 of 2 did not come within"):
            alone.result()
    assert seen == [0o600]
    assert not path.exists()


def test_who_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "ARRIVAL_S", 0.5)
    with pytest.raises(RankLost, match=r"ranks 1, 2, 3 of 4 did not come"):
        connect(of(0, 4), str(tmp_path / "m"))
    with pytest.raises(RankLost, match="rank 0 did not appear at"):
        connect(of(1, 4), str(tmp_path / "m"))


def test_strangers_are_not_let_in(tmp_path: Path) -> None:
    """Connections that send garbage, that do not know the key, and that claim no possible rank."""
    path = tmp_path / "m"

    def published() -> tuple[int, bytes]:
        while True:
            with suppress(OSError, ValueError):
                _, port, key = json.loads(path.read_text())
                return port, key.encode()
            time.sleep(0.01)

    def garbage(text: bytes) -> None:
        with socket.create_connection(("127.0.0.1", published()[0]), 20) as connection:
            connection.sendall(text)
            with suppress(ConnectionError):
                while connection.recv(100):  # a challenge, then the end
                    pass

    def authenticated(key: bytes | None, greeting: Any) -> None:
        port, right = published()
        with (
            suppress(EOFError, OSError, AuthenticationError),
            Client(("127.0.0.1", port), authkey=key or right) as connection,
        ):
            connection.send_bytes(json.dumps(greeting).encode())
            connection.recv_bytes()

    good = {"rank": 1, "size": 2, "host": "h", "channel": "data"}
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(connect, of(0, 2), str(path))
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b"\x7f\xff\xff\xff"):
            garbage(text)
        authenticated(b"wrong", good)
        for part in ({"rank": 7}, {"rank": 0}, {"rank": "one"}, {"channel": "other"}):
            authenticated(None, good | part)
        authenticated(None, [])
        authenticated(None, {})
        with pool.submit(connect, of(1, 2), str(path)).result() as one, first.result() as zero:
            told = pool.submit(zero.all_gather, "zero")
            assert one.all_gather("one") == ["zero", "one"] == told.result()


def test_notes_that_are_none_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous, "ARRIVAL_S", 0.3)
    deep, far = "[" * 9999, '[["127.0.0.1"], 99999, "x"]'
    for text in ('[[], 9, "x"]', '[["127.0.0.1"], 1e999, "x"]', far, deep):
        (tmp_path / "m").write_text(text)
        with pytest.raises(RankLost, match="rank 0 did not appear"):
            connect(of(1, 2), str(tmp_path / "m"))


def test_a_rank_that_fails_tells_all(tmp_path: Path) -> None:
    def fail(met: Communicator) -> Any:
        met.barrier()
        if met.rank == 2:
            raise ZeroDivisionError("one by zero")
        return met.all_gather(None)

    answers = together(4, str(tmp_path / "m"), fail)
    words = f"rank 2 on {socket.gethostname()}: one by zero"
    assert [str(answer) for answer in answers] == [words, words, "one by zero", words]


def _end(where: str, how: str) -> None:
    with connect(of(1, 3), where) as comm:
        comm.barrier()
        if how == "ends":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("how", "words"), [("ends", "has ended"), ("stands", "has not been heard of for 4 s")]
)
def test_a_rank_that_is_gone_is_named_on_all(
    how: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes: the first rank that is lost is the one that all name."""
    monkeypatch.setattr(communicator, "SILENCE_S", 60.0 if how == "ends" else 4.0)
    where = str(tmp_path / "m")
    process = multiprocessing.get_context("fork").Process(target=_end, args=(where, how))
    process.start()

    def one(rank: int) -> str:
        try:
            with connect(of(rank, 3), where) as comm:
                comm.barrier()
                return str(comm.all_gather("x" * 20_000_000))  # more than sockets hold
        except RankLost as lost:
            return str(lost)

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(one, (0, 2)))
    assert process.pid is not None
    process.kill()
    process.join()
    for answer in answers:
        assert answer.startswith(f"rank 1 on {socket.gethostname()} {words}")


_STUCK = """
import sys, time
from cudareduce.collectives.rendezvous import Placement, connect
rank, where = int(sys.argv[1]), sys.argv[2]
with connect(Placement("other", rank, 3, rank, "j"), where) as comm:
    comm.barrier()
    with comm.doing("a call"):
        if rank != 1:
            time.sleep(600)
        comm._thread.join(0.5)
        import os; os._exit(3)
"""


def test_ranks_that_wait_elsewhere_end_as_well(tmp_path: Path) -> None:
    """In a kernel or a library, where no connection tells them that a rank is lost."""
    processes = [
        subprocess.Popen([sys.executable, "-c", _STUCK, str(rank), str(tmp_path / "m")],
                         stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]  # fmt: skip
    printed = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [6, 3, 6]
    for text in (printed[0], printed[2]):
        assert text.startswith(f"cudareduce: rank 1 on {socket.gethostname()} has ended")
        assert text.endswith("; all were at a call\n")


@pytest.mark.parametrize("takes", [60, 0])
def test_the_watchdog_ends_only_what_takes_too_long(takes: int) -> None:
    code = (
        "import time; from cudareduce.collectives.communicator import watchdog\n"
        f"with watchdog('a call', 0.5): time.sleep({takes})\ntime.sleep(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == (6 if takes else 0)
    why = "cudareduce: a call has not ended within 0.5 s: see what else runs on these GPUs"
    assert done.stderr.startswith(why if takes else "")


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("tcp://nowhere", "give rank 0's host and a free port"),
        ("tcp://host:99999", "give rank 0's host and a free port"),
        ("tcp://:5000", "give rank 0's host and a free port"),
        ("/no/such/folder/m", "cannot be written (No such file or directory)"),
    ],
)
def test_places_that_cannot_be_had(where: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(of(0, 2), where)
    assert words in str(caught.value)


def test_a_file_of_anything_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("all of it")
    with pytest.raises(UsageError, match="is another file"):
        connect(of(0, 2), str(path))
    assert path.read_text() == "all of it"


def test_ranks_that_were_told_of_other_numbers(tmp_path: Path) -> None:
    def one(rank: int, size: int) -> str:
        try:
            with connect(of(rank, size), str(tmp_path / "m")) as met:
                met.barrier()
        except UsageError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(one, (0, 1), (2, 3)))
    assert told[0] == told[1]
    assert "is one of 3, and rank 0 one of 2: start all ranks with the same number" in told[0]


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match="cannot listen there"):
            connect(of(0, 2), where)
