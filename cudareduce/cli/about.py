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
    epilog="""cudareduce report
cudareduce report docs/publications.md
cudareduce report README.md --check""",
)
@click.argument("file", type=Place(NO_PLAIN_FILE), default="README.md")
@click.option("--check", is_flag=True, help="Change nothing; exit 2 if a table is out of date.")
@add_debug
def report(file: Path, check: bool, debug: bool) -> int:
    """Make the tables of a Markdown file anew.

    Markers in the file name the results that its tables are made from.
    """
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
