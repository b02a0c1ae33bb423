"""Streamed arrays on the command line: results on the emulator, times on a fake GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudareduce.bench.stream import pipeline, run
from cudareduce.bench.stream.pipeline import Piece
from cudareduce.errors import KernelFault
from tests.conftest import read_result
from tests.fake_gpu import FakeGpu, fake_gpu

Call = Callable[..., tuple[int, str, str]]
CPU = ("--backend", "cpu", "--quiet")
SMALL = ("--from", "host", "--n", "30001", "--chunk", "16Ki,64Ki")
V7 = "reduce_v7_shuffle"


@pytest.fixture(autouse=True)
def a_quick_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_QUICK", 1000)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(3, 2001)).astype("f4"))
    return tmp_path / "a.npy"


def records(path: Path) -> list[dict[str, Any]]:
    return read_result(path.read_text())["records"]  # type: ignore[no-any-return]


def test_each_transfer_mode_gives_the_right_result(cudareduce: Call, tmp_path: Path) -> None:
    stored = tmp_path / "run.json"
    code, out, _ = cudareduce("bench", V7, *SMALL, *CPU, "--json", stored)
    assert code == 0, out
    found = [(r["way"], r["chunk_bytes"], r["source"]) for r in records(stored)]
    assert found == [
        ("pinned", 2**14, "host"), ("pinned", 2**16, "host"), ("mapped", None, "host"),
        ("pageable", 2**16, "host"),
    ]  # fmt: skip
    assert {r["verdict"] for r in records(stored)} == {"pass"}
    assert all(r["time_us"] is None for r in records(stored))
    assert "reduce_v7_shuffle pinned 16 KiB" in out
    assert "from the host's memory" in out


def test_an_array_of_several_dimensions_is_one_row(
    cudareduce: Call, tmp_path: Path, numbers: Path
) -> None:
    stored = tmp_path / "run.json"
    code, out, err = cudareduce(
        "verify", V7, "--from", numbers, "--chunk", "4096", *CPU[:2], "--json", stored
    )
    assert code == 0, out
    assert [r["way"] for r in records(stored)] == ["pinned", "pageable"]
    assert {(r["n"], r["dtype"], r["pattern"]) for r in records(stored)} == {
        (6003, "float32", "given")
    }
    assert "3 x 2001, taken as one row of 6003 elements" in err


def test_without_a_size_lengths_around_a_chunk_are_tried(cudareduce: Call, tmp_path: Path) -> None:
    stored = tmp_path / "run.json"
    code, out, _ = cudareduce(
        "verify", V7, "--from", "host", "--chunk", "4096", "--dtype", "int32", *CPU, "--json",
        stored,
    )  # fmt: skip
    assert code == 0, out
    assert {r["n"] for r in records(stored)} == {1, 1023, 1024, 1025, 4113}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--chunk", "3"), "an element of float32 has 4 bytes"),
        (("--chunk", "0"), "an element of float32 has 4 bytes"),
        (("--chunk", "1Gi"), "the whole array has 4004 bytes"),
        (("--n", "2^30", "--chunk", "4"), "that makes 1073741824 copies"),
        (("--n", "0"), "the array is empty"),
        (("--rows", "2"), "streamed as one row"),
        (("--graph",), "leave out --graph"),
        (("--peers", "cub"), "leave out --peers"),
    ],
)
def test_unsupported_options_are_refused(
    cudareduce: Call, options: tuple[str, ...], said: str
) -> None:
    code, _, err = cudareduce("bench", V7, "--n", "1001", "--from", "host", *options, *CPU)
    assert code == 2
    assert said in err


@pytest.mark.parametrize(("op", "value", "n"), [("sum", 3e38, 5000), ("prod", 3.0, 200)])
def test_a_result_beyond_the_range_of_its_type_is_not_judged(
    cudareduce: Call, tmp_path: Path, op: str, value: float, n: int
) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.full(n, value, np.float32))
    code, out, err = cudareduce("verify", V7, "--from", file, "--op", op, *CPU)
    assert code != 3
    assert "its elements leave the range of float32: --acc takes another" in out
    assert "Warning" not in err


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--chunk", "1Gi", "give a smaller one"), ("--dtype", "int32", "holds float32; leave it out")],
)
def test_a_file_has_its_own_length_and_type(
    cudareduce: Call, numbers: Path, option: str, value: str, message: str
) -> None:
    code, _, err = cudareduce("bench", V7, "--from", numbers, option, value, *CPU)
    assert code == 2
    assert message in err
    assert "--n" not in err


@pytest.mark.parametrize("command", ["bench", "verify"])
def test_the_array_is_not_written_over(cudareduce: Call, numbers: Path, command: str) -> None:
    before = numbers.read_bytes()
    code, _, err = cudareduce(command, V7, "--from", numbers, "--json", numbers, *CPU)
    assert code == 2
    assert str(numbers) in err
    assert numbers.read_bytes() == before


@pytest.mark.slow
def test_reading_a_file_ends_at_the_time_limit(cudareduce: Call, tmp_path: Path) -> None:
    given, stored = tmp_path / "large.npy", tmp_path / "run.json"
    np.lib.format.open_memmap(given, "w+", np.float32, (2**33,))  # holes, which take no room
    code, out, _ = cudareduce("verify", V7, "--from", given, "--max-time", "3", *CPU, "--json",
                              stored)  # fmt: skip
    assert code == 4, out
    assert all("--max-time 3 s was spent" in r["reason"] for r in records(stored))


@pytest.mark.parametrize(
    ("names", "options", "said"),
    [
        (("auto",), ("--op", "mean"), "streams are folded by sum"),
        ((V7,), ("--map", "a * a"), "maps are not streamed"),
        (("reduce_warp_registers",), ("--n", "2^16"), "one result per row"),
    ],
)
def test_results_that_cannot_be_folded_are_skipped(
    cudareduce: Call, names: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    code, out, _ = cudareduce("bench", *names, *SMALL, *options, *CPU)
    assert code == 2
    assert said in out.replace("\n", " ")


def test_an_array_larger_than_host_memory_is_skipped(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudareduce.machine.available_bytes", lambda: 10**5)
    code, out, _ = cudareduce("bench", V7, *SMALL, *CPU)
    assert code == 6
    assert "GiB of host memory" in out


def test_without_memory_for_a_second_array_pageable_is_skipped(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "why_too_large", lambda nbytes: "no" if nbytes > 2e5 else None)
    code, out, _ = cudareduce("bench", V7, *SMALL, *CPU)
    assert code == 0
    assert "pageable 64 KiB: skipped, takes a second array" in out


@pytest.mark.parametrize("what", ["lost", "twice", "shifted"])
def test_a_failure_names_the_wrong_piece(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """With a copy that is left out a kernel reads what lay in the buffer before."""
    given = pipeline.Feed.give

    def give(held: Any, piece: Piece) -> np.ndarray:
        if piece.number == 4 and what == "lost":
            return np.empty(0, np.uint8)
        if piece.number == 4 and what == "twice":
            piece = Piece(3, piece.start - piece.count, piece.count)
        if piece.number == 4 and what == "shifted":
            piece = Piece(4, piece.start + 1, piece.count)
        return given(held, piece)

    monkeypatch.setattr(pipeline.Feed, "give", give)
    code, out, _ = cudareduce("verify", V7, *SMALL, "--dtype", "int32", *CPU)
    assert code == 3
    assert "elements 16384 to 20479, piece 5 of 8: got" in out.replace("\n", " ")


def test_a_missing_fold_is_wrong(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.Streamed, "fold", lambda streamed: None)
    code, out, _ = cudareduce("verify", V7, *SMALL, *CPU)
    assert code == 3
    assert "WRONG: got nan" in out


def test_a_fault_in_one_mode_does_not_stop_the_others(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    right_run = pipeline.Mapped.run

    def fault(way: Any) -> Any:
        right_run(way)
        raise KernelFault("it reads where nothing is")

    monkeypatch.setattr(pipeline.Mapped, "run", fault)
    code, out, _ = cudareduce("verify", V7, *SMALL, *CPU)
    assert code == 3
    assert f"{V7} mapped: WRONG: it reads where nothing is" in out
    assert out.count("right") == 3


@pytest.mark.long
def test_times_are_compared_with_copying_alone(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numbers: Path
) -> None:
    stored = tmp_path / "run.json"
    with fake_gpu(monkeypatch, cache, floor_us=1.0):
        for source in (("--from", "host", "--n", "30001"), ("--from", numbers)):
            ask = ("bench", "auto", *source, "--chunk", "4096,16Ki", "--rounds", "6")
            code, out, _ = cudareduce(*ask, "--json", stored)
            assert code == 0, out
            found = records(stored)
            assert found[0]["kernel"] == "copying"
            assert found[0]["pct_ceiling"] == pytest.approx(100)
            assert all(r["pct_ceiling"] > 0 and len(r["rounds_us"]) == 6 for r in found)
            assert "%copy" in out
            code, out, _ = cudareduce("check", "--baseline", stored, "--threshold", "20%")
            assert code == 0, out
            assert f"{len(found)} compared: {len(found)} SAME" in out


@pytest.mark.long
def test_slower_copies_are_found(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stored = tmp_path / "run.json"
    ask = ("bench", V7, "--from", "host", "--n", "30001", "--chunk", "16Ki", "--json", stored)
    with fake_gpu(monkeypatch, cache):
        assert cudareduce(*ask)[0] == 0
    copy_in = FakeGpu.copy_in

    def twice(gpu: FakeGpu, *more: Any) -> None:
        copy_in(gpu, *more)
        copy_in(gpu, *more)

    monkeypatch.setattr(FakeGpu, "copy_in", twice)
    with fake_gpu(monkeypatch, cache):
        code, out, _ = cudareduce("check", "--baseline", stored)
    assert code == 1, out
    assert "SLOWER   copying" in out


def test_a_kernel_that_cannot_read_mapped_memory_is_skipped(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "why_not_mapped", lambda *more: "does not read it")
    with fake_gpu(monkeypatch, cache):
        code, out, _ = cudareduce("verify", V7, *SMALL)
    assert code == 0
    assert f"{V7} mapped: skipped, does not read it" in out


def test_rows_after_ctrl_c_are_skipped(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(way: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline.Mapped, "run", interrupted)
    code, out, _ = cudareduce("verify", V7, *SMALL, *CPU, "--pattern", "random")
    assert code == 130
    assert out.count("   right") == 2
    assert "skipped, interrupted before it was tried (2 rows)" in out
