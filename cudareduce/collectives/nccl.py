"""NCCL by ctypes: several libraries can be loaded in one process, which bindings cannot.

Declares only what is used here. Names, numbers and layouts are those of nccl.h, unchanged since
2.10; functions that came later are looked up before they are called. `version_in` loads a file in a
worker process, since it may crash or hang.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cudareduce.backend import Launch
from cudareduce.collectives.communicator import Communicator, agree, watchdog
from cudareduce.collectives.names import Collective
from cudareduce.errors import EnvironmentProblem, KernelFault, UsageError
from cudareduce.libraries.contract import AbsentError
from cudareduce.machine.host import packaged
from cudareduce.reduction.operators import Reduction
from cudareduce.workers import Exited, Limit, Parent, Raised, Returned, TimedOut, Worker

#: The library's file name.
NAME = "libnccl.so.2"
_DTYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
           "float32": 7, "float64": 8, "bfloat16": 9}  # fmt: skip
_OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3}
#: NCCL_WIN_COLL_SYMMETRIC: the window has the same offset on all ranks.
_COLL_SYMMETRIC = 1
_AT, _NUMBER, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class UniqueId(ctypes.Structure):
    """Identifies a communicator; passed by value."""

    _fields_ = (("internal", ctypes.c_byte * 128),)


_ARRAYS = (_AT, _AT, _SIZE, _NUMBER, _NUMBER)  # input, output, count, type, operator
#: Argument types of functions that every version has, and of those added in 2.13, 2.19 and 2.27.
_FUNCTIONS = {
    "ncclGetVersion": (ctypes.POINTER(_NUMBER),),
    "ncclGetUniqueId": (ctypes.POINTER(UniqueId),),
    "ncclCommInitRank": (ctypes.POINTER(_AT), _NUMBER, UniqueId, _NUMBER),
    "ncclCommDestroy": (_AT,),
    "ncclCommAbort": (_AT,),
    "ncclAllReduce": (*_ARRAYS, _AT, _AT),
    "ncclReduceScatter": (*_ARRAYS, _AT, _AT),
    "ncclReduce": (*_ARRAYS, _NUMBER, _AT, _AT),
}
_LATER = {
    "ncclMemAlloc": (ctypes.POINTER(_AT), _SIZE),
    "ncclMemFree": (_AT,),
    "ncclCommWindowRegister": (_AT, _AT, _SIZE, ctypes.POINTER(_AT), _NUMBER),
    "ncclCommWindowDeregister": (_AT, _AT),
}
_TEXTS = {"ncclGetErrorString": (_NUMBER,), "ncclGetLastError": (_AT,)}


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
        """Why it has no symmetric memory, or None."""
        if all(hasattr(self.library, name) for name in _LATER):
            return None
        return f"NCCL {self.version} has no symmetric memory, which came with 2.27"

    def _why(self, code: int) -> str:
        texts = [self.library.ncclGetErrorString(code)]
        with suppress(AttributeError):
            texts.append(self.library.ncclGetLastError(None))
        return "; ".join(text.decode(errors="replace").strip() for text in texts if text)


def load(path: Path | None) -> Nccl:
    """The library of a file, else of NVIDIA's PyPI package or the system. Raises UsageError for a
    file that is not NCCL, and EnvironmentProblem if there is none. Multicast stays off unless the
    environment turns it on."""
    disable_multicast()
    if path is not None:
        if not path.is_file():
            raise UsageError(f"--nccl {path}: there is no such file: name a {NAME}")
        return _open_library(str(path.resolve()), f"--nccl {path}")
    for name in (*map(str, packaged(f"lib/{NAME}")), NAME):
        with suppress(UsageError):
            return _open_library(name, name)
    raise EnvironmentProblem(
        f"there is no NCCL here: pip install nvidia-nccl-cu13, or name a {NAME} with --nccl"
    )


def disable_multicast() -> None:
    """Turn multicast off unless the environment says otherwise. NCCL reads this when a communicator
    is made."""
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")


def _open_library(name: str, said: str) -> Nccl:
    """Load the library `name`. Raises UsageError."""
    try:
        library = ctypes.CDLL(name)
        for known in (_FUNCTIONS, _TEXTS, _LATER):
            for function, types in known.items():
                if known is _FUNCTIONS or hasattr(library, function):
                    getattr(library, function).argtypes = types
        library.ncclGetErrorString.restype = ctypes.c_char_p
    except OSError as error:
        why = str(error).removeprefix(f"{name}: ")
        raise UsageError(f"{said} cannot be loaded ({why}): name a {NAME}") from None
    except AttributeError as error:
        missing = str(error).rpartition(" ")[2]
        raise UsageError(f"{said} is no NCCL, as it has no {missing}: name a {NAME}") from None
    with suppress(AttributeError):
        library.ncclGetLastError.restype = ctypes.c_char_p
    code = _NUMBER()
    if library.ncclGetVersion(ctypes.byref(code)):
        raise UsageError(f"{said} does not tell its version: name another {NAME}")
    return Nccl(library, version_text(code.value))


def version_text(code: int) -> str:
    """A version code as text: 22809 is 2.28.9, and 2708, the form before 2.9, is 2.7.8."""
    large, rest = divmod(code, 10_000 if code >= 10_000 else 1000)
    return f"{large}.{rest // 100}.{rest % 100}"


@dataclass(frozen=True, slots=True)
class NcclCommunicator:
    """This rank's communicator, in the context that was current when it was made."""

    nccl: Nccl
    handle: ctypes.c_void_p

    def launch(
        self, collective: Collective, reduction: Reduction, given: int, answer: int, count: int,
        stream: int,
    ) -> Launch:  # fmt: skip
        """A prepared call on arrays at these addresses. `count` is of the array, or for
        reduce-scatter of a share. The launch may raise KernelFault."""
        arrays = given, answer, count, _DTYPES[reduction.dtype.name], _OPS[reduction.op.name]
        if collective == "reduce":
            return partial(self.nccl.call, "ncclReduce", *arrays, 0, self.handle, stream)
        name = {"all-reduce": "ncclAllReduce", "reduce-scatter": "ncclReduceScatter"}[collective]
        return partial(self.nccl.call, name, *arrays, self.handle, stream)


@contextmanager
def communicator(nccl: Nccl, comm: Communicator) -> Iterator[NcclCommunicator]:
    """A communicator of all ranks. Raises RankLost, and AbsentError on all ranks if it fails on
    one."""
    unique = comm.broadcast(agree(comm, lambda: _unique_id(nccl) if comm.rank == 0 else ""))
    found = agree(comm, lambda: _begin(nccl, comm, bytes.fromhex(unique)))
    try:
        yield found
    except BaseException:
        with watchdog("ncclCommAbort"):
            nccl.library.ncclCommAbort(found.handle)  # does not wait for other ranks
        raise
    comm.barrier()  # no rank leaves while another is in a call
    with watchdog("ncclCommDestroy"):
        nccl.library.ncclCommDestroy(found.handle)
    comm.barrier()


def _unique_id(nccl: Nccl) -> str:
    made = UniqueId()
    nccl.call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made).hex()


def _begin(nccl: Nccl, comm: Communicator, unique: bytes) -> NcclCommunicator:
    handle = ctypes.c_void_p()
    wanted = ctypes.byref(handle), comm.size, UniqueId.from_buffer_copy(unique), comm.rank
    with watchdog("ncclCommInitRank"):
        nccl.call("ncclCommInitRank", *wanted)
    return NcclCommunicator(nccl, handle)


@contextmanager
def symmetric_memory(member: NcclCommunicator, comm: Communicator, nbytes: int) -> Iterator[int]:
    """The address of `nbytes` in a symmetric window. Raises RankLost, and AbsentError on all ranks
    if it fails on one."""
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
    """The version of the library in a file. Raises UsageError if it is not NCCL, ends its process
    or hangs."""
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
            why = f"does not tell its version within {_LIMIT_S:g} s"
    raise UsageError(f"--nccl {path} {why}: name another {NAME}")


def _load_version(_: Parent, path: Path) -> str:
    return load(path).version
