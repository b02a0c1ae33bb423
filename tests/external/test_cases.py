"""Small external files, each with the verdict that it should get."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.backends.cuda.driver_module import kernel_symbols, symbol_of
from cudareduce.external.files import ExternalFiles
from cudareduce.external.options import LaunchOptions
from cudareduce.machine import installed
from tests.external.nvcc import cubin_of

Call = Callable[..., tuple[int, str, str]]
CASES = Path(__file__).parent / "cases"
VERDICTS = {
    "argmax_bf16_any_of_equals": (0, "right if a NaN may be dropped and of equal extremes any"),
    "bare_without_barrier": (3, "bare_without_barrier.cu:10: data race in shared memory"),
    "barrier_in_a_branch": (3, "barrier divergence"),
    "barrier_of_the_block": (3, "no __syncthreads() between them"),
    "blocks_of_a_full_gpu": (0, "sum int32"),
    "blocks_overlap": (3, "elements 256 to 511 are added twice"),
    "channel_sums": (0, "right"),
    "cleared_in_the_first_call": (3, "its second call"),
    "count_of_a_parameter": (0, "sum of a == 3"),
    "index_from_data": (2, ""),
    "index_of_16_bits": (0, "right if it has at most 65536 elements"),
    "largest_by_its_bits": (0, "right if a NaN may be dropped"),
    "loop_that_never_runs": (3, "WRONG"),
    "max_by_if": (0, "right if one of its elements is finite and a NaN may be dropped"),
    "mean_of_shares": (0, "mean of (a - b) * (a - b) float32: tested up to"),
    "one_warp": (0, "right if n is 32"),
    "operator_by_pointer": (0, "right if n = 100, the size in the file"),
    "partials_too_few": (3, "past the end of argument 1"),
    "pointer_alias": (0, "right"),
    "pointers_in_a_constant": (0, "sum float32: tested"),
    "reads_one_more": (3, "past the end of argument 0"),
    "result_added_to": (3, "its second call at n = 1000 gives 1003156, its first 501578"),
    "result_not_set": (3, "nothing sets its result before"),
    "rows_of_a_warp": (0, "right if it has at most 512 elements"),
    "second_input_shifted": (3, "sum of (a - b) * (a - b)"),
    "second_launch_of_its_own": (3, "stage2"),
    "shared_memory_of_all": (0, "right if it has at most 12288 elements"),
    "size_of_the_file_excluded": (3, "WRONG: n = 3000"),
    "square_in_one_block": (0, "right"),
    "tiles_without_length": (0, "right if n is a multiple of 512"),
    "total_of_all_runs": (3, "its second call at n = 1000 gives 1003156, its first 501578"),
    "transform_by_pointer": (0, "sum of a * a float32: tested"),
    "warp_sums_of_1024_threads": (0, "sum float32: tested"),
    "workspace_kept_between_calls": (0, "sum float64: tested"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VERDICTS)
def test_an_external_case_has_its_verdict(cudareduce: Call, name: str) -> None:
    code, words = VERDICTS[name]
    limit = "--max-time", 120  # of a busy machine
    done, out, err = cudareduce("verify", CASES / f"{name}.cu", "--backend", "cpu", *limit)
    assert done == code and words in out, out + err


@pytest.mark.long
@pytest.mark.skipif(not list(installed("nvcc")), reason="nvcc was not found")
@pytest.mark.parametrize("name", ["pointer_alias", "second_launch_of_its_own"])
def test_nvcc_makes_every_kernel_of_a_program(name: str, cache: Path, tmp_path: Path) -> None:
    path = CASES / f"{name}.cu"
    adopt = ExternalFiles(LaunchOptions(), lambda _: None, (), cache)
    for kernel in adopt(path, path.read_text()):
        assert kernel.program is not None
        symbols = kernel_symbols(cubin_of(kernel, tmp_path))
        assert all(symbol_of(one, symbols) for one in kernel.program.kernels)
