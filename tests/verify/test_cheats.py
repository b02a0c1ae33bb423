"""Known ways to look fast without being right, each rejected, and honest twins, each accepted.

A file of tests/cheats says in its comment which net rejects it, and what the verdict must say. One
that no net catches so far names the net that is to, and is expected to get through.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudareduce.catalog.kernel import load_kernel
from tests.conftest import ROOT, read_result
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
Judged = Callable[..., tuple[int, str, str]]

CHEATS = sorted((ROOT / "tests" / "cheats").glob("*.cu"))
HONEST = sorted((ROOT / "tests" / "cheats" / "honest").glob("*.cu"))
PAGE = (ROOT / "docs" / "cheats.md").read_text()
#: The commands that a net belongs to, where not to both: `bench` looks for no races.
_COMMANDS = {"hazard": ["verify"], "bench": ["bench"]}


@dataclass(frozen=True)
class Claim:
    """The claim in a file's comment: the check that rejects it, and a pattern of the verdict."""

    net: str
    caught: bool
    says: str


def claim(path: Path) -> Claim:
    """The claim in a file's comment."""
    text = path.read_text()
    found = re.search(r"// Rejected by: (nothing yet, to be rejected by: )?([^.]+)\.\n", text)
    assert found, f"{path} does not say what rejects it"
    says = re.search(r"// Says: (.*)\n", text)
    return Claim(found[2], not found[1], says[1] if says else "")


TIMED = [path for path in CHEATS if claim(path).net == "timed launches"]


def without_places(text: str) -> str:
    """Addresses are others in every process."""
    return re.sub("0x[0-9a-f]+", "0x", text)


def op(path: Path) -> str:
    """The first operator that a kernel takes."""
    return (load_kernel(path).ops or ("sum",))[0]


#: Cheats that only large sizes or several operators reject, after two and after four seconds.
LONG = ("special_size", "skips_nan", "leaves_half_for_later")
SLOW = ("counts_in_32_bits", "wants_it_aligned")


def parameters() -> list[object]:
    cases: list[object] = []
    for path in (path for path in CHEATS if path not in TIMED):
        marks = [pytest.mark.long] * (path.stem in LONG) + [pytest.mark.slow] * (path.stem in SLOW)
        if not claim(path).caught:
            reason = f"no net yet: {claim(path).net}"
            marks = [*marks, pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)]
        cases.append(pytest.param(path, id=path.stem, marks=marks))
    return cases


@pytest.fixture
def judged(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Run a command on one file: exit code, verdict and reason."""
    monkeypatch.chdir(ROOT)

    def call(command: str, path: Path, *more: str) -> tuple[int, str, str]:
        name = path.relative_to(ROOT)
        code, out, _ = cudareduce(command, name, "--op", op(path), "--format", "json", *more)
        [record] = read_result(out)["records"]
        return code, record["verdict"], record["reason"]

    return call


def test_there_are_twelve_caught_cheats_and_their_honest_twins() -> None:
    assert sum(claim(path).caught for path in CHEATS) >= 12
    assert {path.stem for path in HONEST} <= {path.stem for path in CHEATS}


@pytest.mark.parametrize("path", parameters())
def test_a_cheat_is_rejected(path: Path, judged: Judged) -> None:
    said = claim(path)
    for command in _COMMANDS.get(said.net, ["verify", "bench"]):
        code, verdict, reason = judged(command, path, "--backend", "cpu")
        expected = (2, "skip") if said.net == "compiler" else (3, "fail")
        assert (code, verdict) == expected, f"{command}: {reason or 'it got through'}"
        assert re.search(said.says, reason), f"{command}: {reason}"
        if command == "verify":
            assert without_places(reason.splitlines()[0]) in without_places(PAGE)


@pytest.mark.long
@pytest.mark.parametrize("more", [
    ("--n", 4097), pytest.param((), marks=pytest.mark.slow),
    pytest.param(("--n", 2**20 + 1), marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("operator", [
    pytest.param(name, marks=() if name == "sum" else pytest.mark.slow)
    for name in sorted({op(path) for path in HONEST})
])  # fmt: skip
def test_no_honest_twin_is_rejected(
    operator: str, more: tuple[object, ...], cudareduce: Call
) -> None:
    """Neither at the sizes that hurt nor at one that only large inputs have."""
    paths = [path for path in HONEST if op(path) == operator]
    code, out, err = cudareduce(
        "verify", *paths, "--op", operator, "--backend", "cpu", "--format", "json", *more
    )
    records = read_result(out)["records"]
    wrong = [(r["kernel"], r["reason"]) for r in records if r["verdict"] != "pass"]
    assert (code, len(records), wrong) == (0, len(paths), []), err


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_the_documentation_lists_each_cheat(path: Path) -> None:
    said = claim(path)
    assert f"(../tests/cheats/{path.name})" in PAGE
    section = PAGE.split(f"(../tests/cheats/{path.name})")[1].split("\n## ")[0]
    assert said.net in " ".join(section.split())
    if said.caught:
        assert re.search(said.says, section)
    twin = path.parent / "honest" / path.name
    assert twin.exists() == (f"(../tests/cheats/honest/{path.name})" in section)
    [code] = re.findall(r"```cuda\n(.*?)```", section, re.DOTALL)[:1]
    text = re.sub(r"\s+", " ", path.read_text())
    for line in code.splitlines():
        assert re.sub(r"\s+", " ", line.strip()) in text, line


@pytest.mark.long
@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
def test_cheats_during_timing_are_detected(
    path: Path, judged: Judged, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU of which every launch really runs: what it says is a time of nothing."""
    gpu = FakeGpu(cache)
    use(monkeypatch, gpu)
    code, verdict, reason = judged(
        "bench", path, "--backend", "cuda", "--n", "5000", "--rounds", "1"
    )
    assert (code, verdict) == (3, "fail"), reason
    assert re.search(claim(path).says, reason)
