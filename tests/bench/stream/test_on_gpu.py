"""Streams on a GPU: copies and kernels at the same time, and what that is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudareduce.backends.cuda.cuda import CudaBackend
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.bench.stream.source import pages
from tests.conftest import read_result

pytestmark = pytest.mark.gpu
Call = Callable[..., tuple[int, str, str]]
MIB = 2**20


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaBackend]:
    with open_cuda(BackendSpec("cuda")) as backend:
        yield backend


def test_a_stream_waits_for_another_and_the_host_for_it(gpu: CudaBackend) -> None:
    place = pages(64 * MIB)
    place[:] = np.arange(len(place), dtype=np.uint8)
    given, buffer = gpu.pin(place), gpu.allocate(len(place))
    first, second = gpu.new_stream(), gpu.new_stream()
    start = first.mark()
    first.copy_in(buffer, place)
    second.follow(first.mark())
    end = second.mark()
    second.wait(end)
    assert gpu.elapsed_us(start, end) > len(place) / 1e6  # no link has a TB/s
    assert (gpu.download(buffer, "uint8", len(place)) == place).all()
    gpu.free(given, buffer)


def test_the_device_reads_pinned_memory(gpu: CudaBackend) -> None:
    place = pages(MIB)
    given = gpu.pin(place)
    place[:] = 7
    assert given.address
    assert (gpu.download(given, "uint8", MIB) == 7).all()
    gpu.free(given)
    again = gpu.pin(place)  # it can be pinned once more
    gpu.free(again)


def test_streaming_reaches_most_of_the_rate_of_copying(cudareduce: Call, tmp_path: Path) -> None:
    stored = tmp_path / "run.json"
    code, out, _ = cudareduce(
        "bench", "auto", "--from", "host", "--n", "2^28", "--chunk", "16Mi,64Mi", "--json", stored
    )
    assert code == 0, out
    found = by_way(stored)
    assert found["pinned", 16 * MIB]["pct_ceiling"] > 85
    assert found["pinned", 64 * MIB]["pct_ceiling"] > 93
    assert {r["verdict"] for r in found.values()} <= {"pass", "skip"}
    assert found["pinned", 64 * MIB]["verdict"] == "pass"


def test_a_file_is_streamed(cudareduce: Call, tmp_path: Path) -> None:
    path, stored = tmp_path / "a.npy", tmp_path / "run.json"
    np.save(path, np.random.default_rng(0).integers(-99, 99, 2**25, np.int32))
    code, out, _ = cudareduce("bench", "auto", "--from", path, "--chunk", "8Mi", "--json", stored)
    assert code == 0, out
    found = by_way(stored)
    assert set(found) == {("copy", 8 * MIB), ("pinned", 8 * MIB), ("pageable", 8 * MIB)}
    assert all(r["time_us"] for r in found.values())
    assert "of the file lies in the page cache" in out


def by_way(path: Path) -> dict[tuple[str, int | None], dict[str, Any]]:
    return {(r["way"], r["chunk_bytes"]): r for r in read_result(path.read_text())["records"]}
