"""The child process that verifies: jobs one after the other, until it is ended or dies of one."""

from __future__ import annotations

import ctypes
import os
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from cudareduce.backend import Backend
from cudareduce.backends import BackendSpec, open_backend
from cudareduce.errors import CudareduceError
from cudareduce.verify.children import end_with, follow_parent
from cudareduce.verify.inputs import Inputs
from cudareduce.verify.job import Job, told, verify_job
from cudareduce.verify.verdict import skipped

#: What a child sends when it has begun, and when it has compiled a job: what takes time from then
#: on is the kernel.
STARTED, COMPILED = "started", "compiled"
#: What is read of what has been printed.
_PRINTED_BYTES = 1 << 16


def _logged(log: int) -> list[str]:
    """What has been written to the standard output of this process, as a GPU's printf is, and is
    taken from there."""
    ctypes.CDLL(None).fflush(None)
    text = os.pread(log, _PRINTED_BYTES, 0).decode(errors="replace")
    os.truncate(log, 0)
    return text.splitlines()


def serve(pipe: Connection, log: str) -> None:
    """The child: jobs until the pipe closes; the last line of its standard error is kept."""
    follow_parent()
    end_with(pipe)
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_APPEND)
    except FileNotFoundError:  # the run is over
        return
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.environ["TMPDIR"] = tempfile.tempdir = str(Path(log).parent)
    backends: dict[BackendSpec, Backend] = {}
    inputs = Inputs()
    with suppress(BrokenPipeError):
        pipe.send(STARTED)
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            if job.spec not in backends:
                backends[job.spec] = open_backend(job.spec, catch_faults=True)
            verdict = verify_job(job, backends[job.spec], inputs, lambda: pipe.send(COMPILED))
            name = job.prepared.case.kernel.id
            lines = [f"{name} printf: {line}" for line in _logged(descriptor)]
            if lines := [*backends[job.spec].printed(), *lines]:
                pipe.send(lines)
            pipe.send(verdict)
        except CudareduceError as error:
            cannot = told(job, skipped("machine", str(error)))
            pipe.send(cannot if job.optional else error)
        except Exception as error:
            pipe.send(CudareduceError(f"internal error: {type(error).__name__}: {error}"))
