"""Answers in variables of a file."""

from __future__ import annotations

from cudareduce.library.outside import outside, place_of, places_in
from cudareduce.library.parameters import read_parameter
from cudareduce.library.scopes import constants
from cudareduce.library.syntax import pieces


def found(variables: str, body: str, parameters: str = "const float *in, int n") -> str:
    source = f"{variables}\n__global__ void add({parameters}) {{ {body} }}"
    all_of = pieces(source.encode())
    function = next(piece.function for piece in all_of if piece.function)
    return outside(all_of, constants(all_of), function)


def test_a_value_is_a_reference_and_an_array_a_pointer() -> None:
    assert found("__device__ float total = 0;", "atomicAdd(&total, in[0]);") == "float & total"
    assert (
        found("const int K = 8; __managed__ double p[K * 8];", "p[blockIdx.x] = in[0];")
        == "double p[64]"
    )


def test_one_that_has_a_pointer_for_its_answer_leaves_it_there() -> None:
    count = "__device__ unsigned count;"
    assert found(count, "out[0] = in[0]; count += 1;", "const float *in, float *out") == ""


def test_what_the_body_declares_itself_is_no_variable_of_the_file() -> None:
    assert found("__device__ float total;", "float total = 0; total += in[0];") == ""


def test_of_several_nobody_can_tell() -> None:
    two = "__device__ float least; __device__ float most;"
    assert found(two, "least = in[0]; most = in[1];") == ""
    assert found("__device__ float least, most;", "least = in[0];") == ""


def test_constants_functions_pointers_and_other_types_are_none() -> None:
    assert found("__constant__ float total;", "total = in[0];") == ""
    assert found("__device__ float total(int);", "total = in[0];") == ""
    assert found("__device__ float *total;", "*total = in[0];") == ""
    assert found("__device__ Pair total;", "total = in[0];") == ""
    assert found("__device__ float p[4][4];", "p[0][0] = in[0];") == ""
    assert found("__device__ float p[UNKNOWN];", "p[0] = in[0];") == ""
    assert found("float total;", "total = in[0];") == ""


def test_it_stands_for_a_place_in_the_answers_of_a_launch() -> None:
    value, array = read_parameter("float & total"), read_parameter("int p[8]")
    assert place_of(value) == "(*(float *)their_answer())"
    assert place_of(array) == "((int *)their_answer())"
    assert (places_in(value), places_in(array), places_in(None)) == (0, 8, 0)
