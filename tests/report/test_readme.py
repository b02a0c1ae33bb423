"""Tables in a Markdown file: markers that are not as they should be, and files of other editors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
RUN = ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json"
OPEN, CLOSE = f"<!-- cudareduce: {RUN} -->", "<!-- /cudareduce -->"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"a\n{OPEN}\nkept\n", ":2: the table is not closed before the file ends: add <!-- /cuda"),
        (f"{OPEN}\n{OPEN}\n{CLOSE}\n", ":1: the table is not closed before another one opens in l"),
        (f"{OPEN}\nb\n{CLOSE}\n{CLOSE}\n", ":4: this marker closes no table: remove it"),
        (f"a\n\n{OPEN.replace('.json', '.yaml')}\n{CLOSE}\n", ":3: there is no "),
        (f"{OPEN.replace(str(RUN), 'page.md')}\n{CLOSE}\n", ":1: "),
        (f"{OPEN.replace(str(RUN), '.')}\n{CLOSE}\n", "Is a directory"),
        (f"```\n{OPEN}\n{CLOSE}\n```\n", "has no place for a table"),
        (f"`{OPEN}` and `{CLOSE}`\n", "has no place for a table"),
    ],
    ids=range(8),
)
def test_markers_that_are_wrong(cudareduce: Call, page: Path, text: str, message: str) -> None:
    page.write_text(text)
    code, out, err = cudareduce("report", page)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(page) in err and message in err
    assert page.read_text() == text


@pytest.mark.parametrize(("mark", "end"), [(b"", "\r\n"), (b"\xef\xbb\xbf", "\n")])
def test_ends_of_lines_and_a_byte_order_mark_stay(
    cudareduce: Call, page: Path, mark: bytes, end: str
) -> None:
    lines = [
        OPEN,
        "stale",
        CLOSE,
        "between\u2028lines",
        f"  {OPEN}",
        CLOSE,
        "",
        "last, with no end",
    ]
    page.write_bytes(mark + end.join(lines).encode())
    assert cudareduce("report", page) == (0, "", f"{page} is updated\n")
    text = page.read_bytes()
    assert text.startswith(mark + f"{OPEN}{end}{end}**sum of".encode())
    assert text.count(b"\n") == text.count(end.encode()) > 60
    assert text.count(b"| reduce_v7_shuffle") == 2 and b"stale" not in text
    assert f"{CLOSE}{end}between\u2028lines{end}  {OPEN}{end}".encode() in text
    assert text.endswith(f"{end}{CLOSE}{end}{end}last, with no end".encode())
    assert cudareduce("report", page, "--check")[0] == 0


def test_special_files_are_not_updated(cudareduce: Call, tmp_path: Path, page: Path) -> None:
    os.mkfifo(page)
    code, _, err = cudareduce("report", page)  # nobody writes to it
    assert (code, "is a device or a pipe: name a file" in err) == (2, True)
    assert cudareduce("report", tmp_path)[0] == 2
    loop = tmp_path / "loop.md"
    loop.symlink_to(loop)
    code, _, err = cudareduce("report", loop)
    assert (code, "is a link to itself" in err) == (2, True)


def test_a_symbolic_link_stays_one_after_an_update(
    cudareduce: Call, tmp_path: Path, page: Path
) -> None:
    page.write_text(f"{OPEN}\n{CLOSE}\n")
    link = tmp_path / "link.md"
    link.symlink_to(page)
    assert cudareduce("report", link)[0] == 0
    assert link.is_symlink() and "reduce_v7_shuffle" in page.read_text()


def test_a_result_cannot_close_its_own_table(cudareduce: Call, tmp_path: Path, page: Path) -> None:
    data = json.loads(RUN.read_text())
    data["protocol"]["remarks"] = [CLOSE, f"x\n{CLOSE}", "\x1b[2J"]
    (tmp_path / "run.json").write_text(json.dumps(data))
    page.write_text(f"{OPEN.replace(str(RUN), 'run.json')}\n{CLOSE}\nbehind\n")
    assert cudareduce("report", page)[0] == 0
    assert cudareduce("report", page, "--check")[0] == 0
    assert "\x1b" not in page.read_text() and "\\x1b[2J" in page.read_text()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("floors_us", [], "protocol: floors_us has another form"),
        ("floors_us", {"x": "1"}, "protocol: floors_us has another form"),
        ("remarks", True, "protocol: remarks has another form"),
        ("suite", ["bbuf"], "protocol: suite has another form"),
        ("suite", "nobodys", "there is no suite 'nobodys'"),
        ("suite", "bbuf", "the run is not of the suite bbuf as it is now: reproduce it again"),
        ("profiler", {"a": 1}, "protocol: profiler has another form"),
    ],
)
def test_a_run_that_makes_no_table(
    cudareduce: Call, tmp_path: Path, page: Path, name: str, value: object, message: str
) -> None:
    data = json.loads(RUN.read_text())
    data["protocol"][name] = value
    (tmp_path / "run.json").write_text(json.dumps(data))
    page.write_text(f"{OPEN.replace(str(RUN), 'run.json')}\n{CLOSE}\n")
    code, _, err = cudareduce("report", page)
    assert (code, message in err) == (2, True), err
    assert f"{page}:1: " in err


def test_a_table_shows_the_requested_rows_of_one_size(cudareduce: Call, page: Path) -> None:
    marker = OPEN.replace(" -->", ", rows reduce_v0* reduce_v7*, at 2^25 -->")
    page.write_text(f"{marker}\n{CLOSE}\n")
    assert cudareduce("report", page)[0] == 0
    rows = [line.split()[1] for line in page.read_text().splitlines() if "| reduce_" in line]
    assert rows == ["reduce_v0_baseline", "reduce_v7_shuffle"]


def test_a_number_in_a_sentence_comes_from_the_results(cudareduce: Call, page: Path) -> None:
    file = f"<!-- cudareduce: {RUN}"
    page.write_text(
        f"V0 takes {file}, value time_us of reduce_v0_baseline -->?{CLOSE} us, "
        f"{file}, value time_us of reduce_v0_baseline over reduce_v7_shuffle at 2^25 -->?{CLOSE}"
        " times as long as V7.\n"
    )
    assert cudareduce("report", page)[0] == 0
    text = page.read_text()
    assert f"-->334{CLOSE} us" in text and f"-->8.11{CLOSE} times" in text
    assert cudareduce("report", page, "--check")[0] == 0
    page.write_text(text.replace("334", "333"))
    assert cudareduce("report", page, "--check")[0] == 2


@pytest.mark.parametrize(
    ("clause", "message"),
    [(", value time_us of reduce_v9", "has 0 values time_us of reduce_v9"),
     (", value colour of reduce_v7_shuffle", "has 0 values colour"),
     (", rows reduce_v9*", "has no records of reduce_v9*")],
)  # fmt: skip
def test_missing_results_are_an_error(
    cudareduce: Call, page: Path, clause: str, message: str
) -> None:
    page.write_text(f"{OPEN.replace(' -->', clause + ' -->')}" + "\n" * ("rows" in clause) + CLOSE)
    code, _, err = cudareduce("report", page)
    assert code == 2 and f"{page}:1: " in err and message in err
