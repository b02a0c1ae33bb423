"""`check --self N`: the same tree against itself, which shows what this runner's verdicts are
worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from cudareduce import __version__
from cudareduce.distributions import binomial_upper_limit
from cudareduce.errors import EnvironmentProblem, KernelFault
from cudareduce.gate.again import MeasureBatches, of_batches
from cudareduce.gate.bencher import INTERRUPTED, Cut
from cudareduce.gate.compare import VERDICTS, Row, Rules
from cudareduce.gate.looks import Looks, first_look, second_look
from cudareduce.gate.request import SelfRequest
from cudareduce.gate.rerun import head_batch
from cudareduce.library.registry import Choice
from cudareduce.problem.sizes import counted
from cudareduce.progress import say
from cudareduce.report.section import Section

#: What is said of two runs of a kernel that both gave an answer.
_COMPARED = ("SLOWER", "FASTER", "SAME", "UNCERTAIN")
#: How sure the upper end of a rate is.
_SURE = 0.95


def compared_with_itself(
    request: SelfRequest, choices: Sequence[Choice], afresh: MeasureBatches, looks: Looks
) -> tuple[list[Row], Cut | None]:
    """The rows of every comparison: each run is made in a process of its own, and compared with the
    one before as `check --baseline` does it, second measurement and all. Why it ended early, if so.
    """
    batch = head_batch(choices, request.problems, request.remeasuring)
    measure = of_batches(afresh, [batch], looks.deadline)
    rows: list[Row] = []
    try:
        before = measure(None, 1)
        for k in range(request.times):
            if before.cut or looks.deadline.passed:
                break
            say(f"comparison {k + 1} of {request.times}", looks.quiet)
            seen = first_look(measure, before.new, looks)
            seen = second_look(seen, measure, looks)
            if seen.cut:
                return rows, seen.cut
            rows, before = [*rows, *map(_either_way, seen.rows)], seen.measured
    except KeyboardInterrupt:
        return rows, INTERRUPTED
    except (EnvironmentProblem, KernelFault) as error:
        return rows, Cut(str(error), error.exit_code)
    return rows, before.cut


def _either_way(row: Row) -> Row:
    """Neither run is the older one: what was wrong in the first is WRONG, and not new."""
    if row.verdict == "NEW" and row.old and row.old.verdict == "fail":
        return replace(row, verdict="WRONG", reason=row.old.reason)
    return row


def self_section(rows: Sequence[Row], device: str, rules: Rules, rounds: int) -> Section:
    """How often each verdict was given, by kernels, and the line that sums it up."""
    kernels: dict[str, Counter[str]] = {}
    for row in rows:
        kernels.setdefault(row.record.kernel, Counter())[row.verdict] += 1
    words = [word for word in VERDICTS if any(counts[word] for counts in kernels.values())]
    table = tuple(
        (kernel, *(str(counts[word]) for word in words)) for kernel, counts in kernels.items()
    )
    title = f"the same kernels against themselves, {device}"
    failed = (f"{row.verdict}: {row.record.kernel}: {row.reason}"
              for row in rows if row.verdict == "WRONG" or row.record.unbuilt)  # fmt: skip
    notes = (
        *dict.fromkeys(failed),
        rates_line(rows, device, rules, rounds),
        "each run has a process of its own, and no kernel counts as unchanged; rows of one "
        "comparison share its two runs, so many comparisons say more than many rows",
    )
    return Section(title, ("kernel", *words), table, notes)


def rates_line(rows: Sequence[Row], device: str, rules: Rules, rounds: int) -> str:
    """One line for a README: how often identical code is called slower here, and undecided."""
    counts = Counter(row.verdict for row in rows if not row.record.unbuilt)
    false, count = counts["SLOWER"], sum(counts[word] for word in _COMPARED)
    return (
        f"`cudareduce check`: {false} of {counted(count, 'comparison')} of identical code SLOWER "
        f"(below {100 * binomial_upper_limit(false, count, _SURE):.2g} %, 95 % sure), "
        f"{counts['UNCERTAIN']} UNCERTAIN ({100 * counts['UNCERTAIN'] / max(count, 1):.2g} %); "
        f"threshold {100 * rules.thresholds.default:g} %, {rounds} rounds, {device}, version "
        f"{__version__}, {datetime.now(UTC):%Y-%m-%d}"
    )
