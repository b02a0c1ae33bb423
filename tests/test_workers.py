"""The process pool: results, errors, crashes, limits, and that nothing outlives it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cudareduce import workers
from cudareduce.errors import CudareduceError, KernelFault
from cudareduce.workers import (
    Exited,
    Limit,
    Message,
    Parent,
    Raised,
    Returned,
    TimedOut,
    Worker,
    WorkerPool,
    cpu_seconds,
    events,
)


class Counter:
    """State that is kept between functions."""

    def __init__(self, parent: Parent) -> None:
        self.parent, self.total = parent, 0

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def steps(self, count: int) -> None:
        for step in range(count):
            self.parent.send(step)

    def fail(self, error: Exception) -> None:
        raise error

    def crash(self, words: str) -> None:
        print("before")
        self.parent.send("begun")
        print(words, flush=True)
        os.abort()

    def end(self, code: int) -> None:
        os._exit(code)

    def garble(self, data: bytes) -> None:
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).startswith("socket:"):
                    os.write(int(entry.name), data)
        time.sleep(99)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def spin(self, seconds: float) -> None:
        self.parent.limit(Limit(seconds, "cpu"))
        while True:
            pass

    def beat(self, index: int) -> str:
        self.parent.beat(index)
        return "done"

    def start_helper(self, seconds: int) -> int:
        return subprocess.Popen(["sleep", str(seconds)], start_new_session=True).pid

    def output(self, text: str) -> list[str]:
        print(text, flush=True)
        return self.parent.take_output()


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool[Counter]]:
    """A pool of forked workers, or of fresh interpreters if a test asks for these too."""
    with WorkerPool(Counter, fresh=getattr(request, "param", False)) as made:
        yield made


either = pytest.mark.parametrize("pool", [False, True], ids=["forked", "fresh"], indirect=True)


@either
def test_a_worker_keeps_its_state_and_is_reused(pool: WorkerPool[Counter]) -> None:
    assert [pool.worker().call(Counter.add, k) for k in (1, 2)] == [Returned(1), Returned(3)]
    assert pool.worker("other").call(Counter.add, 1) == Returned(1)
    assert len(pool) == 2
    event = pool.worker().call(Counter.fail, KernelFault("out of bounds"))
    assert isinstance(event, Raised) and isinstance(event.error, KernelFault)
    event = pool.worker().call(Counter.fail, ValueError("what"))
    assert isinstance(event, Raised) and type(event.error) is CudareduceError
    assert str(event.error) == "internal error: ValueError: what"
    assert pool.worker().call(Counter.output, "a\nb") == Returned(["a", "b"])
    assert pool.worker().call(Counter.add, 1) == Returned(4)


def test_messages_come_before_the_result(pool: WorkerPool[Counter]) -> None:
    worker = pool.worker()
    worker.submit(Counter.steps, 3)
    received: list[workers.Event] = []
    while worker.busy:
        received += [event for _, event in events([worker])]
    assert received == [Message(0), Message(1), Message(2), Returned(None)]


@either
def test_a_crash_has_the_last_line(pool: WorkerPool[Counter]) -> None:
    event = pool.worker().call(Counter.crash, "out of bounds\n")
    assert event == Exited(-6, "out of bounds")
    assert event.how == "ends its process by SIGABRT"
    assert pool.worker().call(Counter.crash, "") == Exited(-6)
    assert pool.worker().call(Counter.end, 7) == Exited(7)
    event = pool.worker().call(Counter.garble, b"\0\0\0\4what")
    assert isinstance(event, Exited) and event.code is None
    assert len(pool) == 0


def test_a_worker_that_does_not_start_has_exited() -> None:
    broken: Worker[Any] = Worker(os.getpid)  # type: ignore[arg-type]
    event = broken.call(int, 1)
    assert isinstance(event, Exited) and not event.started
    assert event.last_line.startswith("TypeError")


def test_a_call_ends_at_its_limit_of_wall_or_processor_time(pool: WorkerPool[Counter]) -> None:
    assert pool.worker().call(Counter.wait, 99, Limit(0.3)) == TimedOut(Limit(0.3))
    limit = Limit(0.2, "cpu")
    assert pool.worker().call(Counter.spin, limit.seconds) == TimedOut(limit)
    worker = pool.worker()
    assert worker.call(Counter.beat, 7, Limit(60.0)) == Returned("done")
    assert worker.beat_index == 7 and worker.silent_s < 60


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def test_processes_that_a_worker_has_started_end_with_it() -> None:
    with WorkerPool(Counter, fresh=True) as pool:
        event = pool.worker().call(Counter.start_helper, 9999)
        assert isinstance(event, Returned)
        assert is_running(event.value)
    while is_running(event.value):
        time.sleep(0.05)


def test_a_worker_ends_with_its_parent() -> None:
    """Whatever it is doing, and though the fork server is its parent."""
    code = (
        "from tests.test_workers import Counter; from cudareduce.workers import WorkerPool\n"
        "if __name__ == '__main__':\n"
        "    worker = WorkerPool(Counter).worker()\n"
        "    worker.submit(Counter.spin, 99.0)\n"
        "    print(worker._process.pid, flush=True)\n"
        "    import os; os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    while is_running(int(done.stdout)):
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("spent_s", "wall", "overdue"),
    [
        (1.0, False, False),  # other processes have the processors
        (70.0, False, True),
        (1.0, True, True),
        (0.0, False, True),  # it waits for something else
        (None, False, True),
    ],
)
def test_a_process_that_waits_for_a_processor_does_not_hang(
    monkeypatch: pytest.MonkeyPatch, spent_s: float | None, wall: bool, overdue: bool
) -> None:
    clock = [0.0]
    monkeypatch.setattr(workers, "monotonic", lambda: clock[0])
    monkeypatch.setattr(workers, "cpu_seconds", lambda _: spent_s if clock[0] else 0.0)
    watched = workers._Watchdog(1, Limit(60.0, "wall" if wall else "cpu"))
    clock[0] = 59.0
    assert not watched.overdue()
    clock[0] = 60.0
    if wall:
        assert not watched.overdue(last_beat=30.0) and watched.next_check == 30.0 + 60.0
        clock[0] = 90.0
    assert watched.overdue() == overdue
    assert overdue or watched.next_check == 60.0 + 59.0


def test_a_heartbeat_starts_the_wall_clock_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(workers, "monotonic", lambda: clock[0])
    watched = workers._Watchdog(1, Limit(60.0))
    clock[0] = 70.0
    assert not watched.overdue(last_beat=20.0)
    clock[0] = 80.0
    assert watched.overdue(last_beat=20.0)


def test_processor_time_of_a_process() -> None:
    before_s, tick_s = sum(os.times()[:2]), 1 / os.sysconf("SC_CLK_TCK")
    spent_s = cpu_seconds(os.getpid())
    assert spent_s is not None
    assert before_s - 2 * tick_s < spent_s < sum(os.times()[:2]) + 2 * tick_s
    assert cpu_seconds(2**30) is None
