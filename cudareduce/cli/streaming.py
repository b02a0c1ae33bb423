"""`bench` and `verify`, of arrays on the card and, with `--from`, of those that lie elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.requests import made
from cudareduce.cli.types import NO_PLAIN_FILE, Place, Sizes, completed, options_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class ArraySource(click.ParamType[str]):
    """`--from`: the word host, or a file."""

    name = "host|FILE.npy"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """The word, or the file's name."""
        if value == "host":
            return "host"
        return str(Place(NO_PLAIN_FILE, dir_okay=False).convert(value, param, ctx))

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem[str]]:
        """Files, and the word."""
        from click.shell_completion import CompletionItem

        return [*completed(("host",), incomplete), CompletionItem(incomplete, type="file")]


add_from = options_of(
    click.option("--from", "source", type=ArraySource(), metavar="host|FILE.npy",
                 help="An array that lies in the host's memory, or in a file, and is streamed "
                 "through the card in chunks: host or FILE.npy; times are % of copying alone."),
    click.option("--chunk", type=Sizes(), default=(), metavar="BYTES,...",
                 help="With --from: bytes that are copied at once, as 64Mi, or several.  "
                 "[default: 64Mi]"),
)  # fmt: skip


def benched(options: Mapping[str, Any]) -> int:
    """What `bench` ends with."""
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams

        return bench_streams(made(StreamBenchRequest, options))
    from cudareduce.bench.command import bench
    from cudareduce.bench.request import BenchRequest

    return bench(made(BenchRequest, options, ("source", "chunk")))


def verified(options: Mapping[str, Any]) -> int:
    """What `verify` ends with."""
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamVerifyRequest, verify_streams

        return verify_streams(made(StreamVerifyRequest, options))
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import verify

    return verify(made(VerifyRequest, options, ("source", "chunk")))
