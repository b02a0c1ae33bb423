"""CUB and Thrust: nvcc compiles one shared object per reduction, which is cached.

The headers are the newest CCCL on this machine, or a CCCL tree that the user names.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
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
from cudareduce.libraries.catalogue import Listing
from cudareduce.libraries.contract import AbsentError, CallRequest, Library, PreparedCall
from cudareduce.machine import installed, packaged
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import Reduction

_VERSION_HEADER = "cuda/std/__cccl/version.h"
_CUB_HEADER = "cub/device/device_reduce.cuh"
#: Include folders of a tree: of a checkout of NVIDIA/cccl, or the only one of an installation.
_CHECKOUT = ("cub", "thrust", "libcudacxx/include")
_INCLUDE_FOLDERS = ("", "cccl", "include", "include/cccl")
_FOLDS = ("sum", "prod", "min", "max", "mean")
_OPS = (*_FOLDS, "argmin", "argmax")
#: The first CCCL with a choice of determinism in CUB, and the first with thrust::reduce_into, which
#: leaves the result on the device.
_CUB_DETERMINISM, _THRUST_REDUCE_INTO = 3_005_000, 3_002_000
_CUDA_ERRORS = {
    2: "out of memory", 35: "the driver is too old", 209: "no kernel image", 801: "not supported",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Headers:
    """CCCL headers: include folders and version. `fingerprint` identifies the content of a tree
    given by the user."""

    folders: tuple[Path, ...]
    version: int
    fingerprint: str = ""

    @property
    def text(self) -> str:
        return f"{self.version // 1_000_000}.{self.version // 1000 % 1000}.{self.version % 1000}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeListing(Listing):
    """The calls of CUB compiled with the headers of `tree`. `suffix` is appended to their names."""

    tree: Path
    suffix: str

    def libraries(self) -> tuple[Library, ...]:
        """The calls in `names`; all if that is empty."""
        calls = _cub(partial(tree_headers, self.tree), self.suffix)
        return tuple(call for call in calls if not self.names or call.name in self.names)


@cache
def tree_headers(tree: Path) -> Headers:
    """The headers of a CCCL source tree or include folder. Raises UsageError if there are none."""
    if not tree.is_dir():
        raise UsageError(f"cub: there is no folder {tree}: name a CCCL source tree or its include")
    layouts = [_CHECKOUT, *((name,) for name in _INCLUDE_FOLDERS)]
    layout = next((names for names in layouts if (tree / names[0] / _CUB_HEADER).is_file()), None)
    if layout is None:
        raise UsageError(
            f"cub: {tree} holds no {_CUB_HEADER}: name a CCCL source tree or its include"
        )
    folders = tuple(tree / name for name in layout)
    version = next(filter(None, map(_version, folders)), 0)
    if not version:
        raise UsageError(f"cub: {tree} holds no {_VERSION_HEADER}: name CCCL 3.0 or newer")
    digest = hashlib.sha256()
    for path in (path for folder in folders for path in sorted(folder.rglob("*"))):
        if path.is_file():
            status = path.stat()
            digest.update(f"{path}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return Headers(folders, version, digest.hexdigest())


@cache
def newest_headers() -> Headers:
    """The newest CCCL headers among PyPI packages and nvcc's toolkit. Raises AbsentError."""
    version, path = max(((_version(path), path) for path in _folders()), default=(0, Path()))
    if not version:
        raise AbsentError("the headers of CCCL were not found")
    return Headers((path,), version)


def _folders() -> Iterator[Path]:
    """Include folders of installed CCCL headers."""
    for path in packaged(f"include/cccl/{_VERSION_HEADER}"):
        yield path.parents[3]
    package = importlib.util.find_spec("cuda")  # of the package cuda-cccl
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield Path(folder) / "cccl" / "headers" / "include"
    nvcc = find_nvcc()
    if nvcc:
        root = _toolkit(nvcc[0])
        yield from (root / "include" / "cccl", *root.glob("targets/*/include/cccl"))


def _toolkit(nvcc: str) -> Path:
    """The toolkit's folder as nvcc reports it; the nvcc on the PATH may be a wrapper."""
    done = subprocess.run(
        [nvcc, "-dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(.*)$", done.stderr, re.MULTILINE)
    return Path(top[1].strip()) if top else Path(nvcc).resolve().parent.parent


def _version(folder: Path) -> int:
    try:
        text = (folder / _VERSION_HEADER).read_text(encoding="utf-8")
    except OSError:
        return 0
    version = re.search(r"#define CCCL_VERSION (\d+)", text)
    return int(version[1]) if version else 0


@cache
def find_nvcc() -> tuple[str, str] | None:
    """Path and release of nvcc; None if it is not installed or does not work."""
    return next(installed("nvcc"), None)


def load(needs: int = 0, headers: Callable[[], Headers] = newest_headers) -> str:
    """The version of CCCL. Raises AbsentError without nvcc, or if CCCL is older than `needs`."""
    cccl = headers()
    if find_nvcc() is None:
        raise AbsentError("nvcc was not found, which compiles it")
    if cccl.version < needs:
        raise AbsentError(
            f"CCCL {cccl.text} is too old: {Headers((), needs).text} or newer has this call"
        )
    return cccl.text


def flags(reduction: Reduction) -> list[str]:
    dtype, acc, op = reduction.dtype, reduction.acc, reduction.op.name
    words = [f"-DPEER_IN={dtype.cpp}", f"-DPEER_ACC={acc.cpp}", f"-DPEER_OP_{op.upper()}"]
    if op in _FOLDS and dtype.size == 2:
        words.append("-DPEER_PACKED")
    if _why_not_in_mode("not_guaranteed", reduction) is None:
        words.append("-DPEER_CHOSEN")
    if _why_not_in_mode("gpu_to_gpu", reduction) is None:
        words.append("-DPEER_CHOSEN_FLOAT")
    return words


def compile_library(reduction: Reduction, arch: int, folder: Path, headers: Headers) -> Path:
    """Compile cccl.cu for one reduction and sm_`arch`, unless `folder` has the result; the path of
    the shared object. Raises RuntimeError with the compiler's first error."""
    nvcc = find_nvcc()
    assert nvcc is not None  # load() has checked
    source = Path(str(files("cudareduce.libraries") / "device" / "cccl.cu"))
    # Without -fno-gnu-unique the loader would merge the statics of two versions in one process.
    words = ["-O3", "-std=c++17", f"-arch=sm_{arch}", "-shared", "-Xcompiler",
             "-fPIC,-fno-gnu-unique", *flags(reduction)]  # fmt: skip
    text = source.read_text(encoding="utf-8")
    key = repr((text, headers.version, headers.fingerprint, nvcc[1], words))
    path = folder / "cccl" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        includes = [word for path in headers.folders for word in ("-I", str(path))]
        command = [nvcc[0], *words, *includes, "-o", str(part), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            raise RuntimeError("does not compile: " + (lines or ["nvcc printed no error"])[0])
        part.replace(path)
    return path


@cache
def _load_library(path: Path) -> Any:
    return ctypes.CDLL(str(path))


def _function(entry: str, headers: Headers, request: CallRequest) -> Any:
    path = compile_library(request.reduction, request.arch, Path(request.folder), headers)
    is_rows = entry == "run_to_run" and request.problem.rows != 1
    return getattr(_load_library(path), "rows" if is_rows else entry)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}: {_CUDA_ERRORS.get(code, 'see cudaError_t')}")


def _prepare(entry: str, headers: Callable[[], Headers], request: CallRequest) -> PreparedCall:
    """Prepare a call of a function of the shared object, and allocate its workspace."""
    call, nbytes = _function(entry, headers(), request), ctypes.c_size_t(0)
    words = (
        ctypes.byref(nbytes), ctypes.c_void_p(request.address), ctypes.c_void_p(request.out),
        ctypes.c_longlong(request.problem.n), ctypes.c_longlong(request.problem.rows),
        ctypes.c_void_p(request.stream),
    )  # fmt: skip
    _check(call(None, *words))
    workspace = ctypes.c_void_p(request.allocate(max(nbytes.value, 1)))

    def run() -> None:
        code = call(workspace, *words)
        if code:
            _check(code)

    return PreparedCall(run)


def _prepare_as_called(
    entry: str, headers: Callable[[], Headers], request: CallRequest
) -> PreparedCall:
    """Prepare a call that allocates its workspace, waits, and copies its result to the host."""
    call = _function(entry, headers(), request)
    result = np.empty(1, request.reduction.result_dtype)
    words = (
        ctypes.c_void_p(request.address), ctypes.c_void_p(result.ctypes.data),
        ctypes.c_longlong(request.problem.n), ctypes.c_void_p(request.stream),
    )  # fmt: skip
    return PreparedCall(lambda: _check(call(*words)), lambda: result)


def _why_not_in_mode(mode: str, reduction: Reduction) -> str | None:
    """Why CUB does not support a reduction with this determinism, or None."""
    if reduction.op.name != "sum":
        return f"supports only sums in {mode}, not {reduction.op.name}"
    if reduction.dtype != reduction.acc:
        return f"adds {reduction.dtype.name} in its own type in {mode}, not in {reduction.acc.name}"
    if mode == "gpu_to_gpu" and reduction.dtype.kind != "float":
        return f"supports float32, float64 in {mode}, not {reduction.dtype.name}"
    return None


def _why_not_packed(problem: Problem) -> str | None:
    if problem.reduction.dtype.size != 2:
        return "packs 16-bit types, which CUB loads one at a time"
    if problem.n % 4 or problem.n > 2**31:
        return "packs four elements: supports multiples of 4 up to 2^31"
    return None


def _cub_call(function: str, suffix: str, problem: Problem) -> str:
    """The text that names a call of CUB in tables, such as `DeviceReduce::Sum, run_to_run`."""
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


def _thrust_call(problem: Problem) -> str:
    names = {"argmin": "min_element", "argmax": "max_element"}
    return f"thrust::{names.get(problem.reduction.op.name, 'reduce')}, par"


def _library(
    name: str, called: Callable[[Problem], str] | str, prepare: Callable[..., PreparedCall],
    entry: str, headers: Callable[[], Headers], needs: int = 0, **fields: Any,
) -> Library:  # fmt: skip
    version = partial(load, needs, headers)
    defaults: dict[str, Any] = {"ops": _OPS, "takes_rows": False}
    return Library(
        name=name, package="nvidia-cuda-cccl", install="pip install nvidia-cuda-cccl",
        context="any", dtypes=tuple(DTYPES), load=version, version_here=version,
        called=(lambda problem: called) if isinstance(called, str) else called,
        prepare=partial(prepare, entry, headers), **defaults | fields,
    )  # fmt: skip


def _cub(headers: Callable[[], Headers] = newest_headers, suffix: str = "") -> tuple[Library, ...]:
    """The calls of CUB with these headers. `suffix` is appended to their names."""
    modes = tuple(
        _library(
            f"cub:{mode}{suffix}", f"DeviceReduce::Sum, {mode}", _prepare, mode, headers,
            _CUB_DETERMINISM,
            refuses=lambda problem, mode=mode: _why_not_in_mode(mode, problem.reduction),
        )
        for mode in ("not_guaranteed", "gpu_to_gpu")
    )  # fmt: skip
    return (
        _library(
            f"cub:run_to_run{suffix}", partial(_cub_call, "DeviceReduce::", ", run_to_run"),
            _prepare, "run_to_run", headers, takes_rows=True,
        ),
        *modes,
        _library(
            f"cub:packed{suffix}", "DeviceReduce::TransformReduce of four elements a word",
            _prepare, "packed", headers, ops=_FOLDS, refuses=_why_not_packed, alignment=8,
        ),
        _library(
            f"cub:as_called{suffix}",
            partial(_cub_call, "cudaMalloc, DeviceReduce::", ", cudaMemcpy, cudaFree"),
            _prepare_as_called, "cub_as_called", headers, as_called=True,
        ),
    )  # fmt: skip


CUB = _cub()
THRUST = (
    _library(
        "thrust", "thrust::reduce_into, par_nosync", _prepare, "reduce_into", newest_headers,
        _THRUST_REDUCE_INTO, ops=_FOLDS,
    ),
    _library(
        "thrust:as_called", _thrust_call, _prepare_as_called, "thrust_as_called", newest_headers,
        as_called=True,
    ),
)  # fmt: skip
