"""Broken kernels, each rejected by the net that is there to reject it.

A file says in its comment which: an operator's patterns, a `schedule`, or the `hazard` build, which
must name one of the lines marked `<- hazard`.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import load_kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.launch.case import Case, Prepared, Shape, planned
from cudareduce.machine import DEFAULT_LIMITS
from cudareduce.reduction.operators import OPERATORS, reduction_of
from cudareduce.verify.isolation import Isolation
from cudareduce.verify.jobs import Job
from cudareduce.verify.test_sets import race_test_sets
from cudareduce.verify.verdict import Verdict
from tests.conftest import ROOT

#: Those that name a net: tests/test_corpus.py runs the others.
WRONG = [
    path
    for path in sorted((ROOT / "tests" / "wrong_kernels").glob("*.cu"))
    if "// Rejected by:" in path.read_text()
]
SHAPES: tuple[Shape, ...] = ((1, 1), (33, 1), (1000, 1), (70000, 1))


def nets(path: Path) -> list[str]:
    """The checks that reject a file, from its comment."""
    found = re.search(r"Rejected by: ([\w, ]+)\.", path.read_text())
    assert found, f"{path} does not say what rejects it"
    return found[1].split(", ")


def judged(path: Path, op: str, cache: Path, hazards: bool = False) -> Verdict:
    kernel = load_kernel(path)
    dtype = "float32" if OPERATORS[op].commutative else "uint32"
    case = Case(kernel, reduction_of(op, dtype), kernel.block, kernel.items)
    spec = BackendSpec("cpu", cache=cache, hazards=hazards)
    limits, shapes = DEFAULT_LIMITS, SHAPES
    if hazards:
        net = next(race_test_sets(case))
        limits, shapes = net.limits, net.shapes
    plans, refusals = planned(case, shapes, limits)
    assert not refusals
    prepared = Prepared(case, plans, refusals, programs={})
    job = Job(spec=spec, prepared=prepared, shapes=shapes, limit_s=120)
    isolation = Isolation()
    try:
        [(_, verdict)] = isolation.verify({case: [job]}, 1, Deadline(), lambda _: None)
        return verdict
    finally:
        isolation.close()


def test_there_are_enough_races_and_operators_among_wrong_kernels() -> None:
    kinds = [net for path in WRONG for net in nets(path)]
    assert kinds.count("hazard") >= 6
    assert sum(net in OPERATORS for net in kinds) >= 8


@pytest.mark.parametrize("path", [p for p in WRONG if nets(p) != ["hazard"]], ids=lambda p: p.stem)
def test_a_wrong_kernel_is_rejected_by_its_results(path: Path, cache: Path) -> None:
    for net in set(nets(path)) - {"hazard"}:
        op = "sum" if net == "schedule" else net
        assert judged(path, op, cache).outcome == "fail"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem == "pipeline_released_early"))
        for p in WRONG if "hazard" in nets(p)
    ],
)  # fmt: skip
def test_a_data_race_is_reported_at_its_marked_line(path: Path, cache: Path) -> None:
    lines = path.read_text().splitlines()
    marked = [k for k, line in enumerate(lines, 1) if "<- hazard" in line]
    verdict = judged(path, "sum", cache, hazards=True)
    assert verdict.outcome == "fail"
    assert any(f"{path}:{line}" in verdict.reason for line in marked), verdict.reason


@pytest.mark.parametrize("name", ["reduce_last_block", "reduce_ordered_last_block"])
def test_the_fence_before_the_arrival_is_the_one_that_counts(
    name: str, cache: Path, tmp_path: Path
) -> None:
    lines = load_registry().kernels[name].path.read_text().splitlines()
    before, after = (k for k, line in enumerate(lines) if "__threadfence()" in line)
    [arrival] = (k for k, line in enumerate(lines) if "atomicInc(" in line)
    assert before < arrival < after
    lines[before] = ""
    [read] = (k for k, line in enumerate(lines, 1) if "__ldcg(partials + k)" in line)
    path = tmp_path / f"{name}.cu"
    path.write_text("\n".join(lines))
    verdict = judged(path, "sum", cache, hazards=True)
    assert verdict.outcome == "fail"
    assert f"{path}:{read}: data race in global memory" in verdict.reason


def test_a_missing_fence_is_not_visible_in_results(cache: Path) -> None:
    """On the CPU memory is strongly ordered: without the hazard build this kernel looks right."""
    path = next(p for p in WRONG if p.stem == "missing_fence")
    assert judged(path, "sum", cache).outcome == "pass"


def test_a_fault_names_kernel_and_place(cache: Path) -> None:
    path = next(p for p in WRONG if p.stem == "reads_past_the_end")
    reason = judged(path, "sum", cache).reason
    assert f"{path}:" in reason
    assert "past the end of argument 0" in reason
