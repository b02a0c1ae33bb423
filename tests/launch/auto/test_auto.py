"""`auto` among the kernels of commands: one row a size, of another kernel where that is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudareduce.report.sections import sections, verification_sections
from cudareduce.results.record import Run
from tests.conftest import read_result
from tests.fake_gpu import fake_gpu
from tests.libraries.fakes import use_fakes
from tests.simulate import H200, record

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
ON_CPU = ("--backend", "cpu", "--quiet", "--format", "json")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    with fake_gpu(monkeypatch, cache):
        yield


def records(answer: tuple[int, str, str]) -> list[dict[str, Any]]:
    code, out, err = answer
    assert code == 0, err
    found: list[dict[str, Any]] = read_result(out)["records"]
    return found


@pytest.mark.long
def test_it_takes_another_kernel_from_size_to_size(
    cudareduce: Call, gpu: None, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    asked = ("auto", "reduce_tiles_block", "--n", "2^12,2^16", "--quiet", "--rounds", "6")
    code, out, _ = cudareduce("bench", *asked, "--json", path)
    assert code == 0
    assert "\nauto: reduce_tiles_scalar, 256 threads x 16 elements\n" in out
    assert "\nauto: reduce_tiles_mailbox, 256 threads x 4 elements\n" in out
    stored = read_result(path.read_text())["records"]
    mine = [r for r in stored if r["kernel"] == "auto"]
    taken = [(r["n"], r["chosen"], r["block"], r["items"], r["grid"]) for r in mine]
    assert taken == [
        (4096, "reduce_tiles_scalar", 256, 16, 1), (65536, "reduce_tiles_mailbox", 256, 4, 64)
    ]  # fmt: skip
    assert all(r["time_us"] and r["verdict"] == "pass" for r in mine)
    assert {r["chosen"] for r in stored if r["kernel"] != "auto"} == {None}
    code, out, _ = cudareduce("check", "--baseline", path, "--quiet")
    assert code == 0
    assert "4 compared: 4 SAME" in out
    code, out, _ = cudareduce("check", "auto", "--baseline", path, "--quiet")
    assert "2 compared: 2 SAME" in out


@pytest.mark.long
def test_a_sweep_has_one_line_of_it(cudareduce: Call, gpu: None) -> None:
    asked = ("auto", "reduce_tiles_block", "--n", "2^11,2^12,2^16", "--quiet", "--rounds", "6")
    code, out, _ = cudareduce("sweep", *asked)
    assert code == 0
    assert "1 auto, 2 reduce_tiles_block" in out
    assert "\nauto: reduce_tiles_scalar, 256 threads x 16 elements at 2^11, 2^12\n" in out
    assert "\nauto: reduce_tiles_mailbox, 256 threads x 4 elements at 2^16\n" in out


def test_a_curve_over_sms_names_the_selected_kernels(cudareduce: Call, gpu: None) -> None:
    asked = ("auto", "--sms", "2,16", "--n", "2^15", "--quiet", "--rounds", "6")
    code, out, err = cudareduce("sweep", *asked)
    assert code == 0, err
    assert "\nauto: reduce_tiles_mailbox, 1024 threads x 16 elements\n" in out


@pytest.mark.long
def test_verify_has_a_row_for_each_launch_shape(cudareduce: Call) -> None:
    """Each by a number where there are several; those that a block of one's own makes equal are
    one."""
    asked = ("verify", "auto", "--n", "33,5000,50000", "--backend", "cpu", "--quiet")
    _, out, _ = cudareduce(*asked)
    assert [line.split()[:2] for line in out.splitlines() if " right " in line] == [
        ["auto", "1"], ["auto", "2"], ["auto", "3"],
    ]  # fmt: skip
    assert "\nauto 3: reduce_tiles_mailbox, 256 threads x 4 elements\n" in out
    _, out, _ = cudareduce(*asked, "--block", "256", "--items", "16")
    assert out.count(" right ") == 2
    assert "\nauto 1: reduce_tiles_scalar, 256 threads x 16 elements\n" in out


def test_a_requested_launch_shape_overrides_the_selected_one(cudareduce: Call) -> None:
    [one] = records(cudareduce("bench", "auto", "--n", "1000", "--block", "128", *ON_CPU))
    assert (one["chosen"], one["block"], one["verdict"]) == ("reduce_tiles_scalar", 128, "pass")


def test_auto_supports_custom_operators(cudareduce: Call) -> None:
    own = ("--op-expr", "a > b ? a : b", "--identity=-INFINITY")
    [one] = records(cudareduce("bench", "auto", "--n", "1000", *own, *ON_CPU))
    assert (one["chosen"], one["verdict"]) == ("reduce_tiles_scalar", "pass")


def test_nothing_is_launched_at_0(cudareduce: Call) -> None:
    [one] = records(cudareduce("bench", "auto", "--n", "0", *ON_CPU))
    assert (one["kernel"], one["verdict"], one["passes"]) == ("auto", "pass", 0)


def test_a_wrong_result_of_auto_names_the_selected_kernel() -> None:
    failed = replace(
        record("auto", 2**20, (5.0,)), chosen="reduce_tiles", block=256, items=8, verdict="fail",
        reason="off by one", time_us=None,
    )  # fmt: skip
    [section] = sections(Run({}, H200, {}, (failed,)))
    assert "auto (reduce_tiles, 256 x 8): WRONG: off by one" in section.notes
    [answers] = verification_sections([failed], "answers")
    assert "auto (reduce_tiles, 256 x 8) sum float32: WRONG: off by one" in answers.notes


def test_auto_without_a_supported_kernel_is_skipped_with_the_reason(cudareduce: Call) -> None:
    asked = ("bench", "auto", "--n", "100", "--rows", "30", "--op", "affine", "--dtype", "int32")
    code, out, _ = cudareduce(*asked, "--backend", "cpu", "--quiet")
    assert code == 2
    assert "auto: skipped, no kernel of the package takes these rows" in out


@pytest.mark.long
def test_auto_is_timed_together_with_libraries(
    cudareduce: Call, gpu: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use_fakes(monkeypatch, "FINE")
    path = tmp_path / "run.json"
    asked = ("bench", "auto", "--n", "2^12,2^16", "--rounds", "6", "--quiet", "--peers", "all")
    assert cudareduce(*asked, "--json", path)[0] == 0
    beside = [r for r in read_result(path.read_text())["records"] if r["context"]]
    assert [(r["n"], r["chosen"]) for r in beside if r["kernel"] == "auto"] == [
        (4096, "reduce_tiles_scalar"), (65536, "reduce_tiles_mailbox")
    ]  # fmt: skip
    assert sum(r["kernel"] == "peer:fine" for r in beside) == 2
