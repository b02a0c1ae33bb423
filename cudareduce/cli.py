"""The command line: options parsed, stages called, the result printed, an exit code returned.

Everything but click is imported inside the commands, so that `--help` is quick and works anywhere.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cudareduce import __version__
from cudareduce.dtypes import DTYPES
from cudareduce.errors import CudareduceError, UsageError

if TYPE_CHECKING:
    from cudareduce.registry import Registry

Command = TypeVar("Command", bound=Callable[..., Any])
#: What the table holds on request; it has no room for it within 80 characters.
MORE_COLUMNS = (
    "batch", "host", "min", "noise", "samples", "discarded", "error", "bound", "share", "ulp",
    "distinct", "clock", "memory", "power", "temperature", "reasons",
)  # fmt: skip
OPS = ("sum", "prod", "min", "max", "mean", "argmin", "argmax", "matmul", "affine")


class Sizes(click.ParamType[list[int]]):
    """`--n`: one size, a list, or a range."""

    name = "SIZES"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[int]:
        """Sizes in elements."""
        from cudareduce.sizes import parse_sizes

        if isinstance(value, list):
            return value
        try:
            return parse_sizes(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Words(click.ParamType[tuple[str, ...]]):
    """A list of known words with commas, or `all`."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        self.name, self.known = name, known

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """The words, each known."""
        if isinstance(value, tuple):
            return value
        if value == "all":
            return self.known
        words = tuple(dict.fromkeys(word.strip() for word in value.split(",")))
        for word in words:
            if word not in self.known:
                self.fail(f"{word!r} is not one of: {', '.join(self.known)}, all", param, ctx)
        return words


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_ROW = click.IntRange(min=0)
_debug = click.option("--debug", is_flag=True, help="Show the traceback of an error.")
_kernels = click.option(
    "--kernels", "folders", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder with kernels of your own, beside the built-in ones.",
)  # fmt: skip
_problem = _options(
    click.option("--op", type=Words("OPS", OPS), default="sum", show_default=True,
                 help=f"Operators, with commas, or all: {', '.join(OPS)}."),
    click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)), default="float32",
                 show_default=True, help="Element types, with commas, or all."),
    click.option("--acc", type=click.Choice(list(DTYPES)), help="Accumulate in this wider type."),
    click.option("--rows", type=_ROW, default=1, show_default=True,
                 help="Reduce this many rows of --n elements each."),
    click.option("--block", type=click.IntRange(min=1), help="Threads a block."),
    click.option("--items", type=click.IntRange(min=1), help="Elements a thread."),
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the inputs."),
    click.option("--backend", type=click.Choice(["auto", "cuda", "cpu"]), default="auto",
                 show_default=True, help="Where kernels run; times come from cuda alone."),
    click.option("--device", type=click.IntRange(min=0), default=0, help="Which GPU."),
    click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="When the verification of one kernel counts as hanging."),
    click.option("--max-time", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
                 help="Bound the whole run; what was cut is said."),
    click.option("--no-cache", is_flag=True, help="Compile everything anew."),
    click.option("--quiet", is_flag=True, help="No progress and no remarks on standard error."),
    click.option("--csv", type=click.Path(path_type=Path), help="Also write CSV to this file."),
    click.option("--json", type=click.Path(path_type=Path), help="Also write JSON to this file."),
    click.option("--markdown", type=click.Path(path_type=Path),
                 help="Also write Markdown to this file."),
    click.option("--format", "style", default="table", show_default=True,
                 type=click.Choice(["table", "markdown", "csv", "json"]),
                 help="What is printed on standard output."),
    _kernels,
    _debug,
)  # fmt: skip


_timing = _options(
    click.option("--timing", type=Words("TIMING", ("cold", "warm")), default="cold",
                 show_default=True,
                 help="From a displaced cache, from a warm one, or both: cold,warm."),
    click.option("--graph", is_flag=True,
                 help="Also replay each kernel as a captured CUDA graph."),
    click.option("--rounds", type=click.IntRange(min=1), default=9, show_default=True,
                 help="Independent rounds; an interval takes at least 6."),
    click.option("--pattern", default="random", show_default=True,
                 type=click.Choice(["random", "positive", "exact", "ones", "twos", "cancel"]),
                 help="What the timed input holds; cancel: a sum that is nearly 0."),
    click.option("--region", type=click.Choice(["total", "first-pass"]), default="total",
                 show_default=True,
                 help="What is timed: all passes, or the first launch alone."),
    click.option("--peak-gb-s", type=click.FloatRange(min=0, min_open=True),
                 help="Theory, where the driver does not know it."),
    click.option("--baseline-kernel", metavar="ID",
                 help="The kernel that speed-ups compare with."),
    click.option("--columns", type=Words("COLUMNS", MORE_COLUMNS), default=(),
                 help=f"Add to the table: {', '.join(MORE_COLUMNS)}, or all."),
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cudareduce")
def cli() -> None:
    """Benchmark CUDA parallel reductions: every known way, verified, timed and compared.

    Example: cudareduce bench all --n 33554432
    """


@cli.command()
@click.argument("kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all]...")
@click.option(
    "--n",
    type=Sizes(),
    default="2^25",
    show_default=True,
    help="Elements: 33554432, 2^25, 32Mi, 1e6, a list, or a range 2^10..2^30.",
)
@_timing
@_problem
@click.pass_obj
def bench(arguments: list[str], /, kernels: tuple[str, ...], **options: Any) -> int:
    """Verify kernels, then time them; without a GPU, verify them on the CPU.

    Example: cudareduce bench fastcuda --n 2^20,2^25 --csv ladder.csv
    """
    from cudareduce.run import run_bench

    return run_bench(kernels, options | {"argv": arguments})


@cli.command()
@click.argument("kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all]...")
@click.option(
    "--n",
    type=Sizes(),
    default=None,
    help="Elements; by default the sizes where reductions go wrong.",
)
@click.option(
    "--pattern",
    type=click.Choice(["random", "positive", "exact", "ones", "twos", "cancel"]),
    help="Only this input; cancel: a sum that is nearly 0. By default all but cancel.",
)
@_problem
@click.pass_obj
def verify(arguments: list[str], /, kernels: tuple[str, ...], **options: Any) -> int:
    """Only the answers: every pattern, edge sizes, and on the CPU every schedule and hazard.

    Example: cudareduce verify all --op sum,min,max --dtype all
    """
    from cudareduce.run import run_verify

    return run_verify(kernels, options | {"argv": arguments})


@cli.command("list")
@click.argument("suite", required=False)
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
@_kernels
@_debug
def list_(suite: str | None, style: str, folders: tuple[Path, ...], debug: bool) -> int:
    """What kernels there are, and which techniques each uses.

    Example: cudareduce list fastcuda
    """
    from cudareduce.catalogue import list_json, list_section
    from cudareduce.report import print_sections

    registry = _registry(folders)
    if style == "json":
        click.echo(list_json(registry, suite))
    else:
        print_sections(list_section(registry, suite))
    return 0


@cli.command()
@click.argument("kernel")
@click.option("--diff", is_flag=True, help="Only what changed against the predecessor.")
@_kernels
@_debug
def show(kernel: str, diff: bool, folders: tuple[Path, ...], debug: bool) -> int:
    """What a kernel changes and why, its source, or its diff to the step before.

    Example: cudareduce show reduce_v2_no_bank_conflict --diff
    """
    from cudareduce.catalogue import show_text

    click.echo(show_text(_registry(folders), kernel, diff), nl=False)
    return 0


@cli.command()
@click.option("--device", type=click.IntRange(min=0), default=0, help="Which GPU.")
@_debug
def info(device: int, debug: bool) -> int:
    """What this machine can run: GPU, driver, compilers, libraries.

    Example: cudareduce info
    """
    from cudareduce.environment import info_section
    from cudareduce.report import print_sections

    print_sections([info_section(device)])
    return 0


@cli.command()
@click.argument("file", type=click.Path(path_type=Path), default="README.md")
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if a table is out of date.")
@_debug
def report(file: Path, check: bool, debug: bool) -> int:
    """Make the tables of a Markdown file anew from the result files its markers name.

    Example: cudareduce report README.md
    """
    from cudareduce.report import update_readme
    from cudareduce.store import write_text

    old, new = update_readme(file)
    if old == new:
        return 0
    if check:
        raise UsageError(f"{file} does not show its results: run cudareduce report {file}")
    write_text(file, new)
    return 0


def _registry(folders: tuple[Path, ...]) -> Registry:
    from cudareduce.registry import load_registry

    return load_registry(folders)


def main() -> None:
    """Run the command line; every failure is one message and the exit code of the contract."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with these arguments and return the exit code."""
    debug = "--debug" in arguments
    try:
        result = cli.main(arguments, "cudareduce", standalone_mode=False, obj=arguments)
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        message = error.format_message()
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        click.echo(f"cudareduce: {message}{where}", err=True)
        return 2
    except (KeyboardInterrupt, click.Abort):
        click.echo("cudareduce: interrupted", err=True)
        return 130
    except CudareduceError as error:
        if debug:
            traceback.print_exc()
        click.echo(f"cudareduce: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # the reader of the pipe has gone; there is nobody to tell
        return 0
    except Exception as error:
        if debug:
            traceback.print_exc()
        click.echo(
            f"cudareduce: internal error: {type(error).__name__}: {error} "
            "(run again with --debug and report it)",
            err=True,
        )
        return 70
