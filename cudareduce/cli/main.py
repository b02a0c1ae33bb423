"""The command line: options parsed, stages called, the result printed, an exit code returned.

Everything but click is imported inside the commands, so that `--help` is quick and works anywhere.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce import __version__
from cudareduce.cli.gate_options import check, compare
from cudareduce.cli.options import (
    add_columns,
    add_debug,
    add_device,
    add_folders,
    add_machine,
    add_peak,
    add_problem,
    add_rounds,
    add_selftest,
    add_timing,
)
from cudareduce.cli.requests import made
from cudareduce.cli.streams import guard_streams
from cudareduce.cli.types import Sizes
from cudareduce.errors import CudareduceError, UsageError
from cudareduce.problem.patterns import USER_PATTERNS
from cudareduce.results.escapes import lines_shown

if TYPE_CHECKING:
    from cudareduce.library.registry import Registry


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cudareduce")
def cli() -> None:
    """Benchmark CUDA parallel reductions: every known way, verified, timed and compared.

    Example: cudareduce bench all --n 33554432
    """


@cli.command("bench")
@click.argument("kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all]...")
@click.option(
    "--n",
    type=Sizes(),
    default="2^25",
    show_default=True,
    help="Elements: 33554432, 2^25, 32Mi, 1e6, a list, or a range 2^10..2^30.",
)
@add_timing
@add_columns
@add_problem
@click.pass_obj
def bench_(arguments: list[str], /, **options: Any) -> int:
    """Verify kernels, then time them; without a GPU, verify them on the CPU.

    Example: cudareduce bench fastcuda --n 2^20,2^25 --csv ladder.csv
    """
    from cudareduce.bench.command import bench
    from cudareduce.bench.request import BenchRequest

    return bench(made(BenchRequest, options | {"argv": tuple(arguments)}))


@cli.command("sweep")
@click.argument("kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all]...")
@click.option(
    "--n",
    type=Sizes(),
    default="2^10..2^30",
    show_default=True,
    help="At least 3 sizes: a range doubles.",
)
@add_timing
@add_problem
@click.pass_obj
def sweep_(arguments: list[str], /, **options: Any) -> int:
    """Time kernels over a range of sizes: launch floor, bandwidth, and who overtakes whom where.

    Example: cudareduce sweep fastcuda --n 2^10..2^28 --max-time 300
    """
    from cudareduce.bench.request import BenchRequest
    from cudareduce.sweep.command import sweep

    return sweep(made(BenchRequest, options | {"argv": tuple(arguments)}))


@cli.command("verify")
@click.argument("kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|all]...")
@click.option(
    "--n",
    type=Sizes(),
    default=None,
    help="Elements; by default the sizes where reductions go wrong.",
)
@click.option(
    "--pattern",
    "only_pattern",
    type=click.Choice(USER_PATTERNS),
    help="Only this input; cancel: a sum that is nearly 0. By default all but cancel.",
)
@add_problem
@click.pass_obj
def verify_(arguments: list[str], /, **options: Any) -> int:
    """Only the answers: every pattern, edge sizes, and on the CPU every schedule and hazard.

    Example: cudareduce verify all --op sum,min,max --dtype all
    """
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import verify

    return verify(made(VerifyRequest, options | {"argv": tuple(arguments)}))


@cli.command("reproduce")
@click.argument("suite")
@click.option(
    "--format",
    "style",
    default="table",
    show_default=True,
    type=click.Choice(["table", "markdown", "csv", "json", "fastcuda"]),
    help="What is printed on standard output; fastcuda is that tool's key=value lines.",
)
@add_rounds
@add_peak
@add_machine
@click.pass_obj
def reproduce_(arguments: list[str], /, **options: Any) -> int:
    """Run a published experiment with its own sizes, and print its figures beside ours.

    Example: cudareduce reproduce bbuf
    """
    from cudareduce.reproduce.command import ReproduceRequest, reproduce

    return reproduce(made(ReproduceRequest, options | {"argv": tuple(arguments)}))


@cli.command("list")
@click.argument("suite", required=False)
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
@add_folders
@add_debug
def list_(suite: str | None, style: str, folders: tuple[Path, ...], debug: bool) -> int:
    """What kernels there are, and which techniques each uses.

    Example: cudareduce list fastcuda
    """
    from cudareduce.cli.catalogue import list_json, list_section
    from cudareduce.report.terminal import print_sections

    registry = _registry(folders)
    if style == "json":
        click.echo(list_json(registry, suite))
    else:
        print_sections(list_section(registry, suite))
    return 0


@cli.command()
@click.argument("kernel")
@click.option("--diff", is_flag=True, help="Only what changed against the predecessor.")
@add_folders
@add_debug
def show(kernel: str, diff: bool, folders: tuple[Path, ...], debug: bool) -> int:
    """What a kernel changes and why, its source, or its diff to the step before.

    Example: cudareduce show reduce_v2_no_bank_conflict --diff
    """
    from cudareduce.cli.catalogue import show_text

    click.echo(show_text(_registry(folders), kernel, diff), nl=False)
    return 0


@cli.command("selftest")
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...")
@add_device
@add_selftest
@add_debug
@click.pass_obj
def selftest_(arguments: list[str], /, **options: Any) -> int:
    """Whether this machine measures well: false verdicts, slowdowns caught, flushes, floors.

    Example: cudareduce selftest --json selftest.json
    """
    from cudareduce.selftest.command import SelftestRequest, selftest

    return selftest(made(SelftestRequest, options | {"argv": tuple(arguments)}))


@cli.command()
@add_device
@add_debug
def info(device: int, debug: bool) -> int:
    """What this machine can run: GPU, driver, compilers, libraries.

    Example: cudareduce info
    """
    from cudareduce.cli.info import info_section
    from cudareduce.report.terminal import print_sections

    print_sections([info_section(device)])
    return 0


@cli.command()
@click.argument("file", type=click.Path(path_type=Path), default="README.md")
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if a table is out of date.")
@add_debug
def report(file: Path, check: bool, debug: bool) -> int:
    """Make the tables of a Markdown file anew from the result files its markers name.

    Example: cudareduce report README.md
    """
    from cudareduce.report.markdown import update_readme
    from cudareduce.reproduce.experiments import tables
    from cudareduce.results.store import write_text

    registry = _registry(())
    old, new = update_readme(file, lambda run: tables(run, registry))
    if old == new:
        return 0
    if check:
        raise UsageError(f"{file} does not show its results: run cudareduce report {file}")
    write_text(file, new)
    return 0


cli.add_command(compare)
cli.add_command(check)


def _registry(folders: tuple[Path, ...]) -> Registry:
    from cudareduce.library.registry import load_registry

    return load_registry(folders)


def main() -> None:
    """Run the command line; every failure is one message and the exit code of the contract."""
    guard_streams()
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run with these arguments and return the exit code."""
    try:
        result = cli.main(arguments, "cudareduce", standalone_mode=False, obj=arguments)
        print(end="", flush=True)  # what cannot be written is an error here, and not at exit
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        where = f" (see {context.command_path} --help)" if context else ""
        return _failed(error.format_message() + where, 2)
    except (KeyboardInterrupt, click.Abort):
        return _failed("interrupted", 130)
    except SystemExit as error:  # click's, when it has completed a command line, or could not
        return 2 if error.code else 0
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        if isinstance(error, CudareduceError):
            return _failed(str(error), error.exit_code)
        what = f"internal error: {type(error).__name__}: {error}"
        return _failed(f"{what} (run again with --debug and report it)", 70)


def _failed(message: str, code: int) -> int:
    """Say why on standard error, with nothing in it that would steer a terminal."""
    click.echo(f"cudareduce: {lines_shown(message)}", err=True)
    return code
