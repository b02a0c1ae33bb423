"""The documents say what is so: tables equal their results, commands and codes are all there."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from configparser import ConfigParser
from dataclasses import fields
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import click
import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.catalog.registry import load_registry
from cudareduce.cli.info import BUILD_PYCUDA
from cudareduce.cli.main import cli
from cudareduce.cli.options import MORE_COLUMNS
from cudareduce.errors import EXIT_CODE_ORDER, EXIT_CODES, UsageError
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.operators import reduction_of
from cudareduce.report.columns import COLUMNS
from cudareduce.report.markdown import update_readme
from cudareduce.results.record import Record
from cudareduce.results.schema import DEVICE_FIELDS, FIELDS
from cudareduce.results.store import load
from tests.cli.test_help import COMMANDS
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
README = (ROOT / "README.md").read_text()


FILLED = [
    path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if re.search(r"<!-- cudareduce: \S*results/", path.read_text())
]  # fmt: skip


@pytest.mark.parametrize("path", FILLED, ids=lambda path: path.name)
def test_tables_and_numbers_are_those_of_the_results(cudareduce: Call, path: Path) -> None:
    code, _, err = cudareduce("report", path, "--check")
    assert code == 0, err


def test_a_table_that_is_out_of_date_is_found(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "limit.md"
    page = (ROOT / "docs" / "limit.md").read_text()
    path.write_text(page.replace(" ../results/", f" {ROOT}/results/"))
    assert cudareduce("report", path, "--check")[0] == 0
    path.write_text(path.read_text().replace("| reduce_tiles ", "| reduce_tails "))
    code, _, err = cudareduce("report", path, "--check")
    assert code == 2
    assert "are outdated: run cudareduce report" in err
    assert cudareduce("report", path)[0] == 0
    assert "| reduce_tiles " in path.read_text()


def script(name: str) -> ModuleType:
    """A script of .ci as a module."""
    spec = spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec and spec.loader
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return script("reference")


@pytest.mark.long
def test_diagrams_are_those_of_kernels_and_results() -> None:
    stored = {path.name: path.read_text() for path in (ROOT / "docs" / "diagrams").iterdir()}
    assert stored == script("diagrams").diagrams(), "run python .ci/diagrams.py"


def test_reference_pages_are_those_of_the_code(reference: ModuleType) -> None:
    """`python .ci/reference.py` writes them."""
    stored = {path.name: path.read_text() for path in (ROOT / "docs" / "reference").iterdir()}
    assert stored == reference.pages(), "run python .ci/reference.py"


def test_the_reference_has_every_option_key_and_field(reference: ModuleType) -> None:
    page = reference.commands()
    for name, command in COMMANDS.items():
        section = page.split(f"## cudareduce {name}\n")[1].split("\n## ")[0]
        for option in command.params:
            for flag in option.opts if isinstance(option, click.Option) else ():
                assert re.search(rf"^\| `.*{re.escape(flag)}\b", section, re.MULTILINE), flag
        assert (command.epilog or "").strip() in section
    names = [name for group in FIELDS.values() for name in group]
    assert sorted(names) == sorted(field.name for field in fields(Record))
    assert list(DEVICE_FIELDS) == [field.name for field in fields(DeviceInfo)]
    assert set(EXIT_CODES) == {0, *EXIT_CODE_ORDER, 130, 70}


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 12_000
    assert README.count("\n") <= 200


def test_the_readme_counts_kernels_and_suites_as_the_code_does() -> None:
    registry = load_registry()
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    text = " ".join(README.split())
    assert f"{len(registry.kernels)} kernels, {words[len(registry.suites)]} suites of" in text
    lacks = CpuBackend.traits.lacks
    reduction = reduction_of("sum", "float32")
    skipped = [k for k in registry.kernels.values()
               if k.why_not(reduction) or set(k.requires) & set(lacks)]  # fmt: skip
    assert f"{len(skipped)} of the {len(registry.kernels)} are skipped" in text
    wrong = len(list((ROOT / "tests" / "wrong_kernels").glob("*.cu")))
    least = re.search(r"tests contain more than (\d+) wrong kernels", text)
    assert least is not None and int(least[1]) < wrong


def test_the_readme_names_the_fastest_kernel_of_the_stored_run() -> None:
    run = load(ROOT / "results" / "nvidia-h200" / "bench-float32.json")
    times = {r.kernel: r.time_us for r in run.records if r.n == 2**25 and r.time_us}
    fastest = min(times, key=times.__getitem__)
    assert re.search(
        rf"of {fastest} at 2\^25 -->[\d.]+<!-- /cudareduce --> us in the fastest", README
    )


def test_every_command_is_in_the_readme() -> None:
    for name in cli.commands:
        assert f"cudareduce {name}" in README


def test_every_extra_is_in_the_page_on_installing() -> None:
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg")
    page = (ROOT / "docs" / "install.md").read_text()
    extras = re.findall(r"^\| `(\w+)` ", page, re.MULTILINE)
    assert sorted(extras) == sorted(settings["options.extras_require"])


def test_every_column_is_in_the_page_on_tables() -> None:
    page = (ROOT / "docs" / "read-a-table.md").read_text()
    for name in MORE_COLUMNS:
        assert f"`{name}`" in page
        for word in COLUMNS[name].heading.split():
            assert word in page


def test_every_exit_code_is_in_the_readme() -> None:
    codes = README.split("Exit codes:")[1].split("\n\n")[0]
    assert {int(code) for code in re.findall(r"\b(\d+) ", codes)} == set(EXIT_CODES)


def test_there_is_one_command_to_run_and_one_to_test_and_ci_uses_it() -> None:
    blocks = re.findall(r"takes a network -->\n```sh\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    assert blocks[2].strip() in (ROOT / ".ci" / "run").read_text()


def test_the_readme_installs_pycuda_as_info_proposes() -> None:
    gpu = re.findall(r"takes a network -->\n```sh\n(.*?)```", README, re.DOTALL)[1]
    assert set(BUILD_PYCUDA.split()[1:]) <= set(gpu.split())


def test_the_picture_shows_the_stored_runs() -> None:
    """Every number of them, as .ci/picture.py draws them."""
    svg = (ROOT / "docs" / "table.svg").read_text()
    drawn = "\n".join(unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)", svg))
    lines = [line.split() for line in drawn.splitlines()]
    for table in runpy.run_path(str(ROOT / ".ci" / "picture.py"))["tables"]():
        for row in table.rows:
            assert [row[0].removeprefix("reduce_"), *row[1:]] in lines
        assert "".join(table.title.split()) in "".join(drawn.split())
    for kernel in ("v0_baseline", "v7_shuffle", "tiles_self_reset", "auto", "auto:fixed"):
        assert any(line[:1] == [kernel] for line in lines)
    assert "docs/table.svg" in README
    assert "@import" not in svg and "url(http" not in svg


def test_a_file_without_a_place_for_tables(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("nothing here\n")
    with pytest.raises(UsageError, match="has no place for a table: add <!-- cudareduce:"):
        update_readme(path)


#: Hand-written pages; those below docs/reference are made from the code.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "kernels" / "README.md",
         *sorted((ROOT / "docs").glob("*.md"))]  # fmt: skip


def prose(page: Path) -> str:
    """The text of a page without code, comments, and tables that are filled from results."""
    text = re.sub(r"^<!-- cudareduce: [^\n]*-->\n.*?^<!-- /cudareduce -->$", "", page.read_text(),
                  flags=re.MULTILINE | re.DOTALL)  # fmt: skip
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def words(page: Path) -> int:
    return len(re.findall(r"\S*\w\S*", prose(page)))


def test_pages_have_1500_words_at_most_and_25000_in_all() -> None:
    counts = {page.name: words(page) for page in PAGES}
    assert {name: count for name, count in counts.items() if count > 1500} == {}
    assert sum(counts.values()) < 25_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_has_five_sentences_at_most(page: Path) -> None:
    for block in re.split(r"\n\s*\n", prose(page)):
        if block.lstrip().startswith(("|", "#")):
            continue
        for paragraph in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", block.strip()):
            plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "x", paragraph)
            ends = re.findall(r"[.!?](?=[\s\"')\]*]|$)(?!\s*[a-z(])", plain)
            assert len(ends) <= 5, paragraph
