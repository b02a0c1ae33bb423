"""Calls of host functions from device code, which nvcc refuses and g++ cannot tell: found in the
text, and let pass where a text leaves a doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*+"?|\'(?:\\.|[^\'\\\n]){1,12}\''
    r"|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*",
    re.DOTALL | re.MULTILINE,
)
_SCOPE = re.compile(r"\bnamespace\b[^(){};]*$|\bextern\s+$")
_OF_DEVICE = re.compile(r"\b__(?:device|global)__\b")
#: A function of the host, without templates. Other words might be macros for __device__.
_HOST_FUNCTION = re.compile(
    r"\s*(?:(?:static|inline|const|unsigned|signed|int|long|short|char|bool|float|double|void"
    r"|size_t|u?int\d+_t|Acc|In|Out|Element|Scalar|Result)\b[\s*&]*)+"
    r"\b(?P<name>[A-Za-z_]\w*)\s*\([^{}]*\)\s*(?:noexcept\s*)?"
)
#: What the standard library has for the host alone; a constant may come from it all the same.
_STANDARD = re.compile(
    r"(?<!\bcuda::)\bstd::(?P<name>(?:min|max|minmax|clamp|swap|sort|accumulate|reduce|fill|fill_n"
    r"|copy|copy_n|transform|inner_product|max_element|min_element|exchange|iota|partial_sum)"
    r"(?=\s*(?:<[^<>;{}]*>\s*)?\()"
    r"|numeric_limits(?=\s*<[^<>;{}]*>\s*::\s*\w+\s*\(\s*\))"
    r"|(?:plus|minus|multiplies|less|greater|bit_and|bit_or|bit_xor)"
    r"(?=\s*<[^<>;{}]*>\s*(?:\(\)|\{\})\s*\())"
)
_CONSTANT = re.compile(
    r"\b(?:const|constexpr|static_assert|template|enum|case|using|typedef|sizeof|decltype)\b"
    r"|\[[^\]]*$|<[^>()]*$"
)
_MARK = '_Pragma("GCC error \\"{} is a function of the host, which nvcc lets no kernel call\\"") '


def mark_host_calls(text: str) -> str:
    """The text with an error in front of each call of a host function from device code."""
    seen = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    bodies = list(_bodies(seen))
    marks: dict[int, str] = {}
    hosts = _host_functions(text, seen, [head for head, _, _ in bodies])
    for head, begin, end in bodies:
        if not _OF_DEVICE.search(head):
            continue
        for call in _STANDARD.finditer(seen, begin, end):
            statement = re.split(r"[;{}]", seen[begin : call.start()])[-1]
            if not _CONSTANT.search(statement):
                marks[call.start()] = f"std::{call['name']}"
        for name in hosts:
            if not re.search(rf"\b{name}\b(?!\s*\()", head + seen[begin:end]):  # no variable
                for call in re.finditer(rf"(?<![\w.:>]){name}\s*\(", seen[begin:end]):
                    before = seen[begin : begin + call.start()].rstrip()
                    word = re.search(r"(?:\w+|>)$", before)  # of a type, in a declaration
                    if word is None or word[0] in ("return", "else"):
                        marks[begin + call.start()] = name
    parts, done = [], 0
    for place in sorted(marks):
        parts += [text[done:place], _MARK.format(marks[place])]
        done = place
    return "".join(parts) + text[done:]


def _bodies(seen: str) -> Iterator[tuple[str, int, int]]:
    """What is in braces in no function or type, with what stands before it."""
    depth = start = begin = 0
    head = ""
    for match in re.finditer(r"[{};]", seen):
        brace, place = match[0], match.start()
        if brace == "{":
            if depth == 0 and _SCOPE.search(seen, start, place):
                start = place + 1
                continue
            if depth == 0:
                head, begin = seen[start:place], place
            depth += 1
        elif brace == "}" and depth > 0:
            depth -= 1
            if depth == 0:
                yield head, begin, place
                start = place + 1
        elif depth == 0:
            start = place + 1


def _host_functions(text: str, seen: str, heads: list[str]) -> list[str]:
    """Functions that are defined without __device__, and have no other declaration with it."""
    found = [match["name"] for head in heads if (match := _HOST_FUNCTION.fullmatch(head))]
    return [
        name
        for name in dict.fromkeys(found)
        if not re.search(rf"__device__[^;{{}}]*\b{name}\s*\(|\bstruct\s+{name}\b", seen)
        and not re.search(rf"#\s*define\s+{name}\b", text)
        and sum(1 for head in heads if re.search(rf"\b{name}\s*\(", head)) == 1
    ]
