"""Tables of choices: written, read again, left out where they no longer hold, refused if bad."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.catalog.registry import AUTO, AUTO_FIXED, Registry
from cudareduce.errors import UsageError
from cudareduce.launch.auto.choose import Chooser
from cudareduce.launch.auto.rule import Facts
from cudareduce.launch.auto.table import Entry, file_name, read_table, tables_of, write_table
from cudareduce.launch.case import Case
from cudareduce.machine import DEFAULT_LIMITS, DeviceInfo
from cudareduce.reduction.operators import reduction_of
from tests.simulate import H200

Call = Callable[..., tuple[int, str, str]]
SUM = reduction_of("sum", "float32")


@pytest.fixture
def entry(registry: Registry) -> Entry:
    """A choice that no formula makes."""
    kernel = registry.kernels["reduce_tiles_last_block"]
    return Entry(
        op="sum", dtype="float32", acc="float32", n=2**20, rows=1, fixed=False, kernel=kernel.id,
        block=128, items=8, grid="per_sm", source_sha=kernel.sha, time_us=5.5, time_us_low=5.4,
        time_us_high=5.6, measured="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the user's tables; no table is shipped."""
    monkeypatch.setattr("cudareduce.launch.auto.table.shipped_folder", lambda: tmp_path / "shipped")
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: tmp_path / "user")
    return tmp_path / "user"


def taken(
    registry: Registry, n: int, rows: int = 1, name: str = AUTO,
    of: tuple[str, str] = ("sum", "float32"),
) -> Case:  # fmt: skip
    facts = Facts(DEFAULT_LIMITS, H200, ())
    chooser = Chooser(name, registry.kernels, facts, tables_of(H200, registry.kernels))
    case = chooser.choose(reduction_of(*of), n, rows)
    assert case is not None
    return case


def written(folder: Path, entries: Sequence[Entry], registry: Registry) -> Path:
    path = write_table(folder, H200, entries, registry.kernels)
    assert path is not None
    return path


def planted(folder: Path, *entries: Entry) -> Path:
    """A table as another version may have left it."""
    path = folder / file_name(H200)
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "entries": [asdict(entry) for entry in entries]}))
    return path


def said(registry: Registry) -> tuple[str, ...]:
    [table] = tables_of(H200, registry.kernels)
    return table.left_out


def test_what_is_written_is_read_again(folder: Path, entry: Entry, registry: Registry) -> None:
    path = written(folder, [entry], registry)
    assert (path.parent, path.name) == (folder, file_name(H200))
    assert read_table(path).entries == (entry,)
    later = replace(entry, block=256)
    other = replace(entry, n=2**22, time_us_low=None, time_us_high=None)
    written(folder, [later, other], registry)
    assert read_table(path).entries == (later, other)


def test_a_table_is_of_gpus_that_are_alike(folder: Path, entry: Entry, registry: Registry) -> None:
    written(folder, [entry], registry)
    alike = replace(H200, driver="1", uuid="another", power_limit_w=1.0)
    assert tables_of(alike, registry.kernels)
    assert not tables_of(replace(H200, sm_count=66), registry.kernels)
    assert not tables_of(DeviceInfo("CPU emulator"), registry.kernels)


def test_the_users_table_comes_before_the_shipped_one(
    registry: Registry, folder: Path, tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    monkeypatch.setattr("cudareduce.launch.auto.table.shipped_folder", lambda: shipped)
    written(shipped, [replace(entry, block=64)], registry)
    assert taken(registry, 2**20).block == 64
    written(folder, [entry], registry)
    assert taken(registry, 2**20).block == 128


def test_an_entry_decides_for_what_is_near(registry: Registry, folder: Path, entry: Entry) -> None:
    written(folder, [entry, replace(entry, n=2**21, block=256)], registry)
    case = taken(registry, 2**20)
    assert (case.kernel.entry, case.block, case.items, case.kernel.grid) == (
        "reduce_tiles_last_block", 128, 8, "per_sm"
    )  # fmt: skip
    assert taken(registry, 2**19).block == 128
    assert taken(registry, 2**21).block == 256
    assert taken(registry, 2**20, of=("max", "int32")).block == 128  # which costs alike
    assert taken(registry, 2**20, name=AUTO_FIXED).kernel.entry == "reduce_tiles_last_block"
    for n, rows, name, of in (
        (2**17, 1, AUTO, ("sum", "float32")), (2**10, 2**10, AUTO, ("sum", "float32")),
        (2**20, 1, AUTO, ("sum", "float64")),
        (2**20, 1, AUTO, ("argmax", "float32")), (2**20, 1, AUTO, ("sum", "int32")),
        (0, 1, AUTO, ("sum", "float32")),
    ):  # fmt: skip
        assert taken(registry, n, rows, name, of).kernel.entry != "reduce_tiles_last_block"


def test_its_own_operator_is_asked_before_one_that_costs_alike(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    written(folder, [entry, replace(entry, op="max", n=2**21, block=64)], registry)
    assert taken(registry, 2**20, of=("max", "float32")).block == 64


UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "a block that there is not": ({"block": 10**30}, f"takes blocks of .*, not {10**30}"),
    "no multiple of a load": ({"items": 3}, "loads 4 items at a time, so .*, not 3"),
    "a grid that leaves elements out": ({"grid": "one"}, "takes the grid fill or per_sm or .* one"),
    "a kernel of other operators": ({"op": "affine", "dtype": "int32", "acc": "int32"},
                                    "affine does not commute, and .*"),
    "rows to a kernel of arrays": ({"rows": 7}, "reduces one array, not 7 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_an_unsupported_entry_of_a_table_is_ignored_with_a_remark(
    registry: Registry, folder: Path, entry: Entry, name: str
) -> None:
    fields, why = UNFIT[name]
    path = planted(folder, replace(entry, **fields), replace(entry, n=2**22))
    [one] = said(registry)
    begins = re.escape(f"{path}: 1 entry ignored, since reduce_tiles_last_block ")
    assert re.fullmatch(f"{begins}{why}; cudareduce tune replaces them", one)
    assert taken(registry, 2**20).kernel.entry == "reduce_tiles_mailbox"
    assert taken(registry, 2**22).kernel.entry == "reduce_tiles_last_block"


def test_several_of_them_are_one_remark(registry: Registry, folder: Path, entry: Entry) -> None:
    loose = registry.kernels["reduce_tiles_self_reset"]
    varies = replace(entry, kernel=loose.id, source_sha=loose.sha, fixed=True, grid=loose.grid)
    planted(folder, varies, replace(entry, block=7), replace(entry, n=2**21, block=7))
    [one] = said(registry)
    assert ": 3 entries ignored, since reduce_tiles_self_reset adds float32 in no fixed" in one
    assert "order, and more; " in one


def test_an_entry_of_a_changed_kernel_is_ignored_with_a_remark(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    path = planted(folder, replace(entry, source_sha="0" * 64), replace(entry, n=2**21))
    [one] = said(registry)
    assert "reduce_tiles_last_block" in one and str(path) in one
    assert taken(registry, 2**19).kernel.entry == "reduce_tiles_mailbox"
    written(folder, [entry], registry)
    assert said(registry) == ()


def test_what_does_not_hold_any_more_leaves_the_table_when_it_is_written(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    gone, unfit = replace(entry, n=2**14, kernel="reduce_gone"), replace(entry, n=2**16, block=7)
    path = planted(folder, gone, unfit, entry)
    written(folder, [], registry)
    assert read_table(path).entries == (entry,)
    assert write_table(folder, H200, [], registry.kernels) is None


@pytest.mark.parametrize(
    ("n", "kernel"),
    [(64, "reduce_rows_block"), (32, "reduce_rows_block"), (33, "reduce_rows_staged"),
     (48, "reduce_rows_staged"), (63, "reduce_rows_staged")],
)  # fmt: skip
def test_rows_that_lie_otherwise_are_another_problem(
    registry: Registry, folder: Path, entry: Entry, n: int, kernel: str
) -> None:
    """What is fast on rows of 8 loads of 16 bytes need not be where rows begin anywhere."""
    block = registry.kernels["reduce_rows_block"]
    planted(folder, replace(
        entry, n=32, rows=2**20, kernel=block.id, source_sha=block.sha, grid=block.grid, block=256,
        items=block.items_of(4),
    ))  # fmt: skip
    assert taken(registry, n, 2**20).kernel.entry == kernel


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no object": lambda table: [table],
    "no entries": lambda table: table | {"entries": None},
    "another schema": lambda table: table | {"schema": 2},
    "a schema that is no number": lambda table: table | {"schema": True},
    "an entry that is none": lambda table: table | {"entries": [3]},
}
FIELDS = {
    "op": "median", "dtype": 3, "acc": "int8", "n": 0, "rows": -1, "fixed": "yes", "kernel": None,
    "block": 1.5, "items": 0, "grid": "all", "source_sha": [], "time_us": "fast",
    "time_us_low": "low",
}  # fmt: skip


def refused(path: Path) -> str:
    """The one sentence that a table which does not load gets."""
    with pytest.raises(UsageError) as caught:
        read_table(path)
    said = str(caught.value)
    assert said.startswith(f"{path} is no table of cudareduce tune: ")
    assert said.endswith("; delete it, and tune again") and "\n" not in said
    return said


@pytest.mark.parametrize("why", WRONG)
def test_what_is_no_table_is_refused(folder: Path, entry: Entry, why: str) -> None:
    path = planted(folder, entry)
    path.write_text(json.dumps(WRONG[why](json.loads(path.read_text()))))
    refused(path)


@pytest.mark.parametrize("name", FIELDS)
def test_an_entry_that_cannot_be_is_refused_by_its_number(
    folder: Path, entry: Entry, name: str
) -> None:
    path = planted(folder, entry, replace(entry, n=2**21))
    table = json.loads(path.read_text())
    table["entries"][1][name] = FIELDS[name]
    path.write_text(json.dumps(table))
    assert "entry 2: " in refused(path)
    del table["entries"][1][name]
    path.write_text(json.dumps(table))
    if name not in ("source_sha", "time_us", "time_us_low"):
        assert "entry 2: " in refused(path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"schema": 1e999}', b"[" * 10**5])
def test_what_is_no_json_is_refused(folder: Path, text: bytes) -> None:
    folder.mkdir()
    (folder / file_name(H200)).write_bytes(text)
    refused(folder / file_name(H200))


def test_a_folder_in_its_place_is_refused(folder: Path) -> None:
    (folder / file_name(H200)).mkdir(parents=True)
    refused(folder / file_name(H200))


def test_a_pipe_in_its_place_is_refused_and_not_waited_for(folder: Path) -> None:
    folder.mkdir()
    os.mkfifo(folder / file_name(H200))
    assert "it is no plain file" in refused(folder / file_name(H200))


def test_a_table_that_cannot_be_written_is_an_error(
    tmp_path: Path, entry: Entry, registry: Registry
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*; choose another place"):
        written(tmp_path / "file" / "folder", [entry], registry)
    with pytest.raises(UsageError, match="set XDG_DATA_HOME"):
        written(Path("~/tables"), [entry], registry)


def test_bench_reports_an_invalid_table(
    cudareduce: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, cpu_info: DeviceInfo
) -> None:
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: folder)
    folder.mkdir()
    (folder / file_name(cpu_info)).write_text("{}")
    code, out, err = cudareduce("bench", "auto", "--n", "100", "--backend", "cpu", "--quiet")
    assert (code, out) == (2, "")
    assert "delete it, and tune again" in err and err.count("\n") == 1


@pytest.fixture
def cpu_info() -> DeviceInfo:
    return DeviceInfo("CPU emulator")


@pytest.mark.parametrize("launches", [3, [3], [{"least_sms": 1}], [{"least_sms": 1, "kernel": 3}]])
def test_launches_on_some_sms_that_cannot_be_are_refused(
    folder: Path, entry: Entry, launches: object
) -> None:
    path = planted(folder, entry)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"some_sms": launches}))
    assert "some_sms: " in refused(path)
