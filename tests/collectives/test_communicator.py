"""Rendezvous of ranks, exchange of values, detection of lost ranks, and how ranks are started."""

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

from cudareduce.collectives import communicator, launcher
from cudareduce.collectives.communicator import (
    LAUNCHERS,
    Communicator,
    Launcher,
    Placement,
    RankLost,
    connect,
    find_placement,
)
from cudareduce.errors import UsageError

HOST = socket.gethostname()
each_launcher = pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.name)


def placement(rank: int, size: int) -> Placement:
    return Placement("cudareduce", rank, size, rank, "a job")


def run_ranks(
    size: int, where: object, do: Callable[[Communicator], Any], sizes: tuple[int, ...] = ()
) -> list[Any]:
    """Run each rank in a thread. Returns what each returned, or the error that ended it."""

    def run_rank(rank: int, size: int) -> Any:
        try:
            with connect(placement(rank, size), str(where)) as comm:
                return do(comm)
        except (RankLost, UsageError, ZeroDivisionError) as error:
            return error

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run_rank, range(size), sizes or (size,) * size))


def environment(launcher: Launcher, rank: str = "2", size: str = "4") -> dict[str, str]:
    return {launcher.rank: rank, launcher.size: size, launcher.local_rank: "1", launcher.job: "j"}


@each_launcher
def test_a_launcher_places_a_rank(launcher: Launcher) -> None:
    variables = environment(launcher)
    assert find_placement(variables) == Placement(launcher.name, 2, 4, 1, "j")
    del variables[launcher.local_rank], variables[launcher.job]
    assert find_placement(variables) == Placement(launcher.name, 2, 4, 2, "job")


def test_one_rank_alone_has_no_placement() -> None:
    slurm_shell = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_JOB_ID": "7"}
    alone = {"RANK": "0", "WORLD_SIZE": "1"}
    for variables in ({}, {"SLURM_PROCID": "0"}, alone, slurm_shell):
        assert find_placement(variables) is None
    both = slurm_shell | {"RANK": "1", "WORLD_SIZE": "2"}
    assert find_placement(both) == Placement("torchrun", 1, 2, 1, "job")


@pytest.mark.parametrize(
    ("rank", "size", "words"),
    [
        ("4", "4", "RANK=4 and WORLD_SIZE=4: ranks count from 0"),
        ("-1", "4", "RANK='-1', which is not a valid number"),
        ("one", "4", "RANK='one', which is not a valid number"),
        ("0", "", "WORLD_SIZE='', which is not a valid number"),
        ("0", "0", "WORLD_SIZE='0', which is not a valid number"),
        ("0", "9", "started 9 ranks, and cudareduce takes 8 at most"),
    ],
)
def test_a_wrong_number_of_a_launcher_is_named(rank: str, size: str, words: str) -> None:
    with pytest.raises(UsageError, match="torchrun") as caught:
        find_placement({"RANK": rank, "WORLD_SIZE": size})
    assert words in str(caught.value)


def test_values_arrive_in_the_order_of_ranks(tmp_path: Path) -> None:
    def talk(comm: Communicator) -> Any:
        first = comm.all_gather({"rank": comm.rank, "text": "é" * comm.rank})
        comm.barrier()
        large = comm.all_gather("x" * 3_000_000)  # more than sockets hold
        return first, comm.gather(comm.rank**2), comm.broadcast(f"of rank {comm.rank}"), large

    results = run_ranks(4, tmp_path / "m.json", talk)
    every = [{"rank": rank, "text": "é" * rank} for rank in range(4)]
    assert [result[0] for result in results] == [every] * 4
    assert [result[1] for result in results] == [[0, 1, 4, 9], [], [], []]
    assert {result[2] for result in results} == {"of rank 0"}
    assert [result[3] for result in results] == [["x" * 3_000_000] * 4] * 4
    assert list(tmp_path.iterdir()) == []  # the file is gone


def test_ranks_connect_at_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match="cannot listen there"):
            connect(placement(0, 2), where)
    assert run_ranks(3, where, lambda comm: comm.all_gather(comm.rank)) == [[0, 1, 2]] * 3


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("tcp://nowhere", "give rank 0's host and a free port"),
        ("tcp://host:99999", "give rank 0's host and a free port"),
        ("tcp://:5000", "give rank 0's host and a free port"),
        ("/no/such/folder/m", "cannot be written (No such file or directory)"),
    ],
)
def test_an_unusable_rendezvous_is_a_usage_error(where: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(placement(0, 2), where)
    assert words in str(caught.value)


def test_another_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("all of it")
    with pytest.raises(UsageError, match="is a file of something else"):
        connect(placement(0, 2), str(path))
    assert path.read_text() == "all of it"


def test_a_rendezvous_file_is_created_under_a_new_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link at a name that can be predicted must not redirect the file."""
    monkeypatch.setattr(communicator, "ARRIVAL_S", 0.01)
    path, victim = tmp_path / "m", tmp_path / "victim"
    victim.write_text("keep")
    for name in (f"m.{os.getpid()}", "m.tmp"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(RankLost):
        connect(placement(0, 2), str(path))
    assert victim.read_text() == "keep"


def test_a_rendezvous_file_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    path.write_text('[["127.0.0.1"], 9, "x"]')
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr(communicator, "ARRIVAL_S", 0.1)
    with pytest.raises(UsageError, match="of another user"):
        connect(placement(0, 2), str(path))
    with pytest.raises(RankLost, match="not all ranks connected at"):
        connect(placement(1, 2), str(path))


def test_ranks_that_do_not_connect_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communicator, "ARRIVAL_S", 0.3)
    path = tmp_path / "m"
    with ThreadPoolExecutor(1) as pool:
        alone = pool.submit(connect, placement(0, 4), str(path))
        while not path.exists():
            time.sleep(0.01)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600  # it has the key
        with pytest.raises(RankLost, match=r"ranks 1, 2, 3 of 4 did not connect"):
            alone.result()
    assert not path.exists()
    for text in ("", '[[], 9, "x"]', '[["127.0.0.1"], 1e999, "x"]', '[["127.0.0.1"], 99999, "x"]',
                 "[" * 9999):  # fmt: skip
        path.write_text(text)
        with pytest.raises(RankLost, match="not all ranks connected at"):
            connect(placement(1, 4), str(path))


@pytest.mark.long
def test_unauthenticated_connections_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that send garbage, that do not know the key, and that claim no possible rank."""
    monkeypatch.setattr(communicator, "_HANDSHAKE_S", 0.5)
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

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(connect, placement(0, 2), str(path))
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b"\x7f\xff\xff\xff"):
            garbage(text)
        authenticated(b"wrong", [1, 2, "h", "data"])
        impossible: list[Any] = [[7, 2, "h", "data"], [0, 2, "h", "data"], ["one", 2, "h", "data"],
                                 [1, 2, "h", "other"], [], {}]  # fmt: skip
        for greeting in impossible:
            authenticated(None, greeting)
        with (
            pool.submit(connect, placement(1, 2), str(path)).result() as one,
            first.result() as zero,
        ):
            gathered = pool.submit(zero.all_gather, "zero")
            assert one.all_gather("one") == ["zero", "one"] == gathered.result()


def test_ranks_with_another_number_of_ranks_are_refused(tmp_path: Path) -> None:
    first, other = run_ranks(2, tmp_path / "m", Communicator.barrier, sizes=(2, 3))
    assert str(first) == str(other)
    assert "is one of 3, and rank 0 one of 2: start all with the same number" in str(first)


def test_a_rank_that_fails_ends_all_with_its_error(tmp_path: Path) -> None:
    def fail(comm: Communicator) -> Any:
        comm.barrier()
        if comm.rank == 2:
            raise ZeroDivisionError("one by zero")
        return comm.all_gather(None)

    words = f"rank 2 on {HOST}: one by zero"
    results = run_ranks(4, tmp_path / "m", fail)
    assert [str(result) for result in results] == [words, words, "one by zero", words]


def _end(where: str, how: str) -> None:
    with connect(placement(1, 3), where) as comm:
        comm.barrier()
        if how == "ends":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("how", "silence_s", "words"),
    [("ends", 60.0, "has ended"), ("stops", 3.0, "has sent no heartbeat for 3 s")],
)
def test_a_lost_rank_is_named_on_all_ranks(
    how: str, silence_s: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(communicator, "SILENCE_S", silence_s)
    where = str(tmp_path / "m")
    process = multiprocessing.get_context("fork").Process(target=_end, args=(where, how))
    process.start()

    def one(rank: int) -> str:
        try:
            with connect(placement(rank, 3), where) as comm:
                comm.barrier()
                return str(comm.all_gather("x" * 20_000_000))  # more than sockets hold
        except RankLost as lost:
            return str(lost)

    with ThreadPoolExecutor(2) as pool:
        reasons = list(pool.map(one, (0, 2)))
    process.kill()
    process.join()
    for reason in reasons:
        assert reason.startswith(f"rank 1 on {HOST} {words}")


_STUCK = """
import os, sys, time
from cudareduce.collectives import communicator
from cudareduce.collectives.communicator import Placement, connect
communicator.SILENCE_S = 12.0
rank, where = int(sys.argv[1]), sys.argv[2]
with connect(Placement("other", rank, 3, rank, "j"), where) as comm:
    with comm.during("a call"):
        comm.barrier()
        if rank == 1:
            os._exit(3)
        time.sleep(600)
"""


def test_ranks_that_wait_in_a_kernel_end_as_well(tmp_path: Path) -> None:
    """Their main threads do not wait for a connection, so the heartbeat thread ends them."""
    processes = [
        subprocess.Popen([sys.executable, "-c", _STUCK, str(rank), str(tmp_path / "m")],
                         stderr=subprocess.PIPE, text=True)
        for rank in range(3)
    ]  # fmt: skip
    printed = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [6, 3, 6]
    for text in (printed[0], printed[2]):
        assert text.startswith(f"cudareduce: rank 1 on {HOST} has ended")
        assert text.endswith("; all were at a call\n")


def test_the_watchdog_ends_only_calls_that_take_too_long() -> None:
    code = (
        "import time; from cudareduce.collectives.communicator import watchdog\n"
        "with watchdog('a call', 60): pass\n"
        "with watchdog('another', 0.1): time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 6
    why = "cudareduce: another has not ended within 0.1 s: see what else runs on these GPUs"
    assert done.stderr.startswith(why)


def test_exit_codes_of_ranks_become_one() -> None:
    """Python's own 1 must never read as a regression."""
    worst = launcher.worst_of_ranks
    assert worst([0, 0]) == 0
    assert worst([0, 3]) == worst([6, 3]) == 3
    assert worst([4, 4]) == 4
    assert worst([0, 1]) == worst([-9, 0]) == worst([7, 3]) == 6
    assert worst([0, 130, 2]) == 130


def test_a_hanging_rank_0_does_not_hide_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_GRACE_S", 0.1)
    with subprocess.Popen(["sleep", "60"]) as first, subprocess.Popen(["false"]) as second:
        launcher._wait([first, second])
        assert first.poll() is None
        first.kill()


@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("if rank: time.sleep(60)", 6, "rank 1 did not respond and was killed\n"),
        ("if rank: sys.stderr.write('Traceback\\n'); sys.exit(70)", 70, "rank 1: Traceback\n"),
        ("if rank: sys.stderr.write('NCCL has not ended within 1 s\\n'); sys.exit(6)", 6,
         "rank 1: NCCL has not ended within 1 s\n"),
        ("sys.stderr.write('Error: no GPU\\n'); sys.exit(6)", 6, "Error: no GPU\n"),
    ],
    ids=["stands still", "crashes", "is ended by the watchdog", "rank 0 has printed why"],
)  # fmt: skip
def test_errors_of_other_ranks_are_printed(
    text: str, code: int, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    program = tmp_path / "program.py"
    program.write_text(f"import os, sys, time\nrank = int(os.environ['CUDAREDUCE_RANK'])\n{text}")
    monkeypatch.setattr(launcher, "PROGRAM", (sys.executable, str(program)))
    monkeypatch.setattr(launcher, "_GRACE_S", 0.3)
    assert launcher.start_ranks(2, ()) == code
    assert capfd.readouterr().err == printed
