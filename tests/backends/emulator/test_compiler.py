"""Failures of g++ are distinguished from errors in the kernel, and time out."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.backends.emulator import compiler
from cudareduce.backends.emulator.compiler import Compiler, OutOfTime
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.protocol import Source
from cudareduce.budget import Deadline
from cudareduce.errors import BuildError, EnvironmentProblem

Pretend = Callable[[str], Compiler]
#: Tells its version, and compiles for ever.
HANGS = f'case "$*" in *shared*) sleep 9999;; *) exec {shutil.which("g++")} "$@";; esac'


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """A g++ that is this shell script."""

    def make(script: str) -> Compiler:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "g++").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "g++").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return Compiler()

    return make


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", "ended without an error and wrote no file"),
        (": > k.so", "ended without an error and wrote no file"),
        ("kill -SEGV $$", "was ended by SIGSEGV"),
        ("echo oh no >&2; exit 127", r"ended with code 127 \(oh no\)"),
        ("exit 1", r"ended with code 1 \(no message\)"),
        (
            "echo 'g++: fatal error: Killed signal terminated program cc1plus' >&2; exit 1",
            r"crashed \(g\+\+: fatal error: Killed signal terminated program cc1plus\)",
        ),
        (
            "echo 'k.cu:1:1: internal compiler error: Segmentation fault' >&2; exit 1",
            r"crashed .*",
        ),
    ],
)
def test_a_compiler_that_fails_is_named(
    pretend: Pretend, tmp_path: Path, script: str, said: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"^\S*/g\+\+ {said}: reinstall it") as caught:
        pretend(script).make(tmp_path / "k.so", [])
    assert "\n" not in str(caught.value)


def test_a_compiler_without_a_version_is_named(pretend: Pretend) -> None:
    with pytest.raises(EnvironmentProblem, match=r"g\+\+ ended with code 3 \(no message\)"):
        _ = pretend("exit 3").version


def test_a_compiler_that_cannot_be_started_is_named(pretend: Pretend) -> None:
    broken = pretend("")
    Path(broken.path).write_text("#!/no/such/shell\n")
    with pytest.raises(EnvironmentProblem, match=r"g\+\+ does not run \(No such file"):
        _ = broken.version


def test_a_full_disk_is_no_fault_of_the_kernel(pretend: Pretend, tmp_path: Path) -> None:
    full = pretend(
        "echo '/usr/bin/ld: final link failed: No space left on device' >&2\n"
        "echo 'collect2: error: ld returned 1 exit status' >&2; exit 1"
    )
    folder = tmp_path / "unfinished"
    folder.mkdir()
    with pytest.raises(EnvironmentProblem, match=f"^{tmp_path} is full: make room"):
        full.make(folder / "k.so", [])


def test_a_compiler_that_hangs_is_ended_with_what_it_started(
    pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "LIMIT_S", 0.3)
    with pytest.raises(EnvironmentProblem, match=r"g\+\+ was not done after 0\.3 s"):
        pretend("sleep 9999").make(tmp_path / "k.so", [])  # which holds the pipes open


def test_the_deadline_ends_what_runs(pretend: Pretend, tmp_path: Path) -> None:
    with pytest.raises(OutOfTime):
        pretend("sleep 9999").make(tmp_path / "k.so", [], None, Deadline(0.3))


def kernel(body: str, first: str = "") -> Source:
    head = 'extern "C" __global__ void mine(float *in)'
    text = f'#line 1 "some/mine.cu"\n{first}\n{head}\n{{\n{body}\n}}\n'
    return Source(text, "mine", Path("some/mine.cu"))


def test_sources_after_the_deadline_are_none(
    cache: Path, pretend: Pretend, tmp_path: Path, cpu: CpuBackend
) -> None:
    cpu.build([])  # the runtime is there
    pretend(HANGS)
    calls: list[None] = []
    sources = [kernel(f"in[0] = {tmp_path.stat().st_ino}.f + {i};") for i in range(3)]
    with CpuBackend(cache=cache) as backend:
        built = backend.build(sources, lambda: calls.append(None), Deadline(1))
    assert built == [None, None, None]
    assert len(calls) == 3


def test_an_interrupted_build_ends_what_runs(
    cache: Path, pretend: Pretend, cpu: CpuBackend, tmp_path: Path
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    quick, *slow = (kernel(f"in[0] = {tmp_path.stat().st_ino}.f * {i};") for i in range(9))
    cpu.build([quick])
    pretend(HANGS)
    with CpuBackend(cache=cache) as backend, pytest.raises(KeyboardInterrupt):
        backend.build([quick, *slow], interrupt)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("*in = helper(*in);", "helper(float) is not defined"),
        ("*in = table[3];", "table is not defined"),
        ("throw 1;", "throw cannot be used in a kernel: no C++ library is linked to it"),
        (
            "*in = typeid(*(One *)in) == typeid(Two);",
            "typeid and dynamic_cast cannot be used in a kernel",
        ),
        ("static float x = *in; *in += x;", "a static variable set when first reached cannot be"),
    ],
)
@pytest.mark.parametrize("hazards", [False, True], ids=["plain", "hazards"])
def test_an_undefined_symbol_is_named_with_its_line(
    cache: Path, body: str, message: str, hazards: bool
) -> None:
    first = (
        "#include <typeinfo>\nfloat helper(float); extern float table[]; struct One { virtual "
        "int f(); }; struct Two : One {};"
    )
    with CpuBackend(cache=cache, hazards=hazards) as backend:
        [error] = backend.build([kernel(body, first)])
    assert isinstance(error, BuildError)
    assert re.search(
        rf"^some/mine\.cu:5:(\d+:)? error: {re.escape(message)}", str(error), re.MULTILINE
    )
    assert "collect2" not in str(error)
