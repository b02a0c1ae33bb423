"""The reduction operators, and a reduction: operator, types and transform.

The device code of an operator is `launch/device/NAME.cuh`: a struct with `identity`, `lift`,
`combine`, `finish` and, if memory can be combined atomically, `atomic`.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES, DType, accumulator, only_counts

#: Types of the operators that test the summation order.
_WORDS = ("int32", "uint32")


@dataclass(frozen=True, slots=True)
class Operator:
    """An associative operator, whose accumulator has `words` components."""

    name: str
    title: str
    commutative: bool = True
    has_atomic: bool = False
    has_finish: bool = False  # a last step turns the accumulator into the result
    indexed: bool = False  # the result is the index of an element
    needs_count: bool = False  # `finish` reads COUNT, the elements of one result
    only: tuple[str, ...] = tuple(DTYPES)  # element types it is defined for
    words: int = 1
    needs: str = ""  # the device file that its own depends on
    expression: str = ""  # of a custom operator: C++ in a and b, and its identity
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


#: Operators that take a transform: those whose error bound is known if it rounds.
MAPPED = ("sum", "mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Map:
    """The transform of elements before they are combined: C++ in `a` and, with two `inputs`, in
    `b`, in the type of the reduction's `terms`. A second input of `one_row` is the same for every
    row of the first, like the vector of a matrix-vector product."""

    expression: str
    inputs: int = 1
    one_row: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """An operator over elements of one type, or over their transform, accumulated in another. The
    elements of a row are contiguous, or the rows apart with `columns`. Results may be `stored` in a
    narrower type than the accumulator; test inputs are chosen so that their sums fit `within`."""

    op: Operator
    dtype: DType
    acc: DType
    map: Map | None = None
    columns: bool = False
    stored: DType | None = None
    within: DType | None = None

    @property
    def terms(self) -> DType:
        """The type of a transform's operands: the accumulator's, unless that has no fractions or no
        sign, as for counts."""
        natural, kinds = accumulator(self.dtype), ("uint", "int", "float")
        counts = kinds.index(self.acc.kind) < kinds.index(natural.kind)
        return natural if counts else self.acc

    @property
    def inputs(self) -> int:
        """The number of input arrays."""
        return self.map.inputs if self.map else 1

    @property
    def result_dtype(self) -> str:
        """NumPy dtype of a result's components."""
        if self.op.indexed:
            return "int64"
        return "uint32" if self.op.words > 1 else (self.stored or self.acc).storage

    @property
    def result_size(self) -> int:
        """Bytes of one result."""
        return 8 if self.op.indexed else self.stored.size if self.stored else self.acc_size

    @property
    def acc_size(self) -> int:
        """Bytes of one partial result: of an indexed operator value and index, aligned to 8."""
        return 16 if self.op.indexed else self.acc.size * self.op.words

    @property
    def one_stage(self) -> bool:
        """True if first, middle and last passes are the same code: elements, partials and results
        have one type, and nothing is transformed or finished."""
        plain = not (self.op.has_finish or self.op.words > 1 or self.map)
        return plain and self.dtype == self.acc

    def why_undefined(self) -> str | None:
        """Why this combination is undefined; None if it is defined."""
        if self.dtype.name not in self.op.only:
            return f"{self.op.name} is defined for {', '.join(self.op.only)}, not {self.dtype.name}"
        if self.map and self.op.name not in MAPPED:
            return f"{self.op.name} takes no map; with one there are {', '.join(MAPPED)}"
        if only_counts(self.dtype, self.acc) and not (self.map or self.op.indexed):
            return f"{self.acc.name} holds counts of {self.dtype.name}, by a map, and no sums of it"
        return None


def reduction_of(
    op: str | Operator, dtype_name: str, acc_name: str | None = None, mapped: Map | None = None
) -> Reduction:
    """The reduction of these option values; the default accumulator of a mean of integers is
    float64. Raises UsageError for an accumulator that cannot hold the result, KeyError for unknown
    names."""
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
