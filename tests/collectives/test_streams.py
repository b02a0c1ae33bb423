"""Streaming of sharded arrays: all shards are verified, and the slowest rank counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cudareduce.bench.stream.run import SingleRank
from cudareduce.collectives.sharded import _with_worst
from cudareduce.results.record import Record
from tests.collectives.conftest import Ranks, Torchrun
from tests.conftest import ROOT, read_result
from tests.fake_gpu import fake_gpu

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.long
def test_each_rank_streams_a_shard(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    code, out, err = ranks("bench", "reduce_v7_shuffle", "--from", "host", "--gpus", 3, "--n",
                           100_003, "--chunk", "64Ki", "--backend", "cpu",
                           "--json", path)  # fmt: skip
    assert code == 0, err
    assert out.startswith("sum of 100 003 float32 from the host's memory on 3 ranks, CPU emulator")
    records = read_result(path.read_text())["records"]
    assert {(r["way"], r["ranks"], r["n"], r["verdict"]) for r in records} == {
        (way, 3, 100_003, "pass") for way in ("pinned", "mapped", "pageable")
    }


@pytest.mark.long
def test_ranks_stream_shards_of_a_file(ranks: Ranks, tmp_path: Path) -> None:
    file = tmp_path / "numbers.npy"
    np.save(file, np.arange(10_001, dtype=np.int32))
    code, out, err = ranks("bench", "reduce_v7_shuffle", "--from", file, "--gpus", 2, "--chunk",
                           4096, "--backend", "cpu")  # fmt: skip
    assert code == 0, err
    assert "sum of 10 001 int32 from a file on 2 ranks" in out


@pytest.mark.long
def test_a_chunk_larger_than_a_shard_is_a_usage_error(ranks: Ranks) -> None:
    code, _, err = ranks("bench", "reduce_v7_shuffle", "--from", "host", "--gpus", 2, "--n", 1000,
                         "--chunk", 4000, "--backend", "cpu")  # fmt: skip
    assert code == 2
    assert "--chunk 4000: that is" in err


@pytest.mark.long
@pytest.mark.parametrize("differs", ["options", "text"])
def test_ranks_with_different_options_or_kernels_are_refused(
    torchrun: Torchrun, tmp_path: Path, differs: str
) -> None:
    text = (ROOT / "kernels/ladder/reduce_v7_shuffle.cu").read_text()
    text = text.replace("reduce_v7_shuffle", "reduce_own").replace("after ", "# after ")
    words = ("bench", "reduce_own.cu", "--gpus", 2, "--from", "host", "--n", 5000, "--backend",
             "cpu", "--meet", tmp_path / "rendezvous")  # fmt: skip
    folders = [tmp_path / "0", tmp_path / "1"]
    for rank, folder in enumerate(folders):
        folder.mkdir()
        comment = "// another\n" * (rank if differs == "text" else 0)
        (folder / "reduce_own.cu").write_text(text + comment)
    block = ("--block", 128) if differs == "options" else ()
    first, other = torchrun(words, (*words, *block), folders=folders)
    assert (first[0], other[0]) == (2, 2), first
    assert "ranks have different options or kernels" in first[2]


def test_the_time_is_that_of_the_slowest_rank(
    cudareduce: Call, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Applies to each run, and to copies without a kernel."""

    found = []
    for times in (1, 3):
        stored = tmp_path / "run.json"
        monkeypatch.setattr(SingleRank, "slowest", lambda self, run, times=times: times * run())
        with fake_gpu(monkeypatch, cache):
            ask = ("bench", "auto", "--from", "host", "--n", 30001, "--rounds", 6, "--seed", 1)
            code, out, err = cudareduce(*ask, "--json", stored)
            assert code == 0, out + err
        found.append([r["time_us"] for r in read_result(stored.read_text())["records"]])
    assert found[1] == pytest.approx([3 * us for us in found[0]], rel=0.05)


def test_the_verdict_is_that_of_the_worst_rank() -> None:
    right = Record(
        kernel="k", op="sum", dtype="float32", acc="float32", n=4, rows=1, block=32, items=1,
        grid=1, passes=1, backend="cuda", scope="grid", timing="cold", region="total",
        pattern="random", verdict="pass", reason="", time_us=4.0,
    )  # fmt: skip
    assert _with_worst(right, [("pass", ""), ("pass", "")]) is right
    wrong = _with_worst(right, [("pass", ""), ("skip", "no room"), ("fail", "it is 3, not 4")])
    assert (wrong.verdict, wrong.reason, wrong.time_us) == (
        "fail", "rank 2: it is 3, not 4", None
    )  # fmt: skip
