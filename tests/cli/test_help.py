"""`--help`: groups, the order of commands, examples that run, and the width of a terminal."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import click
import pytest

from cudareduce.catalog.registry import Registry
from cudareduce.cli.main import cli
from cudareduce.cli.options import RARE, TABLE
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
#: All commands by what is typed, those of a group behind it.
COMMANDS = dict(cli.commands) | {
    f"{name} {inner}": command
    for name, group in cli.commands.items() if isinstance(group, click.Group)
    for inner, command in group.commands.items()
}  # fmt: skip
EXAMPLES = [
    line for command in (cli, *COMMANDS.values()) for line in (command.epilog or "").splitlines()
]
each_command = pytest.mark.parametrize("name", ["", *COMMANDS])


def test_commands_are_in_the_order_of_the_readme(cudareduce: Call) -> None:
    block = (ROOT / "README.md").read_text().split("## Commands")[1]
    block = block.split("```text\n")[1].split("```")[0]
    names = dict.fromkeys(line.split()[1] for line in block.splitlines() if line)
    assert list(names) == list(cli.commands)
    out = cudareduce("--help")[1]
    places = [out.index(f"\n  {name} ") for name in names]
    assert places == sorted(places)


def test_every_option_has_a_group() -> None:
    grouped = [name for names in TABLE.values() for name in names]
    options = {
        parameter.name
        for command in COMMANDS.values()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    }
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == options - {"help_all"}
    assert set(grouped) >= RARE


@pytest.mark.parametrize("name", ["bench", "verify", "check"])
def test_rare_options_are_in_help_all_only(cudareduce: Call, name: str) -> None:
    shown = []
    for flag in ("--help", "--help-all"):
        code, out, err = cudareduce(name, flag)
        assert (code, err) == (0, "")
        shown.append(set(re.findall(r"^  (-[-\w]+)", out, re.MULTILINE)))
    rare = {p.opts[0] for p in COMMANDS[name].params if p.name in RARE}
    assert len(rare) > 5
    assert shown[1] - shown[0] == rare


@each_command
@pytest.mark.parametrize("columns", [80, 120])
def test_help_fits_the_terminal(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = cudareduce(*name.split(), "--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    assert "\u00a0" not in out
    if not name:
        assert "..." not in out.split("Measure:")[1]  # nothing is cut
    assert out.index("\nExamples:") > out.index("--help")


@each_command
def test_there_are_three_examples(name: str) -> None:
    command = COMMANDS[name] if name else cli
    lines = (command.epilog or "").splitlines()
    assert len(lines) == 3
    assert all(f"cudareduce {name}" in line and len(line) <= 78 for line in lines)


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example_is_understood(line: str, registry: Registry) -> None:
    """By a shell, which expands braces, and by click; names and files are here."""
    line = line.removeprefix("source <(").rstrip(")")
    line = re.sub(r" [|>] \S+$", "", line)
    told = subprocess.run(["bash", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True)
    program, name, *arguments = told.stdout.splitlines()
    assert program == "cudareduce"
    if f"{name} {arguments[0] if arguments else ''}" in COMMANDS:
        name = f"{name} {arguments.pop(0)}"
    values = COMMANDS[name].make_context(name, arguments).params
    registry.choose(values.get("kernels") or ["all"], auto=True)
    if values.get("suite"):
        registry.suite(values["suite"])
    for key in ("old", "new", "baseline", "file"):
        assert values.get(key) is None or (ROOT / values[key]).is_file()
