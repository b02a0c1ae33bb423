"""CUB and Thrust: one shared object for each reduction, compiled by nvcc and kept."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from cudareduce.launch.plan import Problem
from cudareduce.machine.host import installed, packaged
from cudareduce.peers.contract import AbsentError, Given, Peer, Ready, takes
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import Reduction

#: What brings newer headers than the toolkit has.
INSTALL = "pip install nvidia-cuda-cccl"
_HEADER = "cuda/std/__cccl/version.h"
_FOLDS = ("sum", "prod", "min", "max", "mean")
_OPS = (*_FOLDS, "argmin", "argmax")
#: The first release that lets a caller choose determinism and bring the workspace, and the first
#: whose Thrust leaves its answer on the device.
_CHOOSES, _REDUCES_INTO = 3_005_000, 3_002_000


def load(needs: int = 0) -> str:
    """The version of the newest CCCL here."""
    version, _ = _newest()
    if _nvcc() is None:
        raise AbsentError("nvcc was not found, which compiles it")
    if version < needs:
        raise AbsentError(
            f"CCCL {_text(version)} is too old: {_text(needs)} or newer has this call"
        )
    return _text(version)


def prepare(entry: str, given: Given) -> Ready:
    """A call of one of the shared object's functions, with its workspace."""
    call = _function(entry, given)
    problem, nbytes = given.problem, ctypes.c_size_t(0)
    sizes = ctypes.c_longlong(problem.n), ctypes.c_longlong(problem.rows)
    pointers = ctypes.c_void_p(given.address), ctypes.c_void_p(given.out)
    stream = ctypes.c_void_p(given.stream)
    _checked(call(None, ctypes.byref(nbytes), *pointers, *sizes, stream))
    workspace = ctypes.c_void_p(given.allocate(max(nbytes.value, 1)))
    arguments = (workspace, ctypes.byref(nbytes), *pointers, *sizes, stream)

    def run() -> None:
        code = call(*arguments)
        if code:
            _checked(code)

    return Ready(run)


def prepare_as_called(entry: str, given: Given) -> Ready:
    """A call that allocates what it needs, waits, and brings its answer to the host."""
    call = _function(entry, given)
    answer = np.empty(1, given.reduction.result_dtype)
    place, start = ctypes.c_void_p(answer.ctypes.data), ctypes.c_void_p(given.address)
    count, stream = ctypes.c_longlong(given.problem.n), ctypes.c_void_p(given.stream)

    def run() -> None:
        _checked(call(start, place, count, stream))

    return Ready(run, lambda: answer)


def _function(entry: str, given: Given) -> Any:
    library = _library(given.reduction, given.arch, given.folder)
    return getattr(library, "rows" if entry == "run_to_run" and given.problem.rows != 1 else entry)


def _checked(code: int) -> None:
    if code:
        raise RuntimeError(f"CUDA error {code}: {_NAMED.get(code, 'see cudaError_t')}")


_NAMED = {
    2: "out of memory",
    35: "the driver is too old",
    209: "no kernel image",
    801: "not supported",
}


@cache
def _nvcc() -> tuple[str, str] | None:
    """The compiler and its release."""
    return next(installed("nvcc"), None)


@cache
def _newest() -> tuple[int, Path]:
    """Version and folder of the newest headers: of PyPI packages, or of nvcc's toolkit."""
    found = [(_version(path), path) for path in _folders()]
    known = [(version, path) for version, path in found if version]
    if not known:
        raise AbsentError("the headers of CCCL were not found")
    return max(known)


def _folders() -> list[Path]:
    folders = [path.parents[3] for path in packaged(f"include/cccl/{_HEADER}")]
    folders += [path.parents[3] for path in packaged_beside(f"cccl/headers/include/{_HEADER}")]
    nvcc = _nvcc()
    if nvcc:
        root = _toolkit(nvcc[0])
        folders += [root / "include" / "cccl", *root.glob("targets/*/include/cccl")]
    return folders


def packaged_beside(path: str) -> list[Path]:
    """A file of the `cuda` packages of PyPI, which lie apart from NVIDIA's others."""
    import importlib.util

    package = importlib.util.find_spec("cuda")
    folders = list(package.submodule_search_locations or ()) if package else []
    return [found for folder in folders for found in sorted(Path(folder).glob(path))]


def _toolkit(nvcc: str) -> Path:
    """Where nvcc says its toolkit is; what is on the PATH may be a wrapper."""
    done = subprocess.run(
        [nvcc, "-dryrun", "-c", "x.cu"], capture_output=True, text=True, check=False
    )
    top = re.search(r"^#\$ TOP=(.*)$", done.stderr, re.MULTILINE)
    return Path(top[1].strip()) if top else Path(nvcc).resolve().parent.parent


def _version(folder: Path) -> int:
    try:
        text = (folder / _HEADER).read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"#define CCCL_VERSION (\d+)", text)
    return int(found[1]) if found else 0


def _text(version: int) -> str:
    return f"{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}"


def flags(reduction: Reduction) -> list[str]:
    """What nvcc is told of a reduction."""
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


@cache
def _library(reduction: Reduction, arch: int, folder: str) -> Any:
    """The shared object of one reduction, compiled if it is not kept yet."""
    version, headers = _newest()
    found = _nvcc()
    assert found is not None  # or it would not have been loaded
    nvcc, release = found
    source = Path(str(files("cudareduce.peers") / "device" / "cccl.cu"))
    words = ["-O3", "-std=c++17", f"-arch=sm_{arch}", "-shared", "-Xcompiler", "-fPIC",
             *flags(reduction)]  # fmt: skip
    key = repr((source.read_text(encoding="utf-8"), version, release, words))
    name = hashlib.sha256(key.encode()).hexdigest()[:24]
    made = Path(folder) / "cccl" / f"{name}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        part = made.with_suffix(f".{os.getpid()}")
        command = [nvcc, *words, "-I", str(headers), "-o", str(part), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line]
            raise RuntimeError("does not compile: " + (lines or ["nvcc says nothing"])[0])
        part.replace(made)
    return ctypes.CDLL(str(made))


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


def _peer(name: str, needs: int = 0, **fields: Any) -> Peer:
    usual: dict[str, Any] = {
        "package": "nvidia-cuda-cccl", "install": INSTALL, "context": "any",
        "load": partial(load, needs), "version_here": partial(load, needs),
    }  # fmt: skip
    return Peer(name=name, **(usual | fields))


def _entry(entry: str) -> Callable[[Given], Ready]:
    return partial(prepare, entry)


CUB = (
    _peer(
        "cub:run_to_run", why_not=partial(_why_not, _OPS, rows=True),
        called=partial(_called, "DeviceReduce::", ", run_to_run"), prepare=_entry("run_to_run"),
    ),
    _peer(
        "cub:not_guaranteed", needs=_CHOOSES,
        why_not=partial(_why_not, _OPS, mode="not_guaranteed"),
        called=partial(_plain, "DeviceReduce::Sum, not_guaranteed"),
        prepare=_entry("not_guaranteed"),
    ),
    _peer(
        "cub:gpu_to_gpu", needs=_CHOOSES,
        why_not=partial(_why_not, _OPS, mode="gpu_to_gpu"),
        called=partial(_plain, "DeviceReduce::Sum, gpu_to_gpu"), prepare=_entry("gpu_to_gpu"),
    ),
    _peer(
        "cub:packed", why_not=_why_not_packed,
        called=partial(_plain, "DeviceReduce::TransformReduce of four elements a word"),
        prepare=_entry("packed"), alignment=8,
    ),
    _peer(
        "cub:as_called", why_not=partial(_why_not, _OPS), as_called=True,
        called=partial(_called, "cudaMalloc, DeviceReduce::", ", cudaMemcpy, cudaFree"),
        prepare=partial(prepare_as_called, "cub_as_called"),
    ),
)  # fmt: skip
THRUST = (
    _peer(
        "thrust", needs=_REDUCES_INTO, why_not=partial(_why_not, _FOLDS),
        called=partial(_plain, "thrust::reduce_into, par_nosync"), prepare=_entry("reduce_into"),
    ),
    _peer(
        "thrust:as_called", why_not=partial(_why_not, _OPS), as_called=True,
        called=_thrust_called,
        prepare=partial(prepare_as_called, "thrust_as_called"),
    ),
)  # fmt: skip
