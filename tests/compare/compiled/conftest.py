"""Kernels to tamper with, compiled once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cudareduce.backends.protocol import Source
from cudareduce.catalog.registry import kernels_folder
from cudareduce.cli.main import run
from cudareduce.compare.machine_code import Code, Disassembler
from cudareduce.compare.nvcc import Compiled, Nvcc
from cudareduce.errors import BuildError

#: In a header: the one reduction that is compiled for every architecture.
ONLY = 'dtypes = ["float32"]\nops = ["sum"]'
VECTOR = """/*+++
title = "Vector loads"
change = "One load brings four elements."
scope = "grid"
grid = "cover"
walk = "tile"
finish = "relaunch"
items = 4
vector = 4
block = 256
blocks = [256]
dtypes = ["float32"]
ops = ["sum"]
+++*/
extern "C" __global__ void kernel_vector(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK / 32];
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    Acc value = Op::identity();
    if (4 * i + 3 < n) {
        const float4 four = ((const float4 *)in)[i];
        value = (four.x + four.y) + (four.z + four.w);
    }
    for (unsigned offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned k = 1; k < BLOCK / 32; k++)
            value += shared[k];
        out[blockIdx.x] = Op::finish(value);
    }
}
"""


def plant(tree: Path) -> Path:
    """Kernels to tamper with: one with vector loads, one of the ladder, one with a last block."""
    folder = tree / "ladder"
    folder.mkdir(parents=True)
    (folder / "kernel_vector.cu").write_text(VECTOR)
    for family, name in (("ladder", "reduce_v7_shuffle"), ("grid", "reduce_last_block")):
        text = (kernels_folder() / family / f"{name}.cu").read_text()
        text = "\n".join(line for line in text.splitlines() if not line.startswith("after"))
        text = text.replace("\nscope", f"\n{ONLY}\nscope", 1)  # nothing besides is compiled
        (folder / f"my_{name}.cu").write_text(text.replace(name, f"my_{name}"))
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path / "kernels")


@pytest.fixture(scope="module")
def known() -> dict[object, Any]:
    """The results of nvcc that are reused, by kernel source."""
    return {}


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch, known: dict[object, Any]) -> None:
    """Compile each kernel once, unless a test clears the results."""
    compiling, reading = Nvcc.compile, Disassembler.read

    def compile_once(self: Nvcc, source: Source, arch: int) -> Compiled | BuildError:
        key = self, source.text.replace(str(source.path), ""), arch
        made = known.get(key) or compiling(self, source, arch)
        if isinstance(made, Compiled):
            known[key] = made
        return made

    def read_once(self: Disassembler, cubin: bytes, entry: str) -> Code:
        key = self, cubin, entry
        if key not in known:
            known[key] = reading(self, cubin, entry)
        code: Code = known[key]
        return code

    monkeypatch.setattr(Nvcc, "compile", compile_once)
    monkeypatch.setattr(Disassembler, "read", read_once)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A baseline of the planted kernels alone, so that the tests compile only those."""
    folder = tmp_path_factory.mktemp("compiled")
    path, planted = folder / "compiled.json", plant(folder / "k")
    ask = ["check", "--compile", "--baseline", str(path), "--arch", "90", "--update-baseline",
           "--quiet"]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cudareduce.catalog.registry.kernels_folder", lambda: planted)
        assert run(ask) == 0
    text = path.read_text()
    assert len(json.loads(text)["units"]) == 3
    return text


@pytest.fixture
def baseline(compiled: str, tmp_path: Path) -> Path:
    path = tmp_path / "compiled.json"
    path.write_text(compiled)
    return path
