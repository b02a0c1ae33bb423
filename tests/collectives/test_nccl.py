"""NCCL as an engine: what is called with what, on simulated GPUs and a library that is compiled
here."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.collectives.collective import CollectiveRequest, requested_libraries
from cudareduce.collectives.libraries import Wanted
from cudareduce.collectives.names import COLLECTIVES, Collective
from cudareduce.collectives.nccl import Nccl, load, version_text
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.report.collectives import collective_sections
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Run
from tests.collectives.nccls import Asked, compiled, together
from tests.simulate import H200

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64",
         "uint64")  # fmt: skip


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("nccl"), "libnccl")


@pytest.fixture
def asked(cache: Path, tmp_path: Path, nccl: Path) -> Asked:
    return Asked(folder=tmp_path, cache=cache, engines=("nccl",), files=(nccl,))


def test_both_kinds_have_times(asked: Asked) -> None:
    found = together(replace(asked, engines=("nccl", "nccl-symm")))
    assert [(r.engine, r.n, r.verdict, r.reason) for r in found] == [
        ("nccl", 1000, "pass", ""), ("nccl-symm", 1000, "pass", ""),
    ]  # fmt: skip
    for r in found:
        assert (r.version, r.scope, r.ranks, r.distinct) == ("2.28.9", "library", 2, 1)
        assert r.time_us == pytest.approx(10 + 1.28)  # the library's, and an event's
        assert r.loop_us == pytest.approx(10 + 1.28 / 64)


@pytest.mark.slow
def test_collectives_operators_and_types(asked: Asked) -> None:
    ops = dict(zip(TYPES, ("sum", "prod", "min", "max") * 3, strict=False))
    tried = [(name, ops[dtype], dtype) for name in COLLECTIVES for dtype in TYPES]
    found = together(replace(asked, tried=tuple(tried), ranks=3, sizes=(480,), rounds=1))
    assert [(r.kernel, r.op, r.dtype) for r in found] == tried
    for r in found:
        assert (r.verdict, r.reason) == ("pass", ""), r.dtype
        assert r.time_us


def test_shares_that_are_not_equal_are_told(asked: Asked) -> None:
    scatter: tuple[Collective, str, str] = ("reduce-scatter", "sum", "float32")
    found = together(replace(asked, tried=(scatter,), sizes=(1000, 1001)))
    assert [(r.n, r.verdict, r.cause) for r in found] == [(1000, "pass", None),
                                                          (1001, "skip", "unfit")]  # fmt: skip
    why = "it gives all ranks as many elements: give --n a multiple of 8"
    assert found[1].reason == why


@pytest.mark.long
def test_what_is_not_tried_says_why(asked: Asked) -> None:
    found = together(replace(asked, engines=("nccl-symm", "torch"), tried=(
        ("all-reduce", "max", "float32"), ("all-reduce", "sum", "float64"),
        ("reduce", "sum", "float16"), ("all-reduce", "prod", "uint32"),
    )))  # fmt: skip
    sums = "NCCL has kernels of symmetric memory for sums of float32, float16, bfloat16 alone"
    assert {r.verdict for r in found} == {"skip"}
    assert [r.reason for r in found if r.engine == "nccl-symm"] == [
        sums, sums, "NCCL has no kernels of symmetric memory for reduce", sums,
    ]  # fmt: skip
    assert found[-2].reason == "torch.distributed takes no uint32"
    assert found[0].reason.startswith("torch")  # that it is not here, or has no GPU


@pytest.mark.long
def test_torch_on_tensors_that_are_windows(asked: Asked, nccl: Path) -> None:
    tried = [
        (collective, op, dtype) for collective in COLLECTIVES
        for op, dtype in (("sum", "bfloat16"), ("max", "float32"), ("prod", "int8"))
    ]  # fmt: skip
    found = together(replace(asked, engines=("torch",), torch=nccl, tried=tuple(tried), ranks=3,
                             sizes=(480,), rounds=1))  # fmt: skip
    assert [(r.kernel, r.op, r.dtype) for r in found] == tried
    for r in found:
        assert (r.verdict, r.reason) == ("pass", ""), (r.kernel, r.op, r.dtype)
        assert r.version == "2.15.0 with NCCL 2.28.9"
        assert r.time_us == pytest.approx(11.28)
    wrong = compiled(asked.folder, "wrong", "LEAVES_OUT")
    both = replace(asked, engines=("nccl", "torch"), torch=wrong)
    assert {r.engine: r.verdict for r in together(both)} == {"torch": "fail", "nccl": "pass"}


def test_a_rank_that_is_left_out_is_found(asked: Asked) -> None:
    wrong = compiled(asked.folder, "wrong", "LEAVES_OUT")
    found = together(replace(asked, engines=("nccl", "nccl-symm"), files=(wrong,)))
    assert [r.verdict for r in found] == ["fail", "fail"]
    assert "element 0 is" in found[0].reason


def test_two_libraries_are_two_engines(asked: Asked) -> None:
    other = compiled(asked.folder, "other", "COST_US=12.0", "VERSION=23203", "NO_WINDOWS")
    files = (*asked.files, other)
    found = together(replace(asked, engines=("nccl", "nccl-symm"), files=files))
    known = {r.engine: r for r in found}
    assert list(known) == ["nccl:1", "nccl:2", "nccl-symm:1", "nccl-symm:2"]
    assert [known[f"nccl:{k}"].version for k in (1, 2)] == ["2.28.9", "2.32.3"]
    assert known["nccl:1"].time_us == pytest.approx(11.28)
    assert known["nccl:2"].time_us == pytest.approx(13.28)
    assert known["nccl-symm:2"].reason == (
        "NCCL 2.32.3 has no symmetric memory, which came with 2.27"
    )
    (section,) = collective_sections(Run({}, H200, {}, tuple(found)), found)
    assert section.notes[:2] == (
        "versions: nccl:1 2.28.9, nccl:2 2.32.3, nccl-symm:1 2.28.9",
        "nccl-symm:2: skipped: NCCL 2.32.3 has no symmetric memory, which came with 2.27",
    )


def test_a_communicator_that_does_not_begin_is_told(asked: Asked) -> None:
    broken = compiled(asked.folder, "broken", "NO_COMMUNICATOR")
    (found,) = together(replace(asked, files=(broken,)))
    assert (found.verdict, found.cause) == ("skip", "machine")
    assert found.reason == "ncclCommInitRank of NCCL 2.28.9 has failed: system error"


def test_what_is_no_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    other = tmp_path / "other.so"
    source = tmp_path / "other.cpp"
    source.write_text('extern "C" int other() { return 0; }\n')
    compile_other(source, other)
    for path, words in [
        (tmp_path / "none.so", "there is no such file: name a libnccl.so.2"),
        (tmp_path, "there is no such file"),
        (text, "cannot be loaded (file too short): name a libnccl.so.2"),
        (other, "is no NCCL, as it has no ncclGetVersion: name a libnccl.so.2"),
    ]:
        with pytest.raises(UsageError) as caught:
            load(path)
        assert str(caught.value).startswith(f"--nccl {path}")
        assert words in str(caught.value)
    monkeypatch.setattr("cudareduce.collectives.nccl.NAME", "libno-such-nccl.so.2")
    with pytest.raises(EnvironmentProblem, match="there is no NCCL here: pip install nvidia-nccl"):
        load(None)


def compile_other(source: Path, path: Path) -> None:
    subprocess.run(["g++", "-shared", "-fPIC", "-o", str(path), str(source)], check=True)


def test_multicast_is_off_unless_the_user_says(nccl: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    load(nccl)
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    load(nccl)
    assert os.environ["NCCL_NVLS_ENABLE"] == "1"


def test_nccl_is_among_the_engines_where_there_are_times(
    monkeypatch: pytest.MonkeyPatch, nccl: Path
) -> None:
    def asked(*engine: str, files: tuple[Path, ...] = ()) -> CollectiveRequest:
        return CollectiveRequest(
            collective="all-reduce", n=(8,), op="sum", dtype=("float32",), engine=engine,
            nccl=files, rounds=9, folders=(), outputs=Outputs(), ranks=None, backend="auto",
            meet=None, no_cache=False, quiet=False, argv=(),
        )  # fmt: skip

    found = Wanted("nccl", "nccl")
    monkeypatch.setattr("cudareduce.collectives.collective.load", lambda path: load(nccl))
    assert requested_libraries(asked(), timed=True) == ((found,), "")
    assert requested_libraries(asked(), timed=False) == ((), "")
    assert requested_libraries(asked("host"), timed=True) == ((), "")
    assert requested_libraries(asked("nccl"), timed=False) == ((found,), "")
    assert requested_libraries(asked(files=(nccl,)), timed=True)[0] == (replace(found, file=nccl),)

    def none(path: Path | None) -> Nccl:
        raise EnvironmentProblem("there is no NCCL here: so install it")

    monkeypatch.setattr("cudareduce.collectives.collective.load", none)
    assert requested_libraries(asked(), timed=True) == (
        (), "NCCL is not among the engines: there is no NCCL here: so install it."
    )  # fmt: skip


def test_versions_as_words() -> None:
    assert [version_text(code) for code in (2708, 21003, 22809, 23203)] == [
        "2.7.8", "2.10.3", "2.28.9", "2.32.3",
    ]  # fmt: skip
