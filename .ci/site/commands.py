"""A page for each command, from what click knows of it: nothing about options is written twice."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

import click

from cudareduce.cli.help import option_groups
from cudareduce.cli.main import cli

#: A default at the end of an option's help, as click writes it.
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$", re.DOTALL)


def pages() -> dict[str, str]:
    """The text of each page by its path; the first has what all commands share."""
    ctx = click.Context(cli, info_name="cudareduce", **cli.context_settings)
    found = {"commands/README.md": _page(cli, ctx, "Commands", _listed(cli, "", ctx))}
    for name, command in cli.commands.items():
        below = click.Context(command, parent=ctx, info_name=name)
        inner = command.commands if isinstance(command, click.Group) else {}
        listed = _listed(command, f"{name}-", below) if isinstance(command, click.Group) else ""
        found[f"commands/{name}.md"] = _page(command, below, name, listed)
        found |= _inner(name, inner, below)
    return found


def _inner(name: str, commands: Mapping[str, click.Command], ctx: click.Context) -> dict[str, str]:
    return {
        f"commands/{name}-{inner}.md":
            _page(command, click.Context(command, parent=ctx, info_name=inner), f"{name} {inner}")
        for inner, command in commands.items()
    }  # fmt: skip


def _page(command: click.Command, ctx: click.Context, title: str, listed: str = "") -> str:
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    parts = [
        f"# {title}",
        "\n\n".join(_prose(part) for part in inspect.cleandoc(command.help or "").split("\n\n")),
        f"```text\n{usage}\n```",
        listed,
        f"## Examples\n\n```sh\n{(command.epilog or '').strip()}\n```",
    ]
    for heading, options in option_groups(command, ctx).items():
        parts.append(f"## {heading}")
        parts += [_option(option, ctx) for option in options]
    return "\n\n".join(part for part in parts if part) + "\n"


def _listed(group: click.Group, prefix: str, ctx: click.Context) -> str:
    """The commands of a group, each with a link to its page."""
    rows = [
        f"| [{name}]({prefix}{name}.md) | {_prose(command.get_short_help_str(200))} |"
        for name, command in group.commands.items()
    ]
    return "\n".join(["| command | |", "|---|---|", *rows])


def _option(option: click.Option, ctx: click.Context) -> str:
    """A definition: how it is typed, what it does, and its default in a line of its own."""
    typed, told = option.get_help_record(ctx) or ("", "")
    default = _DEFAULT.search(told)
    lines = [_prose(_DEFAULT.sub("", told))]
    if default:
        lines.append(f"Default: {_prose(default[1])}")
    anchor = option.opts[-1].lstrip("-")
    return f"`{typed}`{{ #option-{anchor} }}\n:   " + "<br>\n    ".join(lines)


def _prose(text: str) -> str:
    """Help as Markdown: only what stands in backticks may mean something."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([\\*_<>\[\]|])", r"\\\1", part)
        for part in parts
    )
