"""What calls are prepared on in the process of libraries: buffers, answers, and who is at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from cudareduce.backend import Buffer, Launch, TimedBackend
from cudareduce.errors import CudareduceError
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers.contract import Given, Peer, Ready, as_answers
from cudareduce.peers.faults import faulty
from cudareduce.peers.job import plan_for
from cudareduce.problem.inputs import Array
from cudareduce.verify.verdict import Verdict
from cudareduce.workers import Parent

#: What a peer does: an import and what it may compile take time.
Phase = Literal["imports", "prepares", "runs"]


@dataclass(frozen=True, slots=True)
class At:
    """What a worker has begun: a phase of one library by its name, or of none if that is empty. If
    there are `names`, the index of the last heartbeat says whose launch is running."""

    name: str = ""
    phase: Phase = "prepares"
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundDone:
    """A round of the timing is done."""


class BrokenError(CudareduceError):
    """After an error of one peer the device takes no more work from this process."""

    def __init__(self, name: str, verdict: Verdict) -> None:
        super().__init__(name, verdict)
        self.name, self.verdict = name, verdict


@dataclass(frozen=True, slots=True)
class Teller:
    """Tells the parent which library is running, so that it knows whose fault a crash is."""

    parent: Parent
    names: list[str] = field(default_factory=list)

    def at(self, name: str, phase: Phase = "runs") -> None:
        """A library begins a phase; none, if the name is empty."""
        self.parent.send(At(name, phase))

    def times(self) -> None:
        """From now on the index of the heartbeat says whose launch of `told` is running."""
        self.parent.send(At("", "runs", tuple(self.names)))

    def round_done(self) -> None:
        """A round of the timing is done."""
        self.parent.send(RoundDone())

    def told(self, name: str, run: Launch) -> Launch:
        """A launch that is preceded by a heartbeat with its index."""
        if name not in self.names:
            self.names.append(name)
        index, beat = self.names.index(name), self.parent.beat

        def launch() -> None:
            beat(index)
            run()

        return launch

    @property
    def last(self) -> str:
        """The name of the last launch."""
        return self.names[self.parent.beat_index] if self.names else ""


@dataclass(frozen=True, slots=True)
class Bound:
    """A prepared call with the memory that was `given` for its answers."""

    peer: Peer
    plan: Plan
    ready: Ready
    given: Buffer
    backend: TimedBackend

    @property
    def run(self) -> Launch:
        """Enqueues the call."""
        return self.ready.run

    @property
    def out(self) -> Buffer | None:
        """Where it leaves its answers, None where it has a place of its own."""
        return self.given if self.ready.fetch is None else None

    @property
    def own(self) -> tuple[Buffer, ...]:
        """What no other call may write to."""
        return (self.given,)

    def poison(self, byte: int = 0xFF) -> None:
        """Overwrite the answers."""
        self.backend.poison(self.given, byte)

    def reset(self) -> None:
        """Overwrite the answers, where another call has."""
        self.poison()

    def answers(self) -> Array:
        """Wait, and bring the answers to the host. Raises AnswersError."""
        problem = self.plan.problem
        if self.ready.fetch is None:
            return self.backend.download(self.given, problem.reduction.result_dtype, problem.rows)
        self.backend.synchronize()
        return as_answers(problem, self.ready.fetch())

    def damage(self) -> str | None:
        """What it has written outside its answers, in words; None if nothing."""
        found = self.backend.damage(self.given)
        return f"it wrote outside its answers: {found}" if found else None


@dataclass(frozen=True, slots=True)
class Memory:
    """Buffers that go together."""

    backend: TimedBackend
    held: list[Buffer] = field(default_factory=list)

    def allocate(self, nbytes: int) -> int:
        """The address of so many bytes. Raises OutOfMemory."""
        self.held.append(self.backend.allocate(nbytes))
        return self.held[-1].address

    def upload(self, array: Array) -> int:
        """The address of a copy of an array. Raises OutOfMemory."""
        self.held.append(self.backend.upload(array))
        return self.held[-1].address

    def bind(self, peer: Peer, problem: Problem, data: Array, start: Buffer, folder: str) -> Bound:
        """A peer's call on an input, prepared. Raises whatever the library does."""
        backend = self.backend
        out = backend.allocate(problem.rows * problem.reduction.result_size)
        self.held.append(out)
        major, minor = (backend.info().cc or "0.0").split(".")
        given = Given(
            problem=problem, data=data, address=start.address, out=out.address,
            stream=backend.stream_handle, native=getattr(backend, "stream", None),
            allocate=self.allocate, upload=self.upload, arch=10 * int(major) + int(minor),
            folder=folder,
        )  # fmt: skip
        return Bound(peer, plan_for(peer.name, problem), peer.prepare(given), out, backend)


@contextmanager
def memory(backend: TimedBackend) -> Iterator[Memory]:
    """Buffers until this is left."""
    made = Memory(backend)
    try:
        yield made
    finally:
        backend.free(*made.held)


def verdict_on(peer: Peer, error: Exception, backend: TimedBackend, where: str = "") -> Verdict:
    """What an error says of a peer, and `where` it came. Raises BrokenError where the device is of
    no more use after it."""
    verdict = faulty(peer, error)
    if verdict.outcome == "fail":
        verdict = replace(verdict, reason=where + verdict.reason)
    try:
        backend.finish()
    except Exception:
        raise BrokenError(peer.name, verdict) from None
    return verdict
