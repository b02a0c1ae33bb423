"""What every check of a stored run does, whatever is measured: what it begins with, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.gate.baseline import identity, load_baseline
from cudareduce.gate.compare import Row, Rules
from cudareduce.gate.judgement import Judgement, publish_judgement
from cudareduce.gate.looks import Looks, Seen
from cudareduce.gate.notes import host_notes, skew_notes
from cudareduce.gate.request import BaseRequest, CheckRequest, Judging, Remeasuring
from cudareduce.gate.sides import side_text
from cudareduce.gate.significance import MIN_ROUNDS
from cudareduce.gate.thresholds import Thresholds, load_thresholds
from cudareduce.library.registry import Registry
from cudareduce.peers.names import meant
from cudareduce.progress import say
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_writable, to_json, write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What of a stored run was measured again, what came of it, by which rules, and what is to be
    said besides."""

    old: Run
    now: Run
    seen: Seen
    rules: Rules
    notes: Sequence[str]


def stored_baseline(request: CheckRequest) -> Run:
    """The baseline, once it is sure that what is to be written can be. Raises UsageError and
    BaselineError."""
    request.outputs.check(request.baseline, *request.judging.read)
    stored = load_baseline(request.baseline)
    if request.update_baseline:
        check_writable(request.baseline)
        if request.remeasuring.kernels:
            raise UsageError("--update-baseline takes no kernels: a baseline is one whole run")
        held = {r.kernel for r in stored.records if r.scope == "library" and r.ranks is None}
        if not all(meant(name, request.remeasuring.peers) for name in held):
            raise UsageError(
                "--update-baseline would drop libraries that the baseline holds: give --peers all"
            )
    return stored


def check_rounds(request: CheckRequest, rounds: int) -> None:
    """A UsageError where what is measured is to be a baseline, and cannot be."""
    if request.update_baseline and rounds < MIN_ROUNDS:
        raise UsageError(f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing")


def thresholds_of(
    judging: Judging, registry: Registry, records: Sequence[Record], named: Iterable[str] = ()
) -> Thresholds:
    """Those asked for, of the kernels that there are, that a run holds, or that are `named`."""
    held = (name for record in records for name in (record.kernel, record.engine) if name)
    known = dict.fromkeys([*registry.names, *held, *named])
    return load_thresholds(judging.thresholds, judging.threshold, known)


def looks_of(rules: Rules, remeasuring: Remeasuring) -> Looks:
    """How to look, from now on."""
    deadline = Deadline(remeasuring.max_time)
    return Looks(
        rules=rules, budget_s=remeasuring.budget_s, deadline=deadline, quiet=remeasuring.quiet
    )


def judged_again(judging: Judging) -> list[str]:
    """The options that ask to be judged so again."""
    words = ["--cross-device"] * judging.cross_device + ["--no-same-code"] * judging.no_same_code
    words += ["--thresholds", str(judging.thresholds)] if judging.thresholds else []
    return words + (["--threshold", f"{100 * judging.threshold:g}%"] if judging.threshold else [])


def measured_again(remeasuring: Remeasuring) -> list[str]:
    """The options that ask for the same kernels, libraries and map again."""
    words = [word for folder in remeasuring.folders for word in ("--kernels", str(folder))]
    words += ["--map", remeasuring.map] if remeasuring.map else []
    return words + (["--peers", ",".join(remeasuring.peers)] if remeasuring.peers else [])


def base_again(request: BaseRequest) -> list[str]:
    """The options that compare two trees on the same problems again."""
    problems = request.problems
    words = [*measured_again(request.remeasuring), "--base", request.base]
    words += ["--n", ",".join(map(str, problems.n))]
    words += ["--op", ",".join(problems.op)] if problems.op != ("sum",) else []
    words += ["--dtype", ",".join(problems.dtype)] if problems.dtype != ("float32",) else []
    words += ["--rows", str(problems.rows)] if problems.rows != 1 else []
    words += ["--ranks", str(request.ranks)] if request.ranks else []
    return words + judged_again(request.judging)


def concluded(request: CheckRequest, checked: Checked, registry: Registry) -> int:
    """Judge, publish, and write the new baseline where that was asked for; the exit code."""
    old, seen, remeasuring = checked.old, checked.seen, request.remeasuring
    now = _as_judged(checked.now, seen.rows)
    judgement = Judgement(
        title=f"now against {request.baseline.name}, {now.device.name}", rows=tuple(seen.rows),
        rules=checked.rules, head=(side_text("old", old), side_text("new", now)),
        notes=(*checked.notes, *skew_notes(seen.rows),
               *host_notes(old.records, seen.measured.new)),
        against=(*measured_again(remeasuring), "--baseline", str(request.baseline),
                 *judged_again(request.judging)),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    code = publish_judgement(
        judgement, request.judging, request.outputs, registry,
        texts={"json": lambda: to_json(now)}, quiet=remeasuring.quiet,
    )  # fmt: skip
    return _updated(request, now, judgement, code) if request.update_baseline else code


def _as_judged(now: Run, rows: Iterable[Row]) -> Run:
    """The first measurement as a run; what only a later look showed to be wrong is wrong in it."""
    wrong = {identity(row.record): row.record for row in rows if row.verdict == "WRONG"}
    return replace(now, records=tuple(wrong.get(identity(r), r) for r in now.records))


def _updated(request: CheckRequest, now: Run, judgement: Judgement, code: int) -> int:
    """Write the new baseline, unless it would hold wrong answers or leave kernels out."""
    path = request.baseline
    gone = [row.record for row in judgement.rows if row.verdict == "GONE"]
    if judgement.cut or any(record.cause == "time" for record in now.records):
        say(f"{path} is left as it was: not all of it was measured")
        return code or 4
    if code in (2, 3, 6):
        say(f"{path} is left as it was: mend what is wrong first")
        return code
    if gone and not request.judging.allow_gone:
        name = gone[0].engine or gone[0].kernel
        say(f"{path} is left as it was: {name} is gone, and --allow-gone drops what is")
        return code
    write_text(path, to_json(now))
    say(f"{path} now holds what was measured here", request.remeasuring.quiet)
    return 0
