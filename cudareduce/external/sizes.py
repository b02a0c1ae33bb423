"""Find what sets the number of elements in a host program, by changing candidates and recording
again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from tree_sitter import Node

from cudareduce.cuda_source import parse_cuda, text, walk
from cudareduce.external.recording import Launch, Pointer, Step

_NUMBER = r"(?:0[xX][\da-fA-F]+|\d+(?:\.\d*)?(?:[eE]\d+)?)[uUlL]*"
_CONSTANT = re.compile(rf"(?:{_NUMBER}|[\s()*+\-/]|<<|>>|\(\s*(?:size_t|int|unsigned|long)\s*\))+")
_INTEGER = re.compile(
    r"\b(?:int|unsigned|long|short|size_t|auto|(?:std::)?u?int\d+_t|uint|ulong|ll|ull|u32|u64)\b"
)
_SIZE_NAME = re.compile(
    r"(?i)^(?:h_|d_|k)?(?:n|m|size|len|length|count|num|numel|elements|total|dim|width|cols?|rows?)$"
    r"|elem|size|count|len|num|_n$|^n_|^n[xyz]$|total"
)
_OTHER_NAME = re.compile(
    r"(?i)block|thread|tpb|tile|warp|iter|repeat|seed|device|grid|stream|loop|trial|radix|mask|shared"
)
_LEAST, _MOST_CANDIDATES = 8, 12


@dataclass(frozen=True, slots=True)
class Constant:
    """An integer constant in the text of a file that may set its size."""

    start: int  # bytes of the expression
    end: int
    name: str
    text: str
    value: int
    words: str  # "#define N, line 3"

    def replaced(self, code: bytes, replacement: str) -> bytes:
        """The file with this constant replaced by another expression."""
        return code[: self.start] + replacement.encode() + code[self.end :]


@dataclass(frozen=True, slots=True)
class Scale:
    """How the elements of the largest buffer depend on a number: factor * number ** power."""

    factor: int
    power: int

    def number(self, elements: int) -> int:
        """The host argument for about this many elements."""
        quotient = max(1, round(elements / self.factor))
        return quotient if self.power == 1 else max(1, isqrt(quotient))

    def elements(self, number: int) -> int:
        return int(self.factor * number**self.power)


def constants(code: bytes) -> list[Constant]:
    """Integer constants of the host code that may set the size, the most likely first."""
    root = parse_cuda(code)
    functions = {
        text(name)
        for node in walk(root)
        if node.type == "function_declarator"
        if (name := node.child_by_field_name("declarator")) is not None
    }
    found: list[Constant] = []
    for node in walk(root):
        if not _in_device_code(node):
            found += _constants_of(node, functions)
    unique = {constant.start: constant for constant in found if constant.value >= _LEAST}
    ranked = sorted(unique.values(), key=_rank)
    return ranked[:_MOST_CANDIDATES]


def _rank(constant: Constant) -> tuple[bool, bool, bool, int]:
    return (
        _OTHER_NAME.search(constant.name) is not None,
        constant.value < 256,
        _SIZE_NAME.search(constant.name) is None,
        -constant.value,
    )


def _constants_of(node: Node, functions: set[str]) -> Iterator[Constant]:
    if node.type == "preproc_def":
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name and value:
            yield from _constant(value, text(name), f"#define {text(name)}")
    elif node.type in ("declaration", "optional_parameter_declaration", "field_declaration"):
        kind = text(node.child_by_field_name("type"))  # type: ignore[arg-type]
        if not _INTEGER.search(kind) or "*" in kind:
            return
        value = node.child_by_field_name("default_value")
        if value:
            name = node.child_by_field_name("declarator")
            if name and name.type in ("identifier", "field_identifier"):
                yield from _constant(value, text(name), f"{kind} {text(name)}")
        for declarator in node.children_by_field_name("declarator"):
            name = declarator.child_by_field_name("declarator")
            value = declarator.child_by_field_name("value")
            if name and value and name.type == "identifier":
                yield from _constant(value, text(name), f"{kind} {text(name)}")
    elif node.type == "assignment_expression":
        name, value = node.child_by_field_name("left"), node.child_by_field_name("right")
        if name and value and name.type == "identifier":
            yield from _constant(value, text(name), text(name))
    elif node.type == "call_expression":
        called = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        function = text(called).partition("<")[0] if called else ""
        is_launch = any(child.type == "kernel_call_syntax" for child in node.children)
        if arguments and function in functions and not is_launch:
            for number, argument in enumerate(arguments.named_children, 1):
                yield from _constant(argument, "", f"argument {number} of {function}()")


def _constant(value: Node, name: str, words: str) -> Iterator[Constant]:
    expression = text(value).partition("//")[0].partition("/*")[0].rstrip()
    if not _CONSTANT.fullmatch(expression) or not re.search(r"\d", expression):
        return
    plain = re.sub(r"\(\s*(?:size_t|int|unsigned|long)\s*\)", "", expression)
    plain = re.sub(r"(?<=[\da-fA-F])[uUlL]+\b", "", plain).replace("/", "//")
    plain = re.sub(r"\b0+(?=\d)", "", plain)
    if "**" in plain or re.search(r"<<\s*\d{3}|\d{20}|e\d{3}", plain):
        return
    try:
        number = int(eval(plain, {"__builtins__": {}}))  # digits and operators only, see _CONSTANT
    except (SyntaxError, ArithmeticError, TypeError, ValueError, MemoryError):
        return
    start = value.start_byte + len(text(value)) - len(text(value).lstrip())
    end = start + len(expression.lstrip().encode())
    yield Constant(
        start, end, name, expression.lstrip(), number, f"{words}, line {value.start_point[0] + 1}"
    )


def _in_device_code(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == "function_definition":
            head = (parent.text or b"").partition(b"{")[0]
            return b"__global__" in head or (b"__device__" in head and b"__host__" not in head)
        parent = parent.parent
    return False


def largest_buffer(steps: tuple[Step, ...], sizes: dict[int, int]) -> tuple[int, int]:
    """The number of elements of the largest buffer passed to a kernel, and the bytes per
    element; (0, 1) if there is none."""
    largest, element = 0, 1
    for step in steps:
        if not isinstance(step, Launch):
            continue
        for argument in (*step.arguments, *step.held):
            if isinstance(argument, Pointer) and argument.buffer is not None:
                nbytes = sizes[argument.buffer]
                if nbytes > largest:
                    largest, element = nbytes, max(1, argument.element_size)
    return largest // element, element


def scale_of(samples: list[tuple[int, int]]) -> Scale | None:
    """The scale on which two or more (number, elements) pairs agree; None if elements grow with
    neither the number nor its square."""
    if any(elements == 0 for _, elements in samples):
        return None
    (number, elements), *others = samples
    for power in (1, 2):
        factor = elements // number**power
        if factor > 0 and all(
            abs(found - factor * other**power) <= max(2, found // 64)
            for other, found in [(number, elements), *others]
        ):
            return Scale(factor, power)
    return None
