"""`fleet`: tables that fit, exit codes, and files for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.several.fleet.command import gather
from tests.several.fleet.fleets import result, uuid, write_fleet

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def into(tmp_path: Path) -> Path:
    return tmp_path / "fleet.sqlite"


def filled(
    folder: Path, into: Path, cards: int, runs: int = 2, slow: dict[int, float] | None = None
) -> None:
    write_fleet(folder, cards, runs, slow)
    gather([folder], into)


@pytest.mark.parametrize(
    ("cards", "runs", "slow", "code", "says"),
    [
        (12, 2, {}, 0, "12 cards judged, none of them slow"),
        (12, 2, {5: 0.15}, 1, "cards: 1 SLOW, 11 FINE"),
        (12, 1, {5: 0.15}, 4, "cards: 1 ONCE, 11 FINE"),
        (7, 2, {5: 0.15}, 4, "no cards judged"),
    ],
)
def test_slow_ends_with_a_code(
    cudareduce: Call, tmp_path: Path, into: Path, cards: int, runs: int, slow: dict[int, float],
    code: int, says: str,
) -> None:  # fmt: skip
    filled(tmp_path / "files", into, cards, runs, slow)
    found, out, _ = cudareduce("fleet", into, "--slow")
    assert (found, says in out) == (code, True), out
    assert cudareduce("fleet", into)[0] == 0


def test_the_table_fits_80_columns(
    cudareduce: Call, tmp_path: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow card of a host with a long name, throttled, set otherwise, and cards of few."""
    folder = tmp_path / "files"
    for card in range(16):
        for run in range(2):
            odd = card == 6
            told = result(
                card, run, 1.2 if odd else 1.0, host=f"gpu-node-{card:04}.cluster",
                driver="550.54.14" if odd else "580.159.04",
            )  # fmt: skip
            for each in told["records"]:
                each["event_reasons"] = "hardware thermal slowdown" if odd else "none"
            path = folder / f"{card}-{run}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(told))
    other = result(99, 0, 1.0, name="NVIDIA L4")
    (folder / "other.json").write_text(json.dumps(other))
    monkeypatch.chdir(tmp_path)
    gather([folder], into)
    code, out, _ = cudareduce("fleet", into)
    assert code == 0
    lines = out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("GPU-")) <= 80
    table = [line for line in lines if line.startswith((" SLOW", " FINE", " -"))]
    assert len(table) == 17
    cells = table[0].split()
    assert cells[:4] == ["SLOW", uuid(6)[:12], "gpu-node-0006", "2"]
    assert 19 < float(cells[4].strip("+%")) < 21
    assert cells[5:] == ["1980", "3201", "219", "44", "on"]
    [note] = [line for line in lines if line.startswith(f"{uuid(6)[:12]}: slowest in sum float32")]
    assert note.endswith(
        "; throttled by hardware thermal slowdown; driver 550.54.14 (most have 580.159.04)"
    )
    for text in (out, cudareduce("fleet", into, "--slow")[1]):
        assert "too few to tell, it takes 8 cards" in text


def test_csv_has_a_line_for_each_card_and_cell(
    cudareduce: Call, tmp_path: Path, into: Path
) -> None:
    filled(tmp_path / "files", into, 9, 2, {3: 0.2})
    target = tmp_path / "cards.csv"
    code, _, _ = cudareduce("fleet", into, "--csv", target)
    assert code == 0
    lines = list(csv.DictReader(io.StringIO(target.read_text())))
    assert len(lines) == 9 * 27
    slow = [line for line in lines if line["card"] == uuid(3)]
    assert {line["verdict"] for line in slow} == {"SLOW"}
    assert all(15 < float(line["slower_pct"]) < 25 for line in slow)
    assert {line["host"] for line in lines} == {"node000", "node001"}
    assert {line["event_reasons"] for line in lines} == {"none"}
    assert {line["cards"] for line in lines} == {"9"}
    assert {line["runs"] for line in lines} == {"2"}
    assert cudareduce("fleet", into, "--csv", "-")[1] == target.read_text()
    assert cudareduce("fleet", into, "--csv", into)[0] == 2


def test_other_formats(cudareduce: Call, tmp_path: Path, into: Path) -> None:
    filled(tmp_path / "files", into, 9, 2, {3: 0.2})
    [model] = json.loads(cudareduce("fleet", into, "--format", "json")[1])
    assert (model["model"], model["judged"], len(model["cards"])) == ("NVIDIA H200", True, 9)
    first = model["cards"][0]
    assert (first["card"], first["verdict"], first["throttled"]) == (uuid(3), "SLOW", [])
    assert first["device"]["host"] == "node000"
    assert first["at"]["op"] == "sum"
    assert {problem["cards"] for problem in model["problems"]} == {9}
    [model] = json.loads(cudareduce("fleet", into, "--slow", "--format", "json")[1])
    assert [card["card"] for card in model["cards"]] == [uuid(3)]
    out = cudareduce("fleet", into, "--format", "markdown")[1]
    assert f"| SLOW | {uuid(3)[:12]} | node000 |" in " ".join(out.split())


def test_names_of_others_steer_nothing(cudareduce: Call, tmp_path: Path, into: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    told = result(0, 0, 1.0, name="\x1b[31mH200\n", host="a\x07\u202eb", uuid="\x1b]0;x\x07")
    (folder / "a.json").write_text(json.dumps(told))
    gather([folder], into)
    for more in ((), ("--format", "markdown"), ("--csv", "-"), ("--slow",)):
        out = cudareduce("fleet", into, *more)[1]
        assert "\x1b" not in out
        assert "\u202e" not in out
