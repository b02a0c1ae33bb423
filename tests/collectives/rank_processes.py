"""Ranks as processes on simulated GPUs, and a fake NCCL that is compiled here.

The fake NCCL is called with a stream handle. The handle of `StreamGpu` points to a clock, which a
call of the fake library advances.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from cudareduce.collectives import windows
from cudareduce.collectives.collective import CollectiveExperiment, run_collective
from cudareduce.collectives.communicator import Communicator, Placement, connect
from cudareduce.collectives.names import Collective
from cudareduce.collectives.nccl import select_libraries
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record
from cudareduce.workers import fork_server
from tests.collectives import fake_torch
from tests.fake_gpu import FakeGpu, FilePeerMemory

SOURCE = Path(__file__).with_name("fake_nccl.cpp")
Options = TypeVar("Options")


def run_ranks(
    run: Callable[[Options], list[Record]], ranks: Sequence[Options]
) -> list[list[Record]]:
    """Run each rank in a process of its own; the records of each."""
    with ProcessPoolExecutor(len(ranks), fork_server()) as pool:
        return list(pool.map(run, ranks))


@contextmanager
def connected(rank: int, ranks: int, folder: Path) -> Iterator[Communicator]:
    """The communicator of a rank, with windows in files of `folder` instead of GPU memory."""
    vars(windows)["IpcMemory"] = lambda nbytes: FilePeerMemory(nbytes, folder)
    placement = Placement("cudareduce", rank, ranks, rank, "a job")
    with connect(placement, str(folder / "m")) as comm:
        yield comm


def compile_nccl(folder: Path, name: str, *defines: str) -> Path:
    """Compile the fake NCCL with macros that change its cost, its version or its results."""
    path = folder / f"{name}.so"
    command = ["g++", "-O1", "-shared", "-fPIC", "-std=c++17", "-o", str(path), str(SOURCE)]
    subprocess.run([*command, *(f"-D{define}" for define in defines)], check=True)
    return path


class StreamGpu(FakeGpu):
    """A simulated GPU whose stream handle is the address of a clock."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._spent = ctypes.c_double()
        self.stream_handle = ctypes.addressof(self._spent)

    def mark(self) -> float:
        return self.clock + self._spent.value


@dataclass(frozen=True, kw_only=True)
class LibraryRun:
    """Library engines and reductions to measure. `cache` is the compiler cache, `torch` the library
    that a fake torch calls."""

    folder: Path
    cache: Path
    engines: tuple[str, ...]
    files: tuple[Path, ...]
    reductions: tuple[tuple[Collective, str, str], ...] = (("all-reduce", "sum", "float32"),)
    sizes: tuple[int, ...] = (1000,)
    rounds: int = 2
    ranks: int = 2
    rank: int = 0
    torch: Path | None = None


def _measure_rank(run: LibraryRun) -> list[Record]:
    if run.torch:
        fake_torch.install(run.torch)
    gpu: FakeGpu = StreamGpu(run.cache, noise=0.0, threads=1)
    records: list[Record] = []
    with gpu, connected(run.rank, run.ranks, run.folder) as comm:
        for collective, op, dtype in run.reductions:
            experiment = CollectiveExperiment(
                collective=collective, kernels=(), by_host=False,
                libraries=select_libraries(run.engines, run.files), sizes=run.sizes,
                timed=True, rounds=run.rounds,
            )  # fmt: skip
            measured, _ = run_collective(experiment, reduction_of(op, dtype), comm, gpu)
            records += measured
    return records


def measure_libraries(run: LibraryRun) -> list[Record]:
    """Measure on all ranks; their records, which must be the same."""
    first, *others = run_ranks(_measure_rank, [replace(run, rank=k) for k in range(run.ranks)])
    for other in others:
        assert [(r.engine, r.n, r.time_us, r.reason) for r in other] == [
            (r.engine, r.n, r.time_us, r.reason) for r in first
        ]
    return first
