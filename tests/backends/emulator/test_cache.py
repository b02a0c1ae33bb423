"""The cache of compiled libraries: damaged and incomplete ones are never loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.backends.emulator.cache import Cache
from cudareduce.backends.emulator.cpu import CpuBackend
from cudareduce.errors import EnvironmentProblem
from tests.backends.emulator.test_cpu import load, run_sum
from tests.conftest import ROOT


def keep(cache: Cache, name: str, content: bytes) -> None:
    with cache.create(name) as made:
        made.write_bytes(content)


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new")
    assert cache.find("a.so") is None
    keep(cache, "a.so", b"content")
    found = cache.find("a.so")
    assert found is not None
    assert found.read_bytes().startswith(b"content")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.so"]


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content[: len(content) // 2],
        lambda content: b"C" + content[1:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"\0" * len(content),
    ],
)
def test_what_is_damaged_is_not_found(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    cache = Cache(tmp_path)
    keep(cache, "a.so", b"content" * 100)
    path = tmp_path / "a.so"
    path.write_bytes(damaged(path.read_bytes()))
    assert cache.find("a.so") is None
    keep(cache, "a.so", b"content")
    assert cache.find("a.so") == path


def test_a_compile_error_leaves_no_file_in_the_cache(tmp_path: Path) -> None:
    with pytest.raises(KeyError), Cache(tmp_path).create("a.so") as made:
        made.write_bytes(b"half")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_removed_after_a_while(tmp_path: Path) -> None:
    for name, age in (("unfinished-old", 700.0), ("unfinished-new", 1.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.so").write_bytes(b"half")
        now = (tmp_path / name).stat().st_mtime
        os.utime(tmp_path / name, (now - age, now - age))
    keep(Cache(tmp_path), "b.so", b"content")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.so", "unfinished-new"]


def test_of_too_many_the_longest_unused_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudareduce.backends.emulator.cache.MOST_KERNELS", 4)
    cache = Cache(tmp_path)
    keep(cache, "runtime.so", b"content")
    for k in range(5):
        keep(cache, f"kernel-{k}.so", b"content")
        os.utime(tmp_path / f"kernel-{k}.so", (1000 + k, 1000 + k))
    assert cache.find("kernel-0.so") is not None  # and so it was used last
    keep(cache, "kernel-5.so", b"content")
    names = [f"kernel-{k}.so" for k in (0, 3, 4, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "runtime.so"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(EnvironmentProblem, match=r"^cannot write to .*/file \(.*\): free space"),
        Cache(tmp_path / "file").create("a.so"),
    ):
        pass


@pytest.mark.long
@pytest.mark.parametrize("name", ["libcudaemu-*.so", "kernel-*.so"])
def test_a_damaged_library_is_compiled_again(
    tmp_path: Path, cpu: CpuBackend, keeping_path: str, name: str
) -> None:
    runtime = cpu._toolchain.runtime()
    shutil.copy(runtime, tmp_path)
    with CpuBackend(cache=tmp_path) as backend:
        load(backend, "right.cu", "tree")
    [damaged] = tmp_path.glob(name)
    whole = damaged.read_bytes()
    damaged.unlink()  # it is loaded here
    damaged.write_bytes(whole[:2000])
    script = f"""
from pathlib import Path
from cudareduce.backends.emulator.cpu import CpuBackend
from tests.backends.emulator.test_cpu import load, run_sum
with CpuBackend(cache=Path({str(tmp_path)!r})) as backend:
    answer, expected = run_sum(backend, load(backend, "right.cu", "tree"), 1000)
    assert answer == expected
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PATH": keeping_path},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert damaged.read_bytes() == whole


@pytest.mark.long
def test_one_empty_cache_serves_several_at_once(tmp_path: Path, cpu: CpuBackend) -> None:
    shutil.copy(cpu._toolchain.runtime(), tmp_path)
    script = f"""
from pathlib import Path
from cudareduce.backends.emulator.cpu import CpuBackend
from tests.backends.emulator.test_cpu import load, run_sum
with CpuBackend(cache=Path({str(tmp_path)!r})) as backend:
    print(run_sum(backend, load(backend, "right.cu", "tree"), 1000))
"""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = {process.communicate() for process in running}
    assert len(said) == 1
    assert {error for _, error in said} == {b""}
    with CpuBackend(cache=tmp_path) as backend:
        answer, expected = run_sum(backend, load(backend, "right.cu", "tree"), 1000)
    assert answer == expected
