"""Which libraries there are: each can be told of without being imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from cudareduce.launch.plan import Problem
from cudareduce.peers.arrays import DeviceArray
from cudareduce.peers.catalogue import listings
from cudareduce.peers.contract import Peer
from cudareduce.peers.names import NAMES
from cudareduce.problem.dtypes import DTYPES
from cudareduce.problem.operators import OPERATORS, reduction_of

Call = Callable[..., tuple[int, str, str]]
PEERS = [peer for listing in listings(NAMES) for peer in listing.peers()]
LIBRARIES = {"torch", "triton", "cupy", "numba", "jax", "pycuda", "cuda"}
each = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)


@each
def test_a_peer_says_what_it_takes(peer: Peer) -> None:
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


def test_names_are_told_apart() -> None:
    assert len({peer.id for peer in PEERS}) == len(PEERS)


def test_list(cudareduce: Call) -> None:
    code, out, _ = cudareduce("list", "peers", "--format", "json")
    assert code == 0
    assert [one["id"] for one in json.loads(out)] == [peer.id for peer in PEERS]
    code, out, _ = cudareduce("list", "peers")
    assert code == 0
    assert "pip install torch" in out or "torch:compile" in out


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
