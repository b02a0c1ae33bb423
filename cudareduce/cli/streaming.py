"""`bench` and `verify`, of arrays on the card and, with `--from`, of those that lie elsewhere, or,
with `--gpus`, on several cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from cudareduce.cli.help import made
from cudareduce.cli.types import NO_PLAIN_FILE, Count, Place, Sizes, completed, options_of
from cudareduce.errors import UsageError
from cudareduce.several.names import MOST_RANKS

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


add_gpus = options_of(
    click.option("--gpus", type=Count(2, MOST_RANKS), metavar="N",
                 help="One array over so many GPUs, of which each reduces a share in a process of "
                 "its own, and the answer on all of them."),
    click.option("--meet", metavar="FILE|tcp://HOST:PORT",
                 help="With --gpus: where ranks of a launcher meet.  [default: a file here]"),
)  # fmt: skip
_STREAMS, _RANKS = ("source", "chunk"), ("gpus", "meet")


def benched(options: Mapping[str, Any], *, usual_sizes: bool) -> int:
    """What `bench` ends with, where nobody has said `--n` or somebody has."""
    if options["gpus"] is not None and options["source"] is not None:
        from cudareduce.several.sharded_bench import StreamsRequest, bench_streams_of_ranks

        return bench_streams_of_ranks(made(StreamsRequest, options))
    if options["gpus"] is not None:
        from cudareduce.several.sharded_bench import ShardedRequest, bench_sharded

        return bench_sharded(made(ShardedRequest, options, _STREAMS))
    if options["meet"] is not None:
        raise UsageError("--meet goes with --gpus: give that too")
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamBenchRequest, bench_streams

        return bench_streams(made(StreamBenchRequest, options, _RANKS))
    from cudareduce.bench.command import bench
    from cudareduce.bench.request import BenchRequest

    options = {**options, "usual_sizes": usual_sizes}
    return bench(made(BenchRequest, options, (*_STREAMS, *_RANKS)))


def verified(options: Mapping[str, Any]) -> int:
    """What `verify` ends with."""
    if options["source"] is not None:
        from cudareduce.bench.stream.command import StreamVerifyRequest, verify_streams

        return verify_streams(made(StreamVerifyRequest, options))
    from cudareduce.bench.request import VerifyRequest
    from cudareduce.bench.verify_command import verify

    return verify(made(VerifyRequest, options, _STREAMS))
