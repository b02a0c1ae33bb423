"""What a library beside our kernels is: how it is found, what it takes, and how it is called.

A peer is one way to call one library, prepared as a kernel is: input, answers and workspace lie in
device memory before, and a call only enqueues work. Where people call a library so that it
allocates and waits, that is a peer of its own, of which only the host's time is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from typing import Any, Literal

import numpy as np

from cudareduce.backend import Launch
from cudareduce.launch.plan import Problem
from cudareduce.problem.inputs import Array
from cudareduce.problem.operators import Reduction
from cudareduce.problem.sizes import counted

#: Kinds of NumPy's types that hold no real number; those of 16 bits that others bring are not here.
_NO_NUMBERS = "cmMOSU"

#: Where a library works: in whichever CUDA context is current, in the device's primary one alone,
#: or only in a process of its own, on streams of its own.
Context = Literal["any", "primary", "own"]


class AbsentError(Exception):
    """A library is not here, or too old; the message says so without how to install it."""


class AnswersError(Exception):
    """What a library gave is not one number a row; the message says what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a call is prepared for.

    `address` is where the input lies, `out` where answers belong, both in device memory; 0 in a
    process of the library's own, where there is only `data`, the elements in host memory. `stream`
    is the driver's handle, `native` PyCUDA's stream. `allocate` gives bytes of device memory that
    live as long as the call does, `upload` such with an array in it. `arch` is 90 for sm_90;
    `folder` is where what is compiled is kept.
    """

    problem: Problem
    data: Array
    address: int
    out: int
    stream: int
    native: Any
    allocate: Callable[[int], int]
    upload: Callable[[Array], int]
    arch: int
    folder: str

    @property
    def reduction(self) -> Reduction:
        """What is computed."""
        return self.problem.reduction

    @property
    def shape(self) -> tuple[int, ...]:
        """The input as libraries see it: one array, or rows."""
        n, rows = self.problem.n, self.problem.rows
        return (n,) if rows == 1 else (rows, n)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The answers likewise."""
        return () if self.problem.rows == 1 else (self.problem.rows,)


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared call. `fetch` brings its answers to the host where they do not lie in the memory
    that was given for them; of a library in a process of its own `refill` takes the elements from
    the host again, where they have changed."""

    run: Launch
    fetch: Callable[[], Any] | None = None
    refill: Launch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to call a library: `NAME` or `NAME:VARIANT`.

    `package` is the distribution whose version is the library's; `install` is the one command that
    brings it. `load` imports the library and tells its version; it raises ImportError, or
    AbsentError. `why_not` says why it does not take a problem, in words that follow its name, and
    `called` which call is made for one. `as_called`: the call allocates and waits, as people call
    it, so its time is the host's. `version_here` tells, without importing anything, the version of
    a library that is not a package of Python's, and raises AbsentError. Inputs start at a multiple
    of `alignment` bytes. `on_cpu` prepares the same call where there is no GPU, for its answers;
    what is imported before bears the package's name.
    """

    name: str
    package: str
    install: str
    context: Context
    load: Callable[[], str]
    why_not: Callable[[Problem], str | None]
    called: Callable[[Problem], str]
    prepare: Callable[[Given], Ready]
    as_called: bool = False
    version_here: Callable[[], str] | None = None
    alignment: int = 1
    on_cpu: Callable[[Given], Ready] | None = None

    @property
    def id(self) -> str:
        """What records call it."""
        return f"peer:{self.name}"

    @property
    def upgrade(self) -> str:
        """The command that brings a newer one where there is one already."""
        return self.install.replace("pip install", "pip install -U", 1)

    def for_cpu(self) -> Peer | None:
        """The peer in a process of its own on a machine without a GPU, if it works there."""
        if self.on_cpu is None:
            return None
        return replace(self, context="own", load=self._load_on_cpu, prepare=self.on_cpu)

    def _load_on_cpu(self) -> str:
        version = version_of(self.package)
        import_module(self.package)
        return version

    @property
    def host_only(self) -> bool:
        """True if its work cannot be bracketed by events of ours."""
        return self.as_called or self.context == "own"

    def why_not_from(self, nbytes: int) -> str | None:
        """Why it takes no input that starts so many bytes off, or None if it does."""
        if nbytes % self.alignment:
            off = counted(nbytes, "byte")
            return f"reads words of {self.alignment} bytes, and its input starts {off} off"
        return None


def version_of(package: str) -> str:
    """The version of a distribution. Raises ModuleNotFoundError."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package) from None


def as_answers(problem: Problem, given: Any) -> Array:
    """What a library gave, as the answers of a problem. Raises AnswersError."""
    answers, rows = np.asarray(given), problem.rows
    if answers.dtype.kind in _NO_NUMBERS:
        raise AnswersError(f"it gives answers of {answers.dtype}")
    if answers.size != rows:
        raise AnswersError(f"it gives {counted(answers.size, 'answer')} where {rows} should be")
    return answers.astype(problem.reduction.result_dtype).reshape(-1)


def takes(
    problem: Problem, ops: tuple[str, ...], dtypes: tuple[str, ...], *, rows: bool = True
) -> str | None:
    """Why a library that takes these does not take a problem, or None if it does."""
    reduction = problem.reduction
    if reduction.op.expression:
        return "takes no operator of one's own"
    if reduction.op.name not in ops:
        return f"takes {', '.join(ops)}, not {reduction.op.name}"
    if reduction.dtype.name not in dtypes:
        return f"takes {', '.join(dtypes)}, not {reduction.dtype.name}"
    if not problem.elements:
        return "is not asked for a reduction of nothing"
    if problem.rows != 1 and not rows:
        return f"reduces one array, not {problem.rows} rows"
    return None
