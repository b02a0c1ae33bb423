"""Compile the host code of a file against the recorder with g++. Functions that g++ cannot
compile are left out if the program works without them."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.backends.emulator.cache import Cache
from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.external.preprocess import HEADERS, Preprocessed, preprocess
from cudareduce.external.rewrite import LAUNCH, HostFunction, HostProgram, rewrite

_RUNTIME = HEADERS.parent
# std::is_pointer does not know restricted pointers.
_FLAGS = ("-O0", "-w", "-fpermissive", "-Wno-narrowing", "-fmax-errors=30", "-pthread",
          "-Wl,--no-demangle", "-no-pie",
          "-D__restrict__=", "-D__restrict=")  # fmt: skip
_COMPILE_LIMIT_S = 60.0
_MOST_ATTEMPTS = 6
_ERROR = re.compile(r"^host\.cpp:(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", re.MULTILINE)
_UNDECLARED = re.compile(r"'(\w+)' was not declared in this scope")
_UNDEFINED = re.compile(r"undefined reference to `(\w+)'")
_CHECK_MACRO = re.compile(r"(?i)check|err|safe|assert|cuda|gpu|call")
_FORGOTTEN = re.compile(r"did you forget to '#include <(\w+)>'")
_CXX20 = re.compile(rb"\brequires\b|\bconcept\b|<=>|<(?:span|concepts|bit|ranges|numbers)>")
_LIBRARIES = {
    "torch": re.compile(r"^(?:torch|ATen|c10|pybind11|Python\.h)"),
    "MPI": re.compile(r"^mpi\.h"),
    "OpenCV": re.compile(r"^opencv"),
}


class RecordingError(UsageError):
    """The host code of a file cannot be run, or launches nothing."""


@dataclass(frozen=True, slots=True)
class Executable:
    """A compiled host program and the functions that it can call."""

    path: Path
    functions: tuple[HostFunction, ...]
    called: tuple[HostFunction, ...]  # by the main() that was added, in order of its numbers
    problem: str | None  # why function bodies were left out: the program traps where it needs one

    @property
    def has_main(self) -> bool:
        return any(function.name == "main" for function in self.functions)


def build(
    path: Path,
    text: bytes,
    *,
    include: Sequence[Path],
    define: Sequence[str],
    call: Sequence[str] | None,
    cache: Cache,
    folder: Path,
) -> Executable:
    """Compile the host code of a file. With `call` None the executable runs its main().
    Otherwise a generated main() calls the named host functions; () selects all functions that
    launch."""
    source = preprocess(path, text, include, define, folder)
    own_main = call is None
    if not LAUNCH.search(source.text):
        if not own_main:
            raise RecordingError(f"{path.name} has no host code that launches a kernel.")
        raise RecordingError(f"{path.name}: its main() launches no kernel.")
    blank: frozenset[int] = frozenset()
    extra: list[str] = []
    dropped: set[str] = set()
    errors, problem = "", None
    for _ in range(_MOST_ATTEMPTS):
        program = rewrite(source, blank)
        called = () if own_main else _roots(program.functions, call or (), dropped)
        code = program.text if own_main else _with_main(program, called)
        flags = ["-std=gnu++20" if _CXX20.search(source.text) else "-std=gnu++17", *extra]
        flags += ["-fopenmp"] if b"omp" in source.text else []
        binary, errors = _compile(code, flags, include, cache)
        if binary is not None:
            return Executable(binary, program.functions, called, problem)
        changed = _leave_out(errors, program, code, blank, extra, dropped)
        if changed is None:
            break
        if changed != blank:
            problem = problem or _complaint(path, source, errors)
        blank = changed
    raise RecordingError(_complaint(path, source, errors))


def _compile(
    code: bytes, flags: Sequence[str], include: Sequence[Path], cache: Cache
) -> tuple[Path | None, str]:
    command = [
        *("g++", *flags, *_FLAGS, "-include", str(HEADERS / "cuda_runtime.h")),
        *("-I", str(HEADERS), "-I", str(_RUNTIME)),
        *(word for where in include for word in ("-I", str(where))),
    ]
    runtime = _runtime(cache)
    key = hashlib.sha256(b"\0".join([*map(str.encode, command), runtime.name.encode(), code]))
    name = f"host-{key.hexdigest()[:32]}"
    found = cache.find(name)
    if found is not None:
        return found, ""
    with cache.create(name) as made:
        (made.parent / "host.cpp").write_bytes(code)
        done = _run([*command, "host.cpp", str(runtime), "-o", made.name], made.parent)
        if done.returncode != 0:
            made.write_bytes(b"failed")
    if done.returncode != 0:
        (cache.folder / name).unlink(missing_ok=True)
        return None, done.stderr
    return cache.folder / name, ""


def _runtime(cache: Cache) -> Path:
    """The compiled recorder library."""
    sources = [_RUNTIME / "recorder.cpp", _RUNTIME / "recorder.h", _RUNTIME / "runtime_types.h"]
    key = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources))
    for header in sorted(HEADERS.rglob("*")):  # they are part of what is compiled against it
        key.update(header.read_bytes() if header.is_file() else b"")
    name = f"recorder-{key.hexdigest()[:32]}.o"
    found = cache.find(name)
    if found is not None:
        return found
    with cache.create(name) as made:
        done = _run(
            ["g++", "-std=gnu++17", "-O1", "-c", str(sources[0]), "-o", made.name], made.parent
        )
        if done.returncode != 0:
            raise EnvironmentProblem(f"g++ does not compile the recorder: {done.stderr[:300]}")
    return cache.folder / name


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", check=False,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": str(folder)},
            timeout=_COMPILE_LIMIT_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise EnvironmentProblem("g++ was not found: install it to run host code") from None
    except subprocess.TimeoutExpired:
        raise RecordingError(f"g++ takes over {_COMPILE_LIMIT_S:g} s for the host code") from None


def _roots(
    functions: Sequence[HostFunction], names: Sequence[str], dropped: set[str]
) -> tuple[HostFunction, ...]:
    """The host functions to call: those named, or all that launch and that no other function
    calls."""
    functions = [function for function in functions if function.name != "main"]
    by_name = {function.name: function for function in functions}
    launching = {function.name for function in functions if function.launches}
    grown = True
    while grown:
        reached = {f.name for f in functions if f.calls & launching} | launching
        grown, launching = reached != launching, reached
    called = {name for f in functions if f.name in launching for name in f.calls - {f.name}}
    chosen = [by_name[name] for name in sorted(launching - called, key=lambda n: by_name[n].line)]
    if names:
        chosen = [function for function in functions if function.name in names]
    return tuple(f for f in chosen if f.name not in dropped)


def _with_main(program: HostProgram, called: Sequence[HostFunction]) -> bytes:
    lines = ['#include "call.h"', "int main(int count, char **values) {"]
    for number, function in enumerate(called):
        names = ", ".join(f'"{name}"' for name in function.parameters)
        lines.append(
            f"  if (atoi(values[1]) == {number}) "
            f"return recorder::call(&::{function.call}, {{{names}}}, values + 2);"
        )
    text = re.sub(rb"\bmain(?=\s*\()", b"recorder_main", program.text)
    return text + b"\n" + "\n".join([*lines, "  return 2;", "}", ""]).encode()


def _leave_out(
    errors: str,
    program: HostProgram,
    code: bytes,
    blank: frozenset[int],
    extra: list[str],
    dropped: set[str],
) -> frozenset[int] | None:
    """What to leave out after compiler errors: the positions of function bodies to blank, or
    None if nothing is left to try. Macros and candidates are added to `extra` and `dropped`."""
    found = [(int(line) - 1, message) for line, message in _ERROR.findall(errors)]
    more, changed = set(blank), False
    for name in _UNDEFINED.findall(errors):  # of another file: it does nothing
        flag = f"-Wl,--defsym={name}=recorder_missing"
        if flag not in extra:
            extra.append(flag)
            changed = True
    forgotten = _FORGOTTEN.findall(errors)
    if not forgotten and "is not a member of 'std'" in errors:
        forgotten = ["algorithm", "functional", "numeric", "string", "vector"]
    for header in forgotten:
        if header not in extra:
            extra += ["-include", header]
            changed = True
    rows = code.split(b"\n")
    launching = {function.line for function in program.functions if function.launches}
    for row, message in found:
        undeclared = _UNDECLARED.search(message)
        if undeclared and undeclared[1].upper() == undeclared[1] and _CHECK_MACRO.search(message):
            flag = f"-D{undeclared[1]}(call,...)=(call)"
            if flag not in extra:
                extra.append(flag)
                changed = True
            continue
        line = rows[row] if row < len(rows) else b""
        candidate = re.search(rb"recorder::call\(&::([\w:]*?)(\w+)[<,]", line)
        if candidate:
            dropped.add(candidate[2].decode())
            changed = True
            continue
        inside = [body for body in program.bodies if body[0] <= row <= body[1]]
        if inside:
            first, _, start = max(inside)
            has_launch = any(b"recorder::" in rows[at] for at in range(first, inside[-1][1] + 1))
            if not has_launch and not launching & {first} and start not in more:
                more.add(start)
                changed = True
    return frozenset(more) if changed else None


def _complaint(path: Path, source: Preprocessed, errors: str) -> str:
    for library, pattern in _LIBRARIES.items():
        if any(pattern.search(name) for name in source.missing):
            return f"{path.name}: its host code needs {library}, which is not simulated."
    if source.missing:
        return f"{path.name}: the header {source.missing[0]} is missing. Add its folder with -I."
    error = _ERROR.search(errors)
    if error is None:
        last = (errors.strip().splitlines() or ["g++ fails"])[-1]
        return f"{path.name}: the host code does not link here: {last}"
    file, line = source.place(int(error[1]) - 1)
    undeclared = _UNDECLARED.search(error[2])
    if undeclared and undeclared[1].upper() == undeclared[1]:
        name = undeclared[1]
        return f"{Path(file).name}:{line}: {name} is not defined. Add -D {name}=VALUE."
    return f"{Path(file).name}:{line}: the host code does not compile here: {error[2]}"
