"""What each parameter of a kernel of others gets: as the user says it (`--arg NAME=WHAT`), else as
names, types and the kernel's text tell."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import NotUnderstood, UsageError
from cudareduce.library.body import Body
from cudareduce.library.elements import bytes_of
from cudareduce.library.matrix import is_distance
from cudareduce.library.parameters import Parameter, read_parameter
from cudareduce.library.room import EACH, Each, Room
from cudareduce.library.syntax import Function
from cudareduce.library.values import (
    COUNT,
    INTEGERS,
    REALS,
    ROWS,
    is_value_behind,
    is_whole,
    leads_to_value,
    of_values,
)
from cudareduce.reduction.sizes import parse_size

#: Nobody gives a kernel more memory beside its input, in bytes.
_MOST_ROOM = 2**28
_OUTPUT = re.compile(
    r"^(?:[dg]_?)?(?:o|out|dst|dest|res|result|y|sum|partial)|_(?:out|dst|dest)$", re.IGNORECASE
)
_SCRATCH = re.compile(
    r"part(?!ic)|scratch|te?mp|work|buf|inter|aux|block_?(?:sum|res)", re.IGNORECASE
)
_COUNTER = re.compile(
    r"count|ticket|arriv|done|finish|flag|(?<!b)lock|mutex|sem|retire|barrier|sync|ready|^turn",
    re.IGNORECASE,
)
_LOCK = re.compile(r"(?<!b)lock|mutex|sem", re.IGNORECASE)
#: What the places of extremes are called, which are written beside these.
_PLACE = re.compile(r"idx|ind(?:ex|ices)|arg|pos|loc|place|where", re.IGNORECASE)
#: The same where they are written as real numbers, as values are.
_PLACE_IN_REALS = re.compile(r"(?:[dg]_?)?(?:arg|idx|index|pos|loc)(?![a-z])", re.IGNORECASE)
#: What counters and locks are changed with, and no sum.
_EXCHANGES = frozenset(["atomicInc", "atomicDec", "atomicCAS", "atomicExch"])


@dataclass(frozen=True, slots=True)
class Argument:
    """What the user says that a parameter gets: that of this name, of the kernel of this name or,
    where it is empty, of all that have it."""

    kernel: str
    name: str
    what: str

    def means(self, kernel: str) -> bool:
        """Whether it is said of a kernel, whatever namespaces are named."""
        return not self.kernel or f"::{kernel}".endswith(f"::{self.kernel}")


def read_argument(text: str) -> Argument:
    """`NAME=WHAT` or `KERNEL.NAME=WHAT`, taken apart; a UsageError if it is neither, or no amount
    of memory."""
    before, equals, what = text.partition("=")
    kernel, _, name = before.strip().rpartition(".")
    if not equals or not name or not what.strip():
        raise UsageError(f"--arg {text} is not NAME=WHAT: write as in --arg counter=zeroed:4")
    found = Argument(kernel.removeprefix("::"), name, what.strip())
    kind, colon, amount = found.what.partition(":")
    if kind in ("zeroed", "scratch") and amount[:1] != ":":
        _amount(text, amount if colon else "")
    return found


def check(path: Path, functions: Sequence[Function], says: Sequence[Argument]) -> None:
    """Raise UsageError if something is said of a parameter that none of the kernels has."""
    for one in says:
        kernels = [function for function in functions if one.means(function.name)]
        names = [read_parameter(text).name for kernel in kernels for text in kernel.parameters]
        if one.name not in names:
            whose = "it has" if len(kernels) == 1 else "there are"
            known = ", ".join(dict.fromkeys(names)) or ", ".join(f.name for f in functions)
            what = f"parameter {one.name}" if kernels else f"kernel {one.kernel}"
            raise UsageError(f"{path}: --arg: there is no {what}; {whose}: {known}")


def _amount(text: str, amount: str) -> int | Each:
    """Bytes, or what there is an element for each of."""
    each: Each | None = next((word for word in EACH if word == amount), None)
    if each is not None:
        return each
    try:
        size = parse_size(amount)
    except UsageError:
        size = 0
    if 1 <= size <= _MOST_ROOM:
        return size
    raise UsageError(
        f"--arg {text} asks for no amount of memory: write bytes behind the colon, from 1 to "
        f"{_MOST_ROOM}, or an element for each block (grid), thread (threads) or input (n)"
    )


def room_of(parameter: Parameter, what: str, template: Sequence[str]) -> Room | None:
    """The memory that a parameter gets; None if it gets something else. Raises UsageError where
    the size of what it points to is not known."""
    kind, _, amount = ("scratch:grid" if what == "out2" else what).partition(":")
    if kind not in ("zeroed", "scratch") or amount[:1] == ":":
        return None
    size = _amount(f"{parameter.name}={what}", amount)
    if isinstance(size, int):
        return Room(parameter.name, size, None, kind == "zeroed")
    element = bytes_of(parameter.type, template)
    if element is None:
        raise UsageError(
            f"how many bytes {parameter.type} has is not known: say how many {parameter.name} "
            f"points to, as in --arg {parameter.name}={kind}:4096"
        )
    return Room(parameter.name, element, size, kind == "zeroed", what == "out2")


def _guessed(
    parameters: Sequence[Parameter], given: Mapping[str, str], body: Body
) -> dict[str, str]:
    """What each parameter gets that is not `given` yet, by name, in the words of `--arg`; those
    that are not understood are left out."""
    left = [p for p in parameters if p.name not in given and not p.odd]
    behind = [p for p in parameters if is_value_behind(p, body)]
    memory = [p for p in parameters if (p.points or p.refers or p.stars) and p not in behind]
    if len(memory) == 1 and memory[0] in left and memory[0].points and memory[0].writes:
        alone = {memory[0].name: "in"}  # which then holds the answer, too
        values = [p for p in left if p not in memory]
        return alone | of_values(values, {**given, **alone}, body)
    pointers = [p for p in left if (p.points or p.writes) and p not in behind]
    values = [p for p in left if p not in pointers and (p in behind or not p.stars)]
    return _of_pointers(pointers, set(given.values()), body) | of_values(values, given, body)


def _of_pointers(left: list[Parameter], taken: set[str], body: Body) -> dict[str, str]:
    """What is const, or never written to, is read. Beside an output there may be counters, locks,
    partials and, where nothing is read again, other answers. Where the text does not tell, names
    do, and else the order. What the text does not have leads nowhere."""
    used = [p for p in left if body.has(p.name)]
    found = {p.name: "nullptr" for p in left if p.points and p not in used and len(used) > 1}
    left = [p for p in left if p.name not in found]
    changed = [p for p in left if p.writes and (p.refers or body.changes(p.name))]
    writers = changed or [p for p in left if p.writes]
    writers += [p for p in left if p.writes and p not in writers and _counts(p, body)]
    readers = [p for p in left if p not in writers]
    if "in" not in taken:
        if not readers and len(writers) > ("out" not in taken):
            readers = [_input(writers)]
            writers.remove(readers[0])
        found |= {p.name: "in" for p in readers[:1]}
        if len(readers) == 2 and readers[0].type == readers[1].type and readers[1].points:
            found[readers[1].name] = "in2"
    counters = [p for p in writers if _counts(p, body) and not _is_answer(p, body)]
    if len(counters) == len(writers) and "out" not in taken:
        counters = counters[1:]
    for p in counters:
        found[p.name] = f"zeroed:{body.each(p.name) or bytes_of(p.type, ())}"
    writers = [p for p in writers if p not in counters]
    if "out" not in taken and writers:
        values = [p for p in writers if not (_PLACE.search(p.name) and INTEGERS.match(p.type))]
        plain = [p for p in values if not _SCRATCH.search(p.name)] or values or writers
        plain = [p for p in plain if not _COUNTER.search(p.name)] or plain
        out = next((p for p in plain if _OUTPUT.search(p.name)), plain[0])
        found[out.name] = "out"
        writers.remove(out)
    real = any(REALS.match(p.type) for p in left if found.get(p.name) == "out")
    places = [p for p in writers if INTEGERS.match(p.type) and (real or _PLACE.search(p.name))]
    places += [p for p in writers if real and p not in places and _PLACE_IN_REALS.match(p.name)]
    found |= {p.name: "out2" for p in places if "out" in (*found.values(), *taken)}
    partials = [p for p in writers if _SCRATCH.search(p.name) and p not in places]
    found |= {p.name: f"scratch:{body.each(p.name) or 'grid'}" for p in partials}
    answers = [p for p in writers if p.name not in found and body.only_changes(p.name)]
    return found | {p.name: "out2" for p in answers if body.each(p.name) != "threads"}


def _input(pointers: Sequence[Parameter]) -> Parameter:
    """The one that is read of pointers that may all be written to."""
    words = (_OUTPUT, _SCRATCH, _COUNTER)
    named = [p for p in pointers if not any(w.search(p.name) for w in words) and p.points]
    if named or len(pointers) != 2:
        return (named or list(pointers))[0]
    first, second = pointers
    swapped = _OUTPUT.search(first.name) and not _OUTPUT.search(second.name)
    return second if swapped else first


def _counts(parameter: Parameter, body: Body) -> bool:
    """Whether blocks count their arrivals there, or lock others out."""
    named = bool(_COUNTER.search(parameter.name)) or bool(body.atomics(parameter.name) & _EXCHANGES)
    return named and INTEGERS.match(parameter.type) is not None


def _is_answer(parameter: Parameter, body: Body) -> bool:
    """Whether what is called a count is one that the kernel finds: no block asks for it again."""
    asked = "volatile" in parameter.text or body.atomics(parameter.name) & _EXCHANGES
    return not asked and body.only_changes(parameter.name)


def locks(parameter: Parameter, body: Body) -> bool:
    """Whether it is a lock that guards the answer."""
    return bool(_LOCK.search(parameter.name)) or "atomicCAS" in body.atomics(parameter.name)


def what_each_gets(
    path: Path, function: Function, parameters: Sequence[Parameter], body: Body,
    own: Mapping[str, int], shares: Mapping[str, str], says: Sequence[Argument],
) -> dict[str, str]:  # fmt: skip
    """What each parameter gets, by its name, in the words of `--arg`, given the numbers of the
    file's `own` launches, the `shares` of a count that these reckon, and what the user `says`.
    Raises UsageError where that is not understood, nothing is read or nothing is written."""
    said = {s.name: s.what for s in says if s.means(function.name)}
    gets = {p.name: said[p.name] for p in parameters if p.name in said}
    counted = "n" in gets.values()  # then nothing else is a share of what the launches count
    gets = {k: v for k, v in shares.items() if not (counted and "n" in v)} | gets
    gets |= _guessed(parameters, gets, body)
    values = (p.name for p in parameters if not (p.stars or p.refers or p.odd))
    known = (name for name in values if name not in gets and name in own)
    gets |= {name: str(own[name]) for name in known if not is_distance(body, name)}
    shown = f"{path}: {function.name}({', '.join(function.parameters)}) cannot be called"
    open_ = {name: what for name, what in said.items() if not what.isdigit()}
    counts = [name for name, what in _guessed(parameters, open_, body).items() if what == "n"]
    if "n" not in gets.values() and counts and counts[0] in said:
        raise UsageError(
            f"{shown}: {counts[0]} counts its elements: leave out its --arg, and say how many with "
            f"--n {said[counts[0]]} --sizes-only"
        )
    for p in parameters:
        what = said.get(p.name, "")
        memory = what in ("in", "in2", "out", "out2") or what.startswith(("zeroed:", "scratch:"))
        if memory and not (p.points or p.refers):
            raise UsageError(f"{shown}: {p.name} is no pointer, so it cannot get {what}")
    if not any(p.points or p.refers for p in parameters):
        raise UsageError(
            f"{shown}: none of its parameters is a pointer, and what a structure holds is not "
            "understood: let it take pointers, or give the file a header"
        )
    unknown = [p for p in parameters if p.name not in gets]
    if unknown:
        names = [p.name or "a parameter without a name" for p in unknown]
        likely = [f"--arg {p.name or 'NAME'}={_likely(p, gets, body)}" for p in unknown]
        raise NotUnderstood(
            f"{shown}: it is not understood what {' and '.join(names)} "
            f"get{'s' * (len(unknown) == 1)}; say it, as in {' '.join(likely)}",
            unknown[0].name if len(unknown) == 1 and is_whole(unknown[0]) else "",
        )
    _check_roles(shown, parameters, gets, said, body)
    return gets


def _check_roles(
    shown: str, parameters: Sequence[Parameter], gets: Mapping[str, str], said: Collection[str],
    body: Body,
) -> None:  # fmt: skip
    """A UsageError if nothing is read or nothing is written."""
    pointers = [p for p in parameters
                if (p.points or p.refers) and not leads_to_value(p, gets[p.name])]  # fmt: skip
    in_place = [gets[p.name] for p in pointers] == ["in"] and pointers[0].writes
    if in_place and pointers[0].name not in said and body.only_changes(pointers[0].name):
        raise UsageError(f"{shown}: it reads nothing that it is given: give the file a header")
    for what, does in (("in", "reads"), ("out", "writes")):
        if what not in gets.values() and not (in_place and what == "out"):
            raise UsageError(
                f"{shown}: none of its parameters is a pointer to what it {does}; where one is, "
                f"say --arg NAME={what}, else give the file a header"
            )


def _likely(parameter: Parameter, gets: Mapping[str, str], body: Body) -> str:
    """What a parameter might get that is not understood."""
    if parameter.writes and (parameter.refers or body.changes(parameter.name)):
        return "out2" if "out" in gets.values() else "out"
    if parameter.points:
        return "in2" if "in" in gets.values() else "in"
    if COUNT.search(parameter.name) or ROWS.match(parameter.name):
        return "rows" if "n" in gets.values() else "n"
    if body.factors(parameter.name) and bytes_of(parameter.type, ()):
        return "1"
    kinds = {"bool": "false", "float": "1.0f", "double": "1.0"}
    return kinds.get(parameter.type, "0" if bytes_of(parameter.type, ()) else "{}")
