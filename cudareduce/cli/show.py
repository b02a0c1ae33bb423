"""The commands that run no kernel: list, show, plot, report, info, completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudareduce.cli.help import Command
from cudareduce.cli.options import FILES, SHAPE, one_word, styles, with_options
from cudareduce.cli.request import make_request
from cudareduce.cli.types import DEVICES, NO_PLAIN_FILE, Named, Place, Word
from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS
from cudareduce.text import json_shown


@click.command(
    "list",
    cls=Command,
    epilog="""cudareduce list
cudareduce list fastcuda --techniques
cudareduce list --tree""",
)
@click.argument(
    "name",
    required=False,
    metavar="[SUITE|FAMILY|KERNEL|peers]",
    type=Named("NAME", suites=True, families=True, words=("peers",)),
)
@with_options("tree techniques results style folders debug", style=styles("table", "json"))
def list_(
    name: str | None, tree: bool, techniques: bool, results: tuple[Path, ...], style: str,
    folders: tuple[Path, ...], debug: bool,
) -> int:  # fmt: skip
    """List suites and kernels.

    Commands accept the name of a kernel with or without `reduce_`, and any part of it that is
    unique: `v7` is reduce_v7_shuffle. The name of a family selects all its kernels. `list peers`
    lists the library calls for --libraries, and shows which libraries are installed.
    """
    from cudareduce.catalog.registry import load_registry
    from cudareduce.cli.listing import (
        chosen_of,
        list_json,
        list_section,
        print_tree,
        techniques_section,
    )
    from cudareduce.report.terminal import print_sections

    views = [flag for flag, on in (("--tree", tree), ("--techniques", techniques)) if on]
    if views and (len(views) > 1 or name == "peers" or style == "json"):
        others = "--techniques, peers or --format json" if tree else "peers or --format json"
        raise UsageError(f"{views[0]} cannot be combined with {others}")
    if name == "peers":
        from cudareduce.libraries.catalogue import libraries_json, libraries_section

        if style == "json":
            click.echo(libraries_json())
        else:
            print_sections([libraries_section()])
        return 0
    registry = load_registry(folders)
    if tree:
        print_tree(registry, chosen_of(registry, name), results)
    elif techniques:
        print_sections([techniques_section(chosen_of(registry, name))])
    elif style == "json":
        click.echo(json_shown(list_json(registry, name)))
    else:
        print_sections(list_section(registry, name))
    return 0


@click.command(
    cls=Command,
    epilog="""cudareduce show reduce_v0_baseline | less
cudareduce show reduce_v2_no_bank_conflict --diff
cudareduce show reduce_v7_shuffle --sass --dtype float16""",
)
@click.argument("kernel", type=Named("KERNEL"))
@with_options(
    f"{FILES} diff ptx sass arch op dtype {SHAPE} results folders debug",
    arch="Architecture for --ptx and --sass.",
    op=one_word(tuple(OPERATORS), "OP",
                "Operator for --ptx and --sass.  [default: sum, or the first supported]", None),
    dtype=one_word(tuple(DTYPES), "DTYPE",
                   "Element type for --ptx and --sass.  [default: float32, or the first supported]",
                   None),
)  # fmt: skip
def show(**options: Any) -> int:
    """Show a kernel's technique, measured gain and source.

    With --diff, --ptx or --sass, shows the diff to the predecessor, the PTX or the machine code
    instead. The gains come from stored runs.
    """
    from cudareduce.cli.listing import ShowRequest
    from cudareduce.cli.listing import show as print_kernel

    return print_kernel(make_request(ShowRequest, options))


@click.command(
    cls=Command,
    epilog="""cudareduce plot results/nvidia-h200/sweep.json
cudareduce plot results/nvidia-h200/libraries-*.json --kind winners
cudareduce plot before.json after.json --only 'reduce_v*' --png change.png""",
)
@click.argument("results", nargs=-1, required=True, metavar="RESULT...", type=Place(DEVICES))
@with_options(
    "kind only n png svg debug",
    n={"default": (),
       "help": "Number of elements, in ladder and gpus.  [default: the size with most kernels]"},
)  # fmt: skip
def plot(**options: Any) -> int:
    """Draw charts of results, in the terminal or as PNG and SVG.

    Draws bandwidth over n, the ladder of kernels, kernels against libraries, the fastest kernel of
    each type and size, or two runs before and after a change. Needs pip install 'cudareduce[plot]'.
    """
    if options["png"] is not None and options["png"] == options["svg"]:
        raise UsageError(f"--png and --svg are one file, {options['png']}: choose another name")
    from cudareduce.report.plot.command import PlotRequest
    from cudareduce.report.plot.command import plot as draw

    return draw(make_request(PlotRequest, options))


@click.command(
    cls=Command,
    epilog="""cudareduce report docs/publications.md
cudareduce report README.md --check
cudareduce report results/nvidia-h200/sweep.json --html sweep.html""",
)
@click.argument("files", nargs=-1, metavar="[FILE.md|RESULT...]", type=Place(NO_PLAIN_FILE))
@with_options("check html debug")
def report(files: tuple[Path, ...], check: bool, html: Path | None, debug: bool) -> int:
    """Update the tables of a Markdown file, or write a results page.

    Markers in the Markdown file (default: README.md) name the results of each table. A page
    (--html) is one file that works in any browser without a network; several results become tabs,
    and results of several GPUs are compared. --html needs pip install 'cudareduce[html]'.
    """
    if html is not None:
        from cudareduce.report.page.command import PageRequest, page

        if not files or check:
            raise UsageError("--html needs result files such as run.json, and excludes --check")
        return page(PageRequest(results=files, html=html))
    if len(files) > 1 or any(file.suffix == ".json" for file in files):
        raise UsageError("report takes one Markdown file; for a page of results add --html FILE")
    return _update_tables(files[0] if files else Path("README.md"), check)


def _update_tables(file: Path, check: bool) -> int:
    from cudareduce.analysis.reproduce import tables
    from cudareduce.catalog.registry import load_registry
    from cudareduce.progress import say
    from cudareduce.report.markdown import update_readme
    from cudareduce.results.store import write_text

    registry = load_registry(())
    old, new = update_readme(file, lambda run: tables(run, registry))
    if old == new:
        say(f"{file} is up to date")
        return 0
    if check:
        raise UsageError(f"the tables of {file} are outdated: run cudareduce report {file}")
    write_text(file, new)
    say(f"{file} is updated")
    return 0


@click.command(
    cls=Command,
    epilog="""cudareduce info
cudareduce info --device 0
cudareduce info > machine.txt""",
)
@with_options("device debug")
def info(device: int, debug: bool) -> int:
    """Show what this machine can run and how to install the rest.

    Lists GPU, driver, compilers, libraries and permissions. The last line says whether the machine
    is ready to measure.
    """
    from cudareduce.cli.info import info_section
    from cudareduce.report.terminal import print_sections

    print_sections([info_section(device)])
    return 0


#: How to install the script of each shell.
_INSTALL = {
    "bash": "to install, add to ~/.bashrc: source <(cudareduce completion bash)",
    "zsh": "to install, add to ~/.zshrc below compinit: source <(cudareduce completion zsh)",
    "fish": "to install: cudareduce completion fish > ~/.config/fish/completions/cudareduce.fish",
}


@click.command(
    cls=Command,
    epilog="""source <(cudareduce completion bash)
source <(cudareduce completion zsh)
cudareduce completion fish > ~/.config/fish/completions/cudareduce.fish""",
)
@click.argument("shell", type=Word(_INSTALL), metavar="bash|zsh|fish")
@with_options("debug")
@click.pass_context
def completion(ctx: click.Context, shell: str, debug: bool) -> int:
    """Print the shell completion script for bash, zsh or fish.

    A comment at the top says how to install it.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "cudareduce", "_CUDAREDUCE_COMPLETE").source()
    # Click's fish script splits a list with commas at its first word.
    script = script.replace('string split ","', 'string split --max 1 ","')
    first, rest = script.split("\n", 1)
    head = [f"# {_INSTALL[shell]}", first]
    if first.startswith("#"):  # zsh needs #compdef as the first line
        head.reverse()
    click.echo("\n".join([*head, rest]), nl=False)
    return 0
