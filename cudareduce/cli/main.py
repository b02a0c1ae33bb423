"""The entry point: parses the command line, runs the command, and returns the exit code."""

from __future__ import annotations

import sys
import traceback

import click

from cudareduce import __version__
from cudareduce.cli.check import check, compare, history
from cudareduce.cli.help import HELP, Commands
from cudareduce.cli.measure import (
    bench_,
    collective,
    profile_,
    reproduce_,
    reveal_,
    selftest_,
    sweep_,
    tune_,
    verify_,
)
from cudareduce.cli.show import completion, info, list_, plot, report, show
from cudareduce.cli.streams import guard_streams
from cudareduce.errors import CudareduceError
from cudareduce.text import lines_shown


@click.group(
    cls=Commands,
    titles={
        "Measure": (bench_, verify_, sweep_, tune_, collective, reproduce_),
        "Explain": (profile_, reveal_),
        "Compare": (compare, check, history),
        "Show": (list_, show, plot, report),
        "Set up": (info, selftest_, completion),
    },
    context_settings={**HELP, "max_content_width": 100},
    epilog="""cudareduce bench all --n 33554432
cudareduce verify fastcuda --op all
cudareduce check --baseline results/nvidia-h200/baseline.json --threshold 3%""",
)
@click.version_option(__version__, "-V", "--version", prog_name="cudareduce")
def cli() -> None:
    """Benchmark CUDA parallel reductions, and check that their results are right.

    `cudareduce COMMAND --help` explains a command and shows examples; `cudareduce list` shows
    kernels, families and suites. A kernel may be called by a part of its name: v7 is
    reduce_v7_shuffle.
    """


def main() -> int:
    """Run the command line; every failure is one message and an exit code."""
    guard_streams()
    return run(sys.argv[1:])


def run(arguments: list[str]) -> int:
    """Run with these arguments and return the exit code."""
    try:
        result = cli.main(arguments, "cudareduce", standalone_mode=False, obj=arguments)
        print(end="", flush=True)  # so that a failed write is reported here and not at exit
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
    except SystemExit as error:  # raised by click after shell completion
        if error.code:
            return _failed("no completion is available: see cudareduce completion --help", 2)
        return 0
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        if isinstance(error, MemoryError):
            return _failed("the host does not have enough memory: give a smaller --n", 6)
        if isinstance(error, CudareduceError):
            return _failed(str(error), error.exit_code)
        what = f"internal error: {type(error).__name__}: {error}"
        return _failed(f"{what} (run again with --debug and report it)", 70)


def _failed(message: str, code: int) -> int:
    """Print an error, without control characters."""
    click.echo(f"cudareduce: {lines_shown(message)}", err=True)
    return code
