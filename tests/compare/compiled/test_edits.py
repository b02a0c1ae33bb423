"""Edits that make kernels slower, and edits that do not: the verdicts of `check --compile`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import kernels_folder
from cudareduce.compare.compile_check import Tools, changed_kernels, find_tools, with_traffic
from cudareduce.compare.machine_code import find_disassembler
from cudareduce.compare.nvcc import compile_all, jobs
from cudareduce.compare.unit_verdicts import UnitRow, compare_units
from cudareduce.machine import installed

pytestmark = pytest.mark.skipif(
    not list(installed("nvcc")) or find_disassembler() is None,
    reason="nvcc, or cuobjdump and nvdisasm were not found",
)

V0, V1 = "ladder/reduce_v0_baseline", "ladder/reduce_v1_no_divergence"
V2, V6 = "ladder/reduce_v2_no_bank_conflict", "ladder/reduce_v6_multi_add"
V7, STRIDE = "ladder/reduce_v7_shuffle", "grid/reduce_grid_stride"
LAST, TILES = "grid/reduce_last_block", "limit/reduce_tiles"
ATOMIC = "atomic/reduce_block_atomic"


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces a text in a kernel. `word` must be in the report, and be the cause if the edit
    fails."""

    kernel: str
    old: str
    new: str
    word: str
    fails: bool = True


ADD = "value = Op::combine(value, Op::lift(in[k], k));"
INDEX = "const size_t k = i + item * BLOCK;"
TREE = "shared[tid] = Op::combine(shared[tid], shared[tid + stride]);"
GRID = "for (long long k = (long long)blockIdx.x * BLOCK + tid; k < (long long)n; k += step)"
UNROLL = "#pragma unroll\n    for (unsigned item"
ITEM = "for (unsigned item = 0; item < ITEMS; item++) {"
PACK = "pack[l] = middle[first + l * BLOCK];"
WRITE = "if (tid == 0)\n        out[blockIdx.x] = Op::finish("
HARMFUL = {
    "a modulo of 64 bits": Edit(V7, ADD, f"if (k % (n / 3 + 1) != n) {ADD}", "instructions"),
    "a division of 64 bits": Edit(
        STRIDE, ADD, f"if (k / (step - 1) != k + 1) {ADD}", "conversions"),
    "double arithmetic": Edit(V7, ADD, "value += sqrt(1.0 + in[k]);", "double instructions"),
    "a double literal": Edit(V7, ADD, "value = value + in[k] * 1.1;", "double instructions"),
    "a conversion to integers and back": Edit(
        V7, ADD, "value += in[k] - (float)(int)(in[k] * 0.0f);", "conversions"),
    "a loop that is not unrolled": Edit(
        V7, UNROLL, "#pragma unroll 1\n    for (unsigned item", "before the first use"),
    "half a loop unrolled": Edit(
        V7, UNROLL, "#pragma unroll 2\n    for (unsigned item", "before the first use"),
    "loads that wait for each other": Edit(
        V7, INDEX, "const size_t k = i + item * BLOCK + (value > 1e30f);", "before the first use"),
    "everything read twice": Edit(
        V7, ADD, f"{{ {ADD} value += *(const volatile In *)(in + k) * 0.0f; }}", "bytes read"),
    "a loop that is run twice": Edit(
        STRIDE, GRID, f"for (int again = 0; again < 2; again++)\n    {GRID} if (again || k >= 0)",
        "bytes read"),
    "loads far apart": Edit(V7, INDEX,
        "const size_t k = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid * ITEMS + item;",
        "sectors a request"),
    "every second element first": Edit(V7, INDEX,
        "const size_t k = (size_t)blockIdx.x * (BLOCK * ITEMS)"
        " + (item / 2 * BLOCK + tid) * 2 + item % 2;", "sectors a request"),
    "a warp far from its neighbour's start": Edit(STRIDE, GRID,
        "const long long own = (n + step - 1) / step, at = (long long)blockIdx.x * BLOCK + tid;\n"
        "    for (long long k = at * own; k < min((long long)n, (at + 1) * own); k++)",
        "sectors a request"),
    "a fence that is never met": Edit(
        LAST, "        __threadfence();\n        is_last",
        "        if (n == 1234567890123ull)\n            __threadfence();\n        is_last",
        "unfenced atomics"),
    "a fence of the block alone": Edit(
        LAST, "        __threadfence();\n        is_last",
        "        __threadfence_block();\n        is_last", "no fence between"),
    "no fence": Edit(LAST, "        __threadfence();\n        is_last", "        is_last",
                     "no fence between"),
    "a barrier for every item": Edit(V7, ITEM, f"{ITEM} __syncthreads();", "barriers"),
    "a barrier in a loop": Edit(
        STRIDE, GRID, GRID.replace("k < (long long)n", "k - tid < (long long)n")
        + "\n        if (__syncthreads_or(k < (long long)n) && k < (long long)n)",
        "before the first use"),
    "conflicts of banks": Edit(V2, TREE,
        "shared[(tid * 2) % BLOCK] = Op::combine(shared[(tid * 2) % BLOCK], "
        "shared[(tid * 2 + stride) % BLOCK]);", "wavefronts an access"),
    "a stride of 32 banks": Edit(
        V7, "shared[BLOCK / 32];", "shared[BLOCK];\n    volatile Acc *own = shared + "
        "threadIdx.x % 32 * (BLOCK / 32) + threadIdx.x / 32;\n    *own = 0;", "wavefronts"),
    "threads of all warps at work": Edit(
        V1, "const unsigned left = 2 * stride * tid;",
        "const unsigned left = tid % (2 * stride) == 0 ? tid : blockDim.x;",
        "accesses to shared memory"),
    "a tree over the whole array twice": Edit(
        V2, "// Write:", "for (unsigned stride = 1; stride < BLOCK; stride *= 2) {\n"
        "        Acc other = shared[tid ^ stride];\n        __syncthreads();\n"
        "        if (tid > BLOCK) shared[tid] = other;\n        __syncthreads();\n    }\n"
        "    // Write:",
        "barriers"),
    "an atomic a thread": Edit(ATOMIC, "if (tid == 0)\n        Op::atomic(out, shared[0]);",
        "Op::atomic(out, tid == 0 ? shared[0] : Op::identity());", "atomics of threads"),
    "an atomic an item": Edit(
        V7, ADD, f"{{ {ADD} Op::atomic((Acc *)out + blockIdx.x, Op::identity()); }}", "atomics"),
    "a partial of every thread": Edit(
        V7, "if (tid == 0)\n        out[blockIdx.x] = Op::finish(value);",
        "value = __shfl_sync(0xffffffffu, value, 0);\n"
        "    *(volatile Out *)(out + blockIdx.x) = Op::finish(shared[0]);", "bytes written"),
    "registers in memory": Edit(
        V7, "Acc value = Op::identity();",
        "volatile Acc kept[64];\n    kept[tid % 64] = 0;\n    Acc value = kept[n % 64];",
        "local instructions"),
    "registers that run out": Edit(
        V7, "__global__ void", "__global__ void __launch_bounds__(1024, 2)", "instructions", False),
    "shared memory for a whole SM": Edit(V7, "shared[BLOCK / 32];", "shared[40 * BLOCK];",
                                          "resident warps"),
    "narrow loads": Edit(TILES, PACK, "for (unsigned e = 0; e < VECTOR; e++)\n"
        "                    pack[l].at[e] = in[head + (first + l * BLOCK) * VECTOR + e];",
        "no load brings 16 bytes"),
    "half of the wide loads": Edit(
        TILES, PACK, "if (l % 2) { for (unsigned e = 0; e < VECTOR; e++)\n"
        "                    pack[l].at[e] = in[head + (first + l * BLOCK) * VECTOR + e]; } else "
        + PACK, "wide loads"),
    "the sum kept in shared memory": Edit(
        V6, ADD, "{ shared[tid] = item ? Op::combine(shared[tid], Op::lift(in[k], k)) : "
        "Op::lift(in[k], k); value = ((volatile Acc *)shared)[tid]; }",
        "accesses to shared memory"),
    "a modulo by what is not a constant": Edit(
        V2, "if (tid < stride)", "if (tid % blockDim.x < stride % (gridDim.x + stride))",
        "conversions"),
    "one more barrier": Edit(V7, "// Write:", "__syncthreads();\n    // Write:", "barriers", False),
}  # fmt: skip
HARMLESS = {
    "a comment": Edit(V7, "// Write:", "// Much more could be said here.\n    // Write:", "SAME"),
    "a blank line": Edit(LAST, "    // Write:", "\n\n    // Write:", "SAME"),
    "__restrict__": Edit(
        V7, "const In *in, Out *out", "const In *__restrict__ in, Out *__restrict__ out", ""),
    "__restrict__ in a loop": Edit(
        STRIDE, "const In *in, Out *out", "const In *__restrict__ in, Out *__restrict__ out", ""),
    "__restrict__ on tiles": Edit(
        TILES, "reduce_tiles(const In *in, Out *out",
        "reduce_tiles(const In *__restrict__ in, Out *__restrict__ out", ""),
    "more items": Edit(V7, "items      = 8", "items      = 16", ""),
    "many more items": Edit(V6, "items      = 8", "items      = 32", ""),
    "fewer items": Edit(V7, "items      = 8", "items      = 4", ""),
    "one item": Edit(V6, "items      = 8", "items      = 1", ""),
    "tiles of more": Edit(TILES, "items_bytes  = 64", "items_bytes  = 128", ""),
    "tiles of less": Edit(TILES, "items_bytes  = 64", "items_bytes  = 32", ""),
    "tiles of larger blocks": Edit(TILES, "block        = 512", "block        = 1024", ""),
    "a larger block": Edit(V7, "block      = 256", "block      = 1024", ""),
    "a smaller block": Edit(V2, "block      = 256", "block      = 128", ""),
    "another name of a variable": Edit(V7, "lane", "place", "SAME"),
    "another order of operands": Edit(
        V2, TREE, "shared[tid] = Op::combine(shared[tid + stride], shared[tid]);", ""),
}  # fmt: skip
#: One for machine code, one for memory traffic and a harmless one, for every run.
OFTEN = ("double arithmetic", "loads far apart", "__restrict__")


@pytest.fixture(scope="module")
def tools() -> Tools:
    return find_tools()


def edited(edit: Edit, folder: Path) -> tuple[Kernel, Kernel]:
    """A kernel before and after."""
    text = (kernels_folder() / f"{edit.kernel}.cu").read_text()
    assert edit.old in text
    path = folder / f"{Path(edit.kernel).name}.cu"
    path.write_text(text)
    before = load_kernel(path)
    path.write_text(text.replace(edit.old, edit.new))
    return before, load_kernel(path)


def judged(edit: Edit, folder: Path, tools: Tools, *architectures: int) -> list[UnitRow]:
    """The verdict of `check --compile` on an edit."""
    pair = edited(edit, folder)
    old, new = (
        compile_all(jobs([k], architectures, None), tools.nvcc, tools.disassembler, True)
        for k in pair
    )
    assert not new.failed, new.failed
    which = changed_kernels(compare_units(old, new))
    old, new = (
        with_traffic(side, [kernel], which, quiet=True)[0]
        for side, kernel in zip((old, new), pair, strict=True)
    )
    return compare_units(old, new)


def marked(edits: dict[str, Edit]) -> list[object]:
    return [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in edits]


@pytest.mark.parametrize("name", marked(HARMFUL))
def test_edits_that_cost_time_fail_or_are_named(name: str, tmp_path: Path, tools: Tools) -> None:
    edit = HARMFUL[name]
    [row] = judged(edit, tmp_path, tools, 90)
    assert (row.verdict in ("WORSE", "BROKEN")) == edit.fails, row.text
    assert edit.word in ("; ".join(row.causes) if edit.fails else row.text), row.text


@pytest.mark.slow
@pytest.mark.parametrize("name", marked(HARMLESS))
def test_edits_without_cost_pass(name: str, tmp_path: Path, tools: Tools) -> None:
    edit = HARMLESS[name]
    for row in judged(edit, tmp_path, tools, 75, 90, 120):
        assert row.verdict not in ("WORSE", "BROKEN"), row.text
        assert edit.word in ("", row.verdict), row.text


def test_there_are_as_many_edits_as_are_claimed() -> None:
    assert len(HARMFUL) == 33
    assert sum(edit.fails for edit in HARMFUL.values()) >= 28
