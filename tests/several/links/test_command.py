"""`links` as a user calls it, on the emulator; and what it is told of GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cudareduce.backends import BackendSpec
from cudareduce.cli.main import run
from cudareduce.gpu.topology import Placed
from cudareduce.results.store import load
from cudareduce.several.links import command
from cudareduce.several.links.trial import measured
from cudareduce.several.meet import ranks
from tests.fake_gpu import FakeGpu, FilePeerMemory

Ranks = Callable[..., tuple[int, str, str]]


@pytest.fixture
def links(home: dict[str, str]) -> Ranks:
    def call(*arguments: object) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "cudareduce", "links", *map(str, arguments)],
            env=home, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return call


WAYS = ("read:one_way", "read:both", "write:one_way", "write:both", "flag:ordered", "flag:relaxed")


def test_the_table(links: Ranks) -> None:
    code, out, err = links("--backend", "cpu")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0] == "links of 2 ranks, CPU emulator: answers only, nothing is timed"
    assert lines[2].split() == ["way", "answer"]
    assert [tuple(line.split()) for line in lines[4:10]] == [(way, "right") for way in WAYS]


@pytest.mark.long
def test_a_file_of_three_ranks(links: Ranks, tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    code, out, err = links("--backend", "cpu", "--ranks", 3, "--json", file, "--format", "csv")
    assert code == 0, err
    assert len(out.splitlines()) == 1 + len(WAYS)
    run = load(file)
    assert [(r.kernel, r.engine, r.ranks, r.time_us) for r in run.records] == [
        ("links", way, 3, None) for way in WAYS
    ]
    assert json.loads(file.read_text())["protocol"]["gpus"] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--ranks", "9"), "9"), (("--meet", "tcp://nowhere"), "give rank 0's host"),
     (("--json", "/no/such/place.json"), "/no/such")],
)  # fmt: skip
def test_what_cannot_be_asked(links: Ranks, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = links("--backend", "cpu", *arguments)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.gpu
def test_on_gpus(links: Ranks) -> None:
    code, out, err = links("--rounds", 1, "--format", "json")
    assert code == 0, err
    run = json.loads(out)
    ranks = len(run["protocol"]["gpus"])
    copies = [r for r in run["records"] if r["engine"].startswith("copy:")]
    assert {r["ranks"] for r in run["records"]} == {ranks}
    assert len(copies) == (2 if ranks == 1 else 4)
    assert all(r["verdict"] == "pass" and r["gb_s"] > 1 for r in copies)


@pytest.fixture
def one_gpu(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> None:
    """A host with one, which is simulated, and small arrays."""
    for module in (command, ranks):
        monkeypatch.setattr(module, "gpu_count", lambda: 1)
    monkeypatch.setattr(ranks, "choose_backend", lambda *_: (BackendSpec("cuda"), ()))
    monkeypatch.setattr(command, "open_backend", lambda spec: FakeGpu(cache, threads=1))
    monkeypatch.setattr(command, "name_and_address", lambda _: ("Fake GPU", "0000:19:00.0"))
    monkeypatch.setattr(command, "TIMED_BYTES", 2**16)
    files = partial(measured, allocate=lambda nbytes: FilePeerMemory(nbytes, tmp_path))
    monkeypatch.setattr(command, "measured", files)


def connected(
    monkeypatch: pytest.MonkeyPatch, ways: tuple[str | None, ...], reaches: tuple[bool, ...]
) -> None:
    def topology(names: tuple[str, ...], addresses: tuple[str, ...]) -> list[Placed]:
        return [Placed(names[0], addresses[0], "5 x16", ways, reaches)] * len(ways)

    monkeypatch.setattr(command, "topology", topology)


@pytest.mark.usefixtures("one_gpu")
def test_one_gpu_has_copies_of_its_host(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connected(monkeypatch, (None,), (True,))
    assert run(["links", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == ["0", "Fake", "GPU", "0000:19:00.0", "5", "x16"]
    assert [line.split()[:3] for line in lines if " KiB " in line] == [
        ["copy:from_host", "64", "KiB"], ["copy:to_host", "64", "KiB"]
    ]  # fmt: skip
    assert "one rank: there is no link to measure" in lines
    assert not any("one_way" in line for line in lines)


@pytest.mark.usefixtures("one_gpu")
def test_gpus_that_do_not_reach_each_other_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    connected(monkeypatch, (None, "SYS"), (True, False))
    assert run(["links", "--quiet", "--json", str(tmp_path / "links.json")]) == 0
    out = capsys.readouterr().out
    assert "SYS!" in out
    assert "cannot address each other's memory" in out
    assert load(tmp_path / "links.json").records == ()


@pytest.mark.usefixtures("one_gpu")
def test_a_gpu_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ranks, "choose_backend", lambda *_: (BackendSpec("cpu"), ()))
    assert run(["links"]) == 6
    assert "the GPU cannot be used, and one rank has no link" in capsys.readouterr().err
