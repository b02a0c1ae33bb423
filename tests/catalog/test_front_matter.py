"""Broken headers: each error names the file, the line, the key and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudareduce.catalog.kernel import load_kernel
from cudareduce.catalog.registry import load_registry
from cudareduce.errors import UsageError
from cudareduce.launch.prelude import source
from cudareduce.reduction.operators import reduction_of
from tests.conftest import ROOT

GOOD = """/*+++
title = "Mine"
change = "everything"
scope = "grid"
grid = "cover"
walk = "tile"
finish = "relaunch"
block = 256
blocks = [128, 256]
+++*/
extern "C" __global__ void mine(const In *in, Out *out, size_t n) {}
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine.cu"


def test_valid_front_matter_is_loaded(mine: Path) -> None:
    mine.write_text(GOOD)
    kernel = load_kernel(mine)
    assert (kernel.id, kernel.blocks, kernel.items, kernel.order) == ("mine", (128, 256), 1, "any")
    assert "matmul" not in kernel.ops
    assert kernel.why_not_block(512) == "takes blocks of 128, 256 threads, not 512"
    assert kernel.why_not_items(4) == "has 1 item per thread, not 4"


HEADER = "#pragma once\n__device__ Acc twice(Acc a) { return Op::combine(a, a); }\n"
USES_HEADER = GOOD.replace("extern", '#include "twice.cuh"\nextern')


def test_an_included_file_with_pragma_once_is_part_of_the_kernel(mine: Path) -> None:
    mine.write_text(USES_HEADER)
    mine.with_name("twice.cuh").write_text(HEADER)
    kernel = load_kernel(mine)
    lines = source(kernel, reduction_of("sum", "float32"), "only", 256, 1).text.splitlines()
    start = lines.index('#line 1 "twice.cuh"')
    assert lines[start + 2] == "__device__ Acc twice(Acc a) { return Op::combine(a, a); }"
    assert "#pragma once" not in lines
    after = lines.index(f'#line 12 "{mine}"')
    assert lines[after + 1] == mine.read_text().splitlines()[11]


def test_a_change_of_an_included_file_changes_the_kernel(mine: Path) -> None:
    mine.write_text(USES_HEADER)
    mine.with_name("twice.cuh").write_text(HEADER)
    before = load_kernel(mine).sha
    mine.with_name("twice.cuh").write_text(HEADER.replace("(a, a)", "(a, Op::identity())"))
    assert load_kernel(mine).sha != before


def test_other_headers_are_left_to_the_compiler(mine: Path) -> None:
    mine.write_text(USES_HEADER)
    mine.with_name("twice.cuh").write_text(HEADER.replace("#pragma once\n", ""))
    kernel = load_kernel(mine)
    assert kernel.headers == ()
    assert kernel.code == kernel.text


def test_what_is_counted_in_bytes_follows_the_type() -> None:
    kernel = load_registry().kernels["reduce_tiles"]
    assert [kernel.items_of(size) for size in (1, 2, 4, 8)] == [64, 32, 16, 8]
    assert [kernel.vector_of(size) for size in (1, 2, 4, 8, 16)] == [16, 8, 4, 2, 1]
    assert kernel.why_not_items(4, 4) is None
    why = "loads 16 items at a time, so items must be a multiple, not 4"
    assert kernel.why_not_items(4, 1) == why
    int8 = reduction_of("argmax", "int8")
    first, last = (source(kernel, int8, stage, 512, 64).text for stage in ("first", "last"))
    assert "ITEMS = 64, VECTOR = 16;" in first
    assert "ITEMS = 4, VECTOR = 1;" in last


def test_a_workspace_grows_with_the_grid() -> None:
    kernels = load_registry().kernels
    argmax = reduction_of("argmax", "float32")
    assert kernels["reduce_tiles_mailbox"].workspace_bytes(argmax, 100) == 100 * 2 * 16
    assert kernels["reduce_tiles_self_reset"].workspace_bytes(argmax, 100) == 16


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('walk = "tile"', 'walk = "crawl"',
         ":6: walk: 'crawl' is not one of: element, tile, grid_stride, tickets"),
        ('scope = "grid"', 'scoop = "grid"', ":4: scoop: unknown key; did you mean scope?"),
        ('finish = "relaunch"\n', "",
         ":8: finish: this key is missing from the front matter (one of: relaunch,"),
        ("block = 256", "block = 64", ":8: block: the default 64 is not among blocks [128, 256]"),
        ("block = 256", "block = -1", ":8: block: must be a whole number above 0"),
        ("block = 256", "block = true", ":8: block: must be a whole number above 0"),
        ("block = 256", 'block = 256\ndynamic_shared = "1 Acc each"',
         ':9: dynamic_shared: must be bytes per block, at most 49152, or a text such as "1 Acc a'),
        ("block = 256", "block = 256\ndynamic_shared = 49153", ":9: dynamic_shared: must be bytes"),
        ('finish = "relaunch"', 'finish = "mailbox"',
         ':7: finish: workspace and one of "mailbox" or "self_reset" or'),
        ("block = 256", "block = 256\nworkspace = 8", ":7: finish: workspace and one of"),
        ("block = 256", 'block = 256\nworkspace = "1 Acc a thread"',
         ':9: workspace: must be bytes, at most 1048576, or a text such as "1 Acc a block"'),
        ("block = 256", "block = 256\nitems = 4\nitems_bytes = 16",
         ":9: items: items_bytes gives the same in bytes: remove one of them"),
        ("size_t n) {}", "size_t n) {\n  extern __shared__ float cells[];\n}",
         ":12: extern __shared__ memory has no size: add dynamic_shared to the front"),
        ("[128, 256]", "[100, 256]", ":9: blocks: 100 is not one of: 32, 64"),
        ("[128, 256]", '"256"', ":9: blocks: must be a list"),
        ("[128, 256]", "[]", ":9: blocks: must not be empty"),
        ("[128, 256]", "[256.0]", ":9: blocks: 256.0 is not one of: 32, 64"),
        ("[128, 256]", "[256, true]", ":9: blocks: True is not one of: 32, 64"),
        ("[128, 256]", "[[256]]", ":9: blocks: a list is not one of: 32, 64"),
        ("[128, 256]", "[{a = 1}]", ":9: blocks: a table is not one of: 32, 64"),
        ("[128, 256]", "[256, 128, 256]", ":9: blocks: 256 is listed twice"),
        ("[128, 256]", f"[0x1{4000 * '0'}]", ":9: blocks: a number of 16001 bits is not one of"),
        ("block = 256", f"block = {10_000 * '9'}",
         ":8: the front matter is not valid TOML: a number of thousands of digits"),
        ("block = 256", f"block = 0x1{4000 * '0'}", ":8: block: must be a whole number above 0"),
        ("block = 256", "block = 2048", ":8: block: must be a whole number above 0, at most 1024"),
        ("block = 256", "block = nan", ":8: block: must be a whole number above 0"),
        ("block = 256", "block.x = 256", ":8: block: must be a whole number above 0"),
        ("block = 256", "block = 256\nitems = 1025", ":9: items: must be a whole number above 0"),
        ("block = 256", "block = 256\nvector = 1e999", ":9: vector: must be a whole number above"),
        ("block = 256", "block = 256\nfixed_grid = 2147483648", ":9: fixed_grid: must be a whole"),
        ("block = 256", "block = 256\nops = []", ":9: ops: must not be empty"),
        ("block = 256", 'block = 256\nmin_cc = "new"', ":9: min_cc: must be a compute capability"),
        ('title = "Mine"', "title = 2024-02-30", ":2: the front matter is not valid TOML"),
        ('title = "Mine"', "title = 2024-02-29", ":2: title: must be a non-empty text"),
        ('walk = "tile"', f"walk = 0x1{4000 * '0'}", ":6: walk: a number of 16001 bits is not one"),
        ('title = "Mine"', 'title = ""', ":2: title: must be a non-empty text"),
        ('title = "Mine"', "title = Mine", ":2: the front matter is not valid TOML"),
        ("+++*/", "*/", ":1: the front matter opened by /*+++ is never closed by +++*/"),
        ('grid = "cover"', 'grid = "fixed"', ":5: grid: fixed_grid (number of blocks) and"),
        ('walk = "tile"', 'walk = "fixed_warps"', ":6: walk: fixed_warps (number of warps) and"),
        ("void mine(", "void yours(", ":1: no entry point: the file must define"),
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_invalid_front_matter_is_rejected_with_its_line(
    mine: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    mine.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError) as caught:
        load_kernel(mine)
    assert f"{mine}{message}" in str(caught.value)


def test_a_file_that_cannot_be_read(mine: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*mine\.cu: No such file"):
        load_kernel(mine)
    mine.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        load_kernel(mine)


def test_a_predecessor_that_is_not_there(tmp_path: Path, mine: Path) -> None:
    mine.write_text(GOOD.replace('title = "Mine"', 'title = "Mine"\nafter = "nobody"'))
    with pytest.raises(UsageError, match="after: there is no kernel 'nobody'"):
        load_registry([tmp_path])


def test_two_kernels_of_one_name(tmp_path: Path) -> None:
    other = tmp_path / "reduce_atomic.cu"
    other.write_text(GOOD.replace("void mine", "void reduce_atomic"))
    with pytest.raises(UsageError, match="have the same name"):
        load_registry([tmp_path])


@pytest.mark.parametrize(
    ("says", "nbytes"),
    [
        ("0", 0),
        ("1024", 1024),
        ('"Acc a thread"', 256 * 16),
        ('"2 Acc a warp"', 2 * 8 * 16),
        ('"3 Element a block"', 12),
        ('"8 bytes a thread"', 2048),
        ('"1 Scalar a warp"', 8 * 4),
    ],
)
def test_shared_memory_that_a_launch_gives(mine: Path, says: str, nbytes: int) -> None:
    header = GOOD.replace("block = 256", f"block = 256\ndynamic_shared = {says}")
    mine.write_text(header.replace("{}", "{ extern __shared__ Acc cells[]; }"))
    assert load_kernel(mine).shared_bytes(reduction_of("argmax", "float32"), 256) == nbytes


def test_parameters_that_contradict_the_front_matter_are_an_error(tmp_path: Path) -> None:
    text = (ROOT / "kernels" / "rows" / "reduce_rows_tree.cu").read_text()
    path = tmp_path / "reduce_rows_tree.cu"
    path.write_text(text)
    assert load_kernel(path).scope == "rows"
    path.write_text(text.replace(", size_t rows)", ")"))
    with pytest.raises(UsageError) as caught:
        load_kernel(path)
    assert str(caught.value).startswith(f"{path}:17: reduce_rows_tree takes 3 parameters, but")
    assert "it is called with 4: in, out, n, rows; change them, or" in str(caught.value)
    path.write_text(text.replace(", size_t rows)", ", PARAMETERS)"))
    load_kernel(path)  # a macro may be anything
