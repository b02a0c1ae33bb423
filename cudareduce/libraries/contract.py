"""How a library is described: how to find it, what it supports, and how to call it.

A `Library` is one way to call one library. Its call is prepared like a kernel: input, results and
workspace are allocated before, and the timed call only enqueues work. A call that allocates and
waits, as users write it, is an entry of its own (`NAME:as_called`), with host times only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from typing import Any, Literal

import numpy as np

from cudareduce.backend import Launch
from cudareduce.launch.plan import Problem
from cudareduce.reduction.inputs import Array
from cudareduce.reduction.operators import Reduction
from cudareduce.reduction.sizes import counted

#: Reductions of array libraries that take the accumulator's type as `dtype`.
TYPED = ("sum", "prod", "mean")
#: Kinds of NumPy types that are not real numbers. The 16-bit types of other packages are not here.
_NO_NUMBERS = "cmMOSU"

#: Where a library works: in any current CUDA context, only in the primary context of the device, or
#: only in a process of its own, on its own streams.
Context = Literal["any", "primary", "own"]


class AbsentError(Exception):
    """A library is missing or too old. The message does not say how to install it."""


class ResultError(Exception):
    """A library returned something other than one number per row."""


def _no_device(_: object) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInput:
    """The input of a call with the memory and the stream to use.

    `data` has the elements in host memory; `address` is their address on the device and `out` that
    of the results, both 0 for a library that needs its own process. `stream` is the driver's
    handle, `native` PyCUDA's stream. `allocate` returns the address of so many bytes that live as
    long as the call, `upload` that of a copy of an array. `arch` is 90 for sm_90; `folder` keeps
    compiled code.
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
        """(n,), or (rows, n)."""
        n, rows = self.problem.n, self.problem.rows
        return (n,) if rows == 1 else (rows, n)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """(), or (rows,)."""
        return () if self.problem.rows == 1 else (self.problem.rows,)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """`run` makes the call. `fetch` returns results that are not in the given memory. `refill`
    copies changed elements from the host, for a library in a process of its own."""

    run: Launch
    fetch: Callable[[], Any] | None = None
    refill: Launch | None = None

    @classmethod
    def keeping(
        cls, call: Callable[[], Any], fetch: Callable[[Any], Any] = lambda kept: kept
    ) -> PreparedCall:
        """A call that returns its result, which is kept until the next call."""
        kept: list[Any] = []

        def run() -> None:
            kept[:] = [call()]

        return cls(run, lambda: fetch(kept[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """One way to call a library: `NAME` or `NAME:VARIANT`.

    `package` is the distribution that has the library's version, `install` the command that
    installs it. `load` imports the library and returns its version, or raises ImportError or
    AbsentError; `version_here` returns the version without an import, for libraries that are not
    Python packages. `called` is the exact call for a problem, `refuses` a reason besides `ops`,
    `dtypes` and `takes_rows` why a problem is not supported, in words that follow the name.
    `as_called` calls allocate and wait. Inputs start at a multiple of `alignment` bytes. `on_cpu`
    prepares the same call on a machine without a GPU; the imported module has the package's name.
    """

    name: str
    package: str
    install: str
    context: Context
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    load: Callable[[], str]
    called: Callable[[Problem], str]
    prepare: Callable[[DeviceInput], PreparedCall]
    takes_rows: bool = True
    refuses: Callable[[Problem], str | None] | None = None
    as_called: bool = False
    version_here: Callable[[], str] | None = None
    alignment: int = 1
    on_cpu: Callable[[DeviceInput], PreparedCall] | None = None

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
        """The same call on a machine without a GPU, in a process of its own, if it works there."""
        if self.on_cpu is None:
            return None
        return replace(self, context="own", load=self._load_on_cpu, prepare=self.on_cpu)

    def _load_on_cpu(self) -> str:
        version = version_of(self.package)
        import_module(self.package)
        return version

    def why_not(self, problem: Problem) -> str | None:
        """Why it does not support a problem, in words that follow its name; None if it does."""
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
        """Why it does not support an input that starts so many bytes after an aligned address."""
        if nbytes % self.alignment:
            off = counted(nbytes, "byte")
            return f"reads words of {self.alignment} bytes, and its input starts {off} off"
        return None


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package) from None


def as_results(problem: Problem, returned: Any) -> Array:
    """The results that a library returned, one per row. Raises ResultError."""
    results, rows = np.asarray(returned), problem.rows
    if results.dtype.kind in _NO_NUMBERS:
        raise ResultError(f"it returns results of type {results.dtype}")
    if results.size != rows:
        raise ResultError(f"it returns {counted(results.size, 'result')}, not {rows}")
    return results.astype(problem.reduction.result_dtype).reshape(-1)


def own_type_only(problem: Problem) -> str | None:
    """The reason of libraries that accumulate in the type of the elements."""
    reduction = problem.reduction
    if reduction.dtype == reduction.acc:
        return None
    return f"reduces {reduction.dtype.name} in its own type, not in {reduction.acc.name}"
