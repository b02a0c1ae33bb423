"""Builds requests from parsed options, and reports options without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import click
from click.core import ParameterSource

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _NoEffect:
    """Options that have no effect, the reason, and the condition under which this holds."""

    names: tuple[str, ...]
    why: str
    when: Callable[[Values], bool]


def _on_cpu(values: Values) -> bool:
    from cudareduce.backends.selection import never_timed

    return never_timed(values.get("backend", ""))


def _no_external_file(values: Values) -> bool:
    """True if every named file has front matter."""
    from cudareduce.catalog.front_matter import SOURCES, has_front_matter
    from cudareduce.errors import UsageError

    names = values["kernels"] if "kernels" in values else (values["kernel"],)
    try:
        return all(has_front_matter(Path(name)) for name in names if name.endswith(SOURCES))
    except UsageError:  # reported by the command
        return False


def _only_built_in(values: Values) -> bool:
    from cudareduce.catalog.front_matter import SOURCES

    return not values["folders"] and not any(n.endswith(SOURCES) for n in values["kernels"])


def _only_integers(values: Values) -> bool:
    return values["dtype"] is not None and all("int" in name for name in values["dtype"])


def _without_columns(values: Values) -> bool:
    return values["style"] in ("csv", "json") and values["markdown"] is None


_NO_EFFECT = (
    _NoEffect(
        ("timing", "graph", "energy", "region", "rounds", "pattern", "peak_gb_s",
         "baseline_kernel", "columns"),
        "--backend cpu times nothing", _on_cpu,
    ),
    _NoEffect(("device",), "--backend cpu uses no GPU", _on_cpu),
    _NoEffect(("device",), "--compile uses no GPU", lambda values: bool(values.get("compiling"))),
    _NoEffect(
        ("rows",), "verify chooses the rows itself unless --n is given",
        lambda values: "n" in values and values["n"] is None,
    ),
    _NoEffect(
        ("entry", "chain", "arg", "grid", "shared", "finish", "headers", "define"),
        "no external kernel file is named", _no_external_file,
    ),
    _NoEffect(
        ("multiple_of", "sizes_only", "nan"), "no additional kernel is named", _only_built_in,
    ),
    _NoEffect(
        ("chunk",), "it needs --from",
        lambda values: "source" in values and values["source"] is None,
    ),
    _NoEffect(
        ("n", "seed", "pattern", "only_pattern"), "the file of --from defines the input",
        lambda values: values.get("source") not in (None, "host"),
    ),
    _NoEffect(
        ("identity", "rtol"), "only --op-expr uses it",
        lambda values: values["op_expr"] is None,
    ),
    _NoEffect(
        ("rtol",), "integers are compared exactly",
        lambda values: values["op_expr"] is not None and _only_integers(values),
    ),
    _NoEffect(("columns",), "csv and json hold all columns", _without_columns),
    _NoEffect(
        ("arch", "op", "dtype", "block", "items"), "only --ptx and --sass compile the kernel",
        lambda values: "sass" in values and not (values["ptx"] or values["sass"]),
    ),
    _NoEffect(
        ("n", "rows", "device", "max_time"), "--static uses no GPU and its own size",
        lambda values: bool(values.get("static")),
    ),
    _NoEffect(("arch",), "only --static uses it", lambda values: values.get("static") is False),
    _NoEffect(
        ("results",), "only the gains of kernels are read from them",
        lambda values: bool(values.get("diff") or values.get("ptx") or values.get("sass"))
        or values.get("tree") is False,
    ),
)  # fmt: skip


def report_no_effect(ctx: click.Context) -> None:
    """Print a line on standard error for each reason why given options have no effect. Raises
    UsageError for options that exclude each other."""
    typed = ParameterSource.COMMANDLINE
    given = {
        p.name: p.opts[-1] for p in ctx.command.params
        if p.name and ctx.get_parameter_source(p.name) is typed
    }  # fmt: skip
    if {"op", "op_expr"} <= given.keys():
        raise click.UsageError("--op-expr replaces --op: give only one of them", ctx)
    if ctx.params.get("quiet"):
        return
    for folder in ctx.params.get("headers") or ():
        if not folder.is_dir():
            click.echo(f"-I {folder}: there is no such folder", err=True)
    for rule in _NO_EFFECT:
        names = [given[name] for name in rule.names if name in given]
        if names and rule.when(ctx.params):
            has = "has" if len(names) == 1 else "have"
            click.echo(f"{', '.join(names)} {has} no effect here: {rule.why}", err=True)


Request = TypeVar("Request")


def make_request(
    kind: type[Request], options: Mapping[str, Any], unused: Collection[str] = ()
) -> Request:
    """A request of this kind, with each field (also of nested requests) set by its name.

    `unused` are options that this request has no field for, in addition to --debug. Any other
    option without a field would be ignored silently, and is therefore a TypeError.
    """
    left = {key: value for key, value in options.items() if key not in {"debug", *unused}}
    request = _fill(kind, left)
    if left:
        raise TypeError(f"{kind.__name__} has no field for {', '.join(left)}")
    return request


def command_request(
    kind: type[Request], options: Mapping[str, Any], unused: Collection[str] = ()
) -> Request:
    """As `make_request`, with `argv` set to the command line, which result files record."""
    arguments = click.get_current_context().obj
    return make_request(kind, {**options, "argv": tuple(arguments)}, unused)


def _fill(kind: type[Request], left: dict[str, Any]) -> Request:
    """A request from options, which are removed from `left`; other fields keep their defaults."""
    types = get_type_hints(kind)
    values = {}
    for field in fields(kind):  # type: ignore[arg-type]
        if is_dataclass(types[field.name]):
            values[field.name] = _fill(types[field.name], left)
        elif field.name in left:
            values[field.name] = left.pop(field.name)
    return kind(**values)
