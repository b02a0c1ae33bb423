"""`verify --sanitize`: findings of compute-sanitizer become verdicts; a script replaces the
tool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudareduce import workers
from cudareduce.verify import sanitizer as sanitizer_module
from cudareduce.verify.jobs import Job
from cudareduce.verify.sanitizer import TOOLS, read_report
from cudareduce.workers import python_command
from tests.conftest import read_result
from tests.fake_gpu import FakeGpu, use

Call = Callable[..., tuple[int, str, str]]
TWO = ("reduce_v0_baseline", "reduce_v7_shuffle")
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at reduce_v7_shuffle+0xa70
=========     and Read access at reduce_v7_shuffle+0xb20 [16 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WRITE = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at mine(const float *, float *, unsigned long)+0x160 in mine.cu:10
=========     by thread (31,0,0) in block (0,0,0)
=========     Address 0x7f6510dffc01 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2f80]
========= ERROR SUMMARY: 3 errors
"""
WARNING = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at mine+0x10
=========     and Write access at mine+0x10 [4 hazards]
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
UNABLE = "========= COMPUTE-SANITIZER\n========= Error: Device not supported. Please refer to ...\n"


@pytest.mark.parametrize(
    ("log", "finding"),
    [
        (CLEAN, None), (WARNING, None),
        (RACE, "Error: Race reported between Write access at reduce_v7_shuffle+0xa70 and Read "
               "access at reduce_v7_shuffle+0xb20 [16 hazards]"),
        (WRITE, "Invalid __global__ write of size 4 bytes at mine(const float *, float *, unsigned "
                "long)+0x160 in mine.cu:10 by thread (31,0,0) in block (0,0,0) Address "
                "0x7f6510dffc01 is out of bounds"),
    ],
)  # fmt: skip
def test_the_first_finding_is_a_sentence(log: str, finding: str | None) -> None:
    report = read_report(log)
    assert (report.finding, report.trouble, report.finished) == (finding, None, True)


def test_a_tool_in_trouble_has_found_nothing() -> None:
    report = read_report(UNABLE)
    assert report.finding is None
    assert (report.trouble or "").startswith("Error: Device not supported")


@pytest.fixture
def sanitizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """A script that writes the log stored for a tool and a kernel, or one without findings."""
    use(monkeypatch, FakeGpu(cache, lazy=True))
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "compute-sanitizer"
    script.write_text(
        "#!/bin/sh\n"
        f"for kernel in {' '.join(TWO)}; do\n"
        f'  if grep -q "$kernel.cu" "${{12}}" && [ -f "{folder}/$2-$kernel" ]; then\n'
        f'    cp "{folder}/$2-$kernel" "$4"; exit 0\n'
        "  fi\ndone\n"
        f"cat > \"$4\" <<'END'\n{CLEAN}END\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def verified(call: Call, *more: object) -> tuple[int, dict[str, tuple[str, str]]]:
    code, out, err = call(
        "verify", *TWO, "--n", 33, "--backend", "cuda", "--sanitize", "--format", "json",
        "--quiet", *more,
    )  # fmt: skip
    assert out, err
    return code, {r["kernel"]: (r["verdict"], r["reason"]) for r in read_result(out)["records"]}


def test_a_finding_of_a_tool_is_a_failure(cudareduce: Call, sanitizer: Path) -> None:
    assert verified(cudareduce) == (0, dict.fromkeys(TWO, ("pass", "")))
    (sanitizer / f"racecheck-{TWO[1]}").write_text(RACE)
    code, found = verified(cudareduce)
    assert code == 3
    assert found[TWO[0]] == ("pass", "")
    verdict, reason = found[TWO[1]]
    assert verdict == "fail"
    assert reason.startswith("compute-sanitizer --tool racecheck: Error: Race reported between")


def test_an_undecided_tool_is_marked(cudareduce: Call, sanitizer: Path) -> None:
    (sanitizer / f"memcheck-{TWO[0]}").write_text(UNABLE)
    code, found = verified(cudareduce)
    assert code == 0
    verdict, reason = found[TWO[0]]
    assert verdict == "pass"
    assert "compute-sanitizer --tool memcheck could not tell: Error: Device not" in reason
    assert verified(cudareduce, "--strict")[0] == 4


def test_a_missing_tool_or_gpu_is_an_error_with_a_remedy(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    code, out, err = cudareduce("verify", TWO[0], "--sanitize", "--backend", "cpu")
    assert (code, out) == (2, "")
    assert "--sanitize needs a GPU" in err
    use(monkeypatch, FakeGpu(cache, lazy=True))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sanitizer_module, "packaged", lambda path: [])
    code, out, err = cudareduce("verify", TWO[0], "--sanitize", "--backend", "cuda")
    assert (code, out) == (6, "")
    assert "compute-sanitizer was not found: install" in err


def test_the_child_does_the_job(
    cudareduce: Call, sanitizer: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    """On memory as the driver gives it, and on few elements."""
    jobs: list[Job] = []
    run = sanitizer_module._running

    def noted(place: str, tool: str, job: Job, folder: Path) -> Any:
        jobs.append(job)
        return run(place, tool, job, folder)

    monkeypatch.setattr(sanitizer_module, "_running", noted)
    assert verified(cudareduce)[0] == 0
    assert len(jobs) == len(TWO) * len(TOOLS)
    assert jobs[0].spec.bare
    assert max(n * rows for n, rows in jobs[0].shapes) <= 2**17
    gpu = FakeGpu(cache, lazy=True)
    monkeypatch.setattr(sanitizer_module, "open_backend", lambda spec: gpu)
    *_, task = python_command(sanitizer_module._verify, jobs[0], tmp_path / "job")
    workers.main(task)
    assert gpu.last == TWO[0]
