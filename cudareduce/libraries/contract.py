"""Interface between libraries and the runner: versions, supported problems, prepared calls.

A `Library` is one call of one library. Input, results and workspace are allocated in advance, so
that the timed call only enqueues work, like a kernel launch. A call that allocates and waits, as
applications write it, is a `Library` of its own (`NAME:as_called`), with host times only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from typing import Any, Literal

import numpy as np

from cudareduce.backends.protocol import Launch
from cudareduce.launch.plan import Problem
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.sizes import counted

#: Operators for which array libraries take the accumulator's type as `dtype`.
TYPED = ("sum", "prod", "mean")
#: Kinds of NumPy types that are not real numbers. Kind V, of bfloat16, is not among them.
_NOT_REAL = "cmMOSU"

#: The CUDA context that a library supports: any current one, only the primary context of the
#: device, or its own, in a separate process and on its own streams.
Context = Literal["any", "primary", "own"]


class AbsentError(Exception):
    """A library is missing or too old. The message does not say how to install it."""


class ResultError(Exception):
    """A library returned something other than one number per row."""


def _no_device(_: object) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """What a library needs to prepare a call: problem, input, stream and memory.

    `data` holds the elements in host memory. `address` and `out` are the device addresses of input
    and results, 0 for a library in its own process. `stream` is the driver's handle, `native`
    PyCUDA's stream. `allocate` takes a number of bytes, `upload` an array; both return the address
    of device memory that lives as long as the call. `arch` is 90 for sm_90. `folder` is the cache
    of compiled code.
    """

    problem: Problem
    data: Array
    folder: str
    address: int = 0
    out: int = 0
    stream: int = 0
    native: Any = None
    allocate: Callable[[int], int] = _no_device
    upload: Callable[[Array], int] = _no_device
    arch: int = 0

    @property
    def reduction(self) -> Reduction:
        return self.problem.reduction

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input as an array: (n,) for one row, else (rows, n)."""
        n, rows = self.problem.n, self.problem.rows
        return (n,) if rows == 1 else (rows, n)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the results as an array: () for one row, else (rows,)."""
        return () if self.problem.rows == 1 else (self.problem.rows,)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """`run` enqueues the call. `fetch` returns the results if they are not at `CallRequest.out`.
    `refill` copies changed elements from the host, for a library in its own process."""

    run: Launch
    fetch: Callable[[], Any] | None = None
    refill: Launch | None = None

    @classmethod
    def keeping(
        cls, call: Callable[[], Any], fetch: Callable[[Any], Any] = lambda kept: kept
    ) -> PreparedCall:
        """A call whose return value is kept for `fetch`."""
        kept: list[Any] = []

        def run() -> None:
            kept[:] = [call()]

        return cls(run, lambda: fetch(kept[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One call of a library, named `NAME` or `NAME:VARIANT`.

    `package` is the distribution with the library's version, `install` the command that installs
    it. `load` imports the library and returns its version, or raises ImportError or AbsentError.
    `version_here` returns the version without an import, for libraries that are not Python
    packages. `called` is the source text of the call for a problem. `refuses` returns why a problem
    within `ops`, `dtypes` and `takes_rows` is not supported, as a phrase that follows the name.
    `as_called` calls allocate and wait. Inputs start at multiples of `alignment` bytes. `on_cpu`
    prepares the same call on a machine without a GPU.
    """

    name: str
    package: str
    install: str
    context: Context
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    load: Callable[[], str]
    called: Callable[[Problem], str]
    prepare: Callable[[CallRequest], PreparedCall]
    takes_rows: bool = True
    refuses: Callable[[Problem], str | None] | None = None
    as_called: bool = False
    version_here: Callable[[], str] | None = None
    alignment: int = 1
    on_cpu: Callable[[CallRequest], PreparedCall] | None = None

    @property
    def id(self) -> str:
        return f"peer:{self.name}"

    @property
    def upgrade(self) -> str:
        return self.install.replace("pip install", "pip install -U", 1)

    @property
    def host_only(self) -> bool:
        """True if CUDA events cannot bracket its work, so that only host time is measured."""
        return self.as_called or self.context == "own"

    def for_cpu(self) -> Library | None:
        """The same call for a machine without a GPU, in its own process; None if not supported."""
        if self.on_cpu is None:
            return None
        return replace(self, context="own", load=self._load_on_cpu, prepare=self.on_cpu)

    def _load_on_cpu(self) -> str:
        version = version_of(self.package)
        import_module(self.package)
        return version

    def why_not(self, problem: Problem) -> str | None:
        """Why it does not support a problem, as a phrase that follows its name, or None."""
        reduction = problem.reduction
        if reduction.op.expression:
            return "does not support user-defined operators"
        if reduction.op.name not in self.ops:
            return f"supports {', '.join(self.ops)}, not {reduction.op.name}"
        if reduction.dtype.name not in self.dtypes:
            return f"supports {', '.join(self.dtypes)}, not {reduction.dtype.name}"
        if not problem.elements:
            return "is not called for zero elements"
        if problem.rows != 1 and not self.takes_rows:
            return f"reduces one array, not {problem.rows} rows"
        return self.refuses(problem) if self.refuses else None

    def why_not_from(self, nbytes: int) -> str | None:
        """Why it does not support an input `nbytes` after an aligned address, or None."""
        if nbytes % self.alignment:
            off = counted(nbytes, "byte")
            return f"loads {self.alignment} bytes at a time, and its input is misaligned by {off}"
        return None


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package) from None


def as_results(problem: Problem, returned: Any) -> Array:
    """A library's return value as one result per row. Raises ResultError."""
    results, rows = np.asarray(returned), problem.rows
    if results.dtype.kind in _NOT_REAL:
        raise ResultError(f"it returns results of type {results.dtype}")
    if results.size != rows:
        raise ResultError(f"it returns {counted(results.size, 'result')}, not {rows}")
    return results.astype(problem.reduction.result_dtype).reshape(-1)


def own_type_only(problem: Problem) -> str | None:
    """Why a library that accumulates in the elements' type does not support a problem, or None."""
    reduction = problem.reduction
    if reduction.dtype == reduction.acc:
        return None
    return f"reduces {reduction.dtype.name} in its own type, not in {reduction.acc.name}"
