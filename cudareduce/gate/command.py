"""`compare` and `check`: measure, judge, publish."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from cudareduce.backends import choose_backend, open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.gate.baseline import load_baseline, load_timed
from cudareduce.gate.bencher import Batch, Bencher
from cudareduce.gate.compare import Row, Rules, compare
from cudareduce.gate.judgement import (
    Ahead,
    Judgement,
    host_notes,
    publish_judgement,
    rules_between,
    unused_notes,
)
from cudareduce.gate.policy import Sides, confirm, decide
from cudareduce.gate.request import BaseRequest, CheckRequest, CompareRequest, Remeasuring
from cudareduce.gate.rerun import base_batches, only_suspects, repeated
from cudareduce.gate.sides import measured_otherwise, same_run, side_text
from cudareduce.gate.significance import MIN_ROUNDS
from cudareduce.gate.thresholds import load_thresholds
from cudareduce.gate.trees import Trees, opened_trees
from cudareduce.library.registry import Registry, load_registry
from cudareduce.peers.names import meant
from cudareduce.problem.sizes import counted
from cudareduce.progress import phase, say
from cudareduce.report.publish import Texts
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.results.store import check_writable, to_json, write_text


def compare_files(request: CompareRequest) -> int:
    """Two stored runs: verdicts without a second measurement; the exit code. Raises UsageError and
    BaselineError."""
    request.outputs.check(request.old, request.new)
    old, new = load_baseline(request.old), load_timed(request.new)
    if same_run(old, new):
        raise UsageError(
            f"{request.new} is the very run that {request.old} holds: measure again, then compare"
        )
    thresholds = load_thresholds(request.judging.thresholds, request.judging.threshold)
    rules, notes = rules_between(old, new, thresholds, request.judging)
    judgement = Judgement(
        title=f"{request.new.name} against {request.old.name}, {new.device.name}",
        head=(side_text("old", old), side_text("new", new)),
        rows=tuple(compare(old.records, new.records, rules)),
        rules=rules,
        notes=(
            *notes,
            *measured_otherwise(old, new),
            *host_notes(old.records, new.records),
            *unused_notes(thresholds, [*old.records, *new.records]),
        ),
    )
    return publish_judgement(judgement, request.judging, request.outputs, load_registry())


def check(request: CheckRequest) -> int:
    """Measure a baseline's cases again and judge; what looks slower is measured twice. The exit
    code. Raises as `compare_files` does, and EnvironmentProblem without a GPU."""
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    stored = _stored(request)
    again = repeated(stored, remeasuring, registry)
    if request.update_baseline and again.rounds < MIN_ROUNDS:
        raise UsageError(f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing")
    old = replace(stored, records=again.old)
    thresholds = load_thresholds(request.judging.thresholds, request.judging.threshold)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
        peers = {"peers": list(remeasuring.peers)} if remeasuring.peers else {}
        now = Run(tool(request.argv), device, {**old.protocol, **peers}, ())
        rules, notes = rules_between(old, now, thresholds, request.judging)
        measured = bencher.measure(again.batches)

        def longer(some: Sequence[Row], times: int = 2) -> Sides:
            second = bencher.measure(_longer(again.batches, some, times, remeasuring.quiet))
            return [row.old for row in some if row.old], second.new

        first = compare(old.records, measured.new, rules)
        first = decide(first, longer, rules, Deadline(remeasuring.budget_s))
        rows = confirm(first, longer, rules)
    notes += host_notes(old.records, measured.new)
    notes += unused_notes(thresholds, [*old.records, *measured.new])
    now = measured.as_run(now, again.rounds)
    judgement = Judgement(
        title=f"now against {request.baseline.name}, {device.name}", rows=tuple(rows), rules=rules,
        head=(side_text("old", old), side_text("new", now)),
        notes=(*notes, *measured.remarks),
    )  # fmt: skip
    texts: Texts = {"json": lambda: to_json(now)}
    code = publish_judgement(
        judgement, request.judging, request.outputs, registry,
        texts=texts, remeasured=measured, quiet=remeasuring.quiet,
    )  # fmt: skip
    return _updated(request, now, rows, code) if request.update_baseline else code


def check_base(request: BaseRequest) -> int:
    """Two trees of kernels against each other, in the same rounds of one process; the exit code.
    Raises UsageError and EnvironmentProblem."""
    request.outputs.check()
    registry = load_registry(request.remeasuring.folders)
    with opened_trees(request, registry) as trees:
        return time_trees(request, trees, registry)


def time_trees(
    request: BaseRequest, trees: Trees, registry: Registry, ahead: Ahead | None = None
) -> int:
    """Measure both trees, judge, publish behind what was found `ahead`; the exit code. Raises
    UsageError and EnvironmentProblem."""
    remeasuring = request.remeasuring
    thresholds = load_thresholds(request.judging.thresholds, request.judging.threshold)
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    batches = base_batches(trees.choices, trees.base, request)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        measured = bencher.measure(batches)

        def longer(some: Sequence[Row], times: int = 2) -> Sides:
            second = bencher.measure(_longer(batches, some, times, remeasuring.quiet))
            return second.old, second.new

        first = compare(measured.old, measured.new, rules)
        if not first:
            raise UsageError("nothing was compared: give --n elements that a kernel can reduce")
        first = decide(first, longer, rules, Deadline(remeasuring.budget_s))
        rows = confirm(first, longer, rules)
    unused = unused_notes(thresholds, [*measured.old, *measured.new])
    judgement = Judgement(
        title=f"{' '.join(map(str, trees.heads))} against {request.base}, {device.name}",
        rows=tuple(rows), rules=rules, notes=(*trees.problems, *unused, *measured.remarks),
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, registry,
        remeasured=measured, quiet=remeasuring.quiet, ahead=ahead,
    )  # fmt: skip


def _stored(request: CheckRequest) -> Run:
    """The baseline, once it is sure that what is to be written can be."""
    request.outputs.check(request.baseline)
    stored = load_baseline(request.baseline)
    if request.update_baseline:
        check_writable(request.baseline)
        if request.remeasuring.kernels:
            raise UsageError("--update-baseline takes no kernels: a baseline is one whole run")
        held = {record.kernel for record in stored.records if record.scope == "library"}
        if not all(meant(name, request.remeasuring.peers) for name in held):
            raise UsageError(
                "--update-baseline would drop libraries that the baseline holds: give --peers all"
            )
    return stored


@contextmanager
def _opened(remeasuring: Remeasuring, registry: Registry) -> Iterator[Bencher]:
    spec, _ = choose_backend("cuda", remeasuring.device, not remeasuring.no_cache)
    with open_backend(spec) as backend:
        yield Bencher(backend, spec, registry, partial(phase, quiet=remeasuring.quiet))


def _longer(batches: Sequence[Batch], rows: Sequence[Row], times: int, quiet: bool) -> list[Batch]:
    """The batches of what looks slower or is in doubt, and of what is measured beside it."""
    slower, doubtful = (
        sum(row.verdict == word for row in rows) for word in ("SLOWER", "UNCERTAIN")
    )  # fmt: skip
    words = f"{counted(slower, 'looks', 'look')} slower" if slower else f"{doubtful} in doubt"
    others = len(rows) - slower - doubtful
    beside = f", beside {others} that did not change" if others else ""
    say(f"{words}: measuring again, with {times} times the rounds{beside}", quiet)
    return only_suspects(batches, [row.record for row in rows], times)


def _updated(request: CheckRequest, now: Run, rows: Sequence[Row], code: int) -> int:
    """Write the new baseline, unless it would hold wrong answers or leave kernels out."""
    path = request.baseline
    gone = [row.record.kernel for row in rows if row.verdict == "GONE"]
    if code in (2, 3, 6):
        say(f"{path} is left as it was: mend what is wrong first")
        return code
    if gone and not request.judging.allow_gone:
        say(f"{path} is left as it was: {gone[0]} is gone, and --allow-gone drops what is")
        return code
    write_text(path, to_json(now))
    say(f"{path} now holds what was measured here", request.remeasuring.quiet)
    return 0
