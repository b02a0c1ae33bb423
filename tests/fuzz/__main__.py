"""`python -m tests.fuzz --minutes 60`: all targets in turn, with fresh seeds, for so long.

What fails is made small and kept in `seeds.json`, one input for each place in the code and kind of
error; that is all a repetition takes. Ends with 1 if anything was found.
"""

from __future__ import annotations

import hashlib
import sys
import time
import traceback
import warnings
from pathlib import Path

import click
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisWarning

from tests.conftest import ROOT
from tests.fuzz.targets import LIMIT_S, TARGETS, TooSlow, seeds, store_seed

#: How long making one input small may take.
SHRINK_S = 60.0

Fault = tuple[str, str, str]


def fault(name: str, error: BaseException) -> Fault:
    """What tells one fault from another: the target, the kind of error, the place in the package.

    A call that is too slow is stopped anywhere; its place is the function of the package that it
    was in.
    """
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT / "cudareduce")
    ]  # fmt: skip
    if not frames:
        return name, type(error).__name__, "?"
    last = frames[-1]
    line = "" if isinstance(error, TooSlow) else f":{last.lineno}"
    place = f"{Path(last.filename).relative_to(ROOT)}{line} {last.name}"
    return name, type(error).__name__, place


def known() -> set[Fault]:
    """The faults of the seeds that still fail."""
    found = set()
    for name, _, data in seeds():
        try:
            TARGETS[name].check(data)
        except Exception as error:
            found.add(fault(name, error))
    return found


def smaller(name: str, data: bytes) -> bytes:
    """An input that is still far too slow, with parts left out for as long as a minute allows.

    Twice as slow as allowed, so that it is too slow on another day, too.
    """
    end, size = time.monotonic() + SHRINK_S, len(data) // 2
    while size:
        for start in range(0, len(data), size):
            if time.monotonic() > end:
                return data
            shorter = data[:start] + data[start + size :]
            try:
                TARGETS[name].check(shorter, 2 * LIMIT_S)
            except TooSlow:
                data = shorter
                break
            except Exception:
                continue
        else:
            size //= 2
    return data


def try_some(
    name: str, number: int, limit: float, faults: set[Fault]
) -> tuple[bytes, Fault] | None:
    """Inputs made from one seed; the first that fails in a new way, made small, and how."""
    target = TARGETS[name]
    failed: list[tuple[bytes, Fault]] = []

    @seed(number)
    @settings(
        max_examples=target.examples * 5, database=None, deadline=None, report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(target.inputs)
    def attempt(data: bytes) -> None:
        slow = bool(failed) and failed[-1][1][1] == TooSlow.__name__
        if slow or time.monotonic() > limit + SHRINK_S * bool(failed):
            return
        try:
            target.check(data)
        except Exception as error:
            new = fault(name, error)
            if new in faults:
                return
            failed.append((data, new))
            if not isinstance(error, TooSlow):  # of which Hypothesis would shrink for minutes
                raise

    try:
        attempt()
    except Exception:
        assert failed, "the fuzzer itself failed"
    if not failed:
        return None
    data, what = failed[-1]
    return (smaller(name, data) if what[1] == TooSlow.__name__ else data), what


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=60.0)
@click.option("--target", type=click.Choice(list(TARGETS)), multiple=True)
@click.option("--first", default=None, type=int, help="The first seed; else the time of day.")
def main(minutes: float, target: tuple[str, ...], first: int | None) -> None:
    """Fuzz for so long, and keep what fails."""
    number = time.time_ns() % 10**9 if first is None else first
    warnings.simplefilter("ignore", HypothesisWarning)  # of inputs that are long to print
    limit, faults, found, tried = time.monotonic() + 60 * minutes, known(), 0, 0
    click.echo(f"first seed {number}; seeds that still fail show {len(faults)} faults")
    while time.monotonic() < limit:
        for name in target or TARGETS:
            failure = try_some(name, number, limit, faults)
            tried += TARGETS[name].examples * 5
            if failure is None:
                continue
            data, what = failure
            seed_name = hashlib.sha256(data).hexdigest()[:12]
            store_seed(name, seed_name, data)
            faults.add(what)
            found += 1
            click.echo(f"{' '.join(what)}: {seed_name}: {data[:120]!r}")
        number += 1
    click.echo(f"about {tried} inputs, {found} new faults")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
