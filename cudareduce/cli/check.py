"""The commands that compare results: compare, check, history."""

from __future__ import annotations

import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.help import Command, Commands
from cudareduce.cli.library_options import add_library
from cudareduce.cli.options import (
    MOST_ROUNDS,
    MOST_SECONDS,
    Option,
    add_debug,
    add_device,
    add_dtypes,
    add_file,
    add_folders,
    add_format,
    add_json,
    add_kernels,
    add_map,
    add_max_time,
    add_no_cache,
    add_ops,
    add_peers,
    add_quiet,
    add_rows,
    add_sizes,
    add_time_limit,
)
from cudareduce.cli.request import make_request
from cudareduce.cli.types import DEVICES, Amount, Count, Name, Named, Place, Sizes, options_of
from cudareduce.collectives.names import COLLECTIVES, MOST_RANKS
from cudareduce.errors import UsageError

if TYPE_CHECKING:
    from cudareduce.compare.request import CheckRequest

_LONGEST_THRESHOLD, _MOST_TIMES = 20, 1000


class Threshold(click.ParamType[float]):
    """A percentage, as a share."""

    name = "PERCENT"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        from cudareduce.compare.request import parse_threshold

        if isinstance(value, float):
            return value
        if len(value) > _LONGEST_THRESHOLD:
            self.fail(f"{reprlib.repr(value)} is not a threshold: write 5% or 2.5%", param, ctx)
        try:
            return parse_threshold(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Architectures(click.ParamType[tuple[int, ...]]):
    """A list of compute capabilities without the point."""

    name = "ARCHS"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        words = [word.strip().removeprefix("sm_") for word in value.split(",")]
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) < 4 and int(word) >= 50):
                self.fail(
                    f"{reprlib.repr(word)} is not an architecture: write 75,80,90", param, ctx
                )
        return tuple(dict.fromkeys(int(word) for word in words))


def _add_threshold(what: str) -> Option[Any]:
    return click.option("--threshold", type=Threshold(), metavar="PERCENT", help=what)


_input = Place(DEVICES)
_judging = options_of(
    _add_threshold("Smallest change that counts.  [default: 5%]"),
    click.option("--thresholds", type=_input, metavar="FILE",
                 help="Thresholds per kernel, in a TOML file."),
    click.option("--strict", is_flag=True, help="Exit with 4 if anything is UNCERTAIN."),
    click.option("--allow-gone", is_flag=True, help="Accept kernels that are GONE."),
    click.option("--no-same-code", is_flag=True,
                 help="Compare times even if the machine code is identical."),
    click.option("--cross-device", is_flag=True,
                 help="Compare results from different GPUs, as percent of each card's ceiling."),
    click.option("--all", "everything", is_flag=True, help="Also list what is the SAME."),
    add_file("--junit", "JUnit XML"),
    add_file("--benchmark-json", "the JSON of github-action-benchmark"),
    add_file("--comment", "a pull request comment with all kernels, as Markdown"),
    add_file("--markdown", "Markdown"),
    add_format("table", "markdown", "json"),
    add_debug,
)  # fmt: skip


@click.command(
    cls=Command,
    epilog="""cudareduce compare tests/data/simulated-{before,after}.json --threshold 3%
cudareduce compare tests/data/simulated-{after,before}.json --all
cudareduce compare tests/data/simulated-{before,after}.json --junit junit.xml""",
)
@click.argument("old", type=_input)
@click.argument("new", type=_input)
@_judging
def compare(**options: Any) -> int:
    """Compare two result files: what got slower, faster or wrong.

    Takes the JSON files of bench, collective and check.
    """
    from cudareduce.compare.check import compare_files
    from cudareduce.compare.request import CompareRequest

    return compare_files(make_request(CompareRequest, options))


@click.command(
    cls=Command,
    epilog="""cudareduce check --baseline results/nvidia-h200/baseline.json --threshold 3%
cudareduce check reduce_v7_shuffle --base main --n 2^20,2^25
cudareduce check --compile --baseline results/compile/nvcc-13.0.json""",
)
@add_kernels("[KERNEL|SUITE|GLOB|FILE.cu|all|auto]...", "auto")
@click.option("--baseline", type=_input, metavar="FILE",
              help="Baseline: a file of bench or collective --json; with --compile a file of "
              "check --compile.")  # fmt: skip
@click.option("--base", type=Name(), metavar="TREE",
              help="Baseline: a revision or a directory of kernels, measured in the same rounds; "
              "with a collective as KERNEL, on several GPUs.")  # fmt: skip
@click.option("--self", "times", type=Count(1, _MOST_TIMES),
              help="Number of comparisons of this tree with itself, which count false "
              "verdicts.")  # fmt: skip
@click.option("--compile", "compiling", is_flag=True,
              help="Compare machine code and memory accesses, without a GPU.")  # fmt: skip
@click.option("--update-baseline", is_flag=True,
              help="Overwrite the baseline after showing the changes.")  # fmt: skip
@click.option("--rounds", type=Count(1, MOST_ROUNDS),
              help="Number of independent rounds.  [default: the baseline's, or 9]")  # fmt: skip
@click.option("--budget", type=Amount(MOST_SECONDS, zero=True), metavar="SECONDS",
              help="Time for more rounds of uncertain kernels.  [default: 60]")  # fmt: skip
@add_max_time("Time limit of the whole run; what was left out is reported.")
@add_sizes(None, "Number of elements, with --base or --library.  [default: 2^25, or 2^10 to 2^28]")
@add_rows(None, what="Number of rows, each of --n elements, with --base.  [default: 1]")
@add_ops(None, " With --base or --library.  [default: sum]")
@add_dtypes(None, " With --base or --library.  [default: float32]")
@click.option("--arch", type=Architectures(),
              help="Architectures for --compile.  [default: the baseline's, or "
              "75,80,90,100,120]")  # fmt: skip
@add_library
@click.option("--ranks", type=Count(2, MOST_RANKS), metavar="N",
              help="Number of ranks, with --base and a collective.  [default: one per GPU, at "
              "least 2]")  # fmt: skip
@add_map
@add_json
@add_folders
@add_device
@add_time_limit
@add_no_cache
@add_quiet
@add_peers
@_judging
@click.pass_obj
def check(arguments: list[str], /, **options: Any) -> int:
    """Measure kernels again and fail if one got slower (for CI).

    Compares with a stored run (--baseline), with another tree of kernels (--base), or two versions
    of NCCL or CUB (--library). With --compile no GPU is needed: machine code is compared, and with
    --base only kernels whose code differs are timed, if there is a GPU.
    """
    from cudareduce.compare.request import CheckRequest

    request = make_request(CheckRequest, options | {"argv": tuple(arguments)})
    if request.base is not None and request.baseline is not None:
        raise click.UsageError("--base and --baseline exclude each other: give only one of them")
    if not (request.base or request.baseline or request.times or request.library):
        raise click.UsageError(
            "name a baseline: --baseline FILE (written by bench --json FILE), --base REV, "
            "--self N, or --library NAME=OLD,NEW"
        )
    if unused := request.unused_option():
        raise click.UsageError(f"{unused} does not apply to {request.mode}: leave it out")
    collective = bool(COLLECTIVES.keys() & set(request.kernels))
    if request.ranks and not collective:
        raise click.UsageError(f"--ranks needs a collective as KERNEL: {', '.join(COLLECTIVES)}")
    return _run_check(request, collective)


def _run_check(request: CheckRequest, collective: bool) -> int:
    if request.library is not None:
        from cudareduce.collectives.library_versions import check_library

        return check_library(request)
    if request.times is None and request.compiling:
        from cudareduce.compare.compile_check import check_compiled, check_compiled_trees

        return check_compiled(request) if request.base is None else check_compiled_trees(request)
    from cudareduce.compare.check import check_base, check_self, check_stored, stored_baseline

    if request.times is not None:
        return check_self(request)
    if request.base is not None and not collective:
        return check_base(request)
    from cudareduce.collectives.check import check_base_ranks, check_ranks

    if request.base is not None:
        return check_base_ranks(request)
    stored = stored_baseline(request)
    of_ranks = any(record.ranks is not None for record in stored.records)
    return check_ranks(request, stored) if of_ranks else check_stored(request, stored)


_FOLDER = "history"
_reading = options_of(
    click.option("--from", "folder", type=Place(file_okay=False), default=_FOLDER,
                 show_default=True, metavar="FOLDER", help="Directory of the history."),
    click.option("--since", type=Name(), metavar="DAY|REV",
                 help="First day or revision to include."),
)  # fmt: skip


@click.group(
    cls=Commands,
    epilog="""cudareduce history add run.json --into history
cudareduce history show reduce_v7_shuffle --n 2^25
cudareduce history check --threshold 2%""",
)
def history() -> None:
    """Track times over many runs and find when a kernel became slower.

    Detects gradual regressions that stay below the threshold of each single check. The history is a
    directory with one line of JSON per run, which may be a branch of its own.
    """


@history.command(
    "add",
    epilog="""cudareduce history add run.json
cudareduce history add run.json --into ../benchmarks/history
cudareduce history add results/nvidia-h200/baseline.json""",
)
@click.argument("result", type=Place(DEVICES))
@click.option("--into", "folder", type=Place(file_okay=False), default=_FOLDER, show_default=True,
              metavar="FOLDER", help="Directory of the history; created if missing.")  # fmt: skip
@add_debug
def add_(result: Path, folder: Path, debug: bool) -> int:
    """Append a result file of bench or check.

    Concurrent jobs may do so; a run that is already stored is ignored.
    """
    from cudareduce.compare.history import add

    return add(result, folder)


@history.command(
    "show",
    epilog="""cudareduce history show reduce_v7_shuffle
cudareduce history show 'reduce_tiles*' --n 2^25 --since 2026-03-01
cudareduce history show reduce_v7_shuffle --from ../benchmarks/history | less""",
)
@click.argument("kernel", type=Named("KERNEL"))
@click.option("--n", type=Sizes(), help="Number of elements.  [default: all sizes]")
@_reading
@add_debug
def show_(**options: Any) -> int:
    """Draw the times of a kernel and their change points."""
    from cudareduce.compare.history import ShowRequest, show

    return show(make_request(ShowRequest, options))


@history.command(
    "check",
    epilog="""cudareduce history check
cudareduce history check --threshold 3% --all
cudareduce history check --since 2026-03-01 --junit history.xml""",
)
@_add_threshold("Largest allowed distance above the best level of a kernel.  [default: 2%]")
@_reading
@click.option("--all", "everything", is_flag=True, help="Also list what is the SAME.")
@add_file("--junit", "JUnit XML")
@add_file("--markdown", "Markdown")
@add_format("table", "markdown", "json")
@add_debug
def check_(**options: Any) -> int:
    """Exit with 1 if a kernel became slower and stayed so for two runs."""
    from cudareduce.compare.history import HistoryCheckRequest, check

    return check(make_request(HistoryCheckRequest, options))
