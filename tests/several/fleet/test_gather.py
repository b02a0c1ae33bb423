"""`gather`: what is taken in, once, and what becomes of files and stores that are not in order."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from cudareduce.several.fleet import store as stores
from cudareduce.several.fleet.command import gather
from cudareduce.several.fleet.store import read
from tests.conftest import ROOT
from tests.several.fleet.fleets import result, uuid, write_fleet

Call = Callable[..., tuple[int, str, str]]
#: What several GPUs took together.
SEVERAL = sorted((ROOT / "results" / "nvidia-h100").glob("ranks-*.json"))
#: Twice what 2000 files take (3.7 s, and 0.4 s when they are known), of a core: others may use it.
MOST_S, MOST_AGAIN_S = 8.0, 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "fleet.sqlite"


def put(path: Path, card: int = 0, run: int = 0, factor: float = 1.0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result(card, run, factor)))
    return path


def test_a_second_time_is_once(cudareduce: Call, folder: Path, into: Path) -> None:
    write_fleet(folder, 9, 2)
    code, out, err = cudareduce("gather", folder, "--into", into)
    assert (code, out, err) == (0, "", f"{into}: 18 runs taken in\n")
    code, out, err = cudareduce("gather", folder, "--into", into)
    assert (code, err) == (0, f"{into}: 0 runs taken in, 18 files held already\n")
    put(folder / "late.json", 3, 5)
    _, _, err = cudareduce("gather", folder / "node000", folder / "late.json", "--into", into)
    assert err == f"{into}: 1 run taken in, 16 files held already\n"
    held = read(into)
    assert len(held.devices) == 19
    assert {device.uuid for device in held.devices.values()} == set(map(uuid, range(9)))
    assert held.devices[1].host == "node000"
    assert len(held.cells) == 27
    assert len(held.times) == 19 * 27


def test_two_files_of_one_run_are_one(cudareduce: Call, folder: Path, into: Path) -> None:
    one = put(folder / "a.json")
    shutil.copy(one, folder / "copy.json")
    (folder / "indented.json").write_text(json.dumps(json.loads(one.read_text()), indent=2))
    _, _, err = cudareduce("gather", folder, folder, one, "--into", into)
    assert err == f"{into}: 1 run taken in, 2 files held already\n"
    assert cudareduce("gather", folder, "--into", into)[2].startswith(f"{into}: 0 runs taken in, 3")


def test_what_is_no_result_is_named_and_left_out(
    cudareduce: Call, folder: Path, into: Path, tmp_path: Path
) -> None:
    good = put(folder / "good.json")
    text = good.read_text()
    (folder / "short.json").write_text(text[: len(text) // 2])
    (folder / "other.json").write_text('{"name": "something else"}')
    (folder / "list.json").write_text("[1, 2]")
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (folder / "note.txt").write_text("no JSON at all")
    (folder / "schema.json").write_text(text.replace('"schema": 1', '"schema": 2'))
    (folder / "nobody.json").write_text(text.replace(json.dumps(uuid(0)), "null"))
    (folder / "never.json").write_text(text.replace('"created": "2026', '"created": "then'))
    (folder / "large.json").write_text(text.replace('"n": 33554432', f'"n": {10**30}'))
    (folder / "gone.json").symlink_to(tmp_path / "nowhere.json")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.json")
    code, out, err = cudareduce("gather", folder, "--into", into)
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert lines[-1] == f"{into}: 1 run taken in, 11 files left out"
    assert len(lines) == 12
    for name, why in {
        "short": "cut short", "other": "not a result", "list": "not a result", "deep": "deeply",
        "bytes": "UTF-8", "schema": "schema 2", "nobody": "which card", "never": "when",
        "large": "", "gone": "No such file", "pipe": "not a file",
    }.items():  # fmt: skip
        [line] = [line for line in lines if f"{name}.json" in line and "left out: " in line]
        assert why in line


def test_answers_without_times_are_left_out(cudareduce: Call, folder: Path, into: Path) -> None:
    put(folder / "good.json")
    told = result(1, 0, 1.0)
    told["records"] = [
        each | dict.fromkeys(each.keys() & {"time_us", "time_us_low", "time_us_high"})
        for each in told["records"]
    ]
    (folder / "untimed.json").write_text(json.dumps(told))
    err = cudareduce("gather", folder, "--into", into)[2]
    assert "untimed.json holds no times" in err


def test_times_of_several_gpus_are_left_out(cudareduce: Call, folder: Path, into: Path) -> None:
    """A slow one would be told by the name of the first."""
    put(folder / "good.json")
    code, out, err = cudareduce("gather", folder, *SEVERAL, "--into", into)
    assert code == 0, err
    assert all(f"{path.name} holds times of several GPUs together" in err for path in SEVERAL)
    assert "1 run taken in" in out + err


@pytest.mark.parametrize("content", [None, "[1]"])
def test_a_folder_without_a_result_makes_no_store(
    cudareduce: Call, folder: Path, into: Path, content: str | None
) -> None:
    folder.mkdir()
    if content:
        (folder / "x.json").write_text(content)
    code, _, err = cudareduce("gather", folder, "--into", into)
    assert code == 2
    assert err.splitlines()[-1].startswith(f"cudareduce: there is no result in {folder}")
    assert not into.exists()


def test_a_folder_that_is_not_there(cudareduce: Call, folder: Path, into: Path) -> None:
    put(folder / "good.json")
    code, _, err = cudareduce("gather", folder, folder / "none", "--into", into)
    assert (code, err) == (
        2, f"cudareduce: there is no folder {folder / 'none'}: name one with result files in it\n",
    )  # fmt: skip
    assert not into.exists()


def test_a_file_that_is_written_meanwhile(cudareduce: Call, folder: Path, into: Path) -> None:
    """Half of it is left out now and taken in when it is whole; another text is another run."""
    path = put(folder / "run.json")
    put(folder / "other.json", 1)
    whole = path.read_text()
    path.write_text(whole[:1000])
    assert "1 run taken in, 1 file left out" in cudareduce("gather", folder, "--into", into)[2]
    path.write_text(whole)
    assert "1 run taken in, 1 file held" in cudareduce("gather", folder, "--into", into)[2]
    put(path, 0, 1)
    assert "1 run taken in, 1 file held" in cudareduce("gather", folder, "--into", into)[2]
    assert len(read(into).devices) == 3


def test_a_file_that_is_gone_when_it_is_read(
    cudareduce: Call, folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [put(folder / "a.json"), folder / "gone.json"]
    monkeypatch.setattr("cudareduce.several.fleet.command.result_files", lambda places: found)
    _, _, err = cudareduce("gather", folder, "--into", into)
    assert f"left out: cannot read {found[1]}: No such file" in err


def _statement(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as store, store:
        for each in statements:
            store.execute(each)


def _others(into: Path) -> None:
    _statement(into, "CREATE TABLE notes (text)")


def _numbered(into: Path) -> None:
    _statement(into, "PRAGMA user_version = 3")


def _newer(into: Path) -> None:
    _statement(into, "PRAGMA user_version = 2")


def _viewed(into: Path) -> None:
    _statement(into, "DROP TABLE times",
               "CREATE VIEW times AS WITH RECURSIVE k(n) AS (SELECT 1 UNION ALL SELECT n FROM k) "
               "SELECT n FROM k")  # fmt: skip


def _triggered(into: Path) -> None:
    _statement(into, "CREATE TRIGGER t AFTER INSERT ON files BEGIN DELETE FROM runs; END")


def _text(into: Path) -> None:
    into.write_text("no store" * 200)


def _cut(into: Path) -> None:
    content = into.read_bytes()
    into.write_bytes(content[: len(content) // 2])


def _folder(into: Path) -> None:
    into.unlink(missing_ok=True)
    into.mkdir()


@pytest.mark.parametrize(
    ("spoil", "new", "says"),
    [
        (_others, True, "is a store of another program: name another file"),
        (_numbered, True, "is a store of another program: name another file"),
        (_newer, False, "has schema 2, this version reads 1: gather into another file"),
        (_viewed, False, "is damaged, its tables are not ours"),
        (_triggered, False, "is damaged, its tables are not ours"),
        (_text, True, "is not a store of cudareduce: name another file"),
        (_cut, False, "is damaged"),
        (_folder, True, "is a directory|is a folder"),
    ],
)
def test_a_store_that_cannot_be_used(
    cudareduce: Call, folder: Path, into: Path, spoil: Callable[[Path], None], new: bool, says: str
) -> None:
    write_fleet(folder, 2, 1)
    if not new:
        gather([folder], into)
    spoil(into)
    put(folder / "more.json", 5, 5)
    content = into.read_bytes() if into.is_file() else b""
    for command in (("gather", folder, "--into", into), ("fleet", into)):
        code, out, err = cudareduce(*command)
        assert (code, out) == (2, "")
        assert any(word in err.splitlines()[-1] for word in says.split("|")), err
    assert content == (into.read_bytes() if into.is_file() else b"")


def test_an_empty_file_becomes_a_store(cudareduce: Call, folder: Path, into: Path) -> None:
    into.touch()
    code, _, err = cudareduce("fleet", into)
    assert (code, f"{into} holds no runs: cudareduce gather DIR" in err) == (2, True)
    put(folder / "a.json")
    assert cudareduce("gather", folder, "--into", into)[0] == 0
    assert len(read(into).devices) == 1


def test_a_store_without_runs(cudareduce: Call, folder: Path, into: Path) -> None:
    put(folder / "a.json")
    gather([folder], into)
    _statement(into, "DELETE FROM times", "DELETE FROM runs", "DELETE FROM files")
    code, _, err = cudareduce("fleet", into)
    assert (code, f"{into} holds no runs" in err) == (2, True)


@pytest.fixture
def locked(folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A store that another program is writing, for longer than anyone waits."""
    put(folder / "a.json")
    gather([folder], into)
    monkeypatch.setattr(stores, "_PATIENCE_S", 0.1)
    with closing(sqlite3.connect(into, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.usefixtures("locked")
def test_a_store_in_use(cudareduce: Call, folder: Path, into: Path) -> None:
    says = f"cudareduce: {into} is in use by another program: run again when that has ended\n"
    assert cudareduce("fleet", into) == (2, "", says)
    assert cudareduce("gather", folder, "--into", into) == (2, "", says)


def test_a_store_that_is_read_only(
    cudareduce: Call, folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be read; who may write everywhere meets the same as one who may not."""
    put(folder / "a.json")
    gather([folder], into)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    code, out, _ = cudareduce("fleet", into)
    assert (code, "too few to tell" in out) == (0, True)
    code, _, err = cudareduce("gather", folder, "--into", into)
    assert (code, err) == (
        2, f"cudareduce: cannot write {into}: permission denied; choose another place\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    "statement",
    ["UPDATE times SET time_us = 'soon'", "UPDATE times SET time_us = -1.0",
     "UPDATE times SET time_us = 9e999", "UPDATE times SET sm_mhz = 'fast'",
     "UPDATE times SET event_reasons = 7", "UPDATE times SET run = 99",
     "UPDATE times SET cell = 'x'", "UPDATE cells SET n = 'many'", "UPDATE cells SET n = -1",
     "UPDATE cells SET kernel = NULL", "UPDATE runs SET device = '[]'",
     "UPDATE runs SET device = 'x'", "UPDATE runs SET device = '{\"name\": \"x\"}'",
     "UPDATE runs SET device = x'ff'", "UPDATE cells SET map = x'ff'"],
)  # fmt: skip
def test_what_a_store_holds_is_not_trusted(
    cudareduce: Call, folder: Path, into: Path, statement: str
) -> None:
    put(folder / "a.json")
    gather([folder], into)
    _statement(into, statement)
    code, out, err = cudareduce("fleet", into)
    assert (code, out) == (2, "")
    assert f"cudareduce: {into} is damaged, " in err


def _killed(into: Path) -> None:
    with closing(sqlite3.connect(into, isolation_level=None)) as store:
        store.execute("PRAGMA cache_size = 1")  # so that the file itself is written to before
        store.execute("BEGIN")
        store.execute("UPDATE times SET time_us = 1.0")
        store.execute("DELETE FROM files")
        os._exit(1)


def test_one_that_was_killed_as_it_wrote(folder: Path, into: Path) -> None:
    write_fleet(folder, 30, 1)
    gather([folder], into)
    before = read(into)
    job = get_context("fork").Process(target=_killed, args=(into,))
    job.start()
    job.join()
    assert into.with_name(f"{into.name}-journal").exists()
    assert read(into) == before


def test_a_name_that_a_shell_and_a_url_would_read_otherwise(
    cudareduce: Call, folder: Path, tmp_path: Path
) -> None:
    put(folder / "a ?#%20.json")
    into = tmp_path / "fleet ?mode=ro#%41.sqlite"
    assert cudareduce("gather", folder, "--into", into)[0] == 0
    assert into.is_file()
    assert cudareduce("fleet", into)[0] == 0


def _gathered(folder: Path, into: Path) -> None:
    gather([folder], into)


def test_two_gather_at_once(folder: Path, into: Path) -> None:
    write_fleet(folder, 20, 1)
    jobs = [get_context("fork").Process(target=_gathered, args=(folder, into)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    held = read(into)
    assert (len(held.devices), len(held.cells), len(held.times)) == (20, 27, 20 * 27)


@pytest.mark.slow
def test_two_thousand_files_are_quick(folder: Path, into: Path) -> None:
    write_fleet(folder, 1000, 2)
    took = []
    for _ in range(2):
        began = time.process_time()
        gather([folder], into)
        took.append(time.process_time() - began)
    print(f"gather of 2000 files: {took[0]:.2f} s of a core; again: {took[1]:.2f} s")
    assert took[0] < MOST_S
    assert took[1] < MOST_AGAIN_S
