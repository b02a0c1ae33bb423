"""Pictures of trees are short and draw repeated parts once."""

from __future__ import annotations

import numpy as np

from cudareduce.analysis.reveal.orders import picture
from cudareduce.reduction.inputs import Array
from tests.analysis.reveal.simulated import Sum, backwards, in_halves, in_turn, reveal_names


def drawn(adds: Sum, n: int) -> list[str]:
    found = reveal_names(adds, n)
    assert found.tree is not None
    return [" = ".join(line) for line in picture(found.tree)]


def test_a_regular_summation_tree_is_drawn_as_one_line() -> None:
    assert drawn(in_turn, 1000) == ["1000 = 1000 x 1 one after the other, 1 apart"]
    assert drawn(backwards, 100) == ["100 = 100 x 1 one after the other, 1 apart, the last first"]
    assert drawn(in_halves, 1024) == [
        "1024 = 1024 x 1 in halves, 512 256 128 64 32 16 8 4 2 1 apart"
    ]
    assert drawn(lambda numbers: float(numbers.sum()), 512) == [
        "512 = 32 x 16 in halves, 1 2 4 128 256 apart",
        "  16 = 16 x 1 one after the other, 8 apart",
    ]


def test_an_irregular_sum_lists_its_parts() -> None:
    assert drawn(in_halves, 7) == [
        "7 = 4 from 0 on + 3 from 1 on",
        "  4 = 4 x 1 in halves, 4 2 apart",
        "  3 = 3 x 1 one after the other: 1 5 3",
    ]


def test_a_chain_with_another_first_operand() -> None:
    def adds(numbers: Array) -> float:
        parts = [in_halves(numbers[:3]), *(in_halves(numbers[k : k + 4]) for k in range(3, 23, 4))]
        return in_turn(np.array(parts, numbers.dtype))

    assert drawn(adds, 23)[:2] == [
        "23 = 7 from 0 on, then 4 x 4 one after the other, 4 apart",
        "  7 = 3 from 0 on + 4 from 3 on",
    ]


def test_a_line_fits_80_columns() -> None:
    """Irregular index lists are abbreviated to the first and last ones."""

    def shuffled(numbers: Array) -> float:
        return in_turn(np.random.default_rng(1).permutation(numbers))

    def at_once(numbers: Array) -> float:
        return in_turn(np.sort(numbers))

    (line,) = drawn(shuffled, 50)
    assert line.startswith("50 = 50 x 1 one after the other: ")
    assert " ... " in line
    assert 60 <= len(line) <= 75
    assert drawn(at_once, 30) == ["30 = 30 x 1 together, 1 apart"]
    assert drawn(lambda numbers: float(in_halves(numbers[:2]) + numbers[2]), 3) == [
        "3 = 3 x 1 one after the other, 1 apart"
    ]


def test_a_tree_of_one_element_has_no_lines() -> None:
    assert drawn(in_turn, 1) == []
    assert drawn(in_turn, 2) == ["2 = 2 x 1 in halves, 1 apart"]


def test_a_picture_is_never_long() -> None:
    assert len(drawn(in_halves, 1001)) <= 24


def test_of_a_sample_it_is_the_way_of_the_first_element() -> None:
    lines = drawn(in_halves, 2**13)
    assert lines[:3] == ["2 = 4096", "4 = 2048 6144", "8 = 1024 3072 5120 7168"]
    assert lines[-1].startswith("8192 = 1 3 5 7")
