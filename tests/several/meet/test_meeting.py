"""Ranks find each other, say what they have, and notice who is gone."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cudareduce.errors import UsageError
from cudareduce.several.meet import arrival, link, meeting
from cudareduce.several.meet.arrival import meet
from cudareduce.several.meet.link import RankLost
from cudareduce.several.meet.meeting import Meeting
from cudareduce.several.meet.place import Place


def of(rank: int, size: int) -> Place:
    return Place("cudareduce", rank, size, rank, "a job")


def together(size: int, where: str, do: Callable[[Meeting], Any]) -> list[Any]:
    """What each of so many ranks returns, which are threads here, or the error it ends with."""

    def one(rank: int) -> Any:
        try:
            with meet(of(rank, size), where) as met:
                return do(met)
        except (RankLost, UsageError, ZeroDivisionError) as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_values_travel_in_the_order_of_ranks(tmp_path: Path) -> None:
    def talk(met: Meeting) -> Any:
        first = met.everybody({"rank": met.rank, "text": "é" * met.rank})
        met.barrier()
        return first, met.gather(met.rank**2), met.share("of rank 0" if met.rank == 0 else None)

    answers = together(4, str(tmp_path / "m.json"), talk)
    every = [{"rank": rank, "text": "é" * rank} for rank in range(4)]
    assert [answer[0] for answer in answers] == [every] * 4
    assert [answer[1] for answer in answers] == [[0, 1, 4, 9], [], [], []]
    assert {answer[2] for answer in answers} == {"of rank 0"}
    assert list(tmp_path.iterdir()) == []  # the note is gone


def test_large_values_travel_whole(tmp_path: Path) -> None:
    answers = together(3, str(tmp_path / "m"), lambda met: met.everybody("x" * 3_000_000))
    assert answers == [["x" * 3_000_000] * 3] * 3


def test_an_address_does_as_well() -> None:
    where = f"tcp://127.0.0.1:{free_port()}"
    assert together(3, where, lambda met: met.everybody(met.rank)) == [[0, 1, 2]] * 3


def test_the_note_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "ARRIVAL_S", 0.5)
    path, seen = tmp_path / "m", []

    def look(_: float) -> None:
        seen.append(stat.S_IMODE(path.stat().st_mode))
        time.sleep(0.6)

    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(meet, of(0, 2), str(path))
        while not path.exists():
            time.sleep(0.01)
        look(0)
        with pytest.raises(RankLost, match="rank 1 of 2 did not come within"):
            alone.result()
    assert seen == [0o600]
    assert not path.exists()


def test_who_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "ARRIVAL_S", 0.5)
    with pytest.raises(RankLost, match=r"ranks 1, 2, 3 of 4 did not come"):
        meet(of(0, 4), str(tmp_path / "m"))
    with pytest.raises(RankLost, match="rank 0 did not appear at"):
        meet(of(1, 4), str(tmp_path / "m"))


def test_strangers_are_not_let_in(tmp_path: Path) -> None:
    """One that says nothing sensible, one with another token, one whose rank is taken."""
    path = tmp_path / "m"

    def stranger(greeting: bytes) -> bytes:
        while True:
            try:
                _, port, token = json.loads(path.read_text())
                break
            except (OSError, ValueError):
                time.sleep(0.01)
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(greeting.replace(b"TOKEN", token.encode()))
            connection.settimeout(5)
            try:
                return connection.recv(100)
            except ConnectionError:
                return b""

    greetings = [
        b"GET / HTTP/1.1\r\n\n", b"[]\n", b"x" * 5000 + b"\n",
        b"[" * 4000 + b"\n", b'{"rank": 1e999, "host": "h", "token": "TOKEN"}\n',
        b'{"rank": 1, "host": "h", "token": "wrong"}\n',
        b'{"rank": 7, "host": "h", "token": "TOKEN"}\n',
        b'{"rank": 0, "host": "h", "token": "TOKEN"}\n',
    ]  # fmt: skip
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(meet, of(0, 2), str(path))
        assert [stranger(greeting) for greeting in greetings] == [b""] * len(greetings)
        with pool.submit(meet, of(1, 2), str(path)).result() as one, first.result() as zero:
            told = pool.submit(zero.everybody, "zero")
            assert one.everybody("one") == ["zero", "one"] == told.result()


def test_notes_that_are_none_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "ARRIVAL_S", 0.3)
    deep, far = "[" * 9999, '[["127.0.0.1"], 99999, "x"]'
    for text in ('[[], 9, "x"]', '[["127.0.0.1"], 1e999, "x"]', far, deep):
        (tmp_path / "m").write_text(text)
        with pytest.raises(RankLost, match="rank 0 did not appear"):
            meet(of(1, 2), str(tmp_path / "m"))


def test_a_rank_that_fails_tells_all(tmp_path: Path) -> None:
    def fail(met: Meeting) -> Any:
        met.barrier()
        if met.rank == 2:
            raise ZeroDivisionError("one by zero")
        return met.everybody(None)

    answers = together(4, str(tmp_path / "m"), fail)
    words = f"rank 2 on {socket.gethostname()}: one by zero"
    assert [str(answer) for answer in answers] == [words, words, "one by zero", words]


def _end(where: str, how: str) -> None:
    with meet(of(1, 3), where) as met:
        met.barrier()
        if how == "ends":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("how", "words"), [("ends", "has ended"), ("stands", "has not been heard of for 2 s")]
)
def test_a_rank_that_is_gone_is_named_on_all(
    how: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (link, arrival):
        monkeypatch.setattr(module, "SILENCE_S", 2.0)
    monkeypatch.setattr(meeting, "BEAT_S", 0.2)
    where = str(tmp_path / "m")
    process = multiprocessing.get_context("fork").Process(target=_end, args=(where, how))
    process.start()

    def wait(met: Meeting) -> Any:
        met.barrier()
        return met.everybody("x" * 20_000_000)  # more than lies between two sockets

    def one(rank: int) -> str:
        try:
            with meet(of(rank, 3), where) as met:
                return str(wait(met))
        except RankLost as lost:
            return str(lost)

    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(one, (0, 2)))
    assert process.pid is not None
    process.kill()
    process.join()
    assert time.monotonic() - began < 10
    for answer in answers:
        assert answer.startswith(f"rank 1 on {socket.gethostname()} {words}")


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
        meet(of(0, 2), where)
    assert words in str(caught.value)


def test_a_file_of_anything_else_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("all of it")
    with pytest.raises(UsageError, match="is a file already"):
        meet(of(0, 2), str(path))
    assert path.read_text() == "all of it"


def test_ranks_that_were_told_of_other_numbers(tmp_path: Path) -> None:
    def one(rank: int, size: int) -> str:
        try:
            with meet(of(rank, size), str(tmp_path / "m")) as met:
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
            meet(of(0, 2), where)
