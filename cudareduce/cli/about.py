"""The commands that measure nothing: `list`, `show`, `report`, `info` and `completion`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cudareduce.cli.completion import INSTALL, Named, completion_script
from cudareduce.cli.help import Command
from cudareduce.cli.options import add_debug, add_device, add_folders, add_format
from cudareduce.cli.types import NO_PLAIN_FILE, Place, Word
from cudareduce.errors import UsageError

if TYPE_CHECKING:
    from cudareduce.library.registry import Registry


@click.command(
    "list",
    cls=Command,
    epilog="""cudareduce list
cudareduce list fastcuda
cudareduce list --format json""",
)
@click.argument("suite", required=False, type=Named("SUITE", kernels=False, suites=True))
@add_format("table", "json")
@add_folders
@add_debug
def list_(suite: str | None, style: str, folders: tuple[Path, ...], debug: bool) -> int:
    """What there is: suites, kernels, and the technique matrix.

    `list peers` has the libraries that --peers measures beside kernels, and which are here.
    """
    from cudareduce.cli.catalogue import list_json, list_section
    from cudareduce.report.terminal import print_sections

    if suite == "peers":
        from cudareduce.peers.catalogue import peers_json, peers_section

        if style == "json":
            click.echo(peers_json())
        else:
            print_sections([peers_section()])
        return 0
    registry = _registry(folders)
    if style == "json":
        click.echo(list_json(registry, suite))
    else:
        print_sections(list_section(registry, suite))
    return 0


@click.command(
    cls=Command,
    epilog="""cudareduce show reduce_v0_baseline
cudareduce show reduce_v2_no_bank_conflict --diff
cudareduce show reduce_last_block | less""",
)
@click.argument("kernel", type=Named("KERNEL"))
@click.option("--diff", is_flag=True, help="Only what changed against the predecessor.")
@add_folders
@add_debug
def show(kernel: str, diff: bool, folders: tuple[Path, ...], debug: bool) -> int:
    """What a kernel changes and why, its source, or its diff."""
    from cudareduce.cli.catalogue import show_text

    click.echo(show_text(_registry(folders), kernel, diff), nl=False)
    return 0


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
    """What this machine can run: GPU, driver, compilers, libraries."""
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
