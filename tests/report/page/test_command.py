"""`report --html`: the file, and errors."""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.results.store import load, to_json
from tests.conftest import ROOT
from tests.report.plot.runs import BENCH, H200, SWEEP, with_records

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("jinja2", "vl_convert"):
        pytest.importorskip(name)


def unpacked(html: str, name: str) -> str:
    found = re.search(rf'<script type="application/gzip" id="{name}">([^<]*)<', html)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1])).decode()


@pytest.mark.long
def test_a_page_holds_all_of_it(cudareduce: Call, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = cudareduce("report", BENCH, SWEEP, "--html", page)
    assert (code, out) == (0, "")
    assert err == f"{page} shows 2 runs: open it in a browser\n"
    html = page.read_text()
    assert unpacked(html, "raw-0") == BENCH.read_text()
    bodies = re.findall(r"<tbody>(.*?)</tbody>", html, flags=re.DOTALL)
    assert [body.count("<tr") for body in bodies] == [27, 84]
    assert 'id="lesson-reduce_v7_shuffle"' in html
    charts = json.loads(unpacked(html, "charts"))
    assert charts and all(chart["spec"]["data"]["values"] for chart in charts)
    # Nothing is fetched: no element names a place elsewhere.
    elements = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?!data:)', elements)
    assert elements.count('<button role="tab"') == 2


@pytest.mark.long
def test_names_from_result_files_are_escaped(cudareduce: Call, tmp_path: Path) -> None:
    run = load(BENCH)
    evil = "<script>alert(1)</script>"
    odd = with_records(run, [replace(run.records[0], kernel=evil, reason=evil)])
    odd = replace(odd, device=replace(run.device, name=evil))
    path, page = tmp_path / "odd<b>.json", tmp_path / "page.html"
    path.write_text(to_json(odd))
    assert cudareduce("report", path, "--html", page)[0] == 0
    assert "<script>alert" not in page.read_text()
    assert "odd<b>" not in page.read_text()


@pytest.mark.long
def test_of_many_files_those_without_records_are_left_out(cudareduce: Call, tmp_path: Path) -> None:
    page, others = tmp_path / "a.html", (H200 / "orders.json", H200 / "selftest.json")
    code, _, err = cudareduce("report", BENCH, *others, "--html", page)
    assert code == 0
    assert f"left out, without records of bench: {others[0]}, {others[1]}\n" in err
    assert "shows 1 run" in err
    code, _, err = cudareduce("report", *others, "--html", page)
    assert code == 2
    assert "none holds records of bench: " in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{out}/none.json", "--html", "{out}/a.html"), "there is no {out}/none.json"),
        (("results", "--html", "{out}/a.html"), "cannot read results: Is a directory"),
        (("{out}/newer.json", "--html", "{out}/a.html"), "has schema 99, this version reads 1"),
        ((H200 / "selftest.json", "--html", "{out}/a.html"), "holds no records for a page"),
        ((H200 / "orders.json", "--html", "{out}/a.html"), "is not a result of cudareduce"),
        ((BENCH, "--html", "{out}/no/a.html"), "the folder {out}/no does not exist; create it"),
        ((BENCH, "--html", BENCH), "is a result to read: choose another name"),
        (("--html", "{out}/a.html"), "--html needs result files such as run.json"),
        ((BENCH, "--html", "{out}/a.html", "--check"), "and excludes --check"),
        ((BENCH,), "for a page of results add --html FILE"),
        (("README.md", "docs/ci.md"), "report takes one Markdown file"),
    ],
    ids=str,
)
def test_bad_input_is_a_sentence_and_no_page(
    cudareduce: Call, tmp_path: Path, arguments: tuple[object, ...], said: str
) -> None:
    (tmp_path / "newer.json").write_text('{"schema": 99, "records": []}')
    code, out, err = cudareduce("report", *(str(a).format(out=tmp_path) for a in arguments))
    assert (code, out) == (2, "")
    assert said.format(out=tmp_path) in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a.html").exists()


@pytest.mark.parametrize("name", ["jinja2", "vl_convert"])
def test_a_missing_package_is_named(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    code, _, err = cudareduce("report", BENCH, "--html", tmp_path / "a.html")
    assert code == 6
    assert "a page needs" in err and "pip install 'cudareduce[html]'" in err
    assert list(tmp_path.iterdir()) == []
