"""The options of `compare` and `check`, apart from those of the commands that only measure."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

import click

from cudareduce.cli.help import Command, made
from cudareduce.cli.library_options import add_library, check_versions
from cudareduce.cli.options import (
    MOST_ROUNDS,
    MOST_SECONDS,
    add_debug,
    add_device,
    add_file,
    add_folders,
    add_format,
    add_json,
    add_kernels,
    add_map,
    add_no_cache,
    add_peers,
    add_quiet,
    add_time_limit,
)
from cudareduce.cli.types import DEVICES, Amount, Count, Name, Place, Sizes, Words, options_of
from cudareduce.errors import UsageError
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS
from cudareduce.problem.sizes import LARGEST
from cudareduce.several.names import COLLECTIVES, MOST_RANKS

_LONGEST_THRESHOLD, _MOST_TIMES = 20, 1000


class Threshold(click.ParamType[float]):
    """`--threshold`: a percentage."""

    name = "PERCENT"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """As a share."""
        from cudareduce.gate.request import parse_threshold

        if isinstance(value, float):
            return value
        if len(value) > _LONGEST_THRESHOLD:
            self.fail(f"{reprlib.repr(value)} is not a threshold: write 5% or 2.5%", param, ctx)
        try:
            return parse_threshold(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Architectures(click.ParamType[tuple[int, ...]]):
    """`--arch`: compute capabilities without the point."""

    name = "ARCHS"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """As numbers, each once."""
        if isinstance(value, tuple):
            return value
        words = [word.strip().removeprefix("sm_") for word in value.split(",")]
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) < 4 and int(word) >= 50):
                self.fail(
                    f"{reprlib.repr(word)} is not an architecture: write 75,80,90", param, ctx
                )
        return tuple(dict.fromkeys(int(word) for word in words))


_input = Place(DEVICES)
_judging = options_of(
    click.option("--threshold", type=Threshold(), metavar="PERCENT",
                 help="How large a change counts.  [default: 5%]"),
    click.option("--thresholds", type=_input, metavar="FILE",
                 help="Thresholds of single kernels, as TOML."),
    click.option("--strict", is_flag=True, help="Exit with 4 if anything is UNCERTAIN."),
    click.option("--allow-gone", is_flag=True, help="Kernels that are gone do not fail."),
    click.option("--no-same-code", is_flag=True,
                 help="Judge identical machine code by its times, too."),
    click.option("--cross-device", is_flag=True,
                 help="Other machines: compare shares of each card's own ceiling."),
    click.option("--all", "everything", is_flag=True, help="Show what is the SAME, however long."),
    add_file("--junit", "JUnit XML"),
    add_file("--benchmark-json", "what github-action-benchmark reads"),
    add_file("--comment", "one comment for a pull request, kernel by kernel, as Markdown"),
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
    """Two result files: what got slower, faster or wrong.

    The files are those of bench --json, and of check --json.
    """
    from cudareduce.gate.command import compare_files
    from cudareduce.gate.request import CompareRequest

    return compare_files(made(CompareRequest, options))


#: Options that `_refuse_contradictions` refuses with one mode of `check`, so that it has no use for
#: them; and those that it alone has.
_NOT_COMPILING = (
    "base", "compiling", "n", "rows", "op", "dtype", "rounds", "threshold", "thresholds", "strict",
    "cross_device", "no_same_code", "json", "benchmark_json", "time_limit", "everything",
    "no_cache", "device", "peers", "map", "budget", "max_time", "times",
    "ranks",
)  # fmt: skip
_NOT_BASELINE = ("base", "times", "compiling", "n", "rows", "op", "dtype", "arch", "ranks")
_NOT_BASE = ("baseline", "times", "compiling", "update_baseline", "arch", "json")
_NOT_TREES = ("baseline", "times", "compiling", "update_baseline", "json")
_NOT_SELF = ("base", "baseline", "compiling", "update_baseline", "arch", "ranks")
#: What a comparison with itself has nothing to say to.
_ABOUT_A_CHANGE = ("baseline", "base", "compiling", "update_baseline", "arch", "peers", "strict",
                   "allow_gone", "no_same_code", "cross_device", "junit", "benchmark_json",
                   "comment", "everything", "ranks")  # fmt: skip


@click.command(
    cls=Command,
    epilog="""cudareduce check --baseline results/nvidia-h200/baseline.json --threshold 3%
cudareduce check reduce_v7_shuffle --base main --n 2^20,2^25
cudareduce check --compile --baseline results/compile/nvcc-13.0.json""",
)
@add_kernels
@click.option(
    "--baseline",
    type=_input,
    metavar="FILE",
    help="A file of bench or collective --json, or with --compile one of its own.",
)
@click.option(
    "--base",
    type=Name(),
    metavar="TREE",
    help="A revision or a folder of kernels, measured beside this one; of several GPUs where "
    "KERNEL is all-reduce, reduce-scatter or reduce.",
)
@click.option(
    "--self",
    "times",
    type=Count(1, _MOST_TIMES),
    help="Compare this tree with itself so many times: this machine's false verdicts.",
)
@click.option(
    "--compile",
    "compiling",
    is_flag=True,
    help="No GPU: compare what nvcc makes of kernels, and what they ask of memory.",
)
@click.option(
    "--update-baseline", is_flag=True, help="Show what changes, then write the baseline anew."
)
@click.option(
    "--rounds", type=Count(1, MOST_ROUNDS), help="Independent rounds.  [default: as before, or 9]"
)
@click.option(
    "--budget",
    type=Amount(MOST_SECONDS, zero=True),
    metavar="SECONDS",
    help="Measure what is in doubt longer, up to so many.  [default: 60]",
)
@click.option("--max-time", type=Amount(MOST_SECONDS), metavar="SECONDS",
              help="Bound the whole run; what was cut is said.")  # fmt: skip
@click.option(
    "--n", type=Sizes(), help="With --base and --library: elements.  [default: 2^25; 2^10 to 2^28]"
)
@click.option("--rows", type=Count(1, LARGEST), help="With --base: rows of --n.  [default: 1]")
@click.option("--op", type=Words("OPS", tuple(OPERATORS)),
              help="With --base and --library: operators.  [default: sum]")  # fmt: skip
@click.option("--dtype", type=Words("DTYPES", tuple(DTYPES)),
              help="With --base and --library: element types.  [default: float32]")  # fmt: skip
@click.option(
    "--arch",
    type=Architectures(),
    help="With --compile: architectures.  [default: the baseline's, or 75,80,90,100,120]",
)
@add_library
@click.option("--ranks", type=Count(2, MOST_RANKS), metavar="N",
              help="With --base and a collective.  [default: one a GPU, at least 2]")  # fmt: skip
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
def check(arguments: list[str], /, **options: Any) -> int:  # fmt: skip
    """The gate for CI: measure again, compare, exit code.

    Against a stored run (--baseline), another tree of kernels in the same rounds (--base), or,
    without a GPU, what nvcc made of them before (--compile --baseline) or makes of another tree
    (--compile --base; where there is a GPU, what comes out otherwise is timed). Or one version of
    NCCL or CUB against another (--library).
    """
    if options["library"]:
        return check_versions(arguments, options)
    del options["library"]
    _refuse_contradictions(options)
    options["argv"] = tuple(arguments)
    defaults = {"n": (2**25,), "rows": 1, "op": ("sum",), "dtype": ("float32",)}
    given = {key: options[key] or value for key, value in defaults.items()}
    if options["compiling"] and options["base"] is not None:
        from cudareduce.gate.compiled import check_compiled_trees
        from cudareduce.gate.request import CompiledTreesRequest

        return check_compiled_trees(made(CompiledTreesRequest, options | given, _NOT_TREES))
    if options["compiling"]:
        from cudareduce.compiled.command import CompileRequest, check_compiled

        return check_compiled(made(CompileRequest, options, _NOT_COMPILING))
    from cudareduce.gate.command import check, check_base, check_self
    from cudareduce.gate.request import BaseRequest, CheckRequest, SelfRequest

    if options["baseline"] is not None:
        from cudareduce.several.check import check_ranks

        return check(made(CheckRequest, options, _NOT_BASELINE), check_ranks)
    if options["times"] is not None:
        return check_self(made(SelfRequest, options | given, _NOT_SELF))
    if COLLECTIVES.keys() & set(options["kernels"]):
        from cudareduce.several.check import check_base_ranks

        return check_base_ranks(made(BaseRequest, options | given, _NOT_BASE))
    return check_base(made(BaseRequest, options | given, _NOT_BASE))


def _refuse_contradictions(options: dict[str, Any]) -> None:
    """Say which options do not go together, instead of leaving one without effect."""
    if options["times"] is not None:
        _refuse(options, _ABOUT_A_CHANGE, "is about a change, and --self compares none")
        return
    base, compiling = options["base"] is not None, options["compiling"]
    if options["base"] == "":
        raise click.UsageError("--base is empty: name a revision or a folder of kernels")
    if base and options["baseline"] is not None:
        raise click.UsageError("--base needs no --baseline: choose one")
    if not base and options["baseline"] is None:
        raise click.UsageError(
            "name what to compare with: --baseline FILE (made by bench --json FILE), --base REV, "
            "--self N, or --library NAME=OLD,NEW"
        )
    if base and options["update_baseline"]:
        raise click.UsageError("--update-baseline goes with --baseline, and --base has none")
    if not base:
        for key in ("n", "rows", "op", "dtype", "ranks"):
            if options[key] is not None:
                raise click.UsageError(f"--{key} goes with --base; a baseline brings its own")
    if options["peers"] and (base or compiling):
        raise click.UsageError(
            "--peers goes with --baseline: a library is the same beside two trees of kernels, and "
            "nothing of it is compiled here"
        )
    if options["arch"] and not compiling:
        raise click.UsageError("--arch goes with --compile")
    if compiling and not base:
        timed = ("rounds", "threshold", "thresholds", "strict", "cross_device", "no_same_code",
                 "json", "benchmark_json", "time_limit", "everything", "no_cache",
                 "budget", "max_time")  # fmt: skip
        _refuse(options, timed, "is about times, and --compile measures none")
    if compiling and options["map"] is not None:
        raise click.UsageError("--map is about answers, and --compile looks at none")
    if options["ranks"] and not COLLECTIVES.keys() & set(options["kernels"]):
        raise click.UsageError(f"--ranks goes with a collective, {', '.join(COLLECTIVES)}")
    if base and (options["cross_device"] or options["json"]):
        raise click.UsageError("--cross-device and --json go with --baseline")


def _refuse(options: dict[str, Any], keys: Iterable[str], why: str) -> None:
    """Say of the first of these options that is given why it has no effect."""
    for key in keys:
        if options[key]:
            name = {"everything": "all", "compiling": "compile"}.get(key, key.replace("_", "-"))
            raise click.UsageError(f"--{name} {why}")
