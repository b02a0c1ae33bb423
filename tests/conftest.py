"""What tests share: the registry, the emulator with a cache for the whole run, the GPU if any."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import cache as cached
from pathlib import Path
from typing import Any

import pytest

from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.backends.emulator.toolchain import Toolchain
from cudareduce.backends.selection import BackendSpec, open_cuda
from cudareduce.catalog.kernel import Kernel, load_kernel
from cudareduce.catalog.registry import Registry, kernels_folder, load_registry
from cudareduce.catalog.suite import Suite, load_suite
from cudareduce.cli.main import run
from cudareduce.errors import EnvironmentProblem
from cudareduce.machine import DeviceInfo
from cudareduce.results.record import Record
from cudareduce.workers import fork_server

ROOT = Path(__file__).resolve().parent.parent

if sys.dont_write_bytecode:
    # Compiled Python is kept all the same, not beside the sources but beside what pytest keeps:
    # hundreds of processes would each compile the package anew.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".pytest_cache" / "compiled")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix


def read_result(text: str | bytes) -> Any:
    """Parse JSON of the tool. In records and devices, fields that are missing are filled in."""
    return json.loads(text, object_hook=_filled_in)


def _filled_in(values: dict[str, Any]) -> dict[str, Any]:
    if {"kernel", "verdict", "timing"} <= values.keys():
        return {**dict.fromkeys(field.name for field in fields(Record)), **values}
    if {"device", "protocol", "records"} <= values.keys():
        device = dict.fromkeys(field.name for field in fields(DeviceInfo))
        return {**values, "device": device | values["device"]}
    return values


def why_no_gpu() -> str | None:
    """The reason why GPU tests cannot run here, or None if they can."""
    try:
        with open_cuda(BackendSpec("cuda")):
            return None
    except EnvironmentProblem as problem:
        return str(problem)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as processors: a third of the time a test waits, for a process that hangs
    or for the other of two."""
    processors = len(os.sched_getaffinity(0))
    return processors + processors // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, with the reason; and begin with the tests of whole
    commands, which take longest, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: item.path.parent != ROOT / "tests")
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = why_no_gpu() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def kernels_are_read_once() -> Iterator[None]:
    """A command reads the package's kernels and suites when it begins, and a run of the tests is
    thousands of commands in a few processes: a file that has not changed is read once in each."""

    @cached
    def read(path: Path, family: str, foreign: bool, stamp: int) -> Kernel:
        return load_kernel(path, family, foreign=foreign)

    @cached
    def read_suite(path: Path, stamp: int) -> Suite:
        return load_suite(path)

    own = kernels_folder()

    def load(path: Path, family: str = "user", *, foreign: bool = True) -> Kernel:
        if not path.is_relative_to(own):
            return load_kernel(path, family, foreign=foreign)
        return read(path, family, foreign, path.stat().st_mtime_ns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cudareduce.catalog.registry.load_kernel", load)
        patch.setattr(
            "cudareduce.catalog.registry.load_suite",
            lambda path: read_suite(path, path.stat().st_mtime_ns),
        )
        yield


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_registry()


#: A run makes some 3000 libraries of 20 KB each.
_MOST_KEPT = 8000
#: A g++ that compiles each part of the runtime once, and hands out copies of it.
_KEEPING = """#!/bin/sh
for made; do :; done
case "$made" in
    launches.o | hazards.o)
        if [ -e {kept}/"$made" ]; then
            cat >/dev/null
            exec cp {kept}/"$made" "$made"
        fi
        {gxx} "$@" && cp "$made" {kept}/"$made.$$" && mv {kept}/"$made.$$" {kept}/"$made" ;;
    *) exec {gxx} "$@" ;;
esac
"""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of a parallel run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@pytest.fixture(scope="session")
def keeping_path(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH whose g++ keeps parts of the runtime, of which each takes two seconds: for tests that
    have it made anew."""
    kept, tools = run_folder / "parts", tmp_path_factory.mktemp("tools")
    kept.mkdir(exist_ok=True)
    gxx = shutil.which("g++")
    if gxx is not None:
        (tools / "g++").write_text(_KEEPING.format(kept=kept, gxx=gxx))
        (tools / "g++").chmod(0o755)
    return f"{tools}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session")
def kept_libraries(pytestconfig: pytest.Config, run_folder: Path) -> Path:
    """Compiled kernels from run to run, each under a hash of all that it is made of: two thousand,
    of which each takes a twentieth of a second. `pytest --cache-clear` removes them."""
    keeping = getattr(pytestconfig, "cache", None)  # there is none with -p no:cacheprovider
    return keeping.mkdir("compiled") if keeping else run_folder


def _last_made(folder: Path, most: int) -> list[Path]:
    """The libraries in a folder, up to so many; older ones are removed."""
    libraries = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in libraries[most:]:
        path.unlink(missing_ok=True)
    return libraries[:most]


@pytest.fixture(scope="session")
def cache(run_folder: Path, keeping_path: str, kept_libraries: Path) -> Iterator[Path]:
    """Compiled kernels, shared by the processes of a parallel run. What an earlier run has made is
    linked to, and what is new is kept for the next."""
    fork_server()  # now: it keeps the environment it starts in, and some tests take g++ out of it
    folder = run_folder / "home" / "cudareduce"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / "lock").open("w") as lock,
        suppress(EnvironmentProblem),
        pytest.MonkeyPatch.context() as patch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of them compiles the runtime, which takes seconds
        for library in _last_made(kept_libraries, _MOST_KEPT):
            with suppress(FileExistsError):
                (folder / library.name).symlink_to(library)
        patch.setenv("PATH", keeping_path)
        Toolchain(folder, hazards=False).runtime()
    yield folder
    for library in folder.glob("*.so"):
        target = kept_libraries / library.name
        if not library.is_symlink() and not target.exists():
            whole = target.with_suffix(f".{os.getpid()}")
            shutil.copy(library, whole)
            whole.replace(target)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify a user's file up to 65536 elements. Larger sizes are tested in tests/verify."""
    monkeypatch.setattr("cudareduce.verify.test_sets._MOST", 2**16)


@pytest.fixture
def small(small_files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify at small sizes only, for tests of what a command prints and writes. The message with
    the number of sizes and launches differs."""
    monkeypatch.setattr("cudareduce.bench.runner._QUICK_EDGE", 4097)


@pytest.fixture(scope="session")
def cpu(cache: Path) -> Iterator[CpuBackend]:
    with CpuBackend(cache=cache) as backend:
        yield backend


@pytest.fixture(scope="session")
def watched(cache: Path) -> Iterator[CpuBackend]:
    """The emulator's build that watches every access."""
    with CpuBackend(cache=cache, hazards=True) as backend:
        yield backend


@pytest.fixture
def cudareduce(
    capfd: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line here: exit code, standard output, standard error."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: cache / "no-tables")

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call
