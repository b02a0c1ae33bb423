"""Structs that act as operators."""

from __future__ import annotations

from cudareduce.library.functors import enumerators_in, helpers_in
from cudareduce.library.syntax import pieces

ACTS = "{ __device__ float operator()(float a, float b) const { return a; } }"


def found(source: str) -> str:
    return helpers_in(pieces(source.encode())).functor


def test_the_one_that_adds_is_taken() -> None:
    assert found(f"struct Max {ACTS}; namespace ops {{ struct Plus {ACTS}; }}") == "ops::Plus"


def test_the_only_one_is_taken_with_the_type_of_elements() -> None:
    assert found(f"template <class T> struct Fold {ACTS};") == "Fold<In>"


def test_of_several_nobody_can_tell() -> None:
    assert found(f"struct Max {ACTS}; struct Min {ACTS};") == ""


def test_one_that_holds_something_has_to_be_given() -> None:
    assert found("struct Sum { float x; __device__ float get() const { return x; } };") == ""


def test_of_an_enumeration_it_is_what_adds_or_the_first() -> None:
    one = "enum class Fold { MAX, SUM }; typedef enum { LEAST, MOST } kind_t;"
    one += " namespace a { enum E { X }; }"
    chosen = {"Fold": "Fold::SUM", "kind_t": "LEAST", "E": "a::X"}
    assert enumerators_in(pieces(one.encode())) == chosen


def test_functions_with_an_atomic_in_them_are_atomic() -> None:
    own = "__device__ void add(float *p, float v) { atomicAdd(p, v); }"
    own += " __device__ int no() { return 1; }"
    assert helpers_in(pieces(own.encode())).atomic == {"add"}
