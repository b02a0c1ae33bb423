"""An external program: what its author's host code does on the device, for each size.

Derived from recordings (cudareduce/external); the plan of an external kernel executes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.reduction.operators import Reduction

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Address:
    """A place `offset` bytes into a buffer: `in`, `other`, or one of the program's own."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """The bytes of a value that is passed to a kernel or copied to the device; `pointers` are the
    offsets of addresses in it."""

    data: bytes
    pointers: tuple[tuple[int, Address], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A launch of the program's kernel of this index."""

    kernel: int
    grid: Dim3
    block: Dim3
    shared: int
    cooperative: bool
    arguments: tuple[Address | Value, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class FillStep:
    """Sets `nbytes` bytes from an address on to one byte."""

    target: Address
    nbytes: int
    byte: int


@dataclass(frozen=True, slots=True)
class WriteStep:
    """Copies the host's data to an address."""

    target: Address
    value: Value


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies `nbytes` bytes from one address to another, both on the device."""

    target: Address
    source: Address
    nbytes: int


ProgramStep = KernelStep | FillStep | WriteStep | CopyStep


@dataclass(frozen=True, slots=True)
class Run:
    """The steps of a program on `rows` rows of `n` elements.

    `source` is the index of the text whose kernels it launches, `buffers` are the bytes of its own
    buffers, and `count` values are its result, from `result` on.
    """

    n: int
    rows: int
    source: int
    steps: tuple[ProgramStep, ...]
    buffers: tuple[tuple[str, int], ...]
    result: Address
    count: int

    @property
    def launches(self) -> tuple[KernelStep, ...]:
        """Its kernel launches, in order."""
        return tuple(step for step in self.steps if isinstance(step, KernelStep))


@dataclass(frozen=True, slots=True)
class Variable:
    """A `__device__` or `__constant__` variable: its name as a buffer, and its C++ name."""

    buffer: str
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """What an author's host code launches, as recorded at several sizes: `texts` are the device
    code, which differs between sizes if a constant of the file sets n; `result` is the type that
    the last launch stores, by its name in DTYPES; `summary` is the recorded launch in words."""

    texts: tuple[str, ...]
    kernels: tuple[str, ...]
    variables: tuple[Variable, ...]
    runs: tuple[Run, ...]
    result: str
    summary: str = ""
    computes: Reduction | None = None  # identified from its results
    fit: float = 1.0  # share of inputs on which it computes that; 0: it is the nearest candidate
    fault: str = ""  # why a small run gave no result
    wrong: str = ""  # a fault that makes it wrong whatever it computes
    fixed: bool = False  # n cannot be varied: the size is the file's
    own: tuple[int, int] | None = None  # elements a row and rows at the size in the file
    called: bool = False  # a host function, which may be called again while its variables live
    inferred: bool = False  # no host code and no option says how its kernels are launched
    root: bool = False  # its results are square roots of what it computes

    def run(self, n: int, rows: int) -> Run | None:
        """The recorded run of this shape, if there is one."""
        return next((run for run in self.runs if (run.n, run.rows) == (n, rows)), None)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Elements a row and rows of each recorded run, in increasing order."""
        return tuple(sorted((run.n, run.rows) for run in self.runs))
