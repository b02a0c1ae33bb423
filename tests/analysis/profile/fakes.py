"""A fake ncu: a script on the PATH that prints CSV with the values in a file next to it, or fails
as that file says."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from cudareduce.analysis.profile.ncu import METRICS

_SCRIPT = """
import json, os, sys, time
from pathlib import Path

here, args = Path(sys.argv[0]).parent, sys.argv[1:]
asked = args[args.index("--metrics") + 1].split(",")
names = args[args.index("--kernel-name") + 1][len("regex:^("):-2].split("|")
(here / "calls").open("a").write(json.dumps(args) + "\\n")
trouble = json.loads((here / "trouble").read_text())
figures = json.loads((here / "figures").read_text())
print("==PROF== Connected to process 4711 (/usr/bin/python3)")
if trouble.get("hang"):
    (here / "child").write_text(str(os.getpid()))
    time.sleep(600)
if trouble.get("crash"):
    print("Segmentation fault", file=sys.stderr)
    sys.exit(139)
if trouble.get("denied"):
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
          "Performance Counters on the target device 0.")
    sys.exit(1)
for metric in trouble.get("unknown", []):
    if metric in asked:
        base = metric.partition(".")[0]
        print("==ERROR== Failed to find metric regex:^" + base + r"(\\.|$)")
        sys.exit(1)
if trouble.get("said"):
    print(trouble["said"])
    sys.exit(1)
failed = trouble.get("failed", {})
Path(args[-1] + ".failed").write_text("".join(f"{k} {why}\\n" for k, why in failed.items()))
if trouble.get("nothing"):
    print("==WARNING== No kernels were profiled.")
    sys.exit(0)
if trouble.get("long"):
    rows = [["ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]]
    rows += [[k, n, m, "", figures[n].get(m, "n/a")] for k, n in enumerate(names) for m in asked]
else:
    rows = [["ID", "Process ID", "Kernel Name", "CC", *asked], ["", "", "", "", *[""] * len(asked)]]
    rows += [[k, 4711, n, "9.0", *(figures[n].get(m, "n/a") for m in asked)]
             for k, n in enumerate(names) if n in figures]
for name in names:
    print(f'==PROF== Profiling "{name}" - 0: 0%....50%....100% - 9 passes')
for row in rows:
    print(",".join(f'"{cell:,}"' if type(cell) in (int, float) else f'"{cell}"' for cell in row))
print("==PROF== Disconnected from process 4711")
"""
N = 2**20
#: Short names to values, as an H200 has them of the first step and of the third.
V0: dict[str, float] = {
    "time_ns": 334_000, "read": 4.2e6, "written": 16_512, "dram_pct": 8.4, "l2_pct": 9.1,
    "sm_pct": 71.0, "memory_pct": 41.0, "warps_pct": 92.0, "warps_possible_pct": 100,
    "threads": 31.9, "lanes": 27.3, "conflicts": 0, "wavefronts": 800_000, "sectors": 131_072,
    "requests": 32_768, "barrier_cycles": 5.0, "memory_cycles": 2.0, "cycles": 20.0,
    "instructions": 9_000_000, "registers": 14, "adds_a_cycle": 16_896, "sm_cycles_a_s": 1.9e9,
    "dram_bytes_a_cycle": 1504, "dram_cycles_a_s": 3.2e9,
}  # fmt: skip
V1 = V0 | {"time_ns": 207_000, "dram_pct": 13.5, "lanes": 29.0, "conflicts": 300_000,
           "wavefronts": 900_000, "instructions": 4_000_000}  # fmt: skip
V2 = V1 | {"time_ns": 163_000, "dram_pct": 17.0, "conflicts": 2_000, "wavefronts": 500_000}
FIGURES = {
    "reduce_v0_baseline": V0, "reduce_v1_no_divergence": V1, "reduce_v2_no_bank_conflict": V2,
}  # fmt: skip


class FakeNcu:
    """The script and its output."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        script = folder / "ncu"
        script.write_text(f"#!{sys.executable}\n{_SCRIPT}")
        script.chmod(0o755)
        self.tells(FIGURES)
        self.troubled()

    def tells(self, figures: Mapping[str, Mapping[str, float]]) -> None:
        """Figures of kernels, by short names."""
        named = {
            kernel: {METRICS[key]: value for key, value in values.items()}
            for kernel, values in figures.items()
        }
        (self._folder / "figures").write_text(json.dumps(named))

    def troubled(self, **trouble: object) -> None:
        """Make the script fail in this way from now on."""
        (self._folder / "trouble").write_text(json.dumps(trouble))

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call so far."""
        lines = (self._folder / "calls").read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def hung(self) -> int:
        """The process that hangs."""
        return int((self._folder / "child").read_text())


def fake_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    """One on the PATH."""
    made = FakeNcu(folder)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return made
