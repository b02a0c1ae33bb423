"""How a file launches its kernels itself, read from its text."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import Guesses
from cudareduce.library.kernel import Kernel
from tests.conftest import ROOT

STRIDES = """%s
__global__ void sums(const float *in, float *out, int n)
{
    float own = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        own += in[k];
    atomicAdd(out, own);
}
%s
"""
TILES = """%s
__global__ void sums(const float *in, float *out, int n)
{
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) atomicAdd(out, in[k]);
}
%s
"""


def adopted(text: str, **says: object) -> Kernel:
    return adopt(Path("theirs.cu"), text, Guesses(**says)).kernels[0]  # type: ignore[arg-type]


def launched(host: str, before: str = "") -> tuple[int, int, object]:
    """Threads, elements a thread and grid of a kernel of tiles with this host code."""
    kernel = adopted(TILES % (before, host))
    return kernel.block, kernel.items, kernel.fixed_grid or kernel.grid


IN_MAIN = "void run(float *a, float *b, int n, int threads) { %s sums<<<%s>>>(a, b, n); }"


@pytest.mark.parametrize(
    ("before", "words", "configuration", "expected"),
    [
        ("", "", "(n + 127) / 128, 128", (128, 1, "cover")),
        ("#define BLOCK 512", "", "(n + BLOCK - 1) / BLOCK, BLOCK", (512, 1, "cover")),
        ("", "const int threads = 64; int blocks = n / (threads * 4);", "blocks, threads",
         (64, 4, "cover")),
        ("", "int t, g; t = 96; g = (n + t * 2 - 1) / (t * 2);", "g, t", (96, 2, "cover")),
        ("", "dim3 block(128, 1), grid((n + block.x - 1) / block.x);", "grid, block",
         (128, 1, "cover")),
        ("int up(int a, int b) { return (a + b - 1) / b; }",
         "auto t = 64, per = 4; dim3 grid(up(n, t * per));", "grid, t", (64, 4, "cover")),
        ("", "int b = n / 32; dim3 grid(b); dim3 block(32);", "grid, block", (32, 1, "cover")),
        ("", "dim3 g, t; t.x = 64; g.x = (n + 63) / 64; g.y = 1;", "g, t", (64, 1, "cover")),
        ("#define DIV_UP(a, b) (((a) + (b) - 1) / (b))", "", "DIV_UP(n, 1024), 1024",
         (1024, 1, "cover")),
        ("template <class T> T up(T a, T b) { return (a + b - 1) / b; }", "", "up(n, 192), 192",
         (192, 1, "cover")),
        ("enum { THREADS = 1 << 7 }; constexpr unsigned PER = 8;", "",
         "n / THREADS / PER + 1, THREADS", (128, 8, "cover")),
        ("", "", "static_cast<int>(std::ceil((float)n / 128)), 128", (128, 1, "cover")),
        ("", "int t = n < 256 ? n : 256;", "(n + t - 1) / t, t", (256, 1, "cover")),
        ("", "", "(n + threads * 2 - 1) / (threads * 2), threads", (256, 2, "cover")),
        ("", "int t = 64; if (threads) t = 128;", "n / 64, t", (256, 1, "cover")),  # either
        ("", "", "dim3(4, 4), 64", (64, 1, "cover")),  # two dimensions are none of ours
        ("", "", "n / 64, dim3(8, 8)", (64, 1, "cover")),  # which is one row of threads
        ("", "", "nowhere(n), 64", (64, 1, "cover")),
        ("", "", "n / 0, 4096", (256, 1, "cover")),
        ("", "", "16, 64", (64, 1, "cover")),  # of so many elements as the author had
        ("", "n = 4096;", "16, 64", (64, 4, "cover")),
    ],
)  # fmt: skip
def test_a_launch_tells_block_grid_and_items(
    before: str, words: str, configuration: str, expected: tuple[int, int, object]
) -> None:
    assert launched(IN_MAIN % (words, configuration), before) == expected


@pytest.mark.parametrize(
    ("before", "words", "configuration", "grid", "exactly"),
    [
        ("", "", "64, 128", 64, False),
        ("", "", "min((n + 127) / 128, 1024), 128", 1024, False),
        ("", "int g = (n + 127) / 128; if (g > 1024) g = 1024;", "g, 128", 1024, False),
        ("#define MOST 512", "int g = (n + 127) / 128; if (MOST < g) { g = MOST; }", "g, 128", 512,
         False),
        ("", "int g = n / 128; if (g > 64) g = 32;", "g, 128", "fill", False),  # no bound
        ("", "int g = n / 128; if (g > 64) g = 64; else g = 1;", "g, 128", "fill", False),
        ("", "int s; cudaDeviceGetAttribute(&s, cudaDevAttrMultiProcessorCount, 0);", "s * 4, 128",
         "fill", False),
        ("", "int s = 0; cudaDeviceProp p; s = p.multiProcessorCount;", "32 * s, 128", "fill",
         False),
        ("", "", "blocks_of(n), 128", "fill", False),  # as it looks
    ],
)  # fmt: skip
def test_blocks_that_stride_are_as_many(
    before: str, words: str, configuration: str, grid: object, exactly: bool
) -> None:
    kernel = adopted(STRIDES % (before, IN_MAIN % (words, configuration)))
    assert (kernel.fixed_grid or kernel.grid, kernel.exactly) == (grid, exactly)
    assert kernel.block == 128


def test_a_number_of_blocks_that_the_kernel_reckons_with_holds_at_every_size() -> None:
    text = (STRIDES % ("#define BLOCKS 48", IN_MAIN % ("", "BLOCKS, 128"))).replace(
        "gridDim.x", "BLOCKS"
    )
    kernel = adopted(text)
    assert (kernel.fixed_grid, kernel.exactly) == (48, True)


def test_one_block_of_a_kernel_that_knows_no_other() -> None:
    text = TILES.replace("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")
    kernel = adopted(text % ("", IN_MAIN % ("", "1, 64")))
    assert (kernel.fixed_grid, kernel.exactly) == (1, True)


def test_what_launches_do_not_agree_on_is_left_open() -> None:
    both = IN_MAIN % ("", "n / 64, 64") + IN_MAIN.replace("run", "again") % ("", "n / 128, 128")
    assert launched(both) == (256, 1, "cover")
    both = IN_MAIN % ("", "n / 128, 64") + IN_MAIN.replace("run", "again") % ("", "n / 256, 128")
    assert launched(both) == (256, 2, "cover")


def test_a_launch_on_partials_does_not_count() -> None:
    host = IN_MAIN.replace("; }", "; sums<<<1, 32>>>(b, c, n / 512); }") % ("", "n / 512, 512")
    assert launched(host) == (512, 1, "cover")


def test_constants_of_other_places_do_not_count() -> None:
    other = "void other() { const int t = 32; int n = 5; }"
    inner = "const int t = 128; { const int t = 64; }"
    assert launched(other + IN_MAIN % (inner, "n / t, t")) == (128, 1, "cover")


def test_a_block_by_the_name_of_a_constant() -> None:
    own = TILES.replace("blockDim.x", "BLOCK_SIZE")
    assert adopted(own % ("#define BLOCK_SIZE 512", "")).block == 512
    assert adopted(own % ("#define BLOCK_SIZE 500", "")).block == 256
    assert adopted(TILES % ("#define BLOCK_SIZE 512", "")).block == 256  # which it does not name


def test_what_the_user_says_comes_first() -> None:
    host = IN_MAIN % ("int t = 128;", "(n + t - 1) / t, t, 3 * t * sizeof(float)")
    extern = TILES.replace("    int k", "    extern __shared__ float cell[];\n    int k")
    kernel = adopted(extern % ("", host))
    assert (kernel.block, kernel.dynamic_shared) == (128, 1536)
    kernel = adopted(extern % ("", host), block=64)
    assert (kernel.block, kernel.blocks, kernel.dynamic_shared) == (64, (64,), 768)
    kernel = adopted(extern % ("", host), grid=7, shared=8)
    assert (kernel.fixed_grid, kernel.exactly, kernel.dynamic_shared) == (7, True, 8)


TEMPLATE = """template <class T, int blockSize, int PER, bool wide, int depth, bool isPow2>
__global__ void sums(const T *in, T *out, int n) { out[0] = in[0]; }
const int DEPTH = 3;
void run(float *a, float *b, int n)
{
    sums<float, 128, 4, true, DEPTH, true><<<n / 512, 128>>>(a, b, n);
}
"""


def test_template_arguments_of_a_launch() -> None:
    """But for the type, which is any, and the size, which is no power of two."""
    adopted_ = adopt(Path("theirs.cu"), TEMPLATE, Guesses())
    assert "sums<In, BLOCK, 4, bool(1), 3, false> reads in" in adopted_.said[0]
    assert "block 128, items 4, grid cover, 0 bytes" in adopted_.said[0]
    where = "block, items, grid: its launch, line 6, which leaves out the rest of a tile"
    assert f"memory ({where}), finish" in adopted_.said[0]
    assert adopted_.kernels[0].whole_tiles


def test_each_instance_of_a_template_is_a_row() -> None:
    path = ROOT / "tests/foreign_shapes/instances_of_a_template.cu"
    text = path.read_text()
    assert [k.id for k in adopt(path, text, Guesses()).kernels] == ["sum<1>", "sum<2>"]
    one = Guesses(entries=("sum<2>",))
    assert [k.id for k in adopt(path, text, one).kernels] == [path.stem]
    twice = Guesses(entries=("sum<2>", "sum<3>"))
    assert [k.id for k in adopt(path, text, twice).kernels] == ["sum<2>", "sum<3>"]
    same = text.replace("sum<2>", "sum<1>")
    assert len(adopt(path, same, Guesses()).kernels) == 1


@pytest.mark.parametrize(
    "words",
    ["int t = " + "(" * 5000 + "64" + ")" * 5000 + ";", "int t = t;",
     "int " + "".join(f"a{k} = a{k + 1} + a{k + 1}, " for k in range(500)) + "t = a0;",
     "int t = 1 << 62 << 62 << 62;", "int t = 1e308 * 1e308;", "int t = 09;", "int t = 5 % 0;",
     "int t = -1 >> 1;", "int t = 1 << 99;", "int t = ceil(1, 2);", "int t = sizeof(nothing);"],
)  # fmt: skip
def test_what_is_no_constant_is_no_block(words: str) -> None:
    began = time.process_time()
    assert launched(IN_MAIN % (words, "nowhere(n), t"))[0] == 256
    assert launched("#define t " + words[8:-1] + "\n" + IN_MAIN % ("", "3, t"))[0] == 256
    assert time.process_time() - began < 2


@pytest.mark.parametrize("words", ["int a; a = 1; ", "f(&t); ", "sums<<<t, t>>>(a, b, n); ", "{ ",
                                   "{ sums<<<t, t>>>(a, b, n); "])  # fmt: skip
def test_a_long_host_function_is_read_once(words: str) -> None:
    began = time.process_time()
    launched(IN_MAIN % ("int t = 64; " + words * 5_000, "n / t, t"))
    assert time.process_time() - began < 4


def test_a_launch_in_a_method() -> None:
    host = IN_MAIN % ("constexpr int t = 384;", "(n + t - 1) / t, t")
    other = "void other(int t) { t = 5; }"
    assert launched("struct Runner { " + other + host + " };") == (384, 1, "cover")


def test_as_many_blocks_for_any_count_reach_so_many_elements() -> None:
    host = "void run(float *a, float *b, int n) { sums<<<64, 256>>>(a, b, n); }"
    kernel = adopted(TILES % ("", host))
    assert (kernel.grid, kernel.asks.most) == ("cover", 64 * 256)
    assert adopted(TILES % ("", host), grid="cover").asks.most == 0
    assert adopted(STRIDES % ("", host)).asks.most == 0


ROUNDS = """__global__ void sums(const float *in, float *out, int n, int times)
{
    float own = 0;
    for (int k = 0; k < times; k++)
        if (k * 128 + threadIdx.x < n)
            own += in[k * 128 + threadIdx.x];
    atomicAdd(out, own);
}
void run(float *in, float *out, int count) { %s sums<<<1, 128>>>(in, out, count, %s); }
"""


@pytest.mark.parametrize(
    ("words", "value", "expected"),
    [
        ("", "(count + 127) / 128", "(((long long)n + 127) / 128)"),
        ("int r = (count - 1) / 128 + 1;", "r", "((((long long)n - 1) / 128) + 1)"),
        ("int per = 128; int r = count / per;", "r", "((long long)n / 128)"),
        ("", "count >> 1", "((long long)n >> 1)"),
    ],
)
def test_what_the_host_reckons_from_the_count(words: str, value: str, expected: str) -> None:
    kernel = adopted(ROUNDS % (words, value))
    assert (f"(int)({expected})" in kernel.text, kernel.meant, kernel.change) == (True, (), "")


def test_what_the_host_reckons_otherwise_is_tried() -> None:
    assert len(adopted(ROUNDS % ("", "count * 3")).meant) > 1


def test_a_thread_for_each_of_the_files_own_elements() -> None:
    host = "const int COUNT = 512; void run() { sums<<<1, COUNT>>>(a, b, COUNT); }"
    assert launched(host)[0] == 512


NAMED = """__global__ void sums(const float *in, float *out, int n, int %s)
{
    if (threadIdx.x < n) atomicAdd(out, in[threadIdx.x] + %s);
}
void run(float *in, float *out, int n) { sums<<<64, 256>>>(in, out, n, %s); }
"""


@pytest.mark.parametrize(
    ("name", "value", "gets"),
    [("block_size", "256", "BLOCK"), ("block_size", "128", "128"), ("log2_threads", "8", "8"),
     ("num_blocks", "64", "gridDim.x"), ("num_blocks", "32", "32")],
)  # fmt: skip
def test_what_a_launch_passes_comes_before_what_it_is_called(
    name: str, value: str, gets: str
) -> None:
    assert f"(int)({gets})" in adopted(NAMED % (name, name, value)).text


def test_blocks_of_others_are_counted_where_nothing_else_is() -> None:
    kernel = NAMED.replace("int n, int %s", "int %s").replace("threadIdx.x < n", "threadIdx.x < %s")
    text = kernel.replace("in, out, n, %s", "in, out, 39") % (("num_blocks",) * 3)
    assert "(int)(n)" in adopted(text).text


def test_a_constant_of_a_class_is_the_block() -> None:
    before = "struct Launcher { static const int THREADS = 96; int other = 32; };"
    assert launched("void run() { sums<<<n / 96, THREADS>>>(a, b, n); }", before)[0] == 96


@pytest.mark.parametrize(
    ("declares", "index", "block"),
    [("__shared__ int s[96];", "threadIdx.x", 96), ("__shared__ int s[96], u[4];", "t", 96),
     ("__shared__ int s[96]; __shared__ int u[64];", "t", 96),
     ("__shared__ int s[ROOM];", "t", 160),
     ("__shared__ int s[32];", "t", 256), ("__shared__ int s[96];", "t / 32", 256),
     ("__shared__ int s[512];", "t + blockDim.x] + s[t", 256)],
)  # fmt: skip
def test_threads_find_room_in_shared_memory(declares: str, index: str, block: int) -> None:
    text = f"""#define ROOM 160
__global__ void k(const int *a, int *b, int n)
{{ {declares} int t = threadIdx.x; if (t < n) atomicAdd(b, a[t] + s[{index}]); }}"""
    assert adopted(text).block == block
