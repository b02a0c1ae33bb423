"""Libraries as engines: NCCL, NCCL on symmetric memory, and torch.distributed.

All need a GPU per rank. One that is missing, or does not support the reduction, is skipped on all
ranks with the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from cudareduce.backend import Launch, TimedBackend
from cudareduce.peers.contract import AbsentError
from cudareduce.several.communicator import agree, watchdog
from cudareduce.several.engines import Stage, StreamEngine
from cudareduce.several.inputs import output_slice, why_not_divisible
from cudareduce.several.nccl import NcclCommunicator, communicator, load, symmetric_memory
from cudareduce.several.windows import Windows

Kind = Literal["nccl", "nccl-symm", "torch"]
KINDS: tuple[Kind, ...] = ("nccl", "nccl-symm", "torch")
#: Types that NCCL's symmetric kernels support.
_SYMMETRIC = ("float32", "float16", "bfloat16")
#: Types that torch.distributed does not pass to NCCL.
_NOT_IN_TORCH = ("uint32", "uint64")
_NO_GPU = "takes a GPU for each rank, and nothing of it is tried here"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A requested library: its name in tables, and the file of its NCCL if one is named."""

    name: str
    kind: Kind
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Why an engine is not tried."""

    engine: str
    reason: str
    cause: Literal["machine", "unfit"]


def select_libraries(names: Sequence[str], files: Sequence[Path]) -> tuple[Wanted, ...]:
    """The libraries among these engine names; with several NCCL files one per file, numbered."""
    found = []
    for kind in (kind for kind in KINDS if kind in names):
        if kind == "torch" or not files:
            found.append(Wanted(kind, kind))
            continue
        numbers = [f":{k}" for k in range(1, len(files) + 1)] if len(files) > 1 else [""]
        found += [Wanted(kind + number, kind, file)
                  for number, file in zip(numbers, files, strict=True)]  # fmt: skip
    return tuple(found)


@contextmanager
def library_engines(
    asked: Sequence[Wanted], stage: Stage, backend: TimedBackend | None
) -> Iterator[tuple[list[StreamEngine], list[Skip]]]:
    """The available library engines while the block runs, and why others are skipped. All ranks
    call it together. Raises RankLost."""
    engines: list[StreamEngine] = []
    skips: list[Skip] = []
    with ExitStack() as opened:
        # torch first: it would use a libnccl.so.2 that is already loaded in place of its own
        for one in sorted(asked, key=lambda one: one.kind != "torch"):
            unfit = _unfit(one.kind, stage)
            if backend is None or unfit:
                skips.append(Skip(one.name, unfit or _NO_GPU, "unfit" if unfit else "machine"))
                continue
            try:
                engines.append(opened.enter_context(_opened(one, stage, backend)))
            except AbsentError as error:
                skips.append(Skip(one.name, str(error), "machine"))
        yield engines, skips


def _unfit(kind: Kind, stage: Stage) -> str | None:
    """Why a library does not support a collective and reduction, or None."""
    op, dtype = stage.reduction.op.name, stage.reduction.dtype.name
    if kind == "torch" and dtype in _NOT_IN_TORCH:
        return f"torch.distributed takes no {dtype}"
    if kind == "nccl-symm" and stage.collective == "reduce":
        return "NCCL has no kernels of symmetric memory for reduce"
    if kind == "nccl-symm" and (op != "sum" or dtype not in _SYMMETRIC):
        return f"NCCL has kernels of symmetric memory for sums of {', '.join(_SYMMETRIC)} alone"
    return None


@contextmanager
def _opened(one: Wanted, stage: Stage, backend: TimedBackend) -> Iterator[StreamEngine]:
    """One engine. Raises AbsentError if it is not available."""
    if one.kind == "torch":
        from cudareduce.several.torch_engine import torch_engine

        with torch_engine(stage, backend) as engine:
            yield engine
        return
    nccl = agree(stage.comm, lambda: load(one.file))
    if one.kind == "nccl":
        with communicator(nccl, stage.comm) as member:
            yield NcclEngine(one.name, stage, backend, member, stage.windows)
        return
    why = agree(stage.comm, nccl.why_no_windows)
    if why:
        raise AbsentError(why)
    parts = replace(
        stage.windows.layout, nbytes=stage.windows.layout.mail
    )  # without mail and slots
    with (
        communicator(nccl, stage.comm) as member,
        symmetric_memory(member, stage.comm, parts.nbytes) as address,
    ):
        rank = stage.comm.rank
        places = tuple(address if each == rank else 0 for each in range(stage.comm.size))
        yield NcclEngine(one.name, stage, backend, member, Windows(places, rank, parts))


class NcclEngine:
    """NCCL's collective, on this rank's window or on symmetric memory."""

    mail = False

    def __init__(
        self, name: str, stage: Stage, backend: TimedBackend, member: NcclCommunicator,
        windows: Windows,
    ) -> None:  # fmt: skip
        self.name, self.windows = name, windows
        self.version: str | None = member.nccl.version
        self._stage, self._backend, self._member = stage, backend, member

    def why_not(self, n: int) -> str | None:
        stage = self._stage
        return why_not_divisible(stage.collective, stage.reduction, stage.comm.size, n)

    def enqueue(self, n: int, call: int) -> Launch:
        stage = self._stage
        mine = output_slice(
            stage.collective, stage.reduction, self.windows.rank, stage.comm.size, n
        )
        places, scattered = self.windows.layout, stage.collective == "reduce-scatter"
        at = mine.start * stage.reduction.dtype.size if scattered else 0
        return self._member.launch(
            stage.collective, stage.reduction,
            self.windows.part(places.input, 0).address,
            self.windows.part(places.output + at, 0).address,
            mine.stop - mine.start if scattered else n, self._backend.stream_handle,
        )  # fmt: skip

    def run(self, n: int, call: int, late: int) -> None:
        with watchdog(f"a call of {self.name}"):
            self.enqueue(n, call)()
            self._backend.synchronize()
