"""What `compare` and `check` do between the options and the exit code."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cudareduce.backends import choose_backend, open_backend
from cudareduce.errors import BaselineError, UsageError, worst_exit_code
from cudareduce.gate.baseline import load_baseline, load_timed
from cudareduce.gate.compare import Row, Rules, compare
from cudareduce.gate.fingerprint import match
from cudareduce.gate.policy import Policy, Sides, confirm, refuse_fine_threshold
from cudareduce.gate.rerun import (
    Batch,
    Bencher,
    Measured,
    asked_for,
    base_batches,
    baseline_batches,
    baseline_choices,
    only_suspects,
)
from cudareduce.gate.significance import MIN_ROUNDS, detectable
from cudareduce.gate.thresholds import Thresholds, load_thresholds
from cudareduce.gate.trees import base_folders, load_tree
from cudareduce.gate.verdicts import benchmark_series, findings, rows_json, verdict_sections
from cudareduce.library.registry import Registry, kernels_folder, load_registry
from cudareduce.progress import phase, say
from cudareduce.report.publish import publish
from cudareduce.results.provenance import tool
from cudareduce.results.record import Record, Run
from cudareduce.results.store import check_outputs, check_writable, to_json, write_text

_ROUNDS = 9


def run_compare(old_path: Path, new_path: Path, options: Mapping[str, Any]) -> int:
    """Two stored runs: verdicts without a second measurement."""
    check_outputs(options, old_path, new_path)
    old, new = load_baseline(old_path), load_timed(new_path)
    thresholds = load_thresholds(options["thresholds"], options["threshold"])
    refuse_fine_threshold(_half_widths(old, new), thresholds)
    rules, notes = _rules(old, new, thresholds, options)
    notes += _unused(thresholds, [*old.records, *new.records])
    rows = compare(old.records, new.records, rules)
    title = f"{new_path.name} against {old_path.name}, {new.device.name}"
    return _finish(rows, title, notes, rules, options, load_registry())


def run_check(names: Sequence[str], options: Mapping[str, Any]) -> int:
    """Measure a baseline's cases again and judge; what looks slower is measured twice."""
    path: Path = options["baseline"]
    check_outputs(options, path)
    baseline = load_baseline(path)
    if options["update_baseline"]:
        check_writable(path)
        if names:
            raise UsageError("--update-baseline takes no kernels: a baseline is one whole run")
    registry = load_registry(options["folders"])
    choices = baseline_choices(baseline, names, registry)
    old = tuple(r for r in baseline.records if asked_for(r.kernel, names, choices))
    rounds = options["rounds"] or int(baseline.protocol.get("rounds") or _ROUNDS)
    if options["update_baseline"] and rounds < MIN_ROUNDS:
        raise UsageError(f"a baseline takes --rounds {MIN_ROUNDS} or more: fewer decide nothing")
    # Kernels that the baseline does not hold are measured on all of its problems.
    problems = replace(baseline, records=old or baseline.records)
    batches = baseline_batches(problems, choices, rounds, options["time_limit"])
    baseline = replace(baseline, records=old)
    thresholds = load_thresholds(options["thresholds"], options["threshold"])
    refuse_fine_threshold(_half_widths(baseline), thresholds)
    with _opened(options, registry) as bencher:
        device = bencher.info()
        if device.peak_gb_s is None:
            device = replace(device, peak_gb_s=baseline.device.peak_gb_s)
        now = Run(tool(options["argv"]), device, dict(baseline.protocol), ())
        rules, notes = _rules(baseline, now, thresholds, options)
        measured = bencher.run(batches if choices else ())

        def again(suspects: Sequence[Row]) -> Sides:
            second = bencher.run(_longer(batches, suspects, options))
            return [row.old for row in suspects if row.old], second.new

        rows = confirm(compare(baseline.records, measured.new, rules), again, rules)
    notes += [*_unused(thresholds, [*baseline.records, *measured.new]), *measured.remarks]
    asked = {**now.protocol, "rounds": rounds, "floors_us": measured.floors_us}
    asked |= {"measured": measured.stories, "remarks": list(measured.remarks), "max_time_s": None}
    now = replace(now, protocol=asked, records=tuple(measured.new))
    if options["json"] is not None:
        write_text(options["json"], to_json(now))
    title = f"now against {path.name}, {device.name}"
    code = _finish(rows, title, notes, rules, options, registry, measured)
    return _update(path, now, rows, code, options) if options["update_baseline"] else code


def run_base(names: Sequence[str], options: Mapping[str, Any]) -> int:
    """Two trees of kernels against each other, in the same rounds of one process."""
    check_outputs(options)
    registry = load_registry(options["folders"])
    heads = options["folders"] or (kernels_folder(),)
    choices = registry.choose(names)
    if not names:  # a folder of one's own is compared, and not all kernels besides
        whole = [head.resolve() for head in heads]
        choices = [
            c for c in choices if any(c.kernel.path.resolve().is_relative_to(h) for h in whole)
        ]
    thresholds = load_thresholds(options["thresholds"], options["threshold"])
    rules = Rules(thresholds, paired=True, same_code=not options["no_same_code"])
    with tempfile.TemporaryDirectory(prefix="cudareduce-base-") as temporary:
        base, problems = load_tree(base_folders(options["base"], heads, Path(temporary)))
        rounds = options["rounds"] or _ROUNDS
        batches = base_batches(choices, base, dict(options) | {"names": names}, rounds)
        with _opened(options, registry) as bencher:
            device = bencher.info()
            measured = bencher.run(batches)

            def again(suspects: Sequence[Row]) -> Sides:
                second = bencher.run(_longer(batches, suspects, options))
                return second.old, second.new

            first = compare(measured.old, measured.new, rules)
            if not first:
                raise UsageError("nothing was compared: give --n elements that a kernel can reduce")
            widths = [(r.record.kernel, r.change.half_width) for r in first if r.change]
            refuse_fine_threshold(widths, thresholds)
            rows = confirm(first, again, rules)
    notes = [*problems, *_unused(thresholds, [*measured.old, *measured.new]), *measured.remarks]
    title = f"{' '.join(map(str, heads))} against {options['base']}, {device.name}"
    return _finish(rows, title, notes, rules, options, registry, measured)


@contextmanager
def _opened(options: Mapping[str, Any], registry: Registry) -> Iterator[Bencher]:
    spec, _ = choose_backend("cuda", options["device"], not options["no_cache"])
    with open_backend(spec) as backend:
        yield Bencher(backend, spec, registry, partial(phase, quiet=options["quiet"]))


def _longer(
    batches: Sequence[Batch], suspects: Sequence[Row], options: Mapping[str, Any]
) -> list[Batch]:
    say(f"{len(suspects)} look slower: measuring them again", options["quiet"])
    return only_suspects(batches, [row.record for row in suspects])


def _half_widths(*runs: Run) -> list[tuple[str, float]]:
    """Of each kernel's every record the change that comparing as noisy rounds leaves in doubt."""
    records = [record for run in runs for record in run.records if record.medians_us]
    found = detectable([record.medians_us for record in records])
    pairs = zip(records, found, strict=True)
    return [(record.kernel, width) for record, width in pairs if width is not None]


def _rules(
    old: Run, new: Run, thresholds: Thresholds, options: Mapping[str, Any]
) -> tuple[Rules, list[str]]:
    """How to compare two runs, or a refusal to; and what to say of the machines."""
    found = match(old.device, new.device)
    if found.differences and not options["cross_device"]:
        raise BaselineError(
            f"the baseline was made on another machine: {'; '.join(found.differences)}. Make one "
            "here with bench --json, or compare shares of each card's ceiling with --cross-device"
        )
    notes = [f"the machine: {warning}" for warning in found.warnings]
    if found.other_card:
        what = "; ".join(found.differences) or "another card of the same model"
        notes.insert(0, f"Compared by shares of each card's own ceiling, not by time: {what}.")
    rules = Rules(
        thresholds,
        shares=found.other_card,
        same_code=not options["no_same_code"],
        clocks=old.device.name == new.device.name,
    )
    return rules, notes


def _unused(thresholds: Thresholds, records: Sequence[Record]) -> list[str]:
    names = thresholds.unused({record.kernel for record in records})
    return [f"thresholds: no kernel here is called {name!r}" for name in names]


def _finish(
    rows: list[Row],
    title: str,
    notes: Sequence[str],
    rules: Rules,
    options: Mapping[str, Any],
    registry: Registry,
    measured: Measured | None = None,
) -> int:
    """Publish the verdicts, and give the exit code."""
    policy = Policy(options["strict"], options["allow_gone"])
    found = verdict_sections(
        rows, title, notes, shares=rules.shares, everything=options["everything"]
    )
    if options["benchmark_json"] is not None:
        write_text(options["benchmark_json"], benchmark_series(rows))
    publish(found, findings(rows, policy), lambda: rows_json(rows), registry, options)
    if options["style"] == "json":  # which has no place for what holds for all rows
        for note in notes:
            say(note, options.get("quiet", False))
    codes = {policy.exit_code(rows)} - {0}
    if measured is not None:
        codes |= {2} if measured.build_failed else set()
        if measured.new and all(record.verdict == "skip" for record in measured.new):
            codes |= {6}
    return worst_exit_code(codes)


def _update(
    path: Path, now: Run, rows: Sequence[Row], code: int, options: Mapping[str, Any]
) -> int:
    """Write the new baseline, unless it would hold wrong answers or leave kernels out."""
    gone = [row.record.kernel for row in rows if row.verdict == "GONE"]
    if code in (2, 3, 6):
        say(f"{path} is left as it was: mend what is wrong first", False)
        return code
    if gone and not options["allow_gone"]:
        what = f"{gone[0]} is gone, and --allow-gone drops what is"
        say(f"{path} is left as it was: {what}", False)
        return code
    write_text(path, to_json(now))
    say(f"{path} now holds what was measured here", options["quiet"])
    return 0
