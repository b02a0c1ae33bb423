"""Evaluates custom operators and transforms on the host, for reference results.

g++ compiles the C++ expression that the kernel uses. The host combines elements sequentially in a
wider type, which gives the right result for every associative operator.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from cudareduce.errors import EnvironmentProblem, UsageError
from cudareduce.reduction.dtypes import DType, accumulator
from cudareduce.reduction.operators import Operator, Reduction
from cudareduce.temporary import temporary_folder

#: Time limit of a host program: seconds to start, plus elements at this rate per second, a tenth of
#: the rate of divisions on one core.
_START_S, _ELEMENTS_PER_S = 5.0, 10e6
#: Time limit of g++ in seconds; half a second is usual.
_COMPILE_S = 120.0
#: C++ and NumPy types that are wider than the accumulator, so that the reference does not round.
_WIDE = {"float32": ("double", "float64"), "float64": ("long double", "longdouble")}
#: The number of random triples on which associativity and commutativity are tested.
_TRIPLES = 2000
#: Both sides of a law may differ by this many roundings in the accumulator's type.
_LAW_ROUNDINGS = 8
#: The number of values that `transform.cpp` writes for each row of floats.
_FIELDS = 4
#: `transform.cpp` reads two inputs alternately, in chunks of this many elements.
_CHUNK = 2**16


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled host program that evaluates a user's C++ expression. `file` is a descriptor of an
    executable in memory (memfd); `option` names the command-line option in messages."""

    file: int
    option: str

    def run(
        self, words: Sequence[str], arrays: Sequence[np.ndarray], count: int, kind: str
    ) -> np.ndarray:
        """Run the program with arguments `words` and the arrays on standard input. Returns the
        `count` values of NumPy type `kind` that it writes. Raises UsageError if the expression
        exits, crashes, prints or exceeds the time limit."""
        limit_s = _START_S + sum(array.nbytes for array in arrays) / 4 / _ELEMENTS_PER_S
        data = arrays[0] if len(arrays) == 1 else np.concatenate([a.reshape(-1) for a in arrays])
        try:
            done = subprocess.run(
                [f"/proc/self/fd/{self.file}", *words],
                pass_fds=[self.file],
                input=data.reshape(-1).view(np.uint8).data,
                capture_output=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{self.option} does not end within {limit_s:.2g} s: correct the expression"
            ) from None
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise UsageError(f"{self.option} crashes with {name}: correct the expression")
        if done.returncode or len(done.stdout) != count * np.dtype(kind).itemsize:
            raise UsageError(f"{self.option} prints or ends its process: correct the expression")
        return np.frombuffer(done.stdout, kind)


def _compile(name: str, option: str, acc: DType, **definitions: str | int) -> Program:
    """Compile the source file `name` of this package with `definitions` of types and macros. Raises
    UsageError if the expression does not compile, EnvironmentProblem without a working g++."""
    types = {"Element", "Wide", "Narrow", "Term"}
    text = "".join(
        f"typedef {value} {key};\n" if key in types else f"#define {key} {value}\n"
        for key, value in definitions.items()
    )
    text += files("cudareduce.reduction").joinpath(name).read_text(encoding="utf-8")
    with temporary_folder() as folder:
        program = Path(folder, "expression")
        command = ["g++", "-x", "c++", "-std=c++17", "-O2", "-w", "-fwrapv", "-fmax-errors=3",
                   "-ftemplate-depth=64", "-", "-o", str(program)]  # fmt: skip
        try:
            done = subprocess.run(
                command, input=text, capture_output=True, text=True, check=False,
                timeout=_COMPILE_S, env={**os.environ, "LC_ALL": "C", "TMPDIR": folder},
            )  # fmt: skip
        except FileNotFoundError:
            raise EnvironmentProblem(
                f"g++ was not found: {option} needs it for the reference (Debian: apt-get install "
                "g++)"
            ) from None
        except subprocess.TimeoutExpired:
            raise EnvironmentProblem(
                f"g++ did not end within {_COMPILE_S:g} s: check that it works"
            ) from None
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        if errors:
            raise UsageError(
                f"{option} does not compile for {acc.name}: {errors[0].split('error:')[1].strip()};"
                " write C++ in a and b, such as 'a > b ? a : b'"
            )
        if done.returncode or not program.exists():
            raise EnvironmentProblem(
                f"g++ ended with code {done.returncode} and wrote no program: check that it works"
            )
        # A file descriptor that is open for writing cannot be executed.
        with os.fdopen(os.memfd_create("expression"), "wb") as file:
            file.write(program.read_bytes())
            file.flush()
            return Program(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY), option)


def _element_type(dtype: DType) -> tuple[str, str]:
    """The C++ and NumPy types of elements in host programs: float32 for 16-bit floats."""
    if dtype.kind == "float" and dtype.size == 2:
        return "float", "float32"
    return dtype.cpp, dtype.storage


@dataclass(frozen=True, slots=True)
class CompiledOperator:
    """A custom operator, compiled for one element and accumulator type. `wide` is the NumPy dtype
    of host results, `narrow` that of the accumulator. All methods raise what `Program.run`
    raises."""

    program: Program
    wide: str
    narrow: str

    def identity(self) -> bytes:
        """The identity, as the bytes of one accumulator."""
        return self.program.run(["identity"], [np.empty(0)], 1, self.narrow).tobytes()

    def fold(self, rows: np.ndarray) -> np.ndarray:
        """Reduce each row of a matrix sequentially. 16-bit floats must be passed as float32."""
        count, n = rows.shape
        words = ["fold", str(n), str(count)]
        return self.program.run(words, [np.ascontiguousarray(rows)], count, self.wide)

    def combine(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Apply the operator to each pair `a[k]`, `b[k]` of the wide type."""
        return self.program.run(["pairs", str(len(a))], [a, b], len(a), self.wide)


@cache
def compile_operator(op: Operator, dtype: DType, acc: DType) -> CompiledOperator:
    """Compile a custom operator; results are cached. Raises UsageError if the expression does not
    compile, EnvironmentProblem without a working g++."""
    cpp, wide = _WIDE.get(acc.name, (acc.cpp, acc.storage))
    program = _compile(
        "operator.cpp", f"--op-expr {op.expression!r} with --identity {op.identity_text!r}", acc,
        Element=_element_type(dtype)[0], Wide=cpp, Narrow=acc.cpp, EXPRESSION=f"({op.expression})",
        IDENTITY=op.identity_text,
    )  # fmt: skip
    return CompiledOperator(program, wide, acc.storage)


def custom_operator(expression: str, identity: str | None, dtype: DType, rtol: float) -> Operator:
    """The custom operator of --op-expr and --identity; `rtol` is the relative tolerance of float
    results. Tests on random values that the identity is right and whether the operator commutes;
    `associativity_warning` tests associativity.

    Raises UsageError if the identity is missing or wrong or the expression does not compile, and
    EnvironmentProblem without g++.
    """
    if not expression.strip():
        raise UsageError("--op-expr is empty: write C++ in a and b, such as 'a > b ? a : b'")
    if not identity or not identity.strip():
        raise UsageError(
            "--op-expr needs --identity, the value that leaves every other unchanged, such as 0"
        )
    if not (expression + identity).isprintable():
        raise UsageError("--op-expr and --identity take one line of C++ without control characters")
    op = Operator(
        expression, expression, True, True, needs="compare_and_swap",
        expression=expression, identity_text=identity, rtol=rtol,
    )  # fmt: skip
    program = compile_operator(op, dtype, accumulator(dtype))
    a, b, _ = _triples(program)
    program.combine(a[:1], b[:1])  # raises for an expression that prints, exits or crashes
    rounding = _LAW_ROUNDINGS * accumulator(dtype).epsilon
    neutral = np.full(len(a), np.frombuffer(program.identity(), program.narrow)[0], program.wide)
    for combined in (program.combine(neutral, a), program.combine(a, neutral)):
        wrong = np.flatnonzero(~_equal(combined, a, rounding))
        if len(wrong):
            k = wrong[0]
            raise UsageError(
                f"{identity} is not an identity of {expression!r}: with {a[k]:g} it gives "
                f"{combined[k]:g}; change --identity"
            )
    commutes = bool(_equal(program.combine(a, b), program.combine(b, a), rounding).all())
    return replace(op, commutative=commutes)


def associativity_warning(op: Operator, dtype: DType) -> str | None:
    """A warning with a counterexample if a custom operator is not associative for one of many
    random triples; None otherwise. Raises what `compile_operator` raises."""
    program = compile_operator(op, dtype, accumulator(dtype))
    a, b, c = _triples(program)
    left = program.combine(program.combine(a, b), c)
    right = program.combine(a, program.combine(b, c))
    wrong = np.flatnonzero(~_equal(left, right, _LAW_ROUNDINGS * accumulator(dtype).epsilon))
    if not len(wrong):
        return None
    k = wrong[0]
    return (
        f"{op.expression!r} is not associative: with {a[k]:g}, {b[k]:g}, {c[k]:g} it gives "
        f"{left[k]:g} or {right[k]:g}, depending on the order, so results are not defined"
    )


def _triples(program: CompiledOperator) -> list[np.ndarray]:
    """Three arrays of random operands, of both signs if the type has them."""
    rng, wide = np.random.default_rng(0), program.wide
    if np.dtype(wide).kind == "f":
        return [(rng.random(_TRIPLES) * 8 - 4).astype(wide) for _ in range(3)]
    info = np.iinfo(wide)
    return [rng.integers(info.min, info.max, _TRIPLES, wide, endpoint=True) for _ in range(3)]


def _equal(left: np.ndarray, right: np.ndarray, rtol: float) -> np.ndarray:
    if left.dtype.kind != "f":
        return np.asarray(left == right)
    scale = np.maximum(np.abs(left), np.abs(right))
    return np.asarray((left == right) | (np.abs(left - right) <= rtol * scale))


@dataclass(frozen=True, slots=True)
class TransformResult:
    """Results of a reduction with a transform, one per row, from `transform.cpp`.

    For floats also: `magnitude`, the sum of the transformed magnitudes; `slack`, a bound of the
    error from the transform's own roundings; and `units`, the sum of magnitudes in units of the
    last binary digit of all values, infinite if the transform rounds a value."""

    result: np.ndarray
    magnitude: np.ndarray | None = None
    slack: np.ndarray | None = None
    units: np.ndarray | None = None


def check_transform(reduction: Reduction) -> None:
    """Check that the transform of a reduction, if any, compiles and runs. Raises what
    `reduce_transformed` raises."""
    if reduction.map and reduction.why_undefined() is None:
        kind = _element_type(reduction.dtype)[1]
        reduce_transformed(reduction, (np.ones((1, 1), kind),) * reduction.inputs)


def reduce_transformed(reduction: Reduction, rows: tuple[np.ndarray, ...]) -> TransformResult:
    """Transform and reduce each row on the host. `rows` has one non-empty matrix per input. Raises
    UsageError if the expression fails, EnvironmentProblem without a working g++."""
    count, n = rows[0].shape
    arrays = [np.ascontiguousarray(matrix, _element_type(reduction.dtype)[1]) for matrix in rows]
    if len(arrays) == 2:  # the program reads chunks of both inputs alternately
        arrays = [
            part[first : first + _CHUNK]
            for pair in zip(*arrays, strict=True)
            for first in range(0, n, _CHUNK)
            for part in pair
        ]
    program = _transform_program(replace(reduction, within=None))
    words = [str(n), str(count)]
    if reduction.acc.kind != "float":
        return TransformResult(program.run(words, arrays, count, reduction.acc.storage))
    fields = program.run(words, arrays, count * _FIELDS, "longdouble").reshape(count, _FIELDS)
    result, size, slack, units = fields.T
    divisor = n if reduction.op.name == "mean" else 1
    with np.errstate(over="ignore"):  # values beyond float64 become infinite
        size, slack, units = (array.astype(float) for array in (size, slack, units))
    return TransformResult(result / divisor, size / divisor, slack / divisor, units)


@cache
def _transform_program(reduction: Reduction) -> Program:
    """The host program of a reduction's transform; results are cached."""
    transform, op, acc = reduction.map, reduction.op.name, reduction.acc
    assert transform is not None
    return _compile(
        "transform.cpp", f"the map {transform.expression!r}", acc,
        Element=_element_type(reduction.dtype)[0], Narrow=acc.cpp, Term=reduction.terms.cpp,
        FLOATS=int(acc.kind == "float"), EXTREMUM=int(op in ("min", "max")),
        LARGEST=int(op == "max"), INPUTS=transform.inputs, EXPRESSION=f"({transform.expression})",
    )  # fmt: skip
