"""The commands that compare results: compare, check, history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.help import Command, Commands
from cudareduce.cli.options import JUDGING, styles, with_kernels, with_options
from cudareduce.cli.request import command_request, make_request
from cudareduce.cli.types import DEVICES, Architectures, Named, Place
from cudareduce.collectives.names import COLLECTIVES

if TYPE_CHECKING:
    from cudareduce.compare.request import CheckRequest

_STYLE = styles("table", "markdown", "json")


@click.command(
    cls=Command,
    epilog="""cudareduce compare tests/data/simulated-{before,after}.json --threshold 3%
cudareduce compare tests/data/simulated-{after,before}.json --all
cudareduce compare tests/data/simulated-{before,after}.json --junit junit.xml""",
)
@click.argument("old", type=Place(DEVICES))
@click.argument("new", type=Place(DEVICES))
@with_options(JUDGING, style=_STYLE)
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
@with_kernels("[KERNEL|FAMILY|SUITE|GLOB|FILE.cu|all|auto]...", "auto")
@with_options(
    "baseline base times compiling update_baseline rounds budget max_time n rows op dtype arch "
    "library ranks map json folders device time_limit no_cache quiet peers " + JUDGING,
    style=_STYLE,
    rounds={"default": None,
            "help": "Number of independent rounds.  [default: the baseline's, or 9]"},
    n="Number of elements, with --base or --library.  [default: 2^25, or 2^10 to 2^28]",
    rows={"default": None,
          "help": "Number of rows, each of --n elements, with --base.  [default: 1]"},
    op="{} With --base or --library.  [default: sum]",
    dtype="{} With --base or --library.  [default: float32]",
    arch={"type": Architectures(), "default": None, "metavar": None,
          "help": "Architectures for --compile.  [default: the baseline's, or 75,80,90,100,120]"},
)  # fmt: skip
def check(**options: Any) -> int:
    """Measure kernels again and fail if one got slower (for CI).

    Compares with a stored run (--baseline), with another tree of kernels (--base), or two versions
    of NCCL or CUB (--library). With --compile no GPU is needed: machine code is compared, and with
    --base only kernels whose code differs are timed, if there is a GPU.
    """
    from cudareduce.compare.request import CheckRequest

    request = command_request(CheckRequest, options)
    if request.base is not None and request.baseline is not None:
        raise click.UsageError("--base and --baseline exclude each other: give only one of them")
    if not (request.base or request.baseline or request.times or request.library):
        writer = "check --compile --update-baseline" if request.compiling else "bench --json FILE"
        raise click.UsageError(
            f"name a baseline: --baseline FILE (written by {writer}), --base REV, --self N, or "
            "--library NAME=OLD,NEW"
        )
    if unused := request.unused_option():
        raise click.UsageError(f"{unused} does not apply to {request.mode}: leave it out")
    collective = bool(set(COLLECTIVES) & set(request.kernels))
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
@with_options(
    "folder debug",
    folder={"flags": ["--into"], "help": "Directory of the history; created if missing."},
)  # fmt: skip
def add_(result: Path, folder: Path, debug: bool) -> int:
    """Append a result file of bench or check.

    Concurrent jobs may do so; a run that is already stored is ignored.
    """
    from cudareduce.compare.history import add

    return add(result, folder)


@history.command(
    "show",
    epilog="""cudareduce history show reduce_v7_shuffle
cudareduce history show 'reduce_v*' --n 2^25 --since 2026-03-01
cudareduce history show reduce_v7_shuffle --from ../benchmarks/history | less""",
)
@click.argument("kernel", type=Named("KERNEL"))
@with_options("n folder since debug", n="Number of elements.  [default: all sizes]")
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
@with_options(
    "threshold folder since everything junit markdown style debug", style=_STYLE,
    threshold="Largest allowed distance above the best level of a kernel.  [default: 2%]",
)  # fmt: skip
def check_(**options: Any) -> int:
    """Exit with 1 if a kernel became slower and stayed so for two runs."""
    from cudareduce.compare.history import HistoryCheckRequest, check

    return check(make_request(HistoryCheckRequest, options))
