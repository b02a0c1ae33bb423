"""What a file's own conditions leave out, and what they cannot decide."""

from __future__ import annotations

import pytest

from cudareduce.library.branches import live_lines


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("#if 0\nA\n#else\nB\n#endif", "B"),
        ("#define V 2\n#if V == 1\nA\n#elif V >= 2 && !defined(W)\nB\n#else\nC\n#endif", "B"),
        ("#ifdef NOBODY\nA\n#if X\nB\n#endif\n#else\nC\n#endif", "C"),
        ("#ifndef GUARD\n#define GUARD\nA\n#endif", "A"),
        ("#define ONE 1\n#define W (ONE + \\\n 1)\n#if W == 2\nA\n#else\nB\n#endif", "A"),
        ("#ifdef __CUDA_ARCH__\nA\n#else\nB\n#endif", "AB"),
        ('#include "its.h"\n#ifdef NOBODY\nA\n#else\nB\n#endif', "AB"),
        ("#if defined(__CUDA_ARCH__) && 0\nA\n#endif", ""),
        ("#if __CUDA_ARCH__ > 700\n#define T 1\n#endif\n#ifdef T\nA\n#endif", "A"),
        ("#if F(2)\nA\n#else\nB\n#endif", "AB"),
        ("#if 1\nA\n#elif F(2)\nB\n#endif", "A"),
    ],
)  # fmt: skip
def test_lines_that_no_condition_leaves_out(source: str, kept: str) -> None:
    left = live_lines(source)[0]
    assert left.count("\n") == source.count("\n")
    assert "".join(line for line in left.split("\n") if line in ("A", "B", "C")) == kept


def test_what_a_header_does_not_define_may_be_defined_before_it() -> None:
    source = "#ifdef NOBODY\nA\n#endif\n#if 0\nB\n#endif"
    assert live_lines(source, {})[0] == source.replace("\nB\n", "\n\n")


def test_a_header_knows_what_the_file_before_it_defines() -> None:
    _, defined = live_lines("#define WIDE\n#if 0\n#define NARROW\n#endif")
    assert live_lines("#ifdef WIDE\nA\n#else\nB\n#endif", defined)[0] == (
        "#ifdef WIDE\nA\n#else\n\n#endif"
    )
    assert "A" in live_lines("#ifdef NARROW\nA\n#endif", defined)[0]
