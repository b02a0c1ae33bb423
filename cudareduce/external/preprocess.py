"""Preprocess a CUDA file with g++: expand macros and include the user's own headers. System and
CUDA headers stay as `#include` lines."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cudareduce.backends.emulator.translation import DEFAULT_ARCH
from cudareduce.errors import UsageError

HEADERS = Path(__file__).parent / "include"
#: Headers of CUDA that say nothing more than cuda_runtime.h of the recorder does.
_RUNTIME_HEADERS = re.compile(
    r"(?:cuda|cuda_runtime_api|cuda_profiler_api|cuda_device_runtime_api|cuda_pipeline|driver_types"
    r"|cuda_pipeline_primitives|vector_types|vector_functions|device_launch_parameters|device_types"
    r"|device_functions|device_atomic_functions|sm_\d+_\w+|host_defines|host_config|math_constants"
    r"|math_functions|builtin_types|channel_descriptor|texture_types|cuda_texture_types)\.h"
)
#: Headers of samples and books, whatever folder they are in.
_SAMPLE_HEADERS = re.compile(
    r"helper_\w+\.h|cutil\w*\.h|book\.h|error\.cuh|freshman\.h|gpu_?timer\.h|cuda_helper\.h"
    r"|common\.h|timer\.h|utils\.h|check\.h"
)
#: Headers of libraries, by the start of their names, and what the recorder has instead.
_LIBRARY_HEADERS = {
    "thrust/random": "thrust_random.h",
    "thrust/": "thrust.h",
    "cub/": "cub.h",
    "cuda/": "libcudacxx.h",
    "cooperative_groups/": "cooperative_groups.h",
    "nvtx3/": "nvToolsExt.h",
    "nvToolsExt": "nvToolsExt.h",
    "cublas.h": "cublas_v2.h",
}
#: Headers that both nvcc and the emulator have.
_DEVICE_HEADERS = frozenset(
    ["cuda.h", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h",
     "cooperative_groups/reduce.h", "cooperative_groups/scan.h",
     "cooperative_groups/memcpy_async.h", "cuda_pipeline.h", "math_constants.h", "stdint.h",
     "cstdint", "limits.h", "climits", "float.h", "cfloat", "math.h", "cmath", "limits",
     "type_traits", "utility", "concepts", "cub/cub.cuh", "cub/block/block_reduce.cuh",
     "cub/warp/warp_reduce.cuh"]
)  # fmt: skip
_HEADER_FOLDERS = ("include", "inc", "headers", "common", "Common", "src", "utils", "util", "lib")
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include(?:_next)?[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
_PLACEHOLDER = re.compile(rb"^#pragma recorder include (.*)$")
_KEPT = re.compile(rb"^#pragma recorder keep (.*)$")
_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(\w+)(.*)$")
_MARKER = re.compile(rb'^# (\d+) "((?:[^"\\]|\\.)*)"')
_PREDEFINED = (
    *("__CUDACC__=1", "__NVCC__=1", "__CUDACC_VER_MAJOR__=13", "__CUDACC_VER_MINOR__=0"),
    *("CUDART_VERSION=13000", "CUDA_VERSION=13000", "__CUDACC_EXTENDED_LAMBDA__=1"),
    "__DRIVER_TYPES_H__=1",
)


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """A file with its own headers included and macros expanded."""

    text: bytes
    lines: tuple[tuple[str, int], ...]  # (file, line) of each line of the text
    missing: tuple[str, ...]  # headers that were not found and left out

    def place(self, row: int) -> tuple[str, int]:
        """The source file and line of output line `row`, counted from 0."""
        return self.lines[row] if row < len(self.lines) else ("", 0)


@cache
def _system_folders() -> tuple[Path, ...]:
    done = subprocess.run(
        ["g++", "-E", "-v", "-xc++", "/dev/null"], capture_output=True, text=True, check=False
    )
    listed = done.stderr.partition("#include <...> search starts here:")[2]
    return tuple(Path(line.strip()) for line in listed.splitlines() if line.startswith(" /"))


def _user_header(name: str, quoted: bool, beside: Path, include: Sequence[Path]) -> Path | None:
    folders = [beside] if quoted or _known_header(name) is None else []
    if not Path(name).name.startswith("helper_"):  # the recorder has its own
        folders += include
        if quoted:
            folders += _neighbours(beside)
    return next((folder / name for folder in folders if _is_file(folder / name)), None)


def _is_file(path: Path) -> bool:
    """True for an existing file. A name that no file can have is False."""
    with suppress(OSError, ValueError):
        return path.is_file()
    return False


@cache
def _neighbours(folder: Path) -> tuple[Path, ...]:
    """Folders in which the project of `folder` is likely to keep its headers."""
    found: list[Path] = []
    for root in (folder, folder.absolute().parent, folder.absolute().parent.parent):
        found.append(root)
        found += (root / name for name in _HEADER_FOLDERS if (root / name).is_dir())
    return tuple(found)


def _includes(
    text: bytes, beside: Path, include: Sequence[Path]
) -> Iterator[tuple[str, Path | None]]:
    """For each `#include` in a text and the files it includes: its name, and the user's own file
    or None."""
    left, seen = [(text, beside)], set[Path]()
    while left:
        code, folder = left.pop()
        for quote, raw in _INCLUDE.findall(code):
            name = raw.decode(errors="replace").strip()
            header = _user_header(name, quote == b'"', folder, include)
            yield name, header
            if header is not None and header.resolve() not in seen:
                seen.add(header.resolve())
                left.append((header.read_bytes(), header.parent))


def _known_header(name: str) -> str | None:
    """The `#include` line for a header that is not the user's."""
    for start, header in _LIBRARY_HEADERS.items():
        if name.startswith(start):
            return header
    if _RUNTIME_HEADERS.fullmatch(name):
        return "cuda_runtime.h"
    if any(_is_file(folder / name) for folder in (HEADERS, *_system_folders())):
        return name
    return "samples.h" if _SAMPLE_HEADERS.fullmatch(Path(name).name) else None


def _is_of_device(name: str) -> bool:
    """True for a header that exists for nvcc and for the emulator."""
    return name in _DEVICE_HEADERS or name.startswith("cuda/")


def _with_architectures(text: bytes) -> bytes:
    """The file with conditions on __CUDA_ARCH__ hidden from g++ if they contain only code, since
    the GPU decides which branch counts."""
    lines = text.split(b"\n")
    opened: list[list[int]] = []  # the directives of each condition that is not closed yet
    for row, line in enumerate(lines):
        found = _DIRECTIVE.match(line)
        word = found[1] if found else b""
        if word in (b"if", b"ifdef", b"ifndef"):
            for group in opened:
                group.append(-1)
            opened.append([row])
        elif opened and word in (b"else", b"elif", b"endif"):
            opened[-1].append(row)
            if word == b"endif":
                group = opened.pop()
                first = lines[group[0]]
                if -1 not in group and b"__CUDA_ARCH__" in first and not first.endswith(b"\\"):
                    for own in group:
                        lines[own] = b"#pragma recorder keep " + lines[own].strip()
        elif word:
            for group in opened:
                group.append(-1)
    return b"\n".join(lines)


def preprocess(
    path: Path, text: bytes, include: Sequence[Path], define: Sequence[str], folder: Path, *,
    device: bool = False,
) -> Preprocessed:  # fmt: skip
    """Expand the macros of a file with g++, for host code or for `device` code; `folder` is for
    temporary files. Raises UsageError."""
    deep = folder / "placeholders" / "a" / "b" / "c"  # `#include "../../x.h"` stays below `folder`
    deep.mkdir(parents=True, exist_ok=True)
    missing, own_folders = [], list(include)
    for name, header in _includes(text, path.parent, include):
        if header is not None:
            root = Path(str(header.absolute())[: -len(name)])
            if root not in own_folders and root / name == header.absolute():
                own_folders.append(root)
            continue
        placeholder = deep / name.lstrip("/")
        known = _known_header(name) if not device else name if _is_of_device(name) else None
        try:
            if folder.resolve() not in placeholder.resolve().parents:
                continue
            placeholder.parent.mkdir(parents=True, exist_ok=True)
            placeholder.write_text(f"#pragma recorder include {known}\n" if known else "")
        except (OSError, ValueError):  # a name that no file can have
            continue
        if _known_header(name) is None and name not in missing:
            missing.append(name)
    defined = (*_PREDEFINED, *([f"__CUDA_ARCH__={DEFAULT_ARCH}"] if device else ()), *define)
    text = _with_architectures(text) if device else text
    command = [
        *("g++", "-E", "-w", "-nostdinc", "-fpermissive", "-std=gnu++17", "-xc++"),
        *(f"-D{name}" for name in defined),
        *("-iquote", str(path.parent), "-I", str(deep)),
        *(word for where in own_folders for word in ("-I", str(where))),
        "-",
    ]
    text = re.sub(
        rb"\A(?:[ \t]*%.*(\n|\Z)|[ \t]*\n)+", lambda m: b"\n" * m[0].count(b"\n"), text
    )  # a notebook's cell
    marked = b'# 1 "%s"\n' % str(path).encode() + text
    done = subprocess.run(command, input=marked, capture_output=True, check=False)
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").splitlines()
        first = next((line for line in errors if "error" in line), "g++ -E fails")
        raise UsageError(f"{path.name} cannot be preprocessed: {first}")
    return _with_line_table(done.stdout, tuple(missing), deep)


def _with_line_table(output: bytes, missing: tuple[str, ...], placeholders: Path) -> Preprocessed:
    """The output of g++ without its line markers, and a table of lines. Placeholders keep the
    text the same in every temporary folder."""
    lines, places = [], []
    file, number = "", 0
    for line in output.split(b"\n"):
        marker = _MARKER.match(line)
        if marker:
            name = marker[2].decode(errors="replace")
            if placeholders not in Path(name).parents:
                file, number = name, int(marker[1])
            continue
        placeholder, kept = _PLACEHOLDER.match(line), _KEPT.match(line)
        line = b"#include <%s>" % placeholder[1] if placeholder else kept[1] if kept else line
        lines.append(line)
        places.append((file, number))
        number += 1
    return Preprocessed(b"\n".join(lines), tuple(places), missing)
