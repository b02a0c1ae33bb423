"""Fakes of CCCL trees, of nvcc, and of the GPU that runs the compiled libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cudareduce.backends.selection
from cudareduce.libraries.worker import LibraryRunner
from cudareduce.workers import Parent
from tests.collectives.rank_processes import StreamGpu
from tests.simulate import H200

SOURCE = Path(__file__).with_name("fake_cub.cpp")
_NVCC = """#!/bin/sh
case "$1" in
    --version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit ;;
    -dryrun) exit ;;
esac
while [ $# -gt 0 ]; do
    case "$1" in
        -I) includes="$includes -I $2"; shift ;;
        -o) out=$2; shift ;;
    esac
    shift
done
exec g++ -std=c++17 -shared -fPIC -fno-gnu-unique $includes -o "$out" {source}
"""


def tree(folder: Path, version: int, *lines: str) -> Path:
    """An include folder of CCCL whose CUB has these lines."""
    for path, text in (
        ("cub/device/device_reduce.cuh", "\n".join(lines) + "\n"),
        ("cuda/std/__cccl/version.h", f"#define CCCL_VERSION {version}\n"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def nvcc(folder: Path) -> Path:
    """A folder with an nvcc that compiles SOURCE with g++, whatever it is given."""
    folder.mkdir()
    (folder / "nvcc").write_text(_NVCC.format(source=SOURCE))
    (folder / "nvcc").chmod(0o755)
    return folder


class FakeRunner(LibraryRunner):
    """The library worker of a run on a fake GPU."""

    def __init__(self, parent: Parent) -> None:
        def opened(spec: Any) -> StreamGpu:
            return StreamGpu(
                spec.cache, 1, H200, floor_us=300.0, bytes_per_us=4e6, event_us=0.0, lazy=True
            )

        cudareduce.backends.selection.open_cuda = opened  # type: ignore[assignment]
        super().__init__(parent)
