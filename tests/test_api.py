"""From Python: results that can be worked on, and errors that are raised."""

from __future__ import annotations

import inspect
import json
import pydoc
import rlcompleter
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import cudareduce
from cudareduce.bench import command  # the package is still one
from cudareduce.cli.main import cli
from cudareduce.errors import UsageError
from cudareduce.results.store import load
from tests.conftest import ROOT

KERNEL = "reduce_v7_shuffle"
STORED = ROOT / "results/nvidia-h200/bench-2p25-float32.json"


def test_results_are_records_and_rows(tmp_path: Path) -> None:
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


def test_a_run_without_records_is_shown_as_such(tmp_path: Path) -> None:
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


FUNCTIONS = (cudareduce.bench, cudareduce.verify, cudareduce.reveal, cudareduce.compare,
             cudareduce.plot, cudareduce.load)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_help_shows_signature_and_docstring_of_a_function(function: Callable[..., object]) -> None:
    text = pydoc.plain(pydoc.render_doc(function))
    assert text.startswith("Python Library Documentation: function ")
    assert f"{function.__name__}({str(inspect.signature(function))[1:8]}" in text
    assert "PACKAGE CONTENTS" not in text
    assert "UsageError" in text or "those of `bench`" in text


def test_a_function_shares_its_name_with_a_package() -> None:
    import cudareduce.bench.command as imported

    assert imported is command
    assert cudareduce.bench.command is command  # type: ignore[attr-defined]
    assert command.bench.__module__ == "cudareduce.bench.command"


def test_only_public_names_are_listed_and_completed() -> None:
    assert dir(cudareduce) == sorted(cudareduce.__all__)
    completer = rlcompleter.Completer({"cudareduce": cudareduce})
    found = {str(completer.complete("cudareduce.", k)).rstrip("(") for k in range(12)}
    assert {f"cudareduce.{function.__name__}" for function in FUNCTIONS} <= found
    parameters = inspect.signature(cudareduce.bench).parameters
    assert {"n", "op", "dtype", "rounds", "libraries"} <= set(parameters)


@pytest.mark.parametrize("name", ["bench", "verify", "reveal", "compare"])
def test_defaults_are_those_of_the_command(name: str) -> None:
    parameters = inspect.signature(getattr(cudareduce, name)).parameters.values()
    options = {option.removeprefix("--"): param
               for param in cli.commands[name].params for option in param.opts}  # fmt: skip
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY:
            option = options[parameter.name.replace("_", "-")]
            default = {"2^25": 2**25}.get(str(option.default), option.default)
            if default is None or "UNSET" in repr(default):  # click 8.2 and later
                default = False if isinstance(option, click.Option) and option.is_flag else None
            assert parameter.default == default, parameter.name


def test_importing_the_package_loads_no_command() -> None:
    code = "import sys, cudareduce; print('click' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False False\n"


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
        cudareduce.bench(KERNEL, **{name: "x"})  # type: ignore[arg-type]


def test_a_script_needs_no_guard_and_prints_nothing(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "import cudareduce\n"
        f"found = cudareduce.verify({KERNEL!r}, n=100, backend='cpu')\n"
        "print(found.items[0].verdict, __file__.endswith('mine.py'))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "pass True\n", "")
