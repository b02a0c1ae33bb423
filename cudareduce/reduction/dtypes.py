"""The element types: their names, NumPy and CUDA C++ types, and accumulators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "uint"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `size` in bytes, `cpp` is its CUDA C++ name, `storage` the NumPy dtype that
    holds its bits."""

    name: str
    kind: Kind
    size: int
    cpp: str
    storage: str

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value; 0 for integers."""
        return {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23,
                "float64": 2.0**-52}.get(self.name, 0.0)  # fmt: skip

    @property
    def overflow_limit(self) -> float:
        """The smallest power of two that overflows this 16-bit float type."""
        return 2.0 ** {"float16": 16, "bfloat16": 128}[self.name]


#: The element types by name. NumPy has no bfloat16, so its bits are stored as uint16.
DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("float32", "float", 4, "float", "float32"),
        DType("float64", "float", 8, "double", "float64"),
        DType("float16", "float", 2, "__half", "float16"),
        DType("bfloat16", "float", 2, "__nv_bfloat16", "uint16"),
        DType("int8", "int", 1, "signed char", "int8"),
        DType("uint8", "uint", 1, "unsigned char", "uint8"),
        DType("int32", "int", 4, "int", "int32"),
        DType("uint32", "uint", 4, "unsigned", "uint32"),
        DType("int64", "int", 8, "long long", "int64"),
        DType("uint64", "uint", 8, "unsigned long long", "uint64"),
    )
}

#: Other names of the types, as C++, PyTorch and Triton call them.
ALIASES = {
    "float": "float32", "fp32": "float32", "f32": "float32",
    "double": "float64", "fp64": "float64", "f64": "float64",
    "half": "float16", "fp16": "float16", "f16": "float16",
    "bf16": "bfloat16", "char": "int8", "i8": "int8", "u8": "uint8",
    "int": "int32", "i32": "int32", "uint": "uint32", "unsigned": "uint32", "u32": "uint32",
    "long": "int64", "i64": "int64", "u64": "uint64",
}  # fmt: skip

#: Types with a wider default accumulator: float16 has an 11-bit significand, int8 overflows at 128.
_WIDENED = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "uint32"}


def holds_counts_only(dtype: DType, acc: DType) -> bool:
    """True for an integer accumulator of float elements: it can hold counts of elements, but not
    their sum."""
    return dtype.kind == "float" != acc.kind


def accumulator(dtype: DType) -> DType:
    """The default accumulator type. For means of integers, `reduction_of` uses float64 instead."""
    return DTYPES[_WIDENED.get(dtype.name, dtype.name)]
