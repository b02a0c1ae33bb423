"""`check --compile --base`: two trees compiled by nvcc, and on a GPU times of changed kernels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.bench.jobs import Jobs
from cudareduce.catalog.registry import kernels_folder
from cudareduce.compare.compile_check import CONTROLS
from cudareduce.errors import KernelFault
from cudareduce.machine import installed
from tests.compare.test_measure import cut_at
from tests.fake_gpu import fake_gpu

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.skipif(not list(installed("nvcc")), reason="nvcc was not found")
ONLY = 'dtypes = ["float32"]\nops = ["sum"]\nscope'
INDEX = "const size_t k = i + item * BLOCK;"
FAR = "const size_t k = (size_t)blockIdx.x * (BLOCK * ITEMS) + tid * ITEMS + item;"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A base, and the same again for a test to edit: eight kernels."""
    base, head = tmp_path / "base", tmp_path / "head"
    base.mkdir()
    text = (kernels_folder() / "ladder" / "reduce_v7_shuffle.cu").read_text()
    text = "\n".join(line for line in text.splitlines() if not line.startswith("after"))
    for letter in "abcdefgh":
        own = text.replace("reduce_v7_shuffle", f"kernel_{letter}").replace("scope", ONLY, 1)
        (base / f"kernel_{letter}.cu").write_text(own)
    shutil.copytree(base, head)
    return base, head


def edit(tree: Path, name: str, old: str, new: str) -> None:
    path = tree / f"{name}.cu"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def check(cudareduce: Call, trees: tuple[Path, Path], *more: object) -> tuple[int, str, str]:
    base, head = trees
    return cudareduce("check", "kernel_*", "--compile", "--base", base, "--kernels", head,
                      "--arch", 90, "--quiet", *more)  # fmt: skip


@pytest.mark.long
def test_two_trees_without_a_gpu(cudareduce: Call, trees: tuple[Path, Path]) -> None:
    edit(trees[1], "kernel_a", INDEX, FAR)
    edit(trees[1], "kernel_b", "// Write:", "// A remark.\n    // Write:")
    (trees[1] / "kernel_c.cu").unlink()
    code, out, _ = check(cudareduce, trees, "--allow-gone")
    said = " ".join(out.split())
    assert code == 1
    assert "3 compared: 1 WORSE, 1 GONE, 1 SAME" in said
    assert "WORSE: kernel_a: sectors a request 31.4, was 3.952" in said
    assert "5 of 7 kernels have the same text in both trees" in said
    assert "Nothing is timed: " in said


def test_trees_with_the_same_machine_code_are_not_timed(
    cudareduce: Call, trees: tuple[Path, Path]
) -> None:
    code, out, _ = check(cudareduce, trees)
    assert code == 0
    assert "8 of 8 kernels have the same text in both trees" in " ".join(out.split())
    assert "both trees compile to the same machine code" in " ".join(out.split())


@pytest.mark.parametrize("kind", ["json", "markdown"])
@pytest.mark.parametrize("edited", [False, True])
def test_every_file_is_written_where_nothing_is_timed(
    cudareduce: Call, trees: tuple[Path, Path], tmp_path: Path, edited: bool, kind: str
) -> None:
    if edited:
        edit(trees[1], "kernel_b", "// Write:", "// A remark.\n    // Write:")
    options = ("--junit", "--comment", "--markdown", "--benchmark-json")
    files = {option: tmp_path / option for option in options}
    asked = [word for pair in files.items() for word in pair]
    code, out, err = check(cudareduce, trees, *asked, "--format", kind)
    assert (code, bool(out)) == (0, True), err
    assert all(path.read_text() for path in files.values())
    assert json.loads(files["--benchmark-json"].read_text()) == []


def test_a_comparison_of_nothing_is_no_success(cudareduce: Call, trees: tuple[Path, Path]) -> None:
    code, _, err = check(cudareduce, trees, "--arch", 50)
    assert code == 2
    assert "nothing was compiled; kernel_a is not compiled for sm_50" in err


@pytest.mark.slow
def test_on_a_gpu_changed_kernels_are_timed_with_a_control_group(
    cudareduce: Call, trees: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Jobs, "emulator", None)
    edit(trees[1], "kernel_a", INDEX, FAR + "  // slower: 10 %")
    with fake_gpu(monkeypatch, cache):
        base, head = trees
        code, out, _ = cudareduce(
            "check", "kernel_a", "--compile", "--base", base, "--kernels", head, "--arch", 90,
            "--quiet", "--n", 3000, "--format", "json",
        )  # fmt: skip
    rows = json.loads(out)
    assert code == 1
    assert [row["verdict"] for row in rows if "causes" in row] == ["WORSE"]
    timed = {row["kernel"]: row["verdict"] for row in rows if "causes" not in row}
    assert timed.pop("kernel_a") == "SLOWER"
    assert len(timed) >= CONTROLS
    assert set(timed.values()) == {"SAME"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("error", "expected"), [(KeyboardInterrupt(), 130), (KernelFault("the GPU is lost"), 3)]
)
def test_an_early_end_of_the_timing_is_no_success(
    cudareduce: Call, trees: tuple[Path, Path], cache: Path, monkeypatch: pytest.MonkeyPatch,
    error: BaseException, expected: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(Jobs, "emulator", None)
    edit(trees[1], "kernel_a", INDEX, "const size_t k = i + item * BLOCK + (n == 12345);")
    cut_at(monkeypatch, 1, error)
    base, head = trees
    with fake_gpu(monkeypatch, cache):
        code, out, _ = cudareduce(
            "check", "kernel_a", "--compile", "--base", base, "--kernels", head, "--arch", 90,
            "--quiet", "--n", 3000,
        )  # fmt: skip
    assert code == expected
    assert "cut short: " in out


def test_a_kernel_that_does_not_compile_prevents_timing(
    cudareduce: Call, trees: tuple[Path, Path]
) -> None:
    edit(trees[1], "kernel_a", INDEX, "const size_t k = nonsense;")
    code, out, _ = check(cudareduce, trees)
    assert code == 2
    assert 'identifier "nonsense" is undefined' in " ".join(out.split())


def test_options_that_do_not_apply_to_two_compiled_trees_are_refused(
    cudareduce: Call, trees: tuple[Path, Path]
) -> None:
    for more, message in (
        (("--update-baseline",), "--update-baseline does not apply to --compile --base"),
        (("--peers", "all"), "--peers does not apply to --compile --base"),
        (("--map", "a * a"), "--map does not apply to --compile --base"),
    ):
        code, _, err = check(cudareduce, trees, *more)
        assert (code, message in err) == (2, True)
