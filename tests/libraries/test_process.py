"""Libraries that misbehave are rows, word for word, and the run goes on without them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.catalog.registry import Registry
from cudareduce.launch.case import Case
from cudareduce.libraries.catalogue import Listing
from cudareduce.libraries.job import Job, Outcome
from cudareduce.libraries.session import LibraryWorkers
from cudareduce.libraries.worker import LibraryRunner
from cudareduce.reduction.operators import reduction_of
from cudareduce.timing.sampling import COLD
from tests.conftest import ROOT
from tests.libraries.fakes import FakeRunner

SUM = reduction_of("sum", "float32")
N = 2**13


@pytest.fixture
def processes() -> Iterator[LibraryWorkers]:
    with LibraryWorkers(None, FakeRunner) as opened:
        yield opened


def job(registry: Registry, cache: Path, *names: str, rounds: int = 6) -> Job:
    kernel = registry.kernels["reduce_v7_shuffle"]
    case = Case(kernel, SUM, kernel.block, kernel.items)
    return Job(
        spec=BackendSpec("cuda", cache=cache), reduction=SUM, shapes=((33, 1), (33, 5), (N, 1)),
        listings=tuple(Listing(f"tests.libraries.fakes:{name}") for name in names),
        folder=str(cache), kernels=((case, case.plan(N)),), methods=(COLD,), rounds=rounds,
    )  # fmt: skip


def reasons(outcome: Outcome) -> dict[str, str]:
    return {
        name: f"{found.verdict.outcome}: {found.verdict.reason}"
        for name, found in outcome.results.items()
    }


@pytest.mark.long
def test_each_library_has_a_verdict_and_right_ones_have_times(
    registry: Registry, cache: Path, processes: LibraryWorkers
) -> None:
    """A crash takes its process with it; the others are timed all the same."""
    asked = job(registry, cache, "FINE", "MISSING", "FAILING", "CRASHING", "OWN")
    outcome = processes.outcome(asked, Deadline(), lambda: None)
    assert reasons(outcome) == {
        "fine": "pass: ",
        "fine:as_called": "pass: ",
        "own": "pass: ",
        "absent": "skip: not installed: pip install fake",
        "too_old": "skip: fake 0.9 is too old: 1.0 or newer is needed: pip install -U fake",
        "broken": "skip: cannot be imported (ImportError: libfake.so.1: cannot open shared object "
        "file): pip install -U fake",
        "no_code": "skip: has no code for this GPU's architecture (RuntimeError: CUDA error: no "
        "kernel image is available): pip install -U fake",
        "no_memory": "skip: found too little memory on the GPU (OutOfMemory: its pool is empty)",
        "no_host_memory": "skip: found too little memory on the host (MemoryError: Unable to "
        "allocate 8 GiB)",
        "wrong": "fail: n = 33, exact: got -5.34386337e-13, expected -3.56257558e-13",
        "raises": "skip: raises ValueError: what is this?",
        "crashes": "fail: ends its process by SIGABRT",
    }
    found = outcome.passes["cold"]
    assert set(found.timings) == {"fine", "reduce_v7_shuffle"}
    assert found.timings["fine"].median_us == pytest.approx(10, rel=0.05)
    assert len(found.timings["fine"].by_round) == 6
    assert outcome.results["fine"].version == "1.2.3"
    assert outcome.results["fine"].called == "fake.sum, fine"
    assert outcome.results["fine:as_called"].host_us == pytest.approx(57)
    assert outcome.results["own"].host_us is not None
    # What took a process down once is not given the next one.
    later = replace(asked, listings=asked.listings[3:4], rounds=0, methods=())
    again = processes.outcome(later, Deadline(), lambda: None)
    assert reasons(again) == {name: reasons(outcome)[name] for name in ("crashes",)}


def test_every_timed_launch_is_verified(
    registry: Registry, cache: Path, processes: LibraryWorkers
) -> None:
    """At every launch, as those of kernels are, whether one is right at first or not."""
    names = ("KEEPING", "WRITING", "LATER", "FINE")  # who comes last is measured on what is left
    outcome = processes.outcome(job(registry, cache, *names, rounds=1), Deadline(), lambda: None)
    found = reasons(outcome)
    assert found.pop("keeps").startswith("fail: n = 33, exact: got ")
    assert found.pop("writes") == "fail: n = 33, exact: it wrote to its input"
    launch, why = found.pop("writes_later").split(": ", 3)[2:]
    assert (launch[:12], why) == ("timed launch", "it wrote to its input")
    assert found.pop("later").startswith("fail: after timing: timed launch ")
    assert found.pop("later:as_called").startswith("fail: got 0, expected ")
    assert found == {"fine": "pass: ", "fine:as_called": "pass: "}
    assert [verdict.outcome for verdict in outcome.kernels.values()] == ["pass"]
    assert outcome.results["later:as_called"].host_us is None


#: Fakes by name, a time limit for a call, and their verdicts; a library that ends its process or
#: meddles with it takes no other with it.
MISBEHAVING: dict[str, tuple[float | None, dict[str, str]]] = {
    "NOISY,EXITING,GARBLING,CRASHING": (None, {
        "noisy": "pass: ",
        "exits": "skip: cannot be imported (ends its process with code 3): pip install -U fake",
        "garbles": "fail: sends invalid messages: it writes to a descriptor that it has not opened",
        "crashes": "fail: ends its process by SIGABRT",
    }),
    "FORKING,TWICE,SPEECHLESS,MUTE,FINE": (None, {
        "forks": "fail: ends its process by SIGABRT",
        "twice": "pass: ",
        "speechless": "skip: raises SpeechlessError",
        "mute": "pass: ",
        "fine": "pass: ",
        "fine:as_called": "pass: ",
    }),
    "FINE,BREAKING": (None, {
        "fine": "pass: ",
        "fine:as_called": "pass: ",
        "breaks": "skip: raises RuntimeError: CUDA error 700: illegal address",
    }),
    "ODD_ANSWERS": (None, {
        "none": "fail: n = 33, exact: it returns 0 results, not 1",
        "three": "fail: n = 33, exact: it returns 3 results, not 1",
        "complex": "fail: n = 33, exact: it returns results of type complex128",
        "object": "fail: n = 33, exact: it returns results of type object",
        "none:own": "fail: it returns 0 results, not 1",
    }),
    "HANGING": (3.0, {
        "hangs": "fail: no result after 3 s: it hangs, or --time-limit is too short",
    }),
    "ALONE": (3.0, {
        "own:aborts": "fail: ends its process by SIGABRT",
        "own:hangs": "fail: no result after 3 s: it hangs, or --time-limit is too short",
        "own:fine": "skip: takes nothing",
    }),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "names",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "ALONE")) for name in MISBEHAVING],
)
def test_a_library_that_misbehaves_is_a_row(registry: Registry, cache: Path, names: str) -> None:
    limit_s, verdicts = MISBEHAVING[names]
    with LibraryWorkers(limit_s, FakeRunner) as processes:
        asked = job(registry, cache, *names.split(","), rounds=0)
        assert reasons(processes.outcome(asked, Deadline(), lambda: None)) == verdicts


@pytest.mark.long
def test_processes_that_a_library_starts_are_ended(registry: Registry, cache: Path) -> None:
    with LibraryWorkers(None, FakeRunner) as processes:
        asked = job(registry, cache, "CRASHING", "SPAWNING", rounds=0)
        outcome = processes.outcome(asked, Deadline(), lambda: None)
        assert outcome.results["spawns"].verdict.outcome == "pass"
        assert helpers()
    ends = monotonic() + 120
    while helpers():  # of the process that crashed beside it, too
        assert monotonic() < ends
        sleep(0.05)


def helpers() -> list[Path]:
    """The helper processes that SPAWNING has started for this process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes() == f"sleep\x0099.{os.getpid()}\0".encode():
                found.append(path)
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", [pytest.param("SLOW", marks=pytest.mark.slow), "HANGING"])
def test_verification_ends_at_the_deadline(
    registry: Registry, cache: Path, processes: LibraryWorkers, monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:  # fmt: skip
    """Between two calls, and where there is no end of one."""
    monkeypatch.setattr("cudareduce.libraries.session._GRACE_S", 1.5)
    processes.outcome(job(registry, cache, "FINE", rounds=0), Deadline(), lambda: None)  # has begun
    began = monotonic()
    outcome = processes.outcome(job(registry, cache, name, rounds=0), Deadline(3.0), lambda: None)
    [reason] = reasons(outcome).values()
    assert reason == "skip: --max-time was spent before it was verified"
    assert monotonic() - began < 35  # and 40 inputs of a second each


@pytest.mark.slow
def test_a_remark_quotes_max_time(
    registry: Registry, cache: Path, processes: LibraryWorkers
) -> None:
    """Libraries get the time that is left of the run's limit."""
    asked = replace(job(registry, cache, "FINE", rounds=10**6), max_time_s=77.0)
    for seconds in (3.0, 30.0):  # a process takes its time to begin on a busy machine
        outcome = processes.outcome(asked, Deadline(seconds), lambda: None)
        if outcome.passes:
            break
    assert "--max-time 77 s cut 1000000 rounds to" in " ".join(outcome.passes["cold"].remarks)


def test_two_cuda_runtimes_are_a_remark(
    registry: Registry, cache: Path, processes: LibraryWorkers
) -> None:
    outcome = processes.outcome(
        job(registry, cache, "RUNTIMES", rounds=1), Deadline(), lambda: None
    )
    assert reasons(outcome) == {
        "runtime_12": "pass: ",
        "runtime_13": "pass: loaded libcudart.so.13 into a process that had libcudart.so.12: name "
        "it alone with --peers if its times look wrong",
    }
    assert outcome.remarks == (
        "the libraries loaded 2 CUDA runtimes into one process (libcudart.so.12, libcudart.so.13): "
        "name fewer with --peers where figures look odd",
    )


@pytest.mark.long
def test_a_lock_of_a_library_prints_no_warning(cache: Path) -> None:
    """tqdm, a dependency of libraries, creates a semaphore that a killed process leaks; Python
    printed a warning about it."""
    code = (
        "from pathlib import Path; from cudareduce.budget import Deadline; "
        "from cudareduce.catalog.registry import load_registry; "
        "from cudareduce.libraries.session import LibraryWorkers; "
        "from tests.libraries.fakes import FakeRunner; "
        "from tests.libraries.test_process import job\n"
        "if __name__ == '__main__':\n"
        "    with LibraryWorkers(None, FakeRunner) as processes:\n"
        f"        asked = job(load_registry(), Path({str(cache)!r}), 'LOCKING', rounds=0)\n"
        "        outcome = processes.outcome(asked, Deadline(), lambda: None)\n"
        "    assert outcome.results['locking'].verdict.outcome == 'pass'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_time_nothing_is_tried(
    registry: Registry, cache: Path, processes: LibraryWorkers
) -> None:
    past = Deadline(0.0)
    outcome = processes.outcome(job(registry, cache, "FINE"), past, lambda: None)
    assert set(reasons(outcome).values()) == {"skip: --max-time was spent before it was tried"}


class Counting(LibraryRunner):
    """Reports of each job how many other processes the run has."""

    def run(self, job: Job) -> Outcome:
        return Outcome(remarks=(str(job.ours),))


@pytest.mark.long
def test_processes_of_the_run_are_counted(registry: Registry, cache: Path) -> None:
    with LibraryWorkers(None, Counting) as processes:
        asked, past = job(registry, cache, "FINE"), Deadline()
        first = processes.outcome(asked, past, lambda: None)
        processes.outcome(replace(asked, alone="fine"), past, lambda: None)
        second = processes.outcome(asked, past, lambda: None)
    assert (first.remarks, second.remarks) == (("1",), ("2",))
