"""`info` never fails: whatever is broken is a row, and what is missing has one thing to do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cudareduce import machine
from cudareduce.analysis.profile import ncu
from cudareduce.cli import info
from cudareduce.cli.info import GpuState, notes
from tests.test_machine import tool

Call = Callable[..., tuple[int, str, str]]


def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing on it but Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(machine, "packaged", lambda path: [])
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(info, "_version", lambda name: "not installed")
    monkeypatch.setattr(info, "_driver", lambda: "not found")
    monkeypatch.setattr(info, "_cuda_headers", lambda: None)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))


def row(out: str, name: str) -> str:
    return next(line for line in out.splitlines() if line.strip().startswith(f"{name} "))


def test_all_that_a_gpu_needs_is_named(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare(monkeypatch, tmp_path)
    code, out, _ = cudareduce("info")
    assert code == 0
    for note in (
        "No GPU. Kernels are verified on the CPU and not timed.",
        "No driver: install NVIDIA's",
        "No nvcc, which compiles kernels: pip install 'cudareduce[compile]'.",
        "No cuda.h and cudaProfiler.h, which PyCUDA is built from: pip install",
        "No Python.h, which PyCUDA is built from: install the headers of this Python",
        "No PyCUDA: pip install --config-settings=",
        "No g++, which the CPU backend needs",
    ):
        assert f"\n{note}" in out


def test_headers_of_a_package_are_in_the_command(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bare(monkeypatch, tmp_path)
    monkeypatch.setattr(info, "_cuda_headers", lambda: Path("/packages/include"))
    _, out, _ = cudareduce("info")
    assert 'No PyCUDA: CPATH="/packages/include" pip install --config-settings=' in out
    assert "No cuda.h" not in out


@pytest.mark.parametrize(
    ("script", "limit_s", "said"),
    [
        ("#!/bin/sh\nexit 1\n", 60, ": exits with 1"),
        ("#!/bin/sh\nprintf '\\033[31m\\377 9\\007'\n", 60, "[31m� 9"),
        ("#!/bin/sh\necho hello\n", 60, "unknown version"),
        ("#!/bin/sh\nwhile :; do :; done\n", 0.1, ": does not end within 0.1 s"),
    ],
)
def test_info_reports_tools_that_do_not_work(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str,
    limit_s: float, said: str,
) -> None:  # fmt: skip
    bare(monkeypatch, tmp_path)
    run_version = machine.run_version
    monkeypatch.setattr(machine, "run_version", lambda path: run_version(path, limit_s))
    for name in ("nvcc", "g++", "ncu"):
        tool(tmp_path / "bin", script, name)
    code, out, _ = cudareduce("info")
    assert code == 0
    for name in ("nvcc", "g++", "ncu"):
        assert row(out, name).strip().endswith(said)
    assert "No g++" not in out


def test_a_cache_that_cannot_be_written(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(info, "default_cache", lambda: tmp_path / "file" / "cudareduce")
    code, out, _ = cudareduce("info")
    assert code == 0
    assert "cannot be written (Not a directory); set XDG_CACHE_HOME" in row(out, "compiled kernels")
    monkeypatch.setattr(info, "default_cache", lambda: tmp_path / "new" / "cudareduce")
    _, out, _ = cudareduce("info")
    assert row(out, "compiled kernels").strip().endswith("new/cudareduce")
    assert not (tmp_path / "new").exists()


def test_a_pycuda_that_raises_anything(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pycuda, driver = ModuleType("pycuda"), ModuleType("pycuda.driver")

    def init() -> Any:
        raise ValueError("of no use")

    vars(driver).update(init=init, Error=OSError)
    vars(pycuda).update(driver=driver)
    monkeypatch.setitem(sys.modules, "pycuda", pycuda)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    code, out, _ = cudareduce("info")
    assert code == 0
    assert "No GPU: ValueError in PyCUDA: of no use. Kernels are verified" in out


def found(**other: str) -> dict[str, str]:
    here = ("driver", "nvcc", "g++", "pycuda", "ncu", "nvidia-ml-py", "cuda-bench",
            "compute-sanitizer")  # fmt: skip
    return dict.fromkeys(here, "1.0") | {"counters": "for all users"} | other


H200 = GpuState((), name="NVIDIA H200")


def test_a_machine_with_all_is_ready_and_has_nothing_to_do() -> None:
    assert list(notes(found(), H200, None)) == ["Ready to measure on NVIDIA H200."]


@pytest.mark.parametrize(
    ("gpu", "missing", "why"),
    [
        (replace(H200, throttled=("power cap",)), {},
         "the GPU is throttled (power cap): cool it, or raise its power limit"),
        (replace(H200, others=2), {},
         "2 other processes on the GPU: wait, or choose another with --device"),
        (H200, {"nvcc": "not found"}, "nvcc is missing"),
    ],
)  # fmt: skip
def test_the_last_line_names_what_is_missing(
    gpu: GpuState, missing: dict[str, str], why: str
) -> None:
    assert list(notes(found(**missing), gpu, None))[-1] == f"Not ready to measure: {why}."


def test_without_a_gpu_it_may_still_verify() -> None:
    none = GpuState(problem="No GPU.")
    assert list(notes(found(), none, None))[-1] == (
        "Not ready to measure; ready to verify on the CPU."
    )
    assert list(notes(found(**{"g++": "not found"}), none, None))[-1] == (
        "Not ready to measure; not ready to verify on the CPU."
    )


def test_what_is_more_has_what_brings_it() -> None:
    told = list(notes(found(**{"cuda-bench": "not installed", "ncu": "not found"}), H200, None))
    assert (
        "No cuda-bench, for comparing selftest with NVBench: pip install 'cudareduce[nvbench]'"
        in told
    )
    assert told[-1] == "Ready to measure on NVIDIA H200."


def test_info_explains_how_to_enable_restricted_counters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parameters = tmp_path / "params"
    monkeypatch.setattr(ncu, "_PARAMETERS", parameters)
    assert ncu.counters() == "not found"
    parameters.write_text("RmProfilingAdminOnly: 1\n")
    only = ncu.counters()
    assert only == "for administrators only"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in next(notes(found(counters=only), H200, None))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert len(list(notes(found(counters=only), H200, None))) == 1
