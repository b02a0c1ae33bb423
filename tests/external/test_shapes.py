"""External files that were once judged wrongly, each with its exit code and the words of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.bench.preconditions import _has_cause, _size_condition
from cudareduce.external.bare import BareKernel, command_to_copy
from cudareduce.external.device_code import read_device_file
from cudareduce.external.options import LaunchOptions
from cudareduce.external.recorder import argument_choices
from cudareduce.launch.case import Case
from cudareduce.library.kernel import Kernel
from cudareduce.reduction.operators import reduction_of

Call = Callable[..., tuple[int, str, str]]
SHAPES = Path(__file__).parent.parent / "foreign_shapes"
VERDICTS = {
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
def test_the_verdict(cudareduce: Call, name: str) -> None:
    code, words = VERDICTS[name]
    done, out, err = cudareduce("verify", SHAPES / f"{name}.cu", "--backend", "cpu")
    assert done == code and words in out, out + err


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


def test_a_divisor_is_strengthened_by_further_sizes() -> None:
    good = [(n, 1) for n in (256, 512, 4096)]
    assert _size_condition(good, [(1000, 1)]) == {"multiple": 256}
    assert _size_condition([(n, 1) for n in (96, 256, 4096)], [(1000, 1)]) == {"multiple": 32}
