"""Memory traffic of warps: sectors, bank conflicts, bytes, barriers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.compare.traffic import Traffic, count_traffic
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import reduction_of

Count = Callable[..., Traffic]
N = 2**16
SUM = reduction_of("sum", "float32")


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    return dict(load_registry([]).kernels)


@pytest.fixture
def count(cache: Path, kernels: dict[str, Kernel]) -> Count:
    def counted(name: str, old: str = "", new: str = "") -> Traffic:
        kernel = kernels[name]
        assert old in kernel.text
        kernel = replace(kernel, text=kernel.text.replace(old, new) if old else kernel.text)
        case = Case(kernel, SUM, kernel.block, kernel.items_of(4))
        found = count_traffic([case], cache, quiet=True)
        assert found.notes == ()
        return found.traffic[0]

    return counted


def test_neighbours_share_sectors(count: Count) -> None:
    found = count("reduce_atomic")
    assert (found.read_bytes, found.requests, found.sectors) == (4 * N, N // 32, N // 8)
    assert (found.atomics, found.barriers, found.accesses, found.unfenced) == (N, 0, 0, 0)


def test_loads_of_16_bytes_are_one_request_of_16_sectors(count: Count) -> None:
    found = count("reduce_tiles_block")
    assert (found.requests, found.sectors) == (N // 128 + 1, N // 8 + 1)  # and the answer's


def test_distant_threads_touch_one_sector_each(count: Count) -> None:
    index = "const size_t k = i + item * BLOCK;"
    far = "const size_t k = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid * ITEMS + item;"
    near, apart = count("reduce_v7_shuffle"), count("reduce_v7_shuffle", index, far)
    assert near.read_bytes == apart.read_bytes
    assert apart.sectors - near.sectors == 7 * N // 8 + 28  # 8 items of 4 bytes: one each; partials
    assert apart.sectors_a_request == pytest.approx(31.4, abs=0.1)


@pytest.mark.long
def test_conflicts_of_banks_are_those_of_the_ladder(count: Count) -> None:
    """V1's strides double, so that 2, 4, 8 and more lanes meet in a bank; V2's halve."""
    one, two = count("reduce_v1_no_divergence"), count("reduce_v2_no_bank_conflict")
    assert one.accesses == two.accesses
    assert one.wavefronts_an_access == pytest.approx(10 / 3)
    assert two.wavefronts_an_access == 1.0
    assert count("reduce_v0_baseline").accesses == pytest.approx(10 / 3 * two.accesses)


def test_barriers_and_shuffles(count: Count) -> None:
    found = count("reduce_v7_shuffle")
    blocks = N // 2048 + 1  # and one for the partials
    assert (found.barriers, found.collectives) == (blocks, blocks * (8 + 1) * 5)


def test_a_fence_that_is_not_met_leaves_a_partial_unfenced(count: Count) -> None:
    fence = "        __threadfence();\n        is_last"
    never = "        if (n == 1)\n            __threadfence();\n        is_last"
    right = count("reduce_last_block")
    assert (right.fenced_blocks, right.unfenced) == (24, 0)
    assert count("reduce_last_block", fence, never).unfenced == 24


def test_the_same_text_gives_the_same_counts(count: Count) -> None:
    assert count("reduce_tiles_mailbox") == count("reduce_tiles_mailbox")


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("*(volatile int *)0 = 1;", "ends its process"),
        ("while (*(volatile const In *)in < 2) {}", "waits for a value that none changes"),
        ("nonsense;", "nonsense"),
    ],
)
def test_crashes_hangs_and_compile_errors_are_reported(
    cache: Path, kernels: dict[str, Kernel], line: str, why: str
) -> None:
    kernel = kernels["reduce_v0_baseline"]
    broken = replace(kernel, text=kernel.text.replace("// Write:", f"{line}\n    // Write:"))
    good = kernels["reduce_v2_no_bank_conflict"]
    cases = [Case(each, SUM, each.block, 1) for each in (broken, good)]
    found = count_traffic(cases, cache, quiet=True)
    assert [each.kernel for each in found.traffic] == [good.id]
    assert len(found.notes) == 1
    assert found.notes[0].startswith("reduce_v0_baseline is not counted: ")
    assert why in found.notes[0]


def test_a_trace_has_the_threads_and_addresses_of_each_step(
    cache: Path, kernels: dict[str, Kernel]
) -> None:
    kernel = kernels["reduce_v2_no_bank_conflict"]
    case = Case(kernel, SUM, 64, 1)
    plan = case.plan(64, 1, DEFAULT_LIMITS)
    with CpuBackend(cache=cache, counts=True) as backend:
        programs = build(backend, {case: [plan]})[case]
        assert not isinstance(programs, BuildError)
        Bound(backend, plan, programs, backend.upload(np.ones(64, np.float32))).run()
        accesses = backend.accesses()
        assert backend.accesses() == []
    loads = [(a.thread, a.offset, a.bytes) for a in accesses if a.kind == "global read"]
    assert loads == [(thread, 4 * thread, 4) for thread in range(64)]
    start = min(a.offset for a in accesses if a.kind == "shared write")
    for step, stride in enumerate((32, 16, 8, 4, 2, 1), 1):
        read = {(a.thread, (a.offset - start) // 4) for a in accesses
                if a.kind == "shared read" and a.barriers == step}  # fmt: skip
        assert read == {(t, t + k) for t in range(stride) for k in (0, stride)}


def test_a_trace_has_the_lanes_of_shuffles(cache: Path, kernels: dict[str, Kernel]) -> None:
    kernel = kernels["reduce_v7_shuffle"]
    case = Case(kernel, SUM, 64, 8)
    plan = case.plan(512, 1, DEFAULT_LIMITS)
    with CpuBackend(cache=cache, counts=True) as backend:
        programs = build(backend, {case: [plan]})[case]
        assert not isinstance(programs, BuildError)
        Bound(backend, plan, programs, backend.upload(np.ones(512, np.float32))).run()
        shuffles = [a for a in backend.accesses() if a.kind == "exchange"]
    assert Counter((a.thread, a.barriers, a.bytes) for a in shuffles) == {
        (0, 0, 2**32 - 1): 5, (32, 0, 2**32 - 1): 5, (0, 1, 2**32 - 1): 5,
    }  # fmt: skip
