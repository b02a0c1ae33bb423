"""What the page teaches: each kernel's lesson, source and diff, the lineage, and errata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudareduce.library.kernel import Kernel
from cudareduce.library.lesson import diff, words
from cudareduce.library.registry import Registry, steps_of
from cudareduce.library.suite import Suite


@dataclass(frozen=True, slots=True)
class Lesson:
    """One kernel: what it changes, why, and its text."""

    id: str
    title: str
    after: str | None
    change: str
    expect: str
    words: str
    techniques: str
    published: str
    source: str
    diff: str


@dataclass(frozen=True, slots=True)
class Branch:
    """Kernels that follow each other one by one, and the branches that begin at the last."""

    chain: tuple[tuple[str, str], ...]  # ids and titles
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Errata:
    """What is wrong with a publication: its title and source, and sentences."""

    title: str
    source: str
    sentences: tuple[str, ...]


def lessons(registry: Registry) -> tuple[Lesson, ...]:
    """A lesson for every kernel, in the order of lineage."""
    return tuple(_lesson(kernel, registry) for kernel in registry.kernels.values())


def _lesson(kernel: Kernel, registry: Registry) -> Lesson:
    before = registry.kernels.get(kernel.after or "")
    published = registry.published(kernel)
    return Lesson(
        kernel.id, kernel.title, kernel.after, kernel.change, kernel.expect, words(kernel),
        ", ".join(kernel.techniques).replace("_", " "),
        "; ".join(f"{suite}: {', '.join(names)}" for suite, names in published.items()),
        kernel.text, diff(before, kernel) if before else "",
    )  # fmt: skip


def lineage(registry: Registry) -> tuple[Branch, ...]:
    """The trees of steps, one for each kernel that begins one."""
    steps = steps_of(registry.kernels)
    return tuple(_branch(kernel, steps) for kernel in steps[None])


def _branch(kernel: Kernel, steps: Mapping[str | None, Sequence[Kernel]]) -> Branch:
    chain = [kernel]
    while len(then := steps.get(chain[-1].id, ())) == 1:
        chain.append(then[0])
    branches = tuple(_branch(step, steps) for step in steps.get(chain[-1].id, ()))
    return Branch(tuple((k.id, k.title) for k in chain), branches)


def errata(registry: Registry) -> tuple[Errata, ...]:
    """Of each publication that has any."""
    found = (Errata(s.title, s.source, _sentences(s)) for s in registry.suites.values())
    return tuple(one for one in found if one.sentences)


def _sentences(suite: Suite) -> tuple[str, ...]:
    of_all = suite.experiment.get("errata", ())
    of_rows: dict[str, list[str]] = {}
    for row in suite.rows:
        if row.erratum:
            of_rows.setdefault(row.erratum, []).append(row.name)
    return (*of_all, *(f"{', '.join(names)}: {text}" for text, names in of_rows.items()))
