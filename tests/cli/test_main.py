"""The command line: what it prints, what it writes, and what every bad input gets."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce import __version__
from cudareduce.backends.cuda.driver import has_driver
from cudareduce.backends.selection import BackendSpec, choose_backend
from cudareduce.errors import EnvironmentProblem
from cudareduce.results.record import COLUMNS
from tests.conftest import read_result

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
ON_CPU = ("--backend", "cpu", "--quiet")

MINE = """/*+++
title = "Mine"
change = "everything"
scope = "grid"
grid = "cover"
walk = "tile"
finish = "relaunch"
block = 256
blocks = [256]
+++*/
extern "C" __global__ void mine(const In *in, Out *out, size_t n)
{
    __shared__ Acc shared[BLOCK];
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    shared[threadIdx.x] = i < n ? Op::lift(in[i], i) : Op::identity();
    __syncthreads();
    if (threadIdx.x == 0) {
        Acc value = Op::identity();
        for (unsigned k = 0; k < BLOCK; k++)
            value = Op::combine(value, shared[k]);
        out[blockIdx.x] = Op::finish(value);
    }
}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.cu"
    path.write_text(MINE)
    return path


def test_bench_on_the_cpu_verifies_and_times_nothing(cudareduce: Call) -> None:
    code, out, err = cudareduce("bench", "reduce_v7_shuffle", "--n", 1000, *ON_CPU)
    assert (code, err) == (0, "")
    title, head, rule, row = [line.strip() for line in out.splitlines() if line.strip()]
    assert title == "sum of 1 000 float32, CPU emulator: results only, nothing is timed"
    assert head == "kernel             blocks  passes  result  error  %bound  ulp  distinct"
    assert set(rule) == {"─"}
    assert row == "reduce_v7_shuffle       1       1   right  6e-06     1.3  0.2       1/3"
    _, out, _ = cudareduce("bench", "reduce_v7_shuffle", "--n", "3000000", *ON_CPU)
    assert out.rstrip().endswith("no %bound: with these inputs no partial result is rounded")


#: The program where PyCUDA cannot be imported.
NO_PYCUDA = (
    "import sys; sys.modules['pycuda'] = None; from cudareduce.cli.main import main; "
    "sys.exit(main())"
)


def test_a_fallback_to_the_cpu_is_explained(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "cudareduce").symlink_to(cache)  # what others have compiled
    done = subprocess.run(
        [sys.executable, "-c", NO_PYCUDA, "bench", "reduce_v7_shuffle", "--n", "1"],
        capture_output=True, text=True, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("No usable GPU: PyCUDA" if has_driver() else "No NVIDIA driver")
    assert done.stderr.count("running on the CPU emulator, results are checked, not timed.") == 1
    assert "CPU emulator" in done.stdout


@pytest.mark.parametrize(
    ("driver", "cause"),
    [(False, "No NVIDIA driver found"), (True, "No usable GPU: PyCUDA is not installed")],
)
def test_pycuda_is_missed_only_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch, driver: bool, cause: str
) -> None:
    def refuse(spec: BackendSpec) -> None:
        raise EnvironmentProblem("PyCUDA is not installed")

    monkeypatch.setattr("cudareduce.backends.selection.open_cuda", refuse)
    monkeypatch.setattr("cudareduce.backends.selection.has_driver", lambda: driver)
    _, remarks = choose_backend("auto", 3, use_cache=False)
    assert remarks == (
        f"{cause}: running on the CPU emulator, results are checked, not timed.",
        "--device 3 has no effect: the CPU emulator uses no GPU.",
    )


@pytest.mark.long
def test_files_hold_what_was_printed(cudareduce: Call, tmp_path: Path) -> None:
    files = {kind: tmp_path / f"run.{kind}" for kind in ("csv", "json", "markdown")}
    options = [word for kind, path in files.items() for word in (f"--{kind}", path)]
    code, out, _ = cudareduce(
        "bench", "fastcuda", "--n", "33", *ON_CPU, *options, "--format", "csv"
    )
    assert code == 0
    assert files["csv"].read_text() == out
    rows = list(csv.DictReader(out.splitlines()))
    assert tuple(rows[0]) == COLUMNS
    run = read_result(files["json"].read_text())
    assert run["device"]["name"] == "CPU emulator"
    assert run["tool"]["argv"]
    assert len(run["records"]) == len(rows) == 8
    assert all(record["time_us"] is None for record in run["records"])
    assert {r["verdict"] for r in run["records"]} == {"pass"}
    assert "| V0 baseline" in files["markdown"].read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "run.csv",
        "run.json",
        "run.markdown",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "ops"),
    [
        pytest.param("reduce_atomic", "max,mean", marks=pytest.mark.slow),
        ("reduce_v0_baseline", "argmin,prod"),
    ],
)
def test_no_elements_give_the_identity(cudareduce: Call, name: str, ops: str) -> None:
    code, out, _ = cudareduce("bench", name, "--n", 0, "--op", ops, "--format", "json", *ON_CPU)
    records = read_result(out)["records"]
    assert code == 0
    assert {r["passes"] for r in records if r["verdict"] == "pass"} == {0}


def test_a_size_without_launches_is_reported(cudareduce: Call) -> None:
    code, out, _ = cudareduce("verify", "reduce_rows_tree", "--n", 0, "--rows", 5, *ON_CPU)
    assert code == 0
    assert "nothing is launched at n = 0 x 5 rows" in out


@pytest.mark.long
def test_a_users_kernel_is_a_single_file(cudareduce: Call, mine: Path) -> None:
    code, out, _ = cudareduce("bench", mine, "--n", 5000, *ON_CPU)
    assert code == 0
    assert "mine" in out
    assert cudareduce("verify", mine, "--n", "1,1000", *ON_CPU)[0] == 0
    code, out, _ = cudareduce("list", "--format", "json", "--kernels", mine.parent)
    listed = {kernel["id"]: kernel for kernel in read_result(out)}
    assert listed["mine"]["title"] == "Mine"
    code, out, _ = cudareduce("bench", "mine", "--kernels", mine.parent, "--n", 5, *ON_CPU)
    assert code == 0


def test_list_shows_a_suite_under_its_authors_names(cudareduce: Call) -> None:
    code, out, _ = cudareduce("list", "fastcuda")
    assert code == 0
    names = ["V0 baseline", "V1 no divergence", "V2 no bank conflict", "V3 add during load",
             "V4 unroll last warp", "V5 completely unroll", "V6 multi add",
             "V7 shuffle"]  # fmt: skip
    places = [out.index(f" {name} ") for name in names]
    assert places == sorted(places)
    assert "V4 unroll last warp: As printed, the last warp has no __syncwarp()" in out


def test_list_as_json_has_the_promised_fields(cudareduce: Call) -> None:
    listed = read_result(cudareduce("list", "--format", "json")[1])
    wanted = {"id", "family", "title", "scope", "order", "finish", "dtypes", "ops", "after",
              "techniques", "published", "requires"}  # fmt: skip
    assert all(wanted <= set(kernel) for kernel in listed)
    v0 = next(kernel for kernel in listed if kernel["id"] == "reduce_v0_baseline")
    assert "V0 baseline" in v0["published"]["fastcuda"]


def test_show_prints_the_lesson_and_its_diff(cudareduce: Call) -> None:
    code, out, _ = cudareduce("show", "reduce_v2_no_bank_conflict")
    assert code == 0
    assert "previous    reduce_v1_no_divergence: Interleaved addressing, strided index" in out
    assert "next        reduce_v3_add_during_load: First add during load" in out
    assert 'extern "C" __global__ void reduce_v2_no_bank_conflict' in out
    code, out, _ = cudareduce("show", "reduce_v2_no_bank_conflict", "--diff")
    assert code == 0
    assert out.startswith("--- reduce_v1_no_divergence.cu\n+++ reduce_v2_no_bank_conflict.cu\n")
    assert "+        if (tid < stride)\n" in out
    assert out.index("+        if (tid < stride)\n") < out.index('+title      = "Sequential')


def test_info_names_what_is_missing(cudareduce: Call) -> None:
    code, out, _ = cudareduce("info")
    assert code == 0
    assert "cudareduce" in out
    assert "g++" in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bench", "--n", "-1"], 2, "'-1' is not a size"),
        (["bench", "--n", "many"], 2, "'many' is not a size"),
        (["bench", "--n", "2^60"], 2, "'2^60' is out of range"),
        (["bench", "reduce_v7_shufle"], 2, "did you mean reduce_v7_shuffle"),
        (["bench", "ring"], 2, "ambiguous: name one of reduce_tiles_ring, reduce_ring_tickets"),
        (["bench", "atomic"], 2, "name some of reduce_atomic, reduce_block_atomic"),
        (["bench", "zzz"], 2, "`cudareduce list` shows them"),
        (["bench", "nobody.cu"], 2, "No such file or directory; check the name"),
        (["bench", "--op", "xor"], 2, "'xor' is not one of: sum, prod, min"),
        (["bench", "--dtype", "float8"], 2, "'float8' is not one of: float32"),
        (["bench", "--acc", "int32"], 2, "--acc int32 cannot hold a sum of float32"),
        (["bench", "--rounds", "0"], 2, "Invalid value for '--rounds'"),
        (["bench", "--timing", "hot"], 2, "'hot' is not one of: cold, warm"),
        (["bench", "--max-time", "0"], 2, "Invalid value for '--max-time'"),
        (["bench", "--peak-gb-s", "0"], 2, "Invalid value for '--peak-gb-s'"),
        (["bench", "--pattern", "cancel", "--op", "max", *ON_CPU], 2, "for sum and mean of floats"),
        (["bench", "--block", "x"], 2, "Invalid value for '--block'"),
        (["bench", "--json", "/nowhere/x.json"], 2, "the folder /nowhere does not exist"),
        (["bench", "--csv", "/"], 2, "it is a folder"),
        (["bench", "--frobnicate"], 2, "No such option"),
        (["bench", "--backend", "cuda", "--device", "99"], 6, ""),
        (["list", "slowcuda"], 2, "did you mean fastcuda?"),
        (["show", "reduce_v?_*"], 2, "names 8 kernels; show one of"),
        (["show", "reduce_v0_baseline", "--diff"], 2, "begins a lineage"),
        (["report", "nobody.md"], 2, "cannot read nobody.md"),
        (["compare", "-", "nobody.json"], 2, "standard input is not supported: name a file"),
        (["frobnicate"], 2, "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_command_line_is_one_line_of_error(
    cudareduce: Call, arguments: list[str], code: int, message: str
) -> None:
    got, out, err = cudareduce(*arguments)
    assert (got, out) == (code, "")
    assert message in err
    assert err.startswith("cudareduce: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_beyond_memory_is_a_skip_row(cudareduce: Call) -> None:
    code, out, _ = cudareduce("bench", "reduce_v7_shuffle", "--n", "2^40", *ON_CPU)
    assert code == 6
    assert "reduce_v7_shuffle: skipped, needs 8192.0 GiB of host memory" in out


@pytest.mark.long
def test_rows_are_verified_for_any_number_and_length(cudareduce: Call) -> None:
    rows = ("bench", "reduce_rows_tree", "reduce_warp_registers", "--format", "json", *ON_CPU)
    for n, count in ((0, 3), (31, 5), (32, 0)):
        code, out, _ = cudareduce(*rows, "--n", n, "--rows", count)
        assert code == 0, out
        assert {(r["n"], r["rows"]) for r in read_result(out)["records"]} == {(n, count)}
    code, out, _ = cudareduce(*rows, "--n", 100, "--rows", 3)
    assert code == 0
    tree, warp = read_result(out)["records"]
    assert tree["verdict"] == "pass"
    assert warp["reason"] == "has one lane per element of a row: rows of at most 32, not 100"
    code, out, _ = cudareduce(*rows, "--n", 4096)
    assert [(r["n"], r["rows"]) for r in read_result(out)["records"]] == [(4096, 1), (32, 128)]
    warp = read_result(cudareduce(*rows, "--n", 4097)[1])["records"][1]
    assert "(or one array of a multiple of 32), not 4097" in warp["reason"]
    code, out, _ = cudareduce("bench", "reduce_v7_shuffle", "--rows", 2, "--n", 9, *ON_CPU)
    assert code == 2
    assert "skipped, reduces one array, not 2 rows" in out


@pytest.mark.long
def test_a_mean_of_integers_is_a_float64(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "bench", "reduce_v7_shuffle", "--op", "mean", "--dtype", "int32,int64", "--n", 1000,
        "--format", "json", *ON_CPU,
    )  # fmt: skip
    assert code == 0
    assert {r["acc"] for r in read_result(out)["records"]} == {"float64"}
    code, _, err = cudareduce("bench", "--op", "mean", "--dtype", "int32", "--acc", "float32")
    assert code == 2
    assert "--acc float32 cannot hold a mean of int32: it must be float64" in err


def test_a_combination_that_a_kernel_does_not_take_is_a_skip_row(cudareduce: Call) -> None:
    code, out, _ = cudareduce(
        "bench", "reduce_v4_unroll_last_warp", "reduce_v7_shuffle", "--block", 32, "--n", 9, *ON_CPU
    )
    assert code == 0
    assert "reduce_v4_unroll_last_warp: skipped, takes blocks of 64, 128, 256, 512, 1024" in out
    code, out, _ = cudareduce("bench", "reduce_v3_add_during_load", "--items", 4, "--n", 9, *ON_CPU)
    assert code == 2
    assert "has 2 items per thread, not 4" in out
    code, out, _ = cudareduce("bench", "reduce_v7_shuffle", "--op", "matmul", "--dtype", "int32",
                              "--n", 9, *ON_CPU)  # fmt: skip
    assert code == 2
    assert "matmul does not commute, and this kernel changes the order" in out


def test_a_kernel_that_does_not_compile(cudareduce: Call, mine: Path) -> None:
    mine.write_text(MINE.replace("Acc value = Op::identity();", "Acc value = nonsense;"))
    code, out, err = cudareduce("bench", mine, "reduce_v7_shuffle", "--n", 9, *ON_CPU)
    assert code == 2
    line = MINE.splitlines().index("        Acc value = Op::identity();") + 1
    assert f"{mine}:{line}:" in out
    assert "nonsense" in out
    assert "reduce_v7_shuffle" in out
    assert "Traceback" not in err


def test_a_wrong_result_ends_with_3(cudareduce: Call, mine: Path) -> None:
    mine.write_text(MINE.replace("k < BLOCK", "k < BLOCK - 1"))
    code, out, _ = cudareduce("bench", mine, "--n", 1000, *ON_CPU)
    assert code == 3
    assert "WRONG" in out
    assert "expected" in out


@pytest.mark.long
def test_a_kernel_that_hangs_is_ended_and_the_rest_goes_on(cudareduce: Call, mine: Path) -> None:
    spin = "for (volatile unsigned k = 0; n > 2; k = 0) {}"
    mine.write_text(MINE.replace("__syncthreads();", f"{spin} __syncthreads();"))
    code, out, _ = cudareduce(
        "bench", mine, "reduce_v7_shuffle", "--n", 9, "--time-limit", 3, "--strict", *ON_CPU
    )
    assert code == 4
    assert "cannot be decided here: no result after 3 s" in out
    assert "reduce_v7_shuffle       1       1   right" in out


def test_a_kernel_that_faults_does_not_end_the_run(cudareduce: Call, mine: Path) -> None:
    mine.write_text(MINE.replace("i < n ? Op::lift(in[i], i)", "true ? Op::lift(in[i + 4096], i)"))
    code, out, _ = cudareduce("bench", mine, "reduce_v7_shuffle", "--n", 9, *ON_CPU)
    assert code == 3
    assert "past the end of argument 0" in out
    assert "reduce_v7_shuffle       1       1   right" in out


@pytest.mark.slow
def test_ctrl_c_keeps_the_sizes_that_are_done(tmp_path: Path) -> None:
    target = tmp_path / "run.json"
    command = [sys.executable, "-m", "cudareduce", "bench", "fastcuda", "--n", "1000,2^27",
               "--json", str(target), "--backend", "cpu"]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        # else it would ignore what this process was started to ignore
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            verifying = 0
            for line in process.stderr:
                verifying += line.startswith("verifying")
                if verifying == 3:  # at the edges, at 1000, and now at 2^27
                    break
            time.sleep(1)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            if process.poll() is None:  # else a test that fails would wait for all of 2^27
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "sum of 1 000 float32" in out
    assert {r["n"] for r in read_result(target.read_text())["records"]} >= {1000}


def _fake_pycuda(folder: Path, driver: str) -> None:
    package = folder / "pycuda"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "driver.py").write_text(driver)


@pytest.mark.parametrize(
    ("driver", "message"),
    [
        ("raise ImportError('libcuda.so.1: cannot open shared object file')",
         "libcuda.so.1 was not found: install the NVIDIA driver"),
        ("raise ImportError('undefined symbol: cuCtxCreate_v4')",
         "PyCUDA cannot be loaded (undefined symbol: cuCtxCreate_v4): the NVIDIA driver is older"),
        ("import pytools_of_nobody",
         "PyCUDA cannot be loaded (No module named 'pytools_of_nobody'): build it again"),
        ("class Error(Exception): pass\ndef init(): raise Error('cuInit failed: no device')",
         "the CUDA driver does not start (cuInit failed: no device): check nvidia-smi"),
        (None, "PyCUDA is not installed: `cudareduce info` has the command"),
    ],
)  # fmt: skip
def test_each_way_to_have_no_gpu_has_its_message(
    tmp_path: Path, driver: str | None, message: str
) -> None:
    if driver is None:
        command = [sys.executable, "-c", NO_PYCUDA]
    else:
        _fake_pycuda(tmp_path, driver)
        command = [sys.executable, "-m", "cudareduce"]
    done = subprocess.run(
        [*command, "bench", "--backend", "cuda"], capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_compiler_for_the_cpu(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, err = cudareduce("bench", "--n", 1, *ON_CPU)
    assert (code, out) == (6, "")
    assert "g++ was not found" in err
    assert "apt-get install g++" in err


def test_no_memory_is_not_an_internal_error(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 8.00 TiB")

    monkeypatch.setattr("cudareduce.bench.request.choose_backend", full)
    code, out, err = cudareduce("bench", "--n", 1, *ON_CPU)
    assert (code, out) == (6, "")
    assert "the host does not have enough memory" in err


def test_an_unwritable_place_is_found_before_the_run(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def none(wanted: str, *more: object) -> None:
        asked.append(wanted)
        raise EnvironmentProblem("no backend here")

    monkeypatch.setattr("cudareduce.bench.request.choose_backend", none)
    code, _, err = cudareduce("bench", "--n", "2^25", "--json", tmp_path / "no" / "x.json")
    assert code == 2
    assert "does not exist; create it" in err
    assert asked == []
    assert cudareduce("bench", "--n", "2^25", "--json", tmp_path / "x.json")[0] == 6
    assert asked == ["auto"]


def test_debug_shows_the_traceback(cudareduce: Call) -> None:
    code, _, err = cudareduce("show", "nobody", "--debug")
    assert code == 2
    assert "Traceback" in err


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_python_m_is_the_same_program(option: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cudareduce", option], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"cudareduce, version {__version__}\n")


def test_a_size_that_a_kernel_cannot_take_is_a_remark_on_its_own_row(cudareduce: Call) -> None:
    names = ("reduce_warp_registers", "reduce_v7_shuffle")
    code, out, _ = cudareduce("verify", *names, "--n", "32,100", *ON_CPU)
    assert code == 0
    assert out.count(" right ") == 2
    assert "reduce_warp_registers sum float32: left out: has one lane per element of a row" in out
    assert "reduce_v7_shuffle sum float32: " not in out
    code, out, _ = cudareduce("verify", "reduce_warp_registers", "--n", "100", *ON_CPU)
    assert " right " not in out
    assert "skipped: has one lane per element of a row" in out


@pytest.mark.long
def test_kernels_of_short_rows_are_verified_bare(cudareduce: Call) -> None:
    code, out, err = cudareduce("verify", "reduce_warp_registers", *ON_CPU)
    assert (code, out.count(" right ")) == (0, 1), err
