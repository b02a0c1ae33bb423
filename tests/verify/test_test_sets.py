"""Kernels that are wrong where sizes, blocks, poisons and inputs that stay the same do not look."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.selection import BackendSpec
from cudareduce.bench.jobs import Jobs
from cudareduce.catalog.kernel import load_kernel
from cudareduce.catalog.registry import kernel_files
from cudareduce.errors import BuildError, UsageError
from cudareduce.launch.case import Case, Prepared, build, planned
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import reduction_of
from cudareduce.verify.jobs import Job, combined, estimated_s, final_verdict, limited
from cudareduce.verify.patterns import inputs_for
from cudareduce.verify.test_sets import edges, literals, race_test_sets
from cudareduce.verify.verdict import Verdict, skipped
from cudareduce.verify.verification import verify
from tests.conftest import ROOT, read_result
from tests.fake_gpu import fake_gpu
from tests.verify.test_result_monitor import COOPERATIVE

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
_FILL = {**_GRID, "grid": "fill", "walk": "grid_stride", "finish": "relaunch"}
_BLOCK = {"scope": "block", "grid": "one", "walk": "contiguous", "finish": "none"}


def _last_block(**other: str) -> str:
    words = {"at": "partials", "fence": "__threadfence();", "ticket": _TICKET, "then": ""}
    arrive = _ARRIVE.format(**{**words, "end": "gridDim.x", **other})
    return _TILE + _TREE + arrive + _TREE + _WRITE


@dataclass(frozen=True)
class Wrong:
    """A wrong kernel, and a text that its verdict must contain."""

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
        f"block 32: n = {(2**16 + 999) * 32}", _GRID, blocks=(32, 256),
    ),
    "counts_on": Wrong(
        _last_block(ticket="atomicAdd(counter, 1) % gridDim.x == gridDim.x - 1"),
        "leaves the counter at", _GRID,
    ),
    "keeps_its_tickets": Wrong(
        "    if (threadIdx.x == 0)\n        atomicAdd(counter + 1, 1u);\n" + _last_block(),
        "leaves the counter at", {**_GRID, "walk": "tickets"},
    ),
    # What is left of a larger grid: right as long as grids grow.
    "remembers_the_largest_grid": Wrong(
        _last_block(at="kept", end="largest", then="largest = max(largest, gridDim.x);\n    "),
        "data race in global memory", _GRID,
        before="__device__ Acc kept[1 << 20];\n__device__ unsigned largest;",
    ),
    # NaN, which memory holds beforehand, is the one value that fmaxf passes over.
    "combines_with_what_is_there": Wrong(
        _STRIDE + _TREE + "    if (tid == 0)\n        *out = fmaxf(*out, shared[0]);\n",
        "expected -", _BLOCK, ops="max",
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
""", "data race in global memory", _BLOCK, before="__device__ Acc kept[BLOCK];"),
    "wrong_in_another_block": Wrong(
        _STRIDE.replace("i += BLOCK", "i += 256") + _TREE + _WRITE,
        "block 512: ", _BLOCK, blocks=(256, 512),
    ),
    # As many as there are warps, but in the largest block.
    "reads_beyond_in_another_block": Wrong(
        _STRIDE + """    shared[tid] = acc;
    __syncthreads();
    __shared__ Acc warps[BLOCK / 32];
    if (tid % 32 == 0) {
        for (unsigned k = 1; k < 32; k++)
            acc = Op::combine(acc, shared[tid + k]);
        warps[tid / 32] = acc;
    }
    __syncthreads();
    if (tid == 0) {
        for (unsigned k = 1; k < BLOCK / 31; k++)
            acc = Op::combine(acc, warps[k]);
        *out = Op::finish(acc);
    }
""", "index 32 is outside the array", _BLOCK, blocks=(256, 1024)),
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
""" + _TREE + _WRITE.replace("*out", "out[blockIdx.x]"), "got", _FILL, items=8,
    ),
}  # fmt: skip


@pytest.mark.slow
def test_each_wrong_kernel_fails_in_its_test_set(cudareduce: Call, tmp_path: Path) -> None:
    """As few runs as there are operators: a run verifies as many at a time as it can."""
    reasons: dict[str, str] = {}
    for op in ("sum", "max"):
        paths = [one.write(tmp_path, name) for name, one in _CASES.items() if one.ops == op]
        code, out, err = cudareduce(
            "verify", *paths, "--op", op, "--backend", "cpu", "--format", "json", "--quiet"
        )
        assert code == 3, err
        reasons |= {r["kernel"]: r["reason"] for r in read_result(out)["records"]}
    odd = {name: why for name, why in reasons.items() if _CASES[name].says not in why}
    assert not odd, "\n".join(odd.values())
    assert reasons.keys() == _CASES.keys()


_BARE = """__global__ void bare(const float *in, float *out%s)
{
    __shared__ float shared[256];
    const unsigned tid = threadIdx.x, i = blockIdx.x * 256 + tid;
    shared[tid] = %s;
    __syncthreads();
    for (unsigned stride = 128; stride > 0; stride /= 2) {
        if (tid < stride)
            shared[tid] += shared[tid + stride];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = shared[0];
}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "value"), [("", "in[i]"), (", int n", "i < n ? in[i] : 0")], ids=["whole", "counted"]
)
def test_an_external_file_is_verified_in_its_own_block_size_only(
    cudareduce: Call, tmp_path: Path, count: str, value: str
) -> None:
    path = tmp_path / "bare.cu"
    path.write_text(_BARE % (count, value))
    code, out, err = cudareduce("verify", path, "--backend", "cpu", "--format", "json")
    assert code == 0, out + err
    [record] = read_result(out)["records"]
    assert record["tried_sizes"] > 5


@pytest.mark.long
def test_a_file_that_bears_the_name_of_a_kernel_is_tried_in_its_other_blocks(
    cudareduce: Call, tmp_path: Path
) -> None:
    """Of 1024 / 31 rows a block only those of the largest one are too many."""
    own = ROOT / "kernels" / "limit" / "reduce_rows_warp.cu"
    path = tmp_path / own.name
    text = own.read_text()
    assert "blockIdx.x * (BLOCK / 32)" in text
    path.write_text(text.replace("blockIdx.x * (BLOCK / 32)", "blockIdx.x * (BLOCK / 31)"))
    code, out, _ = cudareduce("verify", path, "--backend", "cpu", "--quiet", "--format", "json")
    [record] = read_result(out)["records"]
    assert (code, record["reason"].split(",")[0]) == (3, "block 1024: n = 31 x 65 rows")


def _case(name: str) -> Case:
    kernel = load_kernel(next((ROOT / "kernels").glob(f"*/{name}.cu")))
    return Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)


@pytest.mark.parametrize("path", kernel_files(ROOT / "kernels"), ids=lambda p: p.stem)
def test_several_blocks_and_turns_are_watched(path: Path) -> None:
    case = _case(path.stem)
    plans = []
    for net in race_test_sets(case):
        for shape in net.shapes:
            with contextlib.suppress(UsageError):
                plans.append(net.case.plan(*shape, net.limits))
    grids = {step.grid for plan in plans for step in plan.passes}
    assert max(grids) > 2 or case.kernel.grid == "one"
    assert max(plan.problem.elements for plan in plans) > 2 * min(case.block * case.items, 4096)


def test_sizes_follow_tile_and_finish() -> None:
    sizes = {n for n, rows in edges(_case("reduce_v6_multi_add"), DEFAULT_LIMITS) if rows == 1}
    assert {2047, 2048, 2049, 2 * 2048 + 1, 3 * 2048 + 1, 2 * 2048} <= sizes
    sizes = {n for n, rows in edges(_case("reduce_last_block"), DEFAULT_LIMITS) if rows == 1}
    assert {2 * 24 * 1024 + 1, 1024 * 1024 + 1} <= sizes


def _job(name: str = "reduce_v7_shuffle", **other: Any) -> Job:
    case = _case(name)
    plans, refusals = planned(case, ((1000, 1), (4097, 1)), DEFAULT_LIMITS)
    prepared = Prepared(case, plans, refusals, {})
    own = {"spec": BackendSpec("cpu"), "limit_s": 0, "prepared": prepared, **other}
    return Job(shapes=tuple(own["prepared"].plans), **own)


def test_sizes_shrink_and_grow_again_if_a_kernel_keeps_state() -> None:
    up = [((1000, 1), "full", 0), ((4097, 1), "full", 0)]
    assert list(_job().walk) == up
    walk = _job("reduce_last_block").walk
    assert list(walk[:2]) == up
    assert [n for (n, _), _, _ in walk[2:]] == [1000, 4097, 1000, 1000, 4097]
    assert len({seed for *_, seed in walk[2:]}) == 5
    assert [level for _, level, _ in _job(level="some").walk] == ["some", "some"]


def test_sizes_follow_from_literals_in_the_source() -> None:
    text = (
        "constexpr int a = 4'000'000; int b = 3 * 1024 << 2u; // 77777\nfloat c = 1e6f, d = 5.5f;"
    )
    assert literals(text) == (4_000_000, 12288)


def test_every_remainder_of_a_16_byte_load_is_tried() -> None:
    case = replace(_case("reduce_v7_shuffle"), reduction=reduction_of("sum", "uint8"))
    sizes = {n for n, rows in edges(case, DEFAULT_LIMITS) if rows == 1 and n > 16}
    assert {n % 16 for n in sizes} == set(range(16))
    offsets = {off for _, off in inputs_for(case.reduction, (1000, 1), [256])}
    assert offsets == set(range(16))


def test_the_limit_follows_the_work() -> None:
    full, least = limited(_job(), None), limited(_job(level="least"), None)
    assert full.limit_s - 10 > 20 * (least.limit_s - 10) > 0
    assert not full.wall
    on_gpu = BackendSpec("cuda")
    launch = limited(_job(spec=on_gpu), None).limit_s
    assert launch == limited(_job(spec=on_gpu, level="least"), None).limit_s < least.limit_s
    asked = limited(_job(), 5.0)
    assert (asked.limit_s, asked.wall) == (5.0, True)


def test_an_undecided_test_on_the_emulator_is_a_remark() -> None:
    job = _job(optional=True, label="on the emulator")
    hazard = final_verdict(job, Verdict("fail", "a hazard"))
    assert (hazard.outcome, hazard.reason) == ("fail", "on the emulator: a hazard")
    for undecided in (
        skipped("unbuilt", "no asm"),
        Verdict("fail", "__trap() is not possible here"),
    ):
        assert final_verdict(job, undecided).outcome == "pass"
        assert final_verdict(job, undecided).reason == f"on the emulator: {undecided.reason}"
    assert final_verdict(_job(), skipped("unbuilt", "no asm")).outcome == "skip"


@pytest.mark.slow
def test_a_kernel_that_the_emulator_is_too_small_for_is_not_wrong(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "waits.cu"
    path.write_text(COOPERATIVE.format(grid=300))
    code, out, _ = cudareduce("verify", path, "--n", 2**17, "--backend", "cpu")
    assert code == 6
    assert "waits sum float32: skipped: cannot be decided here: n = " in out
    assert "its blocks wait for others, and the emulator runs 256 of them at a time" in out


def test_a_remark_outlives_the_verdicts_to_come() -> None:
    told_first, later = Verdict("pass", "not watched"), Verdict("pass", "", 1e-6, 1e-5)
    assert combined(told_first, later).reason == combined(later, told_first).reason == "not watched"


FENCE = ROOT / "tests" / "wrong_kernels" / "missing_fence.cu"


def test_bench_watches_every_access(cudareduce: Call) -> None:
    code, out, err = cudareduce("bench", FENCE, "--n", 1000, "--backend", "cpu")
    assert code == 3, err
    assert "data race in global memory" in out


@pytest.mark.long
def test_bench_on_a_gpu_has_the_emulator_watch_files_of_a_user(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    with fake_gpu(monkeypatch, cache):
        code, out, err = cudareduce("bench", FENCE, "--n", 1000, "--rounds", 1)
    assert code == 3, err
    assert "on the emulator: n = 257" in out
    monkeypatch.setattr(Jobs, "emulator", None)
    with fake_gpu(monkeypatch, cache):
        code, out, err = cudareduce("bench", FENCE, "--n", 1000, "--rounds", 1)
    assert code == 0, out + err


IN_PLACE = """__global__ void folds(int *d_in, int *d_out, int n) {
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (unsigned k = 1; k < blockDim.x; k *= 2) {
        if (t % (2 * k) == 0 && i + k < n) d_in[i] += d_in[i + k];
        __syncthreads();
    }
    if (t == 0) d_out[blockIdx.x] = d_in[i];
}
"""


@pytest.mark.long
def test_consuming_the_input_is_reported(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "folds.cu"
    path.write_text(IN_PLACE)
    code, out, _ = cudareduce("verify", path, "--n", 255, "--backend", "cpu")
    assert code == 0
    assert "overwrites its input, which is restored before each launch" in out
    path.write_text(IN_PLACE.replace("d_in[i] += d_in[i + k]", "((add(d_in + i, d_in[i + k])))")
                    .replace("__global__", "__device__ void add(int *x, int y) { *x += y; }\n"
                             "__global__"))  # fmt: skip
    code, out, _ = cudareduce("verify", path, "--n", 255, "--backend", "cpu")
    assert code == 0
    assert "overwrites its input, which is restored before each launch" in out


@pytest.mark.parametrize("path", kernel_files(ROOT / "kernels"), ids=lambda p: p.stem)
def test_the_race_detecting_build_runs_few_threads(path: Path) -> None:
    plans = [
        plan for tests in race_test_sets(_case(path.stem))
        for plan in planned(tests.case, tests.shapes, tests.limits)[0].values()
    ]  # fmt: skip
    assert sum(step.grid * plan.block for plan in plans for step in plan.passes) < 2**18


def test_the_race_test_sets_of_short_rows_take_two_seconds_at_most() -> None:
    tests = next(race_test_sets(_case("reduce_rows_split")))
    plans, refusals = planned(tests.case, tests.shapes, tests.limits)
    prepared = Prepared(tests.case, plans, refusals, {})
    job = _job(spec=BackendSpec("cpu", hazards=True), prepared=prepared, level=tests.level)
    assert estimated_s(job) < 2


def test_one_large_input_is_verified_under_every_schedule(cpu: CpuBackend) -> None:
    case, shape = _case("reduce_v7_shuffle"), (2**17 + 1, 1)
    plans, refusals = planned(case, (shape,), DEFAULT_LIMITS)
    programs = build(cpu, {case: list(plans.values())})[case]
    assert not isinstance(programs, BuildError)
    verdict = verify(cpu, [Prepared(case, plans, refusals, programs)], shape)[case]
    assert (len(verdict.effort.schedules), verdict.launches) == (3, 3)
    assert verdict.effort.patterns == {"exact", "random", "positive"}
    assert verdict.effort.launches == (3 + 1 + 1) * len(plans[shape].passes)
