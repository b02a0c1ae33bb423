"""What each parameter of a kernel of others gets: as it is said, and as it is guessed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.library.arguments import Argument, read_argument
from cudareduce.library.foreign import Adopted, adopt
from cudareduce.library.guesses import Guesses
from cudareduce.library.room import Room


def adopted(parameters: str, body: str = "", *said: str, before: str = "") -> Adopted:
    text = f"{before}\n__global__ void k({parameters}) {{ {body} together(); }}"
    return adopt(Path("theirs.cu"), text, Guesses(arguments=tuple(map(read_argument, said))))


def gets(parameters: str, body: str = "", *said: str) -> str:
    """What is said of a kernel, up to its block."""
    (words,) = adopted(parameters, body, *said).said
    return words.split("assumed that k ")[1].split(";")[0]


def refused(parameters: str, body: str = "", *said: str) -> str:
    with pytest.raises(UsageError) as caught:
        adopted(parameters, body, *said)
    return str(caught.value)


def test_an_argument_is_taken_apart() -> None:
    assert read_argument("a=n") == Argument("", "a", "n")
    assert read_argument("ns::k.a = {1, 2}") == Argument("ns::k", "a", "{1, 2}")
    assert read_argument("f=x == 1") == Argument("", "f", "x == 1")
    assert read_argument("a=scratch::best") == Argument(
        "", "a", "scratch::best"
    )  # a name, no amount


@pytest.mark.parametrize("text", ["", "a", "=1", "a=", "k.=1"])
def test_what_is_no_argument(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=WHAT: write as in --arg counter=zeroed:4"):
        read_argument(text)


@pytest.mark.parametrize("amount", ["", "0", "-1", "2^40", "blocks", "grid*2", "9" * 5000])
def test_what_is_no_amount(amount: str) -> None:
    with pytest.raises(UsageError, match="asks for no amount of memory: write bytes"):
        read_argument(f"a=zeroed:{amount}")


@pytest.mark.parametrize(
    ("parameters", "body", "words"),
    [
        ("const int *a, int *b, int n", "b[0] = a[n];", "reads a, writes b, counts with n"),
        ("int *a, int *b, int n", "a[blockIdx.x] = b[n];", "reads b, writes a, counts with n"),
        ("int &t, const int *a", "atomicAdd(&t, a[0]);", "reads a, writes t, takes whole tiles"),
        ("const int a[], int b[4], const int &n", "*b = a[n];", "reads a, writes b, counts with n"),
        ("const int *a, int *b, int *mutex, int n", "while (atomicCAS(mutex, 0, 1)) {} *b += *a;",
         "reads a, writes b, counts with n, mutex=zeroed:4"),
        ("const int *a, int *b, unsigned long long *x, int n", "*b = *a; atomicExch(x, 1ull);",
         "reads a, writes b, counts with n, x=zeroed:8"),
        ("const int *a, int *b, volatile int *flags, int n",
         "b[blockIdx.x] = *a; flags[blockIdx.x] = 1;",
         "reads a, writes b, counts with n, flags=zeroed:grid"),
        ("const int *a, int *tmp, int *b, int n", "tmp[blockIdx.x] = *a; *b = tmp[0];",
         "reads a, writes b, counts with n, tmp=scratch:grid"),
        ("const int *a, int *work, int *b, int n",
         "int i = blockIdx.x * 256 + threadIdx.x; work[i] = a[i]; *b = work[0];",
         "reads a, writes b, counts with n, work=scratch:threads"),
        ("const float *a, float *b, int n, float init, float scale", "*b = init + *a * scale;",
         "reads a, writes b, counts with n, init=Op::identity(), scale=1"),
        ("const int *a, int *b, int n, int blockSize, int num_blocks, bool isPow2", "*b = *a;",
         "reads a, writes b, counts with n, blockSize=BLOCK, num_blocks=gridDim.x, isPow2=false"),
        ("const int *a, int *b, int n, int q",
         "int i = blockIdx.x * blockDim.x * q + threadIdx.x; *b = a[i];",
         "reads a, writes b, counts with n, q=ITEMS"),
        ("const int *a, int *b, int h, int w", "int r = blockIdx.x; if (r < h) b[r] = a[r * w];",
         "reads a, writes b, counts with w the elements of a row, h=rows"),
        ("const int *a, int *b, int w", "b[blockIdx.x] = a[size_t(blockIdx.x) * w];",
         "reads a, writes b, counts with w the elements of a row"),
        ("const int *a, int *b, int n", "int from = blockIdx.x * n / gridDim.x; *b = a[from];",
         "reads a, writes b, counts with n"),  # a share of one array
        ("const float *a, float *b, const float step, int w, int h",
         "b[blockIdx.x] = a[w * blockIdx.x] * step;",
         "reads a, writes b, counts with w the elements of a row, step=1, h=rows"),
        ("const float *a, int batch, int filters, int spatial, float *b",
         "int f = blockIdx.x * blockDim.x + threadIdx.x; if (f >= filters) return; "
         "for (int j = 0; j < batch; ++j) for (int k = 0; k < spatial; ++k) "
         "b[f] += a[j * filters * spatial + f * spatial + k]; b[f] /= batch * spatial;",
         "reads a, writes b, counts with spatial the elements of a row, batch=1, filters=rows"),
        ("const float *a, float *b, int rows, int cols, int pitch",
         "int r = blockIdx.x; if (r < rows) "
         "for (int k = 0; k < cols; ++k) b[r] += a[r * pitch + k];",
         "reads a, writes b, counts with cols the elements of a row, rows=rows, pitch=n"),
        ("const float *a, float *b, int rows, int cols, int unlike",
         "int r = blockIdx.x; if (r < rows) "
         "for (int k = 0; k < cols; ++k) b[r] += a[r * cols + k];",
         "reads a, writes b, counts with cols the elements of a row, rows=rows, unlike=0"),
        ("float *b, const float *a, float *work, int n",
         "work[threadIdx.x] = a[threadIdx.x]; *b = *work;",
         "reads a, writes b, counts with n, work=scratch:threads"),
    ],
)  # fmt: skip
def test_what_is_guessed(parameters: str, body: str, words: str) -> None:
    assert gets(parameters, body) == words


@pytest.mark.parametrize(
    ("row", "grid"),
    [
        ("blockIdx.x", "block_per_row"),
        ("blockIdx.x * blockDim.x + threadIdx.x", "thread_per_row"),
        ("(blockIdx.x * blockDim.x + threadIdx.x) / 32", "warp_per_row"),
        ("blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)", "warp_per_row"),
    ],
)
def test_what_finds_a_row_tells_how_many_blocks(row: str, grid: str) -> None:
    body = f"int row = {row}; if (row < rows) b[row] = a[row * cols];"
    (kernel,) = adopted("const int *a, int *b, int rows, int cols", body).kernels
    assert (kernel.scope, kernel.grid, kernel.finish) == ("rows", grid, "none")


@pytest.mark.parametrize(
    ("parameters", "body", "words"),
    [
        ("const int *a, int *b, int n, float mean", "*b = *a;", "what mean gets; say it, as in "
         "--arg mean=1.0f"),
        ("const int *a, const long *c, int *b, int n", "*b = *a * *c;", "as in --arg c=in2"),
        ("const int *a, int *b, int *last, int n", "*b = *a; *last += *last;", "--arg last=out2"),
        ("const int *a, int *b, Shape s", "*b = *a;", "as in --arg s={}"),
        ("const int *a, int *b, float count", "*b = *a;", "as in --arg count=n"),
        ("const int *a, int *b, int", "*b = *a;", ""),
        ("const int *a, int *b, int n, void (*f)(int)", "*b = *a;", "what f gets"),
        ("const int *a, int n", "", "none of its parameters is a pointer to what it writes"),
        ("const int *a, int *b, int rows, int cols",
         "int r = blockIdx.y * blockDim.y + threadIdx.y; if (r < rows) b[r] = a[r * cols];",
         "finds its row by blocks of two dimensions"),
        (", ".join(f"int n{k}" for k in range(101)), "", "has more than 100 parameters"),
    ],
)  # fmt: skip
def test_what_is_not_understood(parameters: str, body: str, words: str) -> None:
    if words:
        assert words in refused(parameters, body)
    else:
        assert "counts with " in gets(parameters, body)


def test_a_pointer_to_a_count_gets_the_count() -> None:
    parameters = "const int *a, int *size, int *num_threads, int *b"
    body = "for (int k = threadIdx.x; k < *size; k += *num_threads) *b += a[k];"
    assert gets(parameters, body).endswith("counts with size, num_threads=BLOCK")
    (kernel,) = adopted(parameters, body).kernels
    assert "(int *)&static_cast<const int &>((int)(n))" in kernel.text
    read = "const int *a, const int *sizes, int *b, int n"
    body = "if (threadIdx.x < n) *b += a[threadIdx.x] * sizes[threadIdx.x];"
    assert "reads a and sizes" in gets(read, body)


def test_what_a_text_never_has_leads_nowhere() -> None:
    parameters = "const float *a, float *b, const int *shape, int n"
    assert "shape=nullptr" in gets(parameters, "if (threadIdx.x < n) atomicAdd(b, a[threadIdx.x]);")


def test_a_count_may_be_a_real_number() -> None:
    text = "if (threadIdx.x < length) atomicAdd(b, a[threadIdx.x]);"
    assert "counts with length" in gets("const float *a, float *b, float length", text)
    (kernel,) = adopted("const float *a, float *b, float length", text).kernels
    assert kernel.most == 2**24 - 1


def test_what_is_never_read_again_is_another_answer() -> None:
    parameters = "const int *a, int *low, int *high, int n"
    body = "atomicMin(low, a[threadIdx.x]); atomicMax(high, a[threadIdx.x]);"
    assert "high=out2" in gets(parameters, body)
    each = "*low = a[0]; high[blockIdx.x * blockDim.x + threadIdx.x] = a[1];"
    assert "--arg high=out2" in refused(parameters, each)


def test_a_count_that_nobody_asks_for_again_is_an_answer() -> None:
    parameters = "const int *a, int *count, int *total, int n"
    found = gets(parameters, "atomicAdd(total, a[0]); atomicAdd(count, a[1] > 0);")
    assert found == "reads a, writes total, counts with n, count=out2"
    asked = gets(parameters, "*total = a[0]; if (atomicAdd(count, 1) == gridDim.x - 1) *total = 1;")
    assert asked.endswith("count=zeroed:4")


def test_a_half_is_no_count_beside_one() -> None:
    body = "if (threadIdx.x < half) *b += a[half]; if (threadIdx.x + half < n - 1) *b += a[n - 1];"
    assert "counts with n" in adopted("const int *a, int *b, int half, int n", body).said[0]


def test_what_is_true_or_not_is_tried() -> None:
    (kernel,) = adopted("const int *a, int *b, int n, bool mean", "*b = *a;").kernels
    assert [one.change for one in kernel.meant] == ["mean=false", "mean=true"]


def test_counts_that_only_stand_together_are_one() -> None:
    body = "for (int k = threadIdx.x; k < s * t; k += 32) b[0] += a[k];"
    assert gets("const int *a, int *b, int s, int t", body).endswith("counts with t, s=1")


def test_who_combines_nothing_is_refused() -> None:
    text = "__global__ void k(const int *a, int *b) { int i = threadIdx.x; b[i] = abs(a[i]); }"
    with pytest.raises(UsageError, match="k combines nothing, so it is no reduction"):
        adopt(Path("theirs.cu"), text, Guesses())


def test_a_row_is_counted_in_the_second_dimension_of_a_grid() -> None:
    kept, shared = "b[blockIdx.y] = t;", "atomicAdd(b + blockIdx.y, t);"
    for write, grid in ((kept, "block_per_row"), (shared, "cover")):
        body = f"int t = a[blockIdx.y * cols + threadIdx.x]; {write}"
        (kernel,) = adopted("const int *a, int *b, int cols", body).kernels
        assert (kernel.scope, kernel.grid) == ("rows", grid)
        assert "#define blockIdx their_place()" in kernel.text


def test_a_mode_is_what_the_launches_of_the_file_pass() -> None:
    text = """
        __global__ void k(const int *a, int *b, int n, int mode)
        {
            if (mode == 3) atomicAdd(b, a[blockIdx.x * 32 + threadIdx.x]);
        }
        void run(int *a, int *b, int n) { int mode = 3; k<<<n / 32, 32>>>(a, b, n, mode); }
    """
    assert "mode=3;" in adopt(Path("theirs.cu"), text, Guesses()).said[0]


def test_places_of_extremes_and_defaults_are_guessed() -> None:
    words = gets("const float *a, float *b, int *b_idx, int n, bool twice = false",
                 "*b = *a; *b_idx = 0;")  # fmt: skip
    assert words == "reads a, writes b, counts with n, b_idx=out2, twice=false"


def test_what_is_said_counts() -> None:
    said = ("c=in", "b=out", "a=scratch:n", "n=n / 4", "m=gridDim.x + rows")
    words = gets("float *a, float *b, float *c, int n, int m", "", *said)
    assert words == "reads c, writes b, takes whole tiles, a=scratch:n, n=n / 4, m=gridDim.x + rows"


def test_rooms_are_as_large_as_is_said() -> None:
    said = ("c=zeroed:6", "d=scratch:grid", "e=zeroed:threads", "f=out2")
    parameters = "const int *a, int *b, int n, int *c, double *d, char *e, short *f"
    (kernel,) = adopted(parameters, "*b = *a;", *said).kernels
    assert kernel.rooms == (
        Room("c", 6, None, zeroed=True), Room("d", 8, "grid"),
        Room("e", 1, "threads", zeroed=True), Room("f", 2, "grid", answers=True),
    )  # fmt: skip
    sizes = [room.bytes(3, 3 * 256, 700) for room in kernel.rooms]
    assert sizes == [8, 24, 768, 8]  # whole words


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("x=1", "there is no parameter x; it has: a, b, n"),
        ("other.n=1", "there is no kernel other; there are: k"),
        ("n=in", "n is no pointer, so it cannot get in"),
        ("n=zeroed:4", "n is no pointer, so it cannot get zeroed:4"),
        ("a=1", "is a pointer to what it reads"),
    ],
)
def test_what_cannot_be_meant(said: str, words: str) -> None:
    assert words in refused("const int *a, int *b, int n", "*b = *a;", said)


def test_the_size_of_an_unknown_type_is_asked_for() -> None:
    parameters = "const int *a, int *b, int n, Pair *p"
    assert "say how many p points to, as in --arg p=scratch:4096" in refused(
        parameters, "*b = *a;", "p=scratch:grid"
    )
    assert "p=scratch:64" in gets(parameters, "*b = *a;", "p=scratch:64")


def test_an_argument_of_one_kernel_is_not_that_of_another() -> None:
    text = "__global__ void one(const int *a, int *b, int n, int m) { *b = *a; }\n"
    both = text + "namespace red { __global__ void two(const int *a, int *b, int n, int m) {} }"
    says = (read_argument("two.m=2"), read_argument("m=1"), read_argument("one.m=3"))
    found = adopt(Path("theirs.cu"), both, Guesses(arguments=says))
    assert ["m=1" in words or "m=3" in words for words in found.said] == [True, True]
    assert "m=3" in found.said[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        "x = " + "(" * 2500 + "n" + ")" * 2500 + ";",
        "x = " + "n * (" * 2500 + "1" + ")" * 2500 + ";",
        "int r = blockIdx.x; " + "r = r * n; " * 2500,
        "int a0 = 1; " + "".join(f"int a{k + 1} = a{k} * n;" for k in range(2500)),
        "atomicAdd(" * 2500 + "c" + ", 1)" * 2500 + ";",
    ],
)
def test_a_long_body_is_read_once(body: str) -> None:
    began = time.process_time()
    adopted("const int *a, int *b, int n, int m, int *c", body, "m=1", "c=out2")
    assert time.process_time() - began < 5


def test_a_number_for_a_count_leads_to_sizes() -> None:
    words = refused("const int *x, int *y, int n", "*y = x[0];", "n=7")
    assert "n counts its elements" in words
    assert words.endswith("--n 7 --sizes-only")


def test_a_factor_is_likely_one() -> None:
    (kernel,) = adopted("const int *x, int *y, int n, int k", "*y = x[0] * k;").kernels
    assert kernel.meant[0].change == "k=1"
    words = refused("const int *x, int *y, int n, int k, int l", "*y = x[0] * k * (l + 1);")
    assert words.endswith("what k and l get; say it, as in --arg k=1 --arg l=0")


def test_what_is_only_added_to_is_set_before() -> None:
    assert adopted("const int *x, int *y, int n", "*y += x[0];").kernels[0].finish == "atomic"
    assert adopted("const int *x, int *y, int n", "*y = 0; *y += x[0];").kernels[0].finish == "none"


def test_a_place_alone_is_the_answer_by_its_name() -> None:
    text = "__global__ void {}(const float *x, int *y, int n) {{ *y = x[0] > 0; }}"
    for name, ops in (("argmaxKernel", ("argmax",)), ("min_idx", ("argmin",))):
        (kernel,) = adopt(Path("theirs.cu"), text.format(name), Guesses()).kernels
        assert (kernel.ops, kernel.finish) == (ops, "none")
    with pytest.raises(UsageError, match="writes int"):
        adopt(Path("theirs.cu"), text.replace(" > 0", "").format("positives"), Guesses())


def test_floats_may_be_counted_in_integers() -> None:
    text = "__global__ void positives(const float *x, int *y, int n) { *y = x[0] > 0; }"
    (kernel,) = adopt(Path("theirs.cu"), text, Guesses()).kernels
    assert kernel.map and kernel.map.expression == "a > 0"
