"""What a kernel that combines nothing looks like, and one that reads nothing."""

from __future__ import annotations

import pytest

from cudareduce.library.body import Body
from cudareduce.library.combining import adds_up, combines


@pytest.mark.parametrize(
    ("does", "body"),
    [
        (True, "{ __shared__ float s[32]; }"),
        (True, "{ atomicAdd(out, in[i]); }"),
        (True, "{ for (int i = 0; i < n; ++i) sum += in[i]; }"),
        (True, "{ for (int i = 0; i < n; i += 2) { float x = in[i] + sum; sum = x; } }"),
        (True, "{ while (i < n) { if (in[i] > best) best = in[i]; i += 32; } }"),
        (True, "{ for (int i = t; i < n; i += 8) for (int k = 0; k < 4; ++k) s[k] += in[i + k]; }"),
        (True, "{ for (int i = 0; i < n; ++i) out[t] += in[i]; }"),
        (True, "{ again: x += in[i]; if (++i < n) goto again; }"),
        (False, "{ if (i < n) out[i] = in[i] * in[i]; }"),
        (False, "{ for (int i = t; i < n; i += 8) out[i] = __expf(in[i] - top[0]) * (float)k; }"),
        (False, "{ for (int i = t; i < n; i += 8) { float x = in[i]; x *= x; out[i] += x; } }"),
        (False, "{ for (int i = t; i < n; ++i) for (int k = 0; k < m; ++k) out[i * m + k] = 1; }"),
        (False, "{ while (i < n) { out[i] = in[i]; i += 32; } }"),
    ],
)  # fmt: skip
def test_what_goes_on_from_turn_to_turn_combines(does: bool, body: str) -> None:
    assert combines(body) is does


def test_what_is_set_to_more_than_it_was() -> None:
    assert adds_up("{ out[0] += in[i]; }", "out")
    assert adds_up("{ *out = *out + in[i]; }", "out")
    assert not adds_up("{ out[0] = in[i] + in[i + 1]; }", "out")


@pytest.mark.parametrize(
    ("does", "body"),
    [
        (True, "{ x[t] += x[t + 1]; }"),
        (True, "{ float y = *x; }"),
        (True, "{ both(x, 3); }"),
        (True, "{ y[x[t]] = 1; }"),
        (True, "{ macro() }"),
        (False, "{ x[t] = 1; }"),
        (False, "{ *x += 1; }"),
        (False, "{ atomicAdd(&x[t], 1); atomicAdd(x, 2); }"),
    ],
)
def test_what_is_only_written_to_is_not_read(does: bool, body: str) -> None:
    assert Body(body).only_changes("x") is not does
