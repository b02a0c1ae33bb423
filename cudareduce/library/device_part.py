"""The device part of a `.cu` file: the file without its host functions and host headers.

Every line keeps its number, so that a compiler's words still lead to their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

#: What is not closed ends with its line or the file: looking for its end again from each quote
#: would take time that grows with the square of the text's length.
COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n]){1,12}\'', re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?P<name>[<"][^>"\n]+[>"])', re.MULTILINE)
_SCOPE_WORDS = re.compile(r'\bnamespace\b|\bextern\s*"C"\s*$')
_NO_FUNCTION = re.compile(r"\b(?:struct|class|union|enum)\b[^()]*\{|=\s*\{")
_DEVICE = re.compile(r"__(?:device|global|constant)__|\b(?:constexpr|struct|class|union|enum)\b")
_TEMPLATE = re.compile(r"\btemplate\s*<[^<>]*>")
_DECLARES = re.compile(r"\b(?:using|typedef|const|static_assert|namespace)\b")

#: Headers that both nvcc and the emulator have; what else a file includes served its host code.
_DEVICE_HEADERS = frozenset(
    f"<{name}>"
    for name in ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h",
                 "cooperative_groups/reduce.h", "cooperative_groups/scan.h",
                 "cooperative_groups/memcpy_async.h", "cuda_pipeline.h", "math_constants.h",
                 "stdint.h", "cstdint", "limits.h", "climits", "float.h", "cfloat", "math.h",
                 "cmath", "limits", "type_traits", "utility")
)  # fmt: skip

#: Headers of the toolkit and of NVIDIA's samples that serve host code, as files name them in quotes
#: too; so does what the compiler has for C and C++.
_HOST_HEADER = re.compile(
    r"cuda(?:_runtime_api|_profiler_api|Profiler|_device_runtime_api)?\.h|driver_types\.h"
    r"|(?:device_launch_parameters|device_functions|vector_types|vector_functions|host_defines"
    r"|device_atomic_functions|sm_\d+_\w+|math_functions|device_types|builtin_types)\.h(?:pp)?"
    r"|cu(?:blas|fft|rand|sparse|solver|pti)\w*\.h|nv[A-Z_]\w+\.h|(?:thrust|cub|nvtx3|cute)/.*"
    r"|helper_(?:cuda|cuda_drvapi|functions|gl|image|math|multiprocess|string|timer)\.h|exception\.h"
)
_SYSTEM = Path("/usr/include")


def device_part(text: str, folder: Path) -> str:
    """The file without its host functions and host headers; every line keeps its number. `folder`
    is its own: a header in quotes that lies there is kept, and so is one that is nowhere, of which
    the compiler has to say so."""

    def include(match: re.Match[str]) -> str:
        name, bare = match["name"], match["name"][1:-1]
        quoted = name.startswith('"')
        with suppress(OSError, ValueError):  # a name that no file can have
            beside = folder / bare
            if quoted and beside.is_file():
                return f'#include "{beside.resolve()}"'
            if quoted and not _is_known(bare):
                return match[0]
        known = f"<{bare}>"
        device = known in _DEVICE_HEADERS or bare.startswith("cuda/")
        return f"#include {known}" if device else ""

    text = _INCLUDE.sub(include, text)
    masked = _blank(COMMENT_OR_STRING, text, keep='"C"')
    masked = _blank(_DIRECTIVE, masked)
    parts, start = [], 0
    for end in chunk_ends(masked, 0):
        chunk = masked[start:end]
        declaration = _TEMPLATE.sub("", chunk)
        keep = (
            chunk.endswith("{")
            or bool(_DEVICE.search(declaration))
            or (chunk.endswith(";") and bool(_DECLARES.search(declaration)))
        )
        own = text[start:end]
        parts.append(own if keep or not chunk.strip(" \n\t{};") else _only_directives(own, chunk))
        start = end
    return "".join(parts) + text[start:]


def _is_known(header: str) -> bool:
    """Whether a compiler for CUDA finds a header wherever the file is that names it."""
    return (
        f"<{header}>" in _DEVICE_HEADERS
        or bool(_HOST_HEADER.fullmatch(header))
        or header.startswith("cuda/")
        or "." not in header  # of C++
        or (_SYSTEM / header).is_file()
    )


def _only_directives(text: str, masked: str) -> str:
    """Drop a chunk but for its line breaks and the preprocessor lines in and before it."""
    kept = [
        line if line.lstrip().startswith("#") and not seen.strip() else ""
        for line, seen in zip(text.split("\n"), masked.split("\n"), strict=True)
    ]
    return "\n".join(kept)


def _blank(pattern: re.Pattern[str], text: str, keep: str = "") -> str:
    """Replace matches by spaces of the same length, so that places stay what they are."""
    return pattern.sub(lambda m: m[0] if m[0] == keep else re.sub(r"[^\n]", " ", m[0]), text)


def _opens_scope(masked: str, begin: int, end: int) -> bool:
    """Whether a brace at `end` opens a namespace or a block of linkage, and not a body."""
    before = max(masked.rfind(character, begin, end) for character in ";{}()")
    return _SCOPE_WORDS.search(masked[max(before + 1, begin) : end]) is not None


def chunk_ends(masked: str, start: int) -> Iterator[int]:
    """Where each top-level declaration ends, as positions behind `start` in a text whose comments
    and strings are blank; `namespace X {` and `extern "C" {` open no level."""
    depth, begin, transparent = 0, start, 0
    semicolon_at = -1  # where the declaration begins that a } does not end, but a ;
    for k in range(start, len(masked)):
        char = masked[k]
        if char == "{":
            if depth == 0 and _opens_scope(masked, begin, k):
                transparent += 1
                begin = k + 1
                yield begin
                continue
            depth += 1
        elif char == "}":
            if depth == 0 and transparent:
                transparent -= 1
                begin = k + 1
                yield begin
                continue
            depth -= 1
            if depth == 0 and begin != semicolon_at:
                if _NO_FUNCTION.search(masked, begin, k):
                    semicolon_at = begin
                else:
                    begin = k + 1
                    yield begin
        elif char == ";" and depth == 0:
            begin = k + 1
            yield begin
