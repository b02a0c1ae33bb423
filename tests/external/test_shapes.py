"""External files that were once judged wrongly, each with its exit code and the words of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.bench.preconditions import _has_cause, _size_condition
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import Kernel
from cudareduce.external.bare import BareKernel, command_to_copy
from cudareduce.external.device_code import read_device_file
from cudareduce.external.options import LaunchOptions
from cudareduce.external.recorder import argument_choices
from cudareduce.external.trial import next_deadline
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import reduction_of

Call = Callable[..., tuple[int, str, str]]
SHAPES = Path(__file__).parent.parent / "foreign_shapes"
RIGHT = [
    "aligned_raw_shared",
    "answer_in_a_variable",
    "answer_in_half",
    "arrival_counter",
    "atomic_of_its_own",
    "bare_macro_calls",
    "block_of_two_dimensions",
    "block_sum_by_cub",
    "cas_by_another_pointer",
    "cell_of_a_notebook",
    "cluster_dims",
    "columns",
    "columns_by_blocks",
    "count_of_a_value",
    "default_argument",
    "dot_product",
    "extern_type_shared",
    "functor_as_argument",
    "functor_by_template",
    "fused_squares",
    "host_template_launcher",
    "in_place_guarded",
    "instances_of_a_template",
    "kernel_by_macro",
    "launched_by_address",
    "mean_of_rows",
    "output_cleared_by_the_host",
    "partial_of_each_thread",
    "rows_by_threads",
    "rows_by_warps",
    "rows_in_turn",
    "shuffle_without_mask",
    "stripe_sum",
    "sum_behind_a_lock",
    "template_number_is_the_block",
    "tiles_of_two",
]
WRONG = [
    "arrival_without_fence",
    "barrier_of_some_sizes",
    "cub_storage_used_twice",
    "grid_left_before_its_barrier",
    "half_without_the_last",
    "last_block_by_a_plain_look",
    "lockstep_of_many_blocks",
    "template_truth_by_default",
]
REFUSED = [
    "columns_by_lanes",
    "columns_last_element_lost",
    "exclusive_or",
    "number_that_loses_elements",
    "one_pointer",
    "unguarded_second_half",
]
#: The exit code and words of each file: one per launch idiom, or per wrong file that once passed.
VERDICTS = {
    **dict.fromkeys(RIGHT, (0, " right ")),
    **dict.fromkeys(WRONG, (3, "WRONG")),
    **dict.fromkeys(REFUSED, (2, "To launch it as it is meant: cudareduce verify")),
    "kernel_in_header": (0, "right if n = 1024, the size in the file"),
    "largest_by_name": (0, "right if one of its elements is finite and a NaN may be dropped"),
    "place_of_the_smallest": (
        0,
        "right if one of its elements is finite and none of its elements is NaN",
    ),
    "quads_without_rest": (0, "right if n is a multiple of 4 and its input is aligned to 16 bytes"),
    "quads_and_rest": (0, "right if its input is aligned to 16 bytes"),
    "host_constexpr": (0, " right "),
    "fixed_count": (0, "right if n = 65536"),
    "low_digits_only": (3, "WRONG"),
    "products_in_half": (0, "nothing is lost by rounding to float16"),
    "products_in_half_lose_a_warp": (3, "WRONG"),
    "slots_of_missing_warps": (3, "WRONG"),
    "room_for_all_elements": (0, " right "),
    "one_block_of_any_size": (0, " right "),
    "two_shared_a_thread": (0, " right "),
    "items_by_template": (0, "right if n is a multiple of 1024"),
    "matrix_to_one_count": (0, " right "),
    "matrix_to_one_count_in_turns": (0, " right "),
    "rows_by_mul24": (0, " right "),
    "count_of_a_value_in_tiles": (0, "right if n is a multiple of 256"),
    "as_many_blocks_for_any_count": (0, "right if it has at most 16384 elements"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VERDICTS)
def test_a_shape_of_external_code_has_its_verdict(cudareduce: Call, name: str) -> None:
    code, words = VERDICTS[name]
    [path] = SHAPES.glob(f"{name}.cu*")
    limit = "--max-time", 300  # of a busy machine
    done, out, err = cudareduce("verify", path, "--backend", "cpu", *limit)
    assert done == code and words in out + err, out + err


def case_of(text: str, dtype: str) -> Case:
    kernel = Kernel(
        id="k", path=Path("k.cu"), family="user", text=text, title="", change="", scope="grid",
        grid="one", walk="element", finish="none", block=32, blocks=(32,),
    )  # fmt: skip
    return Case(kernel, reduction_of("sum", dtype), 32, 1)


@pytest.mark.parametrize(
    ("text", "dtype", "within", "positive"),
    [
        ("mine += in[i] & 0xffffff;  // float, unsigned", "int32", False, False),
        ("float mine = in[i];", "int32", True, False),
        ("int mine = in[i];", "int64", True, False),
        ("unsigned mine = in[i];", "int32", False, True),
        ("half mine = in[i];", "float16", True, True),
    ],
)
def test_lost_bits_are_excused_only_by_a_type(
    text: str, dtype: str, within: bool, positive: bool
) -> None:
    case = case_of(text, dtype)
    assert (_has_cause(case, "within"), _has_cause(case, "positive")) == (within, positive)


def test_a_parameter_that_sets_only_the_launch_is_no_count() -> None:
    described = [("in", "p"), ("out", "p"), ("n", "i"), ("width", "i")]
    assert argument_choices(described, 1000, {"width"}) == [["1000", "1000", "1000", "256"]]
    assert argument_choices([("x", "p"), ("threads", "i")], 1000) == [["512", "512"]]
    sought = [("x", "p"), ("height", "i"), ("width", "i"), ("wanted", "i")]
    assert argument_choices(sought, 1024)[0] == ["1024", "32", "32", "3"]


def test_a_command_to_copy_names_every_parameter() -> None:
    text = "__global__ void k(const float *a, float *b, int n, float s, Thing t) {}"
    [function] = read_device_file(Path("k.cu"), text, (), ()).kernels()
    error = "k.cu:1: error: 'Thing' does not name a type"
    command = command_to_copy(BareKernel(Path("k.cu"), function, "k"), LaunchOptions(), error)
    assert command == (
        "cudareduce verify k.cu --entry k --block 256 --grid cover --arg a=in --arg b=out "
        "--arg n=n --arg s=1.0 --arg 't={}' -D Thing=float"
    )


@pytest.mark.parametrize(
    ("parameters", "unwritten", "roles"),
    [
        ("int *in, int *out", (), ["in=in", "out=out"]),
        ("float *r, float *x", ("x",), ["r=out", "x=in"]),
        ("float *r, const float *x", (), ["r=out", "x=in"]),
        ("float *x, unsigned *count, float *sum", (), ["x=in", "count=zeroed:n", "sum=out"]),
        ("float *data", (), ["data=in"]),
    ],
)
def test_a_proposed_command_takes_the_written_pointer_as_the_result(
    parameters: str, unwritten: tuple[str, ...], roles: list[str]
) -> None:
    text = f"__global__ void k({parameters}) {{ }}"
    [function] = read_device_file(Path("k.cu"), text, (), ()).kernels()
    kernel = BareKernel(Path("k.cu"), function, "k")
    words = command_to_copy(kernel, LaunchOptions(), unwritten=unwritten).split()
    assert [word for word in words if "=" in word] == roles


def test_a_command_to_copy_defines_a_constant_as_the_threads_of_a_block() -> None:
    [function] = read_device_file(Path("k.cu"), "__global__ void k(int *x) {}", (), ()).kernels()
    error = "k.cu:1: error: 'BLOCK_SIZE' was not declared in this scope"
    options = LaunchOptions(block=128)
    command = command_to_copy(BareKernel(Path("k.cu"), function, "k"), options, error)
    assert command.endswith("-D BLOCK_SIZE=128")


def test_of_many_kernels_the_first_get_a_third_of_the_time() -> None:
    whole = Deadline(9, clock=lambda: 0)
    assert [next_deadline(whole, left).left_s for left in (1, 2, 12)] == [9, 4.5, 3]


def test_a_divisor_is_strengthened_by_further_sizes() -> None:
    good = [(n, 1) for n in (256, 512, 4096)]
    assert _size_condition(good, [(1000, 1)]) == {"multiple": 256}
    assert _size_condition([(n, 1) for n in (96, 256, 4096)], [(1000, 1)]) == {"multiple": 32}


def test_a_divisor_that_most_right_sizes_lack_is_no_condition() -> None:
    good = [(n, 1) for n in (1, 2, 31, 32, 255, 256, 1000, 1023, 4096, 98304, 114688, 3, 96)]
    assert _size_condition(good, [(81920, 1), (131072, 1)]) is None
