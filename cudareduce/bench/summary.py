"""Text on standard error: counts of verdicts, recorded launches, ignored timing options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cudareduce.bench.settings import Settings
from cudareduce.catalog.registry import Choice
from cudareduce.progress import duration_text
from cudareduce.report.numbers import size_text
from cudareduce.results.record import Record

#: Verdicts in ascending order of severity.
_SEVERITY = ("skip", "pass", "fail")


def recorded_lines(choices: Sequence[Choice]) -> tuple[str, ...]:
    """For each kernel of an external program: its recorded launches, and what was identified."""
    return tuple(
        f"{choice.kernel.id}: {choice.kernel.program.summary}"
        for choice in choices
        if choice.kernel.program
    )


def untimed_text(settings: Settings, columns: Sequence[str]) -> str | None:
    """A message that names timing options without effect on an untimed run; None if there are
    none."""
    given = {
        "--columns": bool(columns), "--timing": settings.timings != ("cold",),
        "--graph": settings.graph, "--energy": settings.energy,
    }  # fmt: skip
    names = [name for name, is_given in given.items() if is_given]
    if not names:
        return None
    need = "needs a GPU, and has" if len(names) == 1 else "need a GPU, and have"
    return f"{', '.join(names)} {need} no effect here"


def run_summary(records: Sequence[Record], seconds: float, hint: str, *, interrupted: bool) -> str:
    """Sentences that end a run: counts of verdicts, test coverage, and the next step.

    `hint` is the next step if nothing failed and something passed."""
    verdicts = {record.verdict for record in records}
    libraries = [record for record in records if record.scope == "library"]
    kernels = [record for record in records if record.scope != "library"]
    counts = [_count(kernels, "kernel", "kernels")] if kernels or not libraries else []
    counts += [_count(libraries, "library", "libraries")] if libraries else []
    sentences = [f"{'; '.join(counts)} in {duration_text(seconds)}."]
    launches = sum(record.tried_launches or 0 for record in records)
    if launches:
        sentences.append(
            f"Verified {_counted(launches, 'launch', 'launches')}{_coverage(records)}."
        )
    elif "pass" in verdicts and not any(record.n * record.rows for record in records):
        sentences.append("No kernel was launched.")
    if "fail" in verdicts:
        hint = "Fix the kernels marked WRONG."
    elif interrupted:
        return " ".join(["Interrupted:", *sentences])
    elif "pass" not in verdicts:
        late = [record.reason for record in records if record.cause == "time"]
        option = (
            "--time-limit" if any("--time-limit" in reason for reason in late) else "--max-time"
        )
        hint = f"Raise {option}." if late else "The table gives the reason for each skipped kernel."
    return " ".join([*sentences, hint])


def _coverage(records: Sequence[Record]) -> str:
    """The largest numbers of sizes, patterns and schedules that one kernel was tested with."""
    most = [
        (max(record.tried_sizes or 0 for record in records), "size"),
        (max(record.tried_patterns or 0 for record in records), "input pattern"),
        (max(record.tried_schedules or 0 for record in records), "thread schedule"),
    ]
    counts = [_counted(count, unit, f"{unit}s") for count, unit in most if count]
    return f": up to {', '.join(counts)}" if counts else ""


def _counted(count: int, unit: str, units: str) -> str:
    return f"{size_text(count)} {unit if count == 1 else units}"


def _count(records: Sequence[Record], unit: str, units: str) -> str:
    """Numbers of right, wrong and skipped kernels or libraries.

    Measurements of one problem in several contexts or with misaligned inputs count once, as wrong
    if one of them is wrong."""
    verdicts: dict[tuple[object, ...], str] = {}
    for r in records:
        n = r.n if r.aligned_n is None else r.aligned_n
        key = (
            r.kernel, r.block, r.items, r.name, r.op, r.map, r.dtype, r.acc, n, r.rows, r.sms,
            r.way, r.chunk_bytes, r.timing,
        )  # fmt: skip
        verdicts[key] = max(verdicts.get(key, r.verdict), r.verdict, key=_SEVERITY.index)
    counts = Counter(verdicts.values())
    one_each = len({key[0] for key in verdicts}) == len(verdicts)
    name = f" {unit if counts['pass'] == 1 else units}" if one_each or unit != "kernel" else ""
    return f"{counts['pass']}{name} right, {counts['fail']} wrong, {counts['skip']} skipped"
