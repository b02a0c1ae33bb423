"""Child processes that do not outlive the run."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context
from multiprocessing.connection import Connection

from cudareduce.verify.children import end_with


def _spin(pipe: Connection) -> None:
    os.setpgid(0, 0)
    end_with(pipe)
    pipe.send("begun")
    while True:
        pass


def test_a_child_ends_with_the_other_end_of_its_pipe() -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=_spin, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    assert ours.recv() == "begun"
    ours.close()
    child.join(10)
    assert child.exitcode == -signal.SIGKILL
