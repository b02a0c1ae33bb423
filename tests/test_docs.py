"""The documents say what is so: tables equal their results, commands and codes are all there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudareduce.cli import cli
from cudareduce.errors import EXIT_CODE_ORDER, UsageError
from cudareduce.report import update_readme

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_tables_are_those_of_the_results() -> None:
    old, new = update_readme(ROOT / "README.md")
    assert old == new, "run cudareduce report README.md"


def test_every_command_is_in_the_readme() -> None:
    for name in cli.commands:
        assert f"cudareduce {name}" in README


def test_every_exit_code_is_in_the_readme() -> None:
    codes = README.split("Exit codes:")[1].split("\n\n")[0]
    assert {int(code) for code in re.findall(r"\b(\d+) ", codes)} == {0, *EXIT_CODE_ORDER, 130, 70}


def test_there_is_one_command_to_run_and_one_to_test_and_ci_uses_it() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    assert blocks[1].strip() in (ROOT / ".ci" / "run").read_text()


def test_a_file_without_a_place_for_tables(tmp_path: Path) -> None:
    path = tmp_path / "x.md"
    path.write_text("nothing here\n")
    with pytest.raises(UsageError, match="has no place for a table: add <!-- cudareduce:"):
        update_readme(path)
