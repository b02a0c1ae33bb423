"""The real ncu on the first kernels of the ladder: counters show what each step improves."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu")
def test_divergence_and_conflicts_show(cudareduce: Call, tmp_path: Path) -> None:
    """V0 forms a remainder in every thread and leaves lanes idle, V1 lets banks collide, V2 does
    neither."""
    file = tmp_path / "profile.json"
    names = ("reduce_v0_baseline", "reduce_v1_no_divergence", "reduce_v2_no_bank_conflict")
    code, out, err = cudareduce("profile", *names, "--json", file)
    if code == 6 and "for administrators only" in err:
        pytest.skip("ncu may not count here")
    assert code == 0, err
    held = json.loads(file.read_text())
    assert not [note for note in held["notes"] if "does not know" in note]
    v0, v1, v2 = (profile["values"] for profile in held["profiles"])
    assert v0["lanes"] < 31
    each = "instructions_a_warp_of_elements"
    assert v0[each] > 1.5 * v2[each]
    assert v1["turns"] > 1.3 * v2["turns"]
    assert v2["turns"] < 1.25
    for values in (v0, v1, v2):
        assert values["read_share"] == pytest.approx(1, abs=0.05)
        assert values["sectors_a_request"] == pytest.approx(4, abs=0.2)
        assert values["time_ns"] > 10_000
        assert 0 < values["dram_pct"] < 100
    assert v2["time_ns"] < v0["time_ns"]
    assert "bank conflicts" in out
