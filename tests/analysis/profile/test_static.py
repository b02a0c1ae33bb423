"""`profile --static`: values without a GPU, under the names of the counters."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.analysis.profile import static
from cudareduce.compare.machine_code import find_disassembler
from cudareduce.errors import EnvironmentProblem
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
LADDER = ("reduce_v1_no_divergence", "reduce_v2_no_bank_conflict")
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")


def no_nvcc(*_: object) -> None:
    raise EnvironmentProblem("nvcc was not found: install it")


def test_conflicts_show_without_nvcc(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    code, out, _ = cudareduce("profile", *LADDER, "--static", "--quiet")
    assert code == 0
    first, second = out.split("reduce_v2_no_bank_conflict: sum of float32 on sm_90")
    assert "3.33 wavefronts per access  bank conflicts: lanes access different words" in first
    assert "1.00 wavefronts per access  almost no bank conflicts" in second
    assert "1.00x                       each byte is read once" in second
    assert "Compiler results are missing: nvcc was not found" in out
    assert "next: reduce_v2_no_bank_conflict (improves shared memory): The stride starts" in first


@needs_nvcc
@pytest.mark.skipif(find_disassembler() is None, reason="no cuobjdump")
def test_registers_and_loads_come_from_the_compiler(cudareduce: Call) -> None:
    code, out, _ = cudareduce("profile", "reduce_v2_no_bank_conflict", "--static", "--quiet")
    assert code == 0
    for words in (
        "registers ",
        "0 bytes per thread",
        "64 of 64",
        "8.19 kB per SM",
        "1 load, 2 bar",
    ):
        assert words in out


@pytest.mark.long
@needs_nvcc
def test_hardware_that_is_not_emulated_is_compiled_alone(cudareduce: Call) -> None:
    code, out, _ = cudareduce("profile", "reduce_tiles_ring", "--static", "--quiet")
    assert code == 0
    assert "reduce_tiles_ring is not counted: it needs tma" in out
    assert "wavefronts per access" not in out


def test_wide_partials_take_more_turns_without_conflicts(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    args = ("--static", "--quiet", "--dtype", "float64")
    _, out, _ = cudareduce("profile", *LADDER, *args)
    first, second = out.split("reduce_v2_no_bank_conflict: sum of float64")
    assert "bank conflicts: lanes" in first
    assert "the minimum for 8 bytes per lane" in second


@pytest.mark.long
@needs_nvcc
def test_loads_that_the_emulator_does_not_count_are_omitted(cudareduce: Call) -> None:
    code, out, _ = cudareduce("profile", LADDER[0], "--static", "--quiet", "--dtype", "float16")
    assert code == 0
    assert "the emulator does not see all its loads" in out
    assert "wavefronts per access" not in out


def test_of_one_that_is_neither_compiled_nor_emulated_nothing_is_known(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    code, out, err = cudareduce("profile", "reduce_tiles_ring", "--static", "--quiet")
    assert (code, out) == (2, "")
    assert "reduce_tiles_ring is not counted: it needs tma" in err


def test_options_apply_to_an_external_file(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    path = ROOT / "tests/docs/theirs.cu"
    entry = ("--entry", "reduce6<float, 256>")
    code, out, _ = cudareduce("profile", path, "--static", "--quiet", *entry)
    assert code == 0 and "theirs: sum of float32" in out


def test_a_static_profile_without_a_compiler_is_an_environment_error(
    cudareduce: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    monkeypatch.setattr(static, "count_traffic", no_nvcc)
    code, out, err = cudareduce("profile", LADDER[0], "--static", "--quiet")
    assert (code, out) == (6, "")
    assert "Compiler results are missing" in err
    assert "Memory accesses are not counted" in err


@pytest.mark.long
def test_an_external_file_is_noted_as_not_verified(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    file = "tests/foreign_shapes/aligned_raw_shared.cu"
    code, out, _ = cudareduce("profile", file, "--static", "--quiet")
    assert code == 0
    assert "aligned_raw_shared is not verified by profile" in out


def test_pictures_take_counters(cudareduce: Call, tmp_path: Path) -> None:
    code, _, err = cudareduce("profile", LADDER[0], "--static", "--png", tmp_path / "p.png")
    assert code == 2
    assert "leave out --static" in err


def test_a_size_has_no_effect(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static, "find_nvcc", no_nvcc)
    _, _, err = cudareduce("profile", LADDER[0], "--static", "--n", "1000")
    assert "--n has no effect here" in err
