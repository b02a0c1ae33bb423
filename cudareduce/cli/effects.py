"""Options that have no effect beside what else was asked for: said, not passed over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
