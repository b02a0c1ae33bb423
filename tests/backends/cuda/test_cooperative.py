"""Launches that wait for their whole grid, on a driver that only writes down what it is asked."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from cudareduce.backends.cuda.driver_module import DriverModule
from cudareduce.backends.protocol import KernelCall
from cudareduce.cuda_source import waits_for_grid
from cudareduce.errors import KernelFault, TooManyBlocks


class Driver:
    """Holds `each` blocks a multiprocessor; refuses what `refused` names."""

    def __init__(self, each: int = 2, refused: str = "") -> None:
        self.each, self.refused = each, refused
        self.calls: list[str] = []
        self.launched: list[int] = []

    def __getattr__(self, name: str) -> Any:
        def called(*arguments: Any) -> int:
            self.calls.append(name)
            if name.startswith("cuOccupancy"):
                arguments[0]._obj.value = self.each
            if name in ("cuLaunchCooperativeKernel", "cuLaunchKernel"):
                grid, places = arguments[1], arguments[9]
                words = [ctypes.c_uint64.from_address(place).value for place in places]
                self.launched = [grid, *words]
            return 801 if name == self.refused else 0

        return called


def test_a_kernel_that_waits_for_its_grid_is_detected() -> None:
    assert waits_for_grid("auto grid = cg::this_grid(); grid.sync();")
    assert waits_for_grid("auto grid = cg::this_grid(); of_ours(grid, 1);")
    assert waits_for_grid("void of_ours(cg::grid_group all) { all.sync(); } this_grid();")
    assert not waits_for_grid("auto grid = cg::this_grid(); int i = grid.thread_rank();")
    assert waits_for_grid("cooperative_groups::this_grid ().sync();")
    assert not waits_for_grid("// not this_grid()\n/* this_grid() */ this_block();")


def call(blocks: int, *words: int, cooperative: bool = True) -> KernelCall:
    data = tuple(word.to_bytes(8, "little") for word in words)
    return KernelCall(0, (blocks, 1, 1), (256, 1, 1), 0, cooperative, data)


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_launch_passes_its_arguments_unchanged(cooperative: bool) -> None:
    driver = Driver()
    module = DriverModule(driver, b"cubin", ["mine"])
    module.launcher(call(8, 2**40, 5, cooperative=cooperative), 0, sm_count=4)()
    assert driver.launched == [8, 2**40, 5]


def test_a_cooperative_grid_is_bounded() -> None:
    module = DriverModule(Driver(), b"cubin", ["mine"])
    with pytest.raises(TooManyBlocks, match="of its 9 blocks of 256 threads this GPU holds 8 at"):
        module.launcher(call(9, 1), 0, sm_count=4)
    module.launcher(call(9, 1, cooperative=False), 0, sm_count=4)


def test_a_refusal_of_the_driver_is_a_fault() -> None:
    with pytest.raises(KernelFault, match="refuses cuModuleLoadData"):
        DriverModule(Driver(refused="cuModuleLoadData"), b"cubin", ["mine"])
    module = DriverModule(Driver(refused="cuLaunchCooperativeKernel"), b"cubin", ["mine"])
    with pytest.raises(KernelFault, match="refuses cuLaunchCooperativeKernel"):
        module.launcher(call(1, 7), 0, sm_count=1)()
