"""CUB and Thrust: flags of nvcc, selection of headers, and compilation of cccl.cu."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.launch.plan import Problem
from cudareduce.libraries import cccl
from cudareduce.libraries.contract import AbsentError
from cudareduce.reduction.operators import reduction_of


@pytest.mark.parametrize(
    ("op", "dtype", "words"),
    [
        ("sum", "float32", ["PEER_IN=float", "PEER_ACC=float", "PEER_OP_SUM", "PEER_CHOSEN",
                            "PEER_CHOSEN_FLOAT"]),
        ("sum", "int32", ["PEER_IN=int", "PEER_ACC=int", "PEER_OP_SUM", "PEER_CHOSEN"]),
        ("max", "float16", ["PEER_IN=__half", "PEER_ACC=float", "PEER_OP_MAX", "PEER_PACKED"]),
        ("mean", "int32", ["PEER_IN=int", "PEER_ACC=double", "PEER_OP_MEAN"]),
        ("argmax", "bfloat16", ["PEER_IN=__nv_bfloat16", "PEER_ACC=float", "PEER_OP_ARGMAX"]),
    ],
)  # fmt: skip
def test_macros_select_the_reduction(op: str, dtype: str, words: list[str]) -> None:
    assert cccl.flags(reduction_of(op, dtype)) == [f"-D{word}" for word in words]


def test_the_newest_headers_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []
    for version in (3000001, 3006000, 3005000):
        header = tmp_path / str(version) / "cuda/std/__cccl/version.h"
        header.parent.mkdir(parents=True)
        header.write_text(f"#define CCCL_VERSION {version}\n")
        folders.append(tmp_path / str(version))
    monkeypatch.setattr(cccl, "_folders", lambda: [*folders, tmp_path / "none"])
    monkeypatch.setattr(cccl, "find_nvcc", lambda: ("nvcc", "13.0"))
    newest = cccl.newest_headers.__wrapped__
    assert cccl.load(0, newest) == "3.6.0"
    folders[:] = folders[:1]
    with pytest.raises(
        AbsentError, match=r"CCCL 3\.0\.1 is too old: 3\.5\.0 or newer has this call"
    ):
        cccl.load(3_005_000, newest)
    folders.clear()
    with pytest.raises(AbsentError, match="the headers of CCCL were not found"):
        cccl.load(0, newest)


def test_calls_are_named_as_cub_names_them() -> None:
    """A reduction without a CUB call of its own names the generic call."""
    called = {peer.name: peer.called for peer in (*cccl.CUB, *cccl.THRUST)}
    mean, places = reduction_of("mean", "float32"), reduction_of("argmax", "float32")
    assert called["cub:run_to_run"](Problem(mean, 100)) == (
        "DeviceReduce::Sum, run_to_run, divided where it is stored"
    )
    assert called["cub:run_to_run"](Problem(places, 100, 7)) == (
        "DeviceSegmentedReduce::ArgMax, run_to_run"
    )
    assert called["thrust:as_called"](Problem(places, 100)) == "thrust::max_element, par"


def test_modes_refuse_other_reductions() -> None:
    """They add 16-bit floats in 16 bits, or take no operator but the sum."""
    modes = {peer.name: peer for peer in cccl.CUB}
    chosen = modes["cub:gpu_to_gpu"].why_not
    assert chosen(Problem(reduction_of("sum", "float32"), 100)) is None
    assert chosen(Problem(reduction_of("sum", "float16"), 100)) == (
        "adds float16 in its own type in gpu_to_gpu, not in float32"
    )
    packed = partial(modes["cub:packed"].why_not)
    assert packed(Problem(reduction_of("sum", "float16"), 100)) is None
    assert packed(Problem(reduction_of("sum", "float16"), 101)) == (
        "packs four elements: supports multiples of 4 up to 2^31"
    )


def tree(folder: Path, layout: str, version: int = 3004000) -> Path:
    """A fake CCCL tree in one of the layouts of installations."""
    cub, cuda = {
        "checkout": ("cub", "libcudacxx/include"), "toolkit": ("include/cccl",) * 2,
        "include": ("",) * 2,
    }[layout]  # fmt: skip
    for path, text in (
        (folder / cub / "cub/device/device_reduce.cuh", ""),
        (folder / cuda / "cuda/std/__cccl/version.h", f"#define CCCL_VERSION {version}\n"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("layout", ["checkout", "toolkit", "include"])
def test_a_tree_is_found_in_every_layout(layout: str, tmp_path: Path) -> None:
    headers = cccl.tree_headers(tree(tmp_path, layout))
    assert headers.text == "3.4.0"
    assert any((f / "cub/device/device_reduce.cuh").is_file() for f in headers.folders)
    assert any((f / "cuda/std/__cccl/version.h").is_file() for f in headers.folders)


def test_a_changed_tree_has_another_fingerprint(tmp_path: Path) -> None:
    read = cccl.tree_headers.__wrapped__
    before = read(tree(tmp_path, "include"))
    assert read(tmp_path) == before
    (tmp_path / "cub/device/device_reduce.cuh").write_text("// tuned\n")
    assert read(tmp_path).version == before.version
    assert read(tmp_path).fingerprint != before.fingerprint


def test_a_folder_that_is_no_tree_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no folder"):
        cccl.tree_headers(tmp_path / "none")
    with pytest.raises(UsageError, match=r"holds no cub/device/device_reduce\.cuh"):
        cccl.tree_headers(tmp_path)
    (tree(tmp_path / "old", "include") / "cuda/std/__cccl/version.h").unlink()
    with pytest.raises(UsageError, match=r"holds no cuda/std/__cccl/version\.h: name CCCL 3\.0"):
        cccl.tree_headers(tmp_path / "old")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("op", "dtype"), [("sum", "float32"), ("mean", "float16"), ("argmin", "int8")]
)
def test_nvcc_compiles_the_source(op: str, dtype: str, tmp_path: Path) -> None:
    if cccl.find_nvcc() is None:
        pytest.skip("there is no nvcc")
    reduction, headers = reduction_of(op, dtype), cccl.newest_headers()
    opened = cccl.compile_library(reduction, 90, tmp_path, headers)
    assert opened.stat().st_size
    assert (
        cccl.compile_library(reduction_of(op, dtype), 90, tmp_path, cccl.newest_headers()) == opened
    )
