"""How a kernel that was not written for this tool is called: what its parameters and its template
parameters get, and what becomes of what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.library.arguments import Argument, locks, room_of, what_each_gets
from cudareduce.library.body import Body
from cudareduce.library.elements import bytes_of, packed
from cudareduce.library.functors import Helpers
from cudareduce.library.header import Finish, RowGrid
from cudareduce.library.matrix import SHAPE
from cudareduce.library.parameters import Parameter, read_parameter
from cudareduce.library.plane import counts_of
from cudareduce.library.reckoned import COUNT
from cudareduce.library.refused import Roles, is_one_row, why_no_reduction
from cudareduce.library.retold import count_of_rows, otherwise
from cudareduce.library.room import Room
from cudareduce.library.row_index import PLANE, is_upright, read_rows, takes_turns
from cudareduce.library.syntax import Function, names_in
from cudareduce.library.template import acting, template_arguments
from cudareduce.library.thread_partials import is_of_threads
from cudareduce.library.values import leads_to_value

#: Nobody writes more; each takes a moment.
_MOST_PARAMETERS = 100
#: Whoever writes one of these lets the blocks of a grid wait for one another, or the last of them
#: do the rest.
_MEETS = frozenset(["__threadfence", "atomicInc", "this_grid"])
#: Whoever writes none of these has one block do all of the work.
_MANY_BLOCKS = frozenset(["blockIdx", "gridDim", "this_grid"])

_NO_HELPERS = Helpers()


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its template arguments, and what it is given; `template` are its template
    arguments where nobody has said them.

    `arguments` are the words of a call from an entry point with `in`, perhaps `other`, `out`, `n`,
    perhaps `rows`, and a pointer for each of `rooms`, memory besides; `said` tells of them but for
    `read`, `other`, a second array, `write` and `count`, in the words of `--arg`. One that has no
    pointer but the one it reads leaves its answer in the first element there. `counted` says that
    it is told how much there is, `rows` how many blocks rows get, None where there is one array,
    `waits` that its blocks wait for one another: for all of them or for a lock, `alone` that it is
    the work of one block, `plane` that it counts its threads in two dimensions, `upright` that it
    finds its row by the second dimension of its grid, `matrix` that it makes one answer of all
    rows, `columns` that it reads a matrix by columns, `one_row` that of the second array there is
    but one, the same beside all of them, `square` that one count is that of rows and of their
    elements, `turns` that its blocks go on to further rows, as many blocks on as there are, `lanes`
    that a block takes 32 columns, `of_threads` that each thread leaves a partial.
    """

    text: str
    template: tuple[str, ...]
    read: Parameter
    other: Parameter | None
    write: Parameter
    count: Parameter | None
    counted: bool
    rows: RowGrid | None
    rooms: tuple[Room, ...]
    said: tuple[str, ...]
    arguments: str
    finish: Finish | None
    waits: bool
    alone: bool
    plane: bool
    upright: bool
    matrix: bool
    columns: bool
    one_row: bool
    square: bool
    turns: bool
    lanes: bool
    parameters: tuple[Parameter, ...]
    of_threads: bool

    @property
    def places(self) -> tuple[int, int | None, int | None]:
        """Which of its parameters it reads, writes and counts with; None for one that is none."""
        at = {p: k for k, p in enumerate(self.parameters)}
        return at[self.read], at.get(self.write), at[self.count] if self.count else None

    @property
    def count_type(self) -> str:
        """The type of its count, of a matrix that of its index; empty if it has none."""
        return self.count.type if self.count else "int" if self.matrix else ""

    @property
    def adds(self) -> bool:
        """Whether it adds to partials of blocks, which are the identity before."""
        return self.finish == "host" and not self.of_threads

    @property
    def outside(self) -> Parameter | None:
        """The variable of its file that it writes to, if it does."""
        return None if self.write in self.parameters else self.write

    @property
    def chosen(self) -> tuple[str, ...]:
        """What it is given in words of its file: operators among others."""
        return (*self.template, *(words.partition("=")[2] for words in self.said))

    @property
    def answers_in_place(self) -> bool:
        """Whether its answer takes the place of an element."""
        return self.read == self.write

    def takes(self, *, finds: bool) -> str:
        """The parameters of an entry point; of one that `finds` a place in each row, in 32 bits,
        those come last."""
        out, places = ("answers", ["void *out"]) if finds and self.rows else ("out", [])
        second, rows = ["const In *other"] * bool(self.other), ["size_t rows"] * bool(self.rows)
        rooms = (f"void *room{k}" for k in range(len(self.rooms)))
        return ", ".join(
            ("const In *in", *second, f"Out *{out}", "size_t n", *rows, *rooms, *places)
        )


def called(
    path: Path, function: Function, given: str, own: Mapping[str, int],
    says: Sequence[Argument] = (), helpers: Helpers = _NO_HELPERS,
    shares: Mapping[str, str] | None = None,
) -> Call:  # fmt: skip
    """How a kernel is called, with the template arguments that are `given`, or with the numbers of
    the file's `own` launches and the `shares` that these reckon, by the names of parameters, and
    what the user `says` of them; `helpers` are what the file has besides. Raises UsageError if one
    is not understood."""
    _check_named(path, function, given)
    parameters = [read_parameter(text) for text in (*function.parameters, function.outside) if text]
    body = Body(function.body, helpers.atomic, helpers.macros)
    acts = acting(function, parameters, body, helpers.functor)
    known = {**helpers.enums, **{name: "{}" for pair in acts.items() if all(pair) for name in pair}}
    matrix = _of_matrix(body, parameters, says)
    known_types = (Argument("", p.name, known[p.type]) for p in parameters if p.type in known)
    says = (*known_types, *matrix, *says)
    gets = what_each_gets(path, function, parameters, body, own, shares or {}, says)
    by_what = {gets[p.name]: p for p in reversed(parameters)}
    read, other, count = by_what["in"], by_what.get("in2"), by_what.get("n")
    write = by_what.get("out", read)
    told = _named_in_values(parameters, gets)
    found = read_rows(
        path, function, body, count, count_of_rows(parameters, gets, body),
        [p for p in parameters if gets[p.name] == "n"], many="rows" in told,
    )  # fmt: skip
    rows, roles = found.grid, (read, other, write)
    if rows and (more := otherwise(body, found, roles, count, parameters, gets, says)):
        return called(path, function, given, own, (*says, *more), helpers, shares)
    _check_reduces(path, function, body, roles, rows, count)
    to = parameters[: len(function.parameters)]
    rooms, words = _words(function, to, _of_packs(gets, read, count, body))
    guards = [locks(p, body) for p in parameters if gets[p.name].startswith("zeroed:")]
    each, finish = _finish(function.body, body, roles, rows, guards)
    acts |= helpers.enums
    template = () if given else template_arguments(path, function, body, own, acts)
    return Call(
        text=function.name + (given or (f"<{', '.join(template)}>" if template else "")),
        template=template, read=read, other=other, write=write, count=count, counted="n" in told,
        rows=rows, rooms=rooms, arguments=", ".join(words),
        said=tuple(f"{p.name}={gets[p.name].replace(COUNT, 'n')}"
                   for p in parameters if p not in (*roles, count)),
        finish="none" if read == write else finish,
        waits="this_grid" in body.words or any(guards),
        alone=(each or finish in ("none", "atomic")) and not body.words & _MANY_BLOCKS,
        plane=bool(body.words & PLANE), square=found.square, of_threads=each, lanes=found.lanes,
        one_row=bool(rows and other and is_one_row(body, other)), columns=found.columns,
        upright=bool(matrix) or is_upright(found.index), matrix=SHAPE[0] in gets.values(),
        turns=takes_turns(found.index), parameters=tuple(to),
    )  # fmt: skip


def _of_matrix(
    body: Body, parameters: Sequence[Parameter], says: Sequence[Argument]
) -> tuple[Argument, ...]:
    """What the counts of a matrix of one answer get, where the user says neither; none if it is
    something else."""
    counts = counts_of(body, parameters)
    if counts is None or {*counts} & {one.name for one in says}:
        return ()
    return tuple(Argument("", name, what) for name, what in zip(counts, SHAPE, strict=True))


def _named_in_values(parameters: Sequence[Parameter], gets: Mapping[str, str]) -> set[str]:
    """The names that stand in what parameters get that is no memory."""
    values = [gets[p.name] for p in parameters
              if not p.points or leads_to_value(p, gets[p.name])]  # fmt: skip
    return {name for what in values for name in names_in(f"int x = {what};")}


def _check_named(path: Path, function: Function, given: str) -> None:
    """A UsageError for arguments of what is no template, and for more parameters than people
    write."""
    if len(function.parameters) > _MOST_PARAMETERS:
        raise UsageError(
            f"{path}: {function.name} has more than {_MOST_PARAMETERS} parameters: give the file a "
            "header instead"
        )
    if given and not function.template:
        raise UsageError(f"{path}: {function.name} is no template: say --entry {function.name}")


def _check_reduces(
    path: Path, function: Function, body: Body, roles: Roles, rows: RowGrid | None,
    count: Parameter | None,
) -> None:  # fmt: skip
    """A UsageError if it is no reduction."""
    why_not = why_no_reduction(function, body, roles, rows, count)
    if why_not:
        raise UsageError(f"{path}: {function.name} {why_not}: --entry picks others")


def _of_packs(
    gets: Mapping[str, str], read: Parameter, count: Parameter | None, body: Body
) -> Mapping[str, str]:
    """What each parameter gets, where how far apart rows are is told in bytes, and the count of a
    kernel that reads several elements at once is that of such packs, unless its text divides it by
    their number."""
    counts = (name for name, what in gets.items() if what in ("n", "rows") and body.in_bytes(name))
    gets = {**gets, **{name: f"{gets[name]} * sizeof(In)" for name in counts}}
    packs = packed(read.type)
    if count is None or packs == 1 or body.divides(count.name):
        return gets
    return {**gets, count.name: f"n / {packs}"}


def _words(
    function: Function, parameters: Sequence[Parameter], gets: Mapping[str, str]
) -> tuple[tuple[Room, ...], list[str]]:
    """Memory besides, and what each parameter is given in the words of a call."""
    rooms: list[Room] = []
    words = []
    for p in parameters:
        room = room_of(p, gets[p.name], function.template_names)
        words.append(_argument(p, gets[p.name], len(rooms) if room else None, function))
        rooms += [room] if room else []
    return tuple(rooms), words


def _argument(parameter: Parameter, what: str, room: int | None, function: Function) -> str:
    """What is written between the commas of the call. A pointer gets its own type, since `long` and
    `long long` are two even where they are as wide; that of a template parameter is the element's.
    A value is converted where its type is a number's: others are told by their own braces."""
    own = function.template_names
    if leads_to_value(parameter, what):  # of one that is there until the call ends
        kind = parameter.type
        return f"({kind} *)&static_cast<const {kind} &>(({kind})({what}))"
    pointer = what in ("in", "in2", "out") or room is not None
    if pointer or parameter.points:
        value = {"in2": "other"}.get(what, what) if room is None else f"room{room}"
        element = {"out": "Out"}.get(what, "In") if parameter.type in own else parameter.type
        value = f"({element} {'*' * max(1, parameter.stars)}){value if pointer else f'({what})'}"
        return f"*{value}" if parameter.refers else value
    number = bytes_of(parameter.type, ()) is not None and not what.startswith("{")
    return f"({parameter.type})({what})" if number else what


def _finish(
    code: str, body: Body, roles: Roles, rows: RowGrid | None, guards: Sequence[bool]
) -> tuple[bool, Finish | None]:
    """Whether each thread of a kernel leaves a partial, for the host to fold; and what becomes of
    partials, where its text tells: those that atomics or a lock combine in its output, or that it
    adds to that, in a place for each block or in one, and those that its last block folds or that
    there are none of, where it writes to one place alone. None for others."""
    read, _, write = roles
    if not rows and read != write and is_of_threads(code, read.name, write.name):
        return True, "host"
    of_blocks = not rows and body.of_blocks(write.name)
    if (
        any(guards)
        or body.atomics(write.name)
        or body.adds_to(write.name, rows=bool(rows) or of_blocks)
    ):
        return False, "host" if of_blocks else "atomic"
    alone = body.changes(write.name) and not body.each(write.name)
    return False, "none" if rows or guards or alone or body.words & _MEETS else None
