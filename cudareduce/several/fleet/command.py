"""`gather` and `fleet`: take in result files of many machines, and tell which cards are slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.problem.sizes import counted
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs, publish
from cudareduce.results.store import check_writable
from cudareduce.several.fleet.folders import LeftOut, read_new, result_files
from cudareduce.several.fleet.judged import Model, judged
from cudareduce.several.fleet.store import add, read, seen
from cudareduce.several.fleet.telling import model_sections, models_csv, models_json

#: So many files are stored at a time: what is there when a gather is interrupted, stays.
_AT_ONCE = 200
#: So many files that are left out are named.
_FIRST_FEW = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRequest:
    """Which store to judge; `slow` asks for the slow cards alone, and for an exit code."""

    store: Path
    slow: bool
    outputs: Outputs


def gather(places: Sequence[Path], into: Path) -> int:
    """Take in what a store does not hold yet, and say what was left out; 0. A folder that is not
    there, one without any result, and a store that cannot be used are UsageErrors."""
    check_writable(into)
    paths, held = result_files(places), seen(into)
    new = files = 0
    left_out: list[str] = []
    with phase("reading results", len(paths), quiet=len(paths) < _AT_ONCE) as bar:
        for batch in _batches(paths):
            runs = []
            for path in batch:
                found = read_new(path, held)
                if isinstance(found, LeftOut):
                    left_out.append(found.why)
                elif found is not None:
                    runs.append(found)
                bar.step()
            new, files = new + (add(into, runs) if runs else 0), files + len(runs)
    for why in left_out[:_FIRST_FEW]:
        say(f"left out: {why}")
    if len(left_out) > _FIRST_FEW:
        say(f"left out: {len(left_out) - _FIRST_FEW} more")
    if len(left_out) == len(paths):
        where = " and ".join(map(str, places))
        raise UsageError(f"there is no result in {where}: write some with bench --json")
    say(_told(into, new, len(paths) - new - len(left_out), len(left_out)))
    return 0


def _batches(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for first in range(0, len(paths), _AT_ONCE):
        yield paths[first : first + _AT_ONCE]


def _told(into: Path, new: int, before: int, left_out: int) -> str:
    parts = [f"{counted(new, 'run')} taken in"]
    parts += [f"{counted(before, 'file')} held already"] if before else []
    parts += [f"{counted(left_out, 'file')} left out"] if left_out else []
    return f"{into}: {', '.join(parts)}"


def fleet(request: FleetRequest) -> int:
    """Print what a store says of its cards. With `slow` 1 if one of them is, 4 if that cannot be
    told: one run alone says so, or there are too few cards."""
    request.outputs.check(request.store)
    models = judged(read(request.store))
    publish(
        request.outputs,
        model_sections(models, request.store, slow=request.slow),
        {
            "csv": lambda: models_csv(models),
            "json": lambda: models_json(models, slow=request.slow),
        },
    )
    return _code(models) if request.slow else 0


def _code(models: Sequence[Model]) -> int:
    verdicts = {card.verdict for model in models for card in model.cards}
    if "SLOW" in verdicts:
        return 1
    return 4 if "ONCE" in verdicts or not any(model.judged for model in models) else 0
