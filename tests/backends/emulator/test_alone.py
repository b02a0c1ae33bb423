"""One block of a grid, run alone, and buffers that no memory backs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend, CpuBuffer
from cudareduce.backends.protocol import Program, Source
from cudareduce.errors import OutOfMemory

_COUNTS = """__device__ unsigned calls;
extern "C" __global__ void counts(unsigned *out, size_t)
{
    if (threadIdx.x == 0) {
        out[0] = blockIdx.x;
        out[1] = gridDim.x;
        out[2] = atomicAdd(&calls, 1u);
    }
}
"""
_WAITS = """__device__ volatile unsigned flag;
extern "C" __global__ void waits(unsigned *out, size_t rounds)
{
    if (rounds == 0)
        while (flag == 0)
            ;
    unsigned x = threadIdx.x;
    for (size_t k = 0; k < rounds; k++)
        x = x * 1664525u + 1013904223u;
    out[threadIdx.x] = x;
}
"""


def _program(cpu: CpuBackend, text: str, entry: str) -> Program:
    [program] = cpu.build([Source(text, entry, Path(f"{entry}.cu"))])
    return program  # type: ignore[return-value]


def _words(cpu: CpuBackend, buffer: CpuBuffer) -> list[int]:
    return [int(word) for word in cpu.download(buffer, "uint32", 3)]


def test_a_block_runs_alone_and_leaves_no_variable_changed(cpu: CpuBackend) -> None:
    program, out = _program(cpu, _COUNTS, "counts"), cpu.allocate(12)
    for number in (0, 2**27, 2**31 - 2):
        seconds = cpu.run_alone(number, 1.0, program, 2**31 - 1, 32, [out, 0])
        assert seconds is not None
        assert _words(cpu, out) == [number, 2**31 - 1, 0]
    cpu.launcher(program, 3, 32, [out, 0])()
    assert _words(cpu, out)[1] == 3
    assert cpu.run_alone(0, 1.0, program, 3, 32, [out, 0]) is not None
    assert _words(cpu, out) == [0, 3, 3]


@pytest.mark.parametrize("rounds", [0, 2**40], ids=["waits", "works"])
def test_a_block_that_does_not_end_in_time_is_left(cpu: CpuBackend, rounds: int) -> None:
    program, out = _program(cpu, _WAITS, "waits"), cpu.allocate(4 * 256)
    assert cpu.run_alone(0, 0.02, program, 2, 256, [out, rounds]) is None
    assert cpu.run_alone(0, 5.0, program, 2, 256, [out, 10]) is not None


def test_a_reserved_buffer_takes_no_memory_until_it_is_touched(cpu: CpuBackend) -> None:
    buffer = cpu.reserve(2**36)
    try:
        assert not any(_words(cpu, buffer))
        end = CpuBuffer(buffer.address + buffer.nbytes - 12, 12)
        assert not any(_words(cpu, end))
    finally:
        cpu.free(buffer)
    with pytest.raises(OutOfMemory, match=f"no memory for a buffer of {2**47} bytes"):
        cpu.reserve(2**47)
