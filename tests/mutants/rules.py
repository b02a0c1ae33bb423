"""What is changed in a kernel's text, one thing at a time: the slips that authors make.

By patterns over the text, since no parser of C++ is at hand; what does not compile is counted and
left out. Comments, strings, headers and directives stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff

#: Comments, directives, strings, and what only tells the compiler how many registers there are.
_LEFT_ALONE = re.compile(
    r"/\*.*?\*/|//[^\n]*|^[ \t]*#[^\n]*|\"[^\"\n]*\"|constexpr unsigned (?:LL_)?MIN_BLOCKS =[^\n]*",
    re.DOTALL | re.MULTILINE,
)
_ARGUMENT = r"((?:[^(),]|\((?:[^()]|\([^()]*\))*\))+)"
#: Neither declared nor assigned to there.
_USED = r"(?<!unsigned )(?<!size_t )\b{}\b(?! = )"

#: The kind of slip, what it looks like, and what may stand there instead.
_RULES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("barrier", r"__sync(?:threads|warp)\([^()]*\)", ("(void)0",)),
    ("fence", r"__threadfence\(\)", ("(void)0",)),
    ("mask", r"0xffffffffu", ("0xfffffffeu", "0x7fffffffu", "0x0000ffffu")),
    ("mask", r"0x0000ffffu", ("0x0000fffeu", "0x00007fffu", "0xffffffffu")),
    ("mask", r"__syncwarp\(\)", ("__syncwarp(0xfffffffeu)", "__syncwarp(0x0000ffffu)")),
    ("bound", r" < ", (" <= ", " >= ")),
    ("bound", r" > ", (" >= ", " <= ")),
    ("bound", r" <= ", (" < ",)),
    ("bound", r" >= ", (" > ",)),
    ("bound", _USED.format("(n|rows)"), (r"(\1 - 1)", r"(\1 + 1)")),
    ("bound", r" == 0\b", (" <= 1",)),
    ("bound", r"\bmin\(", ("max(",)),
    ("condition", r" == ", (" != ",)),
    ("condition", r" != ", (" == ",)),
    ("condition", r"\(!(\w+)\)", (r"(\1)",)),
    ("condition", r"\|\|", ("&&",)),
    ("condition", r"&&", ("||",)),
    ("condition", r"\bif \(((?:[^()]|\([^()]*\))*)\)", ("if (true)", "if (false)")),
    ("operator", r" \+ ", (" - ",)),
    ("operator", r" - ", (" + ",)),
    ("operator", r" \* ", (" + ", " / ")),
    ("operator", r" / ", (" * ",)),
    ("operator", r" % ", (" / ",)),
    ("operator", r" << ", (" >> ",)),
    ("operator", r" >> ", (" << ",)),
    ("operator", r" & ", (" | ",)),
    ("stride", r" \+= ", (" -= ",)),
    ("stride", r" \*= ", (" += ",)),
    ("stride", r" /= ", (" -= ",)),
    ("stride", r"(?<=\w)\+\+", (" += 2",)),
    ("stride", r"\bBLOCK\b", ("(BLOCK / 2)", "(BLOCK - 1)")),
    ("stride", r"\bITEMS\b", ("(ITEMS - 1)", "(ITEMS + 1)")),
    ("index", r"(?<=\w)\[([^\[\]]*[a-z][^\[\]]*)\]", (r"[\1 + 1]", r"[\1 - 1]")),
    ("index", r"\bthreadIdx\.x", ("blockIdx.x",)),
    ("index", r"\bblockIdx\.x", ("threadIdx.x",)),
    ("index", r"\bblockDim\.x", ("gridDim.x",)),
    ("index", r"\bgridDim\.x", ("blockDim.x",)),
    ("index", _USED.format("tid"), ("lane",)),
    ("index", _USED.format("lane"), ("tid",)),
    ("index", _USED.format("warp"), ("lane",)),
    ("room", r"(?<=\w)\[([^\[\]]+)\]", (r"[(\1) - 1]",)),
    ("identity", r"Op::identity\(\)", ("Acc{}",)),
    ("atomic", r"Op::atomic\((\w+), ([^;]+)\);", (r"*\1 = Op::combine(*\1, \2);",)),
    (
        "atomic",
        r"atomicInc\((\w+), ([^()]+)\)",
        (
            r"[=] { const unsigned old = *\1; *\1 = old >= \2 ? 0 : old + 1; return old; }()",
            r"atomicAdd(\1, 1)",
        ),
    ),
    ("atomic", r"atomic(?:Add|Max|Min)\(([^,]+), ([^;]+)\);", (r"*\1 = \2;",)),
    ("atomic", r"atomicMax", ("atomicMin",)),
    ("atomic", r"atomicMin", ("atomicMax",)),
    ("volatile", r"\bvolatile ", ("",)),
    ("volatile", r"__ldcg\(([^()]+)\)", (r"*(\1)",)),
    ("shuffle", r"__shfl_down_sync", ("__shfl_up_sync",)),
    ("order", rf"Op::combine\({_ARGUMENT}, {_ARGUMENT}\)", (r"Op::combine(\2, \1)",)),
    ("deletion", r"(?<=  )(?:\*?\w+(?:\[[^\]]*\])? = [^;]+|return)(?=;)", ("",)),
    ("width", r"\(size_t\)", ("",)),
    ("width", r"\(long long\)", ("(int)",)),
    ("width", r"\bsize_t (?=\w+ =)", ("unsigned ",)),
    ("width", r"\blong long (?=\w+ =)", ("int ",)),
)  # fmt: skip
#: Names that take each other's place where both are declared.
_LANES = ("tid", "lane", "warp")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_ORDER_KEPT = re.compile(r'^order\s*=\s*"kept"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text with one change in it, `rule` its kind, on line `line`, counted from 1."""

    rule: str
    line: int
    original: str
    text: str

    @property
    def was(self) -> str:
        """The lines that are changed, without the blanks around them."""
        return self._side("-")

    @property
    def now(self) -> str:
        """What they have become."""
        return self._side("+")

    def _side(self, sign: str) -> str:
        lines = unified_diff(self.original.splitlines(), self.text.splitlines(), n=0, lineterm="")
        found = [line[1:] for line in lines if line[0] == sign and line[:3] != 3 * sign]
        return " ".join(" ".join(found).split())


def mutants_of(text: str) -> list[Mutant]:
    """All mutants of a kernel, or of an operator, each once, in the order of its lines."""
    found: dict[str, Mutant] = {}
    for rule, start, end, new in _changes(text):
        changed = text[:start] + new + text[end:]
        line = text.count("\n", 0, start) + 1
        found.setdefault(changed, Mutant(rule, line, text, changed))
    found.pop(text, None)
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _changes(text: str) -> Iterator[tuple[str, int, int, str]]:
    code = _LEFT_ALONE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    kept = _ORDER_KEPT.search(text) is not None
    for rule, pattern, templates in _RULES:
        if rule == "order" and not kept:
            continue
        for match in re.finditer(pattern, code):
            declares = "__shared__" in _line_of(code, match.start())
            if declares != (rule == "room") and (rule in ("room", "index", "stride")):
                continue  # more room than is needed does no harm
            for new in map(match.expand, templates):
                if new not in _LANES or f" {new} = " in code:
                    yield rule, *match.span(), new
    for match in _NUMBER.finditer(code):
        if "__shared__" not in _line_of(code, match.start()):
            yield from (("number", *match.span(), new) for new in _numbers(code, match))


def _line_of(code: str, at: int) -> str:
    return code[code.rfind("\n", 0, at) + 1 : code.find("\n", at)]


def _numbers(code: str, match: re.Match[str]) -> Iterator[str]:
    """Other numbers: one off, twice and, of larger ones, half of it."""
    value = int(match[0])
    others = {value - 1, value + 1, 2 * value, *([value // 2] if value > 2 else [])} - {value}
    loops = code[: match.start()].endswith(("*= ", "/= "))
    yield from (str(new) for new in sorted(others) if new > 0 or (new == 0 and not loops))
