"""Fake libraries with known summation orders, on a fake GPU."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import cudareduce.backends.selection
from cudareduce.analysis.reveal.session import Revealer
from cudareduce.backends.selection import BackendSpec
from cudareduce.libraries.contract import CallRequest, Library, PreparedCall
from cudareduce.reduction.inputs import Array
from cudareduce.workers import Parent
from tests.analysis.reveal.simulated import backwards, in_halves, in_turn
from tests.fake_gpu import quick
from tests.libraries.fakes import absent, fake, giving


class FakeRevealer(Revealer):
    """A worker on a fake GPU."""

    def __init__(self, parent: Parent) -> None:
        def opened(spec: BackendSpec) -> Any:
            assert spec.cache is not None
            return quick(spec.cache, 1)

        cudareduce.backends.selection.open_cuda = opened
        super().__init__(parent)


def adding(adds: Callable[[Array], float]) -> Callable[[CallRequest], PreparedCall]:
    """A library that adds each row so."""

    def prepare(request: CallRequest) -> PreparedCall:
        def run() -> None:
            bits = ctypes.string_at(request.address, request.problem.input_bytes)
            rows = np.frombuffer(bits, request.data.dtype).reshape(request.problem.rows, -1)
            out = np.array([adds(row) for row in rows], request.reduction.result_dtype)
            ctypes.memmove(request.out, out.ctypes.data, out.nbytes)

        return PreparedCall(run)

    return prepare


def own(request: CallRequest) -> PreparedCall:
    """A library with its own copy of the input."""
    held = [request.data.copy()]

    def refill() -> None:
        held[0] = request.data.copy()

    return PreparedCall(lambda: None, lambda: in_halves(held[0]), refill)


def acting(act: Callable[[], object]) -> Callable[[CallRequest], PreparedCall]:
    """A library that does this at its third call, and then adds."""

    def prepare(request: CallRequest) -> PreparedCall:
        run, calls = adding(in_turn)(request).run, iter(range(10**6))

        def acts() -> None:
            if next(calls) > 1:
                act()
            run()

        return PreparedCall(acts)

    return prepare


def waiting(request: CallRequest) -> PreparedCall:
    """A library that does not come back from being prepared."""
    time.sleep(99)
    return adding(in_turn)(request)


def _raise() -> Any:
    raise ValueError("what is this?")


def _write_into_pipes() -> None:
    for pipe in (held for held in gc.get_objects() if isinstance(held, Connection)):
        pipe.send_bytes(b"no pickle at all")


FINE: tuple[Library, ...] = (
    fake("cub", adding(in_turn)), fake("cub:backwards", adding(backwards)),
    fake("cub:absent", load=absent),
)  # fmt: skip
OWN = (fake("jax", own, context="own"),)
FAULTY = (
    fake("cub:raises", acting(_raise)), fake("cub:crashes", acting(os.abort)),
    fake("cub:hangs", acting(lambda: time.sleep(99))), fake("cub:fine", adding(in_halves)),
    fake("cub:exits", load=lambda: sys.exit(3)), fake("cub:none", giving([])),
    fake("cub:waits", waiting), fake("cub:garbles", acting(_write_into_pipes)),
)  # fmt: skip
