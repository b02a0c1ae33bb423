"""The commands that run kernels: bench, verify, sweep, tune, collective, profile and others.

Everything but click is imported inside the commands, so that `--help` is quick and works anywhere.
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from cudareduce.cli.help import Command
from cudareduce.cli.options import (
    FILES,
    MACHINE,
    OF_FILES,
    PROBLEM,
    SHAPE,
    TIMING,
    WRITTEN,
    one_of,
    one_word,
    styles,
    with_kernels,
    with_options,
)
from cudareduce.cli.request import command_request
from cudareduce.cli.types import Count, Named, Word
from cudareduce.collectives.names import COLLECTIVES, OPS
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.sizes import LARGEST

_ANY_KERNELS = "[KERNEL|FAMILY|SUITE|GLOB|FILE.cu|all|auto]..."
_TABLES = styles("table", "markdown", "csv", "json")
_SHORT = styles("table", "markdown", "json")
_STRICT = (
    "Exit with 4 if anything is undecided or not measured, with 3 if a kernel is only right under "
    "a precondition that was found."
)
_FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "float"]
_STREAM_OPTIONS, _RANK_OPTIONS = ("source", "chunk"), ("gpus", "meet")


@click.command(
    "bench",
    cls=Command,
    epilog="""cudareduce bench all --n 33554432
cudareduce bench fastcuda --n 2^20,2^25 --csv ladder.csv
cudareduce bench all --op-expr 'a > b ? a : b' --identity=-INFINITY""",
)
@with_kernels(_ANY_KERNELS, "auto")
@with_options(
    f"n {TIMING} columns strict peers source chunk gpus meet {PROBLEM}", **OF_FILES,
    n={"default": "2^25"}, style=_TABLES, strict=_STRICT,
)  # fmt: skip
@click.pass_context
def bench_(context: click.Context, /, **options: Any) -> int:
    """Verify kernels, then time them.

    Runs all kernels unless some are named. Without a GPU, kernels are verified on a CPU emulator
    and not timed.
    """
    _prepare_to_fork()
    if options["gpus"] is not None:
        from cudareduce.collectives.sharded import ShardedRequest, bench_sharded

        return bench_sharded(command_request(ShardedRequest, options))
    if options["meet"] is not None:
        raise UsageError("--meet needs --gpus")
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams

        return bench_streams(command_request(StreamBenchRequest, options, _RANK_OPTIONS))
    from cudareduce.bench.command import bench
    from cudareduce.bench.request import BenchRequest

    options["usual_sizes"] = context.get_parameter_source("n") is ParameterSource.DEFAULT
    return bench(command_request(BenchRequest, options, (*_STREAM_OPTIONS, *_RANK_OPTIONS)))


@click.command(
    "verify",
    cls=Command,
    epilog="""cudareduce verify fastcuda
cudareduce verify all --op sum,min,max --dtype float32,int32
cudareduce verify reduce_last_block --n 1,1000,2^20 --backend cpu""",
)
@with_kernels(_ANY_KERNELS, "auto")
@with_options(
    f"n only_pattern strict sanitize peers source chunk {PROBLEM}", **OF_FILES, style=_TABLES,
    strict=_STRICT, n="{}  [default: sizes that reveal errors]",
)  # fmt: skip
def verify_(**options: Any) -> int:
    """Check the results of kernels, without timing them.

    Tests edge sizes and every input pattern; the CPU emulator also tests thread schedules and
    detects data races.
    """
    _prepare_to_fork()
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamVerifyRequest, verify_streams

        return verify_streams(command_request(StreamVerifyRequest, options))
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import verify

    return verify(command_request(VerifyRequest, options, _STREAM_OPTIONS))


def _prepare_to_fork() -> None:
    """Start the fork server before slow imports, which saves 0.2 s of 0.8 s on two cores."""
    from cudareduce.workers import fork_server

    fork_server()


@click.command(
    "sweep",
    cls=Command,
    epilog="""cudareduce sweep fastcuda
cudareduce sweep reduce_tiles_ring --sms 8,16,32,64,132 --peers cub
cudareduce sweep all --max-time 300 --json sweep.json""",
)
@with_kernels(_ANY_KERNELS, "auto")
@with_options(
    f"n {TIMING} peers {PROBLEM}", **OF_FILES, style=_TABLES,
    n="Number of elements, at least 3 sizes; a range doubles.  [default: 2^10..2^30; with --sms "
    "2^28]",
)  # fmt: skip
def sweep_(**options: Any) -> int:
    """Time a range of sizes: launch overhead, bandwidth, crossover points.

    Fits a line to the times of each kernel. With --sms, shows bandwidth over the number of SMs
    instead. Needs a GPU.
    """
    from cudareduce.analysis.sweep import sweep
    from cudareduce.bench.request import BenchRequest

    return sweep(command_request(BenchRequest, options))


@click.command(
    "tune",
    cls=Command,
    epilog="""cudareduce tune auto --max-time 300
cudareduce tune auto --op sum,argmax --dtype float32,int32 --n 2^10..2^28
cudareduce tune reduce_tiles_mailbox --n 2^16,2^20 --json tuned.json""",
)
@with_kernels("[KERNEL|FAMILY|GLOB|auto]...", "auto", suites=False)
@with_options(
    f"n op dtype rows max_time write device no_cache style {WRITTEN}", style=_TABLES,
    n={"default": "2^10,2^12,2^14,2^16,2^18,2^20,2^22,2^24,2^25,2^26,2^28"},
    op={"default": "sum"}, dtype={"default": "float32"},
    max_time={"default": 300.0,
              "help": "Time limit of the whole search; small sizes are tuned first."},
)  # fmt: skip
def tune_(**options: Any) -> int:
    """Search for the fastest launch shapes and store them for `auto`.

    Tries threads per block, items per thread and grid sizes, and compares them with the current
    choice of `auto`. Needs a GPU.
    """
    from cudareduce.analysis.tune.command import TuneRequest, tune

    return tune(command_request(TuneRequest, options))


@click.command(
    "reproduce",
    cls=Command,
    epilog="""cudareduce reproduce bbuf
cudareduce reproduce fastcuda --format fastcuda
cudareduce reproduce leimao --rounds 15 --json leimao.json""",
)
@click.argument("suite", type=Named("SUITE", kernels=False, suites=True))
@with_options(
    f"rounds peak_gb_s {MACHINE} style {WRITTEN}",
    style=styles("table", "markdown", "csv", "json", "fastcuda",
                 note=" (that tool's key=value lines)"),
)  # fmt: skip
def reproduce_(**options: Any) -> int:
    """Repeat a published experiment, and compare with its figures.

    The suite defines kernels, sizes, block size and timed region; `cudareduce list` shows the
    suites.
    """
    from cudareduce.analysis.reproduce import ReproduceRequest, reproduce

    return reproduce(command_request(ReproduceRequest, options))


@click.command(
    "profile",
    cls=Command,
    epilog="""cudareduce profile reduce_v0_baseline
cudareduce profile --diff reduce_v1_no_divergence reduce_v2_no_bank_conflict
cudareduce profile fastcuda --static""",
)
@with_kernels("KERNEL|FAMILY|SUITE|GLOB|FILE.cu...")
@with_options(
    f"n rows op dtype acc map {SHAPE} {FILES} folders diff static arch device max_time no_cache "
    "png svg style json markdown quiet debug",
    n={"type": Count(1, LARGEST), "default": 2**25, "show_default": False,
       "help": "Number of elements: 33554432, 2^25, 32Mi or 1e6.  [default: 2^25]"},
    op=one_word(tuple(OPERATORS), "OP", f"Operator: {one_of(tuple(OPERATORS))}.", "sum"),
    dtype=one_word(tuple(DTYPES), "DTYPE", f"Element type: {one_of(tuple(DTYPES))}.", "float32"),
    diff="Compare two kernels: what changed, and why it matters.",
    arch="Architecture for --static.", max_time={"help": "Time limit of ncu.", "default": 300.0},
    png="Also draw the roofline and the utilization of each unit, as PNG.",
    svg="Also draw them as SVG.", style=_SHORT,
)  # fmt: skip
def profile_(**options: Any) -> int:
    """Explain what limits a kernel, from hardware counters.

    Runs the first launch under Nsight Compute (ncu) and explains utilization, warp stalls, active
    lanes, bank conflicts and bytes moved, and which kernel of the ladder improves them.
    """
    from cudareduce.analysis.profile.command import ProfileRequest, profile

    return profile(command_request(ProfileRequest, options))


@click.command(
    "reveal",
    cls=Command,
    epilog="""cudareduce reveal reduce_v7_shuffle
cudareduce reveal all --n 1024 --json orders.json
cudareduce reveal --compare reduce_v6_multi_add reduce_v7_shuffle""",
)
@with_kernels("[KERNEL|FAMILY|SUITE|GLOB|FILE.cu|PEER|all|peers]...")
@with_options(
    f"n {FILES} compare op dtype acc rows {SHAPE} folders backend device time_limit no_cache style "
    "json markdown quiet debug",
    n="{} Up to 4096 the whole tree is recovered, above it that of a sample.  [default: 1024; with "
    "--compare FILE, its sizes]",
    op=one_word(tuple(OPERATORS), "OP", "Operator; only sum has a visible order.", "sum"),
    dtype=f"Element types, comma-separated, or all: {', '.join(_FLOATS)}.  [default: float32]",
    rows={"default": None, "help": "Number of rows, each of --n elements; the first is probed.  "
                                   "[default: 1]"},
    time_limit="Time limit for the probes of one call, and for the first result of a library.  "
    "[default: 60, and 300]", style=_SHORT,
)  # fmt: skip
def reveal_(**options: Any) -> int:
    """Find the summation order of kernels and libraries.

    Recovers the order by black-box probing: masks M and -M among ones. Prints the tree, its depth,
    the error bound that follows, and a short hash. `peers` selects all libraries.
    """
    from cudareduce.analysis.reveal.command import RevealRequest, reveal

    return reveal(command_request(RevealRequest, options))


@click.command(
    "selftest",
    cls=Command,
    epilog="""cudareduce selftest
cudareduce selftest --strict --json selftest.json
cudareduce selftest reduce_v7_shuffle --max-time 60""",
)
@with_kernels("[KERNEL]...", suites=False)
@with_options(
    "max_time strict device no_cache style json markdown quiet debug", style=_SHORT,
    max_time={"default": 180.0, "help": "Time limit of the whole test."},
    strict="Exit with 4 unless a threshold of 2 % is shown to hold.",
)  # fmt: skip
def selftest_(**options: Any) -> int:
    """Test how reliably this machine measures.

    Measures false verdicts, detected slowdowns, the effect of cache flushes, and the smallest
    measurable times. Needs a GPU.
    """
    from cudareduce.timing.selftest.command import SelftestRequest, selftest

    return selftest(command_request(SelftestRequest, options))


@click.command(
    cls=Command,
    epilog="""cudareduce collective all-reduce
cudareduce collective reduce-scatter --ranks 4 --n 4099 --dtype float16
cudareduce collective all-reduce --engine peer:one_shot,host --op max""",
)
@click.argument("collective", type=Word(COLLECTIVES), metavar="|".join(COLLECTIVES))
@with_options(
    f"n op dtype engine nccl ranks meet folders backend rounds no_cache style {WRITTEN}",
    n={"default": "4096",
       "help": "Elements of each rank's array; a list, or a range that doubles."},
    op=one_word(OPS, "OP", "Reduction operator: sum, prod, min or max.", "sum"),
    dtype={"default": "float32",
           "help": f"Element types, with commas, or all: {', '.join(DTYPES)}."},
    ranks="Number of ranks to start without a launcher.  [default: one for each GPU, at least 2]",
    meet="Rendezvous of a launcher's ranks: a file, or tcp://HOST:PORT.  [default: a file here]",
    style=styles("table", "markdown", "csv", "json"),
)  # fmt: skip
def collective(**options: Any) -> int:
    """Verify and time all-reduce, reduce-scatter and reduce across GPUs.

    Verifies each engine at many sizes. The inputs change with every call, and each rank in turn is
    delayed. Measures times if each rank has a GPU; on the CPU emulator it only verifies. Ranks are
    processes that the command starts, or that torchrun, mpirun, srun or flux has started.
    """
    from cudareduce.collectives.collective import CollectiveRequest
    from cudareduce.collectives.collective import collective as take_part

    engine = options.pop("engine")
    engines = tuple(name for name in (engine or "").split(",") if name)
    if engine is not None and not engines:
        raise UsageError(
            f"--engine {engine!r} names no engine: leave the option out to run all correct engines"
        )
    return take_part(command_request(CollectiveRequest, options | {"engine": engines}))
