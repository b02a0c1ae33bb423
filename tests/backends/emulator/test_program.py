"""printf, assert, shared memory and arguments of kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Source
from cudareduce.errors import BuildError, KernelFault
from tests.backends.emulator.test_cpu import lines_marked, load, run_fault, run_sum, source


@pytest.fixture(params=[False, True], ids=["plain", "hazards"])
def backend(request: pytest.FixtureRequest, cpu: CpuBackend, watched: CpuBackend) -> CpuBackend:
    chosen = watched if request.param else cpu
    chosen.printed()
    return chosen


def test_printf_is_kept_by_line(backend: CpuBackend, capfd: pytest.CaptureFixture[str]) -> None:
    given, out = backend.upload(np.full(32, 2.5, np.float32)), backend.allocate(4)
    program = load(backend, "debug.cu", "prints")
    backend.launcher(program, 1, 32, [given, out, 32])()
    said = ["prints printf: block 0", "prints printf: and its first 2.5"]
    assert backend.printed() == said
    assert backend.printed() == []
    assert tuple(capfd.readouterr()) == ("", "")


def test_of_much_that_is_printed_20_lines_are_kept(cpu: CpuBackend) -> None:
    cpu.printed()
    given, out = cpu.upload(np.ones(32, np.float32)), cpu.allocate(4 * 32)
    for entry in ("prints", "prints_plainly"):
        cpu.launcher(load(cpu, "debug.cu", entry), 50, 32, [given, out, 32])()
    *lines, last = cpu.printed()
    assert lines.count("prints_plainly printf: hello") == 3
    assert len(lines) == 23
    assert last == "prints printf: 80 more lines are not shown"


@pytest.mark.parametrize("include", ["", "#include <assert.h>\n", "#include <cassert>\n"])
def test_a_failed_assertion_is_a_fault_with_its_place(backend: CpuBackend, include: str) -> None:
    text = f'{include}#line 1 "faults.cu"\n{source("faults.cu", "asserts").text}'
    [program] = backend.build([Source(text, "asserts", Path("faults.cu"))])
    assert not isinstance(program, BuildError)
    [place] = lines_marked("faults.cu", "assertion")
    with pytest.raises(KernelFault) as caught:
        run_fault(backend, "asserts", block=32, n=32)
    assert str(caught.value) == (
        f"asserts: {place}: assertion failed: threadIdx.x < 8 || in[threadIdx.x] == 0.0f "
        "(block 0, thread 8)"
    )
    answer, expected = run_sum(backend, load(backend, "right.cu", "tree"), 1000)
    assert answer == expected


def test_an_assertion_under_ndebug_is_not_checked(cpu: CpuBackend) -> None:
    text = (
        "#define NDEBUG\n#include <assert.h>\n"
        'extern "C" __global__ void mine(float *out) { assert(false); *out = 7; }'
    )
    [program] = cpu.build([Source(text, "mine", Path("mine.cu"))])
    assert program is not None and not isinstance(program, BuildError)
    out = cpu.allocate(4)
    cpu.launcher(program, 1, 1, [out])()
    assert cpu.download(out, "float32", 1)[0] == 7


def test_shared_memory_has_the_limit_of_a_gpu(backend: CpuBackend) -> None:
    """Every kernel of a file has its own."""
    out = backend.allocate(4)
    program = load(backend, "debug.cu", "all_of_it")
    backend.launcher(program, 1, 1, [out])()
    assert backend.download(out, "float32", 1)[0] == 12287
    with pytest.raises(
        KernelFault, match="uses 49156 bytes of shared memory per block, 4 of them dynamic"
    ):
        backend.launcher(program, 1, 1, [out], 4)()
    with pytest.raises(
        BuildError, match=r"debug\.cu: error: too_much declares 49156 bytes .* than 49152"
    ):
        load(backend, "debug.cu", "too_much")


def test_more_shared_memory_than_can_be_linked_has_it_too(cpu: CpuBackend) -> None:
    text = (
        'extern "C" __global__ void mine(char *out) {\n'
        "__shared__ char much[1ull << 40]; much[threadIdx.x] = 1; *out = much[0]; }"
    )
    [error] = cpu.build([Source(text, "mine", Path("mine.cu"))])
    assert isinstance(error, BuildError)
    assert "mine.cu: error: mine declares more than 2 GiB of shared memory, and no" in str(error)


def test_dynamic_shared_memory_has_the_same_limit(cpu: CpuBackend) -> None:
    program = load(cpu, "right.cu", "dynamic_tree")
    cpu.launcher(program, 1, 32, [0, 0, 0], 49152)
    with pytest.raises(KernelFault, match="dynamic_tree uses 49153 bytes of shared memory"):
        cpu.launcher(program, 1, 32, [0, 0, 0], 49153)()
