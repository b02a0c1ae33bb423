"""What was found of engines, as people and programs read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from cudareduce.problem.operators import Reduction
from cudareduce.report.numbers import DASH, size_text
from cudareduce.report.sections import Section
from cudareduce.several.collectives import Collective
from cudareduce.several.examine import REPEATS, Finding

_HEADER = ("engine", "answer", "same bits", "distinct", "calls")


def finding_section(
    collective: Collective, reduction: Reduction, n: int, ranks: int, found: Sequence[Finding]
) -> Section:
    """A line for each engine, and below why one is wrong."""
    rows = tuple(
        (
            finding.engine,
            "WRONG" if finding.wrong else "right",
            DASH if finding.same_bits is None else "yes" if finding.same_bits else "no",
            DASH if finding.distinct is None else f"{finding.distinct}/{REPEATS}",
            str(finding.calls),
        )
        for finding in found
    )
    notes = [f"{finding.engine}: WRONG: {finding.wrong}" for finding in found if finding.wrong]
    notes += [
        f"{finding.engine}: up to {size_text(finding.n)}: more is too much for mail"
        for finding in found if finding.n < n and not finding.wrong
    ]  # fmt: skip
    if collective == "all-reduce":
        notes.append("same bits: on all ranks")
    title = (
        f"{collective} of {reduction.dtype.name}, {reduction.op.name}, up to {size_text(n)}, "
        f"{ranks} ranks, CPU emulator"
    )
    return Section(title, _HEADER, rows, tuple(notes), 3)


def findings_json(
    collective: Collective, ranks: int, found: Mapping[Reduction, Sequence[Finding]]
) -> str:
    """An array of objects, one for each engine and type."""
    rows = [
        {"collective": collective, "op": reduction.op.name, "dtype": reduction.dtype.name,
         "ranks": ranks, **asdict(finding)}
        for reduction, some in found.items() for finding in some
    ]  # fmt: skip
    return json.dumps(rows, indent=1) + "\n"
