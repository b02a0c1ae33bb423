"""`links`: how the ranks' GPUs are connected, and what copies, SMs and flags reach there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from cudareduce.backends import gpu_count, never_timed, open_backend
from cudareduce.errors import EnvironmentProblem
from cudareduce.gpu.topology import name_and_address, topology
from cudareduce.progress import phase
from cudareduce.report.publish import Outputs, publish
from cudareduce.report.sections import sections
from cudareduce.results.provenance import tool
from cudareduce.results.record import LINKS, Run
from cudareduce.results.store import run_texts
from cudareduce.several.links.trial import TIMED_BYTES, TRIED_BYTES, measured, steps_of
from cudareduce.several.meet.place import MOST_RANKS
from cudareduce.several.meet.ranks import Member, Ranks, together
from cudareduce.several.stopwatch import IN_A_LOOP, SAMPLES
from cudareduce.several.windows import check_host

#: Ranks where there are no GPUs to count.
_RANKS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksRequest:
    """What is asked: so many rounds, among some ranks."""

    rounds: int
    among: Ranks
    outputs: Outputs


def links(request: LinksRequest) -> int:
    """Start the ranks, one for each GPU, or be one of them; 3 if what was moved did not arrive.
    Ranks that are lost are an error on all of them."""
    request.outputs.check()
    count = partial(_count, request.among)
    return together(request.among, count, [LINKS, request.rounds], partial(_take_part, request))


def _count(asked: Ranks) -> int:
    """How many ranks to start here: one for each GPU, and be it the only one."""
    gpus = 0 if never_timed(asked.backend) else gpu_count()
    return asked.ranks or min(MOST_RANKS, gpus or _RANKS)


def _take_part(request: LinksRequest, rank: Member) -> int:
    """What one rank does; the code that all end with."""
    if rank.meeting.size == 1 and not rank.timed:
        raise EnvironmentProblem(
            "the GPU cannot be used, and one rank has no link: see cudareduce info, or give "
            "--backend cpu"
        )
    rounds = request.rounds if rank.timed else None
    gpus = _gpus(rank)
    steps, what = steps_of(rounds), "measuring" if rank.timed else "verifying"
    with open_backend(rank.spec) as backend, phase(what, steps, quiet=rank.quiet) as bar:
        device = backend.info()
        records = []
        if not any(False in gpu["reaches"] for gpu in gpus):
            nbytes = TIMED_BYTES if rank.timed else TRIED_BYTES
            records = measured(rank.meeting, backend, nbytes, rounds, bar.step)
    if rank.first:
        run = Run(tool(request.among.argv), device, _protocol(rounds, gpus), tuple(records))
        publish(request.outputs, sections(run), run_texts(run))
    return 3 if any(record.verdict == "fail" for record in records) else 0


def _gpus(rank: Member) -> list[dict[str, Any]]:
    """What rank 0 finds of the ranks' GPUs, in their order; nothing without GPUs. Raises
    EnvironmentProblem where they are on several hosts."""
    if not rank.spec.timed:
        return []
    check_host(rank.meeting)
    both = rank.meeting.everybody(name_and_address(rank.spec.device))
    found = [asdict(placed) for placed in topology(*zip(*both, strict=True))] if rank.first else []
    gpus: list[dict[str, Any]] = rank.meeting.share(found)
    return gpus


def _protocol(rounds: int | None, gpus: list[dict[str, Any]]) -> dict[str, Any]:
    """How it was measured, and what between."""
    return {
        "timing": "warm",
        "rounds": rounds,
        "samples": SAMPLES,
        "loop": IN_A_LOOP,
        "gpus": gpus,
    }
