"""`plot`: files, terminal charts, missing libraries, and the small chart below a table."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudareduce.report.plot.command import show_small
from cudareduce.report.plot.figure import spread
from cudareduce.report.publish import Outputs
from cudareduce.results.store import load, to_json
from tests.conftest import ROOT
from tests.report.plot.runs import (
    AFTER,
    BEFORE,
    BENCH,
    H100,
    PEERS,
    SWEEP,
    TYPES,
    many,
    over_sms,
    with_records,
)

Call = Callable[..., tuple[int, str, str]]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [(SWEEP,), (PEERS,), (PEERS, "--kind", "speedup"), (BENCH,), (TYPES,), (BEFORE, AFTER),
     (PEERS, H100 / "libraries-float32.json")],
    ids=str,
)  # fmt: skip
def test_every_kind_becomes_a_png_and_an_svg(
    cudareduce: Call, tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    pytest.importorskip("vl_convert")
    png, svg = tmp_path / "a.png", tmp_path / "a.svg"
    code, out, err = cudareduce("plot", *arguments, "--png", png, "--svg", svg)
    assert (code, out) == (0, "")
    assert f"{png} shows" in err
    head = png.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", head[16:])
    assert width > 1400 and height > 300
    assert ElementTree.parse(svg).getroot().tag == f"{SVG}svg"
    again = tmp_path / "b.svg"
    cudareduce("plot", *arguments, "--svg", again)
    assert again.read_text() == svg.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((SWEEP,), ["bandwidth (GB/s)", "theory 4814 GB/s", "n (elements)", "2^10", "v7_shuffle"]),
        (
            (PEERS, "--kind", "speedup"),
            ["speed-up (times as fast)", "auto:fixed", "the fastest library: ", "─equally fast ─"],
        ),
        ((BENCH,), ["█", "3340±10 GB/s, 81.6 %", "│: ceiling 4088 GB/s; full width: "]),
        ((TYPES,), ["float16 in float32", "2^28", "cub:no…nteed"]),
        ((BEFORE, AFTER), ["─o┼──", "v4_unroll_last_warp 2^22", "-5.9±.5%", "below 0: faster"]),
    ],
)
def test_text_in_the_terminal(
    cudareduce: Call, arguments: tuple[object, ...], words: list[str]
) -> None:
    pytest.importorskip("plotext")
    code, out, err = cudareduce("plot", *arguments)
    assert (code, err) == (0, "")
    assert [word for word in words if word not in out] == []
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


def test_a_name_of_any_length_leaves_room_for_the_rest(cudareduce: Call, tmp_path: Path) -> None:
    run = load(BENCH)
    path = tmp_path / "long.json"
    records = [replace(r, kernel=f"{k}{300 * 'x'}{k}") for k, r in enumerate(run.records)]
    path.write_text(to_json(with_records(run, records)))
    told = cudareduce("plot", path)[1]
    assert max(map(len, told.splitlines())) <= 80
    assert f" 21{'x' * 11}…{'x' * 10}21 " in told
    sweep = load(SWEEP)
    lines = [replace(r, kernel=r.kernel + 300 * "x") for r in sweep.records]
    path.write_text(to_json(with_records(sweep, lines)))
    assert max(map(len, cudareduce("plot", path)[1].splitlines())) <= 80


def test_sizes_close_to_each_other_have_one_tick(cudareduce: Call, tmp_path: Path) -> None:
    run = load(SWEEP)
    first = [r for r in run.records if r.kernel == run.records[0].kernel]
    path = tmp_path / "close.json"
    records = [*first, *(replace(r, n=r.n + 1) for r in first[:1])]
    path.write_text(to_json(with_records(run, records)))
    code, told, err = cudareduce("plot", path, "--n", "2^20")
    assert code == 0 and "2^10" in told and "1025" not in told
    assert "plotext" not in told + err
    assert "--n has no effect here" in err


def test_a_sweep_over_sms_is_plotted(cudareduce: Call, tmp_path: Path) -> None:
    pytest.importorskip("plotext")
    path = tmp_path / "sms.json"
    path.write_text(to_json(over_sms()))
    code, out, _ = cudareduce("plot", path)
    assert code == 0
    assert "active SMs" in out and " 132" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("{out}/none.json",), "there is no {out}/none.json: make it with cudareduce bench --json"),
        (("results",), "cannot read results: Is a directory"),
        ((SWEEP, "--png", "{out}/no/a.png"), "the folder {out}/no does not exist; create it"),
        (("{out}/newer.json",), "has schema 99, this version reads 1: bench again"),
        (("{out}/copy.json", "--png", "{out}/copy.json"), "choose another name"),
        (("results/nvidia-h200/orders.json",), "is not a result of cudareduce"),
        ((SWEEP, "--png", "{out}/a", "--svg", "{out}/./a"), "--png and --svg are one file, "),
        ((), "Missing argument 'RESULT...'"),
    ],
)
def test_bad_input_is_a_sentence(
    cudareduce: Call, tmp_path: Path, arguments: tuple[object, ...], said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(ROOT)
    (tmp_path / "newer.json").write_text('{"schema": 99, "records": []}')
    (tmp_path / "copy.json").write_text(SWEEP.read_text())
    code, out, err = cudareduce("plot", *(str(a).format(out=tmp_path) for a in arguments))
    assert (code, out) == (2, "")
    assert said.format(out=tmp_path) in err
    assert err.count("\n") == 1


def test_missing_packages_are_reported(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    code, _, err = cudareduce("plot", SWEEP, "--png", tmp_path / "a.png")
    assert (code, list(tmp_path.iterdir())) == (6, [])
    assert "PNG and SVG need vl-convert-python: pip install 'cudareduce[plot]'" in err
    monkeypatch.setattr("cudareduce.report.plot.terminal.is_plotext_missing", lambda: True)
    code, _, err = cudareduce("plot", SWEEP)
    assert code == 6
    assert "charts in a terminal need plotext: pip install 'cudareduce[plot]'" in err
    assert cudareduce("plot", BENCH)[0] == 0  # bars are characters


def test_the_small_picture_is_for_a_wide_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("plotext")
    run, table = load(SWEEP), Outputs()
    show_small(run, table)
    assert capsys.readouterr().out == ""  # no terminal
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    show_small(run, table)
    drawn = capsys.readouterr().out
    assert "Bandwidth over n" in drawn and len(drawn.splitlines()) < 24
    show_small(load(BENCH), table)  # more bars than are worth it
    show_small(run, Outputs(style="csv"))
    show_small(run, Outputs(json=Path("-")))
    monkeypatch.setenv("COLUMNS", "79")
    show_small(run, table)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("cudareduce.report.plot.command.is_plotext_missing", lambda: True)
    show_small(run, table)
    assert capsys.readouterr().out == ""


def test_labels_keep_apart_and_in_order() -> None:
    assert spread([0.5, 0.5, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.5, 0.6, 0.7])
    assert spread([0.99, 0.98], 0.1, 0.0, 1.0) == pytest.approx([1.0, 0.9])
    assert spread([0.1, 0.9], 0.1, 0.0, 1.0) == [0.1, 0.9]


@pytest.mark.slow
def test_five_thousand_records_take_seconds(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    path = tmp_path / "many.json"
    path.write_text(to_json(many(5000)))
    command = [sys.executable, "-m", "cudareduce", "plot", str(path)]
    command += ["--png", str(tmp_path / "many.png")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr
