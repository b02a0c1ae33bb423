"""An external program: the launches and copies that its author's host code makes, for each size.

cudareduce/external records them; the plan of an external kernel replays them.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.reduction.operators import Reduction

Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Address:
    """An address: `offset` bytes from the start of a buffer, which is `in`, `other` (the second
    input), or a buffer of the program."""

    buffer: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """The bytes of a kernel argument or of data copied to the device. `pointers` gives the offsets
    at which it contains device addresses. `functions` gives those of pointers to device functions,
    with the address in a variable whose initial value contains the same pointer."""

    data: bytes
    pointers: tuple[tuple[int, Address], ...] = ()
    functions: tuple[tuple[int, Address], ...] = ()


@dataclass(frozen=True, slots=True)
class KernelStep:
    """A launch of the kernel with this index."""

    kernel: int
    grid: Dim3
    block: Dim3
    shared: int
    cooperative: bool
    arguments: tuple[Address | Value, ...]
    line: int = 0


@dataclass(frozen=True, slots=True)
class FillStep:
    """Fills `nbytes` bytes at an address with one byte value, as cudaMemset."""

    target: Address
    nbytes: int
    byte: int


@dataclass(frozen=True, slots=True)
class WriteStep:
    """Copies data from the host to a device address."""

    target: Address
    value: Value


@dataclass(frozen=True, slots=True)
class CopyStep:
    """Copies `nbytes` bytes between two device addresses."""

    target: Address
    source: Address
    nbytes: int


ProgramStep = KernelStep | FillStep | WriteStep | CopyStep


@dataclass(frozen=True, slots=True)
class Run:
    """The recorded steps of a program on `rows` rows of `n` elements.

    `source` is the index of the device code in `Program.texts`. `buffers` gives the sizes in bytes
    of the program's own buffers. The result is `count` values at the address `result`.
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
        """The kernel launches among the steps, in order."""
        return tuple(step for step in self.steps if isinstance(step, KernelStep))


@dataclass(frozen=True, slots=True)
class Variable:
    """A `__device__` or `__constant__` variable: its name as a buffer, and its C++ name."""

    buffer: str
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """An external program, recorded at several sizes.

    `texts` is the device code; there are several if n is a constant of the file. `result` is the
    element type of the result, a name in DTYPES. `summary` describes the recorded launch."""

    texts: tuple[str, ...]
    kernels: tuple[str, ...]
    variables: tuple[Variable, ...]
    runs: tuple[Run, ...]
    result: str
    summary: str = ""
    computes: Reduction | None = None  # the reduction identified from its results
    fit: float = 1.0  # fraction of inputs with the results of `computes`; 0: nearest candidate only
    fault: str = ""  # the reason why a small run gave no result
    wrong: str = ""  # a fault that makes it wrong whatever it computes
    fixed: bool = False  # n is fixed by the file and cannot be varied
    own: tuple[int, int] | None = None  # elements per row and rows at the size in the file
    most: int = 0  # elements beyond which its launches lack shared memory; 0: any number
    called: bool = False  # a host function, which is called again in the same process
    inferred: bool = False  # neither host code nor an option gives the launch
    root: bool = False  # the results are square roots of those of `computes`

    def __hash__(self) -> int:  # cases are keys, and runs have thousands of parts
        return hash((self.texts, self.summary))

    def run(self, n: int, rows: int) -> Run | None:
        """The recorded run of this shape, None if there is none."""
        return next((run for run in self.runs if (run.n, run.rows) == (n, rows)), None)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The shapes (n, rows) of all recorded runs, sorted."""
        return tuple(sorted((run.n, run.rows) for run in self.runs))
