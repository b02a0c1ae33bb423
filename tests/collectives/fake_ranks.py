"""The command line on simulated GPUs, and each rank that it starts.

The simulation is configured by a JSON file that `CUDAREDUCE_TEST_GPUS` names: how many GPUs there
are (`gpus`), how much longer kernels take, by their names (`factors`), how much slower the second
rank is at all of them (`late`), and at which job ranks exit (`dies`).
"""

from __future__ import annotations

import json
import os
import sys
from math import inf
from pathlib import Path

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.collectives.communicator import find_placement
from tests.fake_gpu import FakeGpu, FilePeerMemory
from tests.simulate import H200

GPUS, CACHE = "CUDAREDUCE_TEST_GPUS", "CUDAREDUCE_TEST_CACHE"
PROGRAM = (sys.executable, "-m", "tests.collectives.fake_ranks")
#: Duration of a launch in us, and its relative noise.
FLOOR_US, NOISE = 40.0, 0.01


def main() -> None:
    """Run the command, or one of its ranks."""
    from cudareduce.__main__ import main as program

    path, cache = Path(os.environ[GPUS]), Path(os.environ[CACHE])
    settings = json.loads(path.read_text())
    here = find_placement(os.environ)
    if here and sys.argv[1] == "collective":
        jobs = path.with_name(f"jobs-{here.rank}")
        with jobs.open("a") as file:
            file.write(".")
        if jobs.stat().st_size >= settings.get("dies", inf):
            os._exit(9)

    def opened(_: BackendSpec) -> FakeGpu:
        late = settings.get("late", 1.0) if here and here.rank else 1.0
        return FakeGpu(
            cache, int.from_bytes(os.urandom(4), "little"), H200, settings.get("factors", {}),
            floor_us=FLOOR_US * late, event_us=0.0, noise=NOISE, threads=1,
        )  # fmt: skip

    patch = pytest.MonkeyPatch()
    patch.setattr("cudareduce.backends.selection.default_cache", lambda: cache)
    patch.setattr("cudareduce.backends.selection.open_cuda", opened)
    for module in ("check", "launcher"):
        patch.setattr(f"cudareduce.collectives.{module}.gpu_count", lambda: settings.get("gpus", 2))
    for module in ("check", "launcher"):
        patch.setattr(f"cudareduce.collectives.{module}.PROGRAM", PROGRAM)
    patch.setattr(
        "cudareduce.collectives.windows.IpcMemory",
        lambda nbytes: FilePeerMemory(nbytes, path.parent),
    )
    program()


if __name__ == "__main__":
    main()
