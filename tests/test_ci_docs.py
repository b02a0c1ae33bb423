"""The workflows of docs/ci*.md: their shell lines are run here, in a copy of this checkout.

Installing is left out (a stand-in for pip notes what it was asked for), the GPU is a fake one, and
sizes and kernels are cut down; everything else runs as it stands in the page.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cudareduce.compare.units import load
from cudareduce.machine import installed
from tests.conftest import ROOT

PAGE, HISTORY_PAGE, OWN_PAGE = (
    (ROOT / "docs" / f"{name}.md").read_text() for name in ("ci", "ci-history", "ci-own-kernels")
)
VERDICTS_PAGE = (ROOT / "docs" / "verdicts.md").read_text()
KEPT = ("reduce_v0_baseline", "reduce_v1_no_divergence")
BASELINE = "results/nvidia-h200/baseline.json"


def jobs(title: str, page: str = PAGE) -> dict[str, list[str]]:
    """The shell lines of each job of the YAML under a title; what a step runs is one script."""
    yaml = page.split(f"# {title}\n")[1].split("```yaml\n")[1].split("```")[0]
    found: dict[str, list[str]] = {}
    job, block, indent = "", False, 0
    for line in yaml.splitlines():
        here = len(line) - len(line.lstrip())
        name = re.match(r"(?:  )?([a-z][\w:]*):$", line)
        if name and name[1] not in ("jobs", "artifacts", "script"):
            job = name[1]
        if line.strip() == "- run: |":
            block, indent = True, here
            found.setdefault(job, []).append("")
        elif block and here > indent + 2:
            found[job][-1] += line.strip() + "\n"
        else:
            block = False
            if re.match(r"    - [^u]", line):
                found.setdefault(job, []).append(line.strip().removeprefix("- "))
    return found


def git(folder: Path, *words: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this tree with two kernels, committed, as a runner has it."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    for name in ("cudareduce", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "kernels" / "ladder").mkdir(parents=True)
    for name in KEPT:
        shutil.copy(ROOT / "kernels" / "ladder" / f"{name}.cu", copy / "kernels" / "ladder")
    git(copy, "init", "-q")
    git(copy, "add", ".")
    git(copy, "commit", "-qm", "before")
    git(copy, "update-ref", "refs/remotes/origin/main", "HEAD")
    return copy


class Runner:
    """Runs the lines of a job as a CI service would."""

    def __init__(self, checkout: Path, cache: Path) -> None:
        self.checkout, self.tools = checkout, checkout.parent / "tools"
        self.folder = checkout
        self.summary = checkout.parent / "summary.md"
        self.tools.mkdir()
        venv = 'mkdir -p "$3/bin"; cp "$(dirname "$0")"/made/* "$3/bin"'
        self._script(self.tools / "python3", venv)
        (self.tools / "made").mkdir()
        note = 'echo "$@" >> "$HOME/pip.log"'
        self._script(self.tools / "made" / "pip", note)
        run = f'exec {sys.executable} -m tests.fake_gpu "$@"'
        self._script(self.tools / "made" / "cudareduce", run)
        self.asked = checkout.parent / "pip.log"
        self.environment = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "HOME": str(checkout.parent),
            "PYTHONPATH": str(checkout),
            "CUDAREDUCE_TEST_CACHE": str(cache),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(checkout),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_BASE_REF": "main",
        }

    @staticmethod
    def _script(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def __call__(self, script: str) -> tuple[int, str]:
        lines = re.sub(r"2\^2\d[\d^,]*", "4097", script)
        done = subprocess.run(
            ["bash", "-e", "-c", lines], cwd=self.folder, env=self.environment,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def runner(checkout: Path, cache: Path) -> Runner:
    return Runner(checkout, cache)


def slow(checkout: Path) -> None:
    path = checkout / "kernels" / "ladder" / f"{KEPT[1]}.cu"
    path.write_text(path.read_text() + "// slower: 10 %\n")


def bench(runner: Runner) -> None:
    """Make the baseline with the line of the page that says how."""
    [line] = [line for line in PAGE.splitlines() if line.startswith("cudareduce bench")]
    assert BASELINE in line
    (runner.checkout / BASELINE).parent.mkdir(parents=True)
    code, out = runner(f"python3 -m venv .venv\n.venv/bin/{line}")
    assert code == 0, out


@pytest.mark.long
def test_the_github_example_fails_for_a_wrong_kernel(runner: Runner) -> None:
    steps = jobs("GitHub Actions")["answers"]
    kernel = runner.checkout / "kernels" / "ladder" / f"{KEPT[1]}.cu"
    kernel.write_text(kernel.read_text().replace("i < n", "i + 1 < n"))
    codes = [runner(step.replace("verify all", f"verify {KEPT[1]} --n 1000"))[0] for step in steps]
    assert codes == [0, 3]
    assert runner.asked.read_text() == "install -e .\n"


@pytest.mark.slow
def test_the_github_example_compares_and_comments(runner: Runner) -> None:
    steps = jobs("GitHub Actions")["timed"]
    assert len(steps) == 2
    for step in steps:
        code, out = runner(step)
        assert code == 0, out
    assert runner.asked.read_text() == "install -e .[cuda]\n"
    assert runner.summary.read_text().count("2 compared: 2 SAME") == 1
    comment = runner.checkout / "comment.md"
    assert comment.read_text().startswith("<!-- cudareduce -->\n")
    slow(runner.checkout)
    code, out = runner(steps[1])
    assert code == 1, out
    assert out.count("::error") == 1
    assert f"::error file=kernels/ladder/{KEPT[1]}.cu,line=" in out
    assert "1 SLOWER, 1 SAME" in runner.summary.read_text()
    following = f"next: `cudareduce check {KEPT[1]} --base origin/main --n 4097 --threshold 3%`"
    assert following in comment.read_text()


@pytest.mark.slow
def test_the_github_example_stores_a_series_and_finds_a_regression(runner: Runner) -> None:
    """Runs are added to a branch and pushed, and a step that holds for two of them fails."""
    bench(runner)
    remote, there = runner.checkout.parent / "remote.git", runner.checkout / "history"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "history", remote], check=True)
    subprocess.run(["git", "clone", "-q", remote, there], check=True, capture_output=True)
    (there / ".gitattributes").write_text("*.jsonl merge=union\n")
    git(there, "checkout", "-q", "-B", "history")
    git(there, "add", ".")
    git(there, "commit", "-qm", "empty")
    git(there, "push", "-q", "-u", "origin", "history")
    found = jobs("Workflow for GitHub", HISTORY_PAGE)
    for job in ("measured", "kept"):
        for step in found[job]:
            code, out = runner(step)
            assert code == 0, out
        (runner.checkout / "measured").mkdir(exist_ok=True)  # where the artifact is unpacked
        for path in runner.checkout.glob("*.json"):
            shutil.copy(path, runner.checkout / "measured")
    names = [entry["name"] for entry in json.loads((runner.checkout / "series.json").read_text())]
    assert len(names) == len(set(names)) == 2
    told = subprocess.run(["git", "-C", remote, "show", "--stat", "history"], capture_output=True)
    assert b".jsonl" in told.stdout
    slow(runner.checkout)
    code, out = runner(found["measured"][-1])
    assert (code, (runner.checkout / "run.json").exists()) == (1, True)


@pytest.mark.slow
def test_the_gitlab_example_fails_for_a_slower_kernel(runner: Runner) -> None:
    bench(runner)
    del runner.environment["GITHUB_ACTIONS"], runner.environment["GITHUB_STEP_SUMMARY"]
    slow(runner.checkout)
    lines = jobs("GitLab")["kernels:timed"]
    codes = [runner(line)[0] for line in lines]
    assert codes == [0, 0, 1]
    suite = ElementTree.parse(runner.checkout / "junit.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert not runner.summary.exists()


@pytest.fixture
def own(runner: Runner) -> Path:
    """A repository with one file, in which the lines of a runner are run."""
    folder = runner.folder = runner.checkout.parent / "own"
    folder.mkdir()
    (folder / "block_sum.cu").write_text((ROOT / "tests/docs/block_sum.cu").read_text())
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "before")
    git(folder, "update-ref", "refs/remotes/origin/main", "HEAD")
    runner.environment |= {"GITHUB_WORKSPACE": str(folder), "CUDAREDUCE": "git+https://x.y/z.git"}
    return folder


@pytest.mark.slow
def test_own_kernels_are_verified(runner: Runner, own: Path) -> None:
    steps = jobs("CI for a repository of your own kernels", OWN_PAGE)["verified"]
    codes = [runner(step)[0] for step in steps]
    assert codes == [0, 0]
    assert runner.asked.read_text() == "install git+https://x.y/z.git\n"
    file = own / "block_sum.cu"
    file.write_text(file.read_text().replace("i < n; i +=", "i < n - 1; i +="))
    code, out = runner(steps[-1])
    assert code == 3
    assert "is never added" in out


@pytest.mark.slow
def test_own_kernels_are_compared_with_the_target_branch(runner: Runner, own: Path) -> None:
    steps = jobs("CI for a repository of your own kernels", OWN_PAGE)["timed"]
    codes = [runner(step)[0] for step in steps]
    assert codes == [0, 0]
    assert runner.asked.read_text() == "install cudareduce[cuda] @ git+https://x.y/z.git\n"
    assert "1 compared: 1 SAME" in (own / "comment.md").read_text()


def test_third_party_actions_are_pinned_to_a_commit() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.yml"), ROOT / "README.md"]
    used = [name for page in pages for name in re.findall(r"\buses: (\S+)", page.read_text())]
    assert len(used) > 10
    for name in used:
        assert name.startswith("actions/") or re.search(r"@[0-9a-f]{40}$", name), name


@pytest.mark.skipif(not list(installed("nvcc")), reason="nvcc was not found")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "job"), [("GitHub Actions", "compiled"), ("GitLab", "kernels:compiled")]
)
def test_the_ci_example_without_a_gpu_passes_as_written(
    runner: Runner, title: str, job: str
) -> None:
    [line] = [line for line in PAGE.splitlines() if line.endswith("--update-baseline")]
    path = runner.checkout / "results" / "compile" / "nvcc-13.0.json"
    path.parent.mkdir(parents=True)
    code, out = runner(f"python3 -m venv .venv\n.venv/bin/{line} --arch 90")
    assert code == 0, out
    assert len({unit.kernel for unit in load(path).units}) == 2
    steps = jobs(title)[job]
    for step in steps:
        code, out = runner(step)
        assert code == 0, out
    assert runner.asked.read_text() == "install -e .[compile]\n"
    kernel = runner.checkout / "kernels" / "ladder" / f"{KEPT[1]}.cu"
    text = kernel.read_text().replace("// Write:", "__syncthreads();\n" * 3 + "    // Write:")
    kernel.write_text(text)
    code, out = runner(steps[-1])
    assert code == 1, out
    assert "WORSE" in out
    assert list(runner.checkout.glob("*.xml"))


def test_options_of_the_pages_exist() -> None:
    from cudareduce.cli.check import history
    from cudareduce.cli.main import cli

    commands = [*cli.commands.values(), *history.commands.values()]
    known = {word for command in commands for parameter in command.params
             for word in parameter.opts}  # fmt: skip
    lines = (PAGE + HISTORY_PAGE + OWN_PAGE + VERDICTS_PAGE).splitlines(keepends=True)
    ours = "".join(line for line in lines if "gh pr" not in line)
    assert set(re.findall(r"(?<!\w)--[a-z][\w-]+", ours)) <= known
