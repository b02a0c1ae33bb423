"""`compare` and `check`: measure, judge, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from cudareduce.backends import choose_backend, open_backend
from cudareduce.errors import UsageError, worst_exit_code
from cudareduce.gate.again import MeasureBatches, of_batches
from cudareduce.gate.baseline import load_baseline, load_timed
from cudareduce.gate.bencher import Batch, Bencher, Remeasured
from cudareduce.gate.checking import (
    Checked,
    base_again,
    check_rounds,
    concluded,
    judged_again,
    looks_of,
    stored_baseline,
    thresholds_of,
)
from cudareduce.gate.compare import Rules, compare
from cudareduce.gate.exported import rows_json
from cudareduce.gate.fresh import measured_afresh
from cudareduce.gate.judgement import Ahead, Judgement, publish_judgement, rules_between
from cudareduce.gate.looks import first_look, second_look
from cudareduce.gate.notes import beside_notes, host_notes, skew_notes
from cudareduce.gate.policy import Policy
from cudareduce.gate.request import (
    BaseRequest,
    CheckRequest,
    CompareRequest,
    Remeasuring,
    SelfRequest,
)
from cudareduce.gate.rerun import DEFAULT_ROUNDS, base_batches, base_choices, repeated
from cudareduce.gate.selfcheck import compared_with_itself, self_section
from cudareduce.gate.sides import measured_otherwise, same_run, side_text
from cudareduce.gate.stored_tree import stored_tree
from cudareduce.gate.trees import Trees, heads_of, opened_trees
from cudareduce.library.registry import Registry, load_registry
from cudareduce.progress import phase
from cudareduce.report.publish import publish
from cudareduce.results.provenance import tool
from cudareduce.results.record import Run
from cudareduce.temporary import temporary_folder


def compare_files(request: CompareRequest) -> int:
    """Two stored runs: verdicts without a second measurement; the exit code. Raises UsageError and
    BaselineError."""
    request.outputs.check(request.old, request.new, *request.judging.read)
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
    thresholds = thresholds_of(request.judging, registry, [*old.records, *new.records])
    rules, notes = rules_between(old, new, thresholds, request.judging)
    rows = tuple(compare(old.records, new.records, rules))
    return Judgement(
        title=f"{request.new.name} against {request.old.name}, {new.device.name}",
        head=(side_text("old", old), side_text("new", new)),
        rows=rows,
        rules=rules,
        against=("--baseline", str(request.old), *judged_again(request.judging)),
        notes=(
            *notes,
            *measured_otherwise(old, new),
            *skew_notes(rows),
            *host_notes(old.records, new.records),
        ),
    )


def check(request: CheckRequest, of_ranks: Callable[[CheckRequest, Run], int]) -> int:
    """Measure a baseline's cases again and judge; what looks slower is measured twice. The exit
    code. Several GPUs' collectives are measured again by `of_ranks`. Raises as `compare_files`
    does, and EnvironmentProblem without a GPU."""
    stored = stored_baseline(request)
    if any(record.ranks is not None for record in stored.records):
        return of_ranks(request, stored)
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    again = repeated(stored, remeasuring, registry)
    check_rounds(request, again.rounds)
    old = replace(stored, records=again.old)
    thresholds = thresholds_of(request.judging, registry, stored.records)
    with temporary_folder() as temporary:
        with _opened(remeasuring, registry) as bencher:
            device = bencher.info()
            device = replace(device, peak_gb_s=device.peak_gb_s or old.device.peak_gb_s)
            peers = {"peers": list(remeasuring.peers)} if remeasuring.peers else {}
            now = Run(tool(request.argv), device, {**old.protocol, **peers}, ())
            rules, notes = rules_between(old, now, thresholds, request.judging)
            looks = looks_of(rules, remeasuring)
            measure = of_batches(bencher.measure, again.batches, looks.deadline)
            seen = first_look(measure, old.records, looks)
        base = stored_tree(stored, device, heads_of(remeasuring), Path(temporary))
        afresh = _afresh(remeasuring, registry)
        seen = second_look(seen, of_batches(afresh, again.batches, looks.deadline, base), looks)
    notes += beside_notes(seen.rows, stored, base)
    now = seen.measured.as_run(now, again.rounds)
    return concluded(request, Checked(old=old, now=now, seen=seen, rules=rules, notes=notes),
                     registry)  # fmt: skip


def check_base(request: BaseRequest) -> int:
    """Two trees of kernels against each other, in the same rounds of one process; the exit code.
    Raises UsageError and EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
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
    thresholds = thresholds_of(request.judging, registry, (), named)
    rules = Rules(thresholds, paired=True, same_code=not request.judging.no_same_code)
    looks = looks_of(rules, remeasuring)
    batches = base_batches(trees.choices, trees.base, request)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info()
        measure = of_batches(bencher.measure, batches, looks.deadline)
        seen = first_look(measure, None, looks)
    if not seen.rows and not seen.cut:
        raise UsageError("nothing was compared: give --n elements that a kernel can reduce")
    afresh = of_batches(_afresh(remeasuring, registry), batches, looks.deadline)
    seen = second_look(seen, afresh, looks)
    now = Run(tool(request.argv), device, {"rounds": batches[0].settings.rounds}, ())
    judgement = Judgement(
        title=f"{' '.join(map(str, trees.heads))} against {request.base}, {device.name}",
        head=(side_text("new", now),), rows=tuple(seen.rows), rules=rules,
        notes=tuple(trees.problems),
        against=tuple(base_again(request)),
        measured=seen.measured, cut=seen.cut,
    )  # fmt: skip
    return publish_judgement(
        judgement, request.judging, request.outputs, registry,
        quiet=remeasuring.quiet, ahead=ahead,
    )  # fmt: skip


def check_self(request: SelfRequest) -> int:
    """This tree against itself: what this runner's verdicts are worth; 0, 3 where an answer is
    wrong, 2 where a kernel does not compile, and the code of what ended it early. Raises UsageError
    and EnvironmentProblem."""
    request.outputs.check(*request.judging.read)
    remeasuring, registry = request.remeasuring, load_registry(request.remeasuring.folders)
    choices = base_choices(remeasuring.kernels, heads_of(remeasuring), registry)
    named = {choice.kernel.id for choice in choices}
    thresholds = thresholds_of(request.judging, registry, (), named)
    rules = Rules(thresholds, same_code=False)
    with _opened(remeasuring, registry) as bencher:
        device = bencher.info().name
    afresh, looks = _afresh(remeasuring, registry), looks_of(rules, remeasuring)
    rows, cut = compared_with_itself(request, choices, afresh, looks)
    if not rows and not cut:
        raise UsageError("nothing was compared: give --n elements, or more --max-time")
    section = self_section(rows, device, rules, remeasuring.rounds or DEFAULT_ROUNDS)
    if cut:
        section = replace(section, notes=(*section.notes, f"cut short: {cut.why}"))
    publish(request.outputs, [section], {"json": lambda: rows_json(rows)})
    if cut:
        return cut.exit_code
    return worst_exit_code({Policy(allow_gone=True).code(row) for row in rows} & {2, 3})


def _afresh(remeasuring: Remeasuring, registry: Registry) -> MeasureBatches:
    def measure(batches: Sequence[Batch]) -> Remeasured:
        spec, _ = choose_backend("cuda", remeasuring.device, not remeasuring.no_cache)
        return measured_afresh(spec, registry, batches, remeasuring.quiet)

    return measure


@contextmanager
def _opened(remeasuring: Remeasuring, registry: Registry) -> Iterator[Bencher]:
    spec, _ = choose_backend("cuda", remeasuring.device, not remeasuring.no_cache)
    with open_backend(spec) as backend:
        yield Bencher(backend, spec, registry, partial(phase, quiet=remeasuring.quiet))
