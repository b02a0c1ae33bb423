"""The commands that measure nothing: `list`, `show`, `report`, `info` and `completion`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.completion import INSTALL, Named, completion_script
from cudareduce.cli.help import Command, made
from cudareduce.cli.options import add_debug, add_device, add_files, add_folders, add_format
from cudareduce.cli.types import NO_PLAIN_FILE, Count, Place, Word
from cudareduce.errors import UsageError
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS

if TYPE_CHECKING:
    from cudareduce.library.registry import Registry


_add_results = click.option(
    "--results", type=Place(NO_PLAIN_FILE), multiple=True, metavar="FILE",
    help="Say what steps gained by these runs of yours.  [default: those of the project]",
)  # fmt: skip


@click.command(
    "list",
    cls=Command,
    epilog="""cudareduce list
cudareduce list fastcuda
cudareduce list --tree""",
)
@click.argument("suite", required=False, type=Named("SUITE", kernels=False, suites=True))
@click.option("--tree", is_flag=True, help="The lineage, with what each step gained.")
@_add_results
@add_format("table", "json")
@add_folders
@add_debug
def list_(
    suite: str | None, tree: bool, results: tuple[Path, ...], style: str,
    folders: tuple[Path, ...], debug: bool,
) -> int:  # fmt: skip
    """What there is: suites, kernels, and the technique matrix.

    `list peers` has the libraries that --peers measures beside kernels, and which are here.
    """
    from cudareduce.cli.listing import chosen_of, list_json, list_section
    from cudareduce.report.terminal import print_sections

    if tree and (suite == "peers" or style == "json"):
        raise UsageError("--tree draws kernels: leave out peers and --format")
    if suite == "peers":
        from cudareduce.peers.catalogue import peers_json, peers_section

        if style == "json":
            click.echo(peers_json())
        else:
            print_sections([peers_section()])
        return 0
    registry = _registry(folders)
    if tree:
        from cudareduce.cli.listing import print_tree

        print_tree(registry, chosen_of(registry, suite), results)
    elif style == "json":
        click.echo(list_json(registry, suite))
    else:
        print_sections(list_section(registry, suite))
    return 0


@click.command(
    cls=Command,
    epilog="""cudareduce show reduce_v0_baseline | less
cudareduce show reduce_v2_no_bank_conflict --diff
cudareduce show reduce_v7_shuffle --sass --dtype float16""",
)
@click.argument("kernel", type=Named("KERNEL"))
@add_files
@click.option("--diff", is_flag=True, help="Only what changed against the predecessor.")
@click.option("--ptx", is_flag=True, help="What nvcc makes of it: PTX.")
@click.option("--sass", is_flag=True, help="Machine code, with a word beside what costs time.")
@click.option(
    "--arch",
    type=Count(75, 999),
    default=90,
    show_default=True,
    metavar="ARCH",
    help="With --ptx and --sass: for which architecture.",
)
@click.option(
    "--op",
    type=Word(OPERATORS),
    metavar="OP",
    help="With --ptx and --sass: of which operator.  [default: sum, or the first that it takes]",
)
@click.option(
    "--dtype",
    type=Word(DTYPES),
    metavar="DTYPE",
    help="With --ptx and --sass: of which element type.  [default: float32, or the first]",
)
@click.option(
    "--block",
    type=Count(1, 1024),
    metavar="THREADS",
    help="With --ptx and --sass: threads a block.  [default: the kernel's]",
)
@click.option(
    "--items",
    type=Count(1, 2**16),
    help="With --ptx and --sass: elements a thread.  [default: the kernel's]",
)
@_add_results
@add_folders
@add_debug
def show(**options: Any) -> int:
    """What a kernel changes, what it gains, and its source.

    Or its diff to the step before, or what nvcc makes of it; gains are those of stored runs.
    """
    from cudareduce.cli.listing import ShowRequest
    from cudareduce.cli.listing import show as print_kernel

    return print_kernel(made(ShowRequest, options))


@click.command(
    cls=Command,
    epilog="""cudareduce report docs/publications.md
cudareduce report README.md --check
cudareduce report results/nvidia-h200/sweep.json --html sweep.html""",
)
@click.argument("files", nargs=-1, metavar="[FILE.md|RESULT...]", type=Place(NO_PLAIN_FILE))
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if a table is out of date.")
@click.option("--html", type=Place(NO_PLAIN_FILE), metavar="FILE",
              help="Write one page of results: tables, charts, lessons, sources.")  # fmt: skip
@add_debug
def report(files: tuple[Path, ...], check: bool, html: Path | None, debug: bool) -> int:
    """Make a Markdown file's tables anew, or a page of results.

    Markers in the Markdown file, README.md unless another is named, name the results that its
    tables are made from. A page with --html is one file that opens in any browser without a
    network; several results are tabs of it, and those of several GPUs are compared. It takes what
    pip install 'cudareduce[html]' installs.
    """
    if html is not None:
        from cudareduce.page.command import PageRequest, page

        if not files or check:
            raise UsageError("--html takes the results to show, as run.json, and no --check")
        return page(PageRequest(results=files, html=html))
    if len(files) > 1 or any(file.suffix == ".json" for file in files):
        raise UsageError("report takes one Markdown file; for a page of results add --html FILE")
    return _tables_anew(files[0] if files else Path("README.md"), check)


def _tables_anew(file: Path, check: bool) -> int:
    from cudareduce.progress import say
    from cudareduce.report.markdown import update_readme
    from cudareduce.reproduce.experiments import tables
    from cudareduce.results.store import write_text

    registry = _registry()
    old, new = update_readme(file, lambda run: tables(run, registry))
    if old == new:
        say(f"{file} shows its results")
        return 0
    if check:
        raise UsageError(f"{file} does not show its results: run cudareduce report {file}")
    write_text(file, new)
    say(f"{file} has its tables anew")
    return 0


@click.command(
    cls=Command,
    epilog="""cudareduce info
cudareduce info --device 0
cudareduce info > machine.txt""",
)
@add_device
@add_debug
def info(device: int, debug: bool) -> int:
    """What this machine can run, and what brings the rest.

    GPU, driver, compilers, libraries, permissions; the last line says whether it can measure.
    """
    from cudareduce.cli.info import info_section
    from cudareduce.report.terminal import print_sections

    print_sections([info_section(device)])
    return 0


@click.command(
    cls=Command,
    epilog="""source <(cudareduce completion bash)
source <(cudareduce completion zsh)
cudareduce completion fish > ~/.config/fish/completions/cudareduce.fish""",
)
@click.argument("shell", type=Word(INSTALL), metavar="bash|zsh|fish")
@add_debug
@click.pass_context
def completion(ctx: click.Context, shell: str, debug: bool) -> int:
    """Print what makes a shell complete names and options.

    A comment at its head says how to install it.
    """
    click.echo(completion_script(shell, ctx.find_root().command), nl=False)
    return 0


def _registry(folders: tuple[Path, ...] = ()) -> Registry:
    from cudareduce.library.registry import load_registry

    return load_registry(folders)
