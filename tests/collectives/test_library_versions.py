"""`check --library`: two versions of NCCL and of CUB, on simulated GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from cudareduce.cli.measure import collective
from cudareduce.collectives import library_versions
from cudareduce.libraries import cccl
from cudareduce.reduction.operators import reduction_of
from cudareduce.results.record import Run
from cudareduce.results.store import load, to_json
from tests.collectives import fake_cub, rank_processes
from tests.conftest import read_result
from tests.fake_gpu import fake_gpu
from tests.simulate import H200

NOISE = "NOISE=0.01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nccls")


@pytest.fixture(scope="module")
def old(folder: Path) -> Path:
    return rank_processes.compile_nccl(folder, "old", NOISE)


@pytest.fixture
def copy(old: Path, tmp_path: Path) -> Path:
    """The old library at another path."""
    path = tmp_path / "copy.so"
    path.write_bytes(old.read_bytes())
    return path


Call = Callable[..., tuple[int, str, str]]
#: Takes the number of ranks and the command line of each; returns the exit code.
Start = Callable[..., int]


def options_of(argv: list[str]) -> dict[str, Any]:
    return collective.make_context("collective", argv[1:]).params


@pytest.fixture
def check(cudareduce: Call, old: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `check --library nccl=old,NEW` on two fake GPUs, where `start` starts the ranks."""
    for name, value in {
        "gpu_count": lambda: 2, "default_ranks": lambda: 2,
        "device_of": lambda ranks, request: H200,
    }.items():  # fmt: skip
        monkeypatch.setattr(library_versions, name, value)

    def call(new: Path, start: Start, *words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("cudareduce.collectives.check.start_ranks", start)
        words = words or ("all-reduce", "--n", 1000)
        return cudareduce("check", *words, "--library", f"nccl={old},{new}", "--rounds", 6,
                          "--threshold", "2%", "--quiet")  # fmt: skip

    return call


@pytest.fixture
def rounds() -> list[int]:
    """The rounds of each job."""
    return []


@pytest.fixture
def simulated(cache: Path, tmp_path: Path, rounds: list[int]) -> Start:
    """Runs two ranks on simulated GPUs."""

    def start(ranks: int, argv: list[str], **_: object) -> int:
        options = options_of(argv)
        rounds.append(options["rounds"])
        reductions = product([options["collective"]], [options["op"]], options["dtype"])
        records = rank_processes.measure_libraries(rank_processes.LibraryRun(
            folder=tmp_path, cache=cache, engines=("nccl",), files=options["nccl"],
            reductions=tuple(reductions), sizes=options["n"], rounds=options["rounds"],
        ))  # fmt: skip
        run = Run({}, H200, {"rounds": options["rounds"]}, tuple(records))
        Path(options["json"]).write_text(to_json(run))
        return 0

    return start


@pytest.mark.long
def test_two_copies_of_nccl_are_the_same(copy: Path, check: Call, simulated: Start) -> None:
    words = ("all-reduce", "reduce-scatter", "--n", "1000,1001")
    code, out, err = check(copy, simulated, *words)
    assert code == 0, out + err
    assert out.startswith("NCCL 2.28.9 against NCCL 2.28.9, NVIDIA H200")
    assert "3 compared: 3 SAME" in out
    assert "reduce-scatter: skipped: all ranks must receive the same number" in out


@pytest.mark.slow
def test_a_slower_nccl_is_found_and_confirmed(
    folder: Path, check: Call, simulated: Start, rounds: list[int]
) -> None:
    slower = rank_processes.compile_nccl(folder, "slower", NOISE, "COST_US=10.5", "VERSION=23203")
    code, out, _ = check(slower, simulated)
    assert (code, rounds) == (1, [6, 12])  # the second run confirms it
    for words in ("SLOWER", "confirmed in a fresh process", "version 2.28.9, now 2.32.3"):
        assert words in out
    quicker = rank_processes.compile_nccl(folder, "quicker", NOISE, "COST_US=9.5")
    code, out, _ = check(quicker, simulated)
    assert (code, "FASTER" in out) == (0, True)


@pytest.mark.long
def test_a_wrong_nccl_is_found(folder: Path, check: Call, simulated: Start) -> None:
    wrong = rank_processes.compile_nccl(folder, "wrong", "LEAVES_OUT")
    code, out, _ = check(wrong, simulated)
    assert (code, "WRONG" in out) == (3, True)


@pytest.mark.long
def test_an_nccl_that_does_not_start_is_an_error(
    folder: Path, check: Call, simulated: Start
) -> None:
    def skip_all(ranks: int, argv: list[str], **_: object) -> int:
        simulated(ranks, argv)
        path = Path(options_of(argv)["json"])
        run = load(path)
        skipped = next(r for r in run.records if r.verdict == "skip")
        records = tuple(replace(skipped, engine=r.engine) for r in run.records)
        path.write_text(to_json(replace(run, records=records)))
        return 0

    broken = rank_processes.compile_nccl(folder, "broken", "NO_COMMUNICATOR")
    code, _, err = check(broken, skip_all)
    assert (code, "nothing was compared" in err) == (6, True)
    code, out, _ = check(broken, simulated)
    assert (code, "1 GONE" in out) == (1, True)


def test_ranks_are_started_with_both_files(old: Path, copy: Path, check: Call) -> None:
    """The exit code of the ranks is in the error."""
    jobs: list[dict[str, Any]] = []

    def start(size: int, argv: list[str], *, printing: bool, deadline: object) -> int:
        jobs.append(options_of(argv))
        assert (size, argv[0], printing) == (2, "collective", False)
        return 6

    words = ("reduce", "--n", 1000, "--op", "max", "--no-cache")
    code, _, err = check(copy, start, *words)
    assert (code, "ended with code 6: see their" in " ".join(err.split())) == (6, True)
    (options,) = jobs
    expected: dict[str, object] = {
        "collective": "reduce", "n": (1000,), "op": "max", "dtype": ("float32",), "rounds": 6,
        "engine": "nccl", "nccl": (old, copy), "backend": "cuda", "quiet": True, "no_cache": True,
    }  # fmt: skip
    assert {name: options[name] for name in expected} == expected


@pytest.mark.parametrize("by_rank", [False, True])
def test_an_interrupt_before_the_first_result_is_not_an_error_of_the_environment(
    copy: Path, check: Call, by_rank: bool
) -> None:
    """Also if only the ranks receive the signal, and end with code 130."""

    def interrupted(*_: object, **__: object) -> int:
        if by_rank:
            return 130
        raise KeyboardInterrupt

    assert check(copy, interrupted)[0] == 130


def test_a_wrong_option_for_library_versions_is_named(
    cudareduce: Call, old: Path, copy: Path, tmp_path: Path
) -> None:
    """Valid options need two GPUs; an invalid option is named."""
    nccl, cub = f"nccl={old},{copy}", fake_cub.tree(tmp_path / "a", 3_004_000)
    for library, words, code, why in (
        (nccl, (), 6, "takes two GPUs of one host"),
        (nccl, ("reduce", "--n", "2^20", "--dtype", "float16", "--threshold", "3%"), 6, "two GPUs"),
        (nccl, ("--ranks", 2), 2, "--ranks does not apply to --library nccl"),
        (nccl, ("--device", 1), 2, "--device does not apply to --library nccl"),
        (nccl, ("reduce_v7_shuffle",), 2, "and not 'reduce_v7_shuffle'"),
        (nccl, ("--op", "mean"), 2, "--library nccl takes --op sum, prod, min, max"),
        (f"nccl={old},{old}", (), 2, "old and new are the same"),
        (f"nccl={old}", (), 2, "two versions are compared: write nccl=OLD,NEW"),
        (f"cufft={old},{copy}", (), 2, "write NAME=OLD,NEW, where NAME is nccl or cub"),
        (str(old), (), 2, "names no library: write NAME=OLD,NEW"),
        (f"cub={cub},{tmp_path}/none", (), 2, f"there is no folder {tmp_path}/none"),
        (f"cub={cub},{tmp_path}", (), 2, "holds no cub/device/device_reduce.cuh"),
        (f"cub={cub},{cub}/../a", (), 2, "old and new are the same"),
        (f"cub={cub},{fake_cub.tree(tmp_path / 'b', 3_006_000)}", (), 6, "GPU"),
        (f"cub={cub},{tmp_path / 'b'}", ("cub:fast",), 2, "and not 'cub:fast'"),
        (f"cub={cub},{tmp_path / 'b'}", ("--n", "0"), 2, "takes --n of 1 or more"),
    ):
        found, _, err = cudareduce("check", "--library", library, *words)
        assert (found, why in " ".join(err.split())) == (code, True), err


@pytest.mark.long
def test_versions_of_a_library_are_not_compared_under_a_launcher(
    cudareduce: Call, old: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, err = cudareduce("check", "--library", f"nccl={old},{copy}")
    why = "starts its ranks itself: run it without torchrun"
    assert (code, why in " ".join(err.split())) == (2, True)


CUB_3_4, CUB_3_6 = 3_004_000, 3_006_000


@pytest.fixture
def cub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, cudareduce: Call
) -> Iterator[Call]:
    """Runs `check --library cub=OLD,NEW` on a fake GPU with a fake nvcc. A version is given as its
    number and lines of its CUB."""
    path = f"{fake_cub.nvcc(tmp_path / 'bin')}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr("cudareduce.libraries.session.LibraryRunner", fake_cub.FakeRunner)
    cccl.find_nvcc.cache_clear()

    def check(old: tuple[int, *tuple[str, ...]], new: tuple[int, *tuple[str, ...]], *words: object,
              kernels: tuple[str, ...] = ("cub:run_to_run",)) -> tuple[int, str, str]:  # fmt: skip
        cccl.tree_headers.cache_clear()
        trees = [fake_cub.tree(tmp_path / side, *lines) for side, lines in (("a", old), ("b", new))]
        library = f"cub={trees[0]},{trees[1]}"
        return cudareduce("check", *kernels, "--library", library, "--n", "2^10,2^12", "--quiet",
                          "--rounds", 6, "--all", *words)  # fmt: skip

    with fake_gpu(monkeypatch, cache):
        yield check
    cccl.find_nvcc.cache_clear()


@pytest.mark.long
def test_two_copies_of_cub_are_the_same(cub: Call, tmp_path: Path) -> None:
    """Each tree's headers are compiled, and the new version's records are stored."""
    stored = tmp_path / "now.json"
    code, out, err = cub((CUB_3_4,), (CUB_3_6,), "--json", stored)
    assert code == 0, out + err
    assert out.startswith("CUB 3.6.0 against CUB 3.4.0, ")
    assert f"old: CUB 3.4.0, {tmp_path}/a" in out
    assert "2 compared: 2 SAME" in out
    records = read_result(stored.read_text())["records"]
    assert [(r["kernel"], r["n"], r["version"], r["verdict"]) for r in records] == [
        ("peer:cub:run_to_run", n, "3.6.0", "pass") for n in (2**10, 2**12)
    ]
    assert all(r["time_us"] == pytest.approx(100) for r in records)


@pytest.mark.long
def test_a_slower_faster_or_wrong_cub_is_found(cub: Call) -> None:
    """The trees have the same version number and different text."""
    slower, faster = "#define COST_US 110.0", "#define COST_US 90.0"
    code, out, err = cub((CUB_3_4,), (CUB_3_4, slower), "--format", "json")
    rows = read_result(out)
    assert code == 1, out + err
    assert [(row["verdict"], row["confirmed"]) for row in rows] == [("SLOWER", True)] * 2
    code, out, _ = cub((CUB_3_4,), (CUB_3_4, faster))
    assert code == 0
    assert "2 compared: 2 FASTER" in out
    code, out, _ = cub((CUB_3_4,), (CUB_3_4, "#define FACTOR 1.5"))
    assert code == 3
    assert "2 compared: 2 WRONG" in out


@pytest.mark.long
def test_a_cub_that_does_not_compile_is_an_error(cub: Call) -> None:
    code, out, err = cub((CUB_3_4,), (CUB_3_6, "#error broken"))
    assert code == 2
    assert "sum of float32 does not compile: " in err
    assert "error: #error broken" in err
    code, out, err = cub((CUB_3_4,), (CUB_3_4, "// new"), kernels=("cub:not_guaranteed",))
    assert code == 6
    assert "nothing was compared: peer:cub:not_guaranteed: skipped: CCCL 3.4.0 is too old" in err
    code, out, err = cub((CUB_3_4,), (CUB_3_6,), kernels=("cub:not_guaranteed",))
    assert code == 0, out + err
    assert "2 NEW" in out


@pytest.mark.slow
def test_two_real_trees_compile(tmp_path: Path, cudareduce: Call) -> None:
    """Each CCCL release on this machine compiles with its own headers."""
    found: dict[int, Path] = {}
    for folder in cccl._folders():
        if version := cccl._version(folder):
            found.setdefault(version, folder)
    if cccl.find_nvcc() is None or not found:
        pytest.skip("there is no nvcc, or no CCCL")
    for version, folder in found.items():
        headers = cccl.tree_headers(folder)
        make = cccl.compile_library(reduction_of("sum", "float32"), 90, tmp_path, headers)
        symbols = subprocess.run(["nm", "-D", make], capture_output=True, text=True).stdout
        assert "run_to_run" in symbols
        assert headers.version == version
