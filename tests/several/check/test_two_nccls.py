"""`check --nccl`: what is slower is found, and what is the same is not, on simulated GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.cli.several import collective
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.gate.request import Judging
from cudareduce.report.publish import Outputs
from cudareduce.results.record import Run
from cudareduce.several.check import two_nccls
from cudareduce.several.check.two_nccls import NcclRequest, check_nccl
from tests.several import nccls
from tests.simulate import H200

NOISE = "NOISE=0.01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nccls")


@pytest.fixture(scope="module")
def old(folder: Path) -> Path:
    return nccls.compiled(folder, "old", NOISE)


@pytest.fixture
def request_of(old: Path) -> Callable[..., NcclRequest]:
    def made(new: Path, **others: object) -> NcclRequest:
        asked = NcclRequest(
            nccl=(old, new), collective=("all-reduce",), n=(1000,), op=("sum",),
            dtype=("float32",), rounds=6, budget=60.0, no_cache=False, quiet=True,
            judging=Judging(threshold=0.02), outputs=Outputs(),
        )  # fmt: skip
        return replace(asked, **others)  # type: ignore[arg-type]

    return made


@pytest.fixture
def measure(cache: Path, tmp_path: Path, old: Path) -> Callable[[Path], two_nccls.Measure]:
    """Jobs of two ranks on simulated GPUs."""

    def of(new: Path) -> two_nccls.Measure:
        def job(asked: two_nccls.Asked) -> Run:
            jobs.append(asked)
            found = nccls.together(nccls.Asked(
                folder=tmp_path, cache=cache, engines=("nccl",), files=(old, new),
                tried=((asked.collective, asked.op, asked.dtype),),  # type: ignore[arg-type]
                sizes=asked.sizes, rounds=asked.rounds,
            ))  # fmt: skip
            return Run({}, H200, {"rounds": asked.rounds}, tuple(found))

        return job

    return of


jobs: list[two_nccls.Asked] = []
Requested = Callable[..., NcclRequest]
Measured = Callable[[Path], two_nccls.Measure]


@pytest.mark.long
def test_the_same_is_the_same(
    old: Path, request_of: Requested, measure: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("all-reduce", "reduce-scatter")
    assert check_nccl(request_of(old, collective=both, n=(1000, 1001)), measure(old)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("NCCL 2.28.9 against NCCL 2.28.9, NVIDIA H200")
    assert "3 compared: 3 SAME" in printed
    assert "reduce-scatter: skipped: it gives all ranks as many elements" in printed


@pytest.mark.slow
def test_what_is_slower_is_found_and_confirmed(
    folder: Path, request_of: Requested, measure: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = nccls.compiled(folder, "slower", NOISE, "COST_US=10.5", "VERSION=23203")
    jobs.clear()
    assert check_nccl(request_of(slower), measure(slower)) == 1
    printed = capsys.readouterr().out
    assert "SLOWER" in printed
    assert "confirmed in a fresh process" in printed
    assert "version 2.28.9, now 2.32.3" in printed
    assert [asked.rounds for asked in jobs] == [6, 12]  # which is what confirms it
    quicker = nccls.compiled(folder, "quicker", NOISE, "COST_US=9.5")
    assert check_nccl(request_of(quicker), measure(quicker)) == 0
    assert "FASTER" in capsys.readouterr().out


def test_what_is_wrong_is_told(
    folder: Path, request_of: Requested, measure: Measured, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = nccls.compiled(folder, "wrong", "LEAVES_OUT")
    assert check_nccl(request_of(wrong), measure(wrong)) == 3
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.long
def test_what_begins_nowhere_is_an_error(
    folder: Path, request_of: Requested, measure: Measured
) -> None:
    broken = nccls.compiled(folder, "broken", "NO_COMMUNICATOR")
    asked = replace(request_of(broken), nccl=(broken, broken))
    with pytest.raises(EnvironmentProblem, match="nothing was compared"):
        check_nccl(asked, lambda job: replace_all(measure(broken)(job)))
    assert check_nccl(request_of(broken), measure(broken)) == 1  # one that is gone


def replace_all(run: Run) -> Run:
    """As if both sides had begun nowhere."""
    gone = next(r for r in run.records if r.verdict == "skip")
    return replace(run, records=tuple(replace(gone, engine=r.engine) for r in run.records))


def test_what_ranks_are_started_with(
    old: Path, request_of: Requested, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words that `collective` understands; and ranks that end with an error leave nothing."""
    monkeypatch.setattr(two_nccls, "gpu_count", lambda: 2)
    monkeypatch.setattr(two_nccls, "most_ranks", lambda: 2)
    given: list[dict[str, object]] = []

    def started(size: int, argv: list[str], *, printing: bool) -> int:
        given.append(collective.make_context("collective", argv[1:]).params)
        assert (size, argv[0], printing) == (2, "collective", False)
        return 6

    monkeypatch.setattr(two_nccls, "start", started)
    with pytest.raises(EnvironmentProblem, match="have ended with code 6: see what they have said"):
        check_nccl(request_of(old, collective=("reduce",), op=("max",), no_cache=True))
    (options,) = given
    assert {name: options[name] for name in ("collective", "n", "op", "dtype", "rounds")} == {
        "collective": "reduce", "n": (1000,), "op": "max", "dtype": ("float32",), "rounds": 6,
    }  # fmt: skip
    assert (options["engine"], options["nccl"]) == ("nccl", (old, old))
    assert (options["backend"], options["quiet"], options["no_cache"]) == ("cuda", True, True)


def test_as_it_is_written(cudareduce: Callable[..., tuple[int, str, str]], old: Path) -> None:
    """The command line makes a request of its words, or says which of them has no place there."""
    for words, code, why in (
        ((), 6, "takes two GPUs of one host"),
        (("reduce", "--n", "2^20", "--dtype", "float16", "--threshold", "3%"), 6, "takes two GPUs"),
        (("--ranks", 2), 2, "--ranks says nothing to two libraries"),
        (("reduce_v7_shuffle",), 2, "and not 'reduce_v7_shuffle'"),
    ):
        found, _, err = cudareduce("check", "--nccl", f"{old},{old}", *words)
        assert (found, why in " ".join(err.split())) == (code, True), err


@pytest.mark.long
def test_where_it_cannot_be_run(
    old: Path, request_of: Requested, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EnvironmentProblem, match="takes two GPUs of one host, and the driver"):
        check_nccl(request_of(old))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="starts its ranks itself: run it without torchrun"):
        check_nccl(request_of(old))
    with pytest.raises(UsageError, match="--nccl takes --op sum, prod, min, max"):
        check_nccl(request_of(old, op=("mean",)))
