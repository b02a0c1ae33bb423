"""The process that children of verification are forked from.

It imports little, so that a command begins with it: the other loads what children need while this
process reads kernels, plans and compiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.context import ForkServerContext, SpawnContext

from cudareduce.signals import held

#: What children need, and is loaded once.
_PRELOADED = ["cudareduce.verify.child", "cudareduce.emulator.cpu"]


@contextmanager
def safe_path() -> Iterator[None]:
    """Processes started meanwhile import nothing from the current folder, where a user's file may
    bear the name of a module."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before


def fork_server() -> ForkServerContext | SpawnContext:
    """What makes children: a process that has loaded all they need, from which they are forked; it
    is started if it does not run yet. It takes as long to start as this one took. Where its socket
    cannot be made, as in a temporary folder with a long name, each child is started anew."""
    forkserver.set_forkserver_preload(_PRELOADED)
    with safe_path():
        resource_tracker.ensure_running()  # by itself: it lets go of signals that are held
        try:
            with held():  # what is started inherits that, and ends with this process
                forkserver.ensure_running()
        except OSError:
            return get_context("spawn")
    return get_context("forkserver")
