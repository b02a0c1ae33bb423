"""The content of the page, without its layout."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cudareduce.catalog.registry import Registry
from cudareduce.report.page.content import Branch, errata, lineage, sheet
from cudareduce.results.store import load
from tests.report.plot.runs import BENCH, H200, PEERS, with_records


def test_a_row_has_the_cells_of_a_table_and_its_elements() -> None:
    run = load(BENCH)
    shown = sheet(run, "bench", {})
    assert shown.header == (
        "kernel", "what", "verdict", "n", "us", "GB/s", "%peak", "%ceil", "speedup", "vs prev",
        "why",
    )  # fmt: skip
    row = next(row for row in shown.rows if row.cells[0] == "reduce_v6_multi_add")
    assert row.cells[:6] == (
        "reduce_v6_multi_add", "sum of float32", "right", "2^25", "40.2±.2", "3340±10",
    )  # fmt: skip
    assert (row.elements, row.kernel) == (2**25, "reduce_v6_multi_add")
    assert (shown.rows[-1].cells[3], shown.rows[-1].elements) == ("32 x 2^20 rows", 2**25)
    assert shown.filters == {"n": ["2^25", "32 x 2^20 rows"]}
    assert [shown.header[k] for k in shown.numbers] == [
        "n", "us", "GB/s", "%peak", "%ceil", "speedup", "vs prev",
    ]  # fmt: skip


def test_a_time_far_below_the_timer_resolution_is_marked() -> None:
    run = load(BENCH)
    records = [replace(r, time_us=1e-300, gb_s=1e308) for r in run.records]
    assert sheet(with_records(run, records), "bench", {}).rows


def test_the_protocol_is_two_sentences() -> None:
    for path in (BENCH, PEERS):
        told = sheet(load(path), "x", {}).protocol
        assert told.count(". ") + told.endswith(".") == 2, told
    assert (
        "9 independent rounds, each after reading 512 MiB" in sheet(load(BENCH), "x", {}).protocol
    )


def test_failed_and_skipped_records_have_their_reasons() -> None:
    run = load(PEERS)
    shown = sheet(run, "peers", {})
    assert shown.counts == "324 records: 263 right, 1 WRONG, 60 skipped; 191 timed"
    verdicts = {row.cells[2] for row in shown.rows}
    assert verdicts == {"right", "WRONG", "skipped"}
    assert all(row.cells[-1] for row in shown.rows if row.cells[2] != "right")


def test_without_times_there_are_no_pictures_and_the_protocol_says_so() -> None:
    run = load(BENCH)
    untimed = [replace(r, time_us=None, gb_s=None) for r in run.records]
    shown = sheet(with_records(run, untimed), "x", {})
    assert shown.figures == {}
    assert "Nothing was timed" in shown.protocol


def test_a_publication_s_names_lead_to_kernels() -> None:
    rows = sheet(load(H200 / "reproduce-bbuf.json"), "bbuf", {}).rows
    assert ("reduce_baseline", "reduce_v0_baseline") in {(row.cells[0], row.kernel) for row in rows}


def test_every_kernel_is_once_in_the_lineage(registry: Registry) -> None:
    def ids(branch: Branch) -> list[str]:
        below = [name for b in branch.branches for name in ids(b)]
        return [kernel.id for kernel in branch.chain] + below

    told = [name for branch in lineage(registry) for name in ids(branch)]
    assert sorted(told) == sorted(registry.kernels)
    for branch in lineage(registry):
        for before, after in pairwise(branch.chain):
            assert after.after == before.id


def test_errata_are_those_of_the_suites(registry: Registry) -> None:
    told = " ".join(text for _, texts in errata(registry.suites.values()) for text in texts)
    for suite in registry.suites.values():
        for row in suite.rows:
            assert row.erratum in told


def test_a_kernel_that_has_changed_since_is_named() -> None:
    run = load(BENCH)
    first = run.records[0]
    assert first.source_sha is not None
    assert sheet(run, "x", {first.kernel: first.source_sha}).changed == ()
    assert sheet(run, "x", {first.kernel: "another"}).changed == (first.kernel,)
