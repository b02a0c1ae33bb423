"""What only a GPU can show. Skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.cuda.cuda import CudaBackend
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.bench.trial import FLOOR_EVENTS, FLOOR_LAUNCH
from cudareduce.catalog.front_matter import UNORDERED
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.reduction.inputs import make
from cudareduce.reduction.operators import reduction_of
from cudareduce.verify.verification import verify
from tests.cli.test_main import MINE
from tests.conftest import read_result
from tests.verify.test_kernels import CORE, EACH_ONCE, prepare

pytestmark = pytest.mark.gpu

KERNELS = load_registry().kernels
SHAPES = ((0, 1), (1, 1), (33, 1), (257, 1), (4097, 1), (65537, 1), (5, 33), (31, 3), (257, 9))
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def gpu() -> Iterator[CudaBackend]:
    with open_cuda(BackendSpec("cuda")) as backend:
        yield backend


@pytest.mark.parametrize(("op", "dtype"), sorted(CORE | EACH_ONCE))
def test_every_kernel_is_right(gpu: CudaBackend, op: str, dtype: str) -> None:
    reduction = reduction_of(op, dtype)
    takers = [k for k in KERNELS.values() if k.why_not(reduction) is None]
    if not takers:
        pytest.skip(f"no kernel takes {op} of {dtype}")
    cases = [Case(kernel, reduction, kernel.block, kernel.items) for kernel in takers]
    prepared = prepare(gpu, cases, SHAPES)
    assert [one.case for one in prepared] == cases
    for shape in SHAPES:
        ready = [one for one in prepared if shape in one.plans]
        for case, verdict in verify(gpu, ready, shape).items():
            assert verdict.outcome == "pass", f"{case.kernel.id}: {verdict.reason}"


@pytest.mark.parametrize(
    "kernel",
    [
        k
        for k in KERNELS.values()
        if k.scope == "grid"
        and k.finish not in UNORDERED
        and not k.requires
        and k.why_not(reduction_of("sum", "float32")) is None
    ],
    ids=lambda k: k.id,
)
def test_float_sums_are_bit_equal_to_the_emulator(
    gpu: CudaBackend, cpu: CpuBackend, kernel: Kernel
) -> None:
    reduction = reduction_of("sum", "float32")
    case = Case(kernel, reduction, kernel.block, kernel.items)
    data = make("random", reduction, 70001)
    answers: list[np.ndarray] = []
    for backend in (gpu, cpu):
        plan = case.plan(70001, 1, gpu.limits())
        programs = programs_of(backend, {case: plan})[case]
        bound = Bound(backend, plan, programs, backend.upload(data))
        bound.run()
        answers.append(bound.results())
    on_gpu, on_cpu = answers
    assert np.array_equal(on_gpu, on_cpu)


def test_bench_times_have_intervals_and_stay_below_the_peak(
    cudareduce: Call, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    code, out, err = cudareduce("bench", "fastcuda", "--n", "2^22", "--json", path, "--quiet")
    assert (code, err) == (0, "")
    run = read_result(path.read_text())
    assert run["device"]["peak_gb_s"] > 100
    assert (
        0 < run["protocol"]["floors_us"][FLOOR_EVENTS] < run["protocol"]["floors_us"][FLOOR_LAUNCH]
    )
    records = run["records"]
    assert [r["name"][:2] for r in records] == [f"V{k}" for k in range(8)]
    for r in records:
        assert r["verdict"] == "pass"
        assert r["time_us_low"] <= r["time_us"] <= r["time_us_high"]
        assert len(r["rounds_us"]) == 9
        assert r["pct_peak"] < 100
        assert r["bytes"] == 4 * 2**22 + 4
        assert r["gb_s"] == pytest.approx(r["bytes"] / r["time_us"] / 1e3)
        assert len(r["cubin_sha"]) == 64
    assert records[0]["speedup"] == 1
    assert records[7]["speedup"] > 3
    assert "%ceil" in out


def test_sizes_beyond_32_bits(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "verify", "reduce_v6_multi_add", "reduce_v7_shuffle", "--n", 2**32 + 12, "--dtype", "int8",
        "--quiet",
    )  # fmt: skip
    assert code == 0, out


def test_out_of_memory_is_a_skip_row(cudareduce: Call, gpu: CudaBackend) -> None:
    free, _ = gpu._driver.mem_get_info()
    hog = gpu._driver.mem_alloc(free - 2**28)
    try:
        code, out, _ = cudareduce("bench", "reduce_v7_shuffle", "--n", "2^28", "--quiet")
    finally:
        hog.free()
    assert code == 6
    assert "skipped, out of GPU memory: 1.00 GiB wanted" in out


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("i < n ? Op::lift(in[i], i)", "true ? Op::lift(in[i + (1ull << 40)], i)",
         "run it under compute-sanitizer"),
        ("__syncthreads();",
         "while (*(volatile const In *)in == *(volatile const In *)in) {} __syncthreads();",
         "no result after 20 s"),
        ("k < BLOCK", "k < BLOCK - 1", "expected"),
    ],
    ids=["faults", "hangs", "wrong"],
)  # fmt: skip
def test_a_user_file_that_faults_or_hangs_does_not_end_the_run(
    cudareduce: Call, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    mine = tmp_path / "mine.cu"
    not_on_the_emulator = '    asm volatile("");\n    __shared__'
    mine.write_text(MINE.replace("    __shared__", not_on_the_emulator).replace(old, new))
    code, out, _ = cudareduce(
        "bench", mine, "reduce_v7_shuffle", "--n", "2^20", "--time-limit", 20, "--format", "json",
        "--quiet",
    )  # fmt: skip
    assert code == 3
    wrong, right = read_result(out)["records"]
    assert (wrong["verdict"], wrong["time_us"]) == ("fail", None)
    assert reason in wrong["reason"]
    assert right["time_us"], (right["verdict"], right["reason"])


def test_a_correct_user_file_is_timed(cudareduce: Call, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cu"
    mine.write_text(MINE)
    code, out, _ = cudareduce("bench", mine, "--n", "2^20", "--format", "json", "--quiet")
    assert code == 0
    assert read_result(out)["records"][0]["time_us"] > 0


def test_errors_of_nvcc_name_the_line_in_the_file(cudareduce: Call, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cu"
    mine.write_text(MINE.replace("Acc value = Op::identity();", "Acc value = nonsense;"))
    code, out, _ = cudareduce("bench", mine, "--n", 9, "--format", "json", "--quiet")
    line = MINE.splitlines().index("        Acc value = Op::identity();") + 1
    assert code == 2
    assert f"{mine}({line}): error" in read_result(out)["records"][0]["reason"]
