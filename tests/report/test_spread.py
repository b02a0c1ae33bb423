"""The table of one array over several GPUs, to the letter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cudareduce.machine import DeviceInfo
from cudareduce.report.sections import sections
from cudareduce.report.terminal import print_sections
from cudareduce.results.record import Record, Run

LOCAL = Record(
    kernel="auto", op="sum", dtype="float32", acc="float32", n=2**29, rows=1, block=512, items=16,
    grid=None, passes=None, backend="cuda", scope="grid", timing="cold", region="total",
    pattern="exact", verdict="pass", reason="", ranks=2, engine="local", chosen="reduce_tiles_ring",
    time_us=251.3, time_us_low=251.1, time_us_high=251.5, skew_us=0.4, loop_us=248.0, host_us=5.1,
    local_us=251.3,
)  # fmt: skip
FUSED = replace(LOCAL, engine="peer:fused", time_us=252.9, time_us_low=252.7, time_us_high=253.1,
                distinct=1, launches=10, loop_us=249.9)  # fmt: skip
HOST = replace(FUSED, engine="host", time_us=None, time_us_low=None, time_us_high=None,
               local_us=None, skew_us=None, loop_us=None, host_us=612.0)  # fmt: skip
LEFT = replace(HOST, kernel="reduce_atomic", engine="peer:fused", chosen=None, verdict="skip",
               reason="has no block that computes the whole sum")  # fmt: skip
TABLE = """\
sum of 536 870 912 (2^29) float32 on 2 ranks, cold, NVIDIA H200

 kernel  engine            us  over us  scaling%  skew us  host us  distinct
 ───────────────────────────────────────────────────────────────────────────
 auto    local       251.3±.2        -     100.0     0.40      5.1         -
 auto    peer:fused  252.9±.2      1.6      99.4     0.40      5.1      1/10
 auto    host               -        -         -        -      610      1/10

reduce_atomic peer:fused: skipped: has no block that computes the whole sum
auto: reduce_tiles_ring, 512 threads x 16 elements
right: the same bits on all ranks
us: the slowest rank's, from a common start; over us, scaling%: beside local, same rounds
skew us: how far apart the ranks are; host us: the host's part of a call, of host all of it

"""


def test_sharded_results_are_one_table_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    run = Run({}, DeviceInfo(name="NVIDIA H200"), {}, (LOCAL, FUSED, HOST, LEFT))
    print_sections(sections(run))
    printed = capsys.readouterr().out
    assert printed == TABLE
    assert max(map(len, printed.splitlines()[2:8])) <= 80
