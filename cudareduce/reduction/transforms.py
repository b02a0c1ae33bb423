"""Custom operators and transforms on the host: C++ expressions that g++ compiles, as references.

The device compiles the same expression. Here elements are folded one after the other in a wider
type, which is right for every associative operator and independent of the kernels.
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

#: Seconds that a run of an expression may take, and elements per second: a tenth of the rate of
#: divisions on one core. Longer runs hang.
_START_S, _ELEMENTS_PER_S = 5.0, 10e6
#: Seconds that g++ may take; half a second is usual.
_COMPILE_S = 120.0
#: C++ and NumPy types that are wider than the accumulator, so that the reference does not round.
_WIDE = {"float32": ("double", "float64"), "float64": ("long double", "longdouble")}
#: Random triples on which the laws of an operator are tested.
_TRIPLES = 2000
#: Laws hold up to this many roundings in the accumulator's type.
_LAW_ROUNDINGS = 8
#: Numbers that `transform.cpp` writes for a row of floats.
_FIELDS = 4
#: Elements of one input that `transform.cpp` reads before those of the other.
_TURN = 2**16


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled host program that evaluates a user's C++ expression. It is in memory only (memfd)
    and ends with this process; `option` is the option that gave the expression, for messages."""

    file: int
    option: str

    def run(
        self, words: Sequence[str], arrays: Sequence[np.ndarray], count: int, kind: str
    ) -> np.ndarray:
        """Run with these arguments and the arrays on standard input; the `count` values of a NumPy
        type that it writes. An expression that exits, crashes, prints or hangs is a UsageError."""
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
                f"{self.option} does not end in {limit_s:.2g} s: mend the expression"
            ) from None
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            raise UsageError(f"{self.option} crashes with {name}: mend the expression")
        if done.returncode or len(done.stdout) != count * np.dtype(kind).itemsize:
            raise UsageError(
                f"{self.option} prints, or ends the process it runs in: mend the expression"
            )
        return np.frombuffer(done.stdout, kind)


def _compile(name: str, option: str, acc: DType, **definitions: str | int) -> Program:
    """Compile a program of this package with these types and macros. Raises UsageError for an
    expression that does not compile, EnvironmentProblem without a working g++."""
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
                f"g++ did not end within {_COMPILE_S:g} s: see whether it works at all"
            ) from None
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        if errors:
            raise UsageError(
                f"{option} does not compile for {acc.name}: {errors[0].split('error:')[1].strip()};"
                " write C++ in a and b, such as 'a > b ? a : b'"
            )
        if done.returncode or not program.exists():
            raise EnvironmentProblem(
                f"g++ ended with code {done.returncode} and made no program: see whether it works"
            )
        # A file descriptor that is open for writing cannot be executed.
        with os.fdopen(os.memfd_create("expression"), "wb") as file:
            file.write(program.read_bytes())
            file.flush()
            return Program(os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY), option)


def _element_type(dtype: DType) -> tuple[str, str]:
    """The C++ and NumPy types of elements on the host: 16-bit floats as float32."""
    if dtype.kind == "float" and dtype.size == 2:
        return "float", "float32"
    return dtype.cpp, dtype.storage


@dataclass(frozen=True, slots=True)
class CompiledOperator:
    """A custom operator for one pair of types: NumPy dtypes of its results, `wide`, and of the
    accumulator, `narrow`. All methods raise as `Program.run`."""

    program: Program
    wide: str
    narrow: str

    def identity(self) -> bytes:
        """The identity, as the bytes of one accumulator."""
        return self.program.run(["identity"], [np.empty(0)], 1, self.narrow).tobytes()

    def fold(self, rows: np.ndarray) -> np.ndarray:
        """Each row of a matrix folded from first to last; 16-bit floats are given as float32."""
        count, n = rows.shape
        words = ["fold", str(n), str(count)]
        return self.program.run(words, [np.ascontiguousarray(rows)], count, self.wide)

    def combine(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The operator on pairs `a[k]`, `b[k]` of the wide type."""
        return self.program.run(["pairs", str(len(a))], [a, b], len(a), self.wide)


@cache
def compiled(op: Operator, dtype: DType, acc: DType) -> CompiledOperator:
    """Compile a custom operator, once a process. Raises UsageError for an expression that does not
    compile, EnvironmentProblem without a working g++."""
    cpp, wide = _WIDE.get(acc.name, (acc.cpp, acc.storage))
    program = _compile(
        "operator.cpp", f"--op-expr {op.expression!r} with --identity {op.identity_text!r}", acc,
        Element=_element_type(dtype)[0], Wide=cpp, Narrow=acc.cpp, EXPRESSION=f"({op.expression})",
        IDENTITY=op.identity_text,
    )  # fmt: skip
    return CompiledOperator(program, wide, acc.storage)


def own_operator(expression: str, identity: str | None, dtype: DType, rtol: float) -> Operator:
    """The operator of --op-expr, tested on random values; `rtol` is the relative tolerance of float
    results. A missing or wrong identity and an expression that does not compile are a UsageError, a
    missing g++ is an EnvironmentProblem.

    Whether it commutes is tested here; `broken_law` tests associativity.
    """
    if not expression.strip():
        raise UsageError("--op-expr is empty: write C++ in a and b, such as 'a > b ? a : b'")
    if not identity or not identity.strip():
        raise UsageError(
            "--op-expr needs --identity, the value that changes nothing, such as --identity 0"
        )
    if not (expression + identity).isprintable():
        raise UsageError("--op-expr and --identity take one line of C++ without control characters")
    op = Operator(
        expression, expression, True, True, needs="compare_and_swap",
        expression=expression, identity_text=identity, rtol=rtol,
    )  # fmt: skip
    program = compiled(op, dtype, accumulator(dtype))
    a, b, _ = _triples(program)
    program.combine(a[:1], b[:1])  # an expression that prints, exits or crashes fails here
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


def broken_law(op: Operator, dtype: DType) -> str | None:
    """A warning with a counterexample if a custom operator is not associative on random triples;
    None otherwise. Raises what `compiled` raises."""
    program = compiled(op, dtype, accumulator(dtype))
    a, b, c = _triples(program)
    left = program.combine(program.combine(a, b), c)
    right = program.combine(a, program.combine(b, c))
    wrong = np.flatnonzero(~_equal(left, right, _LAW_ROUNDINGS * accumulator(dtype).epsilon))
    if not len(wrong):
        return None
    k = wrong[0]
    return (
        f"{op.expression!r} is not associative: with {a[k]:g}, {b[k]:g}, {c[k]:g} it gives "
        f"{left[k]:g} or {right[k]:g}, depending on the order; no kernel can be right about it"
    )


def _triples(program: CompiledOperator) -> list[np.ndarray]:
    """Random triples, of both signs if the type has them."""
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
class Folded:
    """The results of rows of transformed elements. For floats also the sum of magnitudes, the error
    that the transform's roundings may cause, and the sum in the largest unit that divides all
    values, infinite if the transform rounds one."""

    result: np.ndarray
    magnitude: np.ndarray | None = None
    slack: np.ndarray | None = None
    units: np.ndarray | None = None


def try_map(reduction: Reduction) -> None:
    """Test that the transform of a reduction, if any, compiles and runs. Raises what `fold_mapped`
    raises."""
    if reduction.map and reduction.why_undefined() is None:
        kind = _element_type(reduction.dtype)[1]
        fold_mapped(reduction, (np.ones((1, 1), kind),) * reduction.inputs)


def fold_mapped(reduction: Reduction, rows: tuple[np.ndarray, ...]) -> Folded:
    """Reduce transformed rows: one matrix of numbers, not empty, for each input. Raises UsageError
    and EnvironmentProblem as `compiled` and `Program.run`."""
    count, n = rows[0].shape
    arrays = [np.ascontiguousarray(one, _element_type(reduction.dtype)[1]) for one in rows]
    if len(arrays) == 2:  # the program reads pieces of both inputs in turn
        arrays = [
            part[first : first + _TURN]
            for pair in zip(*arrays, strict=True)
            for first in range(0, n, _TURN)
            for part in pair
        ]
    program = _transform_program(replace(reduction, within=None))
    words = [str(n), str(count)]
    if reduction.acc.kind != "float":
        return Folded(program.run(words, arrays, count, reduction.acc.storage))
    fields = program.run(words, arrays, count * _FIELDS, "longdouble").reshape(count, _FIELDS)
    result, size, slack, units = fields.T
    shares = n if reduction.op.name == "mean" else 1
    with np.errstate(over="ignore"):  # values beyond float64 are infinite
        size, slack, units = (array.astype(float) for array in (size, slack, units))
    return Folded(result / shares, size / shares, slack / shares, units)


@cache
def _transform_program(reduction: Reduction) -> Program:
    """The program of a reduction's transform, compiled once a process."""
    transform, op, acc = reduction.map, reduction.op.name, reduction.acc
    assert transform is not None
    return _compile(
        "transform.cpp", f"the map {transform.expression!r}", acc,
        Element=_element_type(reduction.dtype)[0], Narrow=acc.cpp, Term=reduction.terms.cpp,
        FLOATS=int(acc.kind == "float"), EXTREMUM=int(op in ("min", "max")),
        LARGEST=int(op == "max"), INPUTS=transform.inputs, EXPRESSION=f"({transform.expression})",
    )  # fmt: skip
