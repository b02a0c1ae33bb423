"""Batches measured in a process begun anew.

What belongs to a process stays with it: where its memory lies, what its context was given, how
libraries were loaded. A second measurement in the same one would confirm that along with the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection

from cudareduce.backends import BackendSpec, open_backend
from cudareduce.errors import CudareduceError, EnvironmentProblem
from cudareduce.gate.bencher import Batch, Bencher, Remeasured
from cudareduce.library.registry import Registry
from cudareduce.progress import phase
from cudareduce.signals import held
from cudareduce.verify.children import end_group, follow_parent
from cudareduce.verify.forking import safe_path

#: Seconds for what is done with its work to end.
_END_WAIT_S = 5.0


def measured_afresh(
    spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> Remeasured:
    """What batches give in a process of its own, which opens the GPU itself. Raises what opening
    raises there, KeyboardInterrupt, and EnvironmentProblem if the process ends without a word."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, spec, registry, batches, quiet))
    with safe_path(), held():
        process.start()
    theirs.close()
    try:
        found = ours.recv()
        process.join(_END_WAIT_S)  # it may clear up behind itself
    except EOFError:
        process.join(_END_WAIT_S)
        raise EnvironmentProblem(
            f"the process that measured again ended with code {process.exitcode}: look at "
            "`cudareduce info`, then run check again"
        ) from None
    finally:
        end_group(process, _END_WAIT_S)
        ours.close()
    if isinstance(found, CudareduceError):
        raise found
    assert isinstance(found, Remeasured)
    return found


def _serve(
    pipe: Connection, spec: BackendSpec, registry: Registry, batches: Sequence[Batch], quiet: bool
) -> None:
    """The child: one measurement, one answer."""
    follow_parent()
    found: Remeasured | CudareduceError
    try:
        with open_backend(spec) as backend:
            bencher = Bencher(backend, spec, registry, partial(phase, quiet=quiet))
            found = bencher.measure(batches)
    except CudareduceError as error:
        found = error
    except Exception as error:
        found = CudareduceError(f"internal error: {type(error).__name__}: {error}")
    pipe.send(found)
    pipe.close()
