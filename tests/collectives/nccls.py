"""Ranks on simulated GPUs whose streams a library of the host's can be given: a clock lies where
the stream's handle points to, and calls of the library let it go on."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.collectives import windows
from cudareduce.collectives.collective import CollectiveExperiment, run_collective
from cudareduce.collectives.communicator import Placement, connect
from cudareduce.collectives.names import Collective
from cudareduce.collectives.nccl import select_libraries
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Record
from cudareduce.workers import fork_server
from tests.collectives import fake_torch
from tests.fake_gpu import FakeGpu, FilePeerMemory

SOURCE = Path(__file__).with_name("fake_nccl.cpp")


def compiled(folder: Path, name: str, *defines: str) -> Path:
    """A library that does what NCCL does, or what its defines say."""
    path = folder / f"{name}.so"
    command = ["g++", "-O1", "-shared", "-fPIC", "-std=c++17", "-o", str(path), str(SOURCE)]
    subprocess.run([*command, *(f"-D{define}" for define in defines)], check=True)
    return path


class StreamGpu(FakeGpu):
    """A simulated GPU with such a stream."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._spent = ctypes.c_double()
        self.stream_handle = ctypes.addressof(self._spent)

    def mark(self) -> float:
        return self.clock + self._spent.value


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What ranks try, one reduction after the other, and where they meet; what is compiled is kept
    in `cache`. `torch` is the library that its stand-in calls, if there is to be one."""

    folder: Path
    cache: Path
    engines: tuple[str, ...]
    files: tuple[Path, ...]
    tried: tuple[tuple[Collective, str, str], ...] = (("all-reduce", "sum", "float32"),)
    sizes: tuple[int, ...] = (1000,)
    rounds: int = 2
    ranks: int = 2
    rank: int = 0
    torch: Path | None = None


def _one(asked: Asked) -> list[Record]:
    """What one rank finds."""
    if asked.torch:
        fake_torch.install(asked.torch)
    gpu: FakeGpu = StreamGpu(asked.cache, noise=0.0, threads=1)
    here = Placement("cudareduce", asked.rank, asked.ranks, asked.rank, "a job")
    vars(windows)["IpcMemory"] = lambda nbytes: FilePeerMemory(nbytes, asked.folder)
    records: list[Record] = []
    with gpu, connect(here, str(asked.folder / "m")) as met:
        for collective, op, dtype in asked.tried:
            asks = CollectiveExperiment(
                collective=collective, kernels=(), by_host=False,
                libraries=select_libraries(asked.engines, asked.files), sizes=asked.sizes,
                timed=True, rounds=asked.rounds,
            )  # fmt: skip
            found, _ = run_collective(asks, reduction_of(op, dtype), met, gpu)
            records += found
    return records


def together(asked: Asked) -> list[Record]:
    """What all ranks find, which must be the same."""
    each = [replace(asked, rank=rank) for rank in range(asked.ranks)]
    with ProcessPoolExecutor(asked.ranks, fork_server()) as pool:
        first, *others = pool.map(_one, each)
    for other in others:
        assert [(r.engine, r.n, r.time_us, r.reason) for r in other] == [
            (r.engine, r.n, r.time_us, r.reason) for r in first
        ]
    return first
