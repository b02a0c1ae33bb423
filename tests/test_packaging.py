"""A wheel carries everything: installed elsewhere, it runs from an empty folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cudareduce import __version__
from tests.conftest import ROOT

ON_CPU = ("--backend", "cpu")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    for name in tracked:
        stored = name.startswith("results/") and "/bench-" not in name
        if (ROOT / name).is_file() and not stored:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q",
               "-w", str(folder), str(source)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.long
def test_it_holds_all_that_the_package_does(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in [*ROOT.glob("kernels/*/*.cu"), *ROOT.glob("kernels/suites/*.toml")]:
        assert f"cudareduce/{path.relative_to(ROOT)}" in names
    stored = [name for name in names if name.startswith("cudareduce/stored/")]
    assert len(stored) == len(list(ROOT.glob("results/*/bench-*.json")))
    for path in (ROOT / "cudareduce").rglob("*"):
        if path.is_file() and path.parent.name != "__pycache__":
            assert str(path.relative_to(ROOT)) in names


@pytest.mark.long
def test_the_package_is_marked_as_typed(wheel: Path) -> None:
    assert "cudareduce/py.typed" in zipfile.ZipFile(wheel).namelist()


def test_a_release_has_one_version_and_one_date() -> None:
    released = re.findall(r"^## (\S+) - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text()
    assert (
        re.findall(r'^version: (\S+)\ndate-released: "(\S+)"$', cited, re.MULTILINE) == released[:1]
    )
    assert released[0][0] == __version__


def test_ci_runs_on_the_oldest_python_and_the_newest() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    versions = json.loads(re.findall(r"python-version: (\[.*\])", workflow)[0])
    assert f"python_requires = >={versions[0]}\n" in (ROOT / "setup.cfg").read_text()
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]
    assert "- run: .ci/run\n" in workflow
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_commits_are_checked_with_the_tools_of_ci() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    run = (ROOT / ".ci" / "run").read_text()
    entries = re.findall(r"entry: (.*)", hooks)
    assert len(entries) == 4
    for entry in entries:
        assert f".venv/bin/{entry.removesuffix(' --force-exclude')}" in run


@pytest.mark.long
def test_the_installed_package_runs_from_an_empty_folder(
    wheel: Path, tmp_path: Path, cache: Path
) -> None:
    """What is compiled is kept with that of the other tests: a wheel that lacks a source of the
    emulator, or has another, would not find it there and fail to compile it."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "cudareduce").symlink_to(cache)
    zipfile.ZipFile(wheel).extractall(site)
    environment = os.environ | {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    code = "import cudareduce; print(cudareduce.__file__)"
    where = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=empty, env=environment
    )
    assert where.stdout.startswith(str(site))
    done = subprocess.run(
        [sys.executable, "-m", "cudareduce", "bench", "fastcuda", "--n", "1000", *ON_CPU],
        capture_output=True, text=True, cwd=empty, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" right ") == 8
