"""`collective`: arrays of several ranks, combined by every engine there is, and verified."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.errors import BuildError, UsageError
from cudareduce.host import cpu_count
from cudareduce.problem.operators import Reduction, reduction_of
from cudareduce.progress import phase, say
from cudareduce.report.publish import Outputs, publish
from cudareduce.several.arrival import meet
from cudareduce.several.collectives import Collective
from cudareduce.several.engines import Engine, Host, Stage, peer_engines
from cudareduce.several.examine import STUMBLE, Finding, examine
from cudareduce.several.exchange import Exchange, load_exchanges, of_collective
from cudareduce.several.meeting import Meeting
from cudareduce.several.place import OWN, Place, place
from cudareduce.several.start import start
from cudareduce.several.tables import finding_section, findings_json
from cudareduce.several.windows import layout, mapped_windows

#: Ranks where nobody says how many, and there are no GPUs to count.
_RANKS = 2
#: Bytes of an array that travels in packets at most: half of what travels are numbers.
_MOST_MAIL = 2**18


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """What is asked: `n` elements a rank of each size, in these types, by these engines, some of
    them in a user's `folders`, among `ranks` ranks, which `meet` somewhere. `argv` is the command
    line, which each rank is started with."""

    collective: Collective
    n: tuple[int, ...]
    op: str
    dtype: tuple[str, ...]
    engine: tuple[str, ...]
    ranks: int | None
    meet: str | None
    folders: tuple[Path, ...]
    no_cache: bool
    argv: tuple[str, ...]
    outputs: Outputs


def collective(request: CollectiveRequest) -> int:
    """Start the ranks, or be one of them; 3 if an engine is wrong. Ranks that are lost, and
    engines that are not known, are errors on all of them."""
    if 0 in request.n:
        raise UsageError("--n 0: there is nothing to exchange")
    chosen = _kernels(request)
    request.outputs.check()
    here = place(os.environ)
    if here is None:
        return start(request.ranks or _RANKS, request.argv)
    if request.ranks not in (None, here.size):
        raise UsageError(
            f"--ranks {request.ranks}: {here.launcher} has started {here.size}; leave --ranks out"
        )
    with meet(here, _where(here, request)) as meeting:
        return _take_part(request, chosen, meeting)


def _kernels(request: CollectiveRequest) -> list[Exchange]:
    """The kernels of ours that are asked for: all that are right, or those that are named."""
    ours = of_collective(load_exchanges(request.folders), request.collective)
    known = {f"peer:{name}": kernel for name, kernel in ours.items()}
    if not request.engine:
        return [kernel for kernel in known.values() if kernel.wrong is None]
    for name in request.engine:
        if name not in (*known, "peer", "host"):
            raise UsageError(
                f"--engine: there is no {name!r} for {request.collective}: "
                f"{', '.join([*known, 'host'])}"
            )
    some = [kernel for name, kernel in known.items() if name in request.engine]
    if "peer" in request.engine:
        some += [k for k in known.values() if k.wrong is None and k not in some]
    return some


def _where(here: Place, request: CollectiveRequest) -> str:
    """Where the ranks meet, if nobody says: a file that bears the job's name."""
    if request.meet:
        return request.meet
    if here.launcher == OWN.name:
        return here.job
    return f".cudareduce-{re.sub(r'[^0-9A-Za-z.-]', '_', here.job)}.json"


def _take_part(request: CollectiveRequest, chosen: list[Exchange], meeting: Meeting) -> int:
    """What one rank does; the code that all end with."""
    spec, remarks = choose_backend("cpu", 0, not request.no_cache)
    first = meeting.rank == 0
    _agree(request, chosen, meeting)
    for remark in remarks if first else ():
        say(remark)
    reductions = [reduction_of(request.op, name) for name in request.dtype]
    found: dict[Reduction, list[Finding]] = {}
    with phase("verifying", len(reductions), quiet=not first) as bar:
        for reduction in reductions:
            found[reduction] = _examined(request, chosen, meeting, spec, reduction)
            bar.step()
    if first:
        sections = [
            finding_section(request.collective, reduction, max(request.n), meeting.size, some)
            for reduction, some in found.items()
        ]
        texts = {"json": lambda: findings_json(request.collective, meeting.size, found)}
        publish(request.outputs, sections, texts)
    wrong = any(finding.wrong for some in found.values() for finding in some)
    return int(meeting.share(3 if wrong else 0))


def _agree(request: CollectiveRequest, chosen: list[Exchange], meeting: Meeting) -> None:
    """A UsageError where ranks were asked for different things: they would not meet in a call."""
    texts = [hashlib.sha256(kernel.text.encode()).hexdigest() for kernel in chosen]
    asked = [request.collective, request.n, request.op, request.dtype, _by_host(request), texts]
    if len({json.dumps(each) for each in meeting.everybody(asked)}) > 1:
        raise UsageError(
            "ranks were asked for different things: start all with the same command, and the "
            "same kernels"
        )


def _examined(
    request: CollectiveRequest, chosen: list[Exchange], meeting: Meeting, spec: BackendSpec,
    reduction: Reduction,
) -> list[Finding]:  # fmt: skip
    """All engines of one reduction, one after the other."""
    findings, calls = [], count(1)
    with _stage(request, meeting, spec, reduction) as stage:
        for engine in _engines(request, chosen, stage):
            if isinstance(engine, BuildError):
                raise engine
            most = _MOST_MAIL // reduction.dtype.size if engine.mail else max(request.n)
            asked = sorted({min(n, most) for n in request.n})
            findings.append(examine(stage, engine, asked, calls))
    return findings


@contextmanager
def _stage(
    request: CollectiveRequest, meeting: Meeting, spec: BackendSpec, reduction: Reduction
) -> Iterator[Stage]:
    """The emulator, and windows for the largest arrays."""
    size = reduction.dtype.size
    nbytes = max(request.n) * size
    words = -(-size // 4)
    mail = 2 * meeting.size * min(nbytes, _MOST_MAIL) // size * words * 8
    share = replace(spec, threads=max(1, cpu_count() // meeting.size))
    with (
        open_backend(share) as backend,
        mapped_windows(meeting, layout(meeting.size, nbytes, mail)) as windows,
    ):
        yield Stage(backend, meeting, windows, request.collective, reduction)


def _engines(
    request: CollectiveRequest, chosen: list[Exchange], stage: Stage
) -> list[Engine | BuildError]:
    engines: list[Engine | BuildError] = [*peer_engines(stage, chosen, STUMBLE)]
    if _by_host(request):
        engines.append(Host(stage))
    return engines


def _by_host(request: CollectiveRequest) -> bool:
    return not request.engine or "host" in request.engine
