"""A sum that claims one order everywhere: the same bits from any launch, start and machine."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.catalog.registry import Registry
from cudareduce.launch.plan import Problem, plan
from cudareduce.machine import DeviceLimits
from cudareduce.reduction.operators import reduction_of
from tests.same_bits import NAME, STORED, answer, answers, elements

BLOCKS = (64, 128, 256, 512, 1024)
SMS = (1, 2, 3, 7, 132)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dtype", "offsets"),
    [("float32", (0, 1, 2, 3)), ("float64", (0, 1)), ("float16", (0, 1, 3, 7))],
)
def test_any_launch_and_start(
    registry: Registry, cpu: CpuBackend, dtype: str, offsets: tuple[int, ...]
) -> None:
    """Of few fixed warps each has several tiles, in whatever grid acts for them."""
    kernel = replace(registry.kernels[NAME], fixed_warps=20)
    reduction, found, grids = reduction_of("sum", dtype), set(), set()
    data = elements(reduction, 45001, 7)
    for block, sms, offset in itertools.product(BLOCKS, SMS, offsets):
        limits = DeviceLimits(sms, block)
        found.add(answer(cpu, kernel, reduction, data, block=block, limits=limits, offset=offset))
        shape = plan(kernel, Problem(reduction, len(data)), block=block, limits=limits)
        grids.add(shape.passes[0].grid)
    assert len(found) == 1
    assert len(grids) > 4


def test_another_order_has_other_bits(registry: Registry, cpu: CpuBackend) -> None:
    """The number of fixed warps is part of the order, and the input shows it."""
    kernel, reduction = registry.kernels[NAME], reduction_of("sum", "float32")
    data = elements(reduction, 60001, 7)
    found = [answer(cpu, replace(kernel, fixed_warps=k), reduction, data) for k in (40, 41, 4096)]
    assert len(set(found)) == 3


def test_the_order_is_that_of_the_plan(registry: Registry, cpu: CpuBackend) -> None:
    """Bit by bit, where every fixed warp has several tiles and each thread several partials."""
    kernel, reduction = (
        replace(registry.kernels[NAME], fixed_warps=3),
        reduction_of("sum", "float32"),
    )
    data = elements(reduction, 10007, 9)
    tree = plan(kernel, Problem(reduction, len(data))).tree
    assert tree.binary
    assert tree.exact
    told = np.float32(tree.value(data, "float32")).tobytes().hex()
    assert answer(cpu, kernel, reduction, data, offset=3) == told


@pytest.mark.long
def test_stored_results_on_the_emulator(registry: Registry, cpu: CpuBackend) -> None:
    assert dict(answers(cpu, registry.kernels[NAME])) == json.loads(STORED.read_text("utf-8"))


@pytest.mark.gpu
def test_stored_results_on_a_gpu(registry: Registry) -> None:
    with open_cuda(BackendSpec("cuda")) as gpu:
        found = dict(answers(gpu, registry.kernels[NAME]))
    assert found == json.loads(STORED.read_text("utf-8"))
