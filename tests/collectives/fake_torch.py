"""A fake torch.distributed on top of the fake NCCL: the functions that are called, as in torch
2.15."""

from __future__ import annotations

import ctypes
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from cudareduce.collectives.nccl import Nccl, UniqueId, load_nccl

_TYPES = {"|i1": 0, "|u1": 1, "<i4": 2, "<i8": 4, "<f2": 6, "<f4": 7, "<f8": 8, "bfloat16": 9}
_OPS = {"SUM": 0, "PRODUCT": 1, "MAX": 2, "MIN": 3}


@dataclass(frozen=True)
class Tensor:
    """A view of device memory."""

    address: int
    count: int
    kind: str

    def view(self, kind: str) -> Tensor:
        return replace(self, kind=kind)


@dataclass
class Group:
    """The process group of all ranks, and the current stream."""

    nccl: Nccl
    stream: int = 0
    comm: ctypes.c_void_p | None = None

    def set_stream(self, stream: int) -> None:
        self.stream = stream

    def begin(
        self, backend: str, init_method: str, rank: int, world_size: int, timeout: object
    ) -> None:
        """Rank 0 writes the id of the communicator to the file that all ranks name."""
        assert backend == "nccl"
        path = Path(init_method.removeprefix("file://"))
        unique = UniqueId()
        if rank == 0:
            self.nccl.call("ncclGetUniqueId", ctypes.byref(unique))
            path.with_name("part").write_bytes(bytes(unique))
            path.with_name("part").rename(path)
        while not path.exists():
            time.sleep(0.01)
        unique = UniqueId.from_buffer_copy(path.read_bytes())
        self.comm = ctypes.c_void_p()
        self.nccl.call("ncclCommInitRank", ctypes.byref(self.comm), world_size, unique, rank)

    def end(self) -> None:
        self.nccl.call("ncclCommDestroy", self.comm)

    def all_reduce(self, tensor: Tensor, op: int) -> None:
        self._call("ncclAllReduce", tensor, tensor, tensor.count, op)

    def reduce(self, tensor: Tensor, dst: int, op: int) -> None:
        self._call("ncclReduce", tensor, tensor, tensor.count, op, dst)

    def reduce_scatter_tensor(self, output: Tensor, given: Tensor, op: int) -> None:
        self._call("ncclReduceScatter", given, output, output.count, op)

    def _call(self, name: str, given: Tensor, output: Tensor, count: int, *more: int) -> None:
        kind = _TYPES[given.kind]
        self.nccl.call(name, given.address, output.address, count, kind, *more, self.comm,
                       self.stream)  # fmt: skip


def as_tensor(array: Any, device: str) -> Tensor:
    interface = array.__cuda_array_interface__
    assert (device, interface["version"]) == ("cuda", 3)
    return Tensor(interface["data"][0], interface["shape"][0], interface["typestr"])


def install(library: Path) -> None:
    """Make `import torch` return the fake."""
    group = Group(load_nccl(library))
    torch, cuda, distributed = (
        ModuleType(name) for name in ("torch", "torch.cuda", "torch.distributed")
    )
    vars(torch).update(
        __version__="2.15.0", cuda=cuda, distributed=distributed, as_tensor=as_tensor,
        bfloat16="bfloat16",
    )  # fmt: skip
    vars(cuda).update(
        is_available=lambda: True, current_device=lambda: 0, set_device=lambda device: None,
        nccl=SimpleNamespace(version=lambda: (2, 28, 9)), ExternalStream=int,
        set_stream=group.set_stream,
    )  # fmt: skip
    vars(distributed).update(
        is_available=lambda: True, is_nccl_available=lambda: True,
        ReduceOp=SimpleNamespace(**_OPS), init_process_group=group.begin,
        destroy_process_group=group.end, all_reduce=group.all_reduce, reduce=group.reduce,
        reduce_scatter_tensor=group.reduce_scatter_tensor,
    )  # fmt: skip
    sys.modules |= {module.__name__: module for module in (torch, cuda, distributed)}
