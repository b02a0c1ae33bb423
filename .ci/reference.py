"""Write the reference pages below docs/reference/ from the tables of the code.

Run it when options, fields, keys or verdicts change: python .ci/reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from cudareduce.catalog import front_matter as keys
from cudareduce.cli.help import option_groups
from cudareduce.cli.main import cli
from cudareduce.compare import unit_verdicts, verdicts
from cudareduce.errors import EXIT_CODE_ORDER, EXIT_CODES
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.results import record
from cudareduce.results.schema import DEVICE_FIELDS, FIELDS, result_schema

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
_MADE = "<!-- Made by .ci/reference.py from the code: change it there. -->\n\n"
#: A default at the end of an option's help, as click writes it.
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$", re.DOTALL)


def pages() -> dict[str, str]:
    """The text of each page by its file name."""
    made = {
        "commands.md": commands(),
        "front-matter.md": front_matter(),
        "result-fields.md": result_fields(),
        "outcomes.md": outcomes(),
    }
    return {name: _MADE + text.rstrip() + "\n" for name, text in made.items()}


def commands() -> str:
    """Every command with its options, defaults and examples."""
    top = click.Context(cli, info_name="cudareduce", **cli.context_settings)
    described, listed = [], []
    for title, group in cli.titles.items():
        for command in group:
            name, text = command.name or "", _prose(command.get_short_help_str(200))
            listed.append((f"[{name}](#cudareduce-{name})", text, title))
            below = click.Context(command, parent=top, info_name=name)
            described.append(_command(command, below))
            if isinstance(command, click.Group):
                described += [
                    _command(inner, click.Context(inner, parent=below, info_name=inner_name))
                    for inner_name, inner in command.commands.items()
                ]
    return "\n\n".join([
        "# Commands and options",
        _help(cli),
        _table(("command", "what it does", "group"), listed),
        *described,
    ])  # fmt: skip


def _command(command: click.Command, ctx: click.Context) -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    parts = [f"## {ctx.command_path}", _help(command), f"```text\n{usage}\n```"]
    for heading, options in option_groups(command, ctx).items():
        rows = [_option(option, ctx) for option in options]
        parts.append(_table((heading, "what it sets", "default"), rows))
    parts.append(f"Examples:\n\n```text\n{(command.epilog or '').strip()}\n```")
    return "\n\n".join(part for part in parts if part)


def _help(command: click.Command) -> str:
    return "\n\n".join(map(_prose, inspect.cleandoc(command.help or "").split("\n\n")))


def _option(option: click.Option, ctx: click.Context) -> tuple[str, str, str]:
    typed, text = option.get_help_record(ctx) or ("", "")
    return f"`{typed}`", *map(_prose, _with_default(text))


def _with_default(text: str) -> tuple[str, str]:
    """A description and its default, which may be empty."""
    default = _DEFAULT.search(text)
    return _DEFAULT.sub("", text), default[1] if default else ""


def _prose(text: str) -> str:
    """Help as Markdown: only what is in backticks may have a meaning."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<>\[\]])", r"\\\1", part) for part in parts
    )


def _table(heads: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def front_matter() -> str:
    """The keys of the TOML block of a kernel file, and the words that they allow."""
    rows = [
        (f"`{key}`", "yes" if key in keys.REQUIRED else "no", *_with_default(text))
        for key, text in keys.KEYS.items()
    ]
    words: dict[str, Mapping[str, str]] = {
        "scope": keys.SCOPES, "grid": keys.GRIDS, "walk": keys.WALKS, "fold": keys.FOLDS,
        "finish": keys.FINISHES, "order": keys.ORDERS, "elements": keys.ELEMENTS,
        "requires": keys.REQUIREMENTS, "techniques": keys.TECHNIQUES,
    }  # fmt: skip
    allowed = {"blocks": keys.BLOCKS, "dtypes": DTYPES, "ops": OPERATORS}
    return "\n\n".join([
        "# Front matter of a kernel",
        "The front matter is a TOML block between `/*+++` and `+++*/`, each on a line of its own, "
        "at the top of a `.cu` file. An unknown key or word is an error that names the line. "
        "[Kernels](../../kernels/README.md) explains what the text of a kernel may use.",
        "The launches, the bytes and the error bound are computed from `grid`, `walk`, `fold` and "
        "`finish`. A wrong word there gives a wrong result or a wrong bound. With "
        '`walk = "tickets"`, the order of floating-point additions is not fixed; the error bound '
        "requires that each tile is folded before it is added to the value of a thread.",
        _table(("key", "required", "meaning", "default"), rows),
        *(f"## {key}\n\n{_table(('word', 'meaning'), _coded(table))}"
          for key, table in words.items()),
        "## blocks, dtypes and ops",
        _table(("key", "words"), (
            (f"`{key}`", ", ".join(f"`{word}`" for word in names))
            for key, names in allowed.items()
        )),
    ])  # fmt: skip


def _coded(table: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((f"`{word}`", meaning) for word, meaning in table.items())


def result_fields() -> str:
    """The fields of result files."""
    schema = result_schema()["properties"]
    parts = [
        "# Fields of result files",
        "`--json FILE` writes one object with `schema` (the version of the format), `created`, "
        "`tool` (version, revision and arguments), `device`, `protocol` (the settings of the run) "
        "and `records`: one record per kernel and problem. `--csv FILE` has the fields of records "
        "as columns. A missing field is null. [result.schema.json](../result.schema.json) is a "
        "JSON Schema. Intervals have 95 % confidence.",
    ]
    records = schema["records"]["items"]["properties"]
    for title, group in FIELDS.items():
        parts += [f"## {title}", _fields(group, records)]
    parts += ["## Device", _fields(DEVICE_FIELDS, schema["device"]["properties"])]
    return "\n\n".join(parts)


def _fields(meanings: Mapping[str, str], properties: Mapping[str, Mapping[str, object]]) -> str:
    rows = ((f"`{name}`", _type(properties[name]), text) for name, text in meanings.items())
    return _table(("field", "type", "meaning"), rows)


def _type(value: Mapping[str, object]) -> str:
    kinds = value.get("type", "string")
    names = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(map(str, names))


def outcomes() -> str:
    """Exit codes and verdicts."""
    first = ", ".join(map(str, EXIT_CODE_ORDER))
    heads = ("verdict", "meaning", "fails")
    results = [(f"`{name}`", *texts) for name, texts in record.MEANINGS.items()]
    return "\n\n".join([
        "# Exit codes and verdicts",
        "## Exit codes",
        _table(("code", "meaning"), EXIT_CODES.items()),
        f"If several codes apply, the first of {first} is returned.",
        "## Results",
        "`verify` and `bench` give one verdict per kernel, operator, type and size. A kernel that "
        "is right under a condition is printed as `right if`, with the condition below the table.",
        _table(("in files", "in tables", "meaning"), results),
        "## compare and check",
        "[Verdicts](../verdicts.md) explains how they are decided.",
        _table(heads, ((name, *texts) for name, texts in verdicts.MEANINGS.items())),
        "## check --compile",
        "One verdict per kernel, reduction and architecture.",
        _table(heads, ((name, *texts) for name, texts in unit_verdicts.MEANINGS.items())),
    ])  # fmt: skip


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
