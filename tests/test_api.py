"""From Python: results that can be worked on, and errors that are raised."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cudareduce
from cudareduce.bench import command  # the package is still one
from cudareduce.errors import UsageError
from cudareduce.results.store import load
from tests.conftest import ROOT

KERNEL = "reduce_v7_shuffle"
STORED = ROOT / "results/nvidia-h200/bench-2p25-float32.json"


def test_answers_are_records_and_rows(tmp_path: Path) -> None:
    found = cudareduce.verify(KERNEL, n=[100, 2**12], op=["sum", "max"], backend="cpu")
    assert [(one.kernel, one.op, one.verdict) for one in found.items] == [
        (KERNEL, "sum", "pass"), (KERNEL, "max", "pass"),
    ]  # fmt: skip
    assert found.exit_code == 0
    assert [row["op"] for row in found.to_rows()] == ["sum", "max"]
    assert "| reduce_v7_shuffle | sum " in str(found)
    found.save(tmp_path / "run.json")
    assert load(tmp_path / "run.json").records == found.items
    again = cudareduce.load(tmp_path / "run.json")
    assert again.to_rows() == found.to_rows()


def test_without_a_gpu_nothing_is_timed() -> None:
    found = cudareduce.bench(KERNEL, n="2^10", backend="cpu")
    assert [(one.n, one.verdict, one.time_us) for one in found.items] == [(1024, "pass", None)]


def test_orders_are_revealed() -> None:
    found = cudareduce.reveal(KERNEL, n=64, backend="cpu")
    (row,) = found.to_rows()
    assert (row["outcome"], row["depth"]) == ("fixed", 6)
    assert row["hash"] == found.items[0].hash
    assert json.loads(found.json)["kind"] == "orders"


def test_a_notebook_shows_tables_and_nothing_that_a_file_smuggles_in() -> None:
    run = cudareduce.load(STORED)
    html = run._repr_html_()
    assert html.count("<table>") == html.count("<p><b>") == 2
    assert "<td>reduce_v7_shuffle" in html
    from dataclasses import replace

    section = replace(run.sections[0], title="<script>", notes=("a<b",))
    assert "<script>" not in replace(run, sections=(section,))._repr_html_()


def test_two_runs_are_compared() -> None:
    old, new = (ROOT / f"tests/data/simulated-{when}.json" for when in ("before", "after"))
    found = cudareduce.compare(old, new, threshold="2%")
    assert found.exit_code == 1
    assert {row["verdict"] for row in found.to_rows()} == {one.verdict for one in found.items}
    assert len(found.items) == 24
    with pytest.raises(UsageError, match="holds the same measurement as"):
        cudareduce.compare(old, old)


@pytest.mark.long
def test_a_picture_is_shown_saved_and_printed(tmp_path: Path) -> None:
    picture = cudareduce.plot(STORED, only="reduce_v*", n=2**25)
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert "v7_shuffle" in str(picture)
    assert repr(picture).startswith("<pictures: Bandwidth at n = ")
    for name, begins in (("a.png", b"\x89PNG"), ("a.svg", b"<svg")):
        picture.save(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    with pytest.raises(
        UsageError, match=r"a\.pdf: the file name of a picture must end in \.png or \.svg"
    ):
        picture.save(tmp_path / "a.pdf")
    with pytest.raises(UsageError, match="'pie' is not a kind of chart: use one of sizes, "):
        cudareduce.plot(STORED, kind="pie")
    with pytest.raises(UsageError, match="no timed kernel is called nix"):
        cudareduce.plot(STORED, only=["nix"])


def test_a_result_is_drawn_as_its_file_is() -> None:
    path = ROOT / "results/nvidia-h200/sweep.json"
    assert cudareduce.plot(cudareduce.load(path)).figures == cudareduce.plot(path).figures
    files = [ROOT / "tests/data" / f"simulated-{when}.json" for when in ("before", "after")]
    with pytest.raises(UsageError, match="the result is not a result of cudareduce"):
        cudareduce.plot(cudareduce.compare(*files))  # type: ignore[arg-type]


def test_a_run_without_records_says_so(tmp_path: Path) -> None:
    run = json.loads((ROOT / "results/nvidia-h200/sweep.json").read_text())
    path = tmp_path / "none.json"
    path.write_text(json.dumps({**run, "records": []}))
    assert str(cudareduce.load(path)) == "no records"
    assert "no records" in cudareduce.load(path)._repr_html_()


def test_several_kernels_are_several_arguments() -> None:
    with pytest.raises(TypeError, match="takes names and paths as arguments, not list"):
        cudareduce.verify(["reduce_atomic", "reduce_v0_baseline"])  # type: ignore[arg-type]


def test_a_result_is_shown_as_its_tables() -> None:
    run = cudareduce.load(STORED)
    assert repr(run) == str(run)
    assert "| reduce_v7_shuffle " in repr(run)


def test_it_is_a_function_and_a_package() -> None:
    assert callable(cudareduce.bench)
    assert command.bench.__module__ == "cudareduce.bench.command"
    with pytest.raises(AttributeError, match="no attribute 'sweep_all'"):
        cudareduce.sweep_all  # noqa: B018


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"op": "nix"}, "'nix' is not one of: sum"),
        ({"n": 2**80}, "--n"),
        ({"n": []}, "--n"),
        ({"rows": -1}, "--rows"),
        ({"backend": "tpu"}, "--backend"),
    ],
)
def test_a_value_that_will_not_do_is_raised(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cudareduce.verify(KERNEL, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["nix", "json", "format", "columns", "debug"])
def test_an_option_that_there_is_not_is_a_mistake_of_the_program(name: str) -> None:
    with pytest.raises(TypeError, match=rf"bench\(\) has no option '{name}', only n, "):
        cudareduce.bench(KERNEL, **{name: "x"})


def test_a_script_needs_no_guard_and_prints_nothing(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import cudareduce\n"
        f"found = cudareduce.verify({KERNEL!r}, n=100, backend='cpu')\n"
        "print(found.items[0].verdict, __file__.endswith('mine.py'))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pass True\n", "")
