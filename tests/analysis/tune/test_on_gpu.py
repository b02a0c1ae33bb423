"""`tune` and `auto` on a GPU. Skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.backends.selection import choose_backend, open_timed
from cudareduce.catalog.registry import Registry
from cudareduce.launch.auto.table import Entry, read_table, write_table
from tests.conftest import read_result

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.gpu


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cudareduce: Call) -> Path:
    monkeypatch.setattr("cudareduce.launch.auto.table.user_folder", lambda: tmp_path)
    return tmp_path


def test_what_is_tuned_is_what_auto_takes(
    cudareduce: Call, folder: Path, registry: Registry
) -> None:
    spec, _ = choose_backend("cuda", 0, True)
    with open_timed(spec) as backend:
        device = backend.info()
    name = "reduce_tiles_block"  # one SM, where all could read: surely not best
    slow = Entry(
        op="sum", dtype="float32", acc="float32", n=2**22, rows=1, fixed=False, kernel=name,
        block=256, items=16, grid="one", source_sha=registry.kernels[name].sha, time_us=1.0,
    )  # fmt: skip
    path = write_table(folder, device, [slow], registry.kernels)
    assert path is not None
    code, out, err = cudareduce(
        "tune", "reduce_tiles_acq_rel", "--n", "2^22", "--max-time", "60", "--quiet"
    )
    assert code == 0, err
    assert "WRONG" not in out and "ignored" not in out
    [tuned] = [entry for entry in read_table(path).entries if not entry.fixed]
    assert tuned.kernel == "reduce_tiles_acq_rel", out
    code, out, err = cudareduce("bench", "auto", "--n", "2^22", "--quiet", "--format", "json")
    assert code == 0, err
    [record] = read_result(out)["records"]
    assert (record["chosen"], record["block"], record["items"]) == (
        tuned.kernel, tuned.block, tuned.items
    )  # fmt: skip
    assert record["time_us"] == pytest.approx(tuned.time_us, rel=0.1)


@pytest.mark.parametrize("op", ["sum", "argmax", "affine"])
def test_auto_is_right_at_every_size(cudareduce: Call, folder: Path, op: str) -> None:
    sizes = "1,1000,2^14,2^16,2^20,2^22,1e7"
    asked = ("--n", sizes, "--op", op, "--dtype", "int32", "--quiet", "--rounds", "1")
    code, out, err = cudareduce("bench", "auto", "auto:fixed", *asked, "--format", "json")
    assert code == 0, err
    assert {record["verdict"] for record in read_result(out)["records"]} == {"pass"}
