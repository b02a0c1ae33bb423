"""g++ as the compiler of kernels: flags, cache, and places in the source.

A kernel is compiled against `device.h` to a small library. The runtime that all of them share is
compiled once and kept in the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from cudareduce.backend import BuildError, Source
from cudareduce.errors import EnvironmentProblem

FOLDER = Path(__file__).parent

_COMMON_FLAGS = ("-std=c++17", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-gnu-unique", "-g1")

#: Kernels reinterpret memory and let integers wrap, as nvcc allows; sums must round as written.
_KERNEL_FLAGS = (
    *_COMMON_FLAGS,
    *("-O1", "-w", "-fmax-errors=5", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"),
    # The default libraries of -fsanitize=thread would be its own runtime; ours takes its place.
    *("-nodefaultlibs", "-include", str(FOLDER / "device.h"), "-I", str(FOLDER / "include")),
)
#: An access reports the address that its hook returns to, so a hook must not be a tail call.
_HAZARD_FLAGS = (
    *("-fsanitize=thread,alignment,bounds", "--param=tsan-instrument-func-entry-exit=0"),
    "-fno-optimize-sibling-calls",
)
_RUNTIME_FLAGS = (*_COMMON_FLAGS, "-O2", "-pthread", "-Wall", "-Wextra")

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY = re.compile(
    r'extern\s+"C"\s+(?:(?:__global__|void|__launch_bounds__\s*\([^()]*\))\s*)+(\w+)\s*\('
)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?"
    r"(?P<type>[\w:<>\s*]+?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
#: With nvcc this defines the variable; to C++ it is a declaration unless it stands in braces.
_EXTERN_C_VARIABLE = re.compile(r'extern\s+"C"\s+((?:__constant__|__device__)\s[^;(){}=]*;)')

_LOCATION = re.compile(r"\{([^{}\n]+)\+0x([0-9a-f]+)\}")


def resolve_locations(text: str) -> str:
    """Replace each `{library+0xoffset}` of a report by the file and line in the kernel."""

    def resolve(match: re.Match[str]) -> str:
        command = ["addr2line", "-i", "-e", match[1], f"0x{match[2]}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # Innermost first: an intrinsic inlined from the emulator's headers, then its caller. What
        # comes before the first #line of a text has no file of its own.
        frames = [line.split(" (")[0] for line in done.stdout.splitlines()]
        own = [frame for frame in frames if "<" not in frame and "?" not in frame]
        own += [frame for frame in frames if "<prelude>" in frame]
        return re.sub(r"^(\./)+", "", own[0]) if own else "<unknown place>"

    try:
        return _LOCATION.sub(resolve, text)
    except FileNotFoundError:
        return text


def _translation_unit(source: Source) -> str:
    """The kernel's text in plain C++, and its entry points; every line keeps its number."""
    text = _DYNAMIC_SHARED.sub(r"CUDAEMU_DYNAMIC_SHARED(\g<type>, \g<name>);", source.text)
    text = _EXTERN_C_VARIABLE.sub(r'extern "C" { \1 }', text)
    found = _ENTRY.findall(_COMMENT.sub("", text))
    entries = "".join(f"CUDAEMU_ENTRY({name})\n" for name in dict.fromkeys([*found, source.entry]))
    return f'#line 1 "<prelude>"\n{text}\n#line 1 "<entry points>"\n{entries}'


class Toolchain:
    """g++ with its flags, and the folder that keeps what it made; an EnvironmentProblem without
    it."""

    def __init__(self, cache: Path, hazards: bool) -> None:
        self.cache = cache
        self.hazards = hazards
        self.kernel_flags = (*_KERNEL_FLAGS, *(_HAZARD_FLAGS if hazards else ()))
        compiler = shutil.which("g++")
        if compiler is None:
            raise EnvironmentProblem(
                "g++ was not found: install it (Debian, Ubuntu: apt-get install g++) "
                "to run kernels on the CPU"
            )
        self.compiler = compiler

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides what a kernel's text is compiled to. Where this package lies
        does not: another installation of the same version finds what is there."""
        version = subprocess.run([self.compiler, "--version"], capture_output=True, check=True)
        files = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".h", ".cpp"))
        digest = hashlib.sha256(version.stdout)
        for part in (*self.kernel_flags, *_RUNTIME_FLAGS, *map(str, files)):
            digest.update(part.replace(str(FOLDER), "").encode() + b"\0")
        for path in files:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    @cached_property
    def runtime(self) -> Path:
        """The runtime library, compiled unless the cache has it; raises BuildError."""
        sources = sorted(FOLDER.glob("*.cpp"))
        flags = [*_RUNTIME_FLAGS]
        if self.hazards:
            flags.append("-DCUDAEMU_HAZARDS")
        else:
            sources = [path for path in sources if not path.name.startswith("hazard")]
        name = f"libcudaemu{'_hazard' if self.hazards else ''}-{self.fingerprint}.so"
        # Kernels find it by this name: it is loaded before they are.
        command = [*flags, f"-Wl,-soname,{name}", *map(str, sources), "-ldl"]
        return self._compile(name, command, None)

    def kernel(self, source: Source) -> Path:
        """The library of a kernel, compiled unless the cache has it; raises BuildError."""
        text = _translation_unit(source)
        digest = hashlib.sha256(f"{self.fingerprint}\0{text}".encode()).hexdigest()[:24]
        command = [
            *self.kernel_flags,
            # Neither the place of the cache nor that of this package belongs into a report.
            f"-ffile-prefix-map={self.cache.absolute()}=.",
            f"-ffile-prefix-map={FOLDER}=<emulator>",
            *("-x", "c++", "-", "-x", "none", str(self.runtime), "-lm", "-lc", "-lgcc"),
        ]
        return self._compile(f"kernel-{digest}.so", command, text)

    def _compile(self, name: str, arguments: Sequence[str], text: str | None) -> Path:
        library = self.cache / name
        if library.exists():
            return library
        self.cache.mkdir(parents=True, exist_ok=True)
        # Written under another name first: a run that is stopped leaves no half library behind.
        handle, unfinished = tempfile.mkstemp(dir=self.cache, suffix=".so")
        os.close(handle)
        try:
            done = subprocess.run(
                [self.compiler, *arguments, "-o", unfinished],
                input=text,
                cwd=self.cache,
                capture_output=True,
                text=True,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
            if done.returncode != 0:
                raise BuildError("\n".join(done.stderr.splitlines()[:10]))
            Path(unfinished).replace(library)
        finally:
            Path(unfinished).unlink(missing_ok=True)
        return library
