"""Names that a file leaves to its compiler: said by -D, or told by how they are called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudareduce.errors import UsageError
from cudareduce.library.foreign import adopt
from cudareduce.library.guesses import FileOptions, Guesses
from cudareduce.library.undefined import read_definition

Call = Callable[..., tuple[int, str, str]]
#: A number of elements a thread that is called as nobody calls it.
COUNTED = """__global__ void add_some(const int *x, int *total, int n)
{
    for (int k = 0; k < HOW_MANY; k++) {
        int i = (blockIdx.x * HOW_MANY + k) * BLOCKDIM + threadIdx.x;
        if (i < n) atomicAdd(total, x[i]);
    }
}
int main() { add_some<<<8, BLOCKDIM>>>(x, total, n); }
"""


def said_of(text: str, *definitions: str) -> str:
    (words,) = adopt(Path("theirs.cu"), text, FileOptions(define=definitions).guesses()).said
    return words


def kernel(body: str) -> str:
    return f"__global__ void k(const int *a, int *b, int n) {{ {body} atomicAdd(b, a[n]); }}"


@pytest.mark.parametrize(
    ("written", "read"),
    [("N", ("N", "1")), ("N=", ("N", "")), ("N=2", ("N", "2")), ("T=a == b", ("T", "a == b"))],
)
def test_a_definition_is_taken_apart(written: str, read: tuple[str, str]) -> None:
    assert read_definition(written) == read


@pytest.mark.parametrize("written", ["", "=1", "2N=1", "f(x)=x", "N=1\n#error no"])
def test_what_is_no_definition(written: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=VALUE: write as in -D BLOCK_SIZE=256"):
        read_definition(written)


@pytest.mark.parametrize(
    ("name", "value"),
    [("BLOCK_SIZE", 256), ("BLOCKSIZE", 256), ("BLOCK_DIM_X", 256), ("TPB", 256), ("TILE_DIM", 256),
     ("THREADS_PER_BLOCK", 256), ("NUM_THREADS", 256), ("WARP_SIZE", 32), ("COARSE_FACTOR", 4),
     ("ITEMS_PER_THREAD", 4), ("kBlockSize", 256), ("kThreads", 256),
     ("threadsPerBlock", 256), ("FULL_MASK", "0xffffffffu")],
)  # fmt: skip
def test_names_tell_what_they_stand_for(name: str, value: object) -> None:
    words = said_of(kernel(f"n -= {name};"))
    assert f"; taken as {name}={value}, which nothing defines (-D says better)" in words


@pytest.mark.parametrize("name", ["scalar_t", "real_t", "dtype", "DATA_TYPE", "value_type"])
def test_a_type_of_elements_is_told_by_its_name(name: str) -> None:
    text = f"__global__ void k(const {name} *a, {name} *b, int n) {{ atomicAdd(b, a[n]); }}"
    assert f"; taken as {name}=float, which" in said_of(text)
    for declares in (f"typedef double {name};\n", f"template <typename {name}> "):
        assert "nothing defines" not in said_of(declares + text)


@pytest.mark.parametrize(
    "name", ["NUM_BLOCKS", "HOW_MANY", "INT_MAX", "BLOCKS_PER_GRID", "blockDim.x", "BLOCK", "ITEMS"]
)
def test_others_tell_nothing(name: str) -> None:
    assert "nothing defines" not in said_of(kernel(f"n -= {name};"))


def test_a_function_is_no_constant() -> None:
    assert "nothing defines" not in said_of(kernel("n -= block_size(n);"))


@pytest.mark.parametrize(
    "before",
    ["#define WARP_SIZE 32\n", "const int WARP_SIZE = 32;\n", "enum { WARP_SIZE = 32 };\n",
     "template <int WARP_SIZE = 32> "],
)  # fmt: skip
def test_what_the_file_declares_is_known(before: str) -> None:
    assert "nothing defines" not in said_of(before + kernel("n -= WARP_SIZE;"))


def test_what_a_kernel_declares_is_known() -> None:
    assert "nothing defines" not in said_of(kernel("const int WARP_SIZE = 32; n -= WARP_SIZE;"))


def test_what_is_said_stands_before_what_is_likely() -> None:
    text = f"{kernel('n -= WARP_SIZE;')}\nint main() {{ k<<<4, TPB>>>(a, b, n); }}"
    words = said_of(text, "WARP_SIZE=16", "TPB=64")
    assert "nothing defines" not in words
    assert "block 64," in words
    assert "its launch, line 2" in words  # whatever stands ahead of the file
    (one,) = adopt(Path("theirs.cu"), text, Guesses(defined=(("WARP_SIZE", "16"),))).kernels
    assert "#define WARP_SIZE 16" in one.text


def test_a_block_is_as_the_user_says() -> None:
    (words,) = adopt(Path("theirs.cu"), kernel("n -= BLOCK_SIZE;"), Guesses(block=64)).said
    assert "taken as BLOCK_SIZE=64," in words


def test_a_definition_decides_a_condition() -> None:
    text = f"#ifdef FAST\n{kernel('n -= 1;')}\n#else\n{kernel('n -= 2;')}\n#endif\n"
    (slow,) = adopt(Path("theirs.cu"), text, Guesses()).kernels
    (fast,) = adopt(Path("theirs.cu"), text, Guesses(defined=(("FAST", "1"),))).kernels
    assert ("n -= 2" in slow.text, "n -= 1" in fast.text) == (True, True)
    assert ("n -= 1" in slow.text, "n -= 2" in fast.text) == (False, False)


@pytest.mark.long
def test_an_unknown_constant_is_asked_for(cudareduce: Call, tmp_path: Path) -> None:
    path = tmp_path / "theirs.cu"
    path.write_text(COUNTED)
    asked = ("verify", path, "--n", 2000, "--backend", "cpu")
    code, out, _ = cudareduce(*asked)
    assert code == 2
    assert "does not compile (-D HOW_MANY=VALUE says what nothing defines): " in out
    code, out, err = cudareduce(*asked, "-D", "HOW_MANY=2")
    assert code == 0, out + err
    assert "block 256, items" in err
    code, _, err = cudareduce(*asked, "-D", "HOW MANY")
    assert code == 2
    assert "-D HOW MANY is not NAME=VALUE" in err
