"""CUB and Thrust: nvcc compiles one shared object per reduction, which is cached.

The headers are the newest CCCL on this machine, or a CCCL tree that the user names.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cudareduce.errors import UsageError
from cudareduce.launch.plan import Problem
from cudareduce.machine.host import installed, packaged
from cudareduce.peers.catalogue import Listing
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import Reduction

#: Installs newer headers than those of the toolkit.
INSTALL = "pip install nvidia-cuda-cccl"
_VERSION_HEADER = "cuda/std/__cccl/version.h"
_CUB_HEADER = "cub/device/device_reduce.cuh"
#: Where the include folders of a tree are: a checkout of NVIDIA/cccl, else one include folder.
_CHECKOUT = ("cub", "thrust", "libcudacxx/include")
_INCLUDE_FOLDERS = ("", "cccl", "include", "include/cccl")
_FOLDS = ("sum", "prod", "min", "max", "mean")
_OPS = (*_FOLDS, "argmin", "argmax")
#: The first release in which the caller chooses determinism and passes the workspace, and the
#: first in which Thrust leaves its result on the device.
_CHOOSES, _REDUCES_INTO = 3_005_000, 3_002_000


@dataclass(frozen=True, slots=True)
class Headers:
    """CCCL headers. `fingerprint` changes when a file of a tree named by the user changes."""

    folders: tuple[Path, ...]
    version: int
    fingerprint: str = ""

    @property
    def text(self) -> str:
        """The version as 3.4.0."""
        return f"{self.version // 1_000_000}.{self.version // 1000 % 1000}.{self.version % 1000}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeListing(Listing):
    """The CUB peers compiled with the headers of one tree; `suffix` ends their names."""

    tree: Path
    suffix: str

    def peers(self) -> tuple[Peer, ...]:
        """The peers that `names` select, or all."""
        peers = _cub(partial(tree_headers, self.tree), self.suffix)
        return tuple(p for p in peers if not self.names or p.name in self.names)


@cache
def tree_headers(tree: Path) -> Headers:
    """The headers of a CCCL source tree or include folder. Raises UsageError if it holds none."""
    if not tree.is_dir():
        raise UsageError(f"cub: there is no folder {tree}: name a CCCL source tree or its include")
    checkout = tuple(tree / name for name in _CHECKOUT)
    layouts = [checkout, *((tree / name,) for name in _INCLUDE_FOLDERS)]
    found = [layout for layout in layouts if (layout[0] / _CUB_HEADER).is_file()]
    if not found:
        raise UsageError(
            f"cub: {tree} holds no {_CUB_HEADER}: name a CCCL source tree or its include"
        )
    version = next(filter(None, map(_version, found[0])), 0)
    if not version:
        raise UsageError(f"cub: {tree} holds no {_VERSION_HEADER}: name CCCL 3.0 or newer")
    digest = hashlib.sha256()
    for folder in found[0]:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                status = path.stat()
                digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return Headers(found[0], version, digest.hexdigest())


@cache
def newest_headers() -> Headers:
    """The newest headers of PyPI packages and of nvcc's toolkit. Raises AbsentError."""
    found = [(_version(path), path) for path in _folders()]
    version, path = max(found, default=(0, Path()))
    if not version:
        raise AbsentError("the headers of CCCL were not found")
    return Headers((path,), version)


def load(needs: int = 0, headers: Callable[[], Headers] = newest_headers) -> str:
    """The version of CCCL. Raises AbsentError without nvcc, or if a call `needs` a newer one."""
    found = headers()
    if find_nvcc() is None:
        raise AbsentError("nvcc was not found, which compiles it")
    if found.version < needs:
        raise AbsentError(
            f"CCCL {found.text} is too old: {Headers((), needs).text} or newer has this call"
        )
    return found.text


def prepare(entry: str, headers: Callable[[], Headers], given: Given) -> Ready:
    """A call of one of the shared object's functions, with its workspace."""
    call = _function(entry, headers(), given)
    problem, nbytes = given.problem, ctypes.c_size_t(0)
    sizes = ctypes.c_longlong(problem.n), ctypes.c_longlong(problem.rows)
    pointers = ctypes.c_void_p(given.address), ctypes.c_void_p(given.out)
    stream = ctypes.c_void_p(given.stream)
    _check(call(None, ctypes.byref(nbytes), *pointers, *sizes, stream))
    workspace = ctypes.c_void_p(given.allocate(max(nbytes.value, 1)))
    arguments = (workspace, ctypes.byref(nbytes), *pointers, *sizes, stream)

    def run() -> None:
        code = call(*arguments)
        if code:
            _check(code)

    return Ready(run)


def prepare_as_called(entry: str, headers: Callable[[], Headers], given: Given) -> Ready:
    """A call that allocates its workspace, waits, and copies its result to the host."""
    call = _function(entry, headers(), given)
    result = np.empty(1, given.reduction.result_dtype)
    target, start = ctypes.c_void_p(result.ctypes.data), ctypes.c_void_p(given.address)
    count, stream = ctypes.c_longlong(given.problem.n), ctypes.c_void_p(given.stream)

    def run() -> None:
        _check(call(start, target, count, stream))

    return Ready(run, lambda: result)


def _function(entry: str, headers: Headers, given: Given) -> Any:
    library = _load(compile_library(given.reduction, given.arch, Path(given.folder), headers))
    return getattr(library, "rows" if entry == "run_to_run" and given.problem.rows != 1 else entry)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}: {_CUDA_ERRORS.get(code, 'see cudaError_t')}")


_CUDA_ERRORS = {
    2: "out of memory",
    35: "the driver is too old",
    209: "no kernel image",
    801: "not supported",
}


@cache
def find_nvcc() -> tuple[str, str] | None:
    """The compiler's path and release, or None."""
    return next(installed("nvcc"), None)


def _folders() -> Iterator[Path]:
    """Include folders of the CCCL that is installed."""
    yield from (path.parents[3] for path in packaged(f"include/cccl/{_VERSION_HEADER}"))
    yield from (
        path.parents[3] for path in packaged_beside(f"cccl/headers/include/{_VERSION_HEADER}")
    )
    nvcc = find_nvcc()
    if nvcc:
        root = _toolkit(nvcc[0])
        yield from (root / "include" / "cccl", *root.glob("targets/*/include/cccl"))


def packaged_beside(path: str) -> list[Path]:
    """A file of the `cuda` packages of PyPI, which lie apart from NVIDIA's others."""
    import importlib.util

    package = importlib.util.find_spec("cuda")
    folders = list(package.submodule_search_locations or ()) if package else []
    return [found for folder in folders for found in sorted(Path(folder).glob(path))]


def _toolkit(nvcc: str) -> Path:
    """The toolkit's folder as nvcc reports it; the nvcc on the PATH may be a wrapper."""
    done = subprocess.run(
        [nvcc, "-dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(.*)$", done.stderr, re.MULTILINE)
    return Path(top[1].strip()) if top else Path(nvcc).resolve().parent.parent


def _version(folder: Path) -> int:
    """CCCL_VERSION of an include folder, 0 if it has none."""
    try:
        text = (folder / _VERSION_HEADER).read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"#define CCCL_VERSION (\d+)", text)
    return int(found[1]) if found else 0


def flags(reduction: Reduction) -> list[str]:
    """The macros that select a reduction in cccl.cu."""
    dtype, acc, op = reduction.dtype, reduction.acc, reduction.op.name
    words = [f"-DPEER_IN={dtype.cpp}", f"-DPEER_ACC={acc.cpp}", f"-DPEER_OP_{op.upper()}"]
    if op in _FOLDS and dtype.size == 2:
        words.append("-DPEER_PACKED")
    if why_not_chosen("not_guaranteed", reduction) is None:
        words.append("-DPEER_CHOSEN")
    if why_not_chosen("gpu_to_gpu", reduction) is None:
        words.append("-DPEER_CHOSEN_FLOAT")
    return words


def why_not_chosen(mode: str, reduction: Reduction) -> str | None:
    """Why CUB does not take a reduction in this mode of determinism, or None if it does."""
    if reduction.op.name != "sum":
        return f"adds only in {mode}, and this is {reduction.op.name}"
    if reduction.dtype != reduction.acc:
        return f"adds {reduction.dtype.name} in its own type in {mode}, not in {reduction.acc.name}"
    if mode == "gpu_to_gpu" and reduction.dtype.kind != "float":
        return f"takes float32, float64 in {mode}, not {reduction.dtype.name}"
    return None


def compile_library(reduction: Reduction, arch: int, folder: Path, headers: Headers) -> Path:
    """The shared object of one reduction for sm_`arch`, compiled unless `folder` holds it. Raises
    RuntimeError with the compiler's first error."""
    nvcc = find_nvcc()
    assert nvcc is not None  # load() has checked
    source = Path(str(files("cudareduce.peers") / "device" / "cccl.cu"))
    # Two versions in one process: without -fno-gnu-unique the loader would merge their statics.
    words = ["-O3", "-std=c++17", f"-arch=sm_{arch}", "-shared", "-Xcompiler",
             "-fPIC,-fno-gnu-unique", *flags(reduction)]  # fmt: skip
    text = source.read_text(encoding="utf-8")
    key = repr((text, headers.version, headers.fingerprint, nvcc[1], words))
    made = folder / "cccl" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}")
        includes = [word for path in headers.folders for word in ("-I", str(path))]
        command = [nvcc[0], *words, *includes, "-o", str(part), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            raise RuntimeError("does not compile: " + (lines or ["nvcc printed no error"])[0])
        part.replace(made)
    return made


@cache
def _load(path: Path) -> Any:
    return ctypes.CDLL(str(path))


def _why_not(
    ops: tuple[str, ...], problem: Problem, *, rows: bool = False, mode: str = ""
) -> str | None:
    reason = takes(problem, ops, tuple(DTYPES), rows=rows)
    return reason or (why_not_chosen(mode, problem.reduction) if mode else None)


def _why_not_packed(problem: Problem) -> str | None:
    if problem.reduction.dtype.size != 2:
        return "packs types of 16 bits, of which CUB loads one at a time"
    if problem.n % 4 or problem.n > 2**31:
        return "packs four elements: multiples of 4 up to 2^31"
    return _why_not(_FOLDS, problem)


def _called(function: str, suffix: str, problem: Problem) -> str:
    """`DeviceReduce::Sum, run_to_run`, and what widens the elements where something does."""
    reduction = problem.reduction
    names = {"sum": "Sum", "mean": "Sum", "argmin": "ArgMin", "argmax": "ArgMax"}
    name = names.get(reduction.op.name, "Reduce")
    folds = reduction.op.name in _FOLDS
    if problem.rows != 1:
        function, name = "DeviceSegmentedReduce::", "Reduce" if folds else name
    elif folds and reduction.dtype != reduction.acc:
        name = f"TransformReduce to {reduction.acc.name}"
    stored = ", divided where it is stored" if reduction.op.name == "mean" else ""
    return f"{function}{name}{suffix}{stored}"


def _thrust_called(problem: Problem) -> str:
    names = {"argmin": "min_element", "argmax": "max_element"}
    return f"thrust::{names.get(problem.reduction.op.name, 'reduce')}, par"


def _plain(text: str, problem: Problem) -> str:
    return text


def _peer(name: str, headers: Callable[[], Headers], needs: int = 0, **fields: Any) -> Peer:
    found = partial(load, needs, headers)
    usual: dict[str, Any] = {
        "package": "nvidia-cuda-cccl", "install": INSTALL, "context": "any", "load": found,
        "version_here": found,
    }  # fmt: skip
    return Peer(name=name, **(usual | fields))


def _cub(headers: Callable[[], Headers] = newest_headers, suffix: str = "") -> tuple[Peer, ...]:
    """The calls of CUB with these headers; `suffix` ends their names."""
    peer = partial(_peer, headers=headers)
    return (
        peer(
            f"cub:run_to_run{suffix}", why_not=partial(_why_not, _OPS, rows=True),
            called=partial(_called, "DeviceReduce::", ", run_to_run"),
            prepare=partial(prepare, "run_to_run", headers),
        ),
        peer(
            f"cub:not_guaranteed{suffix}", needs=_CHOOSES,
            why_not=partial(_why_not, _OPS, mode="not_guaranteed"),
            called=partial(_plain, "DeviceReduce::Sum, not_guaranteed"),
            prepare=partial(prepare, "not_guaranteed", headers),
        ),
        peer(
            f"cub:gpu_to_gpu{suffix}", needs=_CHOOSES,
            why_not=partial(_why_not, _OPS, mode="gpu_to_gpu"),
            called=partial(_plain, "DeviceReduce::Sum, gpu_to_gpu"),
            prepare=partial(prepare, "gpu_to_gpu", headers),
        ),
        peer(
            f"cub:packed{suffix}", why_not=_why_not_packed,
            called=partial(_plain, "DeviceReduce::TransformReduce of four elements a word"),
            prepare=partial(prepare, "packed", headers), alignment=8,
        ),
        peer(
            f"cub:as_called{suffix}", why_not=partial(_why_not, _OPS), as_called=True,
            called=partial(_called, "cudaMalloc, DeviceReduce::", ", cudaMemcpy, cudaFree"),
            prepare=partial(prepare_as_called, "cub_as_called", headers),
        ),
    )  # fmt: skip


CUB = _cub()
THRUST = (
    _peer(
        "thrust", newest_headers, needs=_REDUCES_INTO, why_not=partial(_why_not, _FOLDS),
        called=partial(_plain, "thrust::reduce_into, par_nosync"),
        prepare=partial(prepare, "reduce_into", newest_headers),
    ),
    _peer(
        "thrust:as_called", newest_headers, why_not=partial(_why_not, _OPS), as_called=True,
        called=_thrust_called,
        prepare=partial(prepare_as_called, "thrust_as_called", newest_headers),
    ),
)  # fmt: skip
