"""Whether libraries are here, take what is asked of them, and are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cudareduce.backend import Buffer, TimedBackend
from cudareduce.launch.case import Shape
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers.contract import Peer
from cudareduce.peers.faults import Runtimes, absent
from cudareduce.peers.job import PLAIN, Found, Job, Layout, case_of, plan_of
from cudareduce.peers.scene import Bound, Memory, Teller, memory, verdict_on
from cudareduce.problem.inputs import Array
from cudareduce.problem.nets import patterns_for
from cudareduce.problem.reference import Reference
from cudareduce.verify.inputs import SMALL, Input, Inputs
from cudareduce.verify.verdict import RIGHT, Effort, Verdict, judge, skipped, worse

#: What becomes of NaN, infinities and zeros of both signs is each library's own, and no fault.
_ORDINARY = ("exact", "random", "positive", "rising", "falling", "one-sided", "extremum", "tie",
             "spread", "factors", "lowest", "highest")  # fmt: skip
#: No library says what its tile is; positions of extrema are tried at the edges of this one.
_TILE = 4096
_POISONS = (0xFF, 0x01)
_UNDECIDED = "no pattern could decide; choose a smaller n"


@dataclass(frozen=True, slots=True)
class _Given:
    """An input on the device, with what it must give."""

    input: Input
    plan_of: Mapping[str, Plan]
    data: Array
    ref: Reference
    buffer: Buffer


def loaded(
    peers: Sequence[Peer], problem: Problem, teller: Teller, runtimes: Runtimes
) -> dict[str, Found]:
    """Import every library: a verdict on those that are not here or do not take the problem."""
    found = {}
    for peer in peers:
        teller.at(peer.name, prepares=True)
        reason = peer.why_not(problem)
        if reason:
            found[peer.name] = Found(verdict=skipped("unfit", reason))
            continue
        called = peer.called(problem)
        try:
            found[peer.name] = Found(verdict=RIGHT, called=called, version=peer.load())
        except Exception as error:
            found[peer.name] = Found(verdict=absent(peer, error), called=called)
        runtimes.after(peer)
    return found


def examined(
    job: Job,
    backend: TimedBackend,
    teller: Teller,
    inputs: Inputs,
    runtimes: Runtimes,
    layout: Layout = PLAIN,
) -> dict[str, Found]:
    """A verdict on every peer of a job, with inputs laid out so. Raises BrokenError, and
    OutOfMemory where an input finds no place."""
    peers = {peer.name: peer for peer in job.peers()}
    found = loaded(list(peers.values()), job.problem_of(layout), teller, runtimes)
    for name, peer in peers.items():
        reason = peer.why_not_from(layout.offset * job.reduction.dtype.size)
        if reason and found[name].verdict.outcome == "pass":
            found[name] = replace(found[name], verdict=skipped("unfit", reason))
    decided: set[str] = set()
    shapes = [layout.shape(shape) for shape in job.shapes]
    for shape in dict.fromkeys(shapes):
        for pattern in _patterns(job, shape):
            left = [p for p in peers.values() if found[p.name].verdict.outcome == "pass"]
            given = Input(pattern, *shape, job.seed, layout.offset)
            for name, verdict in _on(job, backend, teller, inputs, left, given).items():
                if verdict is not None:
                    decided |= {name} if shape == shapes[-1] else set()
                    both = worse(found[name].verdict, verdict)
                    found[name] = replace(found[name], verdict=both)
    for name, one in found.items():
        if one.verdict.outcome == "pass" and name not in decided:
            why = f"n = {shapes[-1][0]}: {_UNDECIDED}"
            found[name] = replace(one, verdict=Verdict("fail", why))
    return found


def _patterns(job: Job, shape: Shape) -> list[str]:
    """What decides on every library alike; of large inputs, and of other layouts, the first that
    decides."""
    if job.only:
        return [job.only]
    n, rows = shape
    names = patterns_for(job.reduction, n, _TILE)
    names = [name for name in names if name.partition(":")[0] in _ORDINARY]
    return names[:1] if n * rows > SMALL or job.odd else names


def _on(
    job: Job, backend: TimedBackend, teller: Teller, inputs: Inputs, peers: Sequence[Peer],
    one: Input,
) -> dict[str, Verdict | None]:  # fmt: skip
    """Verdicts of the peers that take its shape on an input; None where it does not decide."""
    problem = Problem(job.reduction, one.n, one.rows)
    taking = [peer for peer in peers if peer.why_not(problem) is None]
    if not taking:
        return {}
    data, ref = inputs.of(one, job.reduction)
    plans = {peer.name: plan_of(case_of(peer, job.reduction), problem) for peer in taking}
    verdicts: dict[str, Verdict | None] = {}
    buffer = backend.upload(data, one.offset * job.reduction.dtype.size)
    try:
        given = _Given(one, plans, data, ref, buffer)
        for peer in taking:
            teller.at(peer.name, prepares=True)
            with memory(backend) as held:
                verdicts[peer.name] = _verdict(peer, problem, given, held, job.folder, teller)
    finally:
        backend.free(buffer)
    return verdicts


def _verdict(
    peer: Peer, problem: Problem, given: _Given, held: Memory, folder: str, teller: Teller
) -> Verdict | None:
    """The verdict on one peer's answers, from memory that held one thing and another."""
    verdict: Verdict | None = None
    try:
        bound = held.bind(peer, problem, given.data, given.buffer, folder)
        bound.ready.run()  # what compiles at its first call
        bound.answers(held.backend)
        teller.at(peer.name)
        for poison in _POISONS:
            new = _once(bound, held, given, poison)
            if new is not None:
                verdict = worse(verdict or RIGHT, new)
    except Exception as error:
        verdict = verdict_on(peer, error, held.backend, f"{given.input}: ")
    if verdict is None:
        return None
    launches = Effort(launches=1 + len(_POISONS))
    return replace(verdict, effort=given.input.effort + launches)


def _once(bound: Bound, held: Memory, given: _Given, poison: int) -> Verdict | None:
    assert bound.out is not None
    held.backend.poison(bound.out, poison)
    bound.ready.run()
    plan = given.plan_of[bound.peer.name]
    verdict = judge(plan, bound.answers(held.backend), given.ref, given.input.pattern)
    damage = held.backend.damage(bound.out)
    if damage:
        verdict = Verdict("fail", f"it wrote outside its answers: {damage}")
    if verdict is not None and verdict.outcome == "fail":
        return replace(verdict, reason=f"{given.input}: {verdict.reason}")
    return verdict
