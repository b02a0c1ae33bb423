"""The site of the documents: a page for each document, and no dead link."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudareduce.cli.info import BUILD_PYCUDA
from tests.conftest import ROOT

SITE = ROOT / ".ci" / "site"


def build(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SITE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the pages, which takes nothing but this package."""
    folder = tmp_path_factory.mktemp("site")
    done = build("--pages", folder)
    assert done.returncode == 0, done.stderr
    return folder


def listed(folder: Path) -> list[str]:
    """The pages that the navigation names."""

    def names(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from names(inner)

    return list(names(tomllib.loads((folder / "zensical.toml").read_text())["project"]["nav"]))


def test_every_document_has_its_place(made: Path) -> None:
    names = listed(made)
    assert len(names) == len(set(names))
    assert not [name for name in names if not (made / "pages" / name).is_file()]
    documents = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert set(documents) | {"README.md", "docs/example.ipynb.md"} <= set(names)


def test_what_a_page_links_to_is_a_page(made: Path) -> None:
    """A source, a folder, a notebook with its picture."""
    pages = made / "pages"
    assert "(../tests/cheats/samples.cu.md)" in (pages / "docs" / "cheats.md").read_text()
    assert "```cuda\n" in (pages / "tests" / "cheats" / "samples.cu.md").read_text()
    assert "(samples.cu.md)" in (pages / "tests" / "cheats" / "README.md").read_text()
    assert "(example-1.png)" in (pages / "docs" / "example.ipynb.md").read_text()
    assert (pages / "docs" / "example-1.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def links() -> ModuleType:
    spec = spec_from_file_location("links", SITE / "links.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["links"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("link", "dead"),
    [("there/", False), ("there/#here", False), ("#top", False), ("https://example.org/", False),
     ("there/#gone", True), ("gone/", True), ("#gone", True), ("gone.svg", True)],
)  # fmt: skip
def test_dead_links_are_found(links: ModuleType, tmp_path: Path, link: str, dead: bool) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text('<h1 id="here">There</h1>')
    (tmp_path / "index.html").write_text(f'<h1 id="top">Top</h1><a href="{link}">x</a>')
    assert links.dead_links(tmp_path) == ([f"index.html: {link} leads nowhere"] if dead else [])


def test_the_home_page_is_short_and_its_commands_fit_a_laptop(made: Path) -> None:
    home = (made / "pages" / "README.md").read_text()
    assert len(home.split()) < 400
    assert "| " not in home
    blocks = re.findall(r"```sh\n(.*?)```", home, re.DOTALL)
    assert len(blocks) == 2
    assert max(len(line) for block in blocks for line in block.splitlines()) <= 82
    packages = set(re.findall(r"[\w-]+", blocks[1]))
    assert set(re.findall(r"[\w-]+", BUILD_PYCUDA)) <= packages | {"PATH"}
