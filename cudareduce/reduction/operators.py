"""The reduction operators, and the description of a reduction: operator, types and transform.

The device code of an operator is in `launch/device/NAME.cuh`: a struct with the functions
`identity`, `lift`, `combine`, `finish` and, for operators with an atomic form, `atomic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES, DType, accumulator, holds_counts_only

#: Element types of the non-commutative operators, which test the order of combination.
_WORDS = ("int32", "uint32")


@dataclass(frozen=True, slots=True)
class Operator:
    """An associative operator. Its accumulator has `words` components."""

    name: str
    title: str
    commutative: bool = True
    has_atomic: bool = False
    has_finish: bool = False  # `finish` converts the accumulator to the result
    indexed: bool = False  # the result is the index of an element
    needs_count: bool = False  # `finish` reads COUNT, the number of elements per result
    only: tuple[str, ...] = tuple(DTYPES)  # supported element types
    words: int = 1
    needs: str = ""  # name of another device file that the operator's file includes
    expression: str = ""  # custom operators only: C++ in a and b
    identity_text: str = ""
    rtol: float = 0.0  # relative tolerance of a custom operator's float results


OPERATORS: dict[str, Operator] = {
    op.name: op
    for op in (
        Operator("sum", "sum", has_atomic=True),
        Operator("prod", "product", has_atomic=True, needs="compare_and_swap"),
        Operator("min", "minimum", has_atomic=True, needs="extremes"),
        Operator("max", "maximum", has_atomic=True, needs="extremes"),
        Operator("mean", "arithmetic mean", has_finish=True, needs_count=True),
        Operator(
            "argmin", "index of the first minimum", has_finish=True, indexed=True, needs="extremes"
        ),
        Operator(
            "argmax", "index of the first maximum", has_finish=True, indexed=True, needs="extremes"
        ),
        Operator("matmul", "product of 2x2 matrices mod 2^32", False, only=_WORDS, words=4),
        Operator("affine", "composition of affine maps mod 2^32", False, only=_WORDS, words=2),
        Operator("affine16", "composition of affine maps mod 2^16, packed", False, only=_WORDS),
    )
}


#: Operators that support a transform: those with a known error bound if the transform rounds.
MAPPED = ("sum", "mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Map:
    """A transform, applied to each element before it is combined, or to a pair of elements of two
    inputs.

    `expression` is C++ in `a` and, for two inputs, `b`, of the type `Reduction.terms`. With
    `one_row` the second input is a single row, used with every row of the first, like the vector of
    a matrix-vector product."""

    expression: str
    inputs: int = 1
    one_row: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: operator, element type, accumulator type and optional transform.

    The elements of a row are contiguous in memory; with `columns` they are apart by the number of
    rows. `stored` is the type of results if that is narrower than the accumulator. `within` is a
    type in which all partial sums of test inputs must be exact, if a kernel accumulates in it."""

    op: Operator
    dtype: DType
    acc: DType
    map: Map | None = None
    columns: bool = False
    stored: DType | None = None
    within: DType | None = None

    @property
    def terms(self) -> DType:
        """The type of a transform's operands: the accumulator's, or the default accumulator's if
        the actual one lacks fractions or a sign that elements have, as for counts."""
        natural, kinds = accumulator(self.dtype), ("uint", "int", "float")
        counts = kinds.index(self.acc.kind) < kinds.index(natural.kind)
        return natural if counts else self.acc

    @property
    def inputs(self) -> int:
        """The number of input arrays."""
        return self.map.inputs if self.map else 1

    @property
    def result_dtype(self) -> str:
        """The NumPy dtype of each component of a result."""
        if self.op.indexed:
            return "int64"
        return "uint32" if self.op.words > 1 else (self.stored or self.acc).storage

    @property
    def result_size(self) -> int:
        """The size of one result in bytes."""
        return 8 if self.op.indexed else self.stored.size if self.stored else self.acc_size

    @property
    def acc_size(self) -> int:
        """The size of one partial result in bytes. Indexed operators have a value and an index,
        aligned to 8 bytes."""
        return 16 if self.op.indexed else self.acc.size * self.op.words

    @property
    def one_stage(self) -> bool:
        """True if all passes can run the same code: elements, partial results and results have the
        same type, and there is no transform and no `finish` step."""
        plain = not (self.op.has_finish or self.op.words > 1 or self.map)
        return plain and self.dtype == self.acc

    def why_undefined(self) -> str | None:
        """The reason why operator, types and transform do not fit together; None if they do."""
        if self.dtype.name not in self.op.only:
            return f"{self.op.name} is defined for {', '.join(self.op.only)}, not {self.dtype.name}"
        if self.map and self.op.name not in MAPPED:
            return f"{self.op.name} supports no --map; {', '.join(MAPPED)} do"
        if holds_counts_only(self.dtype, self.acc) and not (self.map or self.op.indexed):
            return f"{self.acc.name} can hold counts of {self.dtype.name} (--map), but not its sums"
        return None


def reduction_of(
    op: str | Operator, dtype_name: str, acc_name: str | None = None, mapped: Map | None = None
) -> Reduction:
    """The reduction described by the values of --op, --dtype, --acc and --map. Without `acc_name`,
    a mean of integers accumulates in float64. Raises UsageError for an accumulator that cannot hold
    the result, KeyError for unknown names."""
    op = OPERATORS[op] if isinstance(op, str) else op
    dtype = DTYPES[dtype_name]
    natural = accumulator(dtype)
    if op.name == "mean" and dtype.kind != "float":
        natural = DTYPES["float64"]
    acc = DTYPES[acc_name] if acc_name else natural
    if acc_name and (acc.size < natural.size or (natural.kind == "float") != (acc.kind == "float")):
        raise UsageError(
            f"--acc {acc_name} cannot hold a {op.name} of {dtype_name}: "
            f"it must be {natural.name} or a wider type of the same kind"
        )
    if op.words > 1 and acc_name:
        raise UsageError(f"--acc does not apply to {op.name}, which has its own accumulator")
    return Reduction(op, dtype, acc, mapped)
