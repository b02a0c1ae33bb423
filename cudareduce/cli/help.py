"""How `--help` looks: options in groups, commands in the order of their work, examples below."""

from __future__ import annotations

import re
from typing import Any

import click

from cudareduce.cli.effects import tell_without_effect

_LAST = "Outputs"
_NO_BREAK = "\u00a0"
#: How help is asked for.
HELP = {"help_option_names": ["-h", "--help"]}
#: The groups of options and what is in them, by the parameters' names, in the order of help.
#: What is in none, as --help, whose name click keeps to itself, stands in the last.
GROUPS = {
    "What is reduced": (
        "n", "rows", "op", "dtype", "acc", "map", "op_expr", "identity", "rtol", "pattern",
        "only_pattern", "seed", "source", "chunk",
    ),
    "Which kernels": ("folders", "block", "items", "sms", "peers", "engine", "nccl"),
    "Files without a header": (
        "entry", "chain", "arg", "grid", "shared", "finish", "headers", "define",
    ),
    "Files of your own": ("multiple_of", "sizes_only", "nan"),
    "What it is compared with": (
        "baseline", "base", "times", "libraries", "compiling", "arch", "update_baseline", "compare",
        "folder", "since", "results",
    ),
    "What is drawn": ("kind", "only"),
    "How it is timed": (
        "timing", "graph", "energy", "region", "rounds", "budget", "peak_gb_s",
        "baseline_kernel",
    ),
    "How it is judged": (
        "threshold", "thresholds", "slow", "no_same_code", "cross_device", "allow_gone", "strict",
        "sanitize",
    ),
    "The machine": (
        "gpus", "ranks", "meet", "backend", "device", "max_time", "time_limit", "no_cache",
    ),
    _LAST: (
        "store", "style", "columns", "everything", "tree", "diff", "static", "ptx", "sass", "check",
        "html",
        "png", "svg", "csv", "json", "markdown", "junit", "benchmark_json", "comment", "write",
        "quiet", "debug",
    ),
}  # fmt: skip


class Command(click.Command):
    """A command with options in groups and, in its epilog, an example a line. Before it runs it is
    said which options that were given have no effect."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # Its own, and not only the group's: who asks it for a context may have no group.
        settings["context_settings"] = {**HELP, **(settings.get("context_settings") or {})}
        super().__init__(*arguments, **settings)

    def get_help(self, ctx: click.Context) -> str:
        """The text of `--help`: no-break spaces have kept what belongs together in one line."""
        return super().get_help(ctx).replace(_NO_BREAK, " ")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every group that the command has options of, in one layout."""
        _write_groups(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples as they stand: a command that is wrapped cannot be copied."""
        _write_examples(self, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        tell_without_effect(ctx)
        return super().invoke(ctx)


class Commands(click.Group):
    """The commands, in the order in which they were added."""

    command_class = Command

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, then the options."""
        self.format_commands(ctx, formatter)
        _write_groups(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As those of a command."""
        _write_examples(self, formatter)


def option_groups(command: click.Command, ctx: click.Context) -> dict[str, list[click.Option]]:
    """The options of a command by the titles they stand under, in the order of help."""
    options = {p.name or "": p for p in command.get_params(ctx) if isinstance(p, click.Option)}
    known = {name for names in GROUPS.values() for name in names}
    others = [name for name in options if name not in known]
    groups = {
        title: [options[name] for name in (*names, *(others if title == _LAST else ()))
                if name in options]
        for title, names in GROUPS.items()
    }  # fmt: skip
    return {title: shown for title, shown in groups.items() if shown}


def _write_groups(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    groups = {
        title: [record for option in options if (record := option.get_help_record(ctx))]
        for title, options in option_groups(command, ctx).items()
    }
    width = max(len(names) for rows in groups.values() for names, _ in rows)
    for title, rows in groups.items():
        with formatter.section(title if len(groups) > 1 else "Options"):
            formatter.write_dl([(names.ljust(width), _together(text)) for names, text in rows])


def _together(text: str) -> str:
    """With no-break spaces in short defaults, and in what is quoted."""
    kept = r"\[default: [^ ]{,12}\]|'[^']*'"
    return re.sub(kept, lambda match: match[0].replace(" ", _NO_BREAK), text)


def _write_examples(command: click.Command, formatter: click.HelpFormatter) -> None:
    with formatter.section("Examples"):
        formatter.write("".join(f"  {line}\n" for line in (command.epilog or "").splitlines()))
