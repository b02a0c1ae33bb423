"""What `list` prints: suites, kernels, the technique matrix."""

from __future__ import annotations

import json
from typing import Any

from cudareduce.library.header import TECHNIQUES
from cudareduce.library.kernel import Kernel
from cudareduce.library.registry import Choice, Registry
from cudareduce.problem.sizes import counted
from cudareduce.report.section import Section


def list_json(registry: Registry, suite: str | None) -> str:
    """An array of kernels, in the suite's order where one is named."""
    return json.dumps([_facts(registry, c.kernel) for c in chosen_of(registry, suite)], indent=1)


def _facts(registry: Registry, kernel: Kernel) -> dict[str, Any]:
    return {
        "id": kernel.id,
        "family": kernel.family,
        "title": kernel.title,
        "scope": kernel.scope,
        "order": kernel.order,
        "finish": kernel.finish,
        "dtypes": list(kernel.dtypes),
        "ops": list(kernel.ops),
        "after": kernel.after,
        "techniques": list(kernel.techniques),
        "published": registry.published(kernel),
        "requires": list(kernel.requires),
        "blocks": list(kernel.blocks),
        "block": kernel.block,
        "items": kernel.items,
        "min_cc": kernel.min_cc,
    }


def chosen_of(registry: Registry, suite: str | None) -> list[Choice]:
    """All kernels, or those of one suite."""
    if suite is None:
        return registry.choose(["all"])
    return registry.choose([registry.suite(suite).id])


def list_section(registry: Registry, suite: str | None) -> list[Section]:
    """The suites, unless one is named, the kernels, then which of them uses which technique."""
    chosen = chosen_of(registry, suite)
    if suite:
        about = registry.suite(suite)
        title = f"{about.id}: {about.title} ({about.source})"
        errata = tuple(f"{row.name}: {row.erratum}" for row in about.rows if row.erratum)
        header: tuple[str, ...] = ("published as", "kernel", "what it is")
        rows: tuple[tuple[str, ...], ...] = tuple(
            (c.name or "", c.kernel.id, c.kernel.title) for c in chosen
        )
    else:
        title, errata = counted(len(chosen), "kernel"), ()
        header = ("kernel", "family", "scope", "what it is")
        rows = tuple((k.id, k.family, k.scope, k.title) for k in (c.kernel for c in chosen))
    begins = [k for k, c in enumerate(chosen) if k and not suite and c.kernel.after is None]
    table = Section(title, header, rows, errata, len(header), tuple(begins))
    suites = [] if suite else [_suites(registry)]
    return [*suites, table, _matrix(chosen)]


def _suites(registry: Registry) -> Section:
    """The published experiments, with how many versions each has."""
    header = ("suite", "what it is", "versions", "source")
    rows = [(s.id, s.title, str(len(s.rows)), s.source) for s in registry.suites.values()]
    return Section(f"{len(rows)} suites", header, tuple(rows), texts=len(header))


def _matrix(chosen: list[Choice]) -> Section:
    """Techniques down, kernels across: names are longer than there are kernels on a screen."""
    used = [word for word in TECHNIQUES if any(word in c.kernel.techniques for c in chosen)]
    rows = [(word, *("x" if word in c.kernel.techniques else "" for c in chosen)) for word in used]
    header = ("technique", *(str(k + 1) for k in range(len(chosen))))
    numbered = ", ".join(f"{k + 1} {c.name or c.kernel.id}" for k, c in enumerate(chosen))
    notes = (numbered, *(f"{word}: {TECHNIQUES[word]}" for word in used))
    return Section("Techniques", header, tuple(rows), notes)
