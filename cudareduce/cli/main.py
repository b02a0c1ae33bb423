"""The command line: options parsed, stages called, the result printed, an exit code returned.

Everything but click is imported inside the commands, so that `--help` is quick and works anywhere.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

import click
from click.core import ParameterSource

from cudareduce import __version__
from cudareduce.cli.about import completion, info, list_, report, show
from cudareduce.cli.completion import Named
from cudareduce.cli.gate_options import check, compare
from cudareduce.cli.help import HELP, Commands, made
from cudareduce.cli.history import history
from cudareduce.cli.options import (
    add_columns,
    add_format,
    add_kernels,
    add_machine,
    add_peak,
    add_peers,
    add_problem,
    add_reveal,
    add_rounds,
    add_selftest,
    add_sizes,
    add_strict,
    add_timing,
    add_tune,
    one_of,
)
from cudareduce.cli.plot import plot
from cudareduce.cli.profiling import profile
from cudareduce.cli.several import collective
from cudareduce.cli.streaming import add_from, add_gpus, benched, verified
from cudareduce.cli.streams import guard_streams
from cudareduce.cli.types import Word
from cudareduce.errors import CudareduceError
from cudareduce.escapes import lines_shown
from cudareduce.problem.patterns import USER_PATTERNS

_SIZES = "33554432, 33 554 432, 2^25, 32Mi, 1e6, a list, or a range 2^10..2^30"


@click.group(
    cls=Commands,
    context_settings={**HELP, "max_content_width": 100},
    epilog="""cudareduce bench all --n 33554432
cudareduce verify fastcuda --op all
cudareduce check --baseline results/nvidia-h200/baseline.json --threshold 3%""",
)
@click.version_option(__version__, prog_name="cudareduce")
def cli() -> None:
    """Benchmark CUDA parallel reductions: every known way, verified, timed and compared.

    `cudareduce COMMAND --help` has a command's options and examples; `cudareduce list` has
    what KERNEL and SUITE can be.
    """


@cli.command(
    "bench",
    epilog="""cudareduce bench all --n 33554432
cudareduce bench fastcuda --n 2^20,2^25 --csv ladder.csv
cudareduce bench all --op-expr 'a > b ? a : b' --identity=-INFINITY""",
)
@add_kernels
@add_sizes("2^25", f"Elements: {_SIZES}.")
@add_timing
@add_columns
@add_strict
@add_peers
@add_from
@add_gpus
@add_problem
@click.pass_context
def bench_(context: click.Context, /, **options: Any) -> int:
    """Verify kernels, then time them; without a GPU, only verify.

    Without a name it takes all kernels; without a GPU they run on the CPU, and nothing is timed.
    """
    _prepare_to_fork()
    usual = context.get_parameter_source("n") is ParameterSource.DEFAULT
    return benched(options | {"argv": tuple(context.obj)}, usual_sizes=usual)


@cli.command(
    "verify",
    epilog="""cudareduce verify fastcuda
cudareduce verify all --op sum,min,max --dtype float32,int32
cudareduce verify reduce_last_block --n 1,1000,2^20 --backend cpu""",
)
@add_kernels
@add_sizes(None, f"Elements: {_SIZES}.  [default: where reductions go wrong]")
@click.option(
    "--pattern",
    "only_pattern",
    metavar="NAME",
    type=Word(USER_PATTERNS),
    help=f"Only this input: {one_of(USER_PATTERNS)}, a sum that is nearly 0.  "
    "[default: all but cancel]",
)
@add_strict
@click.option(
    "--sanitize", is_flag=True,
    help="Also under the four tools of NVIDIA's compute-sanitizer, on a GPU.",
)  # fmt: skip
@add_peers
@add_from
@add_problem
@click.pass_obj
def verify_(arguments: list[str], /, **options: Any) -> int:
    """Only the answers, at the sizes where reductions go wrong.

    Every pattern of input, edge sizes, and on the CPU every schedule and hazard.
    """
    _prepare_to_fork()
    return verified(options | {"argv": tuple(arguments)})


@cli.command(
    "reproduce",
    epilog="""cudareduce reproduce bbuf
cudareduce reproduce fastcuda --format fastcuda
cudareduce reproduce leimao --rounds 15 --json leimao.json""",
)
@click.argument("suite", type=Named("SUITE", kernels=False, suites=True))
@add_format("table", "markdown", "csv", "json", "fastcuda",
            what=", which is that tool's key=value lines")  # fmt: skip
@add_rounds
@add_peak
@add_machine
@click.pass_obj
def reproduce_(arguments: list[str], /, **options: Any) -> int:
    """Run a published experiment, and print its figures beside ours.

    It has its own kernels, sizes, block and region; `cudareduce list` shows the suites.
    """
    from cudareduce.reproduce.command import ReproduceRequest, reproduce

    return reproduce(made(ReproduceRequest, options | {"argv": tuple(arguments)}))


@cli.command(
    "reveal",
    epilog="""cudareduce reveal reduce_v7_shuffle
cudareduce reveal all --n 1024 --json orders.json
cudareduce reveal --compare reduce_v6_multi_add reduce_v7_shuffle""",
)
@click.argument(
    "kernels", nargs=-1, metavar="[KERNEL|SUITE|GLOB|FILE.cu|PEER|all|peers]...",
    type=Named("KERNEL", suites=True),
)  # fmt: skip
@add_sizes(
    None, f"Elements: {_SIZES}. Up to 4096 the whole tree is found.  "
    "[default: 1024; beside a file, its own]",
)  # fmt: skip
@add_reveal
@click.pass_obj
def reveal_(arguments: list[str], /, **options: Any) -> int:
    """In which order kernels and libraries add.

    The order is recovered from outside, by masks among ones in the input: as a picture, its depth,
    the error bound that follows, and a short hash. `peers` are all libraries.
    """
    from cudareduce.reveal.command import RevealRequest, reveal

    return reveal(made(RevealRequest, options | {"argv": tuple(arguments)}))


for command in (profile, compare, check, history, collective):
    cli.add_command(command)


@cli.command(
    "sweep",
    epilog="""cudareduce sweep fastcuda
cudareduce sweep reduce_tiles_ring --sms 8,16,32,64,132 --peers cub
cudareduce sweep all --max-time 300 --json sweep.json""",
)
@add_kernels
@add_sizes(None, "At least 3 sizes: a range doubles.  [default: 2^10..2^30; with --sms 2^28]")
@add_timing
@add_peers
@add_problem
@click.pass_obj
def sweep_(arguments: list[str], /, **options: Any) -> int:
    """Launch floor, bandwidth, and who overtakes whom where.

    Times kernels over a range of sizes, and fits a line to each one's times; it takes a GPU.
    With --sms it is bandwidth over the number of SMs, with a bar for each.
    """
    from cudareduce.bench.request import BenchRequest
    from cudareduce.sweep.command import sweep

    return sweep(made(BenchRequest, options | {"argv": tuple(arguments)}))


@cli.command(
    "tune",
    epilog="""cudareduce tune auto --max-time 300
cudareduce tune auto --op sum,argmax --dtype float32,int32 --n 2^10..2^28
cudareduce tune reduce_tiles_mailbox --n 2^16,2^20 --json tuned.json""",
)
@click.argument("kernels", nargs=-1, metavar="[KERNEL|FAMILY|GLOB|auto]...",
                type=Named("KERNEL", words=("auto",)))  # fmt: skip
@add_sizes("2^10,2^12,2^14,2^16,2^18,2^20,2^22,2^24,2^25,2^26,2^28", f"Elements: {_SIZES}.")
@add_tune
@click.pass_obj
def tune_(arguments: list[str], /, **options: Any) -> int:
    """Search launch shapes, and write the table that auto reads.

    Threads, elements a thread and the grid of every kernel named, against what auto takes now; it
    takes a GPU.
    """
    from cudareduce.tune.command import TuneRequest, tune

    return tune(made(TuneRequest, options | {"argv": tuple(arguments)}))


@cli.command(
    "selftest",
    epilog="""cudareduce selftest
cudareduce selftest --strict --json selftest.json
cudareduce selftest reduce_v7_shuffle --max-time 60""",
)
@click.argument("kernels", nargs=-1, metavar="[KERNEL]...", type=Named("KERNEL"))
@add_selftest
@click.pass_obj
def selftest_(arguments: list[str], /, **options: Any) -> int:
    """Whether this machine measures well.

    False verdicts, slowdowns caught, what flushes do to a figure, floors; it takes a GPU.
    """
    from cudareduce.selftest.command import SelftestRequest, selftest

    return selftest(made(SelftestRequest, options | {"argv": tuple(arguments)}))


for command in (list_, show, plot, report, info, completion):
    cli.add_command(command)


def main() -> int:
    """Run the command line; every failure is one message and the exit code of the contract."""
    guard_streams()
    return run(sys.argv[1:])


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
        return (
            _failed("there is no such completion: see cudareduce completion --help", 2)
            if error.code
            else 0
        )
    except Exception as error:
        if "--debug" in arguments:
            traceback.print_exc()
        if isinstance(error, MemoryError):
            return _failed("the host has not enough memory for this: give a smaller --n", 6)
        if isinstance(error, CudareduceError):
            return _failed(str(error), error.exit_code)
        what = f"internal error: {type(error).__name__}: {error}"
        return _failed(f"{what} (run again with --debug and report it)", 70)


def _prepare_to_fork() -> None:
    """Start what verification forks before anything slow is imported: 0.2 s of 0.8 on two cores."""
    from cudareduce.workers import fork_server

    fork_server()


def _failed(message: str, code: int) -> int:
    """Say why on standard error, with nothing in it that would steer a terminal."""
    click.echo(f"cudareduce: {lines_shown(message)}", err=True)
    return code
