"""torch.distributed, which calls NCCL, on tensors that view this rank's window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

from cudareduce.backend import Launch, TimedBackend
from cudareduce.peers.contract import AbsentError
from cudareduce.peers.interop import DeviceArray
from cudareduce.several.communicator import agree, watchdog
from cudareduce.several.engines import Stage
from cudareduce.several.inputs import output_slice, why_not_divisible
from cudareduce.several.nccl import disable_multicast

#: How long ranks wait for each other.
_PATIENCE = timedelta(seconds=30)
_OPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
#: All ranks are on this host.
_HERE = "127.0.0.1"


@contextmanager
def torch_engine(stage: Stage, backend: TimedBackend) -> Iterator[TorchEngine]:
    """The engine while the block runs. Raises RankLost, and AbsentError on all ranks if torch is
    missing on one."""
    comm = stage.comm
    version = agree(comm, _imported)
    import torch
    import torch.distributed as dist

    disable_multicast()
    torch.cuda.set_device(torch.cuda.current_device())  # the device of the current context
    torch.cuda.set_stream(torch.cuda.ExternalStream(backend.stream_handle))
    first = agree(comm, lambda: None if comm.rank else _store(stage, 0))
    port = comm.broadcast(first.port if first else None)
    store = agree(comm, lambda: first or _store(stage, port))
    agree(comm, lambda: _begin(stage, store))
    yield TorchEngine(stage, version)
    comm.barrier()  # no rank leaves while another is in a call
    with (
        watchdog("torch.distributed's end"),
        suppress(RuntimeError),
    ):  # an error must not lose the measurements
        dist.destroy_process_group()
    comm.barrier()


def _imported() -> str:
    """The versions of torch and of its NCCL. Raises AbsentError."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise AbsentError("torch is not here: pip install torch") from None
    if not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()):
        raise AbsentError(f"torch {torch.__version__} has no NCCL, or sees no GPU")
    return f"{torch.__version__} with NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"


def _store(stage: Stage, port: int) -> Any:
    """The TCPStore: a server on any port on rank 0, a client elsewhere."""
    from torch.distributed import TCPStore

    first = stage.comm.rank == 0
    try:
        return TCPStore(_HERE, port, stage.comm.size, first, _PATIENCE, wait_for_workers=False)
    except RuntimeError as error:
        raise AbsentError(_first_line(error)) from None


def _begin(stage: Stage, store: Any) -> None:
    import torch.distributed as dist

    try:
        dist.init_process_group("nccl", store=store, rank=stage.comm.rank,
                                world_size=stage.comm.size, timeout=_PATIENCE)  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise AbsentError(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    return f"torch.distributed says {(str(error).splitlines() or ['nothing'])[0]}"


class TorchEngine:
    """torch's collective. All-reduce and reduce work in place, as always in torch."""

    name, mail = "torch", False

    def __init__(self, stage: Stage, version: str) -> None:
        self._stage = stage
        self.version: str | None = version
        parts = stage.windows.layout
        if stage.collective != "reduce-scatter":
            parts = replace(parts, input=parts.output)
        self.windows = replace(stage.windows, layout=parts)

    def why_not(self, n: int) -> str | None:
        stage = self._stage
        return why_not_divisible(stage.collective, stage.reduction, stage.comm.size, n)

    def enqueue(self, n: int, call: int) -> Launch:
        import torch.distributed as dist

        stage, parts = self._stage, self.windows.layout
        op = getattr(dist.ReduceOp, _OPS[stage.reduction.op.name])
        given = self._tensor(parts.input, 0, n)
        if stage.collective == "all-reduce":
            return partial(dist.all_reduce, given, op=op)
        if stage.collective == "reduce":
            return partial(dist.reduce, given, 0, op=op)
        mine = output_slice(stage.collective, stage.reduction, stage.comm.rank, stage.comm.size, n)
        answer = self._tensor(parts.output, mine.start, mine.stop - mine.start)
        return partial(dist.reduce_scatter_tensor, answer, given, op=op)

    def run(self, n: int, call: int, late: int) -> None:
        with watchdog("a call of torch.distributed"):
            self.enqueue(n, call)()
            self._stage.backend.synchronize()

    def _tensor(self, part: int, start: int, count: int) -> Any:
        """A view of `count` elements of the window. bfloat16 is passed as int16, since the array
        interface does not know it."""
        import torch

        dtype = self._stage.reduction.dtype
        narrow = dtype.name == "bfloat16"
        place = self.windows.part(part + start * dtype.size, count * dtype.size)
        array = DeviceArray(place.address, (count,), np.dtype("int16" if narrow else dtype.storage))
        tensor = torch.as_tensor(array, device="cuda")
        return tensor.view(torch.bfloat16) if narrow else tensor
