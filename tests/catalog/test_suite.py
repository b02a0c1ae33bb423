"""The published experiments: names in their order, figures, errata, and the kernels' lineage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.catalog.suite import Suite, load_suite
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.patterns import PATTERNS

REGISTRY = load_registry()
KERNELS, SUITES = REGISTRY.kernels, REGISTRY.suites

NAMES = {
    "bbuf": [
        "reduce_baseline",
        "reduce_v1_interleaved_addressing",
        "reduce_v2_bank_conflict_free",
        "reduce_v3_idle_threads_free",
        "reduce_v4_unroll_last_warp",
        "reduce_v5_completely_unroll",
        "reduce_v6_multi_add",
    ],
    "fastcuda": [
        "V0 baseline",
        "V1 no divergence",
        "V2 no bank conflict",
        "V3 add during load",
        "V4 unroll last warp",
        "V5 completely unroll",
        "V6 multi add",
        "V7 shuffle",
    ],
    "five-steps": ["reduce1", "reduce2", "reduce2, block atomic", "reduce3", "reduce4", "reduce5"],
    "gpumode": [
        "ladder, last step",
        "tiles",
        "tiles, last block",
        "tiles, no fence",
        "tiles, mailbox",
        "tiles, self-clearing",
        "tiles, same bits",
    ],
    "leimao": ["batched_reduce_sum_v1", "batched_reduce_sum_v2", "large arrays"],
    "stackoverflow": [
        "sumCommSingleBlock",
        "sumNoncommSingleBlock",
        "sumCommMultiBlock",
        "sumCommMultiBlock with lastBlock",
        "sumNoncommMultiBlock",
        "sumCommSingleWarp",
        "sumCommSingleWarp (simplified)",
        "sumCommSingleBlockWithWarps",
        "sumNoncommSingleWarp",
        "sumNoncommSingleWarpPadded",
        "sumSingleWarpReg",
    ],
}

#: The guide's matrix in the words of the headers: one row a version, one column a technique.
FASTCUDA_COLUMNS = (
    "no_divergence", "no_bank_conflict", "first_add", "warp_unroll", "template_unroll",
    "multi_add", "shuffle",
)  # fmt: skip
FASTCUDA_MATRIX = [
    "-------", "x------", "xx-----", "xxx----", "xxxx---", "xxxxx--", "xx-xxx-", "xx---xx",
]  # fmt: skip

#: time_us, utilisation_pct, speedup, and what bytes over time make of the card's 1555 GB/s.
BBUF_FIGURES = [
    (990.66, 39.57, None, 8.7),
    (479.58, 81.74, 2.06, 18.0),
    (462.02, 84.81, 2.144, 18.7),
    (244.16, 83.16, 4.057, 35.4),
    (167.10, 54.10, 5.928, 51.7),
    (158.78, 56.94, 6.239, 54.4),
    (105.47, 85.75, 9.392, 81.8),
]

EXPERIMENT = {
    "op", "dtype", "n", "rows", "block", "pattern", "region", "gpu", "gpu_peak_gb_s", "timed",
    "note", "errata",
}  # fmt: skip


def test_the_suites_are_the_published_ones() -> None:
    assert {name: [row.name for row in suite.rows] for name, suite in SUITES.items()} == NAMES


@pytest.mark.parametrize("suite", SUITES.values(), ids=SUITES)
def test_each_stored_experiment_can_be_run(suite: Suite) -> None:
    asked: dict[str, Any] = dict(suite.experiment)
    assert set(asked) <= EXPERIMENT
    assert asked["region"] in ("total", "first-pass")
    assert asked.get("pattern", "random") in PATTERNS
    assert asked["op"] in OPERATORS
    assert asked["dtype"] in DTYPES
    assert "n" in asked or all(row.n for row in suite.rows)
    for row in suite.rows:
        kernel = KERNELS[row.kernel]
        assert asked["op"] in kernel.ops, row.name
        assert asked["dtype"] in kernel.dtypes, row.name
        assert (row.block or asked["block"]) in kernel.blocks, row.name
        rows = row.rows or asked.get("rows", 1)
        for n in [row.n] if row.n else asked["n"]:
            assert kernel.why_not_shape(n, rows) is None, row.name


def test_a_version_two_authors_share_is_one_kernel() -> None:
    def kernels(suite: str) -> list[str]:
        return [row.kernel for row in SUITES[suite].rows]

    assert kernels("bbuf")[:6] == kernels("fastcuda")[:6]
    assert kernels("five-steps")[1] == kernels("fastcuda")[2]
    assert kernels("five-steps")[5] == kernels("fastcuda")[7]
    for suite in SUITES:
        assert len(set(kernels(suite))) == len(kernels(suite))


def test_every_kernel_that_a_suite_names_exists() -> None:
    named = {row.kernel for suite in SUITES.values() for row in suite.rows}
    assert named <= set(KERNELS)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_says_what_it_is_and_what_changed(kernel: Kernel) -> None:
    assert kernel.title
    assert kernel.change
    assert kernel.expect
    if kernel.after is not None:
        assert kernel.change != KERNELS[kernel.after].change


def test_lineages_end_in_a_root() -> None:
    for kernel in KERNELS.values():
        seen = {kernel.id}
        while kernel.after is not None:
            kernel = KERNELS[kernel.after]
            assert kernel.id not in seen
            seen.add(kernel.id)


def test_no_two_kernels_have_one_title_or_change() -> None:
    for texts in ([k.title for k in KERNELS.values()], [k.change for k in KERNELS.values()]):
        assert len(set(texts)) == len(texts)


def test_fastcudas_matrix_follows_from_the_headers() -> None:
    derived = [
        "".join("x" if word in KERNELS[row.kernel].techniques else "-" for word in FASTCUDA_COLUMNS)
        for row in SUITES["fastcuda"].rows
    ]
    assert derived == FASTCUDA_MATRIX


def test_an_ordered_kernel_takes_operators_that_do_not_commute() -> None:
    ordered = {kernel.id for kernel in KERNELS.values() if kernel.order == "kept"}
    published = {
        row.kernel
        for row in SUITES["stackoverflow"].rows
        if "Noncomm" in row.name or row.name == "sumSingleWarpReg"
    }
    assert published <= ordered
    for kernel in KERNELS.values():
        assert ({"matmul", "affine"} <= set(kernel.ops)) == (kernel.id in ordered)
        assert ("order_kept" in kernel.techniques) == (kernel.id in ordered)


def test_bbufs_figures_and_what_they_mean() -> None:
    suite = SUITES["bbuf"]
    nbytes = suite.experiment["n"][0] * 4
    for row, (time_us, utilisation, speedup, share) in zip(suite.rows, BBUF_FIGURES, strict=True):
        figures = {"time_us": time_us, "utilisation_pct": utilisation, "speedup": speedup}
        assert row.published == {key: value for key, value in figures.items() if value is not None}
        gb_s = nbytes / time_us / 1e3
        assert round(100 * gb_s / suite.experiment["gpu_peak_gb_s"], 1) == share


def test_leimaos_figures_agree_with_each_other() -> None:
    suite = SUITES["leimao"]
    rows, (n,) = suite.experiment["rows"], suite.experiment["n"]
    published = [row.published for row in suite.rows]
    assert published == [
        {"time_us": 2429.76, "gb_s": 883.83},
        {"time_us": 2443.03, "gb_s": 879.028},
        {},
    ]
    for figures in published[:2]:
        gb_s = rows * (n + 1) * 4 / figures["time_us"] / 1e3
        assert gb_s == pytest.approx(figures["gb_s"], rel=1e-3)


def test_errors_of_a_publication_are_listed() -> None:
    silent = {
        f"{suite.id}: {row.name}" for suite in SUITES.values() for row in suite.rows
        if not row.erratum
    }  # fmt: skip
    assert silent == {
        "bbuf: reduce_baseline",
        "bbuf: reduce_v2_bank_conflict_free",
        "bbuf: reduce_v3_idle_threads_free",
        "five-steps: reduce2",
        "five-steps: reduce2, block atomic",
        *(f"gpumode: {name}" for name in NAMES["gpumode"]),  # they were never in print
        "leimao: batched_reduce_sum_v2",
        "leimao: large arrays",
        "stackoverflow: sumCommSingleBlock",
    }


SUITE = """title = "A note"
source = "somebody"
op = "sum"
dtype = "float32"
n = [1024]
block = 256
[[row]]
name = "one"
kernel = "reduce_v7_shuffle"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "A note"', "title = 3", ":1: title: 3 is not a non-empty text"),
        ('source = "somebody"\n', "", ": source: this key is missing from the suite"),
        ('op = "sum"', 'op = "xor"', ":3: op: 'xor' is not one of: sum, prod"),
        ("n = [1024]", "n = 1024", ":5: n: 1024 is not a non-empty list, each a whole number"),
        ("n = [1024]", "n = []", ":5: n: a list is not a non-empty list"),
        ("n = [1024]", f"n = [{5000 * '9'}]", ":5: the suite is not valid TOML: a number of thous"),
        ("n = [1024]", f"rows = 0x{5000 * 'f'}", ":5: rows: a number of 20000 bits is not a whole"),
        ("block = 256", "block = 256.0", ":6: block: 256.0 is not one of: 32"),
        ("block = 256", "gpu_peak_gb_s = nan", ":6: gpu_peak_gb_s: nan is not a number from"),
        ("block = 256", "grid = 3", ":6: grid: unknown key; the keys are: rows, block"),
        ('name = "one"', "name = true", ": row 1: name: True is not a non-empty text"),
        ('name = "one"', 'name = "one"\nblok = 3', ": row 1: blok: unknown key; did you mean"),
        ('kernel = "reduce_v7_shuffle"\n', "", ": row 1: kernel: this key is missing"),
        ('name = "one"', 'name = "one"\npublished = {time_us = -1}',
         ": row 1: published: time_us: -1 is not a number from"),
        ('name = "one"', 'name = "one"\npublished = {time_us = 1}',
         ": row 1: published: time_us requires the keys gpu"),
        ("[[row]]", '[[row]]\nname = "one"\nkernel = "k"\n[[row]]',
         ": row 2: name: 'one' is used twice"),
        ("[[row]]", "[row]", ":7: row: a suite has a table [[row]] for each"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_an_invalid_suite_is_rejected_with_its_key(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SUITE
    path = tmp_path / "mine.toml"
    path.write_text(SUITE.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_suite(path)
    assert f"{path}{message}" in str(caught.value)


def test_a_suite_of_another_editor(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SUITE.replace("\n", "\r\n").encode())
    assert [row.name for row in load_suite(path).rows] == ["one"]
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match=r"cannot read .*mine\.toml: Is a directory"):
        load_suite(path)
