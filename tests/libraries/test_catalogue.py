"""The list of libraries is made without importing them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import click
import numpy as np
import pytest

from cudareduce.cli.types import Peers
from cudareduce.launch.plan import Problem
from cudareduce.libraries.catalogue import Listing, listings
from cudareduce.libraries.contract import AbsentError, Library
from cudareduce.libraries.interop import DeviceArray
from cudareduce.libraries.names import NAMES, is_selected
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, reduction_of

Call = Callable[..., tuple[int, str, str]]
PEERS = [peer for listing in listings(NAMES) for peer in listing.libraries()]
LIBRARIES = {"torch", "triton", "cupy", "numba", "jax", "pycuda", "cuda"}
each = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)


@each
def test_a_library_describes_each_problem_or_refuses_it(peer: Library) -> None:
    """Of every problem in words that follow its name, or the call that is made for it."""
    taken = 0
    for op, dtype, rows in product(OPERATORS, DTYPES, (1, 7)):
        if dtype not in OPERATORS[op].only:
            continue
        problem = Problem(reduction_of(op, dtype), 4096, rows)
        reason = peer.why_not(problem)
        taken += reason is None
        assert reason is None or re.match(r"[a-z]+ ", reason), reason
        assert reason is not None or peer.called(problem)
    assert taken
    assert peer.install.startswith("pip install ")
    assert peer.name.partition(":")[0] in NAMES


def test_ids_of_libraries_are_unique() -> None:
    assert len({peer.id for peer in PEERS}) == len(PEERS)


def test_list_shows_every_library(cudareduce: Call) -> None:
    code, out, _ = cudareduce("list", "peers", "--format", "json")
    assert code == 0
    assert [one["id"] for one in json.loads(out)] == [peer.id for peer in PEERS]
    code, out, _ = cudareduce("list", "peers")
    assert code == 0
    assert "pip install torch" in out or "torch:compile" in out


def test_an_old_version_is_listed_with_its_upgrade(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def old() -> str:
        raise AbsentError("CCCL 3.0.1 is too old")

    here = [replace(PEERS[0], version_here=old), replace(PEERS[1], version_here=lambda: "9.9")]
    monkeypatch.setattr(
        Listing, "libraries", lambda listing: here[: listing.place.endswith(":CUB") * 2]
    )
    _, out, _ = cudareduce("list", "peers")
    assert f"{here[0].name}: CCCL 3.0.1 is too old: pip install -U nvidia-cuda-cccl" in out
    assert f"{here[1].name}: " not in out


@pytest.mark.parametrize("text", [b"Metadata-Version: 2.1\nName: jax\n", b"\xff\xfe"])
def test_a_package_without_a_version(
    cudareduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: bytes
) -> None:
    """As an installation that broke off leaves one."""
    (tmp_path / "jax-1.dist-info").mkdir()
    (tmp_path / "jax-1.dist-info" / "METADATA").write_bytes(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, err = cudareduce("list", "peers")
    assert code == 0, err
    assert "jax: its package does not report its version: pip install -U 'jax[cuda13]'" in out


def test_single_libraries_are_selected_by_name() -> None:
    """As results and `list peers` name them, in any case; of a library all of them."""
    convert = partial(Peers(NAMES).convert, param=None, ctx=None)
    assert convert("CUB:packed,peer:torch:compile") == ("cub:packed", "torch:compile")
    assert convert("Torch,cub:packed,torch") == ("torch", "cub:packed")
    assert convert("cub:packed,all") == NAMES
    found = [peer.name for one in listings(("torch", "cub:packed")) for peer in one.libraries()]
    assert found == ["cub:packed", "torch", "torch:compile", "torch:as_called"]
    assert is_selected("peer:cub:packed", ("cub:packed",))
    assert is_selected("peer:cub:packed", ("cub",))
    assert not is_selected("peer:cub", ("cub:packed",))
    for wrong, says in (("cub:none", "is not a library call"), ("cube", "is not one of: cub,")):
        with pytest.raises(click.BadParameter, match=says):
            convert(wrong)


def test_listing_imports_no_library() -> None:
    code = (
        "import sys; from cudareduce.cli.main import run; run(['list', 'peers']); "
        f"heavy = {LIBRARIES!r} & set(sys.modules); sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_device_memory_under_the_array_interface() -> None:
    """Some libraries wait for a stream that is named, and one reads strides that are not there."""
    array = DeviceArray(4096, (3, 5), np.dtype("float32"))
    assert array.nbytes == 60
    assert array.__cuda_array_interface__ == {
        "data": (4096, False), "shape": (3, 5), "typestr": "<f4", "strides": None, "stream": None,
        "version": 3,
    }  # fmt: skip
