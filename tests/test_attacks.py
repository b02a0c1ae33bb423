"""What happens to a command line that is wrong, odd or hostile: one table, one way to be right.

Each row is a command line, what lies in the folder it runs in, and what it must end with. Whatever
the row: no traceback, no internal error, no death by a signal, no hang, no silence, an error in one
sentence, nothing left behind. Rows run in this process, in a few milliseconds; those that could
kill or stop it run in one of their own (`apart`).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from multiprocessing import forkserver
from pathlib import Path

import pytest
from click.testing import CliRunner

from cudareduce.backends.selection import BackendSpec
from cudareduce.bench.jobs import Jobs
from cudareduce.cli.main import cli
from cudareduce.errors import EnvironmentProblem
from cudareduce.workers import fork_server
from tests.cli.test_main import MINE as MINE_CU
from tests.conftest import ROOT, read_result

Call = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("small")
Setup = Callable[[Path], None]

CPU = "--backend cpu"
RIGHT = "reduce_v7_shuffle"
RUN = f"bench {RIGHT} --n 33 {CPU}"
MINE = f"bench mine.cu --n 33 {CPU}"
BEFORE = ROOT / "tests/data/simulated-before.json"
AFTER = ROOT / "tests/data/simulated-after.json"
#: Longer than any message has to be: what was typed or read is quoted in part.
LONGEST_MESSAGE = 800
HERE_S, APART_S = 300.0, 300.0


@dataclass(frozen=True)
class Row:
    """A command line with what it runs on and what it must come to.

    `code` may be several where more than one end makes sense; `says` are words of the message,
    any one of them where `|` stands between. `files` lie in the working folder, `setup` makes there
    what is no plain file. `shell` is what a shell line has behind the command.
    """

    id: str
    words: tuple[str, ...]
    code: tuple[int, ...]
    says: str = ""
    files: dict[str, str | bytes] = field(default_factory=dict)
    setup: Setup | None = None
    env: dict[str, str] = field(default_factory=dict)
    writes: tuple[str, ...] = ()
    apart: bool = False
    shell: str = ""
    limit_s: float | None = None
    silent: bool = False
    long: bool = False


def row(
    name: str,
    words: str | Sequence[str],
    code: int | tuple[int, ...],
    says: str = "",
    *,
    files: dict[str, str | bytes] | None = None,
    setup: Setup | None = None,
    env: dict[str, str] | None = None,
    writes: tuple[str, ...] = (),
    apart: bool = False,
    shell: str = "",
    limit_s: float | None = None,
    silent: bool = False,
    long: bool = False,
) -> Row:
    return Row(
        name, tuple(shlex.split(words) if isinstance(words, str) else words),
        code if isinstance(code, tuple) else (code,), says, files or {}, setup, env or {}, writes,
        apart or bool(shell), shell, limit_s, silent, long,
    )  # fmt: skip


# ----- kernels to attack with

HEADER, _, FUNCTION = MINE_CU.removeprefix("/*+++\n").partition("+++*/\n")
BODY = FUNCTION.partition("{\n")[2].removesuffix("}\n")


def kernel(
    extra: str = "", *, name: str = "mine", before: str = "", body: str = BODY, header: str = HEADER
) -> str:
    """A right kernel, with `extra` lines at the start of its body and `before` it."""
    return (
        f'/*+++\n{header}+++*/\n{before}extern "C" __global__ void '
        f"{name}(const In *in, Out *out, size_t n)\n{{\n{extra}{body}}}\n"
    )


def headed(*changes: tuple[str, str], more: str = "") -> dict[str, str | bytes]:
    """A right kernel but for its header, in which lines are replaced, by their keys, or added."""
    lines = HEADER + more
    for key, line in changes:
        literal = line.replace("\\", r"\\")
        lines = re.sub(rf"^{key} = .*$", literal, lines, flags=re.MULTILINE)
    return {"mine.cu": kernel(header=lines)}


FOREIGN = """__global__ void theirs(const float *input, float *output, int count)
{
    __shared__ float cells[256];
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    cells[threadIdx.x] = k < count ? input[k] : 0.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int j = 1; j < blockDim.x; j++)
            cells[0] += cells[j];
        output[blockIdx.x] = cells[0];
    }
}
"""
STARTS = "struct Starts {{ Starts() {{ {} }} }};\nstatic Starts starts;\n"
HOST = 'extern "C" {{ void exit(int); void abort(); }}\n'.replace("{{", "{").replace("}}", "}")


# ----- folders to attack with


def folder(name: str) -> Setup:
    return lambda here: (here / name).mkdir(parents=True)


def loop(name: str) -> Setup:
    return lambda here: (here / name).symlink_to(name)


def dangling(name: str) -> Setup:
    return lambda here: (here / name).symlink_to("nowhere")


def changed_result(**changes: object) -> str:
    """A right result file, but for the fields named here."""
    return json.dumps(json.loads(BEFORE.read_text()) | changes)


def changed_record(**changes: object) -> str:
    """The same, but for fields of its first record."""
    run = json.loads(BEFORE.read_text())
    run["records"][0] |= changes
    return json.dumps(run)


def on_cpu() -> str:
    """What `bench --json` writes without a GPU, as far as a reader can tell."""
    run = json.loads(BEFORE.read_text())
    run["device"] = dict.fromkeys(run["device"]) | {"name": "CPU emulator"}
    for record in run["records"]:
        record |= {key: None for key in record if "_us" in key or "gb_s" in key or "pct" in key}
        record |= {"backend": "cpu", "rounds_us": []}
    return json.dumps(run)


def compiler(text: str) -> Setup:
    """A g++ that is another program; nothing else is on the PATH but what it needs itself."""

    def make(here: Path) -> None:
        tools = here / "tools"
        tools.mkdir()
        for name in ("sh", "sleep"):
            (tools / name).symlink_to(shutil.which(name) or "/bin/sh")
        if text:
            (tools / "g++").write_text(f"#!/bin/sh\n{text}\n")
            (tools / "g++").chmod(0o755)

    return make


def project(here: Path) -> None:
    """What the examples of `--help` speak of."""
    shutil.copy(ROOT / "README.md", here)
    shutil.copytree(ROOT / "docs", here / "docs")
    stored = here / "results"
    shutil.copytree(ROOT / "results", stored)
    shutil.copy(BEFORE, stored / "before.json")
    shutil.copy(BEFORE, here / "before.json")
    shutil.copy(AFTER, here / "after.json")
    (here / "tests" / "data").mkdir(parents=True)
    for path in (BEFORE, AFTER):
        shutil.copy(path, here / "tests" / "data")


# ----- the table

PATH = {"PATH": "{here}/tools"}
NOT_THERE = "cannot read|no such file|not found|does not exist|there is no"
ANSI = "\x1b[31mred\x1b]0;title\x07"

BARE = [
    row("bare", "", 2, "Usage:"),
    row("bare-list", "list", 0, RIGHT),
    row("bare-info", "info", 0, "g++"),
    row("bare-show", "show", 2, "KERNEL"),
    row("bare-reproduce", "reproduce", 2, "SUITE"),
    row("bare-compare", "compare", 2, "OLD"),
    row("bare-compare-one", f"compare {BEFORE}", 2, "NEW"),
    row("bare-check", "check", 2, "--baseline"),
    row("bare-reveal", "reveal", 2, "name a kernel"),
    row("bare-profile", "profile", 2, "name a kernel"),
    row("profile-nobody", "profile reduce_v9", 2, "did you mean"),
    row("profile-auto", "profile auto", 2, "name a kernel here"),
    row("profile-one-of-two", "profile reduce_v0_baseline --diff", 2, "compares two kernels"),
    row("profile-no-gpu", "profile reduce_v0_baseline", 6, "--static"),
    row("profile-drawn-static", "profile reduce_v0_baseline --static --png a.png", 2, "--static"),
    row("profile-no-elements", "profile reduce_v0_baseline --n 0", 2, "'0'"),
    row("bare-sweep", "sweep", 6, "GPU|CUDA"),
    row("bare-selftest", "selftest", 6, "GPU|CUDA"),
    row("bare-tune", "tune", 6, "GPU|CUDA"),
    row("bare-report", "report", 2, "README.md"),
    row("bare-history-check", "history check", 2, "history add"),
    row("bare-history-add", "history add", 2, "RESULT"),
    row("history-add-none", "history add nowhere.json", 2, "there is no nowhere.json"),
    row("history-show-none", "history show x --from nowhere", 2, "there is no history"),
    row("version", "--version", 0, "cudareduce"),
    row("help-short", "-h", 0, "Usage:"),
    row("help-two", "bench --help verify", 0, "Usage:"),
    row("only-dashes", "--", 2, "Usage:|command"),
    row("empty-command", [""], 2, "command"),
    *(row(f"help-{name}", [name, "--help"], 0, "Usage:") for name in cli.commands),
]

NAMES = [
    row("unknown-command", "frobnicate", 2, "frobnicate"),
    row("near-command", "benhc", 2, "bench"),
    row("option-before-command", "--n 33 bench", 2, "--n"),
    *(
        row(f"unknown-option-{name}", [name, "--frobnicate"], 2, "--frobnicate")
        for name in cli.commands
    ),
    row("near-option", f"bench --sead 3 {CPU}", 2, "--seed"),
    row("unknown-kernel", f"bench reduce_v9 {CPU}", 2, "did you mean"),
    row("unknown-kernel-far", f"bench zzz {CPU}", 2, "cudareduce list"),
    row("unknown-glob", f"bench qq* {CPU}", 2, "qq"),
    row("broken-glob", ["bench", "reduce_[", *CPU.split()], 2, "reduce_["),
    row("empty-kernel", ["bench", "", *CPU.split()], 2, "''|empty"),
    row("dots", f"bench ../.. {CPU}", 2, "../.."),
    row("surrogate-kernel", ["bench", "\udcff\udcfe", *CPU.split()], 2, "kernel"),
    row("surrogate-file", ["bench", "\udcff.cu", *CPU.split()], 2, NOT_THERE),
    row("escape-kernel", ["bench", ANSI, *CPU.split()], 2, "kernel"),
    row("escape-file", ["bench", f"{ANSI}.cu", *CPU.split()], 2, "control characters"),
    row("newline-file", ["bench", "a\nb.cu", *CPU.split()], 2, "control characters"),
    row("long-kernel", ["bench", "k" * 100_000, *CPU.split()], 2, "kernel"),
    row("long-file", ["bench", "k" * 100_000 + ".cu", *CPU.split()], 2, "cannot read|too long"),
    row("verify-unknown", f"verify reduce_v9 {CPU}", 2, "did you mean"),
    row("verify-one-of-two", f"verify {RIGHT} reduce_v9 --n 33 {CPU}", 2, "reduce_v9"),
    row("sweep-unknown", "sweep reduce_v9", 2, "reduce_v9"),
    row("show-unknown", "show reduce_v9", 2, "reduce_v9"),
    row("show-many", "show fastcuda", 2, "show one of"),
    row("show-all", "show all", 2, "show one of"),
    row("show-root-diff", "show reduce_v0_baseline --diff", 2, "begins a lineage"),
    row("show-two", "show reduce_v0_baseline reduce_v1_no_divergence", 2, "argument"),
    row("list-unknown", "list slowcuda", 2, "fastcuda"),
    row("list-kernel", f"list {RIGHT}", 0, "1 kernel"),
    row("reproduce-unknown", "reproduce slowcuda", 2, "fastcuda"),
    row("reproduce-kernel", f"reproduce {RIGHT}", 2, "suite"),
    row("selftest-unknown", "selftest reduce_v9", (2, 6)),
    row("completion-bad-shell", "completion tclsh", 2, "completion"),
    row("completion-bad-shell-env", "", 2, "tclsh|complet",
        env={"_CUDAREDUCE_COMPLETE": "tclsh_source"},
        apart=True),
]  # fmt: skip

#: Values that each numeric option refuses; those of FLOATS take fractions.
INTEGERS = {"--rounds": 2, "--rows": 2, "--block": 2, "--items": 2, "--grid": 2, "--shared": 2,
            "--seed": 2, "--device": 2}  # fmt: skip
#: What a file of thresholds may hold that is none.
NO_THRESHOLDS: dict[str, str | bytes] = {
    "not-toml": "= =", "not-utf8": b"\xff\xfe", "nested": "a = " + "[" * 100_000,
    "list": "kernel = [1]", "number": "default = 5", "nan": "default = nan",
    "huge": "default = " + "9" * 10_000, "unknown": 'defolt = "5%"',
}  # fmt: skip
FLOATS = ("--time-limit", "--max-time", "--peak-gb-s", "--rtol")
VALUES = [
    *(
        row(f"value{option}-{value or 'empty'}", [*RUN.split(), f"{option}={value}"], 2, option)
        for option in INTEGERS
        for value in ("", "x", "-1", "nan")
    ),
    *(
        row(f"value{option}-{value or 'empty'}", [*RUN.split(), f"{option}={value}"], 2, option)
        for option in FLOATS
        for value in ("", "x", "-1", "nan", "-inf")
    ),
    row("value--peak-gb-s-inf", f"{RUN} --peak-gb-s inf", 2, "--peak-gb-s"),
    row("value--rtol-inf", f"{RUN} --rtol inf", 2, "--rtol"),
    row("value--time-limit-inf", f"{RUN} --time-limit inf", (0, 2)),
    row("value--time-limit-huge", f"{RUN} --time-limit 1e300", (0, 2)),
    row("value--max-time-inf", f"{RUN} --max-time inf", (0, 2)),
    row("value--rounds-0", f"{RUN} --rounds 0", 2, "--rounds"),
    row("value--block-0", f"{RUN} --block 0", 2, "--block"),
    row("value--block-huge", f"{RUN} --block {10**30}", 2, "block"),
    row("value--block-odd", f"{RUN} --block 33", 2, "block"),
    row("value--items-huge", f"{RUN} --items {10**30}", 2, "item"),
    row("value--rows-huge", f"{RUN} --rows {10**30}", 2, "rows"),
    row("value--rows-none-takes", f"{RUN} --rows 2", 2, "rows"),
    row("value--seed-huge", f"{RUN} --seed {10**30}", (0, 2)),
    row("value--device-huge", f"bench {RIGHT} --backend cuda --device {10**30}", (2, 6),
        "GPU|CUDA|device"),
    row("value--backend", f"bench {RIGHT} --backend gpu", 2, "cuda"),
    row("value--backend-cuda", f"bench {RIGHT} --backend cuda", 6, "GPU|CUDA"),
    row("value--op", f"{RUN} --op xor", 2, "sum"),
    row("value--op-empty", [*RUN.split(), "--op", ""], 2, "--op"),
    row("value--op-comma", f"{RUN} --op sum,", 2, "--op"),
    row("value--dtype", f"{RUN} --dtype float8", 2, "float32"),
    row("value--dtype-empty", [*RUN.split(), "--dtype", ""], 2, "--dtype"),
    row("value--dtype-undefined", f"{RUN} --op matmul --dtype float32", 2, "matmul"),
    row("value--acc-narrow", f"{RUN} --dtype float64 --acc float32", 2, "--acc"),
    row("value--acc", f"{RUN} --acc float128", 2, "--acc"),
    row("value--timing", f"{RUN} --timing hot", 2, "cold"),
    row("value--timing-empty", [*RUN.split(), "--timing", ""], 2, "cold"),
    row("value--pattern", f"{RUN} --pattern zebra", 2, "random"),
    row("value--pattern-op", f"{RUN} --pattern cancel --op max", 2, "cancel|sum"),
    row("value--region", f"{RUN} --region all", 2, "total"),
    row("value--columns", f"{RUN} --columns colour", 2, "noise"),
    row("value--format", f"{RUN} --format yaml", 2, "json"),
    row("value--finish", f"{RUN} --finish never", 2, "atomic"),
    row("value--baseline-kernel", f"{RUN} --baseline-kernel reduce_v9", 2, "reduce_v9"),
    row("value--baseline-kernel-empty", [*RUN.split(), "--baseline-kernel", ""], 2,
        "--baseline-kernel"),
    row("value--kernels-file", "list --kernels a.txt", 2, "is a file", files={"a.txt": ""}),
    row("value--kernels-missing", "list --kernels none", 2, "none"),
    row("value-missing", f"bench {RIGHT} --n", 2, "--n"),
    row("value--threshold-bare", f"compare {BEFORE} {AFTER} --threshold 5", 2, "5%"),
    *(
        row(f"value--threshold-{value[:9] or 'empty'}-{len(value)}",
            ["compare", str(BEFORE), str(AFTER), f"--threshold={value}"], 2, "--threshold")
        for value in ("", "nan%", "inf%", "-1%", "0%", "1e9%", "9" * 400 + "%", "9" * 5000 + "%")
    ),
    row("value--thresholds-missing", f"compare {BEFORE} {AFTER} --thresholds t.toml", 2, "t.toml"),
    *(
        row(f"value--thresholds-{name}", f"compare {BEFORE} {AFTER} --thresholds t.toml", 2,
            "t.toml",
            files={"t.toml": text})
        for name, text in NO_THRESHOLDS.items()
    ),
    row("max-time", f"bench {RIGHT} --n 33 --max-time 0.5 {CPU}", (0, 4, 6), RIGHT),
    row("max-time-tiny", f"bench {RIGHT} --n 33 --max-time 1e-9 {CPU}", (4, 6), "--max-time"),
    row("max-time-verify", f"verify {RIGHT} --n 33 --max-time 1e-9 {CPU}", (4, 6), "--max-time"),
    row("max-time-sweep", "sweep --max-time 0.5", 6, "GPU|CUDA"),
    row("identity-alone", f"{RUN} --identity 0", 0, "--op-expr"),
]  # fmt: skip

SIZES = [
    row("size-spaces", ["bench", RIGHT, "--n", "1 000", *CPU.split()], 0, "1 000"),
    row("size-underscores", f"bench {RIGHT} --n 1_000 {CPU}", 0, "1 000"),
    row("size-zero", f"bench {RIGHT} --n 0 {CPU}", 0, RIGHT),
    row("size-commas", f"bench {RIGHT} --n 33,554,432 {CPU}", 2, "?"),
    row("size-beyond-memory", f"bench {RIGHT} --n 2^47 {CPU}", (2, 6), "memory|blocks"),
    *(
        row(f"size-{name}", ["bench", RIGHT, f"--n={text}", *CPU.split()], 2, "--n")
        for name, text in {
            "2^64": "2^64", "2^60": "2^60", "minus": "-1", "1e400": "1e400", "empty": "",
            "blank": "  ", "comma": ",", "two-commas": "1,,2", "open-range": "2^10..",
            "half-range": "..2^10", "falling-range": "2^20..2^10", "range-from-0": "0..8",
            "two-ranges": "1..2..4", "fraction": "1.5", "small": "1e-3", "hex": "0x10",
            "nan": "nan", "inf": "inf", "words": "many", "digits": "9" * 5000,
            "digits-unit": "9" * 5000 + "k", "digits-power": "9" * 5000 + "^2",
            "power-digits": "2^" + "9" * 5000, "exponent-digits": "1e" + "9" * 5000,
            "mantissa-digits": "9" * 400 + "e1", "minus-plus": "2^10-5000",
            "power-power": "2^2^2", "unit": "1Zi", "newline": "1\n2", "escape": ANSI,
        }.items()
    ),
]  # fmt: skip

FILES = [
    row("file-missing", MINE, 2, NOT_THERE),
    row("file-folder", MINE, 2, "mine.cu", setup=folder("mine.cu")),
    row("file-loop", MINE, 2, "mine.cu", setup=loop("mine.cu")),
    row("file-dangling", MINE, 2, "mine.cu", setup=dangling("mine.cu")),
    row("file-empty", MINE, 2, "__global__", files={"mine.cu": ""}),
    row("file-binary", MINE, 2, "mine.cu", files={"mine.cu": bytes(range(256)) * 20}),
    row("file-zeros", MINE, 2, "mine.cu", files={"mine.cu": bytes(5000)}),
    row("file-prose", MINE, 2, "__global__", files={"mine.cu": "Once upon a time."}),
    row("file-host-only", MINE, 2, "__global__", files={"mine.cu": "int main() { return 0; }"}),
    row("file-odd-parameters", MINE, 2, "does not compile",
        files={"mine.cu": "__global__ void f(float **a, struct B b, ...) {}"}),
    row("file-unclosed", MINE, 2, "closed", files={"mine.cu": "/*+++\n" + HEADER}),
    row("file-unclosed-body", MINE, 2, "mine.cu", files={"mine.cu": FOREIGN[:200]}),
    row("file-other-entry", MINE, 2, "mine", files={"mine.cu": kernel(name="yours")}),
    row("file-dashed", f"bench my-kernel.cu --n 33 {CPU}", 2, "my-kernel",
        files={"my-kernel.cu": kernel()}),
    row("file-crlf", MINE, 0, "mine", files={"mine.cu": kernel().replace("\n", "\r\n").encode()}),
    row("file-bom", MINE, 0, "mine", files={"mine.cu": b"\xef\xbb\xbf" + kernel().encode()}),
    row("file-syntax", MINE, 2, "mine.cu:", files={"mine.cu": kernel("    int = ;\n")}),
    row("file-undefined", MINE, 2, "undefined|nobody",
        files={"mine.cu": kernel("    nobody();\n", before="__device__ void nobody();\n")}),
    row("file-undeclared", MINE, 2, "nobody", files={"mine.cu": kernel("    nobody();\n")}),
    row("file-include", MINE, 2, "nobody.h", files={"mine.cu": '#include "nobody.h"\n' + kernel()}),
    row("file-long-error", MINE, 2, "mine.cu",
        files={"mine.cu": kernel(before="#error " + "long " * 20_000 + "\n")}),
    row("file-many-parameters", MINE, (2, 3), "argument|parameter",
        files={"mine.cu": kernel().replace("size_t n)", "size_t n, size_t m)")}),
    row("file-shared-60k", MINE, 2, "shared|49152|48",
        files={"mine.cu": kernel("__shared__ volatile float much[15 * 1024];\nmuch[0] = 1;\n")}),
    row("file-assert", MINE, 0, "mine",
        files={"mine.cu": kernel("    assert(n > 0 || n == 0);\n")}),
    row("file-assert-fails", MINE, 3, "assert",
        files={"mine.cu": kernel("    assert(n > 1000);\n")}),
    row("file-null", MINE, 3, "mine", files={"mine.cu": kernel("    *(volatile int *)0 = 1;\n")}),
    row("file-wild", MINE, 3, "mine",
        files={"mine.cu": kernel("    *(volatile int *)0xdeadbeef0 = 1;\n")}),
    row("file-deadlock", MINE, 3, "mine",
        files={"mine.cu": kernel("    if (threadIdx.x) __syncthreads();\n")}),
    row("file-endless", f"{MINE} --time-limit 2", 4, "2 s|time-limit",
        files={"mine.cu": kernel("    for (volatile int k = 0;; ) k = k + 1;\n")}),
    row("file-recursion", MINE, 3, "mine",
        files={"mine.cu": kernel("    if (n < 5000) out[0] = (Out)deep((int)n);\n",
               before="__device__ int deep(volatile int k) { volatile int cells[1000]; "
               "cells[k % 1000] = k; return deep(k + 1) + cells[k % 999]; }\n")}),
    row("file-throw", MINE, (2, 3), "mine",
        files={"mine.cu": kernel("    if (n == 33) throw 1;\n")}),
    row("file-two-of-one-stem", f"bench a/mine.cu b/mine.cu --n 33 {CPU}", 0, "b/mine",
        files={"a/mine.cu": kernel(), "b/mine.cu": kernel("    // another\n")}),
    row("file-of-a-built-in", f"bench {RIGHT} {RIGHT}.cu --n 33 {CPU}", 0, f"{RIGHT}.cu",
        files={f"{RIGHT}.cu": kernel(name=RIGHT)}),
    row("file-exits", MINE, (2, 3), "exit|ended|mine", apart=True,
        files={"mine.cu": kernel(before=HOST + STARTS.format("exit(0);"))}),
    row("file-aborts", MINE, (2, 3), "abort|SIGABRT|ended|mine", apart=True, long=True,
        files={"mine.cu": kernel(before=HOST + STARTS.format("abort();"))}),
    row("file-never-starts", f"{MINE} --time-limit 2", (2, 4), "2 s|time-limit|mine", apart=True,
        limit_s=60,
        files={"mine.cu": kernel(before=STARTS.format("for (volatile int k = 0;;) k = k + 1;"))}),
    row("foreign-entry", f"{MINE} --entry nobody", 2, "theirs", files={"mine.cu": FOREIGN}),
    row("foreign-entry-empty", [*MINE.split(), "--entry", ""], 2, "--entry|theirs",
        files={"mine.cu": FOREIGN + FOREIGN.replace("theirs", "ours")}),
    row("foreign-entry-injection", [*MINE.split(), "--entry",
        "theirs<1>(0, 0, 0); exit(0); theirs"],
        2, "mine.cu|entry", files={"mine.cu": FOREIGN}),
    row("foreign-shared-huge", f"{MINE} --shared {10**15}", 2, "shared",
        files={"mine.cu": FOREIGN}),
    row("foreign-grid-huge", f"{MINE} --grid {10**30}", (0, 2), "grid", files={"mine.cu": FOREIGN}),
    row("foreign-wrong", MINE, (2, 3), "theirs|mine", long=True,
        files={"mine.cu": FOREIGN.replace("+=", "-=")}),
    row("foreign-dtype", f"{MINE} --dtype int32", 2, "float32", files={"mine.cu": FOREIGN}),
    row("entry-without-file", f"{RUN} --entry x", 0, "--entry"),
    row("json-over-the-kernel", f"{MINE} --json mine.cu", 2, "mine.cu",
        files={"mine.cu": kernel()}),
]  # fmt: skip

#: What a file of a suite may hold that is none.
NO_SUITES: dict[str, str | bytes] = {
    "not-toml": "= =", "not-utf8": b"\xff", "empty": "", "nested": "a = " + "[" * 100_000,
    "row-number": 'title = "t"\nsource = "s"\nrow = 5\n',
    "row-text": 'title = "t"\nsource = "s"\nrow = ["x"]\n',
    "kernel-number": 'title = "t"\nsource = "s"\n[[row]]\nname = 1\nkernel = 2\n',
    "huge": "title = " + "9" * 10_000,
}  # fmt: skip
HEADERS = [
    *(
        row(f"header-{name}", MINE, 2, says, files=files)
        for name, says, files in (
            ("not-toml", "TOML", headed(("block", "block == 256"))),
            ("twice", "TOML", headed(more="block = 256\n")),
            ("long-integer", "mine.cu", headed(("block", "block = " + "9" * 10_000))),
            ("nested", "TOML", headed(more="dtypes = " + "[" * 100_000 + "\n")),
            ("nan", "block", headed(("block", "block = nan"))),
            ("inf", "block", headed(("block", "block = inf"))),
            ("text", "block", headed(("block", 'block = "256"'))),
            ("true", "block", headed(("block", "block = true"))),
            ("zero", "block", headed(("block", "block = 0"))),
            ("minus", "block", headed(("block", "block = -256"))),
            ("date", "block", headed(("block", "block = 1979-05-27"))),
            ("blocks-text", "blocks", headed(("blocks", 'blocks = "256"'))),
            ("blocks-float", "blocks", headed(("blocks", "blocks = [256.0]"))),
            ("blocks-empty", "block", headed(("blocks", "blocks = []"))),
            ("blocks-nested", "blocks", headed(("blocks", "blocks = [[256], {}]"))),
            ("not-among", "block", headed(("block", "block = 128"))),
            ("title-empty", "title", headed(("title", 'title = " "'))),
            ("title-number", "title", headed(("title", "title = 5"))),
            ("missing", "scope", headed(("scope", ""))),
            ("misspelt-key", "scope", headed(("scope", 'skope = "grid"'))),
            ("misspelt-word", "cover", headed(("grid", 'grid = "kover"'))),
            ("word-list", "grid", headed(("grid", 'grid = ["cover"]'))),
            ("word-table", "grid", headed(("grid", 'grid = {cover = 1}'))),
            ("fixed-without", "fixed_grid", headed(("grid", 'grid = "fixed"'))),
            ("after-misspelt", "reduce_v0_baselin", headed(more='after = "reduce_v0_baselin"\n')),
            ("after-itself", "itself", headed(more='after = "mine"\n')),
            ("after-list", "after", headed(more='after = ["reduce_v0_baseline"]\n')),
            ("min-cc", "min_cc", headed(more='min_cc = "new"\n')),
            ("ops-unknown", "sum", headed(more='ops = ["xor"]\n')),
            ("ops-none", "ops", headed(more="ops = []\n")),
            ("table", "TOML|key", headed(more="[block]\nx = 1\n")),
        )
    ),
    row("header-title-lines", MINE, (0, 2), "mine", files=headed(("title", 'title = "a\\nb"'))),
    row("header-items-huge", MINE, (2, 3), "mine", files=headed(more=f"items = {10**30}\n")),
    row("header-fixed-huge", MINE, (0, 2), "mine",
        files=headed(("grid", 'grid = "fixed"\nfixed_grid = ' + "9" * 30))),
    row("header-requires", MINE, 6, "tma", files=headed(more='requires = ["tma"]\n')),
    row("header-escape-list", "list --kernels .", (0, 2), "mine",
        files=headed(("title", 'title = "\\u001b[31mred\\u001b]0;title\\u0007"'))),
    row("header-escape-show", "show mine --kernels .", (0, 2), "mine",
        files=headed(("title", 'title = "\\u001b[31mred\\u001b]0;title\\u0007"'))),
    row("header-bidi-list", "list --kernels .", (0, 2), "mine",
        files=headed(("title", 'title = "\\u202edesrever\\u0000"'))),
    row("source-escape-show", "show mine --kernels .", (0, 2), "mine",
        files={"mine.cu": kernel(before=f"// {ANSI}\n")}),
    row("folder-broken", "list --kernels .", 2, "mine.cu", files={"mine.cu": "int x;"}),
    row("folder-two-names", "list --kernels .", 2, "name",
        files={f"{RIGHT}.cu": kernel(name=RIGHT)}),
    row("folder-circle", "list --kernels .", 2, "after", files={
        "mine.cu": kernel(header=HEADER + 'after = "yours"\n'),
        "yours.cu": kernel(name="yours", header=HEADER + 'after = "mine"\n')}),
    row("folder-dangling", "list --kernels .", 2, "mine.cu", setup=dangling("mine.cu")),
    row("folder-loop", "list --kernels loop", 2, "loop", setup=loop("loop")),
    row("folder-empty", "list --kernels none", (0, 2), "none|kernels", setup=folder("none")),
    *(
        row(f"suite-{name}", "list mine --kernels .", 2, "mine", files={"suites/mine.toml": text})
        for name, text in NO_SUITES.items()
    ),
    row("suite-folder", "list --kernels .", 2, "mine", setup=folder("suites/mine.toml")),
]  # fmt: skip


def own(expression: str, identity: str | None = "0", *more: str) -> list[str]:
    """A run with an operator of one's own."""
    neutral = [] if identity is None else [f"--identity={identity}"]
    return [*RUN.split(), f"--op-expr={expression}", *neutral, *more]


OPERATORS = [
    row("expr-product", own("a * b", "1"), 0, "right"),
    row("expr-no-identity", own("a + b", None), 2, "--identity"),
    row("expr-wrong-identity", own("a + b", "1"), 2, "identity"),
    row("expr-nan-identity", own("a + b", "NAN"), 2, "identity"),
    row("expr-empty-identity", own("a + b", ""), 2, "identity"),
    row("expr-empty", own(""), 2, "--op-expr|identity"),
    row("expr-syntax", own("a +* / b"), 2, "compile"),
    row("expr-unknown", own("a + c"), 2, "compile"),
    row("expr-unicode", own("a \u00d7 b"), 2, "compile"),
    row("expr-surrogate", own("a + \udcff"), 2, "--op-expr"),
    row("expr-statement", own("exit(0)"), 2, "--op-expr"),
    row("expr-no-law", own("a + b + a * a * b * b"), (2, 3), "associative"),
    row("expr-not-associative", own("a - b"), 2, "identity|associative"),
    row("expr-quote", own("a + b; }\""), 2, "--op-expr"),
    row("expr-comment", own("a + b /*"), 2, "--op-expr"),
    row("expr-line-comment", own("a + b //"), 2, "--op-expr"),
    row("expr-include", own('a + b); }\n#include "/etc/passwd"\n(('), 2, "--op-expr"),
    row("expr-braces", own("{a} + {b}"), 2, "--op-expr"),
    row("expr-with-op", own("a + b", "0", "--op", "max"), (0, 2)),
    row("expr-long", own("a + b" + " + 0" * 3000), (0, 2)),
    row("expr-exit", own("(exit(0), a + b)"), (2, 3), "--op-expr", apart=True),
    row("expr-abort", own("(abort(), a + b)"), (2, 3), "--op-expr", apart=True, long=True),
    row("expr-null", own("a + b + *(volatile int *)0"), (2, 3), "--op-expr", apart=True),
    row("expr-endless", own("({ for (volatile int k = 0;;) k = k + 1; a + b; })", "0",
        "--time-limit", "2"),
        (2, 3), "--op-expr|time-limit", apart=True, limit_s=60),
    row("expr-injection", own("a); exit(0); (b"), (2, 3), "--op-expr|identity", apart=True,
        long=True),
]  # fmt: skip

#: How a g++ that is none behaves; the cache is one of its own, so that it has to be asked.
COMPILERS = [
    row(f"compiler-{name}", f"{RUN} --no-cache", code, "g++", setup=compiler(text), env=PATH,
        apart="late" in name)  # workers of this process have been started with another PATH
    for name, text, code in (
        ("absent", "", 6), ("fails", "exit 1", 6), ("silent", "exit 0", 6),
        ("dies", "kill -9 $$", 6), ("no-program", "\x00\x01", 6),
        ("fails-late", '[ "$1" = --version ] && echo g++ 13.0 && exit 0; exit 1', (2, 6)),
        ("silent-late", '[ "$1" = --version ] && echo g++ 13.0; exit 0', (2, 6)),
        ("garbage-late", '[ "$1" = --version ] && echo g++ 13.0 && exit 0; '
         'while [ $# -gt 1 ]; do shift; done; echo garbage > "$1"', (2, 6)),
    )
]  # fmt: skip
COMPILERS += [
    row("compiler-absent-info", "info", 0, "g++", setup=compiler(""), env=PATH),
    row("compiler-fails-info", "info", 0, "g++", setup=compiler("exit 1"), env=PATH),
    row("compiler-absent-expr", own("a + b"), 6, "g++", setup=compiler(""), env=PATH),
    row("compiler-silent-expr", own("a + b"), (2, 6), "g++|compile", setup=compiler("exit 0"),
        env=PATH),
    row("compiler-hangs", f"{RUN} --no-cache --time-limit 2", (2, 6), "g++",
        setup=compiler("exec sleep 1000"),
        env=PATH, limit_s=60),
]  # fmt: skip


def damage(how: Callable[[bytes], bytes], pattern: str = "kernel-*.so") -> Setup:
    """A cache with what a run needs, its files changed."""

    def make(here: Path) -> None:
        whole = Path(os.environ["CUDAREDUCE_WARM_CACHE"])
        shutil.copytree(whole, here / "cache" / "cudareduce")
        for path in (here / "cache" / "cudareduce").glob(pattern):
            path.write_bytes(how(path.read_bytes()))

    return make


OWN_CACHE = {"XDG_CACHE_HOME": "{here}/cache"}
CACHES = [
    # Without a cache the runtime is compiled, which takes seconds.
    row("cache-is-a-file", "info", 0, "cache", env=OWN_CACHE, files={"cache": "a file"},
        apart=True, long=True),
    row("cache-missing-proc", RUN, (0, 2, 6), "cache", env={"XDG_CACHE_HOME": "/proc/none"},
        apart=True, long=True),
    row("cache-no-home", "info", 0, "g++", env={"XDG_CACHE_HOME": "", "HOME": ""}, apart=True),
    row("cache-halved", RUN, 0, "right", env=OWN_CACHE, setup=damage(lambda b: b[: len(b) // 2]),
        apart=True),
    row("cache-truncated", RUN, 0, "right", env=OWN_CACHE, setup=damage(lambda _: b""), apart=True,
        long=True),
    row("cache-zeroed", RUN, 0, "right", env=OWN_CACHE, setup=damage(lambda b: bytes(len(b))),
        apart=True, long=True),
    row("cache-random", RUN, 0, "right", env=OWN_CACHE, apart=True, long=True,
        setup=damage(lambda b: bytes((k * k + k // 7) % 256 for k in range(len(b))))),
    row("cache-runtime-truncated", RUN, 0, "right", env=OWN_CACHE, apart=True, long=True,
        setup=damage(lambda b: b[: len(b) // 2], "lib*.so")),
]  # fmt: skip

#: Streams that are full or closed are tested in tests/cli/test_streams.py.
STREAMS = [row("stream-err-full", RUN, 0, "right", shell="2>/dev/full")]

A, B = "a.json", "b.json"
TWO = f"compare {A} {B}"
GOOD = BEFORE.read_text()


def against(name: str, text: str | bytes, code: int | tuple[int, ...] = 2, says: str = A) -> Row:
    """An odd OLD to compare with a good NEW."""
    return row(f"result-{name}", TWO, code, says, files={A: text, B: GOOD})


RESULTS = [
    row("result-missing-old", TWO, 5, A, files={B: GOOD}),
    row("result-missing-new", TWO, 2, B, files={A: GOOD}),
    row("result-folder", TWO, 2, A, files={B: GOOD}, setup=folder(A)),
    row("result-loop", TWO, 2, A, files={B: GOOD}, setup=loop(A)),
    row("result-below-file", "compare b.json/a.json b.json", (2, 5), "a.json", files={B: GOOD}),
    row("result-long-name", ["compare", "k" * 5000, str(BEFORE)], (2, 5)),
    row("result-null-device", f"compare /dev/null {BEFORE}", 2, "/dev/null"),
    row("result-same-twice", "compare a.json a.json", (0, 2), A, files={A: GOOD}),
    against("empty", ""),
    against("not-json", "hello"),
    against("not-utf8", b"\xff\xfe" * 100),
    against("nested", "[" * 100_000),
    against("nested-closed", '{"a":' * 100_000 + "1" + "}" * 100_000),
    against("other-tool", '{"benchmarks": []}'),
    against("list", "[]"),
    against("null", "null"),
    against("truncated", GOOD[: len(GOOD) // 2]),
    against("nan", GOOD.replace('"time_us":', '"time_us": NaN, "x": ', 1)),
    against("infinity", GOOD.replace('"time_us":', '"time_us": 1e999, "x": ', 1)),
    against("long-integer", GOOD.replace('"time_us":', f'"time_us": {"9" * 10_000}, "x": ', 1)),
    against("bom", b"\xef\xbb\xbf" + GOOD.encode(), (0, 2), A),
    against("utf-16", GOOD.encode("utf-16")),
    against("on-cpu", on_cpu(), 2, "CPU"),
    against("no-records", changed_result(records=[])),
    against("records-object", changed_result(records={})),
    against("records-numbers", changed_result(records=[1, 2])),
    against("schema-later", changed_result(schema=99)),
    against("schema-text", changed_result(schema="1")),
    against("schema-huge", changed_result(schema=10**400)),
    against("device-none", changed_result(device=None)),
    against("device-nameless", changed_result(device={})),
    against("protocol-list", changed_result(protocol=[])),
    against("rounds-text", changed_result(protocol={"rounds": "9"})),
    against("time-negative", changed_record(time_us=-1.0)),
    against("time-zero", changed_record(time_us=0)),
    against("time-text", changed_record(time_us="1")),
    against("time-true", changed_record(time_us=True)),
    against("rounds-us-texts", changed_record(rounds_us=["1"])),
    against("kernel-number", changed_record(kernel=5)),
    against("kernel-surrogate", changed_record(kernel="\ud800")),
    against("kernel-long", changed_record(kernel="k" * 100_000), (0, 1, 2), "same measurement"),
    against("kernel-escape", changed_record(kernel=ANSI), (0, 1, 2), ""),
    against("device-escape", changed_result(device={"name": ANSI}), (0, 2, 5), ""),
    row("compare-fine", f"compare {BEFORE} {AFTER} --threshold 0.001%", 1, "limit 0.001%"),
    row("compare-over-input", f"{TWO} --markdown a.json", 2, A, files={A: GOOD, B: GOOD}),
    row("compare-one-file-twice", f"{TWO} --markdown x --junit x", 2, "x", files={A: GOOD,
        B: GOOD}),
    row("compare-junit-missing", f"compare {BEFORE} {AFTER} --junit none/x.xml", 2, "none"),
]  # fmt: skip

WRITING = [
    row("json-dash", f"{RUN} --quiet --json -", (0, 2), "-"),
    row("json-missing-folder", f"{RUN} --json none/x.json", 2, "none"),
    row("json-folder", f"{RUN} --json x.json", 2, "folder", setup=folder("x.json")),
    row("json-empty", [*RUN.split(), "--json", ""], 2, "--json|folder"),
    row("json-below-file", f"{RUN} --json a.txt/x.json", 2, "a.txt", files={"a.txt": ""}),
    row("json-full", f"{RUN} --json /dev/full", 2, "/dev/full"),
    row("csv-full", f"{RUN} --csv /dev/full", 2, "/dev/full"),
    row("markdown-full", f"{RUN} --markdown /dev/full", 2, "/dev/full"),
    row("json-null", f"{RUN} --json /dev/null", 0, "right"),
    row("json-loop", f"{RUN} --json x.json", 2, "x.json", setup=loop("x.json")),
    row("json-long-name", f"{RUN} --json {'k' * 300}.json", 2, "too long|cannot write"),
    row("json-csv-one-file", f"{RUN} --json x --csv x", 2, "x"),
    row("json-surrogate", [*RUN.split(), "--json", "\udcff/x.json"], 2, "cannot write"),
    row("json-written", f"{RUN} --json x.json", 0, "right", writes=("x.json",)),
]

OPEN, CLOSE = "<!-- cudareduce: a.json -->\n", "<!-- /cudareduce -->\n"


def report(name: str, text: str | bytes, code: int | tuple[int, ...], says: str = "") -> Row:
    """A Markdown file, beside a result, to be made anew."""
    return row(f"report-{name}", "report x.md", code, says, files={"x.md": text, A: GOOD})


REPORTS = [
    row("report-missing", "report x.md", 2, "x.md"),
    row("report-folder", "report x.md", 2, "x.md", setup=folder("x.md")),
    report("empty", "", 2, "no place"),
    report("no-marker", "# Hello\n", 2, "no place"),
    report("not-utf8", b"\xff\xfe" + OPEN.encode(), 2, "UTF-8"),
    report("fine", OPEN + CLOSE, 0, "x.md"),
    report("crlf", (OPEN + CLOSE).replace("\n", "\r\n").encode(), 0, "x.md"),
    report("nested", OPEN + OPEN + CLOSE + CLOSE, 2, "x.md"),
    report("unclosed", OPEN, 2, "x.md"),
    report("closed-twice", OPEN + CLOSE + CLOSE, 2, "x.md"),
    report("second-unclosed", OPEN + CLOSE + OPEN, 2, "x.md"),
    report("no-run", "<!-- cudareduce: none.json -->\n" + CLOSE, 2, "none.json"),
    report("not-a-run", "<!-- cudareduce: x.md -->\n" + CLOSE, 2, "x.md"),
    report("folder-run", "<!-- cudareduce: . -->\n" + CLOSE, 2, "folder|directory"),
    report("nameless", "<!-- cudareduce: -->\n" + CLOSE, 2, "x.md"),
    row("report-check", "report x.md --check", 2, "x.md", files={"x.md": OPEN + CLOSE, A: GOOD}),
]

CHECKS = [
    row("check-missing", "check --baseline none.json", 5, "none.json"),
    row("check-no-gpu", f"check --baseline {BEFORE}", 6, "GPU|CUDA"),
    row("check-on-cpu", "check --baseline a.json", 2, "CPU", files={A: on_cpu()}),
    row("check-not-json", "check --baseline a.json", 2, A, files={A: "x"}),
    row("check-folder", "check --baseline a.json", 2, A, setup=folder(A)),
    row("check-both", f"check --baseline {BEFORE} --base main", 2, "exclude each other"),
    row("check-empty", ["check", "--baseline", ""], (2, 5), "baseline|folder|directory"),
    row("check-unknown-kernel", f"check reduce_v9 --baseline {BEFORE}", 2, "reduce_v9"),
    row("check-rounds", f"check --baseline {BEFORE} --rounds 0", 2, "--rounds"),
    row("check-update-few", f"check --baseline {BEFORE} --update-baseline --rounds 1", 2,
        "--rounds"),
    row("check-n", f"check --baseline {BEFORE} --n 33", 2, "--base"),
    row("check-arch", f"check --baseline {BEFORE} --arch 90", 2, "--arch does not apply"),
    row("check-base-empty", ["check", "--base", ""], 2, "--base"),
    row("check-base-unknown", "check --base no-such-revision", 2, "no-such-revision"),
    row("check-base-option", "check --base=--help", 2, "--base"),
    row("check-base-output", "check --base=--output=stolen", 2, "--base"),
    row("check-base-no-kernels", "check --base none", 2, "none", setup=folder("none")),
    row("check-base-size", "check --base main --n -1", 2, "--n"),
    row("check-compile-missing", "check --compile --baseline none.json", 5, "none.json"),
    row("check-compile-other", f"check --compile --baseline {BEFORE}", (2, 6), "compile|nvcc"),
    row("check-compile-not-json", "check --compile --baseline a.json", 2, A, files={A: "x"}),
    *(
        row(f"check-compile-arch-{arch[:9] or 'empty'}",
            ["check", "--compile", "--baseline", "x", f"--arch={arch}"], 2, "--arch")
        for arch in ("", "x", "-90", "9", "90,", "9" * 5000, "²")
    ),
    row("sweep-few", "sweep --n 33", (2, 6), "3 sizes|GPU|CUDA"),
    row("sweep-cpu", f"sweep {CPU}", 2, "cuda"),
    row("reproduce-cuda", "reproduce bbuf --backend cuda", 6, "GPU|CUDA"),
]  # fmt: skip

ROWS = [
    *BARE, *NAMES, *VALUES, *SIZES, *FILES, *HEADERS, *OPERATORS, *COMPILERS, *CACHES, *STREAMS,
    *RESULTS, *WRITING, *REPORTS, *CHECKS,
]  # fmt: skip


# ----- how a row is run and judged


class Hang(BaseException):
    """A row took longer than it may; no `except Exception` on the way catches it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise Hang in this process after so many seconds."""

    def stop(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def living(pids: Iterable[int]) -> dict[int, int]:
    """The session of each of these processes that has not ended; Python's own resource tracker is
    left out."""
    found = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 (for speed)
                state, _, _, session = stat.read().rpartition(b")")[2].split()[:4]
            if state in b"ZX" or b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                continue
        except OSError:
            continue
        found[pid] = int(session)
    return found


def children() -> set[int]:
    """Living child processes of this one, and of the one that its children are forked from."""
    fork_server()
    forked_from = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    files = (file for parent in (os.getpid(), forked_from)
             for file in Path(f"/proc/{parent}/task").glob("*/children"))  # fmt: skip
    return set(living(int(pid) for file in files for pid in file.read_text().split()))


def in_session(leader: int) -> set[int]:
    """Living processes of a session."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {pid for pid, session in living(pids).items() if session == leader}


def end(pids: set[int]) -> None:
    """Kill what a failing row left."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError as error:
            assert error.errno == errno.ESRCH


def soon(done: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something becomes true; a process takes a moment to end."""
    limit = time.monotonic() + seconds
    while not (right := done()) and time.monotonic() < limit:
        time.sleep(0.02)
    return right


def run_apart(
    words: Sequence[str], here: Path, env: dict[str, str], limit_s: float, shell: str = ""
) -> tuple[int, str, str]:
    """Run the command line in a process and session of its own; Hang if it takes too long, and an
    AssertionError if it leaves processes."""
    command = [sys.executable, "-m", "cudareduce", *words]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        subprocess.Popen(
            command, cwd=here, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            end(in_session(process.pid))
            raise Hang from None
        clean = soon(lambda: not in_session(process.pid))
        end(in_session(process.pid))
        out.seek(0)
        err.seek(0)
        said = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    assert clean, f"processes are left behind; {said[1]}"
    return code, *said


def environment(cache_home: Path, temporary: Path, **more: str) -> dict[str, str]:
    """That of a command run apart: no GPU, the tests' cache, a temporary folder of its own."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    fixed = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(cache_home), "TMPDIR": str(temporary),
             "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}  # fmt: skip
    return {**os.environ, **fixed, **more}


@pytest.fixture(scope="session")
def cache_home(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What XDG_CACHE_HOME has to be for the cache that all tests share."""
    home = tmp_path_factory.mktemp("cache_home")
    (home / "cudareduce").symlink_to(cache)
    return home


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory, cache: Path, cache_home: Path) -> Path:
    """A cache with no more than what `RUN` needs."""
    home = tmp_path_factory.mktemp("warm")
    run_apart(RUN.split(), home, environment(cache_home, home), APART_S)
    (home / "cudareduce").mkdir()
    for path in cache.glob("lib*.so"):
        shutil.copy(path, home / "cudareduce")
    run_apart(RUN.split(), home, environment(home, home), APART_S)
    return home / "cudareduce"


@pytest.fixture
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, for this process and those that it starts."""
    made = tmp_path_factory.mktemp("tmp")
    monkeypatch.setenv("TMPDIR", str(made))
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked here is the same on every machine."""

    def none(spec: BackendSpec) -> None:
        raise EnvironmentProblem("no GPU is used in this test")

    monkeypatch.setattr("cudareduce.backends.selection.open_cuda", none)
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)


def entries(here: Path) -> set[str]:
    return {str(path.relative_to(here)) for path in here.rglob("*")}


def judge(one: Row, code: int, out: str, err: str) -> None:
    """What is true of every command line, and what is of this one."""
    said = f"{out}\n{err}"
    shown = f"exit code {code}\n----- out\n{out[:3000]}\n----- err\n{err[:3000]}"
    assert "Traceback" not in said, shown
    assert "internal error" not in said, shown
    assert 0 <= code < 128, shown
    assert code in one.code, shown
    assert one.silent or said.strip(), "it says nothing"
    control = set(re.findall(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]", said))
    assert not control, f"raw control characters {control!r}; {shown}"
    errors = [line for line in err.splitlines() if line.startswith("cudareduce: ")]
    if code and not out.strip() and not one.silent and "Usage:" not in one.says:
        assert len(errors) == 1, f"not one sentence of error; {shown}"
    assert len(errors) <= 1, shown
    assert all(len(line) <= LONGEST_MESSAGE for line in err.splitlines()), f"too long; {shown}"
    if one.says and not one.silent:
        assert any(word.casefold() in said.casefold() for word in one.says.split("|")), shown


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(
            one,
            id=one.id,
            marks=[pytest.mark.slow] * bool(one.limit_s) + [pytest.mark.long] * one.long,
        )
        for one in ROWS
    ],
)
def test_an_attack_ends_in_a_sentence(
    request: pytest.FixtureRequest, one: Row, tmp_path: Path, temporary: Path, no_gpu: None,
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    here = tmp_path / "here"
    here.mkdir()
    for name, text in one.files.items():
        path = here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if one in CACHES:
        warm = request.getfixturevalue("warm_cache")
        monkeypatch.setenv("CUDAREDUCE_WARM_CACHE", str(warm))
        monkeypatch.setenv("PATH", request.getfixturevalue("keeping_path"))
    if one.setup:
        one.setup(here)
    before, alive = entries(here), children()
    env = {key: value.format(here=here) for key, value in one.env.items()}
    try:
        if one.apart:
            home = request.getfixturevalue("cache_home")
            whole = environment(home, temporary, **env)
            code, out, err = run_apart(one.words, here, whole, one.limit_s or APART_S, one.shell)
        else:
            monkeypatch.chdir(here)
            # What else a user's file is tried with is told by tests/verify/test_test_sets.py.
            monkeypatch.setattr(Jobs, "test_sets", lambda self, case, *, every: [])
            for key, value in env.items():
                monkeypatch.setenv(key, value)
            with at_most(one.limit_s or HERE_S):
                code, out, err = cudareduce(*one.words)
    except Hang:
        end(children() - alive)
        pytest.fail("it hangs")
    judge(one, code, out, err)
    assert soon(lambda: not children() - alive), f"processes are left: {children() - alive}"
    assert [path.name for path in temporary.iterdir() if path.name.startswith("cudareduce")] == []
    made = {name for name in entries(here) - before if not name.startswith("cache")}
    assert made == set(one.writes)


def test_there_is_a_row_for_each_command_and_each_id_is_one() -> None:
    assert len({one.id for one in ROWS}) == len(ROWS) >= 160
    assert {one.words[0] for one in ROWS if one.words} >= set(cli.commands)
    assert sum(one.apart for one in ROWS) <= 25


def test_printf_of_a_kernel_is_cut(
    cudareduce: Call, tmp_path: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.cu").write_text(kernel('    printf("hello %d\\n", (int)threadIdx.x);\n'))
    code, out, err = cudareduce(*MINE.split())
    assert code == 0
    assert "hello" not in out
    assert 1 <= err.count("hello ") <= 20


def test_both_files_of_one_stem_have_a_row(
    cudareduce: Call, tmp_path: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
        Path(name, "mine.cu").write_text(kernel())
    code, out, _ = cudareduce(*f"bench a/mine.cu b/mine.cu --n 33 {CPU} --format json".split())
    records = read_result(out)["records"]
    assert (code, [record["verdict"] for record in records]) == (0, ["pass", "pass"])
    assert len({record["kernel"] for record in records}) == 2


# ----- the examples of --help


def _braces(word: str) -> list[str]:
    """What a shell makes of `a{b,c}`."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", word)
    if match is None:
        return [word]
    return [w for part in match[1].split(",") for w in _braces(word.replace(match[0], part, 1))]


def examples() -> dict[str, tuple[str, ...]]:
    """The command lines that each command's help shows, but for pipes and redirections."""
    found = {}
    for name in cli.commands:
        text = CliRunner().invoke(cli, [name, "--help"]).output
        match = re.search(r"^\s*Examples?:\s(.*?)(?:\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE)
        shown = " ".join(match[1].split()) if match else ""
        for number, line in enumerate(re.split(r"\bcudareduce (?=\w)", shown)[1:]):
            words = shlex.split(re.sub(r"\s*source <\($|\)\s*(source <\()?$", "", line))
            words = list(takewhile(lambda word: word not in ("|", ">"), words))
            expanded = [w for word in words for w in ([word] if " " in word else _braces(word))]
            found[f"{name}-{number}"] = tuple(expanded)
    return found


def _as_a_shell(word: str) -> list[str]:
    """The files that a pattern is for, if there are any."""
    return (sorted(map(str, Path().glob(word))) if "*" in word else []) or [word]


EXAMPLES = examples()
#: How an example is made small; what takes a GPU says so.
CODES = {"bench": (0,), "verify": (0,), "compare": (0, 1), "check": (2, 6), "sweep": (6,),
         "selftest": (6,), "reproduce": (6,), "reveal": (0, 1), "tune": (6,),
         "history": (0, 2), "profile": (0, 6),
         "show": (0, 6)}  # fmt: skip
SMALL = {"--n": "33,34", "--op": "sum", "--dtype": "float32", "--backend": "cpu", "--rows": "1"}


def test_each_command_shows_an_example() -> None:
    assert {name.rpartition("-")[0] for name in EXAMPLES} == set(cli.commands)


#: Examples that start ranks and compile all their kernels, or every kernel of a suite with nvcc.
_LONG, _SLOW = ("collective-2",), ("collective-0", "collective-1", "profile-2")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[pytest.mark.long] * (name in _LONG) + [pytest.mark.slow] * (name in _SLOW),
        )
        for name in EXAMPLES
    ],
)
def test_the_examples_of_a_command_work(
    name: str, cudareduce: Call, tmp_path: Path, no_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = list(EXAMPLES[name])
    if "--compile" in words:
        pytest.skip("compiles every kernel where nvcc is found")
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = words[0]
    words = [file for word in words for file in _as_a_shell(word)]
    if command in ("bench", "verify", "reveal"):
        words = [SMALL.get(before, word) for before, word in pairwise(["", *words])]
        words = [RIGHT if word in ("all", "fastcuda") else word for word in words]
        words += ["--n", "33"] * ("--n" not in words) + CPU.split()
    if command == "reproduce":
        words += ["--backend", "cuda"]
    if command == "collective":
        words += ["--ranks", "2", *(["--n", "4099"] if "--n" not in words else [])]
    with at_most(HERE_S):
        code, out, err = cudareduce(*words)
    judge(row(name, words, CODES.get(command, (0,))), code, out, err)
