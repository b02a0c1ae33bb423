"""Verification in worker processes: their imports, and reports of crashes and timeouts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cudareduce.backends.selection import BackendSpec
from cudareduce.errors import EnvironmentProblem
from cudareduce.verify import isolation
from cudareduce.verify.isolation import Verifier, _next
from cudareduce.workers import Parent
from tests.conftest import ROOT

Call = Callable[..., tuple[int, str, str]]


class Broken(Verifier):
    """A worker that dies when it is made."""

    def __init__(self, parent: Parent) -> None:
        os._exit(1)


TWO = ("reduce_v0_baseline", "reduce_v7_shuffle")


def test_a_file_named_like_a_module_is_not_imported(cache: Path, tmp_path: Path) -> None:
    for name in ("random", "tempfile", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    home = tmp_path / "home"
    home.mkdir()
    (home / "cudareduce").symlink_to(cache)
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "cudareduce"),
            *("verify", TWO[1], "--n", "33", "--backend", "cpu"),
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_timeout_on_the_emulator_is_undecided(cudareduce: Call) -> None:
    """It may hang, and it may be that the emulator is slow."""
    code, out, err = cudareduce("verify", *TWO, "--n", 4097, "--time-limit", 0.001,
                                "--backend", "cpu")  # fmt: skip
    assert code == 4, err
    assert "skipped: cannot be decided here: no result after 0.001 s: it hangs, or" in out
    assert "0 wrong, 2 skipped" in err
    assert "Raise --time-limit." in err


def test_a_child_that_does_not_start_is_no_fault_of_a_kernel(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "Verifier", Broken)
    code, out, err = cudareduce("verify", TWO[1], "--n", 33, "--backend", "cpu")
    assert (code, out) == (EnvironmentProblem.exit_code, "")
    assert "a worker process does not start" in err


def test_with_a_gpu_the_emulator_uses_all_processors() -> None:
    """One job at a time has the GPU; those of the emulator do not wait for it."""
    jobs: Any = [SimpleNamespace(spec=BackendSpec(name)) for name in ("cuda", "cuda", "cpu")]
    case: Any = None  # it does not matter which
    first, second, third = waiting = [(case, k, job) for k, job in enumerate(jobs)]
    assert _next(waiting, gpu_taken=False) == first
    assert _next(waiting, gpu_taken=True) == third
    assert _next(waiting, gpu_taken=True) is None
    assert _next(waiting, gpu_taken=False) == second


@pytest.mark.long
def test_a_slow_file_gets_advice(cudareduce: Call, tmp_path: Path) -> None:
    """A file that repeats its work, and the command that the message gives."""
    file = tmp_path / "repeats.cu"
    file.write_text("""
__global__ void total(const int *a, int *out, int n)
{
    __shared__ int buf[1024];
    for (int loop = 0; loop < 20; loop++) {
        int sum = 0;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            sum += a[i];
        __syncthreads();
        buf[threadIdx.x] = sum;
        __syncthreads();
        for (int s = blockDim.x / 2; s > 0; s /= 2) {
            if (threadIdx.x < s)
                buf[threadIdx.x] += buf[threadIdx.x + s];
            __syncthreads();
        }
        if (threadIdx.x == 0)
            out[blockIdx.x] = buf[0];
    }
}
int main() { int *a, *out; total<<<1024, 512>>>(a, out, 1 << 20); }
""")
    code, out, _ = cudareduce("verify", file, "--backend", "cpu", "--time-limit", 0.05)
    said = " ".join(out.split())
    assert code == 4, out
    advice = re.search(r"elements are quicker: (--n .* --time-limit 60)", said)
    assert advice, out
    code, out, _ = cudareduce("verify", file, "--backend", "cpu", *advice[1].split())
    assert code == 0, out
    assert "right if n is 100 or 1000" in out
