"""The commands that run kernels: bench, verify, sweep, tune, reproduce, profile, reveal, selftest.

Everything but click is imported inside the commands, so that `--help` is quick and works anywhere.
"""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from cudareduce.cli.help import Command
from cudareduce.cli.options import (
    SIZES,
    add_acc,
    add_arch,
    add_backend,
    add_columns,
    add_device,
    add_dtypes,
    add_files,
    add_folders,
    add_from,
    add_gpus,
    add_kernels,
    add_machine,
    add_map,
    add_max_time,
    add_no_cache,
    add_op,
    add_ops,
    add_outputs,
    add_peak,
    add_peers,
    add_problem,
    add_rounds,
    add_rows,
    add_shape,
    add_sizes,
    add_strict,
    add_timing,
    one_of,
    seconds,
)
from cudareduce.cli.request import make_request
from cudareduce.cli.types import Count, Name, Named, Place, Word
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.reduction.patterns import USER_PATTERNS
from cudareduce.reduction.sizes import LARGEST

_ANY_KERNELS = "[KERNEL|SUITE|GLOB|FILE.cu|all|auto]..."
_STREAM_OPTIONS, _RANK_OPTIONS = ("source", "chunk"), ("gpus", "meet")


@click.command(
    "bench",
    cls=Command,
    epilog="""cudareduce bench all --n 33554432
cudareduce bench fastcuda --n 2^20,2^25 --csv ladder.csv
cudareduce bench all --op-expr 'a > b ? a : b' --identity=-INFINITY""",
)
@add_kernels(_ANY_KERNELS, "auto")
@add_sizes("2^25", f"Number of elements: {SIZES}.")
@add_timing
@add_columns
@add_strict
@add_peers
@add_from
@add_gpus
@add_problem
@click.pass_context
def bench_(context: click.Context, /, **options: Any) -> int:
    """Verify kernels, then time them.

    All kernels, unless some are named. Without a GPU they are verified on a CPU emulator and not
    timed.
    """
    _prepare_to_fork()
    options["argv"] = tuple(context.obj)
    if options["gpus"] is not None:
        from cudareduce.collectives.sharded_bench import ShardedRequest, bench_sharded

        return bench_sharded(make_request(ShardedRequest, options))
    if options["meet"] is not None:
        raise UsageError("--meet needs --gpus")
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams

        return bench_streams(make_request(StreamBenchRequest, options, _RANK_OPTIONS))
    from cudareduce.bench.command import bench
    from cudareduce.bench.request import BenchRequest

    options["usual_sizes"] = context.get_parameter_source("n") is ParameterSource.DEFAULT
    return bench(make_request(BenchRequest, options, (*_STREAM_OPTIONS, *_RANK_OPTIONS)))


@click.command(
    "verify",
    cls=Command,
    epilog="""cudareduce verify fastcuda
cudareduce verify all --op sum,min,max --dtype float32,int32
cudareduce verify reduce_last_block --n 1,1000,2^20 --backend cpu""",
)
@add_kernels(_ANY_KERNELS, "auto")
@add_sizes(None, f"Number of elements: {SIZES}.  [default: sizes that reveal errors]")
@click.option(
    "--pattern",
    "only_pattern",
    metavar="NAME",
    type=Word(USER_PATTERNS),
    help=f"Input pattern: {one_of(USER_PATTERNS)} (a sum of nearly 0).  [default: all but cancel]",
)
@add_strict
@click.option(
    "--sanitize", is_flag=True,
    help="Also run the four tools of NVIDIA's compute-sanitizer, on a GPU.",
)  # fmt: skip
@add_peers
@add_from
@add_problem
@click.pass_obj
def verify_(arguments: list[str], /, **options: Any) -> int:
    """Check the results of kernels, without timing them.

    Tests edge sizes and every input pattern; the CPU emulator also tests thread schedules and
    detects data races.
    """
    _prepare_to_fork()
    options["argv"] = tuple(arguments)
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamVerifyRequest, verify_streams

        return verify_streams(make_request(StreamVerifyRequest, options))
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import verify

    return verify(make_request(VerifyRequest, options, _STREAM_OPTIONS))


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
@add_kernels(_ANY_KERNELS, "auto")
@add_sizes(
    None, "Number of elements, at least 3 sizes; a range doubles.  [default: 2^10..2^30; with "
    "--sms 2^28]",
)  # fmt: skip
@add_timing
@add_peers
@add_problem
@click.pass_obj
def sweep_(arguments: list[str], /, **options: Any) -> int:
    """Time a range of sizes: launch overhead, bandwidth, crossover points.

    Fits a line to the times of each kernel. With --sms, shows bandwidth over the number of SMs
    instead. Needs a GPU.
    """
    from cudareduce.bench.request import BenchRequest
    from cudareduce.sweep.command import sweep

    return sweep(make_request(BenchRequest, options | {"argv": tuple(arguments)}))


@click.command(
    "tune",
    cls=Command,
    epilog="""cudareduce tune auto --max-time 300
cudareduce tune auto --op sum,argmax --dtype float32,int32 --n 2^10..2^28
cudareduce tune reduce_tiles_mailbox --n 2^16,2^20 --json tuned.json""",
)
@add_kernels("[KERNEL|FAMILY|GLOB|auto]...", "auto", suites=False)
@add_sizes(
    "2^10,2^12,2^14,2^16,2^18,2^20,2^22,2^24,2^25,2^26,2^28", f"Number of elements: {SIZES}."
)
@add_ops("sum")
@add_dtypes("float32")
@add_rows()
@add_max_time("Time limit of the whole search; small sizes are tuned first.", 300.0)
@click.option("--write", is_flag=True, help="Also store the table in the package, for all users.")
@add_device
@add_no_cache
@add_outputs("table", "markdown", "csv", "json")
@click.pass_obj
def tune_(arguments: list[str], /, **options: Any) -> int:
    """Search for the fastest launch shapes and store them for `auto`.

    Tries threads per block, items per thread and grid sizes, and compares them with the current
    choice of `auto`. Needs a GPU.
    """
    from cudareduce.tune.command import TuneRequest, tune

    return tune(make_request(TuneRequest, options | {"argv": tuple(arguments)}))


@click.command(
    "reproduce",
    cls=Command,
    epilog="""cudareduce reproduce bbuf
cudareduce reproduce fastcuda --format fastcuda
cudareduce reproduce leimao --rounds 15 --json leimao.json""",
)
@click.argument("suite", type=Named("SUITE", kernels=False, suites=True))
@add_rounds
@add_peak
@add_machine
@add_outputs("table", "markdown", "csv", "json", "fastcuda",
             what=" (that tool's key=value lines)")  # fmt: skip
@click.pass_obj
def reproduce_(arguments: list[str], /, **options: Any) -> int:
    """Repeat a published experiment, and compare with its figures.

    The suite defines kernels, sizes, block size and timed region; `cudareduce list` shows the
    suites.
    """
    from cudareduce.reproduce.command import ReproduceRequest, reproduce

    return reproduce(make_request(ReproduceRequest, options | {"argv": tuple(arguments)}))


@click.command(
    "profile",
    cls=Command,
    epilog="""cudareduce profile reduce_v0_baseline
cudareduce profile --diff reduce_v1_no_divergence reduce_v2_no_bank_conflict
cudareduce profile fastcuda --static""",
)
@add_kernels("KERNEL|SUITE|GLOB|FILE.cu...")
@click.option("--n", type=Count(1, LARGEST), default=2**25,
              help="Number of elements: 33554432, 2^25, 32Mi or 1e6.  [default: 2^25]")  # fmt: skip
@add_rows()
@add_op
@click.option("--dtype", type=Word(DTYPES), default="float32", show_default=True,
              metavar="DTYPE", help=f"Element type: {one_of(tuple(DTYPES))}.")  # fmt: skip
@add_acc
@add_map
@add_shape
@add_files
@add_folders
@click.option("--diff", is_flag=True, help="Compare two kernels: what changed, and why it matters.")
@click.option("--static", is_flag=True, help="Without a GPU: use the compiler's resource usage and "
              "the counts of the emulator.")  # fmt: skip
@add_arch("Architecture for --static.")
@add_device
@add_max_time("Time limit of ncu.", 300.0)
@add_no_cache
@click.option("--png", type=Place(), metavar="FILE",
              help="Also draw the roofline and the utilization of each unit, as PNG.")  # fmt: skip
@click.option("--svg", type=Place(), metavar="FILE", help="Also draw them as SVG.")
@add_outputs("table", "markdown", "json")
@click.pass_obj
def profile_(arguments: list[str], /, **options: Any) -> int:
    """Explain what limits a kernel, from hardware counters.

    Runs the first launch under Nsight Compute (ncu) and explains utilization, warp stalls, active
    lanes, bank conflicts and bytes moved, and which kernel of the ladder improves them.
    """
    from cudareduce.profile.command import ProfileRequest, profile

    return profile(make_request(ProfileRequest, options | {"argv": tuple(arguments)}))


@click.command(
    "reveal",
    cls=Command,
    epilog="""cudareduce reveal reduce_v7_shuffle
cudareduce reveal all --n 1024 --json orders.json
cudareduce reveal --compare reduce_v6_multi_add reduce_v7_shuffle""",
)
@add_kernels("[KERNEL|SUITE|GLOB|FILE.cu|PEER|all|peers]...")
@add_sizes(
    None, f"Number of elements: {SIZES}. Up to 4096 the whole tree is recovered, above it that of "
    "a sample.  [default: 1024; with --compare FILE, its sizes]",
)  # fmt: skip
@add_files
@click.option("--compare", nargs=2, metavar="A B", type=Name(), default=None,
              help="Compare two summation orders: names, or files of --json.")  # fmt: skip
@click.option("--op", type=Word(OPERATORS), default="sum", show_default=True, metavar="OP",
              help="Operator; only sum has a visible order.")  # fmt: skip
@add_dtypes(None, "  [default: float32]", [name for name, d in DTYPES.items() if d.kind == "float"])
@add_acc
@add_rows(None, what="Number of rows, each of --n elements; the first is probed.  [default: 1]")
@add_shape
@add_folders
@add_backend
@add_device
@click.option("--time-limit", type=seconds, metavar="SECONDS",
              help="Time limit for the probes of one call, and for the first result of a library.  "
              "[default: 60, and 300]")  # fmt: skip
@add_no_cache
@add_outputs("table", "markdown", "json")
@click.pass_obj
def reveal_(arguments: list[str], /, **options: Any) -> int:
    """Find the summation order of kernels and libraries.

    Recovers the order by black-box probing: masks M and -M among ones. Prints the tree, its depth,
    the error bound that follows, and a short hash. `peers` selects all libraries.
    """
    from cudareduce.reveal.command import RevealRequest, reveal

    return reveal(make_request(RevealRequest, options | {"argv": tuple(arguments)}))


@click.command(
    "selftest",
    cls=Command,
    epilog="""cudareduce selftest
cudareduce selftest --strict --json selftest.json
cudareduce selftest reduce_v7_shuffle --max-time 60""",
)
@add_kernels("[KERNEL]...", suites=False)
@add_max_time("Time limit of the whole test.", 180.0)
@click.option("--strict", is_flag=True,
              help="Exit with 4 unless a threshold of 2 % is shown to hold.")  # fmt: skip
@add_device
@add_no_cache
@add_outputs("table", "markdown", "json")
@click.pass_obj
def selftest_(arguments: list[str], /, **options: Any) -> int:
    """Test how reliably this machine measures.

    Measures false verdicts, detected slowdowns, the effect of cache flushes, and the smallest
    measurable times. Needs a GPU.
    """
    from cudareduce.selftest.command import SelftestRequest, selftest

    return selftest(make_request(SelftestRequest, options | {"argv": tuple(arguments)}))
