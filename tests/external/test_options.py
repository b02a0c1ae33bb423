"""--arg and -D as they are written."""

from __future__ import annotations

import pytest

from cudareduce.errors import UsageError
from cudareduce.external.options import Argument, FileOptions, read_argument, read_definition


def test_an_argument_is_parsed() -> None:
    assert read_argument("a=n") == Argument("", "a", "n")
    assert read_argument("ns::k.a = {1, 2}") == Argument("ns::k", "a", "{1, 2}")
    assert read_argument("f=x == 1") == Argument("", "f", "x == 1")
    assert read_argument("a=scratch::best") == Argument("", "a", "scratch::best")  # a name


@pytest.mark.parametrize("text", ["", "a", "=1", "a=", "k.=1"])
def test_a_malformed_argument_of_a_kernel_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=WHAT: write as in --arg counter=zeroed:4"):
        read_argument(text)


@pytest.mark.parametrize("amount", ["", "0", "-1", "2^40", "blocks", "grid*2", "9" * 5000])
def test_a_broken_amount_of_memory(amount: str) -> None:
    with pytest.raises(UsageError, match="requests no amount of memory: write bytes"):
        read_argument(f"a=zeroed:{amount}")


@pytest.mark.parametrize(
    ("written", "read"),
    [("N", ("N", "1")), ("N=", ("N", "")), ("N=2", ("N", "2")), ("T=a == b", ("T", "a == b"))],
)
def test_a_definition_is_parsed(written: str, read: tuple[str, str]) -> None:
    assert read_definition(written) == read


@pytest.mark.parametrize("written", ["", "=1", "2N=1", "f(x)=x", "N=1\n#error no"])
def test_a_broken_definition(written: str) -> None:
    with pytest.raises(UsageError, match="is not NAME=VALUE: write as in -D BLOCK_SIZE=256"):
        read_definition(written)


def test_a_chain_is_split_outside_of_template_arguments() -> None:
    assert FileOptions(chain=("a<float, 4>,b",)).chains == (("a<float, 4>", "b"),)
    with pytest.raises(UsageError, match="is not A,B"):
        _ = FileOptions(chain=("a",)).chains
