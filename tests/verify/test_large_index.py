"""Elements whose place takes more than 32 bits: who does not reach them, and that all others do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.selection import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.launch.case import Case, Prepared, build, planned
from cudareduce.reduction.operators import Reduction, reduction_of
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.jobs import Job
from cudareduce.verify.large_index import large_index_test_sets, verify_large_indices
from cudareduce.verify.verdict import Verdict
from tests.conftest import ROOT
from tests.verify.test_kernels import usual

WRONG = ROOT / "tests" / "wrong_kernels"
_KERNEL = """/*+++
title  = "Of one thread in 32"
change = "Nothing"
scope  = "{scope}"
grid   = "{grid}"
{fixed}
walk   = "{walk}"
finish = "{finish}"
block  = 32
blocks = [32]
+++*/
extern "C" __global__ void {name}(const In *in, Out *out, size_t n{more})
{{
    const unsigned tid = threadIdx.x;
    const In *const start = in;
    {each}{{
        Acc acc = Op::identity();
        {body}
        for (unsigned d = 16; d > 0; d /= 2)
            acc = Op::combine(acc, __shfl_down_sync(0xffffffffu, acc, d));
        if (tid == 0)
            {write};
    }}
}}
"""
_TILE = {"scope": "grid", "grid": "cover", "walk": "tile", "finish": "relaunch"}
_STRIDE = {"scope": "grid", "grid": "fixed", "walk": "grid_stride", "finish": "relaunch_one_block"}
_SHARE = {**_STRIDE, "walk": "contiguous"}
_ONE = {"scope": "block", "grid": "one", "walk": "contiguous", "finish": "none"}
_ROWS = {"scope": "rows", "grid": "block_per_row", "walk": "contiguous", "finish": "none"}
_FEW_ROWS = {**_ROWS, "grid": "fixed"}
_EACH_ROW = "for (size_t row = blockIdx.x; row < rows; row += gridDim.x) "
_TAKE = "if (i < n) acc = Op::lift(in[i], i);"
_LOOP = (
    "for ({type} i = {first}; i < {end}; i += {step}) acc = Op::combine(acc, Op::lift(in[i], i));"
)
_THREAD, _THREADS = "blockIdx.x * 32 + tid", "gridDim.x * 32"


def _loop(index: str, end: str, first: str = _THREAD, step: str = _THREADS) -> str:
    return _LOOP.format(type=index, first=first, end=end, step=step)


_CASES = {
    "tile_64": (_TILE, f"size_t i = (size_t)blockIdx.x * 32 + tid; {_TAKE}", ""),
    "tile_int": (_TILE, f"int i = {_THREAD}; {_TAKE}", "expected"),
    "tile_unsigned": (_TILE, f"unsigned i = {_THREAD}; {_TAKE}", "expected"),
    "tile_int_count": (
        _TILE, f"int i = {_THREAD}; if (i < (int)n) acc = Op::lift(in[i], i);", "before the start"),
    "tile_signed": (
        _TILE, f"int i = {_THREAD}; if (i < (long long)n) acc = Op::lift(in[i], i);",
        "before the start"),
    "tile_short_block": (
        _TILE, f"unsigned short b = blockIdx.x; size_t i = b * 32ull + tid; {_TAKE}", "expected"),
    "tile_atomic_int": ({**_TILE, "finish": "atomic"}, f"int i = {_THREAD}; {_TAKE}", "expected"),
    "stride_64": (_STRIDE, _loop("size_t", "n"), ""),
    "stride_int": (_STRIDE, _loop("int", "n"), "expected"),
    "stride_int_signed": (_STRIDE, _loop("int", "(long long)n"), "before the start"),
    "stride_unsigned": (_STRIDE, _loop("unsigned", "n"), "no end after"),
    "stride_unsigned_count": (_STRIDE, _loop("size_t", "(unsigned)n"), "expected"),
    "share_64": (
        _SHARE, "const size_t share = (n + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;"
        + _loop("size_t", "min(n, begin + share)", "begin + tid", "32"), ""),
    "share_unsigned": (
        _SHARE, "const unsigned share = n / gridDim.x, begin = blockIdx.x * share;"
        + _loop("unsigned", "begin + share", "begin + tid", "32"), "expected"),
    "one_64": (_ONE, _loop("size_t", "n", "tid", "32"), ""),
    "one_int_count": (_ONE, _loop("int", "(int)n", "tid", "32"), "expected"),
    "rows_64": (_ROWS, "in = start + row * n;" + _loop("size_t", "n", "tid", "32"), ""),
    "rows_unsigned": (
        _ROWS, "in = start + (unsigned)row * (unsigned)n;" + _loop("size_t", "n", "tid", "32"),
        "expected"),
    "few_rows_64": (_FEW_ROWS, "in = start + row * n;" + _loop("size_t", "n", "tid", "32"), ""),
    "few_rows_int": (
        _FEW_ROWS, "in = start + (int)row * (int)n;" + _loop("int", "n", "tid", "32"),
        "before the start"),
}  # fmt: skip


def _write(folder: Path, name: str) -> Path:
    header, body, _ = _CASES[name]
    by_row = header["scope"] == "rows"
    write = f"out[{'row' if by_row else 'blockIdx.x'}] = Op::finish(acc)"
    path = folder / f"{name}.cu"
    path.write_text(
        _KERNEL.format(
            **header, name=name, body=body,
            fixed="fixed_grid = 4096" if header["grid"] == "fixed" else "",
            more=", size_t rows" if by_row else "", each=_EACH_ROW if by_row else "",
            write="Op::atomic(out, acc)" if header["finish"] == "atomic" else write,
        )
    )  # fmt: skip
    return path


def _case(kernel: Kernel, op: str = "sum", dtype: str = "float32") -> Case:
    return Case(kernel, reduction_of(op, dtype), kernel.block, kernel.items)


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    children = Isolation()
    yield children
    children.close()


def _judged(isolation: Isolation, case: Case, cache: Path) -> Verdict:
    [net] = large_index_test_sets(case)
    plans, refusals = planned(case, net.shapes, net.limits)
    job = Job(
        spec=BackendSpec("cpu", cache=cache), prepared=Prepared(case, plans, refusals, {}),
        shapes=tuple(plans), limit_s=60, level=net.level,
    )  # fmt: skip
    [(_, verdict)] = isolation.verify({case: [job]}, 1, Deadline(), lambda _: None)
    return verdict


@pytest.mark.parametrize("name", _CASES)
def test_indices_beyond_32_bits_are_correct_or_reported(
    isolation: Isolation, name: str, cache: Path, tmp_path: Path
) -> None:
    verdict = _judged(isolation, _case(load_kernel(_write(tmp_path, name))), cache)
    says = _CASES[name][2]
    assert verdict.outcome == ("fail" if says else "pass"), verdict
    assert says in verdict.reason


@pytest.mark.parametrize(
    ("name", "op", "dtype"),
    [
        ("byte_offsets_32", "sum", "float32"),
        ("byte_offsets_32", "min", "float64"),
        ("rows_int_offset", "max", "int8"),
        ("unsigned_grid_stride", "argmax", "float16"),
        ("argmax_bytes_packed", "argmax", "uint8"),
        ("half2_hadd2_sum", "sum", "float16"),  # which runs out of digits, not of places
    ],
)
def test_kernels_that_lose_large_indices_are_rejected(
    isolation: Isolation, name: str, op: str, dtype: str, cache: Path
) -> None:
    case = _case(load_kernel(WRONG / f"{name}.cu"), op, dtype)
    assert _judged(isolation, case, cache).outcome == "fail"


#: Those that pack a value and a place in a word leave no partial that another could read.
KERNELS = [
    kernel for kernel in load_registry().kernels.values()
    if not kernel.requires and not (kernel.finish == "one_word" and "argmax" in kernel.ops)
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "reduction"),
    [
        *((kernel, usual(kernel, "float32")) for kernel in KERNELS),
        *((one, reduction_of("matmul", "uint32")) for one in KERNELS if one.order == "kept"),
    ],
    ids=lambda one: one.id if isinstance(one, Kernel) else one.op.name,
)
def test_those_of_the_package_reach_every_element(
    kernel: Kernel, reduction: Reduction, cpu: CpuBackend
) -> None:
    case = Case(kernel, reduction, kernel.block, kernel.items)
    [net] = large_index_test_sets(case)
    plans, refusals = planned(case, net.shapes, net.limits)
    assert not refusals
    programs = build(cpu, {case: list(plans.values())})[case]
    assert isinstance(programs, dict)
    prepared = Prepared(case, plans, refusals, programs)
    assert verify_large_indices(cpu, prepared, net.shapes) == Verdict("pass")


def test_partials_of_a_files_own_are_not_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "mine.cu"
    own = {**_STRIDE, "finish": "none"}
    head = _KERNEL.partition("extern")[0].format(**own, fixed="fixed_grid = 12")
    path.write_text(head + 'extern "C" __global__ void mine(const In *in, Out *out, size_t n) {}')
    assert not list(large_index_test_sets(_case(load_kernel(path))))


@pytest.mark.parametrize(
    ("name", "op"), [("reduce_ordered_last_block", "matmul"), ("reduce_ordered_warp", "affine")]
)
def test_of_several_words_nothing_is_marked(
    isolation: Isolation, name: str, op: str, cache: Path
) -> None:
    [path] = (ROOT / "kernels").glob(f"*/{name}.cu")
    assert _judged(isolation, _case(load_kernel(path), op, "uint32"), cache) == Verdict("pass")
