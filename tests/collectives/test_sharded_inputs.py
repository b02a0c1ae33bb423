"""Expected results of sharded arrays are those of NumPy, and change if a rank is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudareduce.collectives.inputs import SHARDED_OPS, ShardedArray, shard_range
from cudareduce.reduction.inputs import as_numbers
from cudareduce.reduction.operators import Reduction, reduction_of

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "uint32")
LENGTHS = ((2, 2), (3, 2), (1000, 3), (4099, 4), (1_100_000, 2))


def numpy_result(reduction: Reduction, content: ShardedArray) -> Any:
    """The result of NumPy for the concatenated shards."""
    whole = np.concatenate([content.of(rank) for rank in range(content.ranks)])
    assert len(whole) == content.n
    values = as_numbers(whole, reduction.dtype)
    kind = np.dtype(reduction.result_dtype)
    if reduction.op.indexed:
        return np.int64(getattr(np, reduction.op.name)(values))
    wide = values.astype(np.float64 if kind.kind == "f" else kind)
    if reduction.op.name == "mean":
        return np.divide(kind.type(wide.sum()), kind.type(content.n), dtype=kind)[()]
    ufunc = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
    return kind.type(ufunc[reduction.op.name].reduce(wide))


@pytest.mark.parametrize("op", SHARDED_OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_expected_results_are_those_of_numpy(op: str, dtype: str) -> None:
    reduction = reduction_of(op, dtype)
    for n, ranks in LENGTHS:
        for turn in range(3 if n < 10_000 else 1):
            content = ShardedArray(reduction, n, ranks, turn)
            assert content.result == numpy_result(reduction, content), (n, ranks, turn)
        if reduction.dtype.kind == "float":
            content = ShardedArray(reduction, n, ranks, 3, nan_of=ranks - 1)
            right, found = content.result, numpy_result(reduction, content)
            assert right == found or (right != right and found != found)


@pytest.mark.parametrize("op", SHARDED_OPS)
def test_leaving_out_a_rank_changes_a_result(op: str) -> None:
    """In at least one call: a search changes only if the missing rank held the extremum."""
    reduction = reduction_of(op, "float32")
    n, ranks = 4099, 3
    for missing in range(ranks):
        changes = 0
        for turn in range(6):
            content = ShardedArray(reduction, n, ranks, turn)
            values = np.concatenate([content.of(rank) for rank in range(ranks)])
            own = shard_range(n, missing, ranks)
            identity = {"min": np.inf, "argmin": np.inf, "max": -np.inf, "argmax": -np.inf,
                       "prod": 1.0}.get(op, 0.0)  # fmt: skip
            values[own.start : own.stop] = identity
            changes += bool(getattr(np, op)(values.astype(np.float64)) != content.result)
        assert changes, missing


@pytest.mark.parametrize("op", SHARDED_OPS)
def test_results_change_from_call_to_call(op: str) -> None:
    results = [
        float(ShardedArray(reduction_of(op, "float32"), 4099, 3, turn).result) for turn in range(6)
    ]
    assert len(set(results)) > 1


@pytest.mark.parametrize("op", ["sum", "mean"])
def test_long_sums_are_exact_in_float32_in_any_order(op: str) -> None:
    content = ShardedArray(reduction_of(op, "float32"), 8 << 20, 2, 1)
    whole = np.concatenate([content.of(rank) for rank in range(2)])
    for threads in (1 << 10, 1 << 18):
        partials = np.add.reduce(whole.reshape(-1, threads), axis=0, dtype=np.float32)
        total = np.cumsum(partials, dtype=np.float32)[-1]
        assert total / np.float32(content.n if op == "mean" else 1) == content.result
