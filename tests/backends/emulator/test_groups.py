"""Cooperative groups, and the atomics, barriers and copies of CUDA's library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.errors import KernelFault
from tests.backends.emulator.test_cpu import SCHEDULES, lines_marked, load, take

FILE = "groups.cu"


@pytest.fixture(params=[*SCHEDULES, "watched"])
def backend(request: pytest.FixtureRequest, cpu: CpuBackend, watched: CpuBackend) -> CpuBackend:
    """Every schedule, and the race-detecting build."""
    take(cpu, "ascending" if request.param == "watched" else request.param)
    take(watched, "ascending")
    return watched if request.param == "watched" else cpu


def launch(
    backend: CpuBackend, entry: str, outputs: int, block: int, given: Sequence[int] | None = None
) -> np.ndarray:
    """The integers that a kernel writes, from the given ones if it takes an input."""
    buffers = [] if given is None else [backend.upload(np.array(given, np.int32))]
    out = backend.allocate(4 * outputs)
    backend.launcher(load(backend, FILE, entry), 1, block, [*buffers, out])()
    return backend.download(out, "int32", outputs)


def test_cooperative_tiles_of_every_size_reduce_and_scan(backend: CpuBackend) -> None:
    found = launch(backend, "tiles", 5 * 256 * 8, 256).reshape(5, 256, 8)
    t = np.arange(256)
    for rows, size in zip(found, (4, 32, 64, 128, 256), strict=True):
        tiles = t.reshape(-1, size)
        scans = np.cumsum(tiles, axis=1).ravel()
        expected = [
            100 * (t // size) + t % size,
            np.repeat(tiles.sum(axis=1), size),
            scans,
            scans - t,
            np.repeat((tiles == 77).any(axis=1), size),
            np.repeat((tiles < 64).all(axis=1), size),
            np.repeat(tiles[:, 1], size),
            np.full(256, 256 // size),
        ]
        np.testing.assert_array_equal(rows.T, expected, str(size))


def test_lanes_that_come_together(backend: CpuBackend) -> None:
    found = launch(backend, "coalesced", 64 * 10, 64).reshape(64, 10)
    for warp in (range(32), range(32, 64)):
        thirds = [t for t in warp if t % 3 == 0]
        others = [t for t in warp if t % 3]
        for rank, t in enumerate(thirds):
            quarter = thirds[rank // 4 * 4 : rank // 4 * 4 + 4]
            odd = sum(1 << k for k, other in enumerate(thirds) if other % 2)
            after = thirds[min(rank + 1, len(thirds) - 1)]
            expected = [len(thirds), rank, max(thirds), thirds[2], after]
            expected += [sum(thirds[:rank]), odd, sum(quarter), -1, -1]
            assert found[t].tolist() == expected, t
        for t in others:
            part = sum(other for other in others if other % 3 == t % 3)
            same = sum(other % 4 == t % 4 for other in others)
            assert found[t].tolist() == [len(others), *7 * [-1], part, 400 + same], t


def test_a_group_of_any_kind(backend: CpuBackend) -> None:
    found = launch(backend, "any_group", 64 * 4, 64).reshape(64, 4)
    t = np.arange(64)
    expected = [63 - t, 10 * (t % 8) + 8, t + 64, t // 16 * 16]
    np.testing.assert_array_equal(found.T, expected)


def test_lanes_that_hold_the_same(backend: CpuBackend) -> None:
    found = launch(backend, "matches", 32 * 3, 32).view(np.uint32).reshape(32, 3)
    for t, (same, all_same, none) in enumerate(found.tolist()):
        assert same == sum(1 << k for k in range(32) if k % 5 == t % 5)
        assert (all_same, none) == (0, 0)  # all ones and 1, which wraps; nothing


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("copies_of_a_group", [2 * (63 - t) + 64 for t in range(64)]),
        ("copies_without_wait", 64 * [-1]),
        ("copies_of_a_thread", [63 - t for t in range(64)]),
        ("copies_of_a_pipeline", [5 * (63 - t) + 128 for t in range(64)]),
        ("barriers", [2 * (63 - t) + 1 for t in range(32)]),
    ],
)
def test_copies_are_there_once_they_are_waited_for(
    backend: CpuBackend, entry: str, expected: list[int]
) -> None:
    found = launch(backend, entry, len(expected), 64, range(128))
    assert found.tolist() == expected


def test_a_barrier_arrival_without_a_wait_is_a_data_race(watched: CpuBackend) -> None:
    take(watched, "ascending")
    places = "|".join(lines_marked(FILE, "hazard"))
    with pytest.raises(KernelFault, match=rf"(?:{places}): data race in shared memory"):
        launch(watched, "barrier_missed", 64, 64, range(64))


def test_atomics_of_the_library(backend: CpuBackend) -> None:
    out, shorts = backend.allocate(4 * 5), backend.upload(np.array([7, 9, 11], np.uint16))
    backend.launcher(load(backend, FILE, "atomics_of_the_library"), 1, 64, [out, shorts])()
    assert backend.download(out, "int32", 5).tolist() == [65 * 32, 63, 63 * 32, 1, 63]
    assert backend.download(shorts, "uint16", 3).tolist() == [7 + 128, 9 + 192, 11]


def test_atomics_of_halves_and_vectors(backend: CpuBackend) -> None:
    halves, pair = backend.upload(np.ones(3, np.float16)), backend.upload(np.ones(2, np.float16))
    four = backend.upload(np.zeros(4, np.float32))
    program = load(backend, FILE, "half_atomics")
    backend.launcher(program, 2, 32, [halves, pair, four])()
    assert backend.download(halves, "float16", 3).tolist() == [1, 33, 1]
    assert backend.download(pair, "float16", 2).tolist() == [65, 17]
    assert backend.download(four, "float32", 4).tolist() == [64, 128, 192, 256]
