"""What is missing on this machine, the one command that brings each, and whether it can measure."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cudareduce.profile.permission import ADMINISTRATORS, ALLOW, INSTALL_NCU

MISSING, ABSENT = "not found", "not installed"
#: PyCUDA without curand, which is not used here and which NVIDIA's packages cannot link.
BUILD_PYCUDA = (
    "pip install --config-settings=--global-option=--conf:CUDA_ENABLE_CURAND=False "
    "pycuda nvidia-ml-py"
)
#: What some commands do more with: what for, and what brings it.
_MORE = {
    "nvidia-ml-py": "clocks, power and throttling: pip install nvidia-ml-py",
    "cuda-bindings": "--graph: pip install 'cudareduce[graph]'",
    "cuda-bench": "a selftest beside NVBench: pip install 'cudareduce[nvbench]'",
    "ncu": f"profile, which counts on the hardware: {INSTALL_NCU}",
    "compute-sanitizer": "verify --sanitize: the CUDA toolkit (Debian: apt-get install "
    "nvidia-cuda-toolkit)",
}


@dataclass(frozen=True, slots=True)
class GpuState:
    """What a GPU says of itself, in rows; why there is none; why it is slower now than it could
    be, how many other processes compute on it, and what NVML does not tell."""

    rows: tuple[tuple[str, str], ...] = ()
    problem: str | None = None
    name: str = ""
    throttled: tuple[str, ...] = ()
    others: int = 0
    silent: str | None = None


def notes(found: Mapping[str, str], gpu: GpuState, headers: Path | None) -> Iterator[str]:
    """One thing to do about each that is missing, what is needed first, and the verdict last."""
    if gpu.problem:
        yield f"{gpu.problem} Kernels are verified on the CPU, nothing is timed."
    yield from _for_a_gpu(found, headers)
    if found["g++"] == MISSING:
        yield "No g++: the CPU backend needs it (Debian: apt-get install g++)."
    if found["ncu"] != MISSING and found["counters"] == ADMINISTRATORS and os.geteuid():
        yield f"{ALLOW}."
    if gpu.silent:
        yield f"{gpu.silent}."
    for name, text in _MORE.items():
        if found[name] in (MISSING, ABSENT):
            yield f"No {name}, for {text}"
    yield _verdict(found, gpu)


def _verdict(found: Mapping[str, str], gpu: GpuState) -> str:
    """Ready to measure, or what is in the way."""
    if gpu.problem:
        cpu = "ready to verify on the CPU" if found["g++"] != MISSING else "nor to verify"
        return f"Not ready to measure; {cpu}."
    why = [
        *(["no nvcc compiles kernels"] if found["nvcc"] == MISSING else []),
        *([f"the GPU is throttled ({', '.join(gpu.throttled)}): cool it, or raise its "
           "power limit"] if gpu.throttled else []),
        *([f"{gpu.others} other process{'es' * (gpu.others > 1)} on the GPU: wait, or take another "
           "with --device"] if gpu.others else []),
    ]  # fmt: skip
    return f"Not ready to measure: {'; '.join(why)}." if why else f"Ready to measure on {gpu.name}."


def _for_a_gpu(found: Mapping[str, str], headers: Path | None) -> Iterator[str]:
    """One thing to do about each of what a GPU needs."""
    if found["driver"] == MISSING:
        yield (
            "No driver: install NVIDIA's, 580 or newer for CUDA 13, or start the container with "
            "GPU support (docker run --gpus all)."
        )
    if found["nvcc"] == MISSING:
        yield "No nvcc, which compiles kernels: pip install 'cudareduce[compile]'."
    if found["pycuda"] != ABSENT:
        return
    if headers is None:
        yield (
            "No cuda.h and cudaProfiler.h, which PyCUDA is built from: "
            "pip install 'cudareduce[compile]'."
        )
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        yield (
            "No Python.h, which PyCUDA is built from: install the headers of this Python (Debian: "
            "apt-get install python3-dev)."
        )
    where = f'CPATH="{headers}" ' if headers else ""
    yield f"No PyCUDA: {where}{BUILD_PYCUDA}"
