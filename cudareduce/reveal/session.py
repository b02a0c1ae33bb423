"""Calls revealed one after the other, in child processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backends import BackendSpec, choose_backend, open_backend
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.progress import phase, say
from cudareduce.reveal.choose import Chosen, Refused, Shapes, calls
from cudareduce.reveal.job import Job, KernelCall, PeerCall
from cudareduce.reveal.process import Processes
from cudareduce.reveal.rows import order_of, refused
from cudareduce.reveal.table import Order
from cudareduce.signals import held
from cudareduce.temporary import temporary_folder

#: Seconds that the probes of one call may take, and a library up to its first answer: it may be
#: compiling.
_PROBES_S, _FIRST_S = 60.0, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Where calls run. `time_limit` is the seconds that the probes of one may take, and a library
    up to its first answer; None is some for the ones, and more for the other."""

    backend: str = "auto"
    device: int = 0
    no_cache: bool = False
    quiet: bool = False
    time_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Orders found on a device; `interrupted`: Ctrl-C ended it, and what is missing was not
    tried."""

    device: str
    orders: tuple[Order, ...]
    interrupted: bool = False

    def require_any(self) -> None:
        """Raise where nothing could be tried, as the machine has not what it takes, or as nothing
        takes what was asked for."""
        causes = {order.cause for order in self.orders if order.outcome == "skip"}
        if self.interrupted or "time" in causes or any(o.outcome != "skip" for o in self.orders):
            return
        first = {order.reason: order.kernel for order in reversed(self.orders)}
        reasons = [f"{first[why]} {why}" for why in reversed(first)]
        error = EnvironmentProblem if "machine" in causes else UsageError
        raise error(f"nothing was revealed: {'; '.join(reasons)}")


def found(wanted: Sequence[tuple[Chosen, Shapes]], where: Where) -> Finding:
    """The order of every call. Raises EnvironmentProblem."""
    spec, remarks = choose_backend(where.backend, where.device, not where.no_cache)
    for remark in remarks:
        say(remark, where.quiet)
    with ExitStack() as stack:
        with held():
            folder = stack.enter_context(temporary_folder())
        spec = spec.with_cache(Path(folder))
        with open_backend(spec) as backend:
            device, limits, lacks = backend.info().name, backend.limits(), backend.traits.lacks
        asked = [call for what, shapes in wanted
                 for call in calls(what, shapes, limits, lacks, gpu=spec.timed)]  # fmt: skip
        orders: list[Order] = []
        processes = stack.enter_context(Processes())
        jobs = _Jobs(processes, spec, str(spec.cache or folder), where.time_limit)
        progress = stack.enter_context(phase("revealing", len(asked), where.quiet))
        try:
            processes.prepare(spec, [call for call in asked if isinstance(call, KernelCall)])
            for one in asked:
                progress.now(one.name)
                orders.append(refused(one) if isinstance(one, Refused) else jobs.order(one))
                progress.step()
        except KeyboardInterrupt:
            return Finding(device=device, orders=tuple(orders), interrupted=True)
    return Finding(device=device, orders=tuple(orders))


@dataclass(frozen=True, slots=True)
class _Jobs:
    """Makes jobs of calls, and rows of what comes of them."""

    processes: Processes
    spec: BackendSpec
    folder: str
    time_limit: float | None

    def order(self, call: KernelCall | PeerCall) -> Order:
        """The row of one call."""
        limit_s, first_s = self.time_limit or _PROBES_S, self.time_limit or _FIRST_S
        job = Job(self.spec, call, limit_s, first_s, self.folder)
        return order_of(call, self.processes.found(job))
