"""`compare` and `check`: measure, judge, publish."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cudareduce.backends import choose_backend, open_backend
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.gate.baseline import load_baseline, load_timed
from cudareduce.gate.bencher import Batch, Bencher, Remeasured
from cudareduce.gate.compare import Rules, compare
from cudareduce.gate.exported import rows_json
from cudareduce.gate.fresh import measured_afresh
from cudareduce.gate.judgement import (
    Ahead,
    Judgement,
    beside_notes,
    host_notes,
    publish_judgement,
    rules_between,
)
from cudareduce.gate.looks import Looks, Measure, first_look, second_look
from cudareduce.gate.request import (
    BaseRequest,
    CheckRequest,
    CompareRequest,
    Judging,
    Remeasuring,
    SelfRequest,
)
from cudareduce.gate.rerun import DEFAULT_ROUNDS, base_batches, base_choices, repeated
from cudareduce.gate.selfcheck import compared_with_itself, self_section
from cudareduce.gate.sides import measured_otherwise, same_run, side_text
from cudareduce.gate.significance import MIN_ROUNDS
from cudareduce.gate.stored_tree import stored_tree
from cudareduce.gate.thresholds import Thresholds, load_thresholds
from cudareduce.gate.trees import Trees, heads_of, opened_trees
from cudareduce.library.registry import Registry, load_registry
from cudareduce.peers.names import meant
from cudareduce.progress import phase, say
from cudareduce.report.publish import Texts, publish
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_writable, to_json, write_text
from cudareduce.temporary import temporary_folder


def compare_files(request: CompareRequest) -> int:
    """Two stored runs: verdicts without a second measurement; the exit code. Raises UsageError and
    BaselineError."""
    request.outputs.check(request.old, request.new)
    registry = load_registry()
    judgement = judged_files(request, registry)
    return publish_judgement(judgement, request.judging, request.outputs, registry)


def judged_files(request: CompareRequest, registry: Registry) -> Judgement:
    """What is to be said of two stored runs; raises as `compare_files` does."""
    old, new = load_baseline(request.old), load_timed(request.new)
    if same_run(old, new):
        raise UsageError(
            f"{request.new} is the very run that {request.old} holds: measure again, then compare"
        )
    thresholds = _thresholds(request.judging, registry, [*old.records, *new.records])
    rules, notes = rules_between(old, new, thresholds, request.judging)
    return Judgement(
        title=f"{request.new.name} against {request.old.name}, {new.device.name}",
        head=(side_text("old", old), side_text("new", new)),
        rows=tuple(compare(old.records, new.records, rules)),
        rules=rules,
        against=("--baseline", str(request.old)),
        notes=(
            *notes,
            *measured_otherwise(old, new),
            *host_notes(old.records, new.records),
        ),
    )


def check(request: CheckRequest) -> int:
    """Measure a baseline's cases again and judge; what looks slower is measured twice. The exit
    code. Raises as `compare_files` does, and EnvironmentProblem without a GPU."""
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    stored = _stored(request)
    again = repeated(stored, remeasuring, registry)
    if request.update_baseline and again.rounds < MIN_ROUNDS:
        raise UsageError(f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing")
    old = replace(stored, records=again.old)
    thresholds = _thresholds(request.judging, registry, stored.records)
    with temporary_folder() as temporary:
        with _opened(remeasuring, registry) as bencher:
            device = bencher.info()
            device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
            peers = {"peers": list(remeasuring.peers)} if remeasuring.peers else {}
            now = Run(tool(request.argv), device, {**old.protocol, **peers}, ())
            rules, notes = rules_between(old, now, thresholds, request.judging)
            looks = _looks(rules, remeasuring)
            seen = first_look(bencher.measure, again.batches, old.records, looks)
        base = stored_tree(stored, device, heads_of(remeasuring), Path(temporary))
        afresh = _afresh(remeasuring, registry)
        seen = second_look(seen, again.batches, base, afresh, looks)
    notes += [*beside_notes(seen.rows, stored, base), *host_notes(old.records, seen.measured.new)]
    now = seen.measured.as_run(now, again.rounds)
    judgement = Judgement(
        title=f"now against {request.baseline.name}, {device.name}", rows=tuple(seen.rows),
        rules=rules, head=(side_text("old", old), side_text("new", now)), notes=tuple(notes),
        against=(*_folders(remeasuring), "--baseline", str(request.baseline)),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    texts: Texts = {"json": lambda: to_json(now)}
    code = publish_judgement(
        judgement, request.judging, request.outputs, registry, texts=texts, quiet=remeasuring.quiet
    )
    return _updated(request, now, judgement, code) if request.update_baseline else code


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
    named = {*trees.base, *(choice.kernel.id for choice in trees.choices)}
    thresholds = _thresholds(request.judging, registry, (), named)
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    looks = _looks(rules, remeasuring)
    batches = base_batches(trees.choices, trees.base, request)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        seen = first_look(bencher.measure, batches, None, looks)
    if not seen.rows and not seen.cut:
        raise UsageError("nothing was compared: give --n elements that a kernel can reduce")
    seen = second_look(seen, batches, {}, _afresh(remeasuring, registry), looks)
    sizes = ",".join(map(str, request.problems.n))
    now = Run(tool(request.argv), device, {"rounds": batches[0].settings.rounds}, ())
    judgement = Judgement(
        title=f"{' '.join(map(str, trees.heads))} against {request.base}, {device.name}",
        head=(side_text("new", now),), rows=tuple(seen.rows), rules=rules,
        notes=tuple(trees.problems),
        against=(*_folders(remeasuring), "--base", request.base, "--n", sizes),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, registry,
        quiet=remeasuring.quiet, ahead=ahead,
    )  # fmt: skip


def check_self(request: SelfRequest) -> int:
    """This tree against itself: what this runner's verdicts are worth; 0, 3 where an answer is
    wrong, and the code of what ended it early. Raises UsageError and EnvironmentProblem."""
    request.outputs.check()
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    choices = base_choices(remeasuring.kernels, heads_of(remeasuring), registry)
    named = {choice.kernel.id for choice in choices}
    thresholds = _thresholds(request.judging, registry, (), named)
    rules = Rules(thresholds, same_code=False)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info().name
    afresh, looks = _afresh(remeasuring, registry), _looks(rules, remeasuring)
    rows, cut = compared_with_itself(request, choices, afresh, looks)
    if not rows and not cut:
        raise UsageError("nothing was compared: give --n elements, or more --max-time")
    section = self_section(rows, device, rules, remeasuring.rounds or DEFAULT_ROUNDS)
    if cut:
        section = replace(section, notes=(*section.notes, f"cut short: {cut.why}"))
    publish(request.outputs, [section], {"json": lambda: rows_json(rows)})
    if cut:
        return cut.exit_code
    return 3 if any(row.verdict == "WRONG" for row in rows) else 0


def _thresholds(
    judging: Judging, registry: Registry, records: Sequence[Record], named: Iterable[str] = ()
) -> Thresholds:
    """Those asked for, of the kernels that there are, that a run holds, or that are `named`."""
    known = dict.fromkeys([*registry.names, *(record.kernel for record in records), *named])
    return load_thresholds(judging.thresholds, judging.threshold, known)


def _folders(remeasuring: Remeasuring) -> list[str]:
    """The options that name the folders of kernels again."""
    return [word for folder in remeasuring.folders for word in ("--kernels", str(folder))]


def _looks(rules: Rules, remeasuring: Remeasuring) -> Looks:
    deadline = Deadline(remeasuring.max_time)
    return Looks(
        rules=rules, budget_s=remeasuring.budget_s, deadline=deadline, quiet=remeasuring.quiet
    )


def _afresh(remeasuring: Remeasuring, registry: Registry) -> Measure:
    def measure(batches: Sequence[Batch]) -> Remeasured:
        spec, _ = choose_backend("cuda", remeasuring.device, not remeasuring.no_cache)
        return measured_afresh(spec, registry, batches, remeasuring.quiet)

    return measure


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


def _updated(request: CheckRequest, now: Run, judgement: Judgement, code: int) -> int:
    """Write the new baseline, unless it would hold wrong answers or leave kernels out."""
    path = request.baseline
    gone = [row.record.kernel for row in judgement.rows if row.verdict == "GONE"]
    if judgement.cut or any(record.cause == "time" for record in now.records):
        say(f"{path} is left as it was: not all of it was measured")
        return code or 4
    if code in (2, 3, 6):
        say(f"{path} is left as it was: mend what is wrong first")
        return code
    if gone and not request.judging.allow_gone:
        say(f"{path} is left as it was: {gone[0]} is gone, and --allow-gone drops what is")
        return code
    write_text(path, to_json(now))
    say(f"{path} now holds what was measured here", request.remeasuring.quiet)
    return 0
