"""The gate and the graph, on a driver that writes down what it is asked, and guard bands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudareduce.backends.cuda.cuda import BAND, GuardedBuffer, damage, guarded
from cudareduce.backends.cuda.streams import CapturedGraph, StreamGate
from cudareduce.errors import EnvironmentProblem


class Driver:
    """A driver's library that logs its calls; the function `refuses` returns an error."""

    def __init__(self, refuses: str = "") -> None:
        self.log: list[tuple[Any, ...]] = []
        self.refuses = refuses

    def cuGetErrorString(self, code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = b"not supported"
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.log.append((name, *(getattr(one, "value", one) for one in arguments)))
            return 801 if name == self.refuses else 0

        return call


def test_a_gate_opens_what_was_closed_and_not_the_next() -> None:
    driver, word = Driver(), np.zeros(1, np.uint32)
    gate = StreamGate(driver, 7, word, 4096)
    gate.close()
    assert driver.log == [("cuStreamWaitValue32_v2", 7, 4096, 1, 0)]
    assert word[0] == 0
    gate.open()
    gate.open()
    assert word[0] == 1
    gate.close()
    assert driver.log[-1] == ("cuStreamWaitValue32_v2", 7, 4096, 2, 0)
    assert word[0] < 2


def test_a_graph_is_captured_and_replayed() -> None:
    driver = Driver()
    graph = CapturedGraph(driver, 7, lambda: driver.log.append(("launched",)))
    graph.launch()
    graph.close()
    assert [entry[0] for entry in driver.log] == [
        "cuStreamBeginCapture_v2", "launched", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
        "cuGraphUpload", "cuGraphLaunch", "cuGraphExecDestroy", "cuGraphDestroy",
    ]  # fmt: skip


def test_a_failed_capture_is_ended() -> None:
    driver = Driver()

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        CapturedGraph(driver, 7, fail)
    assert driver.log[-1][0] == "cuStreamEndCapture"


def test_a_refusal_is_an_environment_problem() -> None:
    gate = StreamGate(Driver("cuStreamWaitValue32_v2"), 7, np.zeros(1, np.uint32), 4096)
    with pytest.raises(EnvironmentProblem, match=r"refuses cuStreamWaitValue32_v2 .*not supported"):
        gate.close()


class Memory:
    """Device memory in an array; an allocation is its offset."""

    def __init__(self) -> None:
        self.bytes = np.zeros(2**16, np.uint8)

    def mem_alloc(self, size: int) -> int:
        self.size = size
        return 256

    def memset_d8_async(self, address: int, value: int, count: int, stream: Any) -> None:
        self.bytes[address : address + count] = value

    def memcpy_dtoh(self, target: np.ndarray, address: int) -> None:
        target[:] = self.bytes[address : address + len(target)]


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        (100, "1 byte behind a buffer of 100, the nearest 1 byte behind it"),
        (100 + BAND - 1, f"the nearest {BAND} bytes behind it"),
        (-1, "1 byte before a buffer of 100, the nearest 1 byte before it"),
        (-BAND, f"the nearest {BAND} bytes before it"),
    ],
)
@pytest.mark.parametrize("misalign", [0, 4])
def test_a_write_outside_a_buffer_is_seen_once(offset: int, said: str, misalign: int) -> None:
    memory = Memory()
    buffer = guarded(memory, None, 100, misalign)
    assert isinstance(buffer, GuardedBuffer)
    assert memory.size == 100 + misalign + 2 * BAND
    assert damage(memory, None, buffer) is None
    memory.bytes[buffer.address : buffer.address + 100] = 0
    assert damage(memory, None, buffer) is None
    memory.bytes[buffer.address + offset] = 0
    assert said in (damage(memory, None, buffer) or "")
    assert damage(memory, None, buffer) is None
