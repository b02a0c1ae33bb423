"""What is searched: every shape that a header allows, none twice, and nothing that cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.analysis.tune.search import candidates, kernels_named
from cudareduce.catalog.registry import Registry
from cudareduce.errors import UsageError
from cudareduce.launch.auto.rule import Facts
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, reduction_of
from tests.simulate import H200

FACTS = Facts(DEFAULT_LIMITS, H200, ())


def test_names_are_kernels_families_patterns_and_auto(registry: Registry) -> None:
    def named(*names: str, rows: int = 1) -> list[str]:
        return [kernel.id for kernel in kernels_named(names, registry, rows)]

    limit = [k.id for k in registry.kernels.values() if k.family == "limit"]
    assert named("limit") == limit
    assert named("auto") == named() == named("auto:fixed", "auto")
    assert set(named("auto")) == set(limit) - {"reduce_fill", "reduce_tiles"}  # two launches
    some = ["reduce_v7_shuffle", "reduce_v6_multi_add"]
    assert named("reduce_v7_shuffle", "reduce_v[67]*") == some
    assert "reduce_rows_tree" in named("auto", rows=5)
    with pytest.raises(UsageError, match="no kernel or suite is called 'limits'"):
        named("limits")


def test_files_of_a_user_are_refused(registry: Registry, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cu"
    text = registry.kernels["reduce_v7_shuffle"].text
    mine.write_text(text.replace("reduce_v7_shuffle", "mine"))
    with pytest.raises(UsageError, match="tune takes the kernels of the package only"):
        kernels_named([str(mine)], registry, 1)


@pytest.mark.slow
@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(("n", "rows"), [(1, 1), (2**14, 1), (2**25, 1), (2**31, 1), (1000, 300)])
def test_every_shape_can_be_planned_and_none_comes_twice(
    registry: Registry, op: str, n: int, rows: int
) -> None:
    kernels = kernels_named(["auto"], registry, rows)
    for dtype in OPERATORS[op].only:
        found = candidates(kernels, reduction_of(op, dtype), n, rows, FACTS)
        plans = [case.plan(n, rows, FACTS.limits) for case in found]
        launched = [
            (p.kernel.id, p.block, p.items, *(step.grid for step in p.passes)) for p in plans
        ]
        assert len(set(launched)) == len(launched)
        assert len({case.name for case in found}) == len(found)
        assert len(found) < 700
        for case in found:
            assert case.block in case.kernel.blocks
            assert case.kernel.why_not_items(case.items, DTYPES[dtype].size) is None


def test_a_kernels_own_shape_comes_first(registry: Registry) -> None:
    kernel = registry.kernels["reduce_tiles_mailbox"]
    found = candidates([kernel], reduction_of("sum", "float32"), 2**25, 1, FACTS)
    assert found[0].name == "reduce_tiles_mailbox, 512 x 16 fill"
    grids = {case.kernel.grid for case in found}
    assert grids == {"fill", "per_sm", "cover"}
    assert {case.items for case in found} == {4, 8, 16, 32}


def test_what_a_gpu_lacks_is_not_searched(registry: Registry) -> None:
    ring = [registry.kernels["reduce_tiles_ring"]]
    reduction = reduction_of("sum", "float32")
    assert candidates(ring, reduction, 2**20, 1, FACTS)
    assert not candidates(ring, reduction, 2**20, 1, Facts(DEFAULT_LIMITS, H200, ("tma",)))
    warp = [registry.kernels["reduce_warp_registers"]]
    assert not candidates(warp, reduction, 2**20, 1, FACTS)  # which takes it as rows
