"""How `--help` looks: options in groups, commands in the order of their work, examples below."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import click
from click.core import ParameterSource

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Idle:
    """Parameters that have no effect, why, and with what values of all of the command's that is."""

    names: tuple[str, ...]
    why: str
    when: Callable[[Values], bool]


def _on_cpu(values: Values) -> bool:
    from cudareduce.backends import never_timed

    return never_timed(values.get("backend", ""))


def _named(values: Values) -> Sequence[str]:
    """The names that a command was given, or the one."""
    return values["kernels"] if "kernels" in values else (values["kernel"],)


def _all_have_headers(values: Values) -> bool:
    """Whether no file is named that may be without a header."""
    from cudareduce.errors import UsageError
    from cudareduce.library.header import SOURCES
    from cudareduce.library.reading import has_header

    try:
        return all(has_header(Path(n)) for n in _named(values) if n.endswith(SOURCES))
    except UsageError:  # the command will say so
        return False


def _no_own_files(values: Values) -> bool:
    from cudareduce.library.header import SOURCES

    return not values["folders"] and not any(n.endswith(SOURCES) for n in values["kernels"])


def _only_integers(values: Values) -> bool:
    return values["dtype"] is not None and all("int" in name for name in values["dtype"])


def _without_columns(values: Values) -> bool:
    return values["style"] in ("csv", "json") and values["markdown"] is None


#: What may be without effect, of all commands.
_IDLE = (
    _Idle(
        ("timing", "graph", "energy", "region", "rounds", "pattern", "peak_gb_s",
         "baseline_kernel", "columns"),
        "--backend cpu times nothing", _on_cpu,
    ),
    _Idle(("device",), "--backend cpu takes no GPU", _on_cpu),
    _Idle(("device",), "--compile takes no GPU", lambda values: bool(values.get("compiling"))),
    _Idle(
        ("rows",), "without --n verify tries rows of its own",
        lambda values: "n" in values and values["n"] is None,
    ),
    _Idle(
        ("entry", "chain", "arg", "grid", "shared", "finish", "headers", "define"),
        "no file without a header is named", _all_have_headers,
    ),
    _Idle(
        ("multiple_of", "sizes_only", "nan"), "no file of your own is named", _no_own_files,
    ),
    _Idle(
        ("chunk",), "only --from copies in chunks",
        lambda values: "source" in values and values["source"] is None,
    ),
    _Idle(
        ("n", "seed", "pattern", "only_pattern"), "the file of --from has its own elements",
        lambda values: values.get("source") not in (None, "host"),
    ),
    _Idle(
        ("identity", "rtol"), "without --op-expr nothing takes it",
        lambda values: values["op_expr"] is None,
    ),
    _Idle(
        ("rtol",), "integers are compared exactly",
        lambda values: values["op_expr"] is not None and _only_integers(values),
    ),
    _Idle(("columns",), "csv and json hold all of them", _without_columns),
    _Idle(
        ("arch", "op", "dtype", "block", "items"), "only --ptx and --sass compile",
        lambda values: "sass" in values and not (values["ptx"] or values["sass"]),
    ),
    _Idle(
        ("n", "rows", "device", "max_time"), "--static takes no GPU, and a size of its own",
        lambda values: bool(values.get("static")),
    ),
    _Idle(("arch",), "only --static compiles", lambda values: values.get("static") is False),
    _Idle(
        ("results",), "only what steps gained is taken from them",
        lambda values: bool(values.get("diff") or values.get("ptx") or values.get("sass"))
        or values.get("tree") is False,
    ),
)  # fmt: skip


def tell_without_effect(ctx: click.Context) -> None:
    """A line on standard error for each reason why options that were given have no effect. A
    UsageError where two options contradict each other."""
    typed = ParameterSource.COMMANDLINE
    given = {
        p.name: p.opts[-1] for p in ctx.command.params
        if p.name and ctx.get_parameter_source(p.name) is typed
    }  # fmt: skip
    if {"op", "op_expr"} <= given.keys():
        raise click.UsageError("--op-expr takes the place of --op: give one of them", ctx)
    if ctx.params.get("quiet"):
        return
    for idle in _IDLE:
        names = [given[name] for name in idle.names if name in given]
        if names and idle.when(ctx.params):
            has = "has" if len(names) == 1 else "have"
            click.echo(f"{', '.join(names)} {has} no effect here: {idle.why}", err=True)


Request = TypeVar("Request")


def made(kind: type[Request], options: Mapping[str, Any], unused: Collection[str] = ()) -> Request:
    """A request of this kind: each field by its name, those of requests inside it likewise.

    `unused` are options of the command that this kind of request has no place for, besides --debug,
    which is read where errors are printed. Another one without a field is a fault of ours, and a
    TypeError: it would have no effect.
    """
    left = {key: value for key, value in options.items() if key not in {"debug", *unused}}
    request = _filled(kind, left)
    if left:
        raise TypeError(f"{kind.__name__} has no field for {', '.join(left)}")
    return request


def _filled(kind: type[Request], left: dict[str, Any]) -> Request:
    """Take what fields are called out of `left`; a field that is not there keeps its default."""
    types = get_type_hints(kind)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(types[field.name]):
            values[field.name] = _filled(types[field.name], left)
        elif field.name in left:
            values[field.name] = left.pop(field.name)
    return kind(**values)


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
        "baseline", "base", "times", "library", "compiling", "arch", "update_baseline", "compare",
        "folder", "since", "results",
    ),
    "What is drawn": ("kind", "only"),
    "How it is timed": (
        "timing", "graph", "energy", "region", "rounds", "budget", "peak_gb_s",
        "baseline_kernel",
    ),
    "How it is judged": (
        "threshold", "thresholds", "no_same_code", "cross_device", "allow_gone", "strict",
        "sanitize",
    ),
    "The machine": (
        "gpus", "ranks", "meet", "backend", "device", "max_time", "time_limit", "no_cache",
    ),
    _LAST: (
        "style", "columns", "everything", "tree", "diff", "static", "ptx", "sass", "check",
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
