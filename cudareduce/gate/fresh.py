"""Measures batches in a fresh process.

Memory addresses, the CUDA context and the order in which libraries were loaded stay the same within
a process. A second measurement in the same process would confirm their influence, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from cudareduce.backends import BackendSpec, open_backend
from cudareduce.errors import EnvironmentProblem
from cudareduce.gate.bencher import Batch, Bencher, Remeasured
from cudareduce.library.registry import Registry
from cudareduce.progress import phase
from cudareduce.workers import Exited, Parent, Raised, Returned, Worker


def measured_afresh(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Remeasured:
    """Measure batches in a fresh process, which opens the GPU itself. Raises the error of opening
    it, KeyboardInterrupt, and EnvironmentProblem if the process ends without a result."""
    measure = partial(_measured, spec, registry, quiet)
    worker = Worker(Parent.itself, fresh=True, shown=True)
    try:
        event = worker.call(measure, batches)
    finally:
        worker.end()
    match event:
        case Returned(found):
            assert isinstance(found, Remeasured)
            return found
        case Raised(error):
            raise error
        case _:
            assert isinstance(event, Exited)
            raise EnvironmentProblem(
                f"the process that measured again ended with code {event.code}: look at "
                "`cudareduce info`, then run check again"
            )


def _measured(
    spec: BackendSpec, registry: Registry, quiet: bool, parent: Parent, batches: Sequence[Batch]
) -> Remeasured:
    with open_backend(spec) as backend:
        return Bencher(backend, spec, registry, partial(phase, quiet=quiet)).measure(batches)
