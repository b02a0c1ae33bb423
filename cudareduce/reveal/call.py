"""The very call that is revealed: a kernel's launches or a library's, on elements that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from cudareduce.backend import Backend, TimedBackend
from cudareduce.errors import BuildError
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, build
from cudareduce.launch.plan import Plan, Problem
from cudareduce.peers.contract import Given, Peer, as_answers
from cudareduce.peers.scene import memory
from cudareduce.problem.inputs import Array


@dataclass(frozen=True, slots=True)
class Call:
    """`write` puts elements at a place of the input, `held` are those of its first row, `answer`
    makes the call and gives the answer of that row, and `ways` are those to make it again."""

    write: Callable[[int, Array], None]
    held: Callable[[], Array]
    answer: Callable[[], float]
    ways: Callable[[int], Iterator[object]]


@contextmanager
def kernel_call(backend: Backend, case: Case, plan: Plan) -> Iterator[Call]:
    """The launches of a kernel. Raises BuildError and OutOfMemory; a call raises KernelFault."""
    programs = build(backend, {case: [plan]})[case]
    if isinstance(programs, BuildError):
        raise programs
    with ExitStack() as stack:
        problem, dtype = plan.problem, plan.problem.reduction.dtype
        given = backend.upload(np.zeros(problem.input_bytes, np.uint8))
        stack.callback(backend.free, given)
        bound = Bound(backend, plan, programs, given)
        stack.callback(bound.release)

        def write(place: int, elements: Array) -> None:
            backend.write(given, elements, place * dtype.size)

        def held() -> Array:
            return backend.download(given, dtype.storage, problem.n)

        def answer() -> float:
            bound.run()
            return float(bound.answers()[0])

        def ways(repeats: int) -> Iterator[object]:
            yield from backend.ways(repeats, quick=False)
            next(iter(backend.ways(1, quick=True)))  # from here on, the first of them again

        yield Call(write, held, answer, ways)


@contextmanager
def peer_call(
    backend: TimedBackend, peer: Peer, problem: Problem, data: Array, folder: str
) -> Iterator[Call]:
    """A library's call, in a context that others of ours share; it raises what it likes."""
    dtype = problem.reduction.dtype
    given = backend.upload(data)
    try:
        with memory(backend) as allocated:
            bound = allocated.bind(peer, problem, data, given, folder)

            def write(place: int, elements: Array) -> None:
                backend.write(given, elements, place * dtype.size)

            def held() -> Array:
                return backend.download(given, dtype.storage, problem.n)

            def answer() -> float:
                bound.ready.run()
                return float(bound.answers()[0])

            yield Call(write, held, answer, lambda repeats: repeat("", repeats))
    finally:
        backend.free(given)


@contextmanager
def own_call(peer: Peer, problem: Problem, data: Array, folder: str) -> Iterator[Call]:
    """A library's call on streams of its own: its input is in host memory, and each change of it
    is given anew."""
    given = Given(
        problem=problem, data=data.copy(), address=0, out=0, stream=0, native=None,
        allocate=lambda nbytes: 0, upload=lambda array: 0, arch=0, folder=folder,
    )  # fmt: skip
    ready = peer.prepare(given)

    def write(place: int, elements: Array) -> None:
        given.data[place : place + len(elements)] = elements

    def answer() -> float:
        assert ready.refill is not None
        assert ready.fetch is not None
        ready.refill()
        ready.run()
        return float(as_answers(problem, ready.fetch())[0])

    yield Call(write, lambda: given.data[: problem.n], answer, lambda repeats: repeat("", repeats))
