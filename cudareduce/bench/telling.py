"""What a run says of itself on standard error: options without effect, and how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cudareduce.bench.settings import Settings
from cudareduce.catalog.registry import Choice
from cudareduce.progress import duration_text
from cudareduce.report.numbers import size_text
from cudareduce.results.record import Record

#: Of several verdicts on one the last of these counts.
_RANK = ("skip", "pass", "fail")


def recorded_lines(choices: Sequence[Choice]) -> tuple[str, ...]:
    """For each kernel of an external program: its recorded launches, and what was identified."""
    return tuple(
        f"{choice.kernel.id}: {choice.kernel.program.summary}"
        for choice in choices
        if choice.kernel.program
    )


def untimed_text(settings: Settings, columns: Sequence[str]) -> str | None:
    """Options for times, including requested columns, where nothing is timed; None if none was
    given."""
    given = {
        "--columns": bool(columns), "--timing": settings.timings != ("cold",),
        "--graph": settings.graph, "--energy": settings.energy,
    }  # fmt: skip
    names = [name for name, is_given in given.items() if is_given]
    if not names:
        return None
    need = "needs a GPU, and has" if len(names) == 1 else "need a GPU, and have"
    return f"{', '.join(names)} {need} no effect here"


def closing_line(
    records: Sequence[Record], seconds: float, following: str, *, interrupted: bool
) -> str:
    """How many kernels and libraries were right, wrong and skipped, how long it took, what verdicts
    rest on, and what to do next, which is what `following` says if there is nothing else."""
    counts = Counter(record.verdict for record in records)
    libraries = [record for record in records if record.scope == "library"]
    ours = [record for record in records if record.scope != "library"]
    told = [_counted(ours, "kernel", "kernels")] if ours or not libraries else []
    told += [_counted(libraries, "library", "libraries")] if libraries else []
    line = f"{'; '.join(told)}, {duration_text(seconds)}"
    launches = sum(record.tried_launches or 0 for record in records)
    if launches:
        tried = {
            "sizes": max(record.tried_sizes or 0 for record in records),
            "patterns": max(record.tried_patterns or 0 for record in records),
            "schedules": max(record.tried_schedules or 0 for record in records),
        }
        listed = ", ".join(
            f"{count} {what if count > 1 else what[:-1]}" for what, count in tried.items() if count
        )
        line += f"; up to {listed} each, {size_text(launches)} launch{'es' * (launches > 1)} in all"
    elif counts["pass"] and not any(record.n * record.rows for record in records):
        line += "; nothing was launched"
    if counts["fail"]:
        following = "mend what is WRONG"
    elif interrupted:
        return f"interrupted: {line}"
    elif not counts["pass"]:
        late = [record.reason for record in records if record.cause == "time"]
        hung = any("--time-limit" in reason for reason in late)
        limit = "a longer --time-limit" if hung else "a longer --max-time"
        following = limit if late else "see above why each kernel was skipped"
    return f"{line}; next: {following}"


def _counted(records: Sequence[Record], one: str, many: str) -> str:
    """What came of each on each problem; what is timed beside libraries too, and with odd starts,
    counts once, as wrong where it is wrong once."""
    found: dict[tuple[object, ...], str] = {}
    for r in records:
        n = r.n if r.aligned_n is None else r.aligned_n
        key = (
            r.kernel,
            r.block,
            r.items,
            r.name,
            r.op,
            r.map,
            r.dtype,
            r.acc,
            n,
            r.rows,
            r.sms,
            r.way,
            r.chunk_bytes,
            r.timing,
        )
        found[key] = max(found.get(key, r.verdict), r.verdict, key=_RANK.index)
    counts = Counter(found.values())
    alike = len({key[0] for key in found}) == len(found)
    unit = (f" {one}" if counts["pass"] == 1 else f" {many}") if alike or one != "kernel" else ""
    return f"{counts['pass']}{unit} right, {counts['fail']} wrong, {counts['skip']} skipped"
