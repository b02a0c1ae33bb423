"""By what a kernel of others combines what it reads, as far as its name and its text tell."""

from __future__ import annotations

import re

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text
from cudareduce.library.body import Body
from cudareduce.library.called import Call
from cudareduce.library.expressions import inner, operator
from cudareduce.library.syntax import Function

#: What a kernel is tried with whose name says nothing.
_PLAIN = ("sum", "prod", "min", "max", "mean")
#: Kernels that keep an extreme, as people call them; argmax and softmax are something else.
_EXTREMES = {
    "max": re.compile(r"(?<![a-z])(?:max|largest)|(?<![Ss]oft)(?<![Aa]rg)(?:Max|Largest)"),
    "min": re.compile(
        r"(?:(?<![a-z])(?:min|smallest)|(?<![Aa]rg)(?:Min|Smallest))(?!us|max|i(?!m))"
    ),
}
#: The same of what they call.
_CALLED = {
    "max": re.compile("max|largest|greatest", re.IGNORECASE),
    "min": re.compile("min(?!us|i(?!m))|smallest|least", re.IGNORECASE),
}
#: What finds the place of an extreme, or holds one, as people call it.
_PLACES = re.compile(
    r"arg_?(?:max|min)|(?:max|min)\w*?(?:idx|ind|pos|loc(?!al))|(?:idx|ind(?:ex)?|pos)\w*(?:max|min)"
    r"|(?:max|min)\w* \w*(?:idx|ind|pos|loc(?!al)|place)", re.IGNORECASE,
)  # fmt: skip
#: What combines bits, and by which sign.
_BITS = {"atomicXor": "^", "^=": "^", "atomicOr": "|", "|=": "|", "atomicAnd": "&", "&=": "&"}
#: What a place is written as: in 32 bits, or as wide as answers are.
PLACES_32 = frozenset(["int", "unsigned", "unsigned int", "uint", "int32_t", "uint32_t"])
_PLACES_64 = frozenset(["int64_t", "uint64_t", "size_t", "long long", "long long int",
                        "unsigned long long", "long", "unsigned long"])  # fmt: skip
_COMPARES = frozenset(["<", "<=", ">", ">="])


def ops_named(function: Function, call: Call) -> tuple[str, ...]:
    """What a kernel may reduce by: what its name says, or that of what it writes where it names
    both extremes, or whose place its name says that it writes besides, or what has been chosen for
    it to combine with, or else what people write most."""
    called = function.name.rpartition("::")[2]
    named = [op for op, name in _EXTREMES.items() if name.search(called)]
    if len(named) > 1 or all(name.search(called) for name in _CALLED.values()):
        named = [op for op, name in _CALLED.items() if name.search(call.write.name)]
    elif not named and any(words.endswith("=out2") for words in call.said):  # beside its place
        named = [op for op, name in _CALLED.items() if name.search(called)]
    if not named:
        named = [op for op, name in _CALLED.items() if any(map(name.search, call.chosen))]
    plain = len(named) != 1 or re.search("sum|add|mean|average|avg", called, re.IGNORECASE)
    return _PLAIN if plain else tuple(named)


def places_named(function: Function, call: Call) -> tuple[str, ...]:
    """By which operators one block, or who takes a row, finds the place of an extreme and writes
    nothing else, as its name or that of what it writes says; none if it does something else."""
    answers = not call.answers_in_place and not call.of_threads
    integer = call.write.type in PLACES_32 | _PLACES_64 and answers
    named_so = _PLACES.search(f"{function.name} {call.write.name}")
    if not (integer and (call.alone or call.rows) and named_so):
        return ()
    if Body(function.body).reads_first(call.write.name):
        return ()  # it goes on with places that somebody has found before
    named = tuple(f"arg{op}" for op, name in _CALLED.items() if name.search(function.name))
    return named or ("argmax", "argmin")


def ops_in(code: str) -> tuple[str, ...]:
    """What a text may combine by that is no sum: extremes that it calls or compares elements for,
    products that it forms in place, means where it divides by a name."""
    found: set[str] = set()
    for node in every(parsed(code)):
        left, right = map(node.child_by_field_name, ("left", "right"))
        if node.type == "call_expression":
            called = text(node.children[0])
            found |= {op for op, word in _CALLED.items() if word.search(called)}
        elif node.type == "conditional_expression" and _chooses(node):
            found |= {"max", "min"}
        elif left is None or right is None or len(node.children) < 2:
            continue
        elif node.children[1].type in _COMPARES and "subscript_expression" in (
            left.type,
            right.type,
        ):
            found |= {"max", "min"}
        elif node.children[1].type == "*=" and right.type != "number_literal":
            found |= {"prod"}
        elif node.children[1].type in ("/", "/=") and _names(right):
            found |= {"mean"}
    return tuple(op for op in ("max", "min", "mean", "prod") if op in found)


def _chooses(node: Node) -> bool:
    """Whether it is one of two values, by how they compare."""
    condition, *values = map(node.child_by_field_name, ("condition", "consequence", "alternative"))
    compared = inner(condition) if condition else node
    sides = [compared.child_by_field_name(side) for side in ("left", "right")]
    return operator(compared) in _COMPARES and {text(inner(v)) for v in values if v} == {
        text(inner(side)) for side in sides if side
    }


def bits_in(code: str) -> str:
    """The sign by which a text combines bits, if it does, and by one alone; else nothing."""
    signs = {_BITS[word] for node in every(parsed(code)) if (word := text(node)) in _BITS}
    return signs.pop() if len(signs) == 1 else ""


def _names(node: Node) -> bool:
    """Whether an expression is a name or a product of names, whatever type they are made."""
    plain = inner(node)
    if operator(plain) == "*":
        return all(_names(side) for side in plain.named_children)
    return plain.type == "identifier"
