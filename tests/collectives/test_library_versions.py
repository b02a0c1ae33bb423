"""`check --library`: two versions of NCCL and of CUB, on simulated GPUs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from cudareduce.cli.measure import collective
from cudareduce.collectives import library_versions
from cudareduce.collectives.library_versions import check_library
from cudareduce.compare.request import CheckRequest, Judging, Versions
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.libraries import cccl
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Run
from cudareduce.results.store import to_json
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
def request_of(old: Path) -> Callable[..., CheckRequest]:
    def make(new: Path, **others: object) -> CheckRequest:
        request = CheckRequest(
            library=Versions("nccl", old, new), kernels=("all-reduce",), n=(1000,), op=("sum",),
            dtype=("float32",), rounds=6, budget=60.0, device=0, time_limit=None, no_cache=False,
            quiet=True, judging=Judging(threshold=0.02), outputs=Outputs(),
        )  # fmt: skip
        return replace(request, **others)  # type: ignore[arg-type]

    return make


@pytest.fixture
def check(
    cache: Path, tmp_path: Path, old: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., int]:
    """`check_library` whose jobs are two ranks on simulated GPUs; `edit` changes their results."""
    two_gpus(monkeypatch)

    def checked(request: CheckRequest, edit: Callable[[Run], Run] = lambda run: run) -> int:
        def job(ranks: int, argv: list[str], **_: object) -> int:
            options = collective.make_context("collective", argv[1:]).params
            rounds.append(options["rounds"])
            records = rank_processes.measure_libraries(rank_processes.LibraryRun(
                folder=tmp_path, cache=cache, engines=("nccl",), files=options["nccl"],
                reductions=tuple(
                    product([options["collective"]], [options["op"]], options["dtype"])
                ),
                sizes=options["n"], rounds=options["rounds"],
            ))  # fmt: skip
            run = edit(Run({}, H200, {"rounds": options["rounds"]}, tuple(records)))
            Path(options["json"]).write_text(to_json(run))
            return 0

        monkeypatch.setattr("cudareduce.collectives.check.start_ranks", job)
        return check_library(request)

    return checked


def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "gpu_count": lambda: 2, "default_ranks": lambda: 2,
        "device_of": lambda ranks, request: H200,
    }.items():  # fmt: skip
        monkeypatch.setattr(library_versions, name, value)


#: The rounds of each job.
rounds: list[int] = []
Requested = Callable[..., CheckRequest]
Check = Callable[..., int]


@pytest.fixture
def copy(old: Path, tmp_path: Path) -> Path:
    """The old library at another path."""
    path = tmp_path / "copy.so"
    path.write_bytes(old.read_bytes())
    return path


@pytest.mark.long
def test_two_copies_of_nccl_are_the_same(
    copy: Path, request_of: Requested, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("all-reduce", "reduce-scatter")
    assert check(request_of(copy, kernels=both, n=(1000, 1001))) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("NCCL 2.28.9 against NCCL 2.28.9, NVIDIA H200")
    assert "3 compared: 3 SAME" in printed
    assert "reduce-scatter: skipped: all ranks must receive the same number" in printed


@pytest.mark.slow
def test_a_slower_nccl_is_found_and_confirmed(
    folder: Path, request_of: Requested, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = rank_processes.compile_nccl(folder, "slower", NOISE, "COST_US=10.5", "VERSION=23203")
    rounds.clear()
    assert check(request_of(slower)) == 1
    printed = capsys.readouterr().out
    assert "SLOWER" in printed
    assert "confirmed in a fresh process" in printed
    assert "version 2.28.9, now 2.32.3" in printed
    assert rounds == [6, 12]  # the second run confirms it
    quicker = rank_processes.compile_nccl(folder, "quicker", NOISE, "COST_US=9.5")
    assert check(request_of(quicker)) == 0
    assert "FASTER" in capsys.readouterr().out


@pytest.mark.long
def test_a_wrong_nccl_is_found(
    folder: Path, request_of: Requested, check: Check, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = rank_processes.compile_nccl(folder, "wrong", "LEAVES_OUT")
    assert check(request_of(wrong)) == 3
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.long
def test_an_nccl_that_does_not_start_is_an_error(
    folder: Path, request_of: Requested, check: Check
) -> None:
    broken = rank_processes.compile_nccl(folder, "broken", "NO_COMMUNICATOR")
    with pytest.raises(EnvironmentProblem, match="nothing was compared"):
        check(request_of(broken), replace_all)
    assert check(request_of(broken)) == 1  # GONE


def replace_all(run: Run) -> Run:
    """The run with every record replaced by a skipped one."""
    gone = next(r for r in run.records if r.verdict == "skip")
    return replace(run, records=tuple(replace(gone, engine=r.engine) for r in run.records))


def test_ranks_are_started_with_both_files(
    old: Path, copy: Path, request_of: Requested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line of the ranks; their exit code is in the error."""
    two_gpus(monkeypatch)
    given: list[dict[str, object]] = []

    def started(size: int, argv: list[str], *, printing: bool, deadline: object) -> int:
        given.append(collective.make_context("collective", argv[1:]).params)
        assert (size, argv[0], printing) == (2, "collective", False)
        return 6

    monkeypatch.setattr("cudareduce.collectives.check.start_ranks", started)
    with pytest.raises(EnvironmentProblem, match="ended with code 6: see their"):
        check_library(request_of(copy, kernels=("reduce",), op=("max",), no_cache=True))
    (options,) = given
    assert {name: options[name] for name in ("collective", "n", "op", "dtype", "rounds")} == {
        "collective": "reduce", "n": (1000,), "op": "max", "dtype": ("float32",), "rounds": 6,
    }  # fmt: skip
    assert (options["engine"], options["nccl"]) == ("nccl", (old, copy))
    assert (options["backend"], options["quiet"], options["no_cache"]) == ("cuda", True, True)


@pytest.mark.parametrize("by_rank", [False, True])
def test_an_interrupt_before_the_first_result_is_not_an_error_of_the_environment(
    copy: Path, request_of: Requested, monkeypatch: pytest.MonkeyPatch, by_rank: bool
) -> None:
    """Also if only the ranks receive the signal, and end with code 130."""
    two_gpus(monkeypatch)

    def interrupted(*_: object, **__: object) -> int:
        if by_rank:
            return 130
        raise KeyboardInterrupt

    monkeypatch.setattr("cudareduce.collectives.check.start_ranks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_library(request_of(copy))


def test_a_wrong_option_for_library_versions_is_named(
    cudareduce: Callable[..., tuple[int, str, str]], old: Path, copy: Path, tmp_path: Path
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
    copy: Path, request_of: Requested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="starts its ranks itself: run it without torchrun"):
        check_library(request_of(copy))


Call = Callable[..., tuple[int, str, str]]
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
