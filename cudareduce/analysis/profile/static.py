"""Static profiles, without a GPU: the compiler's resource usage and the emulator's counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.analysis.profile.ncu import SECTOR_BYTES
from cudareduce.catalog.kernel import Kernel
from cudareduce.compare.machine_code import (
    counts_of,
    find_disassembler,
    most_warps,
    resident_warps,
)
from cudareduce.compare.nvcc import Job, compile_all, find_nvcc, reading_stage
from cudareduce.compare.traffic import Traffic, count_traffic, plan_of
from cudareduce.compare.units import Unit
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.launch.case import Case

#: If less than this fraction of the input is read, the emulator does not see all loads.
_ALL = 0.9


@dataclass(frozen=True, slots=True)
class StaticValues:
    """The values of each case by short names, and notes on what is unknown."""

    values: tuple[dict[str, float], ...]
    notes: tuple[str, ...]


def static_values(
    cases: Sequence[Case], arch: int, cache: Path | None, quiet: bool
) -> StaticValues:
    """The static values of these cases for sm_`arch`. Raises EnvironmentProblem if both nvcc and
    g++ are missing, and UsageError if a kernel does not compile."""
    values: list[dict[str, float]] = [{} for _ in cases]
    notes: list[str] = []
    missing = 0
    try:
        units, unit_notes = _units(cases, arch, quiet)
        notes += unit_notes
        for own_values, unit in zip(values, units, strict=True):
            own_values |= dict(_of_unit(unit)) if unit else {}
    except EnvironmentProblem as problem:
        missing += 1
        notes.append(f"Compiler results are missing: {problem}")
    try:
        counted = count_traffic(cases, cache, quiet)
        notes += counted.notes
        traffic = {(each.kernel, each.block, each.items): each for each in counted.traffic}
        for own_values, case in zip(values, cases, strict=True):
            one = traffic.get((case.kernel.id, case.block, case.items))
            if one is not None and _misses_loads(case, one):
                notes.append(
                    f"{case.kernel.id} is not counted: the emulator does not see all its loads"
                )
            elif one is not None:
                own_values |= dict(_of_traffic(case, one))
    except EnvironmentProblem as problem:
        missing += 1
        notes.append(f"Memory accesses are not counted: {problem}")
    if missing == 2:
        raise EnvironmentProblem(" ".join(notes))
    return StaticValues(tuple(values), tuple(notes))


def _units(
    cases: Sequence[Case], arch: int, quiet: bool
) -> tuple[list[Unit | None], tuple[str, ...]]:
    """The compiled first launch of each case; None if the architecture is too old for it."""
    fitting = [case for case in cases if arch >= 10 * float(case.kernel.min_cc)]
    todo = [
        Job(_as_launched(case), case.reduction, reading_stage(case.kernel, case.reduction), arch)
        for case in fitting
    ]  # fmt: skip
    disassembler = find_disassembler()
    compiled = compile_all(todo, find_nvcc(), disassembler, quiet)
    for failed in compiled.failed:
        raise UsageError(f"{failed.kernel} does not compile for sm_{arch}: {failed.error}")
    notes = [
        f"{case.kernel.id} is not compiled for sm_{arch}: it needs cc {case.kernel.min_cc}"
        for case in cases if case not in fitting
    ]  # fmt: skip
    if disassembler is None:
        notes.append(
            "cuobjdump not found, machine code is not read: pip install 'cudareduce[compile]'"
        )
    by_case = dict(zip(fitting, compiled.units, strict=True))
    return [by_case.get(case) for case in cases], tuple(notes)


def _as_launched(case: Case) -> Kernel:
    """The kernel with the case's launch shape as its default, for the compiler."""
    return replace(case.kernel, block=case.block, items=case.items, items_bytes=None)


def _of_unit(unit: Unit) -> Iterator[tuple[str, float]]:
    used = unit.resources
    yield "registers", used.registers
    yield "spilled", used.spill_bytes
    held, most = resident_warps(used, unit.block, unit.arch), most_warps(unit.arch)
    if held is not None and most is not None:
        yield from (("warps_held", held), ("warps_most", most))
    if unit.code is None:
        return
    if unit.code.in_flight:  # bulk copies are not counted as loads
        yield "under_way", unit.code.in_flight
        if held is not None:
            yield "under_way_sm", unit.code.in_flight * 32 * held
    counts = counts_of(unit.code.opcodes)
    yield "code", counts["all"]
    for name in ("loads", "wide_loads", "shuffles", "barriers"):
        yield f"code_{name}", counts["global_loads" if name == "loads" else name]


def _read_share(case: Case, counted: Traffic) -> float:
    plan = plan_of(case)
    assert plan is not None  # since it was counted
    return counted.read_bytes / plan.problem.input_bytes


def _misses_loads(case: Case, counted: Traffic) -> bool:
    """True if fewer loads were counted than any kernel needs: loads of 16-bit floats are not
    counted."""
    return _read_share(case, counted) < _ALL


def _of_traffic(case: Case, counted: Traffic) -> Iterator[tuple[str, float]]:
    yield "read_share", _read_share(case, counted)
    if counted.requests:
        yield "sectors_a_request", counted.sectors_a_request
        requested = counted.read_bytes + counted.written_bytes
        yield "sector_share", counted.sectors * SECTOR_BYTES / max(1, requested)
    if counted.accesses:
        yield "turns", counted.wavefronts_an_access
        yield "turns_least", max(1.0, case.reduction.acc.size / 4)
    yield "barriers_a_block", counted.barriers / max(1, _blocks(case))


def _blocks(case: Case) -> int:
    plan = plan_of(case)
    return sum(step.grid for step in plan.passes) if plan else 0
