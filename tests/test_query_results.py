"""The snippets of docs/query-many-results.md, run as written on stored result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.test_docs_lines import blocks

PAGE = ROOT / "docs" / "query-many-results.md"
SLOW_CARD = "GPU-3"
SNIPPETS = {b.section: b.text for b in blocks(PAGE) if b.language == "python"}


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs each of five cards of one model, the fourth 10 % slower, and one file of no card."""
    stored = json.loads((ROOT / "results/nvidia-h200/baseline.json").read_text())
    folder = tmp_path / "results"
    for card in range(5):
        rate = 0.9 if f"GPU-{card}" == SLOW_CARD else 1 + card / 1000
        for day in range(2):
            records = [r | {"gb_s": r["gb_s"] and r["gb_s"] * rate} for r in stored["records"]]
            records[0] = {k: v for k, v in records[0].items() if k != "gb_s"}
            run = stored | {"records": records}
            run["device"] = stored["device"] | {"uuid": f"GPU-{card}"}
            path = folder / f"host{card}" / f"{day}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(run))
    no_card = stored | {"device": {"name": "no NVML", "uuid": None}}
    (folder / "no-card.json").write_text(json.dumps(no_card))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("section", SNIPPETS)
def test_a_snippet_finds_the_slow_card(
    section: str, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if section == "With DuckDB":
        pytest.importorskip("duckdb")
    namespace: dict[str, Any] = {}
    exec(SNIPPETS[section], namespace)
    slow = namespace["slow"]
    assert [card for _, card, _ in slow] == ["GPU-3", "GPU-0", "GPU-1", "GPU-2", "GPU-4"]
    assert {model for model, _, _ in slow} == {"NVIDIA H200"}
    assert slow[0][2] == pytest.approx(90, abs=0.2)
    assert slow[1][2] == pytest.approx(100, abs=0.2)
    assert SLOW_CARD in capsys.readouterr().out.splitlines()[0]


def test_the_page_has_both_snippets() -> None:
    assert list(SNIPPETS) == ["With DuckDB", "With Python's sqlite3"]
