"""A file without what its own lines of the preprocessor leave out: versions under `#if 0`, or
behind a name that the file does not define. Every line keeps its number.

What a compiler or another file may define is not known, and both branches stay.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from cudareduce.cuda_source import every, parsed, text

_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif|define|undef)\b(.*)", re.DOTALL)
#: What compilers and their headers define begins so.
_NOT_OURS = re.compile(
    r"__(?:CUDA|NV|HIP|cplusplus|cpp|clang)|_MSC|_WIN|_OPENMP|\w+__$|CUDA|CUB|THRUST|WIN|NDEBUG"
)
#: What no author gives a compiler, whatever stands behind it.
_NEVER_GIVEN = re.compile(r"_[A-Z_]\w*|CUDA(?:RT)?_VERSION|(?:CUB|THRUST|WIN)\w*|NDEBUG|DEBUG")
#: What a condition has that asks for more than names, and the names in it.
_MORE = re.compile(r"[^\w\s()&|]|\b\d")
_ASKED = re.compile(r"\b(?!defined\b)[A-Za-z_]\w*")
_OWN_HEADER = re.compile(r'^\s*#\s*include\s*"', re.MULTILINE)
#: A name may stand for another one, and so on.
_DEEPEST = 8
#: Comments, and strings, in which none begins.
_COMMENTS = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?(?:\*/|$)', re.DOTALL)

_SIGNS: dict[str, Callable[[int, int], int]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge, "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


#: Names with the words that they stand for, or None where it is not known whether they do.
Defined = Mapping[str, str | None]


class _Unclear(Exception):
    """A condition that the file alone does not decide."""


@dataclass(slots=True)
class _Branch:
    """Where a file is between `#if` and `#endif`: whether this branch is `live`, None if that is
    not known, whether one up to it is `taken`, in the same way, and whether what is around
    lives."""

    live: bool | None
    taken: bool | None
    around: bool | None


@dataclass(slots=True)
class _Reader:
    """What a file has defined so far: words, or None where it is not known whether. `whole` says
    that nothing else may define what it does not."""

    whole: bool
    defined: dict[str, str | None] = field(default_factory=dict)
    around: list[_Branch] = field(default_factory=list)

    @property
    def live(self) -> bool | None:
        """Whether a line is compiled; None if that is not known."""
        if not self.around:
            return True
        top = self.around[-1]
        return False if top.around is False or top.live is False else top.live and top.around

    def directive(self, word: str, rest: str) -> None:
        """Take a line of the preprocessor into account."""
        if word in ("define", "undef"):
            self._define(word, rest)
        elif word in ("if", "ifdef", "ifndef"):
            live = self._asked(word, rest)
            self.around.append(_Branch(live, live, self.live))
        elif self.around and word == "endif":
            self.around.pop()
        elif self.around:
            self._otherwise(self._asked(word, rest) if word == "elif" else True)

    def _otherwise(self, live: bool | None) -> None:
        """The next branch, if its own condition is met."""
        top = self.around[-1]
        top.live = False if top.taken else live if top.taken is False or live is False else None
        if not top.taken and live is not False:
            top.taken = live if top.taken is False or live else None

    def _define(self, word: str, rest: str) -> None:
        name, value = re.match(r"\s*(\w*)(.*)", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        if self.live is None:
            self.defined[name] = None
        elif self.live and word == "undef":
            self.defined.pop(name, None)
        elif self.live:
            self.defined[name] = value.strip()

    def _asked(self, word: str, rest: str) -> bool | None:
        """Whether a condition is met."""
        try:
            if word in ("if", "elif"):
                return bool(self._value(_condition(rest), _DEEPEST))
            return self._is_defined(rest.strip()) is (word == "ifdef")
        except _Unclear:
            return None

    def _is_defined(self, name: str) -> bool:
        """Whether a name is defined. Raises _Unclear."""
        if name in self.defined:
            if self.defined[name] is None:
                raise _Unclear
            return True
        if not self.whole or _NOT_OURS.match(name):
            raise _Unclear
        return False

    def _value(self, node: Node, depth: int) -> int:
        """What an expression says. Raises _Unclear."""
        kind, below = node.type, node.named_children
        if not depth:
            raise _Unclear
        if kind == "number_literal":
            return _number(text(node))
        if kind == "preproc_defined" and below:
            return self._is_defined(text(below[0]))
        if kind == "identifier":
            known = self._is_defined(text(node)) and self.defined[text(node)]
            return self._value(_condition(known), depth - 1) if known else 0
        if kind == "parenthesized_expression" and len(below) == 1:
            return self._value(below[0], depth)
        if kind == "unary_expression" and text(node.children[0]) == "!":
            return not self._value(below[-1], depth)
        if kind == "binary_expression" and len(below) == 2:
            return self._both(text(node.children[1]), below[0], below[1], depth)
        raise _Unclear

    def _both(self, sign: str, left: Node, right: Node, depth: int) -> int:
        """What two sides and a sign say, of which one may be enough. Raises _Unclear."""
        if sign not in ("&&", "||"):
            if sign not in _SIGNS:
                raise _Unclear
            return int(_SIGNS[sign](self._value(left, depth), self._value(right, depth)))
        sides: list[bool | None] = []
        for side in (left, right):
            try:
                sides.append(bool(self._value(side, depth)))
            except _Unclear:
                sides.append(None)
        if (sign == "||") in sides:
            return sign == "||"
        if None in sides:
            raise _Unclear
        return sign == "&&"


def live_lines(
    source: str, before: Defined | None = None, given: Mapping[str, str] | None = None
) -> tuple[str, Defined]:
    """A text whose lines are empty where its conditions leave them out, and what it has defined in
    the end; `before` is what a file that includes it has, `given` what the compiler is told."""
    known = {**(before or {}), **(given or {})}
    if "#" not in source:
        return source, known
    whole = before is None and not _OWN_HEADER.search(source)
    reader = _Reader(whole, known)
    kept, said = [], ""
    for line, words in zip(source.split("\n"), _without_comments(source), strict=True):
        said = said.removesuffix("\\") + words if said else words
        found = _DIRECTIVE.match(said)
        live = reader.live
        if found and said.endswith("\\"):
            kept.append("" if live is False else line)
            continue
        if found:
            outer = len(reader.around)
            reader.directive(found[1], found[2])
            live = live if found[1] in ("define", "undef") else _stays(reader, outer, live)
        said = ""
        kept.append("" if live is False else line)
    return "\n".join(kept), reader.defined


def behind_which(source: str) -> frozenset[str]:
    """The names behind which all kernels of a text stand, as `#ifdef GPU` has them: who compiles it
    gives the compiler these. None that it defines itself, or that a compiler has."""
    around: list[frozenset[str]] = []
    defined: set[str] = set()
    kernels: list[frozenset[str]] = []
    for line in _without_comments(source):
        found = _DIRECTIVE.match(line)
        word, rest = found.groups() if found else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            plain = word != "ifndef" and not _MORE.search(rest)
            asks = _ASKED.findall(rest) if plain else []
            around.append(frozenset(asks[:1] if "||" in rest else asks))
        elif around and word in ("elif", "else"):
            around[-1] = frozenset()
        elif around and word == "endif":
            around.pop()
        elif word == "define":
            defined |= {*rest.split()[:1]}
        elif not found and "__global__" in line:
            kernels.append(frozenset().union(*around))
    common = frozenset.intersection(*kernels) if kernels else frozenset()
    return frozenset(n for n in common - defined if not _NEVER_GIVEN.fullmatch(n))


def _without_comments(source: str) -> list[str]:
    """The lines of a text with spaces where its comments are."""
    kept = _COMMENTS.sub(lambda found: found[1] or re.sub(r"[^\n]", " ", found[0]), source)
    return kept.split("\n")


def _stays(reader: _Reader, outer: int, live: bool | None) -> bool:
    """Whether a line that begins or ends a branch stays, as all of one condition do or none."""
    inner = len(reader.around)
    if inner > outer:  # one that begins: if what is around it lives
        return live is not False
    return (reader.around[-1].around if inner == outer and inner else reader.live) is not False


def _condition(words: str) -> Node:
    """What stands behind `#if`. Raises _Unclear."""
    for node in every(parsed(f"#if {' '.join(words.split())}\n#endif\n")):
        condition = node.child_by_field_name("condition")
        if node.type == "preproc_if" and condition is not None:
            return condition
    raise _Unclear


def _number(word: str) -> int:
    try:
        return int(word.rstrip("uUlL"), 0)
    except ValueError:
        raise _Unclear from None
