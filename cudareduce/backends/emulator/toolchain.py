"""Compilation of kernels and of the runtime with g++, cached by content.

A kernel is compiled against `device.h` to a small library, which links to the runtime library.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from cudareduce.backends.emulator.cache import KERNEL, Cache
from cudareduce.backends.emulator.compiler import Compiler
from cudareduce.backends.emulator.translation import DEFAULT_ARCH, translation_unit
from cudareduce.backends.protocol import Source
from cudareduce.budget import Deadline
from cudareduce.cuda_source import cpp_standard
from cudareduce.errors import BuildError

FOLDER = Path(__file__).parent
#: Limit of shared memory per block in bytes, static and dynamic, without cudaFuncSetAttribute.
SHARED_LIMIT = 49152

_COMMON_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")

#: As nvcc, these flags allow type punning and integer overflow. Sums must round as written, so
#: there is no contraction to fused multiply-add.
_KERNEL_FLAGS = (
    # With DWARF 5 the linker reports wrong file names.
    *(*_COMMON_FLAGS, "-shared", "-g1", "-gdwarf-4"),
    *("-O1", "-fmax-errors=5", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"),
    "-Werror=vla",  # no GPU has variable-length arrays; -w alone would accept them
    # In every build, since race detection runs only some block sizes.
    "-fsanitize=bounds",
    "-fno-exceptions",  # with exceptions, destructors need the C++ runtime library
    "-fno-builtin-printf",  # else g++ replaces some calls of printf by puts
    # The emulator's runtime implements the functions of -fsanitize=thread.
    *("-nodefaultlibs", "-Wl,--no-undefined"),
    *("-include", str(FOLDER / "device.h"), "-I", str(FOLDER / "include")),
)
#: Race detection: kernels call a runtime function at each access. It identifies the access by its
#: return address, so the call must not be a tail call.
_ACCESS_FLAGS = (
    *("-fsanitize=thread,alignment", "--param=tsan-instrument-func-entry-exit=0"),
    "--param=tsan-distinguish-volatile=1",
    "-fno-optimize-sibling-calls",
)
#: Fills uninitialised variables, which would be 0 on a new stack. The flag needs g++ 12.
_UNSET_FLAG, _UNSET_SINCE = "-ftrivial-auto-var-init=pattern", 12
#: Flags for counting memory traffic. Optimisation would split a 16-byte load into four.
_COUNTING_FLAGS = (*_ACCESS_FLAGS, "-fno-sanitize=alignment", "-O0")
#: -O2 takes 50 % longer to compile and makes launches no faster. With sibling-call optimisation the
#: switch between fibers is a jump (see fiber.h).
_RUNTIME_FLAGS = (*_COMMON_FLAGS, "-O1", "-foptimize-sibling-calls", "-pthread")
#: The runtime is compiled as two translation units in parallel. One unit per file would take twice
#: as long, since parsing headers takes much of the time.
_PARTS = ("launches", "races")
_RACE_SOURCES = ("races", "race_hooks", "happens_before", "stale_values")

#: Headers that are slow to compile; each is included only if the kernel uses one of these names.
_NEEDED = {
    "device/arithmetic.h": re.compile(
        r"__\w+_r[nzud]\b"
        r"|__(?:saturate|fdivide|exp|exp10|log|log2|log10|pow|(?:sin)?cos|sin|tan)f?\b"
    ),
    "device/scoped_atomics.h": re.compile(r"\batomic\w+_(?:block|system)\b"),
    "device/standard.h": re.compile(r"\bstd\b"),
    "device/video.h": re.compile(r"__v(?:i?[a-z]+[234]\b|i\w+)"),
}
_QUOTED_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"', re.MULTILINE)
#: A kernel file that includes <iostream> is linked to the C++ library.
_STREAMS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<iostream>", re.MULTILINE)
#: The linker's message for a thread-local segment, which holds shared memory, beyond 2 GiB.
_TOO_LARGE = re.compile(r"relocation truncated to fit: \S*(?:TPOFF|TLS)")

#: If an instruction has no source line, this many bytes of code before it are searched for one.
_LINE_BYTES = 64
_LOCATION = re.compile(r"\{([^{}\n]+)\+0x([0-9a-f]+)\}")


def resolve_locations(text: str) -> str:
    """Replace each code address `{library+0xoffset}` in a report by the kernel's file and line."""

    def resolve(match: re.Match[str]) -> str:
        # The call of a sanitizer function may have no source line; use the preceding code's line.
        start = int(match[2], 16)
        places = (place(match[1], start - back) for back in range(0, min(start, _LINE_BYTES), 4))
        return next(filter(None, places), "the kernel")

    def place(library: str, offset: int) -> str:
        command = ["addr2line", "-i", "-e", library, f"0x{offset:x}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # The innermost frame comes first: an inlined intrinsic of the emulator, then its caller.
        # The prelude is generated text, named "<prelude>" instead of a file.
        frames = [line.split(" (")[0] for line in done.stdout.splitlines()]
        own = [frame for frame in frames if "<" not in frame and "?" not in frame]
        own += [frame for frame in frames if "<prelude>" in frame]
        return re.sub(r"^(\./)+", "", own[0]) if own else ""

    try:
        return _LOCATION.sub(resolve, text)
    except FileNotFoundError:
        return text


def _flags_for(source: Source, arch: int) -> list[str]:
    """g++ flags that depend on the kernel: language standard, __CUDA_ARCH__, included headers."""
    newer = [flag for flag in [cpp_standard(source.text)] if flag not in _COMMON_FLAGS]
    flags = [*newer, f"-D__CUDA_ARCH__={arch}"]
    includes_file = _QUOTED_INCLUDE.search(source.text)  # it may use any name
    if includes_file:
        flags.append("-DCUDAEMU_NOINLINE")
    for header, names in _NEEDED.items():
        if includes_file or names.search(source.text):
            flags += ["-include", str(FOLDER / header)]
    return flags


class Toolchain:
    """Compiles kernels and the runtime library. With `hazards`, kernels report accesses for race
    detection; with `counts`, for counting memory traffic. Raises EnvironmentProblem without g++."""

    def __init__(self, cache: Path, hazards: bool, counts: bool = False) -> None:
        self._cache = Cache(cache)
        watching = (*_ACCESS_FLAGS, "-DCUDAEMU_WATCHED")
        reporting = _COUNTING_FLAGS if counts else watching if hazards else ()
        self._reporting = (*_KERNEL_FLAGS, *reporting)
        self._compiler = Compiler()
        self._hazards = hazards

    @cached_property
    def _kernel_flags(self) -> tuple[str, ...]:
        major = re.search(r" (\d+)\.\d", self.compiler_version)
        new = major is not None and int(major[1]) >= _UNSET_SINCE
        return (*self._reporting, _UNSET_FLAG) if self._hazards and new else self._reporting

    @property
    def compiler_version(self) -> str:
        """The first line of g++ --version; raises EnvironmentProblem if g++ is broken."""
        return self._compiler.version.splitlines()[0]

    def stop(self) -> None:
        """Kill running compilations."""
        self._compiler.stop()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of compiler version, flags and emulator sources. It does not depend on the package's
        folder, so installations of the same version share the cache."""
        files = sorted(
            path for path in FOLDER.rglob("*") if path.suffix in ("", ".h", ".cuh", ".cpp")
        )
        files = [path for path in files if path.is_file()]
        digest = hashlib.sha256(self._compiler.version.encode())
        for part in (*_RUNTIME_FLAGS, *map(str, files)):
            digest.update(part.replace(str(FOLDER), "").encode() + b"\0")
        for path in files:
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def runtime(self, deadline: Deadline | None = None) -> Path:
        """Path of the runtime library, which is compiled if it is not in the cache. Raises
        OutOfTime at the deadline."""
        name = f"libcudaemu-{self.fingerprint}.so"
        found = self._cache.find(name)
        if found is not None:
            return found
        with self._cache.create(name) as output:

            def compile_part(part: str) -> str:
                units = sorted(FOLDER.glob("*.cpp"))
                text = "".join(f'#include "{unit}"\n' for unit in units if _part(unit) == part)
                target = output.with_name(f"{part}.o")
                arguments = [*_RUNTIME_FLAGS, "-c", "-x", "c++", "-"]
                self._compiler.make(target, arguments, text, deadline)
                return target.name

            with ThreadPoolExecutor() as pool:
                objects = list(pool.map(compile_part, _PARTS))
            # Kernel libraries link to this name; the runtime is loaded before them.
            link = ["-shared", "-pthread", f"-Wl,-soname,{name}", *objects, "-ldl"]
            self._compiler.make(output, link, None, deadline)
        return self._cache.folder / name

    def kernel(
        self, source: Source, deadline: Deadline | None = None, arch: int = DEFAULT_ARCH
    ) -> Path:
        """Path of a kernel's shared library, which is compiled if it is not in the cache. Raises
        BuildError, and OutOfTime at the deadline."""
        text = translation_unit(source)
        all_flags = (*self._kernel_flags, *_flags_for(source, arch))
        flags = [part.replace(str(FOLDER), "") for part in all_flags]
        content = "\0".join((self.fingerprint, *flags, text))
        name = f"{KERNEL}{hashlib.sha256(content.encode()).hexdigest()[:24]}.so"
        found = self._cache.find(name)
        if found is not None:
            return found
        runtime = self.runtime(deadline)
        with self._cache.create(name) as output:
            arguments = [
                *all_flags,
                # Reports contain neither the cache folder nor the package folder.
                f"-ffile-prefix-map={output.parent}=.",
                f"-ffile-prefix-map={FOLDER}=<emulator>",
                *("-x", "c++", "-", "-x", "none", str(runtime)),
                *(["-lstdc++"] if _STREAMS.search(source.text) else []),
                *("-lm", "-lc", "-lgcc"),
            ]
            try:
                self._compiler.make(output, arguments, text, deadline)
            except BuildError as error:
                if not _TOO_LARGE.search(str(error)):
                    raise
                raise BuildError(
                    f"{source.path}: error: {source.entry} declares more than 2 GiB of shared "
                    f"memory, and no kernel may declare more than {SHARED_LIMIT} bytes"
                ) from None
        return self._cache.folder / name


def _part(unit: Path) -> str:
    """The translation unit, one of _PARTS, that a source file of the runtime belongs to."""
    return "races" if unit.stem in _RACE_SOURCES else "launches"
