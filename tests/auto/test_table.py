"""Tables of choices: written, read again, left out where they no longer hold, refused if bad."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.auto.choose import Chooser
from cudareduce.auto.formula import Facts
from cudareduce.auto.table import Entry, file_name, read_table, tables_of, write_table
from cudareduce.device import DEFAULT_LIMITS, DeviceInfo
from cudareduce.errors import UsageError
from cudareduce.launch.case import Case
from cudareduce.library.registry import AUTO, AUTO_FIXED, Registry
from cudareduce.problem.operators import reduction_of
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
    """Where the user's tables are."""
    monkeypatch.setattr("cudareduce.auto.table.user_folder", lambda: tmp_path / "user")
    return tmp_path / "user"


def taken(
    registry: Registry, n: int, rows: int = 1, name: str = AUTO,
    of: tuple[str, str] = ("sum", "float32"),
) -> Case:  # fmt: skip
    facts = Facts(DEFAULT_LIMITS, H200, ())
    chooser = Chooser(name, registry.kernels, facts, tables_of(H200))
    case = chooser.choose(reduction_of(*of), n, rows)
    assert case is not None
    return case


def test_what_is_written_is_read_again(folder: Path, entry: Entry) -> None:
    path = write_table(folder, H200, [entry])
    assert (path.parent, path.name) == (folder, file_name(H200))
    assert read_table(path).entries == (entry,)
    later = replace(entry, block=256)
    other = replace(entry, n=2**22, time_us_low=None, time_us_high=None)
    write_table(folder, H200, [later, other])
    assert read_table(path).entries == (later, other)


def test_a_table_is_of_gpus_that_are_alike(folder: Path, entry: Entry) -> None:
    write_table(folder, H200, [entry])
    assert tables_of(replace(H200, driver="1", uuid="another", power_limit_w=1.0))
    assert not tables_of(replace(H200, sm_count=66))
    assert not tables_of(DeviceInfo("CPU emulator"))


def test_the_users_table_comes_before_the_shipped_one(
    registry: Registry, folder: Path, tmp_path: Path, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = tmp_path / "shipped"
    monkeypatch.setattr("cudareduce.auto.table.shipped_folder", lambda: shipped)
    write_table(shipped, H200, [replace(entry, block=64)])
    assert taken(registry, 2**20).block == 64
    write_table(folder, H200, [entry])
    assert taken(registry, 2**20).block == 128


def test_an_entry_decides_for_what_is_near(registry: Registry, folder: Path, entry: Entry) -> None:
    write_table(folder, H200, [entry, replace(entry, n=2**21, block=256)])
    case = taken(registry, 2**20)
    assert (case.kernel.entry, case.block, case.items, case.kernel.grid) == (
        "reduce_tiles_last_block", 128, 8, "per_sm"
    )  # fmt: skip
    assert taken(registry, 2**19).block == 128
    assert taken(registry, 2**21).block == 256
    assert taken(registry, 2**20, of=("max", "int32")).block == 128  # which costs alike
    for n, rows, name, of in (
        (2**17, 1, AUTO, ("sum", "float32")), (2**10, 2**10, AUTO, ("sum", "float32")),
        (2**20, 1, AUTO_FIXED, ("sum", "float32")), (2**20, 1, AUTO, ("sum", "float64")),
        (2**20, 1, AUTO, ("argmax", "float32")), (2**20, 1, AUTO, ("sum", "int32")),
        (0, 1, AUTO, ("sum", "float32")),
    ):  # fmt: skip
        assert taken(registry, n, rows, name, of).kernel.entry != "reduce_tiles_last_block"


def test_its_own_operator_is_asked_before_one_that_costs_alike(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    write_table(folder, H200, [entry, replace(entry, op="max", n=2**21, block=64)])
    assert taken(registry, 2**20, of=("max", "float32")).block == 64


def test_what_a_table_names_must_still_take_the_problem(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    write_table(folder, H200, [replace(entry, items=3)])  # of which no load of four is made
    assert taken(registry, 2**20).kernel.entry == "reduce_tiles_mailbox"


def test_an_entry_of_a_changed_kernel_is_left_out_and_said(
    registry: Registry, folder: Path, entry: Entry
) -> None:
    write_table(folder, H200, [replace(entry, source_sha="0" * 64), replace(entry, n=2**21)])
    [table] = tables_of(H200)
    said = table.stale(registry.kernels)
    assert said is not None and "reduce_tiles_last_block" in said and str(table.path) in said
    assert taken(registry, 2**19).kernel.entry == "reduce_tiles_mailbox"
    write_table(folder, H200, [entry])
    [table] = tables_of(H200)
    assert table.stale(registry.kernels) is None


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
    path = write_table(folder, H200, [entry])
    path.write_text(json.dumps(WRONG[why](json.loads(path.read_text()))))
    refused(path)


@pytest.mark.parametrize("name", FIELDS)
def test_an_entry_that_cannot_be_is_refused_by_its_number(
    folder: Path, entry: Entry, name: str
) -> None:
    path = write_table(folder, H200, [entry, replace(entry, n=2**21)])
    table = json.loads(path.read_text())
    table["entries"][1][name] = FIELDS[name]
    path.write_text(json.dumps(table))
    assert "entry 2: " in refused(path)
    del table["entries"][1][name]
    path.write_text(json.dumps(table))
    if name != "time_us_low":
        assert "entry 2: " in refused(path)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b'{"schema": 1e999}', b"[" * 10**5])
def test_what_is_no_json_is_refused(folder: Path, text: bytes) -> None:
    folder.mkdir()
    (folder / file_name(H200)).write_bytes(text)
    refused(folder / file_name(H200))


def test_a_folder_in_its_place_is_refused(folder: Path) -> None:
    (folder / file_name(H200)).mkdir(parents=True)
    refused(folder / file_name(H200))


def test_a_table_that_cannot_be_written_is_said(tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*; choose another place"):
        write_table(tmp_path / "file" / "folder", H200, [entry])
    with pytest.raises(UsageError, match="set XDG_DATA_HOME"):
        write_table(Path("~/tables"), H200, [entry])


def test_bench_says_what_is_wrong_with_a_table(
    cudareduce: Call, folder: Path, monkeypatch: pytest.MonkeyPatch, cpu_info: DeviceInfo
) -> None:
    monkeypatch.setattr("cudareduce.auto.table.user_folder", lambda: folder)
    folder.mkdir()
    (folder / file_name(cpu_info)).write_text("{}")
    code, out, err = cudareduce("bench", "auto", "--n", "100", "--backend", "cpu", "--quiet")
    assert (code, out) == (2, "")
    assert "delete it, and tune again" in err and err.count("\n") == 1


@pytest.fixture
def cpu_info() -> DeviceInfo:
    return DeviceInfo("CPU emulator")
