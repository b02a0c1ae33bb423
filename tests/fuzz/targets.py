"""What is fuzzed: for each target how inputs are made, and what takes them.

An input is the bytes of a file, or of an argument of the command line.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from cudareduce.catalog.front_matter import KEYS, read_front_matter
from cudareduce.catalog.kernel import load_kernel
from cudareduce.compare.check import compare_files
from cudareduce.compare.request import CompareRequest, Judging
from cudareduce.errors import CudareduceError, UsageError
from cudareduce.external.device_code import read_device_file
from cudareduce.reduction.sizes import parse_sizes
from cudareduce.report.publish import Outputs
from cudareduce.results.store import load
from tests.conftest import ROOT
from tests.test_attacks import FOREIGN, kernel

for _late in ("rich.console", "rich.table", "rich.text", "rich.box", "tabulate"):
    importlib.import_module(_late)  # takes longer than a call may, and must not be cut short

#: CPU seconds after which a call counts as hanging. The longest inputs take one; code that is
#: quadratic in them takes minutes, so that the speed of the machine does not decide.
LIMIT_S = 30.0
SEEDS = Path(__file__).with_name("seeds.json")


class TooSlow(AssertionError):
    """A call took longer than LIMIT_S."""


@contextlib.contextmanager
def quickly(limit_s: float = LIMIT_S) -> Iterator[None]:
    """Raise TooSlow in the body, even inside a regular expression, after `limit_s` of CPU time.

    Garbage collection is off meanwhile: an exception raised in one of its callbacks is lost.
    """

    def stop(*_: object) -> None:
        raise TooSlow(f"more than {limit_s:g} s of CPU time")

    collects = gc.isenabled()
    gc.disable()
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        if collects:
            gc.enable()


@dataclass(frozen=True)
class Target:
    """Inputs, the call that takes one, and how many inputs take about a second."""

    inputs: st.SearchStrategy[bytes]
    take: Callable[[bytes], None]
    examples: int

    def check(self, data: bytes, limit_s: float = LIMIT_S) -> None:
        """Raise what is not allowed to come of an input."""
        with quickly(limit_s), contextlib.suppress(CudareduceError):
            self.take(data)


# ----- how texts are changed

Change = tuple[str, float, float, str, int]
TIMES = (1, 2, 3, 10, 1000, 20_000)
#: No input is longer than this: a file of a user has no more, and a second is enough for it.
LONGEST = 100_000


def _changed(text: str, changes: list[Change]) -> str:
    """A text after changes; each has a kind, a place and a length as shares, a word and a count."""
    for kind, at, length, word, times in changes:
        start = int(at * len(text))
        end = min(len(text), start + 1 + int(length**3 * (len(text) - start)))
        if kind == "delete":
            text = text[:start] + text[end:]
        elif kind == "insert":
            text = text[:start] + _repeated(word, times) + text[start:]
        elif kind == "replace":
            text = text[:start] + word + text[end:]
        elif kind == "repeat":
            text = text[:start] + _repeated(text[start:end], times) + text[end:]
        elif kind == "cut":
            text = text[:start]
        text = text[:LONGEST]
    return text


def _repeated(text: str, times: int) -> str:
    """A text so many times, no more than are looked at: else it would have gigabytes."""
    return text * min(times, 1 + LONGEST // max(1, len(text)))


def mutations(bases: list[str], words: list[str]) -> st.SearchStrategy[bytes]:
    """Texts that are a few changes away from right ones."""
    share = st.floats(0, 1, allow_nan=False)
    change = st.tuples(
        st.sampled_from(["replace", "insert", "delete", "repeat", "cut"]), share, share,
        st.one_of(st.sampled_from(words), st.text(max_size=8)), st.sampled_from(TIMES),
    )  # fmt: skip
    changed = st.builds(_changed, st.sampled_from(bases), st.lists(change, max_size=6))
    return changed.map(lambda text: text.encode("utf-8", "surrogateescape"))


def _text(data: bytes) -> str:
    """An argument of the command line, as Python decodes it."""
    return data.decode("utf-8", "surrogateescape")


# ----- headers

VALUES = ["1", "0", "-1", "256", '"grid"', '""', "true", "nan", "-inf", "1e400", "0x10", "[]", "{}",
          "[256]", "[[256]]", "[true]", "[nan]", "[256.0]", "{a = 1}", "1979-05-27", "12:30:00",
          '"\\u0000"', '"\\u001b[31m"', "'''\n'''", '"""', "9" * 5000, "1" + "0" * 400, "[" * 2000,
          '["sum"]', '["float32"]', '["atomic", "atomic"]', "[[]]", "[{}]", "1_000",
          '"reduce_v0_baseline"', '"mine"', '"nobody"', '"\U0001f600"']  # fmt: skip
LINES = [line for line in kernel().splitlines()[1:9] if "=" in line]


def _header(lines: list[str], more: list[tuple[str, str]]) -> str:
    return kernel(header="\n".join([*lines, *(f"{key} = {value}" for key, value in more)]) + "\n")


_KEYS = st.sampled_from([*KEYS, "Title", "blocks.x", '"title"', "gird", "", "title.x"])
_WRITTEN = st.one_of(
    st.builds(
        _header,
        st.lists(st.sampled_from(LINES), max_size=8, unique=True),
        st.lists(st.tuples(_KEYS, st.sampled_from(VALUES)), max_size=3),
    ).map(str.encode),
    mutations([kernel()], ["/*+++\n", "+++*/", "[", "]", "[[", '"""', "=", "\n", "\r\n", "\x00",
                           "#", "\\", "__global__ ", 'extern "C" ', "void ", "(", *VALUES]),
)  # fmt: skip


def take_header(data: bytes) -> None:
    """Load a kernel file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.cu")
        path.write_bytes(data)
        with contextlib.suppress(UsageError):
            read_front_matter(path, data.decode("utf-8", "replace"))
        _ = load_kernel(path).entry_line


# ----- sizes

_SIZES = mutations(
    ["33554432", "2^25", "32Mi", "1e6", "1.5e3", "2^20,2^24", "2^10..2^30", "2^10+1", "1_000"],
    ["^", "..", ",", "e", "E", ".", "-", "+", "Ki", "Gi", "k", "_", " ", "0", "9", "99", "2^48",
     "1e300", "\u0663", "\u00b2", "x", "\udcff", "\n", "inf", "nan"],
)  # fmt: skip


def take_sizes(data: bytes) -> None:
    """Sizes as `--n` takes them."""
    parse_sizes(_text(data))


# ----- result files


def small_result() -> dict[str, Any]:
    """A result file of two kernels."""
    run: dict[str, Any] = json.loads((ROOT / "tests/data/simulated-before.json").read_text())
    return run | {"records": run["records"][:2]}


RESULT = json.dumps(small_result(), indent=1)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from([10**30, -(10**400), 1e308, 5e-324, -0.0, "NVIDIA H200", "cold", "pass", "nan",
                     "\ud800", "\x1b[31m", "k" * 5000, [], {}, [[]], [None], [1], ["1"], [1e999],
                     {"a": 1}, [0.0] * 9]),
)  # fmt: skip


def _replaced(steps: list[tuple[float, float, bool, Any]]) -> bytes:
    """A result with values replaced, or left out; a step says which record, or none, and field."""
    run = small_result()
    for which, key, leave_out, value in steps:
        holders = [run, run["device"], run["protocol"], run["tool"], *(run["records"] or [])]
        holder = holders[int(which * (len(holders) - 1))]
        if not isinstance(holder, dict) or not holder:
            continue
        name = sorted(holder)[int(key * (len(holder) - 1))]
        if name in ("device", "protocol", "tool", "records") and holder is run:
            return json.dumps({k: v for k, v in run.items() if k != name} | {name: value}).encode()
        if leave_out:
            del holder[name]
        else:
            holder[name] = value
    return json.dumps(run).encode()


_SHARE = st.floats(0, 1, allow_nan=False)
_RESULTS = st.one_of(
    st.lists(st.tuples(_SHARE, _SHARE, st.booleans(), _LEAVES), min_size=1, max_size=4).map(
        _replaced
    ),
    mutations([RESULT], ["{", "}", "[", "]", ",", ":", '"', "null", "NaN", "-Infinity", "1e999",
                         "9" * 5000, "\\ud800", "\\u0000", "true", "\ufeff", "0", "-", '{"a":']),
)  # fmt: skip


def take_result(data: bytes) -> None:
    """A result file, loaded, then compared with a right one and the other way round."""
    with tempfile.TemporaryDirectory() as folder:
        odd, good = Path(folder, "odd.json"), Path(folder, "good.json")
        odd.write_bytes(data)
        good.write_text(RESULT)
        load(odd)
        for old, new, style in ((odd, good, "table"), (good, odd, "markdown")):
            request = CompareRequest(
                old=old, new=new, judging=Judging(everything=True), outputs=Outputs(style=style)
            )
            with contextlib.suppress(CudareduceError), _quiet():
                compare_files(request)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Standard output as a pipe without a reader's eyes, where any text must be printable."""
    text = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        yield


# ----- foreign sources

WHOLE_TILES = """#include <bits/stdc++.h>
#include "cuda_runtime.h"
#define BLOCK_SIZE 256
__global__ void tree(float *d_in, float *d_out) {
    __shared__ float cells[BLOCK_SIZE];
    unsigned tid = threadIdx.x;
    cells[tid] = d_in[blockIdx.x * blockDim.x + tid];
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) { cells[tid] += cells[tid + s]; }
        __syncthreads();
    }
    if (tid == 0) d_out[blockIdx.x] = cells[0];
}
int main() {
    std::vector<float> host(1 << 20);  // } a brace in a comment {
    printf("{");
    tree<<<4096, BLOCK_SIZE>>>(nullptr, nullptr);
}
"""

TEMPLATES = """#include <stdio.h>
#include <cooperative_groups.h>
#include "helper_cuda.h"
namespace cg = cooperative_groups;
template <class T> struct Cells {
    __device__ inline operator T *() { extern __shared__ int raw[]; return (T *)raw; }
};
template <class T, unsigned int blockSize, bool nIsPow2>
__global__ void strided(T *g_idata, T *g_odata, unsigned int n) {
    T *cells = Cells<T>();
    unsigned tid = threadIdx.x, width = blockSize * gridDim.x;
    T sum = 0;
    for (unsigned i = blockIdx.x * blockSize + tid; i < n; i += width) sum += g_idata[i];
    cells[tid] = sum;
    cg::sync(cg::this_thread_block());
    if (tid == 0) {
        for (unsigned k = 1; k < blockSize; k++) sum += cells[k];
        g_odata[blockIdx.x] = sum;
    }
}
__global__ void two_numbers(const int *x, int *y, int n, int m) { y[0] = x[0] + n + m; }
template <class T> void launch(int blocks, T *a, T *b) {
    strided<T, 256, true><<<blocks, 256, 1024>>>(a, b, 1);
}
template void launch<int>(int blocks, int *a, int *b);
extern "C" bool isPow2(unsigned x) { return (x & (x - 1)) == 0; }
"""

ATOMIC = """namespace mine { namespace {
static int host_only(int x) { return x; }
__device__ int same(int x) { return x; }
} }
__global__ void __launch_bounds__(256)
add_all(int *total, const int *__restrict__ numbers, size_t count)
{
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(total, mine::same(numbers[i]));
}
"""

SOURCES = [WHOLE_TILES, TEMPLATES, ATOMIC, FOREIGN]
_FOREIGN = mutations(
    SOURCES,
    ["{", "}", "(", ")", "<", ">", ";", ",", "*", "/*", "*/", "//", '"', "'", "\\", "\\\n", "#",
    " ",
     "\n", "\t", "#include ", '#include "', "#define A {\n", "__global__ ", "__device__ ",
     "template <", "template <class T> ", "namespace ", "namespace a {", 'extern "C" ',
     'extern "C" {',
     "struct ", "= {", "static ", "inline ", "void ", "const ", "__launch_bounds__(1) ", "f(",
     "extern __shared__ ", "float *a, ", "unsigned ", "...", "\x00", "R\"(", "a ", "::"],
)  # fmt: skip


def take_foreign(data: bytes) -> None:
    """A source that was not written for this tool: its kernels, and the device code of each."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(CudareduceError):
        file = read_device_file(Path(os.devnull) / "mine.cu", text, (), ())
        file.code({function.name for function in file.kernels()})


TARGETS = {
    "headers": Target(_WRITTEN, take_header, 150),
    "sizes": Target(_SIZES, take_sizes, 300),
    "results": Target(_RESULTS, take_result, 15),
    "foreign": Target(_FOREIGN, take_foreign, 60),
}


def seeds() -> list[tuple[str, str, bytes]]:
    """Target, name and data of each stored input. The file lists an input's parts as
    [text, repetitions]; bytes that are no UTF-8 are surrogates."""
    stored: dict[str, dict[str, list[tuple[str, int]]]] = json.loads(SEEDS.read_text())
    return [
        (target, name, b"".join(text.encode("utf-8", "surrogateescape") * n for text, n in parts))
        for target, inputs in stored.items()
        for name, parts in inputs.items()
    ]


def store_seed(target: str, name: str, data: bytes) -> None:
    """Add an input to the stored ones, one per line."""
    stored = json.loads(SEEDS.read_text())
    stored[target][name] = [(data.decode("utf-8", "surrogateescape"), 1)]
    targets = []
    for key, inputs in stored.items():
        lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in inputs.items())
        targets.append(f" {json.dumps(key)}: {{\n{lines}\n }}")
    SEEDS.write_text("{\n" + ",\n".join(targets) + "\n}\n")
