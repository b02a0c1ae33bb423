"""Output, files and exit codes of every command, compared with files under `golden/`.

Each case is a command line; its text in a golden file holds exit code, standard output, standard
error and the files written. What differs between machines (dates, revisions, folders, hashes) is
replaced by words. Cases that take a GPU run on a simulated one whose times are random: there every
number is a `#`.

`CUDAREDUCE_UPDATE_GOLDEN=1 pytest tests/test_golden.py`, without `-n`, rewrites the files.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from cudareduce.results.schema import result_schema
from tests.conftest import ROOT
from tests.fake_gpu import fake_gpu

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small_files")
GOLDEN = ROOT / "tests" / "golden"
RESULTS = "results/nvidia-h200"
SIMULATED = ("tests/data/simulated-before.json", "tests/data/simulated-after.json")
CPU = ("--backend", "cpu", "--quiet")
FILES = ("--json", "{out}/run.json", "--csv", "{out}/run.csv", "--markdown", "{out}/run.md")

HELP = {
    f"help-{name.replace(' ', '-') or 'all'}": (*name.split(), "--help")
    for name in ("", "bench", "verify", "list", "show", "reproduce", "compare", "check", "sweep",
                 "selftest", "report", "info", "completion", "reveal", "tune", "history",
                 "plot", "profile", "history add", "history show", "history check",
                 "collective")
}  # fmt: skip
STATIC: dict[str, tuple[str, ...]] = {
    "list": ("list",),
    "list-suite": ("list", "fastcuda"),
    "list-json": ("list", "--format", "json"),
    "show-diff": ("show", "reduce_v2_no_bank_conflict", "--diff"),
    "compare": ("compare", *SIMULATED),
    "compare-json": ("compare", *SIMULATED, "--format", "json"),
    "compare-markdown": ("compare", *SIMULATED, "--format", "markdown"),
    "compare-files": ("compare", *SIMULATED, "--junit", "{out}/junit.xml", "--markdown",
                      "{out}/compare.md", "--benchmark-json", "{out}/series.json", "--all"),
    "compare-stored": ("compare", f"{RESULTS}/baseline.json", f"{RESULTS}/bench-float32.json",
                       "--no-same-code", "--threshold", "2%", "--cross-device"),
    "compare-comment": ("compare", *SIMULATED, "--threshold", "1%", "--comment", "-"),
    "history-none": ("history", "check", "--from", "{out}/none"),
    "report-check": ("report", "README.md", "--check"),
    "plot-bars": ("plot", f"{RESULTS}/bench-2p25-float32.json"),
    "plot-winners": ("plot", "tests/data/types.json"),
    "report-publications": ("report", "docs/publications.md", "--check"),
}  # fmt: skip
ERRORS: dict[str, tuple[str, ...]] = {
    "no-command": (),
    "unknown-command": ("banch",),
    "unknown-kernel": ("bench", "reduce_v9", *CPU),
    "unknown-suite": ("reproduce", "fastcudda", *CPU),
    "bad-size": ("bench", "--n", "many", *CPU),
    "bad-operator": ("bench", "--op", "median", *CPU),
    "narrow-accumulator": ("bench", "--dtype", "float64", "--acc", "float32", *CPU),
    "no-identity": ("bench", "--op-expr", "a + b", *CPU),
    "no-gpu": ("bench", "--backend", "cuda", "--n", "1000"),
    "sweep-cpu": ("sweep", *CPU),
    "sweep-few": ("sweep", "--n", "2^20"),
    "baseline-kernel": ("bench", "reduce_v0_baseline", "--baseline-kernel", "x", *CPU),
    "one-file-twice": ("bench", "--json", "{out}/a", "--csv", "{out}/a", *CPU),
    "no-folder": ("bench", "--json", "{out}/no/a", *CPU),
    "cancel-max": ("bench", "--pattern", "cancel", "--op", "max", *CPU),
    "compare-none": ("compare", "{out}/none.json", SIMULATED[0]),
    "compare-fine": ("compare", *SIMULATED, "--threshold", "0.01%"),
    "check-none": ("check",),
    "check-both": ("check", "--base", "main", "--baseline", "x"),
    "check-compile-times": ("check", "--compile", "--baseline", "x", "--rounds", "9"),
    "check-missing": ("check", "--baseline", "{out}/none.json"),
    "report-none": ("report", "{out}/none.md"),
    "report-json": ("report", f"{RESULTS}/sweep.json"),
    "profile-none": ("profile",),
    "profile-three": ("profile", "--diff", "reduce_v[012]*"),
    "plot-none": ("plot", "{out}/none.json"),
    "plot-mixed": (
        "plot",
        f"{RESULTS}/sweep.json",
        "results/nvidia-h100/libraries-types.json",
        "--kind",
        "sizes",
    ),
    "show-many": ("show", "fastcuda"),
    "show-auto": ("show", "auto"),
    "tune-unknown": ("tune", "limits"),
    "folder-missing": ("list", "--kernels", "{out}/none"),
}
ON_CPU: dict[str, tuple[str, ...]] = {
    "bench-cpu": ("bench", "fastcuda", "--n", "1000,4096", *CPU, *FILES),
    "bench-cpu-many": ("bench", "reduce_atomic", "reduce_v[01]*", "reduce_warp_*",
                       "reduce_rows_tree", "reduce_tiles", "reduce_tiles_ring",
                       "--n", "4096", *CPU),
    "bench-cpu-csv": ("bench", "reduce_v0_baseline", "--n", "33", "--format", "csv", *CPU),
    "bench-cpu-json": ("bench", "reduce_v0_baseline", "--n", "33", "--format", "json", *CPU),
    "bench-cpu-markdown": ("bench", "leimao", "--n", "5000", "--format", "markdown", *CPU),
    "bench-cpu-ops": ("bench", "reduce_ordered_block", "reduce_warp_registers", "--n", "100",
                      "--op", "max,argmin,matmul", "--dtype", "int32,float16", *CPU),
    "bench-cpu-own": ("bench", "reduce_v7_shuffle", "--n", "1000", "--op-expr", "a > b ? a : b",
                      "--identity=-INFINITY", "--backend", "cpu"),
    "bench-cpu-auto": ("bench", "auto", "auto:fixed", "--n", "1000", "--op", "max",
                       "--dtype", "int32", *CPU),
    "bench-cpu-auto-rows": ("bench", "auto", "--n", "100", "--rows", "30", "--op", "max,matmul",
                            "--dtype", "int32", *CPU),
    "verify-cpu-auto": ("verify", "auto", "--n", "33,50000", "--op", "max", "--dtype", "int32",
                        *CPU),
    "verify-cpu": ("verify", "reduce_v7_shuffle", "reduce_last_block", "--n", "33,1000", *CPU,
                   *FILES),
    "verify-cpu-wrong": ("verify", "tests/wrong_kernels/lost_tail.cu", "--n", "1000", *CPU),
    "verify-cpu-own-file": ("verify", "{file}", "--n", "1000", "--backend", "cpu"),
    "reveal-cpu": ("reveal", "reduce_v0_baseline", "reduce_rows_broadcast", "--n", "300", *CPU,
                   "--json", "{out}/orders.json", "--markdown", "{out}/orders.md"),
    "reveal-compare": ("reveal", "--compare", "reduce_v0_baseline", "reduce_v1_no_divergence",
                       "--n", "33", *CPU),
    "bench-cpu-stream": ("bench", "auto", "reduce_warp_registers", "--from", "host", "--n", "30016",
                         "--chunk", "16Ki,64Ki", "--seed", "0", *CPU),
    "stream-too-large": ("verify", "auto", "--from", "host", "--n", "9", "--chunk", "64M", *CPU),
    "stream-none": ("bench", "auto", "--from", "{out}/none.npy", *CPU),
    "fallback": ("bench", "reduce_v0_baseline", "--n", "32"),
}  # fmt: skip
#: Atomic kernels are among these: they add in another order each time, with other errors.
ANY_ORDER = ("bench-cpu-many",)
ON_GPU: dict[str, tuple[str, ...]] = {
    "bench-gpu": ("bench", "fastcuda", "--n", "2^12,2^14", *FILES),
    "bench-gpu-lineages": ("bench", "reduce_atomic", "reduce_v[01]*", "reduce_warp_conditional",
                           "reduce_ordered_warp", "--n", "2^12", "--rounds", "7", "--op", "max"),
    "bench-gpu-columns": ("bench", "reduce_v6_multi_add", "reduce_v7_shuffle", "--n", "2^16",
                          "--columns", "all", "--rounds", "3"),
    "bench-gpu-first-pass": ("bench", "leimao", "--n", "2^16", "--region", "first-pass"),
    "sweep-gpu": ("sweep", "reduce_v6_multi_add", "reduce_v7_shuffle", "--n", "2^12..2^15",
                  "--json", "{out}/run.json"),
    "bench-gpu-stream": ("bench", "reduce_v7_shuffle", "--from", "host", "--n", "30001", "--chunk",
                         "16Ki,64Ki", "--rounds", "7"),
    "check-gpu-base": ("check", "reduce_v7_shuffle", "--base", "kernels", "--n", "2^16"),
}  # fmt: skip
FOREIGN = """__global__ void theirs(const float *input, float *output, int count)
{
    __shared__ float cells[256];
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    cells[threadIdx.x] = k < count ? input[k] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cells[threadIdx.x] += cells[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        output[blockIdx.x] = cells[0];
}
"""


def plain(text: str, out: Path) -> str:
    """Without what differs between two runs of the same program."""
    text = text.replace(str(out), "OUT").replace(str(ROOT), "ROOT")
    text = re.sub(r'("(?:created|git|version)": ?)(?:"[^"]*"|null)', r"\1...", text)
    text = re.sub(r"(cudareduce [\d.]+) at [0-9a-f]+(?:-dirty)?,", r"\1,", text)
    text = re.sub(r'("(?:cpu|host|gxx)": ?)"[^"]*"', r"\1...", text)
    text = re.sub(r"\b[0-9a-f]{64}\b", "SHA256", text)
    text = re.sub(r"^[a-z ,]+: \d+ of \d+.*\n", "", text, flags=re.MULTILINE)  # printed when slow
    text = re.sub(r"skipped in (?:\d+ min ?)?(?:\d+ s)?\.", "skipped in ... s.", text)
    text = text.replace("No NVIDIA driver found", "No usable GPU: PyCUDA ...")
    text = re.sub(r"PyCUDA (?:is not installed|cannot be loaded)[^\n]*?(?=: running on|\n|$)",
                  "PyCUDA ...", text)  # fmt: skip
    return re.sub(r"libcuda\.so\.1 was not found[^\n]*?(?=: running on|\n|$)", "PyCUDA ...", text)


def masked(text: str) -> str:
    """Every number a #, every run of blanks, dashes or words that chance decides one."""
    text = re.sub(r"(?:±|\+/-)?[-+]?\d*\.?\d+(?:e[-+]?\d+)?", "#", text)
    return re.sub(r"[ ]{2,}|─+|-{3,}", "  ", re.sub(r"#(?:[±#.,^ ]*#)*", "#", text))


def transcript(call: Call, case: tuple[str, ...], out: Path) -> str:
    """What a command does, as the text of its golden file."""
    own = out / "theirs.cu"
    own.write_text(FOREIGN)
    code, stdout, stderr = call(*(word.format(out=out, file=own) for word in case))
    if case[-2:] == ("--format", "json") and "{" in stdout:
        stdout = one_line_each(stdout)
    parts = [f"$ cudareduce {' '.join(case)}", f"exit code {code}"]
    parts += [f"----- standard output\n{stdout}", f"----- standard error\n{stderr}"]
    for path in sorted(out.iterdir()):
        if path.name == "run.json":
            Draft202012Validator(result_schema()).validate(json.loads(path.read_text()))
        if path != own:
            parts.append(f"----- {path.name}\n{path.read_text()}")
    return plain("\n".join(parts), out)


def group_of(name: str) -> str:
    """The file that holds a case: cases that are alike share one."""
    if name in HELP:
        return "help"
    if name in ERRORS or name.endswith("-none") or name == "stream-too-large":
        return "errors"
    [first, *_] = name.split("-")
    return first if first in ("compare", "list", "show", "report", "plot") else name


def stored_cases(group: str) -> dict[str, str]:
    """The cases of a golden file. Each starts with a line `=== NAME`."""
    path = GOLDEN / f"{group}.txt"
    parts = re.split(r"^=== (.+)\n", path.read_text() if path.exists() else "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def one_line_each(text: str) -> str:
    """JSON with each member of its outermost list or object on a line."""
    data = json.loads(text)
    if isinstance(data, list):
        return "".join(f"{json.dumps(value, ensure_ascii=False)}\n" for value in data)
    return "".join(f"{name}: {json.dumps(data[name], ensure_ascii=False)}\n" for name in data)


def compare(name: str, text: str) -> None:
    group = group_of(name)
    if os.environ.get("CUDAREDUCE_UPDATE_GOLDEN"):
        cases = stored_cases(group) | {name: text.rstrip("\n") + "\n"}
        known = [*HELP, *STATIC, *ERRORS, *ON_CPU, *ON_GPU]
        (GOLDEN / f"{group}.txt").write_text(
            "".join(f"=== {name}\n{cases[name]}" for name in sorted(known) if name in cases)
        )
    assert text.rstrip("\n") + "\n" == stored_cases(group)[name]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


#: Commands that take seconds on the CPU.
_LONG = ("bench-cpu-many", "bench-cpu-ops", "verify-cpu-auto")


@pytest.mark.parametrize(
    "name",
    [
        *HELP, *STATIC, *ERRORS,
        *(pytest.param(n, marks=[pytest.mark.long] * (n in _LONG)) for n in ON_CPU),
    ],
)  # fmt: skip
def test_a_command_is_what_it_was(cudareduce: Call, tmp_path: Path, name: str) -> None:
    case = (HELP | STATIC | ERRORS | ON_CPU)[name]
    text = transcript(cudareduce, case, tmp_path)
    compare(name, masked(text) if name in ANY_ORDER else text)


@pytest.mark.parametrize("name", ON_GPU)
def test_a_command_with_a_gpu_is_what_it_was(
    cudareduce: Call, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with fake_gpu(monkeypatch, cache, floor_us=2.7):
        text = transcript(cudareduce, ON_GPU[name], tmp_path)
    compare(name, masked(text))
