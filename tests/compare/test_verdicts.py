"""`compare`: verdicts on stored runs, and errors for unusable files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.budget import Deadline
from cudareduce.compare.baseline import match
from cudareduce.compare.check import check, confirm_rows
from cudareduce.compare.report import Report, exit_code, verdict_sections
from cudareduce.compare.request import CheckRequest, Judging, Thresholds, load_thresholds
from cudareduce.compare.verdicts import (
    SAME_CODE,
    Measured,
    Row,
    Rules,
    compare,
    machine,
    require_evidence,
)
from cudareduce.machine import DeviceInfo
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Record, Run
from cudareduce.results.store import load, to_json, write_text
from tests.conftest import ROOT
from tests.simulate import H200, KERNELS, SIZES, record, run

Call = Callable[..., tuple[int, str, str]]
DATA = ROOT / "tests" / "data"
BEFORE, AFTER = DATA / "simulated-before.json", DATA / "simulated-after.json"
FIVE = Rules(Thresholds(0.05))
FLAT = (40.0, 40.032, 39.968) * 3


def nudged(records: Sequence[Record]) -> list[Record]:
    """As another run would have them: rounds a hundredth of a per cent longer or shorter."""
    return [
        replace(r, rounds_us=tuple(
            us and us * (1.0001 if k % 2 else 0.9999) for k, us in enumerate(r.rounds_us)
        ))
        for r in records
    ]  # fmt: skip


def rounds(us: float) -> tuple[float, ...]:
    return tuple(us * time / 40 for time in FLAT)


def one(old: Record | None, new: Record | None, rules: Rules = FIVE) -> Row:
    [row] = compare([old] if old else [], [new] if new else [], rules)
    return row


def case(us: float = 40.0, **changes: Any) -> Record:
    return record("reduce_v7_shuffle", 2**25, rounds(us), **changes)


OLD = case()


def test_the_hosts_time_of_a_library_is_not_compared() -> None:
    called = replace(
        OLD, kernel="peer:fine:as_called", called="fine()", time_us=None, rounds_us=(), host_us=60.0
    )
    assert not compare([called], [replace(called, host_us=90.0)], FIVE)
    assert one(called, None).verdict == "GONE"
    assert one(called, replace(called, verdict="fail", reason="wrong")).verdict == "WRONG"


@pytest.mark.parametrize(
    ("new", "verdict", "reason"),
    [
        (case(), "SAME", SAME_CODE),
        (case(42.5), "UNCERTAIN", "the machine code is as it was, and its time is not"),
        (case(37.5), "UNCERTAIN", "the machine code is as it was, and its time is not"),
        (case(42.01), "SAME", SAME_CODE),
        (
            case(36.0, cubin_sha="x", pct_ceiling=106.0),
            "UNCERTAIN",
            "reads at 106 % of what a read",
        ),
        (case(36.0, cubin_sha="x", pct_ceiling=104.0), "FASTER", ""),
        (case(36.0, cubin_sha="x", pct_ceiling=106.0, pct_peak=20.0), "FASTER", ""),
        (case(44.0, cubin_sha="x"), "SLOWER", ""),
        (case(36.0, cubin_sha="x"), "FASTER", ""),
        (case(41.0, cubin_sha="x"), "SAME", ""),
        (case(44.0, grid=7), "SLOWER", ""),
        (case(41.99, cubin_sha="x"), "UNCERTAIN", "the interval reaches beyond the threshold"),
        (case(44.0, cubin_sha=None), "SLOWER", ""),
        (case(20.0, verdict="fail", reason="got 1, expected 2", time_us=None), "WRONG", "got 1"),
        (case(verdict="skip", reason="out of GPU memory", time_us=None), "GONE", "out of GPU"),
        (None, "GONE", "it is not in the new run"),
        (case(44.0, cubin_sha="x", rounds_us=rounds(44)[:5]), "UNCERTAIN", "has 5 rounds, and a"),
        (case(time_us=None, rounds_us=(), cubin_sha="x"), "UNCERTAIN", "the new run has no time"),
    ],
)
def test_two_records_of_a_kernel_have_a_verdict_and_a_reason(
    new: Record | None, verdict: str, reason: str
) -> None:
    row = one(OLD, new)
    assert row.verdict == verdict
    assert reason in row.reason


def test_kernels_that_were_wrong_or_skipped_before_are_new() -> None:
    assert one(None, OLD).verdict == "NEW"
    wrong = case(verdict="fail", reason="bad", time_us=None, rounds_us=())
    assert (one(wrong, OLD).verdict, one(wrong, OLD).reason) == (
        "NEW", "it was wrong in the baseline",
    )  # fmt: skip
    skipped = case(verdict="skip", reason="no", time_us=None, rounds_us=())
    assert compare([skipped], [skipped], FIVE) == []
    empty = replace(case(time_us=None, rounds_us=()), n=0)
    assert compare([empty], [empty], FIVE) == []


def test_noisy_rounds_decide_nothing() -> None:
    noisy = case(44.0, cubin_sha="x", rounds_us=(30.0, 60.0, 44.0) * 3)
    row = one(OLD, noisy)
    assert (row.verdict, row.reason) == (
        "UNCERTAIN", "the rounds are too noisy to tell the change from none",
    )  # fmt: skip


def test_a_clock_change_that_explains_the_time_makes_the_row_uncertain() -> None:
    old = case(sm_mhz=1980.0, memory_mhz=3201.0)
    down = case(44.0, cubin_sha="x", sm_mhz=1800.0, memory_mhz=3201.0)
    row = one(old, down)
    assert row.verdict == "UNCERTAIN"
    assert row.reason == (
        "the SM clock moved with it, from 1980 to 1800 MHz: lock the clocks and measure again"
    )
    assert one(old, replace(down, sm_mhz=1975.0)).verdict == "SLOWER"
    assert one(old, replace(down, sm_mhz=2180.0)).verdict == "SLOWER"
    # What waits for memory loses less than the clock does.
    assert one(old, replace(down, sm_mhz=1386.0)).verdict == "UNCERTAIN"
    other_model = replace(FIVE, clocks=False)
    assert one(old, down, other_model).verdict == "SLOWER"


def test_same_code_is_never_slower_and_not_hidden_where_times_say_so() -> None:
    guard_off = Rules(Thresholds(0.05), same_code=False)
    assert one(OLD, case(44.0)).verdict == "UNCERTAIN"
    assert one(OLD, case(44.0)).in_doubt
    assert one(OLD, case(44.0), guard_off).verdict == "SLOWER"
    assert one(OLD, case(44.0), replace(FIVE, shares=True)).verdict == "SAME"


@pytest.mark.parametrize("count", [1, 5])
def test_too_few_rounds_decide_nothing_about_identical_code(count: int) -> None:
    """Otherwise a machine ten times as slow would pass."""
    old = [record(f"c{k}", 2**25, FLAT, cubin_sha="same") for k in range(4)]
    new = [record(f"c{k}", 2**25, rounds(400)[:count], cubin_sha="same") for k in range(4)]
    for before, after in ((old, new), (new, old)):
        for row in compare(before, after, FIVE):
            assert (row.verdict, "and a verdict takes 6" in row.reason) == ("UNCERTAIN", True)


def test_one_changed_member_of_the_control_group_is_uncertain() -> None:
    rows = compare(*unchanged(40, 40.1, 40, 52, 39.9), FIVE)
    assert [row.verdict for row in rows] == ["SAME"] * 3 + ["UNCERTAIN", "SAME"]
    assert machine(rows, FIVE) is None
    together = compare(*unchanged(52, 52.1, 52, 52, 51.9), FIVE)
    assert {row.verdict for row in together} == {"SAME"}
    assert machine(together, FIVE) is not None


def unchanged(*us: float) -> tuple[list[Record], list[Record]]:
    """Kernels of 40 us whose machine code is as it was, and that take so long now."""
    names = [f"k{i}" for i in range(len(us))]
    return [replace(OLD, kernel=name) for name in names], [
        replace(case(time), kernel=name) for name, time in zip(names, us, strict=True)
    ]


def with_controls(us: float, *controls: float, threshold: float = 0.05) -> Row:
    """The row of a changed kernel that took 40 us, next to a control group."""
    old, new = unchanged(*controls)
    changed = case(us, cubin_sha="x")
    rules = Rules(Thresholds(threshold))
    return compare([*old, OLD], [*new, changed], rules)[-1]


def test_the_shift_of_the_control_group_is_subtracted() -> None:
    row = with_controls(45.36, 43.2, 43.2, 43.2, threshold=0.1)  # +13.4 % and +8 %
    assert row.verdict == "SAME"
    assert row.change is not None
    assert row.change.ratio == pytest.approx(1.05, rel=0.001)
    assert row.taken_out is not None
    row = with_controls(47.52, 43.2, 43.2, 43.2, threshold=0.09)
    assert (row.verdict, row.change and round(row.change.ratio, 3)) == ("SLOWER", 1.1)
    hidden = with_controls(41.0, 38.0, 38.0, 38.0, threshold=0.07)  # a quicker machine
    assert hidden.verdict == "SLOWER"
    too_few = with_controls(45.36, 43.2, 43.2, threshold=0.1)
    assert (too_few.verdict, too_few.taken_out) == ("SLOWER", None)


def test_a_change_no_larger_than_that_of_identical_code_is_not_one() -> None:
    row = with_controls(43.0, 40.0, 43.5, 36.8, 40.0, 43.4)
    assert row.verdict == "UNCERTAIN"
    assert row.reason == (
        "changes of unchanged kernels scatter by 7.2 % (standard deviation) between these runs: "
        "measure both again"
    )


def test_the_control_group_has_the_size_of_the_row_if_it_is_large_enough() -> None:
    old, new = unchanged(43.2, 43.2, 43.2)
    far = [replace(record, n=2**10, kernel=f"small {record.kernel}") for record in old]
    rows = compare(
        [*old, *far, OLD], [*new, *far, case(43.2, cubin_sha="x")], Rules(Thresholds(0.1))
    )
    assert rows[-1].change is not None
    assert rows[-1].change.ratio == pytest.approx(1)
    assert rows[-1].taken_out is not None
    assert rows[-1].taken_out.count == 3


def without_controls(*us: float) -> list[Row]:
    """The rows of two files with kernels of 40 us that now take so long, all with changed code."""
    old, new = unchanged(*us)
    changed = [replace(record, cubin_sha="x") for record in new]
    return require_evidence(compare(old, changed, FIVE), FIVE)


def test_without_a_control_group_most_kernels_must_show_that_the_machine_is_sound() -> None:
    sound = without_controls(40, 40.01, 40.02, 39.99, 44, 40)
    assert [row.verdict for row in sound] == ["SAME"] * 4 + ["SLOWER", "SAME"]
    for us in ((44, 44.01, 43.99, 44, 44.02, 44), (40, 42.5, 37.4, 41.2, 44, 38.6), (40, 44)):
        rows = without_controls(*us)
        assert {row.verdict for row in rows} <= {"SAME", "UNCERTAIN"}
        slower = [row for row in rows if row.change and row.change.ratio > 1.06]
        assert all(row.unproven_slowdown for row in slower)
        assert exit_code(report(rows), Judging()) == 4
    assert (
        "half of all kernels moved by +10.0 % (scatter 0.0 %)"
        in without_controls(*[44] * 6)[0].reason
    )
    faster = without_controls(36, 40)
    assert not any(row.unproven_slowdown for row in faster)
    assert exit_code(report(faster), Judging()) == 0


def test_no_drift_explains_a_change_by_half() -> None:
    slower, same = without_controls(60, 40)
    assert (slower.verdict, same.verdict) == ("SLOWER", "SAME")


def test_unchanged_kernels_are_evidence_enough() -> None:
    old, new = unchanged(40, 40.01, 39.99)
    rows = compare([*old, OLD], [*new, case(44.0, cubin_sha="x")], FIVE)
    assert require_evidence(rows, FIVE) == rows
    assert rows[-1].verdict == "SLOWER"


@pytest.mark.parametrize("factor", [1.3, 0.8, 10.0])
def test_a_machine_that_changed_is_the_verdict(
    cudareduce: Call, tmp_path: Path, factor: float
) -> None:
    """All unchanged kernels move beyond the threshold, and one kernel has changed."""
    stored = load(BEFORE)
    moved = [
        replace(
            made := record(r.kernel, r.n, tuple(us * factor for us in r.medians_us)),
            cubin_sha="x" if r.kernel == "reduce_v7_shuffle" else made.cubin_sha,
            ceiling_gb_s=None, pct_ceiling=None,
        )
        for r in nudged(stored.records)
    ]  # fmt: skip
    later = tmp_path / "later.json"
    write_text(later, to_json(replace(stored, records=tuple(moved))))
    code, out, _ = cudareduce("compare", BEFORE, later)
    assert code == 4
    assert out.splitlines()[0].startswith("MACHINE: later.json against simulated-before.json")
    assert "SLOWER" not in out.replace("called slower", "")
    assert "FASTER" not in out
    how = "slower" if factor > 1 else "faster"
    assert f"kernels with unchanged machine code became {100 * abs(factor - 1):.1f} % {how}" in (
        " ".join(out.split())
    )
    rows = json.loads(cudareduce("compare", BEFORE, later, "--format", "json")[1])
    changed = [row for row in rows if not row["same_code"]]
    assert {row["verdict"] for row in changed} <= {"UNCERTAIN", "SAME"}
    assert all(row["taken_out_pct"] for row in changed)
    xml = tmp_path / "out.xml"
    cudareduce("compare", BEFORE, later, "--junit", xml)
    assert 'classname="the machine"' in xml.read_text()
    wrong = [
        replace(moved[0], verdict="fail", reason="got 1", time_us=None, rounds_us=()),
        *moved[1:],
    ]
    write_text(later, to_json(replace(stored, records=tuple(wrong))))
    assert cudareduce("compare", BEFORE, later)[0] == 3


def test_a_verdict_takes_a_time() -> None:
    """Answers that passed, of identical code, but never timed."""
    row = one(case(time_us=None, rounds_us=()), case(time_us=None, rounds_us=()))
    assert row.verdict == "UNCERTAIN"
    assert row.reason == "the baseline has no time for it"


def test_paired_rounds_are_those_that_both_have() -> None:
    drift = [1 + 0.05 * k for k in range(9)]
    old = case(rounds_us=(None, *(40 * d for d in drift[1:])))
    new = case(44, rounds_us=(*(44 * d for d in drift[:-1]), None), cubin_sha="x")
    row = one(old, new, replace(FIVE, paired=True))
    assert row.change is not None
    assert row.change.ratio == pytest.approx(1.1)
    assert row.change.half_width < 0.01
    few = case(rounds_us=(None, None, None, None, *(40.0 for _ in drift[4:]), 40.0, 40.0))
    row = one(old, replace(few, rounds_us=few.rounds_us[:9]), replace(FIVE, paired=True))
    assert row.verdict == "SAME"  # the machine code is
    row = one(replace(old, cubin_sha="y"), replace(few, rounds_us=few.rounds_us[:9]), FIVE)
    assert row.reason == "the new run has 5 rounds, and a verdict takes 6"


def test_shares_of_the_ceiling_for_another_card() -> None:
    rules = Rules(Thresholds(0.05), shares=True, same_code=False)
    slower_card = case(44.0, ceiling_gb_s=OLD.ceiling_gb_s / 1.1)  # type: ignore[operator]
    assert one(OLD, slower_card, rules).verdict == "SAME"
    assert one(OLD, case(44.0), rules).verdict == "SLOWER"
    row = one(OLD, case(ceiling_gb_s=None), rules)
    assert (row.verdict, row.change) == ("UNCERTAIN", None)
    assert row.reason == "another card, and the new run has no ceiling to take a share of"


def test_a_kernel_whose_block_changed_is_compared_with_itself() -> None:
    row = one(OLD, replace(case(44.0), block=128))
    assert (row.verdict, row.reason) == ("SLOWER", "block x items 256 x 8, now 128 x 8")
    sweep = [replace(OLD, block=block) for block in (128, 256)]
    rows = compare(sweep, [sweep[0], replace(OLD, block=512)], FIVE)
    assert [row.verdict for row in rows] == ["SAME", "NEW", "GONE"]


@pytest.mark.parametrize(("us", "verdict"), [(44.0, "SLOWER"), (40.0, "SAME")])
def test_another_choice_of_auto_is_named_in_the_reason(us: float, verdict: str) -> None:
    old = replace(OLD, kernel="auto", chosen="reduce_tiles_block")
    new = replace(case(us), kernel="auto", chosen="reduce_tiles_ring", block=512, cubin_sha="x")
    rows = compare([old], [new], FIVE)
    assert [row.verdict for row in rows] == [verdict]
    took = "took reduce_tiles_block, now reduce_tiles_ring; block x items 256 x 8, now 512 x 8"
    assert rows[0].reason == took
    [section] = verdict_sections(report(rows), everything=True)
    assert any(took in note for note in section.notes)


def report(rows: Sequence[Row], *notes: str) -> Report:
    return Report(title="title", rows=rows, rules=FIVE, notes=notes)


def measured(old: Sequence[Record], new: Sequence[Record]) -> Measured:
    return Measured(old=tuple(old), new=tuple(new), floors_us={}, remarks=(), protocols=())


def decided(
    first: Measured, longer: Callable[[int], Measured], *, stored: bool = True,
    budget_s: float = 60.0,
) -> list[Row]:  # fmt: skip
    """The rows of a check whose first measurement gives `first`, and one with so many times the
    rounds what `longer` returns; the confirmation run gives the same as the last one."""
    request = CheckRequest(budget=budget_s, quiet=True, judging=Judging(), outputs=Outputs())
    given: list[Measured] = []

    def measure(suspects: Sequence[Record] | None, times: int) -> Measured:
        given.append(first if suspects is None else longer(times))
        return given[-1]

    measurement = SimpleNamespace(
        device=H200, deadline=Deadline(), measure=measure, confirm=lambda *_: given[-1]
    )
    baseline = Run({}, H200, {}, first.old) if stored else None
    report = check(request, FIVE, baseline, measurement)
    assert report.cut is None
    return list(report.rows)


def test_uncertain_rows_are_measured_longer() -> None:
    doubtful, slower = case(41.99, cubin_sha="x"), case(44.0, cubin_sha="x")
    asked: list[int] = []

    def longer(times: int) -> Measured:
        asked.append(times)
        return measured([OLD], [slower if times == 4 else doubtful])

    first = measured([OLD], [doubtful])
    assert compare([OLD], [doubtful], FIVE)[0].in_doubt
    [row] = decided(first, longer)
    assert (row.verdict, asked) == ("SLOWER", [2, 4])
    asked.clear()
    [row] = decided(first, lambda times: longer(3 * times))
    assert (row.verdict, len(asked)) == ("UNCERTAIN", 3)
    asked.clear()
    assert decided(first, longer, budget_s=0.0) == compare([OLD], [doubtful], FIVE)
    assert decided(measured([OLD], [slower]), longer)[0].verdict == "SLOWER"
    assert asked == []


@pytest.mark.parametrize("verdict", ["skip", "fail"])
@pytest.mark.parametrize("side", ["old", "new"])
def test_a_measurement_without_times_decides_nothing(verdict: str, side: str) -> None:
    """What was measured is not gone because the next look had no memory for it, nor is it new
    because the base was wrong there; what is wrong itself is WRONG."""
    new = beside_controls(1, 40.5, noise=0.06)[-1]
    none: dict[str, Any] = {"verdict": verdict, "reason": "so", "time_us": None, "rounds_us": ()}
    old = replace(new, cubin_sha="was", rounds_us=rounds(40))
    sides = {"old": old, "new": new}
    sides[side] = replace(sides[side], **none)
    [row] = compare([old], [new], FIVE)
    assert row.in_doubt
    longer = measured([sides["old"]], [sides["new"]])
    [found] = decided(measured([old], [new]), lambda times: longer, stored=False)
    assert found.verdict == ("WRONG" if (side, verdict) == ("new", "fail") else "UNCERTAIN")


def test_a_second_measurement_decides() -> None:
    first = one(OLD, case(44.0, cubin_sha="x"))
    for us, verdict, confirmed in ((44.0, "SLOWER", True), (40.0, "SAME", False),
                                   (36.0, "UNCERTAIN", False)):  # fmt: skip
        again = [case(us, cubin_sha="x", rounds_us=rounds(us) * 2)]
        [row] = confirm_rows([first], compare([OLD], again, FIVE), FIVE)
        assert (row.verdict, row.confirmed) == (verdict, confirmed)
    wrong = [case(verdict="fail", reason="bad", time_us=None)]
    [row] = confirm_rows([first], compare([OLD], wrong, FIVE), FIVE)
    assert row.verdict == "WRONG"
    [row] = confirm_rows([first], compare([OLD], [], FIVE), FIVE)
    assert row.verdict == "UNCERTAIN"


def beside_controls(by: float, us: float, noise: float = 0.0) -> list[Record]:
    """Four kernels that did not change and took so many times as long, and one that did."""
    times = tuple(time * (1 + noise * (k % 2)) for k, time in enumerate(rounds(us)))
    same = [record(f"c{k}", 2**25, rounds(40 * by), cubin_sha=f"c{k}") for k in range(4)]
    return [*same, record("b", 2**25, times, cubin_sha=f"for {us}")]


@pytest.mark.parametrize(("first", "later", "us"), [(1.08, 1, 50), (1.08, 1, 37.5), (1, 1.08, 54)])
def test_a_machine_that_changes_between_measurements_blames_no_kernel(
    first: float, later: float, us: float
) -> None:
    """Whichever look shows it, the run is MACHINE, and no row is SLOWER or FASTER."""
    old = beside_controls(1, 40)
    before = measured(old, beside_controls(first, 40.5 * first, noise=0.06))
    assert compare(before.old, before.new, FIVE)[-1].in_doubt
    rows = decided(before, lambda times: measured(old, beside_controls(later, us)))
    assert (rows[-1].verdict, rows[-1].reason) == ("UNCERTAIN", "the machine has changed")
    assert (machine(rows, FIVE) is not None, exit_code(report(rows), Judging())) == (True, 4)


def test_drift_between_two_measurements_has_the_verdict_machine() -> None:
    old = beside_controls(1, 40)
    rows = compare(old, beside_controls(1, 48), FIVE)
    assert (rows[-1].verdict, machine(rows, FIVE)) == ("SLOWER", None)
    rows = confirm_rows(rows, compare(old, beside_controls(1.08, 51.84), FIVE), FIVE)
    assert (rows[-1].verdict, machine(rows, FIVE) is not None) == ("UNCERTAIN", True)


@pytest.mark.parametrize(
    ("words", "strict", "allow", "code"),
    [
        ("SAME FASTER NEW", True, False, 0),
        ("SAME UNCERTAIN", False, False, 0),
        ("SAME UNCERTAIN", True, False, 4),
        ("SLOWER UNCERTAIN", True, False, 1),
        ("SLOWER WRONG", False, False, 3),
        ("GONE", False, False, 1),
        ("GONE SAME", False, True, 0),
        ("GONE NEW", False, True, 4),
        ("UNCERTAIN", False, False, 4),
        ("NEW", False, False, 4),
        ("NEW SAME", False, False, 0),
    ],
)
def test_the_exit_code_follows_from_the_worst_verdict(
    words: str, strict: bool, allow: bool, code: int
) -> None:
    rows = [Row(None if word == "NEW" else OLD, OLD, word) for word in words.split()]
    assert exit_code(report(rows), Judging(strict=strict, allow_gone=allow)) == code


def test_machines_are_compared_by_their_properties() -> None:
    assert match(H200, H200) == match(H200, replace(H200, power_limit_w=700.3))
    assert match(H200, replace(H200, ecc=False)).differences == ("ECC on, now off",)
    loose = match(H200, replace(H200, driver="1", power_limit_w=None))
    assert loose.differences == ()
    assert loose.warnings == (
        "the new run lacks the power limit: assumed to be the same",
        "driver 580.159.04, now 1",
    )  # fmt: skip
    silent = match(replace(H200, ecc=None, memory_clock_khz=None, bus_bits=None), H200)
    assert (silent.differences, silent.warnings) == (
        (), ("the baseline lacks the memory clock, memory width, ECC: assumed to be the same",),
    )  # fmt: skip
    assert match(H200, replace(H200, uuid="other")).other_card
    assert match(H200, replace(H200, uuid=None)).warnings
    for name in ("cc", "sm_count", "l2_bytes", "memory_clock_khz", "bus_bits", "mig", "name"):
        other: dict[str, Any] = {name: "other"}
        assert len(match(H200, replace(H200, **other)).differences) == 1


def test_the_stored_example_runs_are_marked_as_simulated() -> None:
    for path in (BEFORE, AFTER):
        assert "no GPU made these times" in load(path).tool["simulated"]


def test_compare_prints_the_worst_first_and_cannot_confirm(cudareduce: Call) -> None:
    code, out, err = cudareduce("compare", BEFORE, AFTER, "--threshold", "2%")
    assert (code, err) == (1, "")
    lines = [line.rstrip() for line in out.splitlines()]
    sides = lines[1:3]
    del lines[1:3]
    assert [side.partition(":")[0] for side in sides] == ["old", "new"]
    assert max(map(len, lines[1:28])) <= 80
    assert lines[:9] == [
        "simulated-after.json against simulated-before.json, NVIDIA H200, sum float32, limit 2%",
        "",
        " verdict  kernel                       n     old us  new us     change",
        " " + 69 * "─",
        " SLOWER   reduce_v6_multi_add          2^28   347.4     358   +3.0±.5%",
        " SLOWER   reduce_v6_multi_add          2^22    8.38    8.64  +2.9±1.0%",
        " SLOWER   reduce_v6_multi_add          2^25   46.11    47.5   +2.9±.5%",
        " FASTER   reduce_v4_unroll_last_warp   2^22   11.39   10.72   -5.9±.7%",
        " FASTER   reduce_v4_unroll_last_warp   2^28     538     506   -6.1±.6%",
    ]
    verdicts = [line.split()[0] for line in lines[4:28]]
    assert verdicts == ["SLOWER"] * 3 + ["FASTER"] * 3 + ["SAME"] * 18
    assert lines[29:31] == ["24 compared: 3 SLOWER, 3 FASTER, 18 SAME", "SLOWER: unconfirmed"]
    same = "18 kernels are unchanged; their times differ"
    assert same in out
    _, out, _ = cudareduce("compare", BEFORE, AFTER, "--threshold", "2%", "--no-same-code")
    assert same in out


def test_each_reason_is_printed_once() -> None:
    """Whose they are where they differ; not for the largest group, nor for a verdict's only one."""
    doubts = [
        Row(OLD, replace(OLD, n=n), "UNCERTAIN", why) for n, why in ((1, "a"), (2, "b"), (3, "b"))
    ]
    gone = [Row(replace(OLD, n=n), None, "GONE", "it is away") for n in (5, 6)]
    confirmed = [Row(OLD, replace(OLD, n=n), "SLOWER", confirmed=n == 7) for n in (7, 8)]
    rows = [*confirmed, *gone, *doubts, Row(OLD, OLD, "FASTER"), Row(OLD, OLD, "SAME", "because")]
    [section] = verdict_sections(report(rows), everything=True)
    assert section.notes == (
        "9 compared: 2 SLOWER, 2 GONE, 3 UNCERTAIN, 1 FASTER, 1 SAME",
        "SLOWER: confirmed in a fresh process: reduce_v7_shuffle 7",
        "SLOWER: unconfirmed: reduce_v7_shuffle 8",
        "GONE: it is away",
        "UNCERTAIN: a: reduce_v7_shuffle 1",
        "UNCERTAIN: b: the other 2",
        "1 kernel is unchanged.",
    )


def test_kernels_of_one_run_only_are_summarised() -> None:
    """A kernel missing among compared ones has a row, as all have with --all."""
    names = [f"kernel_{k}" for k in range(9)]
    same = [Row(replace(OLD, kernel=k), replace(OLD, kernel=k), "SAME") for k in names]
    away = [Row(replace(OLD, kernel=k, n=7 * n), None, "GONE") for k in names for n in (1, 2)]
    warp = Row(replace(OLD, n=32, rows=2**20), None, "GONE", "it is not in the new run")
    new = [Row(None, replace(OLD, kernel=k, dtype="int32", acc="int32"), "NEW") for k in names]
    rows = [*same, *away, warp, *new]
    [section] = verdict_sections(report(rows, "note"), everything=False)
    assert [row[:2] for row in section.rows] == [
        ("GONE", OLD.kernel), *(("SAME", kernel) for kernel in names),
    ]  # fmt: skip
    assert section.notes[:5] == (
        "37 compared: 19 GONE, 9 NEW, 9 SAME",
        "GONE: it is not in the new run",
        "GONE: 18 are only in the old run (sum float32 7, 14): kernel_0, kernel_1, kernel_2, "
        "kernel_3 and 5 more; --all shows them",
        "NEW: 9 are only in the new run (sum int32 2^25): kernel_0, kernel_1, kernel_2, kernel_3 "
        "and 5 more; --all shows them",
        "note",
    )
    [whole] = verdict_sections(report(rows), everything=True)
    assert len(whole.rows) == len(rows)
    renamed = [replace(row, old=None, new=row.old, verdict="NEW") for row in away]
    gone = [replace(row, old=replace(row.old, n=2**25)) for row in away if row.old]
    [section] = verdict_sections(report([*same, *gone, *renamed]), everything=False)
    assert len(section.rows) == len(same)


def test_runs_of_other_sizes_keep_their_exit_code(cudareduce: Call) -> None:
    h200 = ROOT / "results" / "nvidia-h200"
    both = h200 / "baseline.json", h200 / "bench-2p25-float32.json"
    code, out, _ = cudareduce("compare", *both)
    assert (code, out.count("GONE"), out.count(" SAME  ")) == (1, 2, 27)
    assert "54 are only in the old run (sum float32 2^24, 2^26): reduce_atomic, " in out
    assert cudareduce("compare", *both, "--all")[1].count(" GONE  ") == 54
    assert len(json.loads(cudareduce("compare", *both, "--format", "json")[1])) == 81
    code, out, _ = cudareduce("compare", *both[::-1])
    assert (code, out.count("NEW")) == (0, 3)
    told = " ".join(out.split())
    assert f"WARNING: {both[0]} (" in told
    assert f"so run compare {both[0]} {both[1]}" in told


def test_an_improvement_never_fails(cudareduce: Call, tmp_path: Path) -> None:
    quick = stored(tmp_path / "quick.json", run(7, slower={"reduce_v0_baseline": -0.3}))
    assert cudareduce("compare", BEFORE, quick, "--strict")[0] == 0


def test_markdown_and_json_have_the_same_verdicts(cudareduce: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    code, out, _ = cudareduce(
        "compare", BEFORE, AFTER, "--format", "json", "--markdown", page, "--threshold", "2%"
    )
    rows = json.loads(out)
    assert code == 1
    assert len(rows) == 24
    slower = [row for row in rows if row["verdict"] == "SLOWER"]
    assert {row["kernel"] for row in slower} == {"reduce_v6_multi_add"}
    assert all(1.5 < row["change_pct_low"] < 3 < row["change_pct_high"] < 4 for row in slower)
    assert "| SLOWER " in page.read_text()
    assert "SLOWER: unconfirmed\n" in page.read_text()


def stored(path: Path, made: Run) -> Path:
    write_text(path, to_json(made))
    return path


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(BEFORE.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def as_of_another_tool(data: dict[str, Any]) -> None:
    data.clear()
    data["results"] = []


def in_other_units(data: dict[str, Any]) -> None:
    """Times a thousand times too short, and all that follows from them."""
    for one in data["records"]:
        for name in ("time_us", "time_us_low", "time_us_high", "time_us_min"):
            one[name] /= 1000
        one["rounds_us"] = [us / 1000 for us in one["rounds_us"]]
        for name in ("gb_s", "ceiling_gb_s", "pct_peak"):
            one[name] *= 1000


#: Fields of a file with values that are refused, by the place of their object.
BAD_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("", {"schema": 0}, "has schema 0, this version reads 1: bench again"),
    ("", {"records": []}, "holds no records"),
    ("", {"records": [1]}, "record 1: it is not an object"),
    ("", {"protocol": {"rounds": "nine"}}, "protocol: rounds cannot be read"),
    ("records.3", {"verdict": "fail"}, "a time, and the ver"),
    ("records.3", {"verdict": "good"}, "verdict is not pass, fail or skip"),
    ("records.3", {"time_us": -1.0}, "record 4: time_us is -1.0"),
    ("records.3", {"n": "2^25"}, "record 4: n is not a whole number"),
    ("records.3", {"op": 3}, "op is not a text"),
    ("records.3", {"gb_s": float("nan")}, "gb_s is not a finite number"),
    ("records.3", {"gb_s": 9999.0}, "gb_s 9999, but bytes over time"),
    ("records.3", {"time_us": 999.0}, "time_us 999, but the median of its rounds is"),
    ("records.3", {"host_us": -1.0}, "host_us is -1.0"),
    ("records.3", {"time_us_min": 999.0}, "time_us_min 999 is more"),
    ("records.3", {"error": 5.0, "bound": 1.0}, "error 5 is more than its bound 1, and it passed"),
    ("records.3", {"ceiling_gb_s": 9999.0}, "but of ceiling_gb_s it is"),
    ("protocol", {"rounds": 5}, "rounds, and 5 were requested"),
    ("records.3", {"time_us_high": 1.0}, "of its interval"),
    ("records.3", {"rounds_us": None}, "a time without rounds"),
    ("records.3", {"rounds_us": ["a"]}, "rounds_us is not a list of numbers"),
    ("records.3", {"ranks": 0}, "ranks is 0"),
    ("records.3", {"busbw_gb_s": -3.0}, "busbw_gb_s is -3"),
    ("records.3", {"backend": "cpu"}, "from the backend"),
    ("", {"schema": "1"}, "schema is not a whole number; bench"),
    ("", {"schema": True}, "schema is not a whole number"),
    ("", {"schema": 1.0}, "schema is not a whole number"),
    ("", {"records": None}, "records is missing; bench again"),
    ("", {"records": {}}, "records is not a list"),
    ("", {"device": []}, "device is not an object"),
    ("", {"protocol": None}, "protocol is missing"),
    ("", {"device": {"name": None}}, "device: name is missing"),
    ("device", {"name": " "}, "does not name its GPU"),
    ("device", {"power_limit_w": "700"}, "device: power_limit_w is not a number"),
    ("device", {"ecc": 1}, "device: ecc is not true or false"),
    ("protocol", {"kernels": [5]}, "kernels cannot be read"),
    ("records.3", {"bytes": "9"}, "bytes is not a whole number"),
    ("records.3", {"bytes": [9]}, "bytes is not a whole number"),
    ("records.3", {"bytes": 10**400}, "not a finite number"),
    ("records.3", {"n": True}, "n is not a whole number"),
    ("records.3", {"block": 0}, "block is 0"),
    (
        "records.3",
        {"rounds_us": [10**400] * 9},
        "record 4: rounds_us holds a number that is not finite",
    ),
    (
        "records.3",
        {"verdict": "fail", "time_us": None, "reason": 5},
        "record 4: reason is not a text",
    ),
    ("records.3", {"pct_ceiling": float("nan")}, "not a finite number"),
    ("records.3", {"sm_mhz": -1}, "sm_mhz is -1.0"),
    ("records.3", {"kernel": "\ud800"}, "an unpaired UTF-16 surrogate"),
    ("records.3", {"region": "bogus"}, "region is 'bogus'"),
    ("tool", {"name": "nvbench"}, "is of 'nvbench': bench"),
    (
        "protocol",
        {"flush_bytes_read": 0},
        "record 1: a cold time, and a flush of 0 bytes, which is less than the cache",
    ),
    ("protocol", {"timing": "warm"}, "record 1: timing is cold, and the run's is warm"),
    (
        "protocol",
        {"region": "first-pass"},
        "record 1: region is total, and the run's is first-pass",
    ),
    (
        "records.3",
        {"n": 2**10},
        "record 4: bytes is 16777220, and 1024 elements of float32 are 4096",
    ),
    (
        "protocol",
        {"graph": True},
        "record 1: timing is cold, and the run replayed graphs, of which none is here",
    ),
    ("protocol", {"graph": 1}, "graph cannot be read"),
    ("protocol", {"timing": 7}, "timing cannot be read"),
    ("protocol", {"region": ["total"]}, "region cannot be read"),
    ("protocol", {"flush_bytes_read": "512 MiB"}, "flush_bytes_read cannot be"),
    ("protocol", {"flush_bytes_read": -1}, "flush_bytes_read cannot be read"),
    ("protocol", {"flush_bytes_read": 10**400}, "flush_bytes_read cannot be read"),
    ("protocol", {"rounds": 10**50}, "rounds cannot be read"),
    ("protocol", {"rounds": True}, "rounds cannot be read"),
    ("records.3", {"pattern": "bogus"}, "pattern is 'bogus'"),
]
#: Other changes that are refused.
BAD_FILES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (as_of_another_tool, "is not a result of cudareduce"),
    (lambda d: d.pop("device"), "device is missing"),
    (lambda d: d["records"][3].pop("op"), "record 4: op is missing"),
    (
        lambda d: (
            d["protocol"].update(timing=" , ", flush_bytes_read=1)
            or [one.update(timing="cold") for one in d["records"]]
        ),
        "a cold time, and a flush of 1 bytes",
    ),
    (
        lambda d: d["records"][3]["rounds_us"].__setitem__(slice(0, 5), [999.0] * 5),
        "but the median of its rounds is 999",
    ),
    (lambda d: d["records"].append(d["records"][3]), "is a second one of"),
    (lambda d: d["device"].pop("name"), "device: name is missing; bench again"),
    (lambda d: d["records"][3]["rounds_us"].append(1e-300), "a number that is no time"),
    (
        lambda d: d["device"].update(uuid="x") or d["records"][3].update(pct_ceiling="99"),
        "pct_ceiling is not a number",
    ),
    (in_other_units, "gb_s is 3.785e+05, and its memory brings 4814 at most"),
    (
        lambda d: d["protocol"].update(graph=False) or d["records"][3].update(timing="cold graph"),
        "record 4: timing is cold graph, and the run replayed no graph",
    ),
]


def with_fields(place: str, fields: dict[str, Any]) -> Callable[[dict[str, Any]], object]:
    """Sets fields of the object at a path such as records.3."""

    def change(data: Any) -> None:
        for key in filter(None, place.split(".")):
            data = data[int(key) if key.isdigit() else key]
        data.update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [*((with_fields(place, fields), why) for place, fields, why in BAD_FIELDS), *BAD_FILES],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    cudareduce: Call, tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    bad = changed(tmp_path / "bad.json", change)
    for command in (
        ("compare", bad, AFTER), ("compare", BEFORE, bad), ("check", "--baseline", bad),
    ):  # fmt: skip
        code, out, err = cudareduce(*command)
        assert (code, out) == (2, "")
        assert message in err
        assert str(bad) in err
        assert err.count("\n") == 1


@pytest.mark.parametrize("us", [0.0, -1.0])
def test_a_time_that_is_not_above_zero_is_not_drawn(
    cudareduce: Call, tmp_path: Path, us: float
) -> None:
    data = json.loads(BEFORE.read_text())
    data["records"][2]["time_us"] = us
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(data))
    for command in (("plot", bad), ("report", bad, "--html", tmp_path / "page.html")):
        code, out, err = cudareduce(*command)
        assert (code, out) == (2, "")
        assert f"{bad}: record 3: time_us is {us:g}, and a time is above 0; bench again" in err
        assert err.count("\n") == 1


def test_a_record_without_a_kernel_is_refused(cudareduce: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(BEFORE.read_text().replace('"kernel":"reduce_v0_baseline"', '"kernel":" "', 1))
    code, _, err = cudareduce("compare", AFTER, bad)
    assert (code, "record 1: it does not name its kernel; bench again" in err) == (2, True)


def test_a_run_is_not_compared_with_itself(cudareduce: Call, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(BEFORE.read_bytes())
    for old, new in ((BEFORE, BEFORE), (BEFORE, copy)):
        code, out, err = cudareduce("compare", old, new)
        assert (code, out) == (2, "")
        assert f"{new} holds the same measurement as {old}: measure again, then compare" in err


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(created="2026-03-01T00:00:00+00:00"),
        lambda data: data["records"].reverse(),
        lambda data: data["records"].pop(),
        lambda data: data["tool"].update(git="0123456789ab"),
    ],
)
def test_a_copy_of_a_run_is_refused_as_the_same_measurement(
    cudareduce: Call, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    data = json.loads(BEFORE.read_text())
    data["created"] = "2026-02-01T00:00:00+00:00"
    change(data)
    copy = tmp_path / "copy.json"
    copy.write_text(json.dumps(data))
    code, out, err = cudareduce("compare", BEFORE, copy)
    assert (code, out) == (2, "")
    assert "holds the same measurement as" in err


def test_both_runs_are_described_above_the_table(cudareduce: Call, tmp_path: Path) -> None:
    stored = load(AFTER)
    later = replace(
        stored, created="2026-02-03T04:05:06+00:00",
        tool={**stored.tool, "git": "0123456789ab-dirty", "version": "9.9"},
        protocol={**stored.protocol, "rounds": 9, "flush_bytes_read": 2**27},
    )  # fmt: skip
    path = tmp_path / "later.json"
    write_text(path, to_json(later))
    out = cudareduce("compare", BEFORE, path, "--threshold", "2%")[1].splitlines()
    assert out[1:3] == [
        "old: 2026-01-01 00:00 UTC, cudareduce 0.1.0, NVIDIA H200 GPU-00000000, 9 rounds",
        "new: 2026-02-03 04:05 UTC, cudareduce 9.9 at 0123456789ab-dirty, NVIDIA H200 "
        "GPU-00000000, 9 rounds, flush of 128 MiB",
    ]
    page = tmp_path / "page.md"
    cudareduce("compare", BEFORE, path, "--threshold", "2%", "--markdown", page)
    assert "\nold: 2026-01-01 00:00 UTC" in page.read_text()


def test_runs_with_different_cache_flushes_are_reported(cudareduce: Call, tmp_path: Path) -> None:
    sides = []
    for name, flush in (("a", 2**27), ("b", 2**29)):
        stored = load(BEFORE if name == "a" else AFTER)
        sides.append(tmp_path / f"{name}.json")
        write_text(sides[-1], to_json(replace(
            stored, protocol={**stored.protocol, "flush_bytes_read": flush}
        )))  # fmt: skip
    out = cudareduce("compare", *sides, "--threshold", "2%")[1]
    assert "measured differently: flush of 128 MiB, now 512 MiB" in out


def test_runs_with_different_timings_are_reported(cudareduce: Call, tmp_path: Path) -> None:
    stored, sides = load(BEFORE), []
    for name, graph in (("a", False), ("b", True)):
        records = [*stored.records]
        if graph:
            records = nudged(records)
            records += [replace(r, timing="cold graph") for r in stored.records]
        protocol = {**stored.protocol, "graph": graph}
        path = tmp_path / f"{name}.json"
        created = f"2026-02-0{1 + graph}T00:00:00+00:00"
        write_text(path, to_json(replace(
            stored, created=created, protocol=protocol, records=tuple(records)
        )))  # fmt: skip
        sides.append(path)
    out = cudareduce("compare", *sides)[1]
    assert "measured differently: graphs none, now replayed" in out


@pytest.mark.parametrize("created", ["9999-12-31T23:59:59-23:00", "yesterday", ""])
def test_an_invalid_date_is_printed_unchanged(
    cudareduce: Call, tmp_path: Path, created: str
) -> None:
    path = tmp_path / "odd.json"
    write_text(path, to_json(replace(load(AFTER), created=created)))
    out = cudareduce("compare", BEFORE, path, "--threshold", "2%")[1]
    assert f"new: {created or 'no date'}, cudareduce" in out


def test_a_run_that_was_cut_short_is_marked(cudareduce: Call, tmp_path: Path) -> None:
    stored = load(AFTER)
    path = tmp_path / "short.json"
    for rounds, words in ((99, "9 of 99 rounds"), (9, "9 rounds")):
        write_text(path, to_json(replace(stored, protocol={**stored.protocol, "rounds": rounds})))
        head = cudareduce("compare", BEFORE, path, "--threshold", "2%")[1].splitlines()[2]
        assert head.endswith(f", {words}")


def test_truncated_missing_and_not_json(cudareduce: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    for text in (
        BEFORE.read_text()[:5000],
        "",
        "hello",
        "[]",
        "\x00\xff",
        "[" * 100_000,
        "9" * 5000,
    ):
        bad.write_text(text, encoding="latin-1")
        for command in (("compare", bad, AFTER), ("check", "--baseline", bad)):
            code, _, err = cudareduce(*command)
            assert code == 2
            assert "is cut short" in err or "is not a result of cudareduce" in err
    missing = tmp_path / "missing.json"
    for command in (("compare", missing, AFTER), ("check", "--baseline", missing)):
        code, _, err = cudareduce(*command)
        assert code == 5
        assert f"there is no baseline {missing}: make it with cudareduce bench --json" in err
    code, _, err = cudareduce("compare", BEFORE, missing)
    assert code == 2
    assert f"there is no {missing}: make it with cudareduce bench --json" in err
    assert cudareduce("compare", tmp_path, AFTER)[0] == 2


def unreadable(cudareduce: Call, path: Path) -> None:
    for command in (
        ("compare", path, AFTER),
        ("compare", BEFORE, path),
        ("check", "--baseline", path),
    ):
        code, out, err = cudareduce(*command)
        assert (code, out) == (2, "")
        assert f"cannot read {path}: " in err
        assert err.count("\n") == 1


def test_a_name_that_no_file_can_have(cudareduce: Call, tmp_path: Path) -> None:
    code, out, err = cudareduce("compare", tmp_path / ("x" * 5000), AFTER)
    assert (code, out) == (2, "")
    assert "is too long for a name" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_one_may_not_enter(cudareduce: Call, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0)
    unreadable(cudareduce, folder / "old.json")


def test_a_baseline_without_any_time_is_refused(cudareduce: Call, tmp_path: Path) -> None:
    """A bench without time left skips everything; in a candidate such records are GONE."""
    untimed: dict[str, Any] = {
        "verdict": "skip", "reason": "out of time", "time_us": None, "rounds_us": (),
    }  # fmt: skip
    skipped = stored(tmp_path / "skipped.json", run(1, **untimed))
    for command in (("compare", skipped, AFTER), ("check", "--baseline", skipped)):
        code, out, err = cudareduce(*command)
        assert (code, out) == (2, "")
        assert f"{skipped} holds no times to compare with: bench again" in err
    code, out, _ = cudareduce("compare", BEFORE, skipped)
    assert code == 1
    assert "24 compared: 24 GONE" in out


def test_loaded_values_have_the_declared_types(tmp_path: Path) -> None:
    path = changed(
        tmp_path / "whole.json",
        lambda d: d["device"].update(power_limit_w=700, later=1) or d["records"][0].update(new=2),
    )
    assert load(path) == load(BEFORE)
    assert type(load(path).device.power_limit_w) is float


def test_results_of_the_emulator_are_refused_as_timings(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    ask = ("--n", 1000, "--backend", "cpu", "--quiet")
    assert cudareduce("bench", "reduce_v7_shuffle", *ask, "--json", path)[0] == 0
    for command in (("compare", path, path), ("check", "--baseline", path)):
        code, _, err = cudareduce(*command)
        assert code == 2
        assert "results from the CPU emulator, which have no times to compare" in err


def test_runs_of_another_machine_are_not_compared(cudareduce: Call, tmp_path: Path) -> None:
    def elsewhere(device: DeviceInfo) -> Path:
        return stored(tmp_path / "elsewhere.json", run(8, device=device))

    code, out, err = cudareduce("compare", BEFORE, elsewhere(replace(H200, name="NVIDIA L4")))
    assert (code, out) == (5, "")
    assert "GPU NVIDIA H200, now NVIDIA L4" in err
    code, out, _ = cudareduce(
        "compare", BEFORE, elsewhere(replace(H200, name="NVIDIA L4")), "--cross-device"
    )
    assert code == 0
    assert "shares of each card's own ceiling, not by time: GPU NVIDIA H200" in out
    code, out, _ = cudareduce("compare", BEFORE, elsewhere(replace(H200, uuid="GPU-b")))
    assert code == 0
    assert "another card of the same model" in out


@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_a_copy_with_few_changes_or_scaled_times_is_no_measurement(
    cudareduce: Call, tmp_path: Path, factor: float
) -> None:
    later = load(AFTER)
    records = [
        replace(
            r, rounds_us=tuple(us and round(us * factor, 6) for us in r.rounds_us),
            time_us=r.time_us and r.time_us * factor, time_us_low=None, time_us_high=None,
            time_us_min=None, gb_s=None, pct_ceiling=None,
        )
        for r in later.records
    ]  # fmt: skip
    records[:3] = nudged(records[:3])
    copy = tmp_path / "copy.json"
    write_text(copy, to_json(replace(later, records=tuple(records))))
    code, out, err = cudareduce("compare", AFTER, copy)
    assert (code, out) == (2, "")
    assert f"{copy} is a copy of {AFTER} with changes: 21 of 24 cases have the same or" in err
    assert cudareduce("compare", BEFORE, AFTER)[0] == 0


def test_identical_code_on_another_model_is_not_judged(cudareduce: Call) -> None:
    runs = (
        ROOT / "results" / f"nvidia-{card}" / "bench-2p25-float32.json" for card in ("h100", "h200")
    )
    code, out, _ = cudareduce("compare", *runs, "--cross-device", "--allow-gone")
    assert code == 0
    assert "47 compared: 20 GONE, 27 not judged" in out
    assert "their share of the ceiling differs by -26.5%" in out
    assert "SAME" not in out and "MACHINE" not in out


def test_a_noisy_file_is_no_error(cudareduce: Call, tmp_path: Path) -> None:
    """All is UNCERTAIN: nothing is decided, and the smallest detectable slowdown is shown."""
    noisy = stored(tmp_path / "noisy.json", run(9, drift=0.04, new_code=KERNELS))
    later = stored(tmp_path / "later.json", run(10, drift=0.04))
    code, out, _ = cudareduce("compare", noisy, later, "--threshold", "1%")
    assert code == 4
    assert "24 compared: 24 UNCERTAIN" in out
    assert "Nothing was decided: no kernel has" in out
    told = re.search(r"detects slowdowns >= (\d+(?:\.\d+)?) % with 95 % probability", out)
    assert told is not None
    assert 6 < float(told[1]) < 12
    assert cudareduce("compare", noisy, later, "--threshold", "1%", "--strict")[0] == 4


@pytest.mark.parametrize(
    "ask", [("compare", BEFORE, AFTER), ("check", "--baseline", BEFORE), ("check", "--base", DATA),
            ("check", "--self", "2"), ("check", "--compile", "--base", DATA)],
)  # fmt: skip
def test_no_file_takes_the_place_of_the_thresholds(
    cudareduce: Call, tmp_path: Path, ask: tuple[object, ...]
) -> None:
    limits = tmp_path / "limits.toml"
    limits.write_text('default = "3%"')
    code, _, err = cudareduce(*ask, "--thresholds", limits, "--markdown", limits)
    assert (code, "--markdown and what is read are one file" in err) == (2, True)
    assert limits.read_text() == 'default = "3%"'


def test_thresholds_of_single_kernels(cudareduce: Call, tmp_path: Path) -> None:
    path, known = tmp_path / "limits.toml", ("reduce_v6_multi_add", "reduce_v7_shuffle")
    path.write_text('default = "2%"\n[kernel]\n"reduce_v6*" = "4%"\n')
    assert cudareduce("compare", BEFORE, AFTER, "--thresholds", path)[0] == 0
    assert load_thresholds(path, 0.5, known).of("reduce_v7_shuffle") == 0.5
    assert load_thresholds(path, None, known).of("reduce_v7_shuffle") == 0.02
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_thresholds(path, None, known).of("reduce_v6_multi_add") == 0.04
    path.write_text('[kernel]\n"reduce_*" = "9%"\nreduce_v7_shuffle = "1%"')
    assert load_thresholds(path, None, known).of("reduce_v7_shuffle") == 0.01


@pytest.mark.parametrize(
    "option",
    [("compare", BEFORE, AFTER), ("check", "--baseline", BEFORE), ("check", "--base", "HEAD"),
     ("check", "--self", "2")],
)  # fmt: skip
def test_a_threshold_that_names_no_kernel(
    cudareduce: Call, tmp_path: Path, option: tuple[object, ...]
) -> None:
    path = tmp_path / "limits.toml"
    path.write_text('[kernel]\nauto = "1%"\n"peer:cub:*" = "1%"\nreduce_v7_shufle = "1%"\n')
    code, out, err = cudareduce(*option, "--thresholds", path)
    assert (code, out) == (2, "")
    told = f"{path}:4: no kernel is called 'reduce_v7_shufle': did you mean reduce_v7_shuffle"
    assert told in err
    path.write_text('[kernel]\n"reduce_warb_*" = "1%"\n')
    assert (
        f"{path}:2: no kernel is called 'reduce_warb_*': "
        in cudareduce(*option, "--thresholds", path)[2]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel = 3", "kernel: a threshold file has"),
        ('defualt = "3%"', "defualt: a threshold file has"),
        ("default = 3", "3 is not a threshold: write a percentage"),
        ("default = '0%'", "makes no sense"),
        ("[kernel", "is not valid TOML"),
        ("[kernel]\nk = nan", ":2: k: nan is not a threshold"),
        ("[kernel]\nk = -inf", ":2: k: -inf is not a threshold"),
        ("[kernel]\nk = '-3%'", ":2: k: '-3%' is not a threshold"),
        ("[kernel]\nk.x = '3%'", ":2: k: a table is not a threshold"),
        ("[kernel]\nk = []", ":2: k: a list is not a threshold"),
        (f"default = {5000 * '9'}", ":1: the file is not valid TOML: a number of thousands"),
        (f"default = 0x{5000 * '9'}", ":1: default: a number of 20000 bits is not a threshold"),
        (f"default = '{400 * '9'}%'", "...  makes no sense".replace("  ", " ")),
    ],
    ids=lambda text: text[:30],
)
def test_threshold_files_that_are_wrong(
    cudareduce: Call, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(text)
    code, out, err = cudareduce("compare", BEFORE, AFTER, "--thresholds", path)
    assert (code, out) == (2, "")
    assert message in err
    assert str(path) in err
    assert cudareduce("compare", BEFORE, AFTER, "--thresholds", tmp_path / "no")[0] == 2


@pytest.mark.parametrize(
    "value", ["\uff15%", "3", "0.03", "-3%", "0%", "nan%", "1e9%", "5 %%", "", "2000%"]
)
def test_thresholds_that_are_wrong(cudareduce: Call, value: str) -> None:
    code, out, err = cudareduce("compare", BEFORE, AFTER, f"--threshold={value}")
    assert (code, out) == (2, "")
    assert "threshold" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a baseline: --baseline FILE"),
        (["--compile"], "name a baseline: --baseline FILE (written by check --compile --update"),
        (["--base", "HEAD", "--baseline", "x"], "exclude each other"),
        (["--base", "HEAD", "--update-baseline"], "--update-baseline does not apply to --base"),
        (["--baseline", "x", "--n", "9"], "--n does not apply to --baseline"),
        (["--baseline", "x", "--arch", "90"], "--arch does not apply to --baseline"),
        (["--baseline", "x", "--compile", "--strict"], "--strict does not apply to --compile"),
        (["--baseline", "x", "--compile", "--arch", "sm"], "is not an architecture"),
        (["--base", "HEAD", "--json", "x"], "--json does not apply to --base"),
        (["--baseline", str(BEFORE), "--update-baseline", "all"], "a baseline is one whole run"),
        (["--baseline", str(BEFORE), "nobody"], "no kernel or suite is called 'nobody'"),
        (["--baseline", str(BEFORE), "--junit", "no/such/file"], "does not exist; create it"),
    ],
)
def test_options_that_do_not_go_together(
    cudareduce: Call, arguments: list[str], message: str
) -> None:
    code, out, err = cudareduce("check", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_ten_thousand_records_are_compared(cudareduce: Call, tmp_path: Path) -> None:
    names = [f"kernel_{k}" for k in range(25)]
    paths = []
    for seed, slower in ((1, {}), (2, {"kernel_7": 0.3})):
        made = run(seed, kernels=names, sizes=range(2**20, 2**20 + 8), slower=slower)
        many = [replace(r, kernel=f"{r.kernel}_{k}") for k in range(50) for r in made.records]
        paths.append(stored(tmp_path / f"{seed}.json", replace(made, records=tuple(many))))
    code, out, err = cudareduce("compare", *paths)
    assert code == 1, err
    assert "10000 compared: 400 SLOWER, 9600 SAME" in out


def test_stored_runs_are_what_the_simulation_makes() -> None:
    assert len(load(BEFORE).records) == len(KERNELS) * len(SIZES)


def test_several_gpus_have_the_memory_of_each(cudareduce: Call) -> None:
    """An array over two is read at twice the rate of one."""
    stored = ROOT / "results" / "nvidia-h100" / "ranks-spread.json"
    code, _, err = cudareduce("compare", stored, stored)
    assert code == 2
    assert "holds the same measurement as" in err and "contradicts itself" not in err
