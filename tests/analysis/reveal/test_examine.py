"""Probing finds the orders of functions with a known order, and reports functions without one."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import numpy as np
import pytest

from cudareduce.analysis.reveal.probing import Examination, kernel_call, why_not
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import Registry, kernel_files
from cudareduce.launch.case import Case
from cudareduce.launch.plan import Plan, Problem
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.operators import reduction_of
from tests.analysis.reveal.simulated import (
    Sum,
    backwards,
    call_of,
    compensated,
    cut_short,
    fours,
    in_halves,
    in_turn,
    reveal_names,
    wide,
)
from tests.conftest import ROOT


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 2, 33, 200])
def test_known_summation_orders_are_recovered(n: int, dtype: str) -> None:
    forward, back = reveal_names(in_turn, n, dtype), reveal_names(backwards, n, dtype)
    halves = reveal_names(in_halves, n, dtype)
    for found in (forward, back, halves):
        assert (found.outcome, found.reason) == ("fixed", "")
        assert found.tree is not None
        assert found.adds_in == ("float64" if dtype == "float64" else "float32")
    assert forward.tree and halves.tree and back.tree
    assert (forward.tree.depth, back.tree.depth) == (n - 1, n - 1)
    assert halves.tree.depth == (n - 1).bit_length()
    assert forward.tree.keeps_order
    assert (forward.tree.hash == back.tree.hash) == (n < 3)


def test_a_chain_takes_few_probes_from_either_end() -> None:
    assert reveal_names(in_turn, 1000).probes < 3100
    assert reveal_names(backwards, 1000).probes < 3100
    assert reveal_names(in_halves, 1024).probes < 5200


def test_numpy_adds_in_pairs_of_blocks() -> None:
    """NumPy's own sum: 8 accumulators in blocks of 128, which are added in pairs."""
    found = reveal_names(lambda numbers: float(numbers.sum()), 1024)
    assert found.outcome == "fixed"
    assert found.tree is not None
    assert found.tree.depth == 15 + 3 + 3
    assert found.tree.meets(0, 8) == 2
    assert found.tree.meets(0, 128) == 256


def test_the_bound_is_gamma_of_the_depth() -> None:
    found = reveal_names(in_turn, 33)
    assert found.bound == pytest.approx(32 * 2.0**-24, rel=1e-4)


@pytest.mark.parametrize(
    ("adds", "why"),
    [(wide, "it adds in float64, a wider type"),
     (compensated, "this order gives different last bits")],
)  # fmt: skip
def test_a_more_exact_accumulator_has_no_bound_of_ours(adds: Sum, why: str) -> None:
    found = reveal_names(adds, 100)
    assert (found.outcome, found.bound) == ("other", None)
    assert found.reason == f"not only additions in float32: {why}"


def test_a_contradiction_is_detected_before_all_pairs_are_probed() -> None:
    found = reveal_names(fsum, 400)
    assert (found.outcome, found.probes) == ("other", 1 + 399)
    assert found.reason == (
        "not only additions in one order: element 200 is in a sum of 2 elements that holds 400"
    )


def test_four_at_once_are_not_only_additions() -> None:
    found = reveal_names(fours, 64)
    assert found.outcome == "other"
    assert found.tree is not None
    assert found.reason == (
        "not only additions of two values in one order: 16 sums take in more at once, or in an "
        "order that depends on the values"
    )
    assert found.tree.meets(0, 3) == 4


def test_an_order_that_depends_on_the_values_is_none_of_its_own() -> None:
    found = reveal_names(lambda numbers: in_turn(np.sort(numbers)), 16)
    assert found.outcome == "other"
    assert found.reason == (
        "not only additions of two values in one order: 1 sum takes in more at once, or in an "
        "order that depends on the values"
    )


def test_elements_cut_short_show_in_the_last_bits() -> None:
    """Masks and ones see a chain, and random elements that it is not one of float32."""
    found = reveal_names(cut_short, 100)
    assert found.outcome == "other"
    assert found.tree is not None
    assert found.tree.depth == 99
    assert found.reason == ("not only additions in float32: this order gives different last bits")


def test_a_permuted_sum_has_no_fixed_order() -> None:
    rng = np.random.default_rng(1)
    found = reveal_names(lambda numbers: in_turn(rng.permutation(numbers)), 100)
    assert found.outcome == "varies"
    assert found.reason.startswith("no fixed order: 10 calls give ")
    assert found.bound is None


def test_an_order_that_changes_now_and_then() -> None:
    """Ten calls may agree by chance; probes that contradict each other are made again."""
    calls = iter(range(10**6))

    def adds(numbers: Array) -> float:
        return in_turn(numbers) if next(calls) < 60 else backwards(numbers)

    calls_again = iter(range(10**6))

    def flips(numbers: Array) -> float:
        k = next(calls_again)
        return in_turn(numbers) if k < 30 or k % 2 else backwards(numbers)

    assert reveal_names(flips, 50).outcome == "varies"
    assert reveal_names(adds, 50).outcome == "varies"


def test_an_order_that_seldom_changes() -> None:
    """If probes contradict each other twice in the same way, more calls decide."""
    calls = iter(range(10**6))

    def adds(numbers: Array) -> float:
        order = numbers if next(calls) % 40 < 39 else numbers[::-1]
        return in_turn(np.array([np.float32(order[k : k + 4].astype(float).sum())
                                 for k in range(0, len(order), 4)]))  # fmt: skip

    found = reveal_names(adds, 100)
    assert found.outcome == "varies"
    assert found.reason.startswith("no fixed order: 100 calls give 2 results")


def test_losing_elements_is_wrong() -> None:
    found = reveal_names(lambda numbers: in_turn(numbers[1:]), 50)
    assert (found.outcome, found.reason) == ("wrong", "counts 49 of 50 ones: see cudareduce verify")


@pytest.mark.parametrize("right", [3, 25])
def test_occasional_errors_make_a_call_wrong(right: int) -> None:
    """Answers that differ are judged, at once and where probes have not agreed."""
    calls = iter(range(10**6))

    def adds(numbers: Array) -> float:
        return in_turn(numbers) + 8 * (next(calls) >= right)

    found = reveal_names(adds, 16)
    assert found.outcome == "wrong"
    assert found.reason.startswith("got ")
    assert found.reason.endswith("see cudareduce verify")


@pytest.mark.parametrize("right", [3, 25])
def test_writing_to_the_input_is_reported(right: int) -> None:
    problem, calls = Problem(reduction_of("sum", "float32"), 16), iter(range(10**6))
    call = call_of(in_turn, problem)

    def answer() -> float:
        found = call.run()
        if next(calls) >= right:
            call.write(0, np.zeros(16, "float32"))
        return found

    found = Examination(replace(call, run=answer), problem, 60).run()
    assert (found.outcome, found.reason) == (
        "wrong", "it writes to its input: see cudareduce verify",
    )  # fmt: skip


def test_large_sizes_are_sampled() -> None:
    found = reveal_names(in_halves, 2**14)
    assert found.outcome == "fixed"
    assert [len(tree.leaves) for tree in found.trees] == [16, 87]
    assert found.tree is not None
    assert not found.tree.exact
    assert found.bound is None
    assert found.tree.meets(0, found.tree.leaves.index(2**13)) == 2


def test_a_wider_accumulator_shows_in_a_sample() -> None:
    found = reveal_names(wide, 5000)
    assert found.outcome == "other"
    assert found.reason == (
        "not only additions: a mask that absorbs all but 0 ones in float32 leaves 4998, as in a "
        "wider accumulator"
    )


@pytest.mark.parametrize("adds", [compensated, cut_short])
def test_probes_among_zeros_reveal_a_kernel_that_samples(adds: Sum) -> None:
    """Whose probes are those of additions one after the other."""
    found, plain = reveal_names(adds, 5000), reveal_names(in_turn, 5000)
    why = "not only additions in float32: this order gives different last bits"
    assert (found.outcome, found.reason) == ("other", why)
    assert (plain.outcome, plain.adds_in) == ("fixed", None)
    assert found.tree is not None
    assert plain.tree is not None
    assert found.tree.hash == plain.tree.hash


def test_no_probe_is_made_after_the_time_limit() -> None:
    found = reveal_names(in_turn, 50, limit_s=1e-9)
    assert (found.outcome, found.cause) == ("skip", "time")
    assert found.reason == "--time-limit was reached after 0 probes"


def test_reductions_without_a_visible_order_are_refused() -> None:
    def why(op: str, dtype: str, n: int, acc: str | None = None) -> str:
        return why_not(reduction_of(op, dtype, acc), n) or ""

    assert "exact" in why("sum", "int32", 5)
    assert "--op sum" in why("max", "float32", 5)
    assert "as a sum only, not as mean" in why("mean", "float32", 5)
    assert "--n 1" in why("sum", "float32", 0)
    assert "up to 32767" in why("sum", "float16", 2**15)
    assert not why("sum", "float16", 2**15 - 1)
    assert "up to 0" in why("sum", "float16", 5, "float64")
    assert "up to 16777216" in why("sum", "float32", 2**24 + 1)
    assert not why("sum", "float64", 2**30)


def _as_claimed(registry: Registry, cpu: CpuBackend, name: str, n: int) -> None:
    """Checks the revealed tree against the plan: its sums are refined, and its depth is not
    exceeded."""
    kernel = registry.kernels[name]
    case = Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)
    plan = case.plan(n, 1, cpu.limits())
    with kernel_call(cpu, case, plan) as call:
        found = Examination(call, plan.problem, 60).run()
    in_any_order = kernel.finish in ("atomic", "self_reset") and _meet(plan)
    assert found.outcome == ("varies" if in_any_order else "fixed")
    if found.tree is not None:
        assert (found.adds_in, found.reason) == ("float32", "")
        assert found.tree.refines(plan.tree)
        assert found.tree.depth <= plan.depth
        assert found.tree.keeps_order or kernel.order == "any"


def _meet(plan: Plan) -> bool:
    """Whether atomics meet in an order that can show: two values have only one."""
    return (plan.problem.n if plan.kernel.walk == "element" else plan.passes[0].grid) > 2


def _reveals(kernel: Kernel) -> bool:
    """Whether it adds float32, on the emulator too, and only adds."""
    takes = "sum" in (kernel.ops or ("sum",)) and "float32" in (kernel.dtypes or ("float32",))
    return takes and not kernel.requires and kernel.id != "reduce_tiles_compensated"


KERNELS = {path.stem: load_kernel(path) for path in kernel_files(ROOT / "kernels")}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if _reveals(kernel)])
def test_kernels_add_as_their_headers_claim(registry: Registry, cpu: CpuBackend, name: str) -> None:
    sizes = (1, 2, 32) if registry.kernels[name].walk == "lane" else (1, 2, 33, 260)
    for n in sizes:
        _as_claimed(registry, cpu, name, n)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("reduce_v0_baseline", 700),
        ("reduce_grid_stride", 1030),
        ("reduce_tiles_reproducible", 1100),
    ],
)
def test_several_blocks_add_as_their_headers_claim(
    registry: Registry, cpu: CpuBackend, name: str, n: int
) -> None:
    _as_claimed(registry, cpu, name, n)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["reduce_v7_shuffle", "reduce_ordered_last_block"])
def test_a_gpu_adds_as_the_emulator_does(registry: Registry, cpu: CpuBackend, name: str) -> None:
    kernel, trees = registry.kernels[name], []
    case = Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items)
    with open_cuda(BackendSpec("cuda")) as gpu:
        for backend in (gpu, cpu):
            plan = case.plan(600, 1, backend.limits())
            with kernel_call(backend, case, plan) as call:
                trees.append(Examination(call, plan.problem, 60).run().tree)
    assert trees[0] == trees[1] is not None
