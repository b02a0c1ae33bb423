"""`profile`: explained counters, static values, and errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cudareduce.analysis.profile.static import StaticValues
from cudareduce.launch.case import Case
from cudareduce.machine import DeviceInfo
from cudareduce.reduction.operators import Map
from tests.analysis.profile.fakes import V0, FakeNcu, N, fake_ncu
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
LADDER = ("reduce_v0_baseline", "reduce_v1_no_divergence", "reduce_v2_no_bank_conflict")


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> FakeNcu:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    return fake_ncu(tmp_path / "bin", monkeypatch)


def lines_of(out: str) -> dict[str, str]:
    """The lines of a table by their first cell."""
    found = (line.strip().split("  ", 1) for line in out.splitlines() if line.startswith(" "))
    return {pair[0]: pair[1].strip() for pair in found if len(pair) == 2}


def test_values_are_explained(cudareduce: Call, ncu: FakeNcu) -> None:
    code, out, _ = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert code == 0
    told = lines_of(out)
    assert out.startswith("reduce_v0_baseline: sum of 1 048 576 (2^20) float32, ")
    assert "No unit is at its limit: warps wait for memory 10 % and at barriers 25 %" in out
    assert told["DRAM"].startswith("8 % of peak")
    assert told["read from DRAM"].startswith("4.20 MB, 1.00x")
    assert "each byte is read once" in told["read from DRAM"]
    assert told["active lanes"].startswith("27.3 of 32")
    assert "predicated instructions" in told["active lanes"]
    assert "almost no bank conflicts" in told["shared memory"]
    assert told["instructions"].startswith("275 per 32 elements")
    assert told["registers"].startswith("14 per thread")
    assert (
        "next: reduce_v1_no_divergence (improves active lanes): The same additions, done by" in out
    )


def test_ncu_profiles_a_cold_launch_with_unlocked_clocks(cudareduce: Call, ncu: FakeNcu) -> None:
    assert cudareduce("profile", *LADDER[:2], "--n", N, "--quiet")[0] == 0
    (call,) = ncu.calls
    for option in (
        "--csv --page raw",
        "--clock-control none",
        "--cache-control all",
        "--kernel-name regex:^(reduce_v0_baseline|reduce_v1_no_divergence)$",
    ):
        assert option in " ".join(call)


def test_two_kernels_side_by_side(cudareduce: Call, ncu: FakeNcu) -> None:
    code, out, _ = cudareduce("profile", "--diff", *LADDER[1:], "--n", N, "--quiet")
    assert code == 0
    told = lines_of(out)
    assert "A is reduce_v1_no_divergence\nB is reduce_v2_no_bank_conflict\n" in out
    assert told["shared memory"] == (
        "1.50 wavefronts per access  1.00 wavefronts per access  better: each wavefront takes a "
        "cycle"
    )
    assert "registers" not in told and "registers (14 per thread)" in out
    assert "B succeeds A" in out.replace(
        "reduce_v2_no_bank_conflict succeeds", "B succeeds"
    ).replace("reduce_v1_no_divergence:", "A:")


def test_diff_compares_exactly_two_kernels(cudareduce: Call, ncu: FakeNcu) -> None:
    code, _, err = cudareduce("profile", "--diff", *LADDER, "--n", N)
    assert code == 2
    assert "--diff compares two kernels, not 3" in err
    assert "compares two kernels, not 1" in cudareduce("profile", "--diff", LADDER[0])[2]


@pytest.mark.parametrize("name", ["lanes", "dram_pct", "time_ns", "sectors"])
def test_a_metric_that_this_ncu_does_not_know_is_a_dash(
    cudareduce: Call, ncu: FakeNcu, name: str
) -> None:
    from cudareduce.analysis.profile.ncu import METRICS

    ncu.troubled(unknown=[METRICS[name]])
    code, out, err = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert code == 0, err
    assert f"this version of ncu does not support {METRICS[name]}" in out
    assert "-     " in out
    assert len(ncu.calls) == 2


def test_a_metric_without_a_value_is_a_dash(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.tells({LADDER[0]: {"time_ns": 1000, "registers": 20}})
    code, out, _ = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert code == 0
    assert lines_of(out)["DRAM"].split() == ["-", "not", "counted"]


def test_without_shared_memory_there_are_no_conflicts(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.tells({LADDER[0]: V0 | {"wavefronts": 0, "requests": 0}})
    _, out, _ = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert "it does not use shared memory" in lines_of(out)["shared memory"]
    assert "bulk copies" in lines_of(out)["sectors per load"]


def test_a_metric_a_row_is_read_too(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.troubled(long=True)
    code, out, _ = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert (code, lines_of(out)["DRAM"].split()[0]) == (0, "8")


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ({"denied": True}, "NVreg_RestrictProfilingToAdminUsers=0"),
        ({"crash": True}, "ncu counted nothing: Segmentation fault"),
        ({"nothing": True}, "ncu saw no launch"),
        ({"said": "==ERROR== Failed to prepare kernel for profiling."},
         "ncu counted nothing: Failed to prepare kernel for profiling; "),
        ({"said": "==ERROR== Failed to find metric regex:^of_nobody$"}, "of_nobody"),
    ],
)  # fmt: skip
def test_reasons_why_ncu_counts_nothing_are_sentences(
    cudareduce: Call, ncu: FakeNcu, trouble: dict[str, object], told: str
) -> None:
    ncu.troubled(**trouble)
    code, out, err = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert (code, out) == (6, "")
    assert told in err
    assert "internal" not in err


@pytest.mark.long
def test_an_ncu_that_hangs_is_ended(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.troubled(hang=True)
    code, _, err = cudareduce("profile", LADDER[0], "--n", N, "--quiet", "--max-time", "6")
    assert code == 6
    assert "ncu did not end within 6 s" in err
    with pytest.raises(ProcessLookupError):
        os.kill(ncu.hung, 0)


def test_a_kernel_that_cannot_be_launched_is_named(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.tells({LADDER[0]: V0})
    ncu.troubled(failed={1: "reduce_v1_no_divergence: an illegal address"})
    code, out, _ = cudareduce("profile", *LADDER[:2], "--n", N, "--quiet")
    assert code == 6
    assert "reduce_v1_no_divergence: skipped, reduce_v1_no_divergence: an illegal address" in out


def test_none_that_can_be_launched(cudareduce: Call, ncu: FakeNcu) -> None:
    ncu.tells({})
    ncu.troubled(failed={0: "an illegal address"})
    code, _, err = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert code == 6
    assert "reduce_v0_baseline: an illegal address" in err


def test_one_that_does_not_take_this_is_passed_over(cudareduce: Call, ncu: FakeNcu) -> None:
    code, out, _ = cudareduce("profile", LADDER[0], "reduce_dp4a_one_word", "--n", N, "--quiet")
    assert code == 0
    assert "reduce_dp4a_one_word: skipped, takes int8, uint8, not float32" in out


def test_an_input_that_does_not_fit_is_refused(
    cudareduce: Call, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = DeviceInfo("Small GPU", memory_bytes=2**20)
    use(monkeypatch, FakeGpu(cache, device=device, lazy=True))
    fake_ncu(tmp_path / "bin", monkeypatch)
    code, _, err = cudareduce("profile", LADDER[0], "--n", N, "--quiet")
    assert code == 2
    assert "does not fit into the memory of this GPU: give a smaller --n" in err


def test_unsupported_reductions_are_reported(cudareduce: Call, ncu: FakeNcu) -> None:
    code, _, err = cudareduce("profile", "reduce_dp4a_one_word", "--n", N, "--quiet")
    assert code == 2
    assert "takes" in err
    assert not (Path(os.environ["PATH"].split(os.pathsep)[0]) / "calls").exists()


@pytest.mark.long
def test_files_hold_all_of_it(cudareduce: Call, ncu: FakeNcu, tmp_path: Path) -> None:
    file, png = tmp_path / "p.json", tmp_path / "p.png"
    svg = tmp_path / "p.svg"
    args = ("--n", N, "--json", file, "--png", png, "--svg", svg, "--markdown", tmp_path / "p.md")
    code, _, err = cudareduce("profile", *LADDER, *args)
    assert code == 0, err
    held = json.loads(file.read_text())
    assert held["profiles"][1]["values"]["turns"] == 1.5
    assert held["profiles"][0]["lines"][0]["what"] == "time"
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "shows 2 charts" in err
    assert "| DRAM " in (tmp_path / "p.md").read_text()


def test_without_ncu_the_package_that_installs_it_is_named(
    cudareduce: Call, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FakeGpu(cache, lazy=True))
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = cudareduce("profile", LADDER[0], "--quiet")
    assert code == 6
    assert "ncu was not found: install Nsight Compute" in err
    assert "--static" in err


def test_profile_needs_the_name_of_a_kernel(cudareduce: Call) -> None:
    code, _, err = cudareduce("profile")
    assert code == 2
    assert "name a kernel to profile" in err


def test_a_requested_launch_shape_and_transform_are_profiled(
    cudareduce: Call, ncu: FakeNcu
) -> None:
    ask = ("profile", LADDER[0], "--n", N, "--quiet", "--static")
    with pytest.MonkeyPatch.context() as patch:
        taken: list[Case] = []

        def see(cases: Sequence[Case], *_: object) -> StaticValues:
            taken.extend(cases)
            return StaticValues(tuple({} for _ in cases), ())

        patch.setattr("cudareduce.analysis.profile.command.static_values", see)
        cudareduce(*ask, "--block", 512)
        cudareduce(*ask, "--map", "a * a")
    assert [(case.block, case.reduction.map) for case in taken] == [
        (512, None),
        (256, Map("a * a")),
    ]
    refused = (("--block", 33, "takes blocks of 32, 64"), ("--items", 3, "has 1 item per thread"),
               ("--map", "c", "--map"))  # fmt: skip
    for option, value, words in refused:
        code, _, err = cudareduce(*ask, option, value)
        assert code == 2
        assert words in err
