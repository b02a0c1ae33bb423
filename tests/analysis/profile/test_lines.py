"""The words for a figure hang on its value."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudareduce.analysis.profile.charts import charts
from cudareduce.analysis.profile.lines import COUNTED, STATIC, Profile
from cudareduce.analysis.profile.ncu import METRICS, launch_values
from cudareduce.analysis.profile.tables import (
    diff_section,
    kernel_sections,
    limited_by,
    next_steps,
    to_json,
)
from cudareduce.catalog.registry import Registry
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.reduction.operators import reduction_of

NUMBERS = (0.0, 1e-12, 0.5, 1.0, 31.0, 99.0, 1e6, 1e29)
LINES = {line.key: line for line in (*COUNTED, *STATIC)}


@pytest.mark.parametrize(
    ("key", "values", "words"),
    [
        ("dram_pct", {"dram_pct": 92.0}, "memory is the limit"),
        ("dram_pct", {"dram_pct": 60.0}, "more loads in flight"),
        ("dram_pct", {"dram_pct": 8.0}, "mostly idle"),
        ("read_share", {"read_share": 0.5}, "was in a cache"),
        ("read_share", {"read_share": 2.0}, "more than once"),
        ("written_share", {"written": 9.0, "written_share": 0.1}, "stay in the L2"),
        ("written_share", {"written": 9.0, "written_share": 9.0, "read": 9e3}, "too little"),
        ("written_share", {"written": 9e3, "written_share": 9.0, "read": 9e3}, "register spills"),
        ("l2_pct", {"l2_pct": 90.0}, "the L2 is the limit"),
        ("sm_pct", {"sm_pct": 90.0}, "the SMs are the limit"),
        ("sm_pct", {"sm_pct": 20.0}, "not the limit"),
        ("memory_pct", {"memory_pct": 90.0, "dram_pct": 90.0}, "DRAM is the limit"),
        ("memory_pct", {"memory_pct": 90.0, "dram_pct": 9.0}, "not DRAM"),
        ("warps_pct", {"warps_pct": 30.0, "warps_possible_pct": 100.0}, "fewer warps than"),
        ("warps_pct", {"warps_pct": 24.0, "warps_possible_pct": 25.0}, "limit the number of warps"),
        ("lanes", {"lanes": 31.5}, "nearly all lanes"),
        ("lanes", {"lanes": 12.0, "threads": 14.0}, "many lanes of a warp are "
         "inactive: divergent branches"),
        ("lanes", {"lanes": 25.0, "threads": 32.0}, "predicated instructions"),
        ("turns", {"turns": 3.3}, "bank conflicts"),
        ("sectors_a_request", {"sectors_a_request": 32.0, "sector_share": 8.0}, "not coalesced"),
        ("sectors_a_request", {"sectors_a_request": 1.0, "sector_share": 0.2}, "lanes share bytes"),
        ("barrier_wait_pct", {"barrier_wait_pct": 50.0}, "use fewer barriers"),
        ("barrier_wait_pct", {"barrier_wait_pct": 3.0}, "rarely wait"),
        ("memory_wait_pct", {"memory_wait_pct": 80.0, "dram_pct": 90.0}, "as expected"),
        ("memory_wait_pct", {"memory_wait_pct": 80.0, "dram_pct": 30.0}, "issue more loads"),
        ("registers", {"registers": 64.0}, "may allow more warps"),
        ("warps_held", {"warps_held": 16.0, "warps_most": 64.0}, "limited by registers"),
        ("spilled", {"spilled": 8.0}, "too few registers"),
        ("under_way", {"under_way": 4.0, "under_way_sm": 8192.0}, "too few"),
        ("barriers_a_block", {"barriers_a_block": 1.0}, "almost no barriers"),
    ],
)  # fmt: skip
def test_a_figure_is_a_cell_and_a_sentence(key: str, values: dict[str, float], words: str) -> None:
    assert words in LINES[key].meaning(values)
    assert LINES[key].cell(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dram_pct": 91.0, "memory_pct": 91.0}, "Limited by DRAM, at 91 % of the peak."),
        ({"dram_pct": 9.0, "memory_pct": 91.0}, "Limited by a cache or shared memory, at 91 %"),
        ({"dram_pct": 9.0, "barrier_wait_pct": 40.0}, "No unit is at its limit: warps wait at "
         "barriers 40 % of the time."),
        ({"time_ns": 1.0}, ""),
    ],
)  # fmt: skip
def test_the_bottleneck_of_a_kernel(values: dict[str, float], words: str) -> None:
    assert limited_by(values).startswith(words)


def test_next_steps_name_the_counters_they_improve(registry: Registry) -> None:
    steps = list(next_steps(registry.kernels["reduce_v1_no_divergence"], registry.kernels))
    assert steps[0].startswith("next: reduce_v2_no_bank_conflict (improves shared memory): ")
    many = list(next_steps(registry.kernels["reduce_tiles_acq_rel"], registry.kernels))
    assert len(many) == 5
    assert many[-1].endswith(" more: see cudareduce show reduce_tiles_acq_rel")


@pytest.mark.long
@given(
    st.dictionaries(st.sampled_from(list(METRICS.values())), st.sampled_from(NUMBERS)),
    st.dictionaries(st.sampled_from(list(METRICS.values())), st.sampled_from(NUMBERS)),
)
@settings(max_examples=300, deadline=None)
def test_every_metric_has_an_explanation(
    registry: Registry, old: dict[str, float], new: dict[str, float]
) -> None:
    kernel = registry.kernels["reduce_v0_baseline"]
    plan = Case(kernel, reduction_of("sum", "float32"), kernel.block, kernel.items).plan(1000)
    profiles = [Profile(kernel, launch_values(plan, each), static=False) for each in (old, new)]
    for section in kernel_sections(profiles, "a sum", registry.kernels, ()):
        assert all(all(row) for row in section.rows)
    diff_section(profiles[0], profiles[1], "a sum", ())
    to_json(profiles, {}, ())
    with suppress(UsageError):
        charts(profiles, 1000, "a sum")
