"""g++ as the compiler of kernels: flags, cache, and places in the source.

A kernel is compiled against `device.h` to a small library. The runtime that all of them share is
compiled once and kept in the same folder.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from cudareduce.backend import Source
from cudareduce.budget import Deadline
from cudareduce.emulator.cache import KERNEL, Cache
from cudareduce.emulator.compiler import Compiler
from cudareduce.emulator.host_calls import mark_host_calls
from cudareduce.emulator.program import SHARED_LIMIT
from cudareduce.emulator.unset import with_unset
from cudareduce.errors import BuildError
from cudareduce.problem.parsing import parsed, standard_of, without_comments

FOLDER = Path(__file__).parent

_COMMON_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique")

#: Kernels reinterpret memory and let integers wrap, as nvcc allows; sums must round as written.
_KERNEL_FLAGS = (
    # Of DWARF 5 the linker takes the wrong file names for its messages.
    *(*_COMMON_FLAGS, "-shared", "-g1", "-gdwarf-4"),
    *("-O1", "-fmax-errors=5", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"),
    "-Werror=vla",  # which no GPU has; under -w it would be taken
    # In every build: not every block that a header names is watched.
    "-fsanitize=bounds",
    "-fno-exceptions",  # or destructors would ask for a part of the C++ library
    "-fno-builtin-printf",  # which would become a call of puts()
    # The default libraries of -fsanitize=thread would be its own runtime; ours takes its place.
    *("-nodefaultlibs", "-Wl,--no-undefined"),
    *("-include", str(FOLDER / "device.h"), "-I", str(FOLDER / "include")),
)
#: An access reports the address that its hook returns to, so a hook must not be a tail call.
_HAZARD_FLAGS = (
    *("-fsanitize=thread,alignment", "--param=tsan-instrument-func-entry-exit=0"),
    "--param=tsan-distinguish-volatile=1",
    "-fno-optimize-sibling-calls",
)
#: What no thread has set is whatever was there on a GPU, and 0 on a fresh stack; from g++ 12 on.
_UNSET_FLAG, _UNSET_SINCE = "-ftrivial-auto-var-init=pattern", 12
#: An access as the text makes it: optimised, a load of 16 bytes becomes four of 4.
_COUNTING_FLAGS = (*_HAZARD_FLAGS, "-fno-sanitize=alignment", "-O0")
#: With -O2 it takes half as long again to compile, and launches are no faster, if only the switch
#: from fiber to fiber is a jump.
_RUNTIME_FLAGS = (*_COMMON_FLAGS, "-O1", "-foptimize-sibling-calls", "-pthread")
#: The runtime is compiled as two units, at the same time: headers take a good part of it, and one
#: for each file took twice as long on two cores.
_PARTS = ("launches", "hazards")

_ARGUMENTS = r"\((?:[^()]|\([^()]*\))*\)"
_ENTRY = re.compile(
    r'extern\s+"C"\s+(?P<words>(?:(?:__global__|static|void|__launch_bounds__\s*'
    rf"{_ARGUMENTS}|__(?:maxnreg|cluster_dims|block_size)__\s*{_ARGUMENTS})\s*)+)(?P<name>\w+)\s*\("
)
_BOUNDS = re.compile(rf"__launch_bounds__\s*(?P<arguments>{_ARGUMENTS})")
#: Headers that take a good part of the time of a compilation, by what a text says that needs them.
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
#: Its header alone asks for the C++ library.
_STREAMS = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<iostream>", re.MULTILINE)
#: A kernel that is for newer GPUs alone is compiled as for one.
_MIN_CC = re.compile(r'^[ \t]*min_cc\s*=\s*"(\d+)\.(\d)"', re.MULTILINE)
_ARCH = 800
_ASKS_ARCH = re.compile(r"\b__CUDA_ARCH__\s*(>=|<=?|>|==|!=)\s*(\d{3,4})\b")
_MOST_ARCHS = 3
_DYNAMIC_SHARED = re.compile(
    r"extern\s+(?P<first>(?:[\w:]+\s+)*?)__shared__\s+"
    rf"(?:(?:__align__|alignas)\s*{_ARGUMENTS}\s*)?"
    r"(?P<type>[\w:<>\s*]*?)\s*\b(?P<name>\w+)\s*\[\s*\]\s*;"
)
#: With nvcc this defines the variable; to C++ it is a declaration unless it stands in braces.
_EXTERN_C_VARIABLE = re.compile(r'extern\s+"C"\s+((?:__constant__|__device__)\s[^;(){}=]*;)')

#: Where C++ has alignas only in front of all, nvcc has __shared__ as an attribute.
_ALIGNED_SHARED = re.compile(
    rf"(?P<words>(?:static\s+)?__shared__\s+(?:static\s+)?)(?P<aligned>alignas\s*{_ARGUMENTS})"
)

#: The linker, of more than it can place in what a thread has for itself, where shared memory is.
_TOO_LARGE = re.compile(r"relocation truncated to fit: \S*(?:TPOFF|TLS)")

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
    """The kernel's text in plain C++, and its entry points in the order of the text, whichever is
    asked for: one library serves all of them. Every line keeps its number."""
    text = with_unset(mark_host_calls(source.text))
    text = _DYNAMIC_SHARED.sub(_dynamic_shared, text)
    if "alignas" in text:
        text = _ALIGNED_SHARED.sub(r"\g<aligned> \g<words>", text)
    text = text.replace("__noinline__", "__attribute__((noinline))")
    text = _EXTERN_C_VARIABLE.sub(r'extern "C" { \1 }', text)
    if source.kernels:
        return f'#line 1 "<prelude>"\n{text}\n#line 1 "<entry points>"\n{_symbols(source)}'
    bounds: dict[str, str] = {}
    for found in _ENTRY.finditer(without_comments(parsed(text))):
        bound = _BOUNDS.search(found["words"])
        bounds[found["name"]] = f", {bound['arguments'][1:-1]}" if bound else ""
    bounds.setdefault(source.entry, "")
    entries = "".join(f"CUDAEMU_ENTRY({name}{bound})\n" for name, bound in bounds.items())
    return f'#line 1 "<prelude>"\n{text}\n#line 1 "<entry points>"\n{entries}'


def _symbols(source: Source) -> str:
    """The lines that make the kernels and variables of an external program known to the loader."""
    lines = [
        f"CUDAEMU_KERNEL(kernel{k}, {_bound(source.text, name)}, {name})\n"
        for k, name in enumerate(source.kernels)
    ]
    lines += [f"CUDAEMU_VARIABLE(variable{k}, {v})\n" for k, v in enumerate(source.variables)]
    return "".join(lines)


def _bound(text: str, kernel: str) -> str:
    """Threads a block that the launch bounds of a kernel allow, where they are a number."""
    name = kernel.partition("<")[0].rpartition("::")[2]
    found = re.search(rf"__launch_bounds__\s*\(\s*(\d+)[^()]*\)\s*(?:void\s+)?{name}\s*\(", text)
    return found[1] if found else "1024"


def _dynamic_shared(found: re.Match[str]) -> str:
    """What stands for memory that a launch gives its size: outside of functions it is that of
    whichever block looks."""
    at = len(found.string[: found.start()].encode())
    node = parsed(found.string).descendant_for_byte_range(at, at)
    while node is not None and node.type != "compound_statement":
        node = node.parent
    macro = "CUDAEMU_SHARED_OF_FILE" if node is None else "CUDAEMU_DYNAMIC_SHARED"
    return f"{macro}({found['first']}{found['type']}, {found['name']});"


def archs(source: Source) -> tuple[int, ...]:
    """Values of __CUDA_ARCH__, at least `min_cc`, that select different branches of a kernel file.

    The first is the default. Branches in the typed prelude do not count: they only tune.
    """
    _, _, kernel_text = source.text.partition(f'#line 1 "{source.path}"\n')
    kernel_text = kernel_text or source.text
    [(a, b)] = _MIN_CC.findall(source.text)[:1] or [("7", "5")]
    least = 100 * int(a) + 10 * int(b)
    usual = max(least, _ARCH)
    asked = {int(n) + (10 if sign == ">" else 0) for sign, n in _ASKS_ARCH.findall(kernel_text)}
    steps = sorted(n for n in asked if n > least)
    if not steps:
        return (usual,)
    own = max((n for n in steps if n <= usual), default=least)
    return (usual, *(n for n in (least, *steps) if n != own))[:_MOST_ARCHS]


def _flags_for(source: Source, arch: int) -> list[str]:
    """What this text alone is compiled with: its standard, the GPU it is for, the headers it
    needs."""
    newer = [flag for flag in [standard_of(source.text)] if flag not in _COMMON_FLAGS]
    flags = [*newer, f"-D__CUDA_ARCH__={arch}"]
    anything = _QUOTED_INCLUDE.search(source.text)
    if anything:
        flags.append("-DCUDAEMU_NOINLINE")
    for header, need in _NEEDED.items():
        if anything or need.search(source.text):
            flags += ["-include", str(FOLDER / header)]
    return flags


class Toolchain:
    """g++ with its flags, and the folder that keeps what it made; an EnvironmentProblem without
    it."""

    def __init__(self, cache: Path, hazards: bool, counts: bool = False) -> None:
        self._cache = Cache(cache)
        reporting = _COUNTING_FLAGS if counts else _HAZARD_FLAGS if hazards else ()
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
        """The first line that g++ says of itself. Raises EnvironmentProblem if it is broken."""
        return self._compiler.version.splitlines()[0]

    def stop(self) -> None:
        """End what is being compiled: for a run that is interrupted."""
        self._compiler.stop()

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that decides what the runtime and, with its own text and flags, a kernel is
        compiled to. Where this package lies does not: another installation of the same version
        finds what is there."""
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
        """The runtime library, compiled unless the cache has it; raises OutOfTime."""
        name = f"libcudaemu-{self.fingerprint}.so"
        found = self._cache.find(name)
        if found is not None:
            return found
        with self._cache.making(name) as made:

            def compile_part(part: str) -> str:
                units = sorted(FOLDER.glob("*.cpp"))
                text = "".join(f'#include "{unit}"\n' for unit in units if _part(unit) == part)
                target = made.with_name(f"{part}.o")
                arguments = [*_RUNTIME_FLAGS, "-c", "-x", "c++", "-"]
                self._compiler.make(target, arguments, text, deadline)
                return target.name

            with ThreadPoolExecutor() as pool:
                objects = list(pool.map(compile_part, _PARTS))
            # Kernels find it by this name: it is loaded before they are.
            link = ["-shared", "-pthread", f"-Wl,-soname,{name}", *objects, "-ldl"]
            self._compiler.make(made, link, None, deadline)
        return self._cache.folder / name

    def kernel(self, source: Source, deadline: Deadline | None = None, arch: int = _ARCH) -> Path:
        """The library of a kernel, compiled unless the cache has it; raises BuildError, and
        OutOfTime."""
        text = _translation_unit(source)
        all_flags = (*self._kernel_flags, *_flags_for(source, arch))
        flags = [part.replace(str(FOLDER), "") for part in all_flags]
        content = "\0".join((self.fingerprint, *flags, text))
        name = f"{KERNEL}{hashlib.sha256(content.encode()).hexdigest()[:24]}.so"
        found = self._cache.find(name)
        if found is not None:
            return found
        runtime = self.runtime(deadline)
        with self._cache.making(name) as made:
            arguments = [
                *all_flags,
                # Neither the place of the cache nor that of this package belongs into a report.
                f"-ffile-prefix-map={made.parent}=.",
                f"-ffile-prefix-map={FOLDER}=<emulator>",
                *("-x", "c++", "-", "-x", "none", str(runtime)),
                *(["-lstdc++"] if _STREAMS.search(source.text) else []),
                *("-lm", "-lc", "-lgcc"),
            ]
            try:
                self._compiler.make(made, arguments, text, deadline)
            except BuildError as error:
                if not _TOO_LARGE.search(str(error)):
                    raise
                raise BuildError(
                    f"{source.path}: error: {source.entry} declares more than 2 GiB of shared "
                    f"memory, and no kernel may declare more than {SHARED_LIMIT} bytes"
                ) from None
        return self._cache.folder / name


def _part(unit: Path) -> str:
    """Which of _PARTS a source file of the runtime belongs to."""
    return "hazards" if unit.name.startswith("hazard") else "launches"
