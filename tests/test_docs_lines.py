"""Every shell line and Python block of the documents is run, but for those that say what they take.

What a test must know stands in comments above a block, which nobody sees who reads the page:

    <!-- takes a GPU -->                not run: its options are read alone; or `a network`
    <!-- ends with 3, 0 -->             exit codes of its lines, where they are not 0
    <!-- printed: some words -->        what its lines print, among other things
    <!-- file: mine.cu -->              the block is no shell but a file that lines of the page read
    <!-- file: b.cu = a.cu without x -->    another file: one of the page, with something left out

Lines of one section follow each other in one folder, beside a copy of what the project ships.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import click
import numpy as np
import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.cli.main import cli
from cudareduce.collectives.names import COLLECTIVES
from tests.cli.test_help import EXAMPLES
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "kernels" / "README.md",
         *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip
#: Files of a reader's own that pages name.
GIVEN = {
    "theirs.cu": "tests/docs/theirs.cu",
    "locked.cu": "tests/docs/locked.cu",
    "dot.cu": "tests/foreign_shapes/dot_product.cu",
    "tiles.cu": "tests/foreign_shapes/unguarded_second_half.cu",
    "before.json": "tests/data/simulated-before.json",
    "after.json": "tests/data/simulated-after.json",
    "run.json": "results/nvidia-h200/baseline.json",
}
#: Sections whose lines start ranks or verify two files without host code, for minutes.
LONG = ("Several GPUs", "Options")
#: Sections whose lines take seconds: host code of external files, or many sizes.
SECONDS = (
    "An example", "Find a data race", "Fill the GPU and use warp shuffles",
    "Right on a condition", "Reduce an expression of the elements",
    "Recover the summation order", "What is verified", "Draw charts and write an HTML page",
)  # fmt: skip
_BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`]*\"")
#: What only a shell understands.
_SHELL = re.compile(r"[|&;<>$`*?{}~#\[]")
#: What people call a line goes on where this ends it.
_GOES_ON = ("\\", "&&")


@dataclass(frozen=True)
class Block:
    """A fenced block: the section it stands in, its language, its text and the comments above."""

    section: str
    language: str
    text: str
    comments: tuple[str, ...]

    def said(self, what: str) -> list[str]:
        """What the comments say that begin so."""
        return [c.removeprefix(what) for c in self.comments if c.startswith(what)]

    @property
    def lines(self) -> list[str]:
        """Its shell lines, each whole."""
        found: list[str] = []
        for line in self.text.splitlines():
            if found and found[-1].rstrip().endswith(_GOES_ON):
                found[-1] += f"\n{line}"
            elif line:
                found.append(line)
        return found


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    headings = [(m.start(), m[1]) for m in re.finditer(r"^#+ (.*)$", text, re.MULTILINE)]
    return [
        Block(
            [title for at, title in headings if at < match.start()][-1], match[2], match[3],
            tuple(re.findall(r"<!-- (.*) -->", match[1])),
        )
        for match in _BLOCK.finditer(text)
    ]  # fmt: skip


def sections() -> list[object]:
    """A page and a section with lines that run anywhere."""
    return [
        pytest.param(
            page, section, id=f"{page.relative_to(ROOT)}: {section}",
            marks=[pytest.mark.slow] * (section in LONG)
            + [pytest.mark.long] * (section in SECONDS),
        )
        for page in PAGES
        for section in dict.fromkeys(
            b.section for b in blocks(page) if b.language == "sh" and not b.said("takes ")
        )
    ]  # fmt: skip


def files(page: Path) -> dict[str, str]:
    """What lines of a page read, by name."""
    found = {name: (ROOT / path).read_text() for name, path in GIVEN.items()}
    for block in blocks(page):
        for told in block.said("file: "):
            name, _, made = told.partition(" = ")
            other, _, without = made.partition(" without ")
            found[name] = found[other].replace(without, "") if made else block.text
            if made:  # the entry point bears the file's name
                renamed = f"void {Path(other).stem}", f"void {Path(name).stem}"
                found[name] = found[name].replace(*renamed)
    return found


def arguments(line: str) -> list[str] | None:
    """The arguments of a line that only calls the command; None if it takes a shell."""
    if not line.startswith("cudareduce ") or _SHELL.search(_QUOTED.sub("", line)):
        return None
    return shlex.split(line.replace("\\\n", " "))[1:]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as a reader has it: the checkout, to which nothing is written."""
    for name in ("kernels", "tests", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "results").mkdir()
    for path in (ROOT / "results").iterdir():
        (tmp_path / "results" / path.name).symlink_to(path)
    return tmp_path


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, str]:
    """A home with the command on its path, whose compiled kernels are those of the other tests."""
    home = tmp_path_factory.mktemp("home")
    (home / "cudareduce").symlink_to(cache)
    command = home / "bin" / "cudareduce"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cudareduce "$@"\n')
    command.chmod(0o755)
    return {
        "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "COLUMNS": "120",
    }  # fmt: skip


@pytest.mark.parametrize(("page", "section"), sections())
def test_shell_lines_of_a_page_run_as_documented(
    page: Path, section: str, folder: Path, environment: dict[str, str], cudareduce: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, text in files(page).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for block in blocks(page):
        if block.section != section or block.language != "sh" or block.said("takes "):
            continue
        told = [int(code) for code in ",".join(block.said("ends with ")).split(",") if code]
        printed = ""
        for line, expected in zip(block.lines, told or [0] * len(block.lines), strict=True):
            words = arguments(line)
            if words is not None:
                code, out, err = cudareduce(*words)
            else:
                done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
                code, out, err = done.returncode, done.stdout, done.stderr
            assert code == expected, f"{line}\n{out}{err}"
            printed += out
        for words_printed in block.said("printed: "):
            assert words_printed in printed


#: Exit codes of examples that end with an error: the simulated changes are slower.
EXIT_CODES = {
    "cudareduce compare tests/data/simulated-{before,after}.json --threshold 3%": 1,
    "cudareduce compare tests/data/simulated-{after,before}.json --all": 1,
}
#: Programs that some examples need.
NEEDED = {"zsh": "zsh", "| less": "less", "--sass": "cuobjdump"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["compare", "completion", "history", "info", "list", "plot", "report", "show"]
)
def test_examples_of_help_that_need_no_gpu_run_as_printed(
    name: str, folder: Path, environment: dict[str, str]
) -> None:
    (folder / "README.md").symlink_to(ROOT / "README.md")
    for given, path in GIVEN.items():
        shutil.copy(ROOT / path, folder / given)
    home = folder / "home"
    (home / ".config" / "fish" / "completions").mkdir(parents=True)
    for line in EXAMPLES:
        words = line.removeprefix("source <(").split()
        if words[1] != name or any(k in line and not which(v) for k, v in NEEDED.items()):
            continue
        shell = "zsh" if "zsh" in line else "bash"
        done = subprocess.run(
            [shell, "-c", line], cwd=folder, env={**os.environ, **environment, "HOME": str(home)},
            capture_output=True, text=True,
        )  # fmt: skip
        undecided = line.startswith("cudareduce history check")  # of fewer than five runs
        code = 4 if undecided else EXIT_CODES.get(line, 0)
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"


def understood() -> list[object]:
    """Lines that are not run, of this command."""
    return [
        pytest.param(line, page, id=f"{page.name}: {line}")
        for page in PAGES for block in blocks(page) if block.said("takes a GPU")
        for line in block.lines
    ]  # fmt: skip


@pytest.mark.parametrize(("line", "page"), understood())
def test_a_line_that_takes_a_gpu_is_understood(line: str, page: Path, registry: Registry) -> None:
    told = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True)
    program, name, *arguments = told.stdout.splitlines()
    assert program == "cudareduce"
    command: click.Command = cli.commands[name]
    values = command.make_context(name, [*arguments]).params
    own = {Path(name).stem for name in files(page)} if "--kernels" in arguments else set()
    kernels = [
        one for one in values.get("kernels") or ["all"]
        if not one.startswith("./") and one not in own
    ]  # fmt: skip
    if not values.get("library"):
        registry.choose([one for one in kernels if one not in ("peers", *COLLECTIVES)], auto=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_in_blocks_that_are_run(page: Path) -> None:
    """None hides in a block of no language, and every comment is one of those above."""
    for block in blocks(page):
        if block.language != "sh" and "[KERNEL|" not in block.text:
            assert not re.search(r"^cudareduce ", block.text, re.MULTILINE), block.text
        assert block.language or block.said("file: ") or not block.comments
        for comment in block.comments:
            known = r"takes (a GPU|a network|clang)|ends with [\d, ]+|printed: .+|file: .+"
            assert re.fullmatch(known, comment), comment


def test_python_code_of_the_page_has_the_documented_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    """What stands behind a line as its value is its value."""
    monkeypatch.setattr("cudareduce.backends.selection.default_cache", lambda: cache)
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "results" / "nvidia-h200" / "bench-2p25-float32.json", tmp_path)
    [block] = [b for b in blocks(ROOT / "docs" / "python.md") if b.language == "python"]
    namespace: dict[str, object] = {}
    exec(block.text, namespace)
    values = re.findall(r'^(\S.*?)  # (".*?"|\d+):', block.text, re.MULTILINE)
    assert len(values) == 2
    for expression, value in values:
        assert eval(expression, namespace) == eval(value)


def test_the_library_of_the_page_is_one() -> None:
    """It is prepared and called as those of the package are, and its answer is right."""
    from cudareduce.launch.plan import Problem
    from cudareduce.libraries.contract import CallRequest, Library
    from cudareduce.reduction.operators import reduction_of

    [block] = [b for b in blocks(ROOT / "docs" / "add-a-library.md") if b.language == "python"]
    namespace: dict[str, object] = {}
    exec(block.text, namespace)
    peers = namespace["LIBRARIES"]
    assert isinstance(peers, tuple)
    peer: Library = peers[0]
    assert isinstance(peer, Library)
    assert peer.why_not(Problem(reduction_of("sum", "float32"), 100, 1)) is None
    assert peer.why_not(Problem(reduction_of("mean", "float32"), 100, 1))
    for rows in (1, 7):
        problem = Problem(reduction_of("max", "float32"), 100, rows)
        data = np.arange(100 * rows, dtype="float32")
        given = CallRequest(problem=problem, data=data, folder="")
        ready = peer.prepare(given)
        ready.run()
        assert ready.fetch
        assert np.array_equal(ready.fetch(), data.reshape(given.shape).max(axis=-1))
        assert peer.called(problem) == "np.max(x)"
