"""The CPU emulator: right kernels pass, and every kind of mistake is caught and named."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from cudareduce.backends.emulator import cpu, toolchain
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.emulator.toolchain import Toolchain, resolve_locations
from cudareduce.backends.protocol import Program, Source
from cudareduce.errors import BuildError, EnvironmentProblem, KernelFault
from tests.conftest import ROOT

KERNELS = ROOT / "tests" / "emulator_kernels"
BLOCK = 256
SIZES = (1, 31, 255, 256, 257, 1000, 5003)
SCHEDULES = ("ascending", "random:1", "random:2", "warp:1", "warp:2")

RIGHT = (
    "tree",
    "dynamic_tree",
    "warp_tail",
    "shuffle",
    "groups",
    "one_atomic_per_block",
    "compare_and_swap",
)
RIGHT_AND_ORDERED_BY_ATOMICS = (
    "last_block",
    "last_block_of_warps",
    "last_block_exchange",
    "last_warp",
)
SEEN_BY_A_SCHEDULE = (
    "no_barrier_after_load",
    "no_barrier_in_loop",
    "no_barrier_between_uses",
    "no_syncwarp_in_tail",
    "one_syncwarp_in_tail",
    "missing_barrier_after_atomics",
    "in_place",
)
SEEN_BY_THE_HAZARD_CHECK_ONLY = ("no_fence", "block_fence", "fence_after_arrival")

Load = Callable[[str, str], Program]


def source(file: str, entry: str) -> Source:
    path = KERNELS / file
    return Source(f'#line 1 "{file}"\n{path.read_text()}', entry, path)


def lines_marked(file: str, mark: str) -> set[str]:
    """The places `file:line` whose line ends with the comment `// mark`."""
    lines = (KERNELS / file).read_text().splitlines()
    return {f"{file}:{n}" for n, line in enumerate(lines, 1) if line.endswith(f"// {mark}")}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "hazards"])
def any_backend(request: pytest.FixtureRequest, cache: Path) -> Iterator[CpuBackend]:
    with CpuBackend(cache=cache, hazards=request.param) as opened:
        yield opened


@pytest.fixture(scope="module")
def plain(cache: Path) -> Iterator[CpuBackend]:
    with CpuBackend(cache=cache) as opened:
        yield opened


@pytest.fixture(scope="module")
def checked(cache: Path) -> Iterator[CpuBackend]:
    with CpuBackend(cache=cache, hazards=True) as opened:
        yield opened


def take(backend: CpuBackend, schedule: str) -> None:
    """Select a schedule, also one that the package does not use by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "SCHEDULES", (schedule,))
        [way] = backend.schedules(1, quick=False)
    assert way == f"schedule {schedule}"


def load(backend: CpuBackend, file: str, entry: str) -> Program:
    [program] = backend.build([source(file, entry)])
    if isinstance(program, BuildError):
        raise program
    assert program is not None
    return program


def run_sum(backend: CpuBackend, program: Program, n: int) -> tuple[float, float]:
    """The sum that a kernel makes of n small integers, and the right one."""
    values = np.random.default_rng(n).integers(1, 9, n).astype(np.float32)
    grid = -(-n // BLOCK)
    given, out = backend.upload(values), backend.allocate(4 * grid)
    partials, counter = backend.allocate(4 * grid * BLOCK // 32), backend.allocate(4)
    for buffer in (out, counter):
        backend.zero(buffer)
    if program.entry == "last_block_exchange":
        backend.zero(partials)
    extra = [partials, counter] if takes_counter(program.entry) else []
    shared = 4 * BLOCK if program.entry == "dynamic_tree" else 0
    launch = backend.launcher(program, grid, BLOCK, [given, out, n, *extra], shared)
    launch()
    answer = backend.download(out, "float32", grid).sum(dtype=np.float64)
    backend.free(given, out, partials, counter)
    return float(answer), float(values.sum(dtype=np.float64))


def takes_counter(entry: str) -> bool:
    return entry in (
        *RIGHT_AND_ORDERED_BY_ATOMICS,
        "no_fence",
        "block_fence",
        "fence_after_arrival",
    )


@pytest.mark.parametrize("entry", RIGHT + RIGHT_AND_ORDERED_BY_ATOMICS)
def test_right_kernels_are_right_under_every_schedule(any_backend: CpuBackend, entry: str) -> None:
    program = load(any_backend, "right.cu", entry)
    for schedule in SCHEDULES:
        take(any_backend, schedule)
        for n in SIZES:
            answer, expected = run_sum(any_backend, program, n)
            assert answer == expected, (schedule, n)


@pytest.mark.parametrize("hazards", [False, True], ids=["plain", "hazards"])
def test_backends_with_caches_of_their_own_share_a_process(
    tmp_path: Path, cache: Path, hazards: bool
) -> None:
    """Kernels link to the runtime that was loaded first, from whichever folder."""
    for name in ("one", "two"):  # the runtime is compiled once, which takes seconds
        (tmp_path / name).mkdir()
        shutil.copy(Toolchain(cache, hazards).runtime(), tmp_path / name)
    with (
        CpuBackend(cache=tmp_path / "one", hazards=hazards) as one,
        CpuBackend(cache=tmp_path / "two", hazards=hazards) as two,
    ):
        for backend in (one, two, one):
            answer, expected = run_sum(backend, load(backend, "right.cu", "last_block"), 1000)
            assert answer == expected


def test_one_library_has_all_kernels_of_a_file(cache: Path) -> None:
    compiled = {Toolchain(cache, False).kernel(source("right.cu", entry)) for entry in RIGHT}
    assert len(compiled) == 1


@pytest.mark.parametrize("entry", SEEN_BY_A_SCHEDULE)
def test_a_schedule_shows_a_missing_barrier(plain: CpuBackend, entry: str) -> None:
    program = load(plain, "synchronisation_bugs.cu", entry)
    wrong = []
    for schedule in SCHEDULES:
        take(plain, schedule)
        answer, expected = run_sum(plain, program, 1000)
        wrong.append(answer != expected)
    assert any(wrong)


@pytest.mark.parametrize(
    "entry", (*SEEN_BY_A_SCHEDULE, "barrier_in_branch", *SEEN_BY_THE_HAZARD_CHECK_ONLY)
)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_data_race_is_reported_with_its_line(
    checked: CpuBackend, entry: str, schedule: str
) -> None:
    program = load(checked, "synchronisation_bugs.cu", entry)
    take(checked, schedule)
    with pytest.raises(KernelFault, match=r"data race in|barrier divergence") as caught:
        run_sum(checked, program, 1000)
    report = str(caught.value).removeprefix(f"{entry}: ")
    marked = lines_marked("synchronisation_bugs.cu", "hazard")
    named = {finding.split(": ")[0] for finding in report.split("; ")}
    assert named <= marked, report


@pytest.mark.parametrize("entry", SEEN_BY_THE_HAZARD_CHECK_ONLY)
def test_no_schedule_shows_a_missing_fence(plain: CpuBackend, entry: str) -> None:
    program = load(plain, "synchronisation_bugs.cu", entry)
    for schedule in SCHEDULES:
        take(plain, schedule)
        answer, expected = run_sum(plain, program, 1000)
        assert answer == expected


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ("no_fence", r"no __threadfence\(\) after it and before an atomic operation"),
        ("block_fence", r"no __threadfence\(\) after it and before an atomic operation"),
        ("fence_after_arrival", "no acquire by the reader"),
    ],
)
def test_the_missing_half_of_a_hand_over_is_named(
    checked: CpuBackend, entry: str, missing: str
) -> None:
    program = load(checked, "synchronisation_bugs.cu", entry)
    with pytest.raises(KernelFault, match=rf"after write by thread 0 of block \d at .*, {missing}"):
        run_sum(checked, program, 1000)


def test_a_fault_outside_of_kernels_is_reported_with_its_address(cache: Path) -> None:
    script = f"""
import ctypes
from pathlib import Path
from cudareduce.backends.selection import BackendSpec, open_backend
with open_backend(BackendSpec("cpu", cache=Path({str(cache)!r})), catch_faults=True):
    ctypes.memmove(5, b"", 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGSEGV
    assert re.fullmatch(
        r".*libc.*\+0x[0-9a-f]+: invalid access at 0x5, in no kernel\n", done.stderr
    )


def test_a_fault_is_one_line_however_much_was_found(checked: CpuBackend) -> None:
    program = load(checked, "synchronisation_bugs.cu", "barrier_in_branch")
    take(checked, "warp:2")
    with pytest.raises(KernelFault) as caught:
        run_sum(checked, program, 1000)
    name, _, findings = str(caught.value).partition(": ")
    assert name == "barrier_in_branch"
    assert len(findings.split("; ")) > 1
    assert "\n" not in findings


def test_the_ways_to_run_the_same_again(plain: CpuBackend, checked: CpuBackend) -> None:
    ways = [f"schedule {name}" for name in ("ascending", "random:1", "warp:1")]
    for repeats in (2, 10):
        assert list(plain.schedules(repeats, quick=False)) == ways
        assert list(plain.schedules(repeats, quick=True)) == ways[:1]
        assert list(checked.schedules(repeats, quick=False)) == ways[:2]


def test_a_way_is_in_force_until_the_next_is_taken(plain: CpuBackend) -> None:
    program = load(plain, "synchronisation_bugs.cu", "one_syncwarp_in_tail")
    alone = []
    for schedule in cpu.SCHEDULES:
        take(plain, schedule)
        alone.append(run_sum(plain, program, 5003))
    assert len(set(alone)) > 1  # so the answer tells under which schedule it was made
    assert [run_sum(plain, program, 5003) for _ in plain.schedules(2, quick=False)] == alone


def test_the_same_seed_gives_the_same_schedule(plain: CpuBackend) -> None:
    """Unless the timer preempts a block, which on a busy machine may happen in some of the runs."""
    program = load(plain, "synchronisation_bugs.cu", "one_syncwarp_in_tail")
    results = set()
    for seed in range(3, 9):
        take(plain, f"random:{seed}")
        runs = Counter(run_sum(plain, program, 300) for _ in range(5))
        [(result, count)] = runs.most_common(1)
        assert count >= 3
        results.add(result)
    assert len(results) > 1


def run_fault(
    backend: CpuBackend, entry: str, block: int = 32, n: int = 8, extra: Sequence[int] = ()
) -> np.ndarray:
    """Run a kernel of faults.cu on `n` ones; returns its output."""
    given, out = backend.upload(np.ones(n, np.float32)), backend.allocate(4 * n)
    take(backend, "ascending")
    flags = [backend.upload(np.zeros(1, np.uint32)) for _ in extra]
    program = load(backend, "faults.cu", entry)
    backend.launcher(program, 1, block, [given, out, n, *flags])()
    return backend.download(out, "float32", n)


@pytest.mark.parametrize("hazards", [False, True], ids=["plain", "hazards"])
def test_an_access_past_the_end_is_named_and_ends_the_process(cache: Path, hazards: bool) -> None:
    script = f"""
import numpy as np
from pathlib import Path
from cudareduce.backends.protocol import Source
from cudareduce.backends.emulator.cpu import CpuBackend
path = Path({str(KERNELS / "faults.cu")!r})
backend = CpuBackend(cache=Path({str(cache)!r}), hazards={hazards})
backend.catch_faults()
text = '#line 1 "faults.cu"\\n' + path.read_text()
[program] = backend.build([Source(text, "read_past_end", path)])
given, out = backend.upload(np.ones(1000, np.float32)), backend.allocate(4000)
backend.launcher(program, 4, 256, [given, out, 1000])()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 139
    [place] = lines_marked("faults.cu", "fault")
    assert re.fullmatch(
        rf"{place}: read_past_end: invalid access at 0x[0-9a-f]+, "
        r"0 bytes past the end of argument 0 \(4000 bytes\); "
        r"block \(3, 0, 0\), thread \(232, 0, 0\)\n",
        resolve_locations(done.stderr),
    )


@pytest.mark.parametrize(("nbytes", "misalign"), [(4000, 0), (4001, 0), (4000, 4), (4, 3), (0, 0)])
def test_a_buffer_ends_at_a_guard_page_and_has_the_requested_alignment(
    plain: CpuBackend, nbytes: int, misalign: int
) -> None:
    buffer = plain.upload(np.zeros(nbytes, np.uint8), misalign)
    assert buffer.address % 16 == misalign
    assert -(buffer.address + nbytes) % 4096 < 16


def test_a_write_past_the_end_of_a_buffer_is_found_in_the_poisoned_margin(
    plain: CpuBackend,
) -> None:
    with pytest.raises(KernelFault, match=r"wrote past the end of argument 1 \(36 bytes\)"):
        run_fault(plain, "write_past_end", n=9)


def test_a_deadlock_is_reported_with_the_waiting_threads(any_backend: CpuBackend) -> None:
    with pytest.raises(KernelFault) as caught:
        run_fault(any_backend, "deadlock", block=64)
    [shuffle] = lines_marked("faults.cu", "lanes 0 to 15")
    [barrier] = lines_marked("faults.cu", "the others")
    assert str(caught.value) == (
        "deadlock: deadlock in block 0: "
        f"threads 0 to 15 wait at __shfl_down_sync with mask 0xffffffff, {shuffle}; "
        f"threads 16 to 63 wait at __syncthreads, {barrier}"
    )
    # The stuck threads are gone: the next launch is as good as the first.
    answer, expected = run_sum(any_backend, load(any_backend, "right.cu", "tree"), 1000)
    assert answer == expected


def test_threads_that_meet_at_different_barriers_are_reported(plain: CpuBackend) -> None:
    [place] = lines_marked("faults.cu", "second")
    with pytest.raises(
        KernelFault, match=f"{place}: barrier divergence: threads of one block wait at different"
    ):
        run_fault(plain, "different_barriers", block=64)


def test_a_lane_outside_its_own_mask_is_reported(plain: CpuBackend) -> None:
    [place] = lines_marked("faults.cu", "mask")
    with pytest.raises(KernelFault, match=rf"{place}: lane \d+ is not in its own mask"):
        run_fault(plain, "not_in_own_mask")


def test_the_value_of_an_absent_lane_is_poison(plain: CpuBackend) -> None:
    assert np.isnan(run_fault(plain, "absent_lane")[0])


def test_an_index_outside_a_shared_array_is_reported(any_backend: CpuBackend) -> None:
    [place] = lines_marked("faults.cu", "overflow")
    with pytest.raises(KernelFault, match=f"{place}: index 32 is outside the array"):
        run_fault(any_backend, "shared_overflow", n=32)


def test_a_write_past_the_end_of_shared_memory_is_reported(any_backend: CpuBackend) -> None:
    text = """
__device__ __attribute__((noinline)) void put(int *cells, int at) { cells[at] = at; }
extern "C" __global__ void mine(int *out)
{
    __shared__ int shared[31];
    put(shared, threadIdx.x);
    __syncthreads();
    out[threadIdx.x] = shared[threadIdx.x % 31];
}"""
    [program] = any_backend.build([Source(text, "mine", Path("mine.cu"))])
    assert not isinstance(program, BuildError | None)
    out = any_backend.allocate(4 * 32)
    any_backend.launcher(program, 1, 31, [out])()
    with pytest.raises(KernelFault, match="mine: it wrote past the end of its shared memory"):
        any_backend.launcher(program, 1, 32, [out])()


def test_a_misaligned_vector_load_is_reported(checked: CpuBackend) -> None:
    [place] = lines_marked("faults.cu", "misaligned")
    with pytest.raises(KernelFault, match=f"{place}: misaligned access"):
        run_fault(checked, "misaligned")


def test_a_spinning_thread_lets_the_others_run(plain: CpuBackend) -> None:
    assert run_fault(plain, "spin", block=64, extra=[0])[0] == 1.0


def test_a_launch_that_no_gpu_takes_is_refused(plain: CpuBackend) -> None:
    with pytest.raises(KernelFault, match="at most 1024 threads"):
        run_fault(plain, "absent_lane", block=1025)
    with pytest.raises(KernelFault, match="takes 3 arguments, not 1"):
        plain.launcher(load(plain, "faults.cu", "absent_lane"), 1, 32, [1])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("in[0] = undeclared;", r"mine\.cu:2:\d+: error: .*undeclared"),
        (
            'asm volatile("bar.sync 0;");',
            r"mine\.cu:2: cannot be decided here: inline PTX runs on a GPU only",
        ),
        ("atomicAdd((long long *)in, 1ll);", r"mine\.cu:2:\d+: error: invalid conversion"),
    ],
)
def test_a_compile_error_shows_the_kernels_own_line(
    plain: CpuBackend, body: str, message: str
) -> None:
    text = f'#line 1 "mine.cu"\nextern "C" __global__ void mine(float *in) {{\n{body}\n}}\n'
    [error] = plain.build([Source(text, "mine", Path("mine.cu"))])
    assert isinstance(error, BuildError)
    assert re.search(message, str(error))
    assert len(str(error).splitlines()) <= 10


def test_results_come_in_the_order_of_the_sources(plain: CpuBackend) -> None:
    calls: list[None] = []
    broken = Source("nonsense", "broken", Path("broken.cu"))
    sources = [source("right.cu", "tree"), broken, source("right.cu", "shuffle")]
    first, error, second = plain.build(sources, lambda: calls.append(None))
    assert isinstance(error, BuildError)
    assert first is not None and not isinstance(first, BuildError)
    assert second is not None and not isinstance(second, BuildError)
    assert [first.entry, second.entry, len(calls)] == ["tree", "shuffle", 3]


def test_without_a_compiler_the_message_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentProblem, match=r"g\+\+ was not found: install it"):
        CpuBackend(cache=tmp_path)


def run_function(plain: CpuBackend, entry: str, dtype: str, count: int, block: int) -> np.ndarray:
    out = plain.allocate(count * np.dtype(dtype).itemsize)
    take(plain, "random:1")
    plain.launcher(load(plain, "functions.cu", entry), 1, block, [out])()
    return plain.download(out, dtype, count)


def test_constants_are_set_by_name(plain: CpuBackend) -> None:
    program = load(plain, "functions.cu", "constants")
    program.set_constant("COUNT", 2**40 + 5)
    out = plain.allocate(8 * 32)
    plain.launcher(program, 1, 32, [out])()
    assert (plain.download(out, "uint64", 32) == 2**40 + 5).all()
    with pytest.raises(KernelFault, match="no __constant__ named OTHER"):
        program.set_constant("OTHER", 1)
    with pytest.raises(KernelFault, match="SMALL of constants has 4 bytes"):
        program.set_constant("SMALL", 1)


def test_a_struct_of_16_bytes_can_be_shuffled(plain: CpuBackend) -> None:
    pairs = run_function(plain, "shuffle_struct", "f8,i8", 64, 64)
    lane = np.arange(64)
    from_lane = np.where(lane % 32 == 31, lane, lane + 1)
    assert (pairs["f0"] == 0.5 * from_lane).all()
    assert (pairs["f1"] == 100 - from_lane).all()


def test_shuffles_and_votes_of_a_warp(plain: CpuBackend) -> None:
    rows = run_function(plain, "shuffles", "int32", 8 * 64, 64).reshape(64, 8)
    t = np.arange(64)
    base, lane = t // 32 * 32, t % 32
    every_third = sum(1 << k for k in range(0, 32, 3))
    expected = [
        base + 3,
        t // 8 * 8 + 3,
        np.where(lane < 5, t, t - 5),
        np.where(t % 16 + 3 > 15, t, t + 3),
        base + (lane ^ 9),
        np.full(64, every_third),
        np.where(t < 32, 1, 2),
        # Beyond the end of a group of 16 a lane keeps its own; the upper group reads the lower.
        np.where(lane < 16, t, t - 16),
    ]
    np.testing.assert_array_equal(rows.astype(np.uint32), np.stack(expected, 1).astype(np.uint32))


def test_reductions_of_a_warp(plain: CpuBackend) -> None:
    rows = run_function(plain, "warp_reductions", "int32", 8 * 64, 64).reshape(2, 32, 8)
    for warp in range(2):
        t = np.arange(32, dtype=np.int32) + 32 * warp
        value = np.where(t % 2 == 1, -t, 3 * t)
        unsigned = value.astype(np.uint32)
        expected = [
            *(value.sum(), value.min(), value.max()),
            *(unsigned.min().view(np.int32), unsigned.max().view(np.int32)),
            *(np.bitwise_and.reduce(value), np.bitwise_or.reduce(value)),
            np.bitwise_xor.reduce(value),
        ]
        assert (rows[warp] == expected).all()


def test_a_barrier_counts_the_votes_of_a_block(plain: CpuBackend) -> None:
    rows = run_function(plain, "votes", "int32", 3 * 64, 64).reshape(64, 3)
    assert (rows == [1, 0, 13]).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_atomic_functions_lose_no_update(plain: CpuBackend, schedule: str) -> None:
    initial = {
        "int32": [0, 0, 1000, -1000, -1, 0, 0, 0],
        "uint32": [0, 0, 0, 0, 0],
        "uint64": [0, 2**63, 2**63],
        "float32": [0],
        "float64": [0],
    }
    buffers = [plain.upload(np.array(values, dtype)) for dtype, values in initial.items()]
    take(plain, schedule)
    plain.launcher(load(plain, "functions.cu", "atomics"), 4, 250, buffers)()
    ints, unsigneds, longs, floats, doubles = (
        plain.download(buffer, dtype, len(values)).tolist()
        for buffer, (dtype, values) in zip(buffers, initial.items(), strict=True)
    )
    count, total = 1000, sum(range(1000))
    assert ints == [total, -total, 500 - 999, 999 - 500, -2, 2**31 - 1, 0, 77]
    # 1000 steps of a counter of period 10; of one of period 7, downwards from 0.
    assert unsigneds == [0, -1000 % 7, 2**31 + 999, 1, 1]
    assert longs == [count << 40, (1 << 40) - 999, 2**64 - 5]
    assert floats == [500.0]
    assert doubles == [250.0]


def test_bit_and_byte_functions(plain: CpuBackend) -> None:
    expected = [
        *(8, 9, 31, 64, 5, 0x3F800000, 3, 8),
        100 + 1 * 4 + -1 * 5 + 2 * 6 + 3 * 7,
        100 + 1 * 4 + 255 * 5 + 2 * 6 + 3 * 7,
        *(0x00FF0280, 0x01017F03, 0x00010203, 0x01FF7F80),
        0x07050200,
        -4 + 2 + 6,
    ]
    assert run_function(plain, "bits", "int32", 16, 1).tolist() == expected


def convert(plain: CpuBackend, entry: str, values: np.ndarray, result: str) -> np.ndarray:
    given, out = plain.upload(values), plain.allocate(len(values) * np.dtype(result).itemsize)
    program = load(plain, "functions.cu", entry)
    plain.launcher(program, -(-len(values) // BLOCK), BLOCK, [given, out, len(values)])()
    return plain.download(out, result, len(values))


def hard_to_round() -> np.ndarray:
    """Floats of every exponent with fractions at, just below and just above every kind of tie."""
    high = np.arange(0, 2**16, 5, dtype=np.uint32)[:, None] << 16
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x2000, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    return (high | low.astype(np.uint32)).ravel().view(np.float32)


ALL_PATTERNS = np.arange(2**16, dtype=np.uint16)


def test_half_to_float_is_exact(plain: CpuBackend) -> None:
    halves = ALL_PATTERNS.view(np.float16)
    floats = convert(plain, "halves_to_floats", halves, "float32")
    np.testing.assert_array_equal(floats, halves.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(floats), np.signbit(halves))


def test_float_to_half_rounds_to_nearest_even(plain: CpuBackend) -> None:
    every_half = ALL_PATTERNS.view(np.float16).astype(np.float32)
    floats = np.concatenate([hard_to_round(), every_half])
    with np.errstate(over="ignore"):
        expected = floats.astype(np.float16)
    halves = convert(plain, "floats_to_halves", floats, "float16")
    number = ~np.isnan(floats)
    np.testing.assert_array_equal(halves.view("u2")[number], expected.view("u2")[number])
    assert (halves.view("u2")[~number] == 0x7FFF).all()


def test_bfloat16_to_float_is_exact(plain: CpuBackend) -> None:
    floats = convert(plain, "bfloats_to_floats", ALL_PATTERNS, "uint32")
    np.testing.assert_array_equal(floats, ALL_PATTERNS.astype(np.uint32) << 16)


def test_float_to_bfloat16_rounds_to_nearest_even(plain: CpuBackend) -> None:
    floats = np.concatenate([hard_to_round(), (ALL_PATTERNS.astype("u4") << 16).view("f4")])
    number = ~np.isnan(floats)
    # Independently of bit tricks: the nearer of the two neighbours, the even one of two equally
    # near. Above the largest finite bfloat16 the upper neighbour stands for 2^128.
    exact = floats[number].astype(np.float64)
    lower = floats[number].view("u4") >> 16
    ends = [bits.astype("u4") << 16 for bits in (lower, lower + 1)]
    with np.errstate(invalid="ignore"):
        below, above = (bits.view("f4").astype(np.float64) for bits in ends)
        above = np.where(np.isinf(above), np.copysign(2.0**128, above), above)
        to_below, to_above = abs(exact - below), abs(above - exact)
    up = (to_above < to_below) | ((to_above == to_below) & (lower % 2 == 1))
    expected = np.where(np.isinf(exact), lower, lower + up)
    bfloats = convert(plain, "floats_to_bfloats", floats, "uint16")
    np.testing.assert_array_equal(bfloats[number], expected)
    assert (bfloats[~number] == 0x7FFF).all()


@pytest.mark.long
def test_where_there_is_no_fast_switch_ucontext_does_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (*toolchain._RUNTIME_FLAGS, "-DCUDAEMU_UCONTEXT")
    monkeypatch.setattr(toolchain, "_RUNTIME_FLAGS", flags)
    with CpuBackend(cache=cache) as backend:
        for entry in ("warp_tail", "last_block"):
            answer, expected = run_sum(backend, load(backend, "right.cu", entry), 1000)
            assert answer == expected


VOLATILE_TAIL = """
__global__ void tail(const float *in, float *out, size_t n) {
    __shared__ volatile float s[64];
    s[threadIdx.x] = threadIdx.x < n ? in[threadIdx.x] : 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        s[threadIdx.x] += s[threadIdx.x + 32];
        s[threadIdx.x] += s[threadIdx.x + 16];
        s[threadIdx.x] += s[threadIdx.x + 8];
    }
    if (threadIdx.x == 0) *out = s[0];
}
"""


def test_warp_code_without_any_syncwarp_is_reported_in_one_sentence(watched: CpuBackend) -> None:
    source = Source(VOLATILE_TAIL, "tail", Path("tail.cu"))
    [program] = watched.build([source])
    assert not isinstance(program, BuildError | None)
    given, out = watched.upload(np.ones(64, np.float32)), watched.allocate(4)
    take(watched, "ascending")
    with pytest.raises(KernelFault, match="since Volta") as fault:
        watched.launcher(program, 1, 64, [given, out, 64])()
    assert str(fault.value).count("data race") == 1
