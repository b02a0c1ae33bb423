"""Threads that wait for each other in loops: correct programs make progress, deadlocks are
reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.errors import KernelFault
from tests.backends.emulator.test_cpu import (
    SCHEDULES,
    any_backend,
    checked,
    lines_marked,
    load,
    run_sum,
    take,
)

_ = any_backend, checked  # fixtures

SIZES = (1, 257, 5003)


@pytest.mark.parametrize(
    "entry", ["look_back", "first_waits", "grid_barrier", "spin_lock", "warps_wait"]
)
def test_waiting_threads_make_progress(any_backend: CpuBackend, entry: str) -> None:
    program = load(any_backend, "waiting.cu", entry)
    for schedule in SCHEDULES:
        take(any_backend, schedule)
        for n in SIZES:
            answer, expected = run_sum(any_backend, program, n)
            assert answer == expected, (schedule, n)


@pytest.mark.long
def test_many_blocks_that_wait_for_one_lock_take_turns(cache: Path) -> None:
    with CpuBackend(cache=cache) as cpu:
        program = load(cpu, "waiting.cu", "spin_lock")
        for schedule in SCHEDULES:
            take(cpu, schedule)
            answer, expected = run_sum(cpu, program, 300_000)
            assert answer == expected, schedule


@pytest.mark.parametrize(
    "entry",
    [
        "look_back_without_fence",
        "lock_without_fence",
        "variable_without_fence",
        "scope_too_narrow",
    ],
)
def test_a_polled_flag_without_a_fence_is_a_data_race(checked: CpuBackend, entry: str) -> None:
    program = load(checked, "waiting.cu", entry)
    for schedule in SCHEDULES:
        take(checked, schedule)
        with pytest.raises(KernelFault, match=r"data race in global memory") as caught:
            run_sum(checked, program, 5003)
        text = (caught.value.args[0]).removeprefix(f"{entry}: ")
        marked = lines_marked("waiting.cu", "hazard")
        assert {finding.split(": ")[0] for finding in text.split("; ")} & marked, text


def test_a_single_load_of_a_flag_may_be_too_early(checked: CpuBackend) -> None:
    program = load(checked, "waiting.cu", "looks_once")
    for schedule in SCHEDULES:
        take(checked, schedule)
        answer, expected = run_sum(checked, program, 5003)
        assert answer != expected


def test_an_endless_wait_is_reported_soon(checked: CpuBackend) -> None:
    program = load(checked, "waiting.cu", "waits_for_ever")
    with pytest.raises(KernelFault, match="it hangs: every thread waits for a value"):
        run_sum(checked, program, 5003)
    # The same process goes on with another kernel.
    answer, expected = run_sum(checked, load(checked, "waiting.cu", "first_waits"), 5003)
    assert answer == expected


def test_a_grid_waits_for_a_block_that_is_late_and_not_for_one_that_has_left(
    any_backend: CpuBackend,
) -> None:
    program = load(any_backend, "waiting.cu", "all_meet")
    answer, expected = run_sum(any_backend, program, 5003)
    assert answer == expected
    with pytest.raises(KernelFault, match="waits for a block that does not come"):
        run_sum(any_backend, load(any_backend, "waiting.cu", "last_leaves"), 5003)
