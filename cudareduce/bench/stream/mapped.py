"""Whether a kernel reads the host's memory where it lies: not every instruction does on every
machine, and a GPU does not go on after one that does not."""

from __future__ import annotations

import numpy as np

from cudareduce.backend import TimedBackend
from cudareduce.bench.stream.memory import pages
from cudareduce.errors import KernelFault
from cudareduce.launch.bound import Bound
from cudareduce.launch.case import Case, programs_of
from cudareduce.problem.inputs import make

#: Elements of which every block of a large launch finds some.
_ELEMENTS = 2**20


def why_not_mapped(device: TimedBackend, case: Case, n: int) -> str | None:
    """Why a kernel does not read mapped memory, tried on up to 2^20 of `n` elements in a context of
    its own; None if it does. Raises OutOfMemory and EnvironmentProblem."""
    values = make("ones", case.reduction, min(n, _ELEMENTS))
    place = pages(values.nbytes)
    place[: values.nbytes] = values.view(np.uint8)
    with device.another() as other:
        plan = case.plan(len(values), 1, other.limits())
        given = other.pin(place)
        try:
            Bound(other, plan, programs_of(other, {case: plan})[case], given).run()
            other.synchronize()
        except KernelFault as fault:
            return f"does not read the host's memory where it lies ({fault})"
        finally:
            other.free(given)
    return None
