"""The types of what a kernel reads and writes that was not written for this tool."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cudareduce.errors import UsageError
from cudareduce.reduction.dtypes import DTYPES, accumulator, only_counts

_ELEMENTS = {
    "float": "float32", "double": "float64", "int": "int32", "int32_t": "int32",
    "unsigned": "uint32", "unsigned int": "uint32", "uint": "uint32", "uint32_t": "uint32",
    "long": "int64", "unsigned long": "uint64",
    "long long": "int64", "int64_t": "int64", "unsigned long long": "uint64", "uint64_t": "uint64",
    "half": "float16", "__half": "float16", "nv_bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16", "signed char": "int8", "int8_t": "int8",
    "unsigned char": "uint8", "uint8_t": "uint8",
    "char": "int8", "long int": "int64", "unsigned long int": "uint64",
    "long long int": "int64", "unsigned long long int": "uint64", "size_t": "uint64",
    "u32": "uint32", "u64": "uint64", "i32": "int32", "i64": "int64", "f32": "float32",
    "f64": "float64", "real": "float32", "Real": "float32",
}  # fmt: skip
#: What several elements are that are read at once: their type, and how many.
_PACKS = {
    f"{kind}{k}": (name, k) for kind, name in (
        ("float", "float32"), ("double", "float64"), ("int", "int32"), ("uint", "uint32"),
        ("longlong", "int64"), ("ulonglong", "uint64"),
    ) for k in (2, 4)
} | {"half2": ("float16", 2), "__half2": ("float16", 2), "nv_bfloat162": ("bfloat16", 2),
     "__nv_bfloat162": ("bfloat16", 2)}  # fmt: skip
#: Types in which answers may be stored, and no partials kept.
NARROW = tuple(name for name, kind in DTYPES.items() if (kind.kind, kind.size) == ("float", 2))
#: Types that are no elements here, in bytes.
_BYTES = {"bool": 1, "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2, "clock_t": 8}
#: Bits of a count's value, by what its type says; of others they suffice for every array.
_BITS = (("short", 15), ("int16_t", 15), ("int32_t", 31), ("long", 63), ("64_t", 63), ("64", 63),
         ("size_t", 64), ("int8_t", 7), ("float", 24), ("double", 53), ("", 31))  # fmt: skip


def read_dtypes(kernel: str, element: str, template: Sequence[str]) -> tuple[str, ...]:
    """The types that a kernel reads whose elements are called so: the one that is named, or any
    where it is one of the names in `template`. Raises UsageError if it is none of ours."""
    if element in template:
        return tuple(name for name, dtype in DTYPES.items() if accumulator(dtype) == dtype)
    if element in _PACKS:
        return (_PACKS[element][0],)
    return (_dtype(f"{kernel} reads", element),)


def packed(element: str) -> int:
    """How many elements are read at once of what is called so."""
    return _PACKS.get(element, ("", 1))[1]


def written_dtype(
    kernel: str, element: str, template: Sequence[str], read: Sequence[str]
) -> str | None:
    """The type of what a kernel writes and calls so, where the file names it; None where a template
    does. Raises UsageError if it is none of ours, or keeps no sum of what is `read`, nor counts it;
    floats of 16 bits may, as answers."""
    if element in template:
        return None
    written, kept = DTYPES[_dtype(f"{kernel} writes", element)], accumulator(DTYPES[read[0]])
    floats, counts = written.kind == "float", only_counts(kept, written)
    fits = (written.size >= kept.size or floats) and floats == (kept.kind == "float")
    if not (fits or counts) and len(read) == 1:
        raise UsageError(why_narrow(kernel, element, read[0]))
    return written.name


def why_narrow(kernel: str, element: str, read: str) -> str:
    """Why a kernel must not keep partials in this type."""
    kept = accumulator(DTYPES[read])
    return (
        f"{kernel} writes {element}, and partials of {read} are kept in {kept.name}: let it "
        f"write {kept.cpp}, or give the file a header, whose kernels write Out"
    )


def _dtype(does: str, element: str) -> str:
    if element in _ELEMENTS:
        return _ELEMENTS[element]
    known = [*{name: kind for kind, name in reversed(_ELEMENTS.items())}.values()][::-1]
    raise UsageError(
        f"{does} {element}, which is none of: {', '.join(known)}; give the file a header, "
        "whose kernels read In and write Out"
    )


def known_element(kind: str) -> str | None:
    """Which of our types it is that a file calls so; None if none."""
    return _ELEMENTS.get(kind)


def bytes_of(kind: str, template: Sequence[str]) -> int | None:
    """Bytes of a value of this type, at most where it is one of the names in `template`; None if
    it is not known."""
    if kind in template:
        return max(dtype.size for dtype in DTYPES.values())
    return DTYPES[_ELEMENTS[kind]].size if kind in _ELEMENTS else _BYTES.get(kind)


def most(count: str) -> int | None:
    """The most elements that a type counts; None if no array has more."""
    bits = next(bits for word, bits in _BITS if word in count)
    return None if bits > 32 else 2 ** (bits + bool(re.search(r"\bu", count))) - 1
