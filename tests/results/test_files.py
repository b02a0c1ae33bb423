"""Result files that are none, or not as usual: marks, pipes, links in circles, full names."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.results.store import check_writable, write_text
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
BEFORE, AFTER = (ROOT / "tests" / "data" / f"simulated-{w}.json" for w in ("before", "after"))


def test_a_file_with_a_byte_order_mark(cudareduce: Call, tmp_path: Path) -> None:
    marked = tmp_path / "marked.json"
    marked.write_bytes(b"\xef\xbb\xbf" + BEFORE.read_bytes())
    assert cudareduce("compare", marked, AFTER)[0] == 0


def test_a_result_file_may_be_a_pipe(cudareduce: Call, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(BEFORE.read_bytes(),))
    writer.start()
    assert cudareduce("compare", pipe, AFTER)[0] == 0
    writer.join()


def test_files_that_are_no_results_are_refused(cudareduce: Call, tmp_path: Path) -> None:
    loop, empty, long = tmp_path / "loop", tmp_path / "empty", tmp_path / (300 * "x")
    loop.symlink_to(loop)
    empty.write_text("")
    for path, why in ((loop, "is a link to itself"), (empty, "is cut short"),
                      (tmp_path, "Is a directory"), (long, "is too long for a name")):  # fmt: skip
        for files in ((path, BEFORE), (BEFORE, path)):
            code, out, err = cudareduce("compare", *files)
            assert (code, out, err.count("\n")) == (2, "", 1), err
            assert why in err


def test_an_unknown_verdict_is_refused(cudareduce: Call, tmp_path: Path) -> None:
    data = json.loads(BEFORE.read_text())
    data["records"][1]["verdict"] = "maybe"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(data))
    code, _, told = cudareduce("report", other, "--html", tmp_path / "page.html")
    assert code == 2 and "record 2: verdict is not pass, fail or skip; bench again" in told


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused(
    cudareduce: Call, tmp_path: Path, value: float
) -> None:
    data = json.loads(BEFORE.read_text())
    data["protocol"]["confidence"] = value
    path = tmp_path / "run.json"
    path.write_text(json.dumps(data))
    code, _, err = cudareduce("compare", path, BEFORE)
    assert (code, "protocol holds a number that is not finite" in err) == (2, True)


def test_places_that_cannot_be_written_are_found_at_once(tmp_path: Path) -> None:
    loop, dangling, away = tmp_path / "loop", tmp_path / "dangling", tmp_path / "away"
    loop.symlink_to(loop)
    dangling.symlink_to("new.json")
    away.symlink_to(tmp_path / "no" / "new.json")
    for path, why in ((loop, "Too many levels"), (tmp_path / (300 * "x"), "File name too long"),
                      (away, "does not exist; create it")):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            check_writable(path)
    check_writable(dangling)
    write_text(dangling, "new\r\n")
    assert dangling.is_symlink() and (tmp_path / "new.json").read_bytes() == b"new\r\n"
    full = tmp_path / (255 * "x")
    check_writable(full)
    write_text(full, "whole")
    assert full.read_text() == "whole"


def test_a_file_is_written_under_an_unpredictable_temporary_name(tmp_path: Path) -> None:
    """Neither another process nor a link at that name gets into the file."""
    target, victim = tmp_path / "run.json", tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / f".cudareduce-{os.getpid()}").symlink_to(victim)
    write_text(target, "new")
    assert (target.read_text(), victim.read_text()) == ("new", "kept")
    assert {path.name for path in tmp_path.iterdir()} == {
        "run.json", "victim", f".cudareduce-{os.getpid()}",
    }  # fmt: skip


def test_writers_that_share_a_folder_write_whole_files(tmp_path: Path) -> None:
    target, texts = tmp_path / "run.json", [letter * 300_000 for letter in "abcd"]
    writers = [threading.Thread(target=write_text, args=(target, text)) for text in 5 * texts]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert target.read_text() in texts


def test_a_file_of_another_kind_or_without_permission_is_refused_with_a_remedy(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.json"
    file.write_text("{}")
    code, _, err = cudareduce("history", "check", "--from", file)
    assert (code, f"{file} is a file: name a directory" in err) == (2, True)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    code, _, err = cudareduce("plot", file)
    assert (code, err.count("\n")) == (2, 1)
    assert f"permission to read {file} is denied: change its mode or name another" in err
