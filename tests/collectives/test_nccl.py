"""NCCL as an engine, on simulated GPUs with a fake library that is compiled here."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.collectives.collective import requested_libraries
from cudareduce.collectives.names import COLLECTIVES, Collective
from cudareduce.collectives.nccl import Nccl, RequestedLibrary, load_nccl, version_in, version_text
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.report.ranks import rank_sections
from cudareduce.results.record import Run
from tests.collectives.rank_processes import LibraryRun, compile_nccl, measure_libraries
from tests.simulate import H200

TYPES = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint32", "int64",
         "uint64")  # fmt: skip


@pytest.fixture(scope="module")
def nccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_nccl(tmp_path_factory.mktemp("nccl"), "libnccl")


@pytest.fixture
def run(cache: Path, tmp_path: Path, nccl: Path) -> LibraryRun:
    return LibraryRun(folder=tmp_path, cache=cache, engines=("nccl",), files=(nccl,))


@pytest.mark.long
def test_each_file_of_nccl_is_an_engine_with_times(run: LibraryRun) -> None:
    """A library that leaves a rank out, and one that creates no communicator, have no times."""
    builds = {"other": ("COST_US=12.0", "VERSION=23203", "NO_WINDOWS"), "wrong": ("LEAVES_OUT",),
              "broken": ("NO_COMMUNICATOR",)}  # fmt: skip
    files = (*run.files, *(compile_nccl(run.folder, name, *d) for name, d in builds.items()))
    scatter: tuple[Collective, str, str] = ("reduce-scatter", "sum", "float32")
    reductions = (*run.reductions, scatter)
    found = measure_libraries(replace(
        run, engines=("nccl", "nccl-symm"), files=files, reductions=reductions, sizes=(1000, 1001)
    ))  # fmt: skip
    reduced = [r for r in found if r.kernel == "all-reduce"]
    known = {r.engine: r for r in reduced}
    assert set(known) == {f"{kind}:{k}" for kind in ("nccl", "nccl-symm") for k in range(1, 5)}
    assert {name: r.verdict for name, r in known.items()} == {
        "nccl:1": "pass", "nccl:2": "pass", "nccl:3": "fail", "nccl:4": "skip",
        "nccl-symm:1": "pass", "nccl-symm:2": "skip", "nccl-symm:3": "fail", "nccl-symm:4": "skip",
    }  # fmt: skip
    for name in ("nccl:1", "nccl-symm:1"):
        r = known[name]
        assert (r.reason, r.version, r.scope, r.ranks) == ("", "2.28.9", "library", 2)
        assert r.distinct == 1
        assert r.time_us == pytest.approx(10 + 1.28)  # the library's, and an event's
        assert r.loop_us == pytest.approx(10 + 1.28 / 64)
    assert known["nccl:2"].time_us == pytest.approx(13.28)
    assert known["nccl:2"].version == "2.32.3"
    no_windows = "NCCL 2.32.3 has no symmetric memory, which came with 2.27"
    assert known["nccl-symm:2"].reason == no_windows
    assert "element 0 is" in known["nccl:3"].reason
    broken = known["nccl:4"]
    assert broken.reason == "ncclCommInitRank of NCCL 2.28.9 has failed: system error"
    assert broken.cause == "machine"
    scattered = [r for r in found if r.kernel == "reduce-scatter" and r.engine == "nccl:1"]
    assert [(r.n, r.verdict, r.cause) for r in scattered] == [(1000, "pass", None),
                                                              (1001, "skip", "unfit")]  # fmt: skip
    why = "all ranks must receive the same number of elements: give --n a multiple of 8"
    assert scattered[1].reason == why
    sections = rank_sections(Run({}, H200, {}, tuple(reduced)))
    notes = [note for section in sections for note in section.notes]
    assert any(note.startswith("versions: nccl:1 2.28.9, nccl:2 2.32.3") for note in notes)
    assert f"nccl-symm:2: skipped: {no_windows}" in notes


@pytest.mark.slow
def test_collectives_operators_and_types(run: LibraryRun) -> None:
    ops = dict(zip(TYPES, ("sum", "prod", "min", "max") * 3, strict=False))
    reductions = [(name, ops[dtype], dtype) for name in COLLECTIVES for dtype in TYPES]
    found = measure_libraries(
        replace(run, reductions=tuple(reductions), ranks=3, sizes=(480,), rounds=1)
    )
    assert [(r.kernel, r.op, r.dtype) for r in found] == reductions
    for r in found:
        assert (r.verdict, r.reason) == ("pass", ""), r.dtype
        assert r.time_us


@pytest.mark.long
def test_a_skipped_library_has_a_reason(run: LibraryRun) -> None:
    found = measure_libraries(replace(run, engines=("nccl-symm", "torch"), reductions=(
        ("all-reduce", "max", "float32"), ("all-reduce", "sum", "float64"),
        ("reduce", "sum", "float16"), ("all-reduce", "prod", "uint32"),
    )))  # fmt: skip
    sums = "NCCL has symmetric-memory kernels only for sums of float32, float16, bfloat16"
    assert {r.verdict for r in found} == {"skip"}
    assert [r.reason for r in found if r.engine == "nccl-symm"] == [
        sums, sums, "NCCL has no symmetric-memory kernels for reduce", sums,
    ]  # fmt: skip
    assert found[-2].reason == "torch.distributed does not support uint32"
    assert found[0].reason.startswith("torch")  # that it is not here, or has no GPU


@pytest.mark.long
def test_torch_works_on_windows(run: LibraryRun, nccl: Path) -> None:
    reductions = [
        (collective, op, dtype) for collective in COLLECTIVES
        for op, dtype in (("sum", "bfloat16"), ("max", "float32"), ("prod", "int8"))
    ]  # fmt: skip
    found = measure_libraries(replace(
        run, engines=("torch",), torch=nccl, reductions=tuple(reductions), ranks=3, sizes=(480,),
        rounds=1,
    ))  # fmt: skip
    assert [(r.kernel, r.op, r.dtype) for r in found] == reductions
    for r in found:
        assert (r.verdict, r.reason) == ("pass", ""), (r.kernel, r.op, r.dtype)
        assert r.version == "2.15.0 with NCCL 2.28.9"
        assert r.time_us == pytest.approx(11.28)
    wrong = compile_nccl(run.folder, "wrong", "LEAVES_OUT")
    both = replace(run, engines=("nccl", "torch"), torch=wrong)
    assert {r.engine: r.verdict for r in measure_libraries(both)} == {
        "torch": "fail",
        "nccl": "pass",
    }


def test_a_file_that_is_not_nccl_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.so"
    text.write_text("no library")
    for path, words in [
        (tmp_path / "none.so", "there is no such file: name a libnccl.so.2"),
        (tmp_path, "there is no such file"),
        (text, "cannot be loaded (file too short): name a libnccl.so.2"),
        (library(tmp_path, ""), "is not NCCL: it has no ncclGetVersion: name a libnccl.so.2"),
    ]:
        with pytest.raises(UsageError) as caught:
            load_nccl(path)
        assert str(caught.value).startswith(f"--nccl {path}")
        assert words in str(caught.value)
    monkeypatch.setattr("cudareduce.collectives.nccl.FILE_NAME", "libno-such-nccl.so.2")
    with pytest.raises(EnvironmentProblem, match="NCCL was not found: pip install nvidia-nccl"):
        load_nccl(None)


def test_multicast_is_off_unless_the_environment_sets_it(
    nccl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NCCL_NVLS_ENABLE", raising=False)
    load_nccl(nccl)
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "1")
    load_nccl(nccl)
    assert os.environ["NCCL_NVLS_ENABLE"] == "1"


def test_nccl_is_an_engine_by_default_if_times_are_measured(
    monkeypatch: pytest.MonkeyPatch, nccl: Path
) -> None:
    found = RequestedLibrary("nccl", "nccl")
    monkeypatch.setattr("cudareduce.collectives.collective.load_nccl", lambda path: load_nccl(nccl))
    for names, timed, libraries in (
        ((), True, (found,)), ((), False, ()), (("host",), True, ()), (("nccl",), False, (found,)),
    ):  # fmt: skip
        assert requested_libraries(names, (), timed=timed) == (libraries, "")
    assert requested_libraries((), (nccl,), timed=True)[0] == (replace(found, file=nccl),)

    def none(path: Path | None) -> Nccl:
        raise EnvironmentProblem("NCCL was not found: so install it")

    monkeypatch.setattr("cudareduce.collectives.collective.load_nccl", none)
    assert requested_libraries((), (), timed=True) == (
        (), "NCCL is not among the engines: NCCL was not found: so install it."
    )  # fmt: skip


def test_version_codes_become_text() -> None:
    assert [version_text(code) for code in (2708, 21003, 22809, 23203)] == [
        "2.7.8", "2.10.3", "2.28.9", "2.32.3",
    ]  # fmt: skip


def library(folder: Path, body: str) -> Path:
    """A library whose constructor runs `body`."""
    path = folder / "loaded.so"
    text = f"__attribute__((constructor)) static void loaded() {{ {body} }}"
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c++", "-o", str(path), "-"],
                   input=f"#include <unistd.h>\n#include <stdlib.h>\n{text}", text=True,
                   check=True)  # fmt: skip
    return path


def test_the_version_of_an_nccl_library_is_read_from_its_file(tmp_path: Path) -> None:
    assert version_in(compile_nccl(tmp_path, "sound", "VERSION=22703")) == "2.27.3"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("abort();", "ends its process by SIGABRT"),
        ("exit(1);", "ends its process with code 1"),
        ("exit(0);", "ends its process with code 0"),
        ("for (;;) pause();", "does not report its version within 0.3 s"),
    ],
)
def test_a_file_that_crashes_or_hangs_is_a_usage_error(
    tmp_path: Path, body: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "cudareduce.collectives.nccl._LIMIT_S", 60.0 if "pause" not in body else 0.3
    )
    with pytest.raises(UsageError, match=why):
        version_in(library(tmp_path, body))
