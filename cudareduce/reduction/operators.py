"""The operators: what each computes, in which types, and where its CUDA C++ stands.

The device half of an operator is `launch/device/NAME.cuh`: a struct with `identity`, `lift`,
`combine`, `finish` and, where memory can be combined atomically, `atomic`. This module knows what
the host must know of it: the type and shape of the answer, and whether operands may change places.
"""

from __future__ import annotations

from dataclasses import dataclass

from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES, DType, accumulator, only_counts

#: Integer types whose bits an order-keeping test operator takes.
_WORDS = ("int32", "uint32")


@dataclass(frozen=True, slots=True)
class Operator:
    """One associative operator; `words` is how many components its accumulator has."""

    name: str
    title: str
    commutative: bool = True
    has_atomic: bool = False
    has_finish: bool = False  # the answer differs from the accumulator: a last step must make it
    indexed: bool = False  # the answer is the position of an element
    needs_count: bool = False  # `finish` reads COUNT, the number of elements of one answer
    only: tuple[str, ...] = tuple(DTYPES)  # element types it is defined for
    words: int = 1
    needs: str = ""  # a device file that stands before its own
    expression: str = ""  # the user's own, in a and b; `identity_text` is its identity
    identity_text: str = ""
    rtol: float = 0.0  # how far a float answer may be off where no bound is known


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


#: Operators over what a map makes of elements: those whose error is known where the map rounds.
MAPPED = ("sum", "mean", "min", "max")


@dataclass(frozen=True, slots=True)
class Map:
    """What becomes of elements before they are combined: C++ in `a` and, where there are two
    `inputs`, in `b`, in the type of the reduction's `terms`. The second may be of `one_row`, the
    same beside every row of the first, as a vector is that a matrix is multiplied by."""

    expression: str
    inputs: int = 1
    one_row: bool = False


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is computed: an operator over elements of one type, or over what a map makes of them,
    accumulated in another. The elements of a row lie side by side or, of `columns`, as far apart as
    there are rows. Answers are `stored` in a narrower type than they are accumulated in where that
    is not None; `within` is one that no sum of elements leaves, or is rounded in."""

    op: Operator
    dtype: DType
    acc: DType
    map: Map | None = None
    columns: bool = False
    stored: DType | None = None
    within: DType | None = None

    @property
    def terms(self) -> DType:
        """The type in which a map has elements: the accumulator's, but for one that only counts
        them, as it holds no fractions or no sign."""
        natural, kinds = accumulator(self.dtype), ("uint", "int", "float")
        counts = kinds.index(self.acc.kind) < kinds.index(natural.kind)
        return natural if counts else self.acc

    @property
    def inputs(self) -> int:
        """Arrays that elements are taken from."""
        return self.map.inputs if self.map else 1

    @property
    def result_dtype(self) -> str:
        """NumPy dtype of the answer's components."""
        if self.op.indexed:
            return "int64"
        return "uint32" if self.op.words > 1 else (self.stored or self.acc).storage

    @property
    def result_size(self) -> int:
        """Bytes of one answer."""
        return 8 if self.op.indexed else self.stored.size if self.stored else self.acc_size

    @property
    def acc_size(self) -> int:
        """Bytes of one partial: an indexed operator carries value and index, aligned to 8."""
        return 16 if self.op.indexed else self.acc.size * self.op.words

    @property
    def one_stage(self) -> bool:
        """True if first, middle and last passes are the same code: elements, partials and
        answers have one type, and nothing is lifted or finished."""
        plain = not (self.op.has_finish or self.op.words > 1 or self.map)
        return plain and self.dtype == self.acc

    def why_undefined(self) -> str | None:
        """The reason why this combination makes no sense, or None if it does."""
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
    """The reduction that these option values name; `acc_name` widens the accumulator, which for a
    mean of integers is float64. One that cannot hold the result, and any for an operator that has
    its own, is a UsageError; names that are not known are a KeyError."""
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
