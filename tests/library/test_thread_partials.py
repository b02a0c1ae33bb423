"""Which kernels of others leave a partial of each thread, and which a value of each element."""

from __future__ import annotations

import pytest

from cudareduce.library.thread_partials import is_of_elements, is_of_threads

BEGIN = "int id = blockIdx.x * blockDim.x + threadIdx.x; float s = 0;"
TURNS = "for (int k = id; k < n; k += gridDim.x * blockDim.x) s += in[k];"


@pytest.mark.parametrize(
    ("rest", "leaves"),
    [
        (f"{TURNS} out[id] = s;", True),
        ("out[id] = 0; for (int k = id; k < n; k += 99) out[id] += in[k];", True),
        ("int k = id; while (k < n) { s += in[k]; k += 99; } out[id] = s;", True),
        (f"{TURNS} out[threadIdx.x] = s;", True),
        (f"{TURNS} out[blockIdx.x] = s;", False),
        (f"{TURNS} if (id < n) out[id] = s;", False),
        (f"if (id >= n) return; {TURNS} out[id] = s;", False),
        (f"{TURNS} *out = s;", False),
        ("for (int k = 0; k < steps; k++) s += in[id]; out[id] = s;", False),
        ("for (int k = id; k < n; k += 99) out[k] = 2 * in[k];", False),
    ],
)
def test_a_partial_is_what_each_thread_sets_after_several_elements(rest: str, leaves: bool) -> None:
    assert is_of_threads(f"{{ {BEGIN} {rest} }}", "in", "out") is leaves


@pytest.mark.parametrize(
    ("rest", "maps"),
    [
        ("if (id >= n) return; for (int k = -2; k <= 2; k++) s += in[id + k]; out[id] = s;", True),
        ("if (id < n) out[id] = 2 * in[id];", True),
        (f"{TURNS} out[id] = s;", False),
        (f"if (id >= n) return; {TURNS} out[blockIdx.x] = s;", False),
    ],
)
def test_a_value_of_each_element_has_its_place(rest: str, maps: bool) -> None:
    assert is_of_elements(f"{{ {BEGIN} {rest} }}", "out", "n") is maps
