"""The timed input, and the monitor of results of timed launches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudareduce.catalog.map_expression import read_map
from cudareduce.catalog.registry import Registry
from cudareduce.errors import NotEmulated
from cudareduce.launch.case import Case, build
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import reduction_of
from cudareduce.timing.sampling import COLD, Sampler
from cudareduce.verify.result_monitor import OwnBuffers, TimedData
from tests.conftest import read_result
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
V7 = "reduce_v7_shuffle"


def data(registry: Registry, op: str, dtype: str, n: int, pattern: str = "random") -> Any:
    kernel = registry.kernels["reduce_ordered_last_block"]
    reduction = reduction_of(op, dtype)
    plan = Case(kernel, reduction, kernel.block, kernel.items).plan(n, 1, DEFAULT_LIMITS)
    return TimedData(pattern, reduction, n, 1, 5, [plan]), plan


@pytest.mark.parametrize("n", [1, 33, 70001])
@pytest.mark.parametrize(
    ("op", "dtype"),
    [("sum", "float32"), ("sum", "float16"), ("sum", "bfloat16"), ("sum", "float64"),
     ("sum", "int8"), ("sum", "uint64"), ("mean", "float32"), ("mean", "int32"),
     ("prod", "float32"), ("prod", "int32"), ("min", "float32"), ("max", "bfloat16"),
     ("max", "int32"), ("argmax", "float32"), ("argmin", "float16"), ("matmul", "int32"),
     ("affine", "uint32")],
)  # fmt: skip
def test_the_result_of_one_input_is_wrong_for_the_other(
    registry: Registry, op: str, dtype: str, n: int
) -> None:
    given, plan = data(registry, op, dtype, n)
    before = given.elements.copy()
    if not (op.startswith("arg") and n == 1) and (op, n) != ("sum", 1):
        assert given.detects_stale_result(plan)
    for number in (0, 1):
        right = given.reference((n, 1), number).expected.astype(given.reduction.result_dtype)
        assert given.judged(plan, right, number).outcome == "pass"
    assert given.elements.tobytes() == before.tobytes()


def test_an_exact_pattern_stays_exact(registry: Registry) -> None:
    given, plan = data(registry, "sum", "float32", 70001, "exact")
    assert given.detects_stale_result(plan)
    before, after = given.chunks[0].kept
    assert np.count_nonzero(before != after) == 1
    assert (np.abs(before) == np.abs(after)).all()


def test_the_timed_input_differs_without_a_seed(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    ask = ("bench", V7, "--n", 3000, "--rounds", 1, "--backend", "cuda", "--format", "json")
    seeds = []
    for more in ((), (), ("--seed", 0), ("--seed", 6)):
        code, out, err = cudareduce(*ask, "--quiet", *more)
        assert code == 0, err
        protocol = read_result(out)["protocol"]
        seeds.append((protocol["seed"], protocol["timed_seed"]))
    assert [seed for seed, _ in seeds] == [0, 0, 0, 6]
    assert seeds[0][1] != seeds[1][1]
    assert [timed for _, timed in seeds[2:]] == [1, 7]


def test_the_monitor_runs_before_the_flush_and_after_the_last_event() -> None:
    log: list[str] = []

    def noted(name: str, value: object = 0.0) -> Callable[..., Any]:
        def note(*_: object) -> object:
            log.append(name)
            return value

        return note

    timer: Any = SimpleNamespace(
        flush=noted("flush"), mark=noted("event"), reached=lambda _: False,
        elapsed_us=lambda *_: 9000.0, synchronize=noted("wait"), host_us=lambda: 0.0,
        reset_persisting=noted("persisting"),
    )  # fmt: skip
    watch: Any = SimpleNamespace(
        **{name: noted(name) for name in ("begin", "before", "after", "end")}
    )
    sampler = Sampler(timer, COLD, noted("launch"), 1, most=1, watch=watch)
    deadline: Any = SimpleNamespace(passed=False)
    sampler.half_round(deadline)
    assert log == [
        "begin", "before", "persisting", "flush", "event", "launch", "event", "wait", "after",
        "end",
    ]  # fmt: skip


#: A right kernel, and what it may do besides once n is 5000: verification takes other sizes too.
RIGHT_KERNEL = """/*+++
title  = "{name}"
change = "x"
scope  = "block"
grid   = "one"
walk   = "contiguous"
finish = "none"
block  = 256
blocks = [256]
+++*/
{before}
extern "C" __global__ void {name}(const In *in, Out *out, size_t n)
{{
    __shared__ Acc shared[BLOCK];
    Acc value = Op::identity();
    for (size_t k = threadIdx.x; k < n; k += BLOCK)
        value = Op::combine(value, Op::lift(in[k], k));
    shared[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x == 0) {{
        for (unsigned k = 1; k < BLOCK; k++)
            value = Op::combine(value, shared[k]);
        *out = Op::finish(value);
        {besides}
    }}
}}
"""

#: A right kernel whose blocks wait for each other.
COOPERATIVE = """/*+++
title  = "Waits for its grid"
change = "x"
scope  = "grid"
grid   = "fixed"
fixed_grid = {grid}
walk   = "grid_stride"
finish = "none"
dtypes = ["float32"]
ops    = ["sum"]
block  = 256
blocks = [256]
+++*/
#include <cooperative_groups.h>
__device__ float kept[{grid}];
extern "C" __global__ void waits(const In *in, Out *out, size_t n)
{{
    __shared__ float shared[BLOCK];
    float value = 0;
    for (size_t k = blockIdx.x * (size_t)BLOCK + threadIdx.x; k < n; k += (size_t)gridDim.x * BLOCK)
        value += in[k];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (unsigned stride = BLOCK / 2; stride > 0; stride /= 2) {{
        if (threadIdx.x < stride)
            shared[threadIdx.x] += shared[threadIdx.x + stride];
        __syncthreads();
    }}
    if (threadIdx.x == 0)
        kept[blockIdx.x] = shared[0];
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {{
        value = 0;
        for (unsigned k = 0; k < gridDim.x; k++)
            value += kept[k];
        *out = value;
    }}
}}
"""


def benched(
    call: Call, monkeypatch: pytest.MonkeyPatch, cache: Path, folder: Path, *more: object,
    besides: str = "", before: str = "",
) -> dict[str, Any]:  # fmt: skip
    use(monkeypatch, FakeGpu(cache))
    path = folder / "a_kernel.cu"
    path.write_text(RIGHT_KERNEL.format(name="a_kernel", besides=besides, before=before))
    code, out, err = call(
        "bench", path, V7, "--n", 5000, "--rounds", 1, "--backend", "cuda", "--quiet", "--format",
        "json", *more,
    )  # fmt: skip
    assert out, err
    found = {r["kernel"]: r for r in read_result(out)["records"]}
    return {"code": code, **found}


COUNTED = "__device__ unsigned launches; __device__ size_t last;"
LATER = "launches = last == n ? launches + 1 : 0; last = n; if (n == 5000 && launches > 70) "


@pytest.mark.long
def test_the_writer_of_the_input_is_identified(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    found = benched(
        cudareduce, monkeypatch, cache, tmp_path, before=COUNTED,
        besides=LATER + "((In *)in)[7] = 1000;",
    )  # fmt: skip
    assert found["code"] == 3
    assert found["a_kernel"]["verdict"] == "fail"
    assert found["a_kernel"]["time_us"] is None
    assert (found[V7]["verdict"], found[V7]["reason"]) == ("pass", "")


@pytest.mark.long
def test_a_first_pass_is_judged_by_the_final_result(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    ask = ("--region", "first-pass")
    assert benched(cudareduce, monkeypatch, cache, tmp_path, *ask)["code"] == 0
    found = benched(
        cudareduce, monkeypatch, cache, tmp_path, *ask, before=COUNTED,
        besides=LATER + "*out = 42;",
    )  # fmt: skip
    assert found["code"] == 3
    assert "timed launch" in found["a_kernel"]["reason"]
    assert found[V7]["verdict"] == "pass"


@pytest.mark.long
def test_an_undecided_kernel_is_timed_and_marked(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    """The emulator lacks a feature that the GPU has."""
    use(monkeypatch, FakeGpu(cache, lazy=True))
    path = tmp_path / "a_kernel.cu"
    path.write_text(RIGHT_KERNEL.format(name="a_kernel", besides="// for GPUs", before=""))
    monkeypatch.setattr("cudareduce.verify.jobs.build", lambda backend, plans: {
        case: NotEmulated("a_kernel.cu:1: cannot be decided here: inline PTX")
        if backend.name == "cpu" else build(backend, plans)[case] for case in plans
    })  # fmt: skip
    ask = ("bench", path, "--n", 5000, "--rounds", 1, "--backend", "cuda", "--quiet")
    code, out, err = cudareduce(*ask)
    assert code == 0, err
    assert "a_kernel: on the emulator: a_kernel.cu:1: cannot be decided here: inline PTX" in out
    assert cudareduce(*ask, "--strict")[0] == 4


def test_strict_is_content_with_what_is_decided(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    ask = (V7, "--n", 3000, "--backend", "cuda", "--strict")
    assert cudareduce("verify", *ask)[0] == 0
    assert cudareduce("bench", *ask)[0] == 0
    assert cudareduce("bench", *ask, "--max-time", 0.001)[0] == 4


def test_writing_to_buffers_of_another_call_is_reported() -> None:
    held, reset = [1, 2, 3], list[str]()
    bounds: Any = {
        name: SimpleNamespace(own=(name,) * count, reset=lambda name=name: reset.append(name))
        for name, count in (("A", 1), ("B", 2))
    }
    timer: Any = SimpleNamespace(content_hashes=lambda buffers: lambda: held[: len(buffers)])
    memory: OwnBuffers[str] = OwnBuffers(bounds, timer)
    before, (a, b) = memory.hashes(), bounds
    assert memory.restored_owner(before, a) is None
    held[2] = 9
    assert memory.restored_owner(before, b) is None  # its own it may change
    assert (memory.restored_owner(before, a), reset) == ("B", ["B"])


@pytest.mark.parametrize("op", ["sum", "mean", "max"])
@pytest.mark.parametrize("expression", ["a * a", "fabs(a)", "a * b"])
@pytest.mark.parametrize("pattern", ["random", "exact"])
def test_a_cached_result_is_detected_with_a_transform(
    registry: Registry, op: str, expression: str, pattern: str
) -> None:
    if (op, pattern) == ("max", "exact"):
        pytest.skip("an extreme has no other exact elements")
    kernel = registry.kernels["reduce_ordered_last_block"]
    reduction = reduction_of(op, "float32", None, read_map(expression, "--map"))
    plan = Case(kernel, reduction, kernel.block, kernel.items).plan(70001, 1, DEFAULT_LIMITS)
    given = TimedData(pattern, reduction, 70001, 1, 5, [plan])
    assert given.detects_stale_result(plan)
    assert len(given.arrays) == len(given.chunks) == reduction.inputs
