"""Multi-GPU kernels: front matter, and compilation by nvcc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cudareduce.catalog.registry import load_registry
from cudareduce.collectives.kernels import ExchangeKernel, kernel_source, load_kernels
from cudareduce.collectives.names import COLLECTIVES
from cudareduce.cuda_source import NVCC_FLAGS
from cudareduce.errors import UsageError
from cudareduce.machine import installed
from cudareduce.reduction.operators import reduction_of

EXCHANGES = load_kernels()
NVCC = next(installed("nvcc"), None)
each = pytest.mark.parametrize("kernel", EXCHANGES.values(), ids=lambda kernel: kernel.id)


@each
def test_front_matter_describes_each_kernel(kernel: ExchangeKernel) -> None:
    assert kernel.title and kernel.change and kernel.expect
    assert kernel.after is None or kernel.after in EXCHANGES
    assert (
        f"{kernel.id}(\n    const __grid_constant__ Ranks ranks, size_t in, size_t out, "
        in kernel.text
    )
    assert max(map(len, kernel.text.splitlines())) <= 120


def test_each_collective_has_a_correct_kernel() -> None:
    right = {kernel.collective for kernel in EXCHANGES.values() if kernel.wrong is None}
    assert right == set(COLLECTIVES)


def test_exchange_kernels_are_not_in_the_registry() -> None:
    assert not EXCHANGES.keys() & load_registry().kernels.keys()


@pytest.mark.long
@pytest.mark.skipif(NVCC is None, reason="nvcc was not found")
@each
def test_nvcc_compiles_each_kernel(kernel: ExchangeKernel, tmp_path: Path) -> None:
    assert NVCC is not None
    file = tmp_path / "k.cu"
    file.write_text(kernel_source(kernel, reduction_of("sum", "float32"), ranks=4).text)
    done = subprocess.run(
        [NVCC[0], *NVCC_FLAGS, "-arch=sm_90", "-cubin", "-o", tmp_path / "k.cubin", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("int x;", "begins with front matter"),
        ("/*+++\ntitle = \n+++*/", "not valid TOML"),
        ('/*+++\ntitle = "x"\n+++*/', "the front matter lacks change"),
        ('/*+++\nname = "x"\n+++*/', "name is not a key of this front matter: title, change"),
        ('/*+++\ntitle = "x"\nchange = "x"\nexpect = "x"\ncollective = "all"\nblock = 64\n+++*/',
         "collective: one of all-reduce, reduce-scatter, reduce"),
    ],
)  # fmt: skip
def test_incomplete_front_matter_is_a_usage_error(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.cu").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_kernels([tmp_path])
    assert words in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('block = "x"', "block: must be a whole number of threads from 32 to 1024"),
        ("block = 0", "block: must be"),
        ("block = true", "block: must be"),
        ("block = 100000", "block: must be"),
        ('block = 64\nmail = "yes"', "mail: one of packets, shares"),
        ("block = 64\nwrong = 4", "wrong: must be a string"),
        ("block = 64\nblocks = 129", "blocks: must be"),
        ('block = 64\nblocks = 1\nmail = "shares"', "blocks: must be 2 or more"),
    ],
)
def test_an_impossible_value_is_a_usage_error(line: str, words: str, tmp_path: Path) -> None:
    text = EXCHANGES["all_reduce_one_shot"].text.replace("block      = 512", line)
    (tmp_path / "x.cu").write_text(text)
    with pytest.raises(UsageError, match=words):
        load_kernels([tmp_path])


def test_a_pipe_is_no_kernel(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.cu")
    with pytest.raises(UsageError, match="a device or a pipe"):
        load_kernels([tmp_path])


@pytest.mark.parametrize(
    ("kernel", "name", "words"),
    [
        ("all_reduce_one_shot", "one_shot", "are both called peer:one_shot"),
        ("all_reduce_one_shot", "all_reduce_auto", "peer:auto is the engine that selects a kernel"),
        ("reduce_scatter", "reduce_scatter", "have the same name"),
    ],
)
def test_a_name_that_is_taken_is_refused(
    kernel: str, name: str, words: str, tmp_path: Path
) -> None:  # fmt: skip
    (tmp_path / f"{name}.cu").write_text(EXCHANGES[kernel].text.replace(kernel, name))
    with pytest.raises(UsageError, match=words):
        load_kernels([tmp_path])
