"""Libraries that misbehave are rows, word for word, and the run goes on without them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.backends import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.launch.case import Case
from cudareduce.library.registry import Registry
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.job import Job, Outcome
from cudareduce.peers.process import Processes
from cudareduce.problem.operators import reduction_of
from cudareduce.timing.sampling import COLD
from tests.conftest import ROOT
from tests.peers.fakes import serve_fake

SUM = reduction_of("sum", "float32")
N = 2**13


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes(None, serve_fake) as made:
        yield made


def job(registry: Registry, cache: Path, *names: str, rounds: int = 6) -> Job:
    kernel = registry.kernels["reduce_v7_shuffle"]
    case = Case(kernel, SUM, kernel.block, kernel.items)
    return Job(
        spec=BackendSpec("cuda", cache=cache), reduction=SUM, shapes=((33, 1), (33, 5), (N, 1)),
        listings=tuple(Listing(f"tests.peers.fakes:{name}") for name in names),
        folder=str(cache), kernels=((case, case.plan(N)),), methods=(COLD,), rounds=rounds,
    )  # fmt: skip


def reasons(outcome: Outcome) -> dict[str, str]:
    return {
        name: f"{found.verdict.outcome}: {found.verdict.reason}"
        for name, found in outcome.peers.items()
    }


def test_each_is_a_row(registry: Registry, cache: Path, processes: Processes) -> None:
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
        "no_memory": "skip: found no memory on the GPU for its own (OutOfMemory: its pool is "
        "empty)",
        "wrong": "fail: n = 33, exact: got -5.34386337e-13, expected -3.56257558e-13",
        "raises": "skip: raises ValueError: what is this?",
        "crashes": "fail: ends its process by SIGABRT",
    }
    found = outcome.passes["cold"]
    assert set(found.timings) == {"fine", "reduce_v7_shuffle"}
    assert found.timings["fine"].median_us == pytest.approx(10, rel=0.05)
    assert len(found.timings["fine"].by_round) == 6
    assert outcome.peers["fine"].version == "1.2.3"
    assert outcome.peers["fine"].called == "fake.sum, fine"
    assert outcome.peers["fine:as_called"].host_us == pytest.approx(57)
    assert outcome.peers["own"].host_us is not None
    # What took a process down once is not given the next one.
    later = replace(asked, listings=asked.listings[3:4], rounds=0, methods=())
    again = processes.outcome(later, Deadline(), lambda: None)
    assert reasons(again) == {name: reasons(outcome)[name] for name in ("crashes",)}


def test_a_hang(registry: Registry, cache: Path) -> None:
    """It alone is given little time: on a busy machine the others might need more."""
    with Processes(3.0, serve_fake) as processes:
        asked = job(registry, cache, "HANGING", rounds=0)
        outcome = processes.outcome(asked, Deadline(), lambda: None)
    why = "fail: no answer after 3 s: it hangs, or --time-limit is too short"
    assert reasons(outcome) == {"hangs": why}


def test_what_breaks_the_device(registry: Registry, cache: Path, processes: Processes) -> None:
    """After an error that leaves the context unusable the process is another one."""
    asked = job(registry, cache, "FINE", "BREAKING", rounds=0)
    outcome = processes.outcome(asked, Deadline(), lambda: None)
    assert reasons(outcome) == {
        "fine": "pass: ",
        "fine:as_called": "pass: ",
        "breaks": "skip: raises RuntimeError: CUDA error 700: illegal address",
    }


def test_two_runtimes_are_told(registry: Registry, cache: Path, processes: Processes) -> None:
    outcome = processes.outcome(
        job(registry, cache, "RUNTIMES", rounds=1), Deadline(), lambda: None
    )
    assert reasons(outcome) == {
        "runtime_12": "pass: ",
        "runtime_13": "pass: brought libcudart.so.13 into a process that had libcudart.so.12: name "
        "it alone with --peers where its figures look odd",
    }
    assert outcome.remarks == (
        "the libraries loaded 2 CUDA runtimes into one process (libcudart.so.12, libcudart.so.13): "
        "name fewer with --peers where figures look odd",
    )


def test_locks_of_libraries_are_not_missed(cache: Path) -> None:
    """tqdm, which others bring along, makes one that nobody gives back when its process is ended:
    Python said so on the terminal, after everything else."""
    code = (
        "from pathlib import Path; from cudareduce.budget import Deadline; "
        "from cudareduce.library.registry import load_registry; "
        "from cudareduce.peers.process import Processes; from tests.peers.fakes import serve_fake; "
        "from tests.peers.test_process import job\n"
        "if __name__ == '__main__':\n"
        "    with Processes(None, serve_fake) as processes:\n"
        f"        asked = job(load_registry(), Path({str(cache)!r}), 'LOCKING', rounds=0)\n"
        "        outcome = processes.outcome(asked, Deadline(), lambda: None)\n"
        "    assert outcome.peers['locking'].verdict.outcome == 'pass'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_time_is_left(registry: Registry, cache: Path, processes: Processes) -> None:
    past = Deadline(0.0)
    outcome = processes.outcome(job(registry, cache, "FINE"), past, lambda: None)
    assert set(reasons(outcome).values()) == {"skip: --max-time was spent before it was tried"}
