"""Kernels that are wrong where sizes, blocks, poisons and inputs that stay the same do not look."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]

_TREE = """    shared[tid] = acc;
    __syncthreads();
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] = Op::combine(shared[tid], shared[tid + stride]);
        __syncthreads();
    }
"""
_TILE = """    const unsigned tid = threadIdx.x;
    Acc acc = Op::identity();
    size_t i = (size_t)blockIdx.x * BLOCK * ITEMS + tid;
    for (int k = 0; k < ITEMS; k++, i += BLOCK)
        if (i < n)
            acc = Op::combine(acc, Op::lift(in[i], i));
"""
_STRIDE = """    const unsigned tid = threadIdx.x;
    Acc acc = Op::identity();
    for (size_t i = tid; i < n; i += BLOCK)
        acc = Op::combine(acc, Op::lift(in[i], i));
"""
_ARRIVE = """    __shared__ bool last;
    if (tid == 0) {{
        {at}[blockIdx.x] = shared[0];
        {fence}
        last = {ticket};
    }}
    __syncthreads();
    if (!last)
        return;
    {then}__threadfence();
    acc = Op::identity();
    for (unsigned k = tid; k < {end}; k += BLOCK)
        acc = Op::combine(acc, ((volatile Acc *){at})[k]);
"""
_TICKET = "atomicInc(counter, gridDim.x - 1) == gridDim.x - 1"
_WRITE = "    if (tid == 0)\n        *out = Op::finish(shared[0]);\n"
_GRID = {"scope": "grid", "grid": "cover", "walk": "tile", "finish": "last_block"}
_BLOCK = {"scope": "block", "grid": "one", "walk": "contiguous", "finish": "none"}


def _last_block(**other: str) -> str:
    words = {"at": "partials", "fence": "__threadfence();", "ticket": _TICKET, "then": ""}
    arrive = _ARRIVE.format(**{**words, "end": "gridDim.x", **other})
    return _TILE + _TREE + arrive + _TREE + _WRITE


@dataclass(frozen=True)
class Wrong:
    """A kernel that is wrong, and what a verdict on it must say."""

    body: str
    says: str
    header: dict[str, str]
    block: int = 256
    blocks: tuple[int, ...] = ()
    items: int = 1
    before: str = ""
    ops: str = "sum"

    def write(self, folder: Path, name: str) -> Path:
        """Write it as a file."""
        words = {"title": name, "change": "wrong", **self.header}
        lines = [f'{key} = "{value}"' for key, value in words.items()]
        lines += [f"block = {self.block}", f"blocks = {list(self.blocks or (self.block,))}"]
        lines += [f"items = {self.items}", f'ops = ["{self.ops}"]', 'dtypes = ["float32"]']
        more = ", Acc *partials, unsigned *counter" if "last" in self.header["finish"] else ""
        path = folder / f"{name}.cu"
        path.write_text(
            "/*+++\n" + "\n".join(lines) + f"\n+++*/\n{self.before}\n"
            f'extern "C" __global__ void {name}(const In *in, Out *out, size_t n{more})\n{{\n'
            f"    __shared__ Acc shared[BLOCK];\n{self.body}}}\n"
        )
        return path


_CASES = {
    # One block at every size up to 16384.
    "no_fence_in_large_tiles": Wrong(_last_block(fence=""), "hazard", _GRID, items=64),
    # Right up to 256 blocks.
    "folds_one_partial_a_thread": Wrong(
        _last_block(end="min(gridDim.x, BLOCK)"), "n = 2097153", _GRID, items=32
    ),
    "counts_in_16_bits": Wrong(
        _last_block(ticket=f"(unsigned short)({_TICKET[:-17]}) == gridDim.x - 1"),
        "block 32: n = 2097184", _GRID, blocks=(32, 256),
    ),
    "counts_on": Wrong(
        _last_block(ticket="atomicAdd(counter, 1) % gridDim.x == gridDim.x - 1"),
        "leaves the counter at", _GRID,
    ),
    # What is left of a larger grid: right as long as grids grow.
    "remembers_the_largest_grid": Wrong(
        _last_block(at="kept", end="largest", then="largest = max(largest, gridDim.x);\n    "),
        "got", _GRID, before="__device__ Acc kept[1 << 20];\n__device__ unsigned largest;",
    ),
    # NaN, which memory holds beforehand, is the one value that fmaxf passes over.
    "combines_with_what_is_there": Wrong(
        _STRIDE + _TREE + "    if (tid == 0)\n        *out = fmaxf(*out, shared[0]);\n",
        "got 3.39e+38", _BLOCK, ops="max",
    ),
    "swaps_two_elements": Wrong(
        _STRIDE + _TREE + _WRITE + """    if (tid == 0 && n > 1) {
        Element first = in[0];
        ((Element *)in)[0] = in[n - 1];
        ((Element *)in)[n - 1] = first;
    }
""", "it wrote to its input", _BLOCK),
    # Other threads' values of the launch before, where the last thread does not run last.
    "takes_what_it_finds": Wrong(
        _STRIDE + """    kept[tid] = acc;
    if (tid == BLOCK - 1) {
        for (unsigned k = 0; k < BLOCK - 1; k++)
            acc = Op::combine(acc, ((volatile Acc *)kept)[k]);
        *out = Op::finish(acc);
    }
""", "schedule random", _BLOCK, before="__device__ Acc kept[BLOCK];"),
    "wrong_in_another_block": Wrong(
        _STRIDE.replace("i += BLOCK", "i += 256") + _TREE + _WRITE,
        "block 512: ", _BLOCK, blocks=(256, 512),
    ),
    # The head is right of inputs that start one element off a multiple of four, or none.
    "wrong_head": Wrong(
        """    const unsigned tid = threadIdx.x;
    Acc acc = Op::identity();
    const size_t off = (size_t)in / 4 % 4, head = off == 1 ? min(n, (size_t)3) : 0;
    for (size_t i = tid; i < head; i += BLOCK)
        acc = Op::combine(acc, Op::lift(in[i], i));
    for (size_t i = (off ? min(n, 4 - off) : 0) + tid; i < n; i += BLOCK)
        acc = Op::combine(acc, Op::lift(in[i], i));
""" + _TREE + _WRITE, "misaligned by", _BLOCK),
    # Two turns of each block, and what is beyond is lost: of 132 * 8 blocks 4 million elements.
    "two_turns": Wrong(
        """    const unsigned tid = threadIdx.x;
    Acc acc = Op::identity();
    size_t i = (size_t)blockIdx.x * BLOCK * ITEMS + tid;
    for (int turn = 0; turn < 2; turn++, i += (size_t)(gridDim.x - 1) * BLOCK * ITEMS)
        for (int k = 0; k < ITEMS; k++, i += BLOCK)
            if (i < n)
                acc = Op::combine(acc, Op::lift(in[i], i));
""" + _TREE + _WRITE.replace("*out", "out[blockIdx.x]"), "got", {**_GRID, "grid": "fill", "walk": "grid_stride", "finish": "relaunch"},
        items=8,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def reasons(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each wrong kernel, from as few runs as there are operators."""
    from cudareduce.cli.main import run

    folder, patch = tmp_path_factory.mktemp("wrong"), pytest.MonkeyPatch()
    patch.setattr("cudareduce.backends.default_cache", lambda: cache)
    found: dict[str, tuple[str, str]] = {}
    for op in ("sum", "max"):
        paths = [one.write(folder, name) for name, one in _CASES.items() if one.ops == op]
        told = folder / f"{op}.json"
        words = ["verify", *map(str, paths), "--op", op, "--backend", "cpu", "--quiet"]
        assert run([*words, "--json", str(told)]) == 3
        records = json.loads(told.read_text())["records"]
        found |= {record["kernel"]: (record["verdict"], record["reason"]) for record in records}
    patch.undo()
    return found


@pytest.mark.parametrize("name", _CASES)
def test_is_found(reasons: dict[str, tuple[str, str]], name: str) -> None:
    verdict, reason = reasons[name]
    assert verdict == "fail"
    assert _CASES[name].says in reason
