"""The commands for many machines' results: `gather` and `fleet`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cudareduce.cli.help import Command
from cudareduce.cli.options import add_debug, add_file, add_format
from cudareduce.cli.requests import made
from cudareduce.cli.types import DEVICES, NO_PLAIN_FILE, Place

_STORE = "fleet.sqlite"


@click.command(
    cls=Command,
    epilog="""cudareduce gather results
cudareduce gather /shared/results --into fleet.sqlite
cudareduce gather node1 node2 run.json --into fleet.sqlite""",
)
@click.argument("places", nargs=-1, required=True, metavar="DIR...", type=Place(DEVICES))
@click.option("--into", "store", type=Place(NO_PLAIN_FILE, dir_okay=False), metavar="FILE",
              default=_STORE, show_default=True,
              help="The store; made if it is not there.")  # fmt: skip
@add_debug
def gather(places: tuple[Path, ...], store: Path, debug: bool) -> int:
    """Take results of many machines into one store.

    Every result of bench below the folders, once, however often and under whatever name it lies
    there; what is no such result is left out, and that is said.
    """
    from cudareduce.several.fleet.command import gather as take

    return take(places, store)


@click.command(
    cls=Command,
    epilog="""cudareduce fleet
cudareduce fleet fleet.sqlite --slow
cudareduce fleet fleet.sqlite --csv cards.csv --format markdown""",
)
@click.argument("store", required=False, default=_STORE, metavar="[FILE]",
                type=Place(NO_PLAIN_FILE, dir_okay=False))  # fmt: skip
@click.option("--slow", is_flag=True,
              help="Only the slow cards; exit with 1 if there are any, with 4 if that cannot be "
              "told.")  # fmt: skip
@add_file("--csv", "CSV, a line for each card and cell")
@add_format("table", "markdown", "json")
@add_debug
def fleet(**options: Any) -> int:
    """Which cards are slower than others of their model.

    Card by card against the median of at least 8, kernel by kernel, from what gather has stored:
    slow is what lies apart by 3 % or more in two of the last three runs.
    """
    from cudareduce.several.fleet.command import FleetRequest
    from cudareduce.several.fleet.command import fleet as judge

    return judge(made(FleetRequest, options))
