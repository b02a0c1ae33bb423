"""The layout of `--help`: commands and options in groups, examples below."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from cudareduce.cli.options import LAST_GROUP, RARE, TABLE
from cudareduce.cli.request import report_no_effect

_NO_BREAK = "\u00a0"
HELP = {"help_option_names": ["-h", "--help"]}
#: The key of a context that shows rarely used options.
_ALL = "cudareduce.help_all"
#: Fewer rare options than this are not hidden.
_FEWEST = 4


class Command(click.Command):
    """A command with options in groups and, in its epilog, one example per line. Before it runs,
    options without effect are reported."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # Set here too, since the API makes a context without the group.
        settings["context_settings"] = {**HELP, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)
        if len(rare := [p for p in self.params if p.name in RARE]) >= _FEWEST:
            self.params.append(_help_all(len(rare)))

    def get_help(self, ctx: click.Context) -> str:
        return super().get_help(ctx).replace(_NO_BREAK, " ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_groups(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        report_no_effect(ctx)
        return super().invoke(ctx)


def _help_all(count: int) -> click.Option:
    """The option that prints the help with rarely used options."""

    def show(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
        if value:
            ctx.meta[_ALL] = True
            click.echo(ctx.get_help())
            ctx.exit()

    return click.Option(
        ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=show,
        help=f"Show this message with {count} rarely used options, and exit.",
    )  # fmt: skip


class Commands(click.Group):
    """Commands in groups by `titles`, in the order in which they are listed there; without titles
    in the order in which they were added."""

    command_class = Command

    def __init__(
        self, *arguments: Any, titles: Mapping[str, Sequence[click.Command]] | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        super().__init__(*arguments, **settings)
        self.titles = titles or {}
        for command in (command for group in self.titles.values() for command in group):
            self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.commands))
        titles = self.titles or {"Commands": tuple(self.commands.values())}
        for title, commands in titles.items():
            with formatter.section(title):
                formatter.write_dl(
                    [((c.name or "").ljust(width), c.get_short_help_str(100)) for c in commands]
                )
        _write_groups(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_examples(self, formatter)


def option_groups(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """The options of a command by the title of their group, in the order of help; options in no
    group, such as --help, join the last."""
    options = {p.name or "": p for p in command.get_params(ctx) if isinstance(p, click.Option)}
    known = {name for names in TABLE.values() for name in names}
    others = [name for name in options if name not in known]
    groups = {
        title: [options[name] for name in (*names, *(others if title == LAST_GROUP else ()))
                if name in options]
        for title, names in TABLE.items()
    }  # fmt: skip
    return {title: shown for title, shown in groups.items() if shown}


def _write_groups(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    hides = any(p.name == "help_all" for p in command.params) and not ctx.meta.get(_ALL)
    groups = {
        title: [record for option in options if not (hides and option.name in RARE)
                and (record := option.get_help_record(ctx))]
        for title, options in option_groups(command, ctx).items()
    }  # fmt: skip
    groups = {title: rows for title, rows in groups.items() if rows}
    width = max(len(names) for rows in groups.values() for names, _ in rows)
    for title, rows in groups.items():
        with formatter.section(title if len(groups) > 1 else "Options"):
            formatter.write_dl([(names.ljust(width), _keep_together(text)) for names, text in rows])


def _keep_together(text: str) -> str:
    """Replace the spaces of short defaults and quoted texts by no-break spaces."""
    kept = r"\[default: [^ ]{,12}\]|'[^']*'"
    return re.sub(kept, lambda match: match[0].replace(" ", _NO_BREAK), text)


def _write_examples(command: click.Command, formatter: click.HelpFormatter) -> None:
    """Write the examples without wrapping, so that they can be copied."""
    with formatter.section("Examples"):
        formatter.write("".join(f"  {line}\n" for line in (command.epilog or "").splitlines()))
