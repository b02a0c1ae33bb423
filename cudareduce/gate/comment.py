"""One comment for a change that is proposed: what it did, kernel by kernel, the worst first.

Markdown as GitHub and GitLab show it. Its first line is a marker, by which whoever posts it finds
the comment of the run before and puts this one in its place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cudareduce.gate.compare import Row
from cudareduce.gate.verdicts import (
    called,
    counts_text,
    problem_text,
    reason_text,
    row_cells,
    worst_first,
)
from cudareduce.problem.sizes import counted
from cudareduce.report.ci import comment_of
from cudareduce.report.markdown import code, escaped, to_markdown
from cudareduce.report.section import Section
from cudareduce.report.sections import first_few

#: More kernels and rows than these nobody reads.
_MOST_KERNELS, _MOST_ROWS, _FIRST_FEW = 20, 12, 6
#: What says the same on either side is not shown, but counted.
_QUIET = ("SAME", "NEW")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What stands above and below the kernels of a comment: `against` are the options of `check`
    that compare with the same again, empty where there is nothing to run; `code` is what is known
    of a kernel's machine code, in words."""

    title: str
    head: Sequence[str]
    notes: Sequence[str]
    against: Sequence[str] = ()
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    shares: bool = False


def comment(rows: Sequence[Row], told: Told, machine: str = "") -> str:
    """The text; `machine` is why no kernel is blamed."""
    groups = _by_kernel(worst_first(row for row in rows if row.verdict not in _QUIET))
    quiet = _by_kernel([row for row in rows if row.verdict in _QUIET])
    blocks = [f"### cudareduce, {counts_text(rows)}", *([machine] if machine else [])]
    blocks += ["<br>\n".join(map(escaped, [told.title, *told.head]))]
    blocks += [_kernel(some, quiet.get(name, ()), told)
               for name, some in list(groups.items())[:_MOST_KERNELS]]  # fmt: skip
    left = list(groups)[_MOST_KERNELS:]
    if left:
        blocks.append(f"{len(left)} more kernels: {escaped(first_few(left, _FIRST_FEW))}")
    alone = [name for name in quiet if name not in groups]
    if alone:
        words = counts_text([row for name in alone for row in quiet[name]])
        blocks.append(f"Of other kernels {words} ({escaped(first_few(alone, _FIRST_FEW))})")
    if told.notes:
        listed = "\n".join(f"- {escaped(note)}" for note in told.notes)
        blocks.append(f"<details><summary>How it was measured</summary>\n\n{listed}\n\n</details>")
    return comment_of("\n\n".join(block.rstrip() for block in blocks) + "\n")


def _by_kernel(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(called(row.record), []).append(row)
    return found


def _kernel(rows: Sequence[Row], quiet: Sequence[Row], told: Told) -> str:
    """A kernel: what moved, what of it did not, what ran, and what to do next."""
    unit, name = "%ceil" if told.shares else "us", called(rows[0].record)
    table = tuple(
        (row.verdict, problem_text(row.record), *row_cells(row, told.shares))
        for row in rows[:_MOST_ROWS]
    )
    notes = [
        f"{counted(len(rows) - _MOST_ROWS, 'more row')}" if len(rows) > _MOST_ROWS else "",
        f"besides, {counts_text(quiet)}" if quiet else "",
        *dict.fromkeys(f"{row.verdict}: {why}" for row in rows if (why := reason_text(row))),
        "; ".join(filter(None, (_code_text(rows), *told.code.get(name, ())))),
    ]
    header = ("verdict", "what", f"old {unit}", f"new {unit}", "change")
    shown = tuple(filter(None, notes))
    text = to_markdown([Section(name, header, table, shown, 2)])
    return f"{text}\nnext: {code(_next(rows[0], told.against))}" if told.against else text


def _code_text(rows: Sequence[Row]) -> str:
    """What is known of the code that ran: whether it and its text are as they were."""
    pairs = [(row.old, row.new) for row in rows if row.old and row.new]
    if not pairs:
        return ""

    def differs(get: Callable[..., str | None]) -> bool | None:
        known = [(get(a), get(b)) for a, b in pairs if get(a) and get(b)]
        return any(a != b for a, b in known) if known else None

    code = differs(lambda record: record.cubin_sha)
    text = differs(lambda record: record.source_sha)
    if code is None:
        return ""
    if not code:
        return "machine code as it was"
    whose = {True: "another text", False: "the same text", None: "a text that is not known"}[text]
    shapes = {(a.block, a.items, a.grid) != (b.block, b.items, b.grid) for a, b in pairs}
    return f"other machine code, of {whose}" + (", launched otherwise" if True in shapes else "")


def _next(row: Row, against: Sequence[str]) -> str:
    """The command that goes on from a row."""
    record = row.record
    name = record.engine or record.kernel
    if record.scope == "library":  # which is measured beside all kernels
        return shlex.join(["cudareduce", "check", *against])
    match row.verdict:
        case "WRONG" if record.ranks is not None:
            asked = ["collective", record.kernel, "--engine", name, "--ranks", str(record.ranks),
                     "--n", str(record.n), "--op", record.op, "--dtype", record.dtype]  # fmt: skip
        case verdict if verdict == "WRONG" or row.record.unbuilt:
            asked = ["verify", record.kernel, "--n", str(record.n), "--op", record.op,
                     "--dtype", record.dtype]  # fmt: skip
            asked += ["--map", record.map] if record.map else []
            asked += ["--rows", str(record.rows)] if record.rows != 1 else []
            asked += _folders(against)
        case "GONE":
            asked = ["check", *against, "--allow-gone"]
        case "UNCERTAIN":
            asked = ["check", name, *against, "--budget", "300"]
        case _:
            asked = ["check", name, *against]
    return shlex.join(["cudareduce", *asked])


def _folders(against: Sequence[str]) -> list[str]:
    """Of those options the ones that name folders of kernels, which any command takes."""
    return [word for pair in pairwise(against) if pair[0] == "--kernels" for word in pair]
