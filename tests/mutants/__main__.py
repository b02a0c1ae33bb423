"""Change kernels one thing at a time, and see what `verify` lets pass: `python -m tests.mutants`.

A mutant that compiles is killed, or survives. A survivor may be the same kernel after all: nvcc
makes the same machine code of it, or `equivalent.toml` says why it cannot give a wrong answer. What
is left are gaps of the verification.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cudareduce.compiled.nvcc import find_nvcc
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import load_registry
from tests.mutants.judge import Judge, opened
from tests.mutants.machine_code import SameCode
from tests.mutants.results import Entry, is_enough, proofs, read, summary, write
from tests.mutants.rules import Mutant, mutants_of


def _entries(judge: Judge, kernel: Kernel, mutants: Sequence[Mutant]) -> Iterator[Entry]:
    same, known = SameCode(find_nvcc()), proofs()
    queue = judge.queue(kernel)
    for judged in judge.judge(kernel, mutants):
        mutant, fate, why = judged.mutant, judged.fate, judged.reason
        if fate == "survived" and same(queue, mutant.original, mutant.text):
            fate = "same"
        elif fate == "survived" and (kernel.id, mutant.was, mutant.now) in known:
            fate, why = "proved", known[kernel.id, mutant.was, mutant.now]
        yield Entry(kernel.id, mutant.rule, mutant.line, mutant.was, mutant.now, fate, why)


def _some(kernel: Kernel, sample: int | None, shard: str) -> list[Mutant]:
    """The mutants of a kernel, a sample that is always the same, and of all kernels a share."""
    mutants = mutants_of(kernel.text)
    if sample is not None:
        mutants = random.Random(kernel.id).sample(mutants, min(sample, len(mutants)))
    which, count = map(int, shard.split("/"))
    return mutants[which - 1 :: count]


@click.command()
@click.argument("kernels", nargs=-1)
@click.option("--jobs", default=2, help="Processes that verify.")
@click.option("--sample", type=int, help="So many of each kernel's mutants only.")
@click.option("--shard", default="1/1", help="I/K: the I-th of K shares.")
@click.option("--time-limit", default=10.0, help="Seconds after which a mutant hangs.")
@click.option("--json", "output", type=click.Path(path_type=Path), help="Where to keep results.")
@click.option(
    "--summary", "done", multiple=True, type=click.Path(path_type=Path),
    help="Run nothing, tell these results.",
)  # fmt: skip
def main(
    kernels: tuple[str, ...],
    jobs: int,
    sample: int | None,
    shard: str,
    time_limit: float,
    output: Path | None,
    done: tuple[Path, ...],
) -> None:
    """Judge the mutants of KERNELS, by default of all; ends with 1 where too many survive."""
    entries = read(done)
    with tempfile.TemporaryDirectory(prefix="cudareduce-") as cache:
        with opened(Path(cache), jobs, time_limit) as judge:
            for choice in load_registry(()).choose(kernels) if not done else ():
                began = time.monotonic()
                some = _some(choice.kernel, sample, shard)
                entries += _entries(judge, choice.kernel, some)
                click.echo(
                    f"{choice.kernel.id}: {len(some)} mutants, {time.monotonic() - began:.0f} s",
                    err=True,
                )
                if output:
                    write(entries, output)
    click.echo(summary(entries))
    sys.exit(0 if is_enough(entries) else 1)


if __name__ == "__main__":
    main()
