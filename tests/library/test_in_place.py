"""Which kernels overwrite what they read, and which maps their texts name."""

from __future__ import annotations

import pytest

from cudareduce.errors import UsageError
from cudareduce.library.in_place import keeps_partials, overwrites
from cudareduce.library.mapped import maps_in, read_map


@pytest.mark.parametrize(
    "body",
    ["data[i] += data[i + s];", "*data = 1;", "*(data + 3) = 1;", "data[0]++;",
     "int *mine = data + blockIdx.x * blockDim.x; if (i) mine[t] += mine[t + h];",
     "int *p; p = &data[4]; p[0]++;", "float4 *q = (float4 *)data; q[i].x = 3;",
     "auto d = data + 3; d[0] = 2;", "volatile int *s = data; s[0] = 1;",
     "float4 *q = reinterpret_cast<float4 *>(data); q[0].y = 1;"],
)  # fmt: skip
def test_a_store_to_the_input_is_seen(body: str) -> None:
    assert overwrites(f"{{ {body} }}", "data")


@pytest.mark.parametrize(
    "body",
    ["x = data[3]; s[t] = data[i]; out[0] = s[0];", "s[data[i]] = 3;", "sum += data[i++];",
     "int v = data[0]; v += 3;", "const float4 *q = (const float4 *)data; float4 v = q[i];",
     "*out = *data;", "int *mine = out + data[0]; mine[0] = 1;", "", "}}} = data[ ((("],
)  # fmt: skip
def test_other_stores_are_not(body: str) -> None:
    assert not overwrites(f"{{ {body} }}", "data")


def test_partials_lie_where_the_blocks_number_says() -> None:
    assert keeps_partials("{ data[blockIdx.x] = s[0]; }", "data")
    assert not keeps_partials("{ int i = blockIdx.x; data[i] += 1; data[0] = 1; }", "data")


def test_what_a_text_forms_of_elements() -> None:
    assert [m.expression for m in maps_in("float f(float x) { return x * x; }")] == ["a * a"]
    assert [m.expression for m in maps_in("float f(float x) { return fmaf(x, x, 1); }")] == [
        "a * a"
    ]
    assert maps_in("float f(float x, float y) { return fmaf(x, y, 1); }") == []
    assert [m.expression for m in maps_in("float f(float *p) { return p[ 0 ] *p[0]; }")] == [
        "a * a"
    ]
    assert [m.expression for m in maps_in("float f(float x) { return fabsf(x); }")] == ["fabs(a)"]
    assert maps_in("int f(int x, int y) { return 2 * 2 + x * y; }") == []


def test_a_map_has_as_many_inputs_as_it_names() -> None:
    assert (read_map(" a  * a ", "--map").expression, read_map("a", "--map").inputs) == ("a * a", 1)
    assert read_map("(a - b) * (a - b)", "--map").inputs == 2
    assert read_map("abs(a)", "--map").inputs == 1
    for text in ("", "  ", "a\n", "x + 1"):
        with pytest.raises(UsageError):
            read_map(text, "--map")
