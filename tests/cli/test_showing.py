"""What one learns of a kernel: words, gains, diff, PTX and machine code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cudareduce.catalog.registry import load_registry
from cudareduce.compare.machine_code import find_disassembler
from cudareduce.results.gains import gains, stored_runs
from cudareduce.results.store import load, to_json
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]
KERNEL, BEFORE = "reduce_v2_no_bank_conflict", "reduce_v1_no_divergence"
STORED = stored_runs()[0]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
needs_sass = pytest.mark.skipif(find_disassembler() is None, reason="no cuobjdump")


def test_show_has_the_change_and_gain_of_a_kernel_and_errors_of_its_source(
    cudareduce: Call,
) -> None:
    code, out, _ = cudareduce("show", KERNEL)
    words, _, source = out.partition("\n\n")
    assert code == 0
    assert words.startswith(f"{KERNEL}\ntitle       Sequential addressing\n")
    joined = " ".join(words.split())
    assert f"times as fast as {BEFORE}: sum of 33 554 432 (2^25) float32" in joined
    assert "NVIDIA H200" in words
    assert "in print fastcuda, V2 no bank conflict: As printed, the second pass has" in joined
    assert f"\nprevious    {BEFORE}: " in words
    assert "\nnext        reduce_v3_add_during_load: First add during load\n" in words
    assert max(map(len, words.splitlines()[:-1])) <= 80
    assert source == load_registry().kernels[KERNEL].text


def test_gains_come_from_the_users_own_run(cudareduce: Call, tmp_path: Path) -> None:
    run = load(STORED)
    times = {KERNEL: 10.0, BEFORE: 25.0}
    records = tuple(
        replace(r, rounds_us=tuple(times[r.kernel] for _ in r.rounds_us))
        for r in run.records if r.kernel in times
    )  # fmt: skip
    path = tmp_path / "own.json"
    device = replace(run.device, name="NVIDIA L4")
    path.write_text(to_json(replace(run, records=records, device=device)))
    out = cudareduce("show", KERNEL, "--results", path)[1]
    assert f"measured    2.500±.001 times as fast as {BEFORE}" in out
    assert "NVIDIA L4" in out
    assert "H200" not in out.partition("\n\n")[0]


def test_gains_need_both_kernels_on_one_problem() -> None:
    after = {KERNEL: BEFORE}
    assert {gain.kernel for gain in gains([STORED], after)} == {KERNEL}
    assert gains([STORED], {KERNEL: "reduce_nobody"}) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reduce_v0_baseline", "--diff"), "has no predecessor to compare with"),
        ((KERNEL, "--diff", "--sass"), "--diff, --ptx and --sass exclude each other"),
        (("fastcuda",), "'fastcuda' names 8 kernels; show one of: reduce_v0_baseline"),
        (("reduce_v9",), "no kernel or suite is called 'reduce_v9'"),
        ((KERNEL, "--results", "nowhere.json"), "there is no nowhere.json"),
        (("reduce_tiles_ring", "--ptx", "--arch", "80"), "takes cc 9.0: --arch 90"),
        (
            ("reduce_tiles_redux", "--ptx", "--dtype", "float32"),
            "takes int32, uint32, int8, uint8, not",
        ),
        pytest.param(
            ("tests/foreign_shapes/kernel_by_macro.cu",),
            "has 2 kernels; name one with --entry: sum_float, sum_int",
            marks=pytest.mark.long,
        ),
        ((KERNEL, "--ptx", "--block", "48"), "takes blocks of 32, 64,"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    cudareduce: Call, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = cudareduce("show", *arguments)
    assert (code, out) == (2, "")
    assert message in err


@needs_nvcc
def test_ptx_is_compiled_for_the_requested_type(cudareduce: Call) -> None:
    code, out, err = cudareduce("show", "reduce_tiles", "--ptx", "--dtype", "float64")
    assert (code, err) == (0, "")
    assert ".visible .entry reduce_tiles(" in out
    assert "add.f64" in out


@pytest.mark.long
@needs_nvcc
def test_a_file_without_front_matter_is_shown_unchanged(cudareduce: Call) -> None:
    path = ROOT / "tests/external/cases/pointer_alias.cu"
    words, _, text = cudareduce("show", path)[1].partition("\n\n")
    assert words.startswith("pointer_alias\ntitle       ")
    assert "\nchange" not in words
    assert text == path.read_text()
    assert ".visible .entry" in cudareduce("show", path, "--ptx")[1]


@pytest.mark.long
def test_a_template_file_is_shown_for_the_requested_instance(cudareduce: Call) -> None:
    path = ROOT / "tests/docs/theirs.cu"
    code, out, err = cudareduce("show", path, "--entry", "reduce6<float, 256>")
    assert code == 0 and out.startswith("theirs\n") and not err
    assert "--entry has no effect here" in cudareduce("show", KERNEL, "--entry", "it")[2]


@needs_nvcc
@needs_sass
@pytest.mark.parametrize(
    "arch",
    [90, pytest.param(80, marks=pytest.mark.long), pytest.param(120, marks=pytest.mark.long)],
)
def test_costly_instructions_of_machine_code_are_annotated(cudareduce: Call, arch: int) -> None:
    code, out, err = cudareduce("show", "reduce_tiles_acq_rel", "--sass", "--arch", arch)
    assert (code, err) == (0, "")
    words = dict(line.split("// ")[::-1] for line in out.splitlines() if " // " in line)
    assert words.keys() >= {
        "16 bytes from memory", "to another lane", "block barrier", "to shared memory",
        "atomic in the L2, serialized",
    }  # fmt: skip
    assert out.startswith(f"// reduce_tiles_acq_rel, sum of float32, sm_{arch}, ")
    assert "bytes loaded before the first use\n0000  " in out


def test_options_without_effect_are_reported(cudareduce: Call) -> None:
    err = cudareduce("show", KERNEL, "--arch", "80", "--dtype", "int8")[2]
    assert err == "--arch, --dtype have no effect here: only --ptx and --sass compile the kernel\n"


def test_colours_are_for_a_terminal(cudareduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cudareduce("show", KERNEL)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = cudareduce("show", KERNEL)[1]
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain


def test_the_tree_has_each_kernel_once_below_the_one_before(cudareduce: Call) -> None:
    code, out, _ = cudareduce("list", "--tree")
    head, *lines = out.partition("\n\n")[0].splitlines()
    depth = {line.lstrip("│├└─ ").split("  ")[0]: len(line) - len(line.lstrip("│├└─ "))
             for line in lines}  # fmt: skip
    kernels = load_registry().kernels
    assert code == 0
    assert len(lines) == len(kernels)
    for name, kernel in kernels.items():
        assert depth[name] == (depth[kernel.after] + 2 if kernel.after else 0)
    assert head.split() == ["kernel", "H100", "H200", "what", "it", "is"]
    assert re.search(rf"{KERNEL} +1\.\d+±\.\d+  1\.\d+±\.\d+  Sequential addressing", out)


def test_a_narrow_tree_shows_all_gpus_with_short_names(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cudareduce.cli.listing.PIPE", 80)
    out = cudareduce("list", "--tree")[1]
    assert max(map(len, out.splitlines())) <= 80
    assert re.search(r"└ v2_no_bank_conflict +1\.\d+±\.\d+  1\.\d+±\.\d+  Sequential addr", out)


def test_techniques_are_columns_that_fit_80_characters(cudareduce: Call) -> None:
    code, out, _ = cudareduce("list", "--techniques")
    lines = out.splitlines()
    count = len(load_registry().kernels)
    assert (code, lines[0]) == (0, f"Techniques of {count} kernels")
    assert sum("reduce_" in line for line in lines) == count
    assert max(map(len, lines)) <= 90


@pytest.mark.parametrize("name", ["ladder", "reduce_v?_*", "v7"])
def test_list_takes_families_globs_and_short_names(cudareduce: Call, name: str) -> None:
    code, out, _ = cudareduce("list", name)
    assert code == 0
    assert "reduce_v7_shuffle" in out
    assert "reduce_tiles" not in out


def test_a_suites_tree_has_what_its_kernels_come_from(cudareduce: Call) -> None:
    out = cudareduce("list", "leimao", "--tree")[1]
    assert "reduce_single_block" in out
    assert "reduce_tiles_ring" not in out


@pytest.mark.parametrize("arguments", [
    ("peers", "--tree"), ("--tree", "--format", "json"), ("--techniques", "--tree"),
])  # fmt: skip
def test_a_tree_is_of_kernels(cudareduce: Call, arguments: tuple[str, ...]) -> None:
    code, _, err = cudareduce("list", *arguments)
    assert code == 2
    assert "--tree cannot be combined with --techniques, peers or --format json\n" in err
