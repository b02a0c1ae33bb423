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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from cudareduce.catalog.registry import load_registry
from cudareduce.verify.jobs import Job
from tests.mutants.judge import Judge, Judged, opened
from tests.mutants.machine_code import comparison
from tests.mutants.operators import judge_operator, operators, queue_of
from tests.mutants.results import Entry, Fate, is_enough, proofs, read, summary, write
from tests.mutants.rules import Mutant, mutants_of


@dataclass(frozen=True, slots=True)
class Subject:
    """What is changed: a kernel or an operator, its text, and its jobs."""

    name: str
    text: str
    queue: list[Job]
    judged: Callable[[Sequence[Mutant]], Iterator[Judged]]


def subjects(judge: Judge, names: Sequence[str]) -> Iterator[Subject]:
    """Those that were named, by default all."""
    texts = operators()
    wanted = [name for name in names if name not in texts]
    for choice in load_registry(()).choose(wanted) if wanted or not names else ():
        kernel = choice.kernel
        yield Subject(kernel.id, kernel.text, judge.queue(kernel), partial(judge.judge, kernel))
    for name in [name for name in texts if name in names or not names]:
        judged = partial(judge_operator, judge, name)
        yield Subject(name, texts[name], queue_of(judge, name), judged)


def _entries(subject: Subject, mutants: Sequence[Mutant]) -> Iterator[Entry]:
    same, known = comparison(), proofs()
    for judged in subject.judged(mutants):
        mutant, why = judged.mutant, judged.reason
        fate: Fate = judged.fate
        if fate == "survived" and same(subject.queue, mutant.original, mutant.text):
            fate = "same"
        elif fate == "survived" and (subject.name, mutant.was, mutant.now) in known:
            fate, why = "proved", known[subject.name, mutant.was, mutant.now]
        yield Entry(subject.name, mutant.rule, mutant.line, mutant.was, mutant.now, fate, why)


def some(subject: Subject, without: Sequence[str], sample: int | None, shard: str) -> list[Mutant]:
    """The mutants of a subject, a sample that is always the same, and of all subjects a share."""
    mutants = [mutant for mutant in mutants_of(subject.text) if mutant.rule not in without]
    if sample is not None:
        mutants = random.Random(subject.name).sample(mutants, min(sample, len(mutants)))
    which, count = map(int, shard.split("/"))
    return mutants[which - 1 :: count]


@click.command()
@click.argument("kernels", nargs=-1)
@click.option("--jobs", default=2, help="Processes that verify.")
@click.option("--without", metavar="RULE", multiple=True, help="No mutants of this kind.")
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
    without: tuple[str, ...],
    sample: int | None,
    shard: str,
    time_limit: float,
    output: Path | None,
    done: tuple[Path, ...],
) -> None:
    """Judge the mutants of KERNELS, which may be operators, by default of all; ends with 1 where
    too many survive."""
    entries = read(done)
    with (
        tempfile.TemporaryDirectory(prefix="cudareduce-") as cache,
        opened(Path(cache), jobs, time_limit) as judge,
    ):
        for subject in subjects(judge, kernels) if not done else ():
            began = time.monotonic()
            mutants = some(subject, without, sample, shard)
            entries += _entries(subject, mutants)
            took_s = time.monotonic() - began
            click.echo(f"{subject.name}: {len(mutants)} mutants, {took_s:.0f} s", err=True)
            if output:
                write(entries, output)
    click.echo(summary(entries))
    sys.exit(0 if is_enough(entries) else 1)


if __name__ == "__main__":
    main()
