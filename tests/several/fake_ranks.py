"""The command line as a rank with a simulated GPU: `python -m tests.several.fake_ranks WORDS`.

What is simulated is in the environment: `CUDAREDUCE_TEST_GPUS` names a file of JSON with how much
longer kernels take, by their names (`factors`), a rank that is late at all of them (`late`), and
after how many jobs ranks end without a word (`dies`); each job's first rank adds one to `jobs`.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from cudareduce.backends import BackendSpec
from cudareduce.several.trial import tried
from tests.fake_gpu import FakeGpu, FilePeerMemory
from tests.simulate import H200

GPUS, CACHE = "CUDAREDUCE_TEST_GPUS", "CUDAREDUCE_TEST_CACHE"
#: A launch takes so long, in us, with so much chance in it, as a share.
FLOOR_US, NOISE = 40.0, 0.01


def main() -> None:
    """Be a rank."""
    from cudareduce.__main__ import main as program

    path, cache = Path(os.environ[GPUS]), Path(os.environ[CACHE])
    told = json.loads(path.read_text())
    rank = int(os.environ.get("CUDAREDUCE_RANK", os.environ.get("RANK", "0")))
    if rank == 0:
        told["jobs"] = told.get("jobs", 0) + 1
        path.write_text(json.dumps(told))
    if told.get("dies") and told["jobs"] >= told["dies"]:
        os._exit(9)

    def opened(_: BackendSpec) -> FakeGpu:
        late = told.get("late", 1.0) if rank else 1.0
        return FakeGpu(
            cache, int.from_bytes(os.urandom(4), "little"), H200, told["factors"],
            floor_us=FLOOR_US * late, event_us=0.0, noise=NOISE, threads=1,
        )  # fmt: skip

    patch = pytest.MonkeyPatch()
    patch.setattr("cudareduce.backends.default_cache", lambda: cache)
    patch.setattr("cudareduce.backends.open_cuda", opened)
    patch.setattr("cudareduce.several.command.gpu_count", lambda: 2)
    patch.setattr("cudareduce.several.command.tried", partial(
        tried, allocate=lambda nbytes: FilePeerMemory(nbytes, path.parent)
    ))  # fmt: skip
    program()


if __name__ == "__main__":
    main()
