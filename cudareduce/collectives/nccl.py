"""NCCL by ctypes, and engines that call it: directly, on symmetric memory, and through torch.

Existing Python bindings cannot load several NCCL libraries in one process. Only the functions in
use are declared. Names, numbers and layouts are those of nccl.h, unchanged since 2.10; functions
added later are optional. `version_in` loads a file in a worker process, since loading may crash or
hang.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cudareduce.backends.protocol import Launch, TimedBackend
from cudareduce.collectives.communicator import Communicator, agree, watchdog
from cudareduce.collectives.engines import Stage, StreamEngine
from cudareduce.collectives.kernels import vector_of
from cudareduce.collectives.names import Collective
from cudareduce.collectives.windows import Windows
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.contract import AbsentError
from cudareduce.libraries.interop import DeviceArray
from cudareduce.machine import packaged
from cudareduce.reduction.operators import Reduction
from cudareduce.results.record import Record
from cudareduce.temporary import temporary_folder
from cudareduce.workers import Exited, Limit, Parent, Raised, Returned, TimedOut, Worker

#: The library's file name.
FILE_NAME = "libnccl.so.2"
_DTYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
           "float32": 7, "float64": 8, "bfloat16": 9}  # fmt: skip
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
#: NCCL_WIN_COLL_SYMMETRIC: the window has the same offset on all ranks.
_COLL_SYMMETRIC = 1
_ADDRESS, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class UniqueId(ctypes.Structure):
    """Identifies a communicator; passed by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


_ARRAYS = (_ADDRESS, _ADDRESS, _SIZE, _INT, _INT)  # input, output, count, type, operator
#: Argument types of functions in every version, of those added in 2.19 and 2.27, and of functions
#: that return messages.
_FUNCTIONS = {
    "ncclGetVersion": (ctypes.POINTER(_INT),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_ADDRESS), _INT, UniqueId, _INT),
    "ncclCommDestroy": (_ADDRESS,),
    "ncclCommAbort": (_ADDRESS,),
    "ncclAllReduce": (*_ARRAYS, _ADDRESS, _ADDRESS),
    "ncclReduceScatter": (*_ARRAYS, _ADDRESS, _ADDRESS),
    "ncclReduce": (*_ARRAYS, _INT, _ADDRESS, _ADDRESS),
}
_OPTIONAL = {
    "ncclMemAlloc": (ctypes.POINTER(_ADDRESS), _SIZE),
    "ncclMemFree": (_ADDRESS,),
    "ncclCommWindowRegister": (_ADDRESS, _ADDRESS, _SIZE, ctypes.POINTER(_ADDRESS), _INT),
    "ncclCommWindowDeregister": (_ADDRESS, _ADDRESS),
}
_MESSAGES = {"ncclGetErrorString": (_INT,), "ncclGetLastError": (_ADDRESS,)}


@dataclass(frozen=True, slots=True)
class Nccl:
    """A loaded library and its version, such as 2.28.9."""

    library: ctypes.CDLL = field(repr=False)
    version: str

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises KernelFault with NCCL's message."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise KernelFault(f"{name} of NCCL {self.version} has failed: {self._why(code)}")

    def why_no_windows(self) -> str | None:
        """Why this version has no symmetric memory, or None."""
        if all(hasattr(self.library, name) for name in _OPTIONAL):
            return None
        return f"NCCL {self.version} has no symmetric memory, which came with 2.27"

    def _why(self, code: int) -> str:
        texts = [self.library.ncclGetErrorString(code)]
        with suppress(AttributeError):
            texts.append(self.library.ncclGetLastError(None))
        return "; ".join(text.decode(errors="replace").strip() for text in texts if text)


def load_nccl(path: Path | None) -> Nccl:
    """Load NCCL from a file, by default from NVIDIA's PyPI package or the system. Raises UsageError
    for a file that is not NCCL, and EnvironmentProblem if none is found. Turns multicast off unless
    the environment turns it on."""
    disable_multicast()
    if path is not None:
        if not path.is_file():
            raise UsageError(f"--nccl {path}: there is no such file: name a {FILE_NAME}")
        return _open_library(str(path.resolve()), f"--nccl {path}")
    for name in (*map(str, packaged(f"lib/{FILE_NAME}")), FILE_NAME):
        with suppress(UsageError):
            return _open_library(name, name)
    raise EnvironmentProblem(
        f"NCCL was not found: pip install nvidia-nccl-cu13, or name a {FILE_NAME} with --nccl"
    )


def disable_multicast() -> None:
    """Turn multicast (NVLink SHARP) off unless the environment sets it. NCCL reads the variable
    when it creates a communicator."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")


def _open_library(name: str, label: str) -> Nccl:
    try:
        library = ctypes.CDLL(name)
        for known in (_FUNCTIONS, _MESSAGES, _OPTIONAL):
            for function, types in known.items():
                if known is _FUNCTIONS or hasattr(library, function):
                    getattr(library, function).argtypes = types
        library.ncclGetErrorString.restype = ctypes.c_char_p
    except OSError as error:
        why = str(error).removeprefix(f"{name}: ")
        raise UsageError(f"{label} cannot be loaded ({why}): name a {FILE_NAME}") from None
    except AttributeError as error:
        missing = str(error).rpartition(" ")[2]
        raise UsageError(f"{label} is not NCCL: it has no {missing}: name a {FILE_NAME}") from None
    with suppress(AttributeError):
        library.ncclGetLastError.restype = ctypes.c_char_p
    code = _INT()
    if library.ncclGetVersion(ctypes.byref(code)):
        raise UsageError(f"{label} does not report its version: name another {FILE_NAME}")
    return Nccl(library, version_text(code.value))


def version_text(code: int) -> str:
    """A version code as text: 22809 is 2.28.9, and 2708, the form before 2.9, is 2.7.8."""
    large, rest = divmod(code, 10_000 if code >= 10_000 else 1000)
    return f"{large}.{rest // 100}.{rest % 100}"


@dataclass(frozen=True, slots=True)
class NcclCommunicator:
    """This rank's NCCL communicator, in the CUDA context that was current at its creation."""

    nccl: Nccl
    handle: ctypes.c_void_p

    def launch(
        self, collective: Collective, reduction: Reduction, source: int, result: int, count: int,
        stream: int,
    ) -> Launch:  # fmt: skip
        """Prepare a call on arrays at addresses `source` and `result`. `count` is the number of
        elements of the array, or of one rank's slice for reduce-scatter. The launch may raise
        KernelFault."""
        arrays = source, result, count, _DTYPES[reduction.dtype.name], _OPS[reduction.op.name]
        if collective == "reduce":
            return partial(self.nccl.call, "ncclReduce", *arrays, 0, self.handle, stream)
        name = {"all-reduce": "ncclAllReduce", "reduce-scatter": "ncclReduceScatter"}[collective]
        return partial(self.nccl.call, name, *arrays, self.handle, stream)


@contextmanager
def open_communicator(nccl: Nccl, comm: Communicator) -> Iterator[NcclCommunicator]:
    """An NCCL communicator of all ranks while the block runs. Raises RankLost, and AbsentError on
    all ranks if creation fails on one."""
    unique = comm.broadcast(agree(comm, lambda: _unique_id(nccl) if comm.rank == 0 else ""))
    member = agree(comm, lambda: _init_rank(nccl, comm, bytes.fromhex(unique)))
    try:
        yield member
    except BaseException:
        with watchdog("ncclCommAbort"):
            nccl.library.ncclCommAbort(member.handle)  # does not wait for other ranks
        raise
    comm.barrier()  # no rank leaves while another is in a call
    with watchdog("ncclCommDestroy"):
        nccl.library.ncclCommDestroy(member.handle)
    comm.barrier()


def _unique_id(nccl: Nccl) -> str:
    unique = UniqueId()
    nccl.call("ncclGetUniqueId", ctypes.byref(unique))
    return bytes(unique).hex()


def _init_rank(nccl: Nccl, comm: Communicator, unique: bytes) -> NcclCommunicator:
    handle = ctypes.c_void_p()
    arguments = ctypes.byref(handle), comm.size, UniqueId.from_buffer_copy(unique), comm.rank
    with watchdog("ncclCommInitRank"):
        nccl.call("ncclCommInitRank", *arguments)
    return NcclCommunicator(nccl, handle)


@contextmanager
def symmetric_memory(member: NcclCommunicator, comm: Communicator, nbytes: int) -> Iterator[int]:
    """The address of `nbytes` in a symmetric window while the block runs. Raises RankLost, and
    AbsentError on all ranks if registration fails on one."""
    nccl, at, window = member.nccl, ctypes.c_void_p(), ctypes.c_void_p()

    def register() -> None:
        with watchdog("ncclCommWindowRegister"):
            nccl.call("ncclCommWindowRegister", member.handle, at, nbytes, ctypes.byref(window),
                      _COLL_SYMMETRIC)  # fmt: skip
        if not window:  # NCCL reports success without a window
            raise AbsentError(
                f"NCCL {nccl.version} has no symmetric memory among these GPUs: see nvidia-smi "
                "topo -p2p n"
            )

    agree(comm, lambda: nccl.call("ncclMemAlloc", ctypes.byref(at), nbytes))
    agree(comm, register)
    assert at.value
    yield at.value
    comm.barrier()  # no rank frees memory that another may access
    # an error at the end must not lose the measurements
    with watchdog("ncclCommWindowDeregister"), suppress(KernelFault):
        nccl.call("ncclCommWindowDeregister", member.handle, window)
        nccl.call("ncclMemFree", at)


#: Limit for loading a library from a slow disk, in s.
_LIMIT_S = 60.0


def version_in(path: Path) -> str:
    """The version of the library in a file. Raises UsageError if it is not NCCL, or if loading it
    crashes or hangs."""
    worker = Worker(Parent.itself)
    try:
        event = worker.call(_load_version, path, Limit(_LIMIT_S))
    finally:
        worker.end()
    match event:
        case Returned(version):
            return str(version)
        case Raised(error):
            raise error
        case Exited():
            why = event.how
        case TimedOut():
            why = f"does not report its version within {_LIMIT_S:g} s"
    raise UsageError(f"--nccl {path} {why}: name another {FILE_NAME}")


def _load_version(_: Parent, path: Path) -> str:
    return load_nccl(path).version


Kind = Literal["nccl", "nccl-symm", "torch"]
KINDS: tuple[Kind, ...] = ("nccl", "nccl-symm", "torch")
#: Types that NCCL's symmetric kernels support, and those that torch.distributed does not pass to
#: NCCL.
_SYMMETRIC, _NOT_IN_TORCH = ("float32", "float16", "bfloat16"), ("uint32", "uint64")
_TORCH_OPS = {"sum": "SUM", "prod": "PRODUCT", "min": "MIN", "max": "MAX"}
#: The timeout of torch's process group.
_TORCH_LIMIT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class RequestedLibrary:
    """A library to measure: its name in tables, its kind, and the file given with --nccl, if
    any."""

    name: str
    kind: Kind
    file: Path | None = None


def select_libraries(names: Sequence[str], files: Sequence[Path]) -> tuple[RequestedLibrary, ...]:
    """The libraries among these engine names. Several NCCL files become one library each, numbered
    from 1."""
    libraries: list[RequestedLibrary] = []
    for kind in (kind for kind in KINDS if kind in names):
        if kind == "torch" or len(files) < 2:
            file = files[0] if files and kind != "torch" else None
            libraries.append(RequestedLibrary(kind, kind, file))
        else:
            libraries += [
                RequestedLibrary(f"{kind}:{k}", kind, file) for k, file in enumerate(files, 1)
            ]
    return tuple(libraries)


@contextmanager
def library_engines(
    requested: Sequence[RequestedLibrary], stage: Stage, backend: TimedBackend | None
) -> Iterator[tuple[list[StreamEngine], list[Record]]]:
    """The available library engines while the block runs, and skip records of the others. All ranks
    call it together. Raises RankLost."""
    engines: list[StreamEngine] = []
    skips: list[Record] = []
    start = {"nccl": nccl_engine, "nccl-symm": symmetric_engine, "torch": torch_engine}
    with ExitStack() as opened:
        # torch first: it would use a libnccl.so.2 that is already loaded in place of its own
        for library in sorted(requested, key=lambda library: library.kind != "torch"):
            cause, why = "unfit", _why_unfit(library.kind, stage)
            if not why and backend is None:
                cause, why = "machine", "needs a GPU for each rank"
            elif not why and backend:
                try:
                    engine = start[library.kind](library, stage, backend)
                    engines.append(opened.enter_context(engine))
                except AbsentError as error:
                    cause, why = "machine", str(error)
            if why:
                skip = stage.record(library.name, 0, verdict="skip", reason=why, cause=cause)
                skips.append(skip)
        yield engines, skips


def _why_unfit(kind: Kind, stage: Stage) -> str | None:
    """Why a library does not support a collective and reduction, or None."""
    op, dtype = stage.reduction.op.name, stage.reduction.dtype.name
    if kind == "torch" and dtype in _NOT_IN_TORCH:
        return f"torch.distributed does not support {dtype}"
    if kind == "nccl-symm" and stage.collective == "reduce":
        return "NCCL has no symmetric-memory kernels for reduce"
    if kind == "nccl-symm" and (op != "sum" or dtype not in _SYMMETRIC):
        return f"NCCL has symmetric-memory kernels only for sums of {', '.join(_SYMMETRIC)}"
    return None


class LibraryEngine(StreamEngine):
    """A library's collective. Libraries scatter equal slices only."""

    def why_not(self, n: int) -> str | None:
        stage = self.stage
        multiple = vector_of(stage.reduction) * stage.comm.size
        if stage.collective == "reduce-scatter" and n % multiple:
            why = "all ranks must receive the same number of elements"
            return f"{why}: give --n a multiple of {multiple}"
        return None


class NcclEngine(LibraryEngine):
    """NCCL's collective, on this rank's window or on symmetric memory."""

    def __init__(
        self, name: str, stage: Stage, backend: TimedBackend, member: NcclCommunicator,
        windows: Windows,
    ) -> None:  # fmt: skip
        super().__init__(stage)
        self.name, self.windows, self.version = name, windows, member.nccl.version
        self._backend, self._member = backend, member

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        stage, parts = self.stage, self.windows.layout
        output, count = parts.output, n
        if stage.collective == "reduce-scatter":
            share = self.stage.own_slice(n)
            output += share.start * stage.reduction.dtype.size
            count = share.stop - share.start
        return self._member.launch(
            stage.collective, stage.reduction, self.windows.part(parts.input, 0).address,
            self.windows.part(output, 0).address, count, self._backend.stream_handle,
        )  # fmt: skip


@contextmanager
def nccl_engine(
    library: RequestedLibrary, stage: Stage, backend: TimedBackend
) -> Iterator[NcclEngine]:
    """An engine that calls NCCL on the ranks' windows. Raises RankLost, and AbsentError on all
    ranks if NCCL is missing on one."""
    nccl = agree(stage.comm, lambda: load_nccl(library.file))
    with open_communicator(nccl, stage.comm) as member:
        yield NcclEngine(library.name, stage, backend, member, stage.windows)


@contextmanager
def symmetric_engine(
    library: RequestedLibrary, stage: Stage, backend: TimedBackend
) -> Iterator[NcclEngine]:
    """An engine that calls NCCL on symmetric memory. Raises as `nccl_engine` does."""
    nccl, comm = agree(stage.comm, lambda: load_nccl(library.file)), stage.comm
    why = agree(comm, nccl.why_no_windows)
    if why:
        raise AbsentError(why)
    parts = stage.windows.layout
    parts = replace(parts, nbytes=parts.mail)  # without the slots, which follow
    with (
        open_communicator(nccl, comm) as member,
        symmetric_memory(member, comm, parts.nbytes) as own,
    ):
        addresses = tuple(own if rank == comm.rank else 0 for rank in range(comm.size))
        yield NcclEngine(library.name, stage, backend, member, Windows(addresses, comm.rank, parts))


@contextmanager
def torch_engine(_: RequestedLibrary, stage: Stage, backend: TimedBackend) -> Iterator[TorchEngine]:
    """An engine that calls torch.distributed. Raises RankLost, and AbsentError on all ranks if
    torch is missing on one."""
    comm = stage.comm
    version = agree(comm, _torch_version)
    import torch
    import torch.distributed as dist

    disable_multicast()
    torch.cuda.set_device(torch.cuda.current_device())  # the device of the current context
    torch.cuda.set_stream(torch.cuda.ExternalStream(backend.stream_handle))
    with temporary_folder() as folder:  # rank 0's holds the file by which torch's ranks connect
        store = comm.broadcast(str(Path(folder, "store")))
        agree(comm, lambda: _init_process_group(stage, store))
        yield TorchEngine(stage, version)
        comm.barrier()  # no rank leaves while another is in a call
        # an error at the end must not lose the measurements
        with watchdog("torch.distributed's end"), suppress(RuntimeError):
            dist.destroy_process_group()
        comm.barrier()


def _torch_version() -> str:
    """The versions of torch and of its NCCL. Raises AbsentError."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        raise AbsentError("torch is not installed: pip install torch") from None
    if not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()):
        raise AbsentError(f"torch {torch.__version__} has no NCCL, or sees no GPU")
    return f"{torch.__version__} with NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}"


def _init_process_group(stage: Stage, store: str) -> None:
    import torch.distributed as dist

    try:
        dist.init_process_group("nccl", init_method=f"file://{store}", rank=stage.comm.rank,
                                world_size=stage.comm.size, timeout=_TORCH_LIMIT)  # fmt: skip
    except (RuntimeError, ValueError) as error:
        first_line = (str(error).splitlines() or ["nothing"])[0]
        raise AbsentError(f"torch.distributed reports: {first_line}") from None


class TorchEngine(LibraryEngine):
    """torch's collective on tensors that are views of this rank's window. In torch, all-reduce and
    reduce work in place."""

    name = "torch"

    def __init__(self, stage: Stage, version: str) -> None:
        super().__init__(stage)
        self.version = version
        parts = stage.windows.layout
        if stage.collective != "reduce-scatter":
            self.windows = replace(stage.windows, layout=replace(parts, input=parts.output))

    def enqueue(self, n: int, call: int, late: int = 0) -> Launch:
        import torch.distributed as dist

        stage, parts = self.stage, self.windows.layout
        op = getattr(dist.ReduceOp, _TORCH_OPS[stage.reduction.op.name])
        array = self._tensor(parts.input, 0, n)
        if stage.collective == "all-reduce":
            return partial(dist.all_reduce, array, op=op)
        if stage.collective == "reduce":
            return partial(dist.reduce, array, 0, op=op)
        share = self.stage.own_slice(n)
        result = self._tensor(parts.output, share.start, share.stop - share.start)
        return partial(dist.reduce_scatter_tensor, result, array, op=op)

    def _tensor(self, part: int, start: int, count: int) -> Any:
        """A tensor view of `count` elements of the window. bfloat16 is passed as int16, since
        `__cuda_array_interface__` does not support it."""
        import torch

        dtype = self.stage.reduction.dtype
        narrow = dtype.name == "bfloat16"
        address = self.windows.part(part + start * dtype.size, 0).address
        array = DeviceArray(address, (count,), np.dtype("int16" if narrow else dtype.storage))
        tensor = torch.as_tensor(array, device="cuda")
        return tensor.view(torch.bfloat16) if narrow else tensor
