"""What is guessed of a file without a header: another guess is tried before the first counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from cudareduce.bench.cases import case
from cudareduce.bench.conditions import asking_most, decidable, in_another_grid, is_undecided
from cudareduce.bench.session import Session
from cudareduce.bench.tries import budget
from cudareduce.errors import UsageError
from cudareduce.external.bare import command_to_copy
from cudareduce.launch.case import Case
from cudareduce.library.asking import finish_once
from cudareduce.library.combined import bits_in, ops_in
from cudareduce.library.combining import goes_on
from cudareduce.library.guesses import Guesses
from cudareduce.library.kernel import Kernel
from cudareduce.library.mapped import likely_maps
from cudareduce.library.reading import read_source
from cudareduce.library.registry import Choice
from cudareduce.progress import say
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.reduction.operators import OPERATORS, Map
from cudareduce.verify.test_sets import launch_test_set
from cudareduce.verify.verdict import Verdict

#: So many other guesses are tried, each of which is compiled.
_MOST_OTHERS = 12
#: So many seconds all guesses of a run are tried for.
_SETTLED_S = 20.0
#: What is written is the root of something.
_TAKES_ROOT = re.compile(r"(?<![=!<>])=\s*(?:std::)?(?:__f)?sqrt\w*\s*\(")
#: What follows may yet find more.
_TRY = "on a first try"


def settled(session: Session, choices: Sequence[Choice], quiet: bool) -> list[Choice]:
    """The choices, of those whose grid, block, items, operator, map or size is a guess with what
    gives right answers; where that is not the first, it is said."""
    found: list[Choice] = []
    left_out: list[str] = []
    deadline = budget(max(_SETTLED_S, session.settings.time_limit_s or 0))
    for k, whole in enumerate(choices):
        with session.tries.one_of(len(choices) - k, deadline):
            given = _given(session, whole, quiet)
            parts = [] if given is None else _apart(session, given, quiet)
            found += [_settled(session, p, quiet) if p.kernel.guessed else p for p in parts]
            left_out += [_why_not_given(whole.kernel)] if given is None else []
    if left_out and not found:
        raise UsageError("; ".join(left_out))
    for why in left_out:
        say(f"{why}: left out", quiet)
    return found


def _given(session: Session, choice: Choice, quiet: bool) -> Choice | None:
    """The choice; one that is given a number that nobody has said with the value that is right or,
    where that was not understood, none at all."""
    meant, understood = choice.kernel.meant, not choice.kernel.change
    if not meant or (understood and _is_right(session, choice) is not False):
        return choice
    other = [_in_block(kernel, block) for kernel in meant for block in kernel.other_blocks]
    mapped = [_mapping(k, k.other_maps[0]) for k in meant if k.other_maps]
    mapped = [] if _says_map(session) else mapped
    meant = tuple(one for kernel in meant for one in (kernel, *_as_others(kernel)))
    tried = [(k, asking) for asking in (None, asking_most, _asking_most) for k in meant]
    for kernel, asking in (*tried, *((k, None) for k in (*mapped, *other))):
        second = replace(choice, kernel=kernel)
        if _is_right(session, second, asking):
            say(
                f"{kernel.path}: nobody says what {kernel.change.partition('=')[0]} is, and "
                f"{kernel.id} is {_TRY} right with {kernel.change}{_of(kernel)}: --arg says which",
                quiet,
            )
            return second
    return choice if understood else None


def _says_map(session: Session) -> bool:
    """Whether the user has said what is made of elements."""
    return any(reduction.map for reduction in session.settings.reductions)


def _mapping(kernel: Kernel, mapped: Map) -> Kernel:
    """A kernel that forms this of its elements; launched again on its partials it would map them,
    too."""
    own = kernel.map
    mapped = replace(mapped, one_row=own.one_row) if own else mapped
    return replace(kernel, map=mapped, finish=finish_once(kernel))


def _of(kernel: Kernel) -> str:
    return f" of {kernel.map.expression}" if kernel.map else ""


def _why_not_given(kernel: Kernel) -> str:
    """Why a kernel is left out, none of the values of what nobody has said being right."""
    name = kernel.change.partition("=")[0]
    values = ", ".join(one.change.partition("=")[2] for one in kernel.meant)
    called = kernel.title.partition(" of ")[0]
    says = Guesses(entries=(called,), block=kernel.block)
    command = command_to_copy(kernel.path, read_source(kernel.path), says)
    return (
        f"{kernel.path}: {called} cannot be called: it is not understood what {name} gets, and "
        f"with {values} its answers are wrong; say it with --arg {name}=VALUE"
        + (f", as in: {command}" if command else "")
    )


def _settled(session: Session, choice: Choice, quiet: bool) -> Choice:
    """What is right, or takes too long to say, is left as it is."""
    wrong = _is_right(session, choice) is False
    for settle in (_grid, _meant, _one_tile):
        second = settle(session, choice, quiet=quiet) if wrong else choice
        if second is not choice:
            choice, wrong = second, _is_right(session, second) is False
    if wrong:
        _tell_another(choice.kernel, quiet)
    return choice


def _tell_another(kernel: Kernel, quiet: bool) -> None:
    """Say how to verify what combines bits, or takes a root, which no operator does."""
    sign = bits_in(kernel.text)
    if _TAKES_ROOT.search(kernel.text):
        say(
            f"{kernel.path}: {kernel.id} takes a square root; if that is of its answer, as a norm "
            "is, let it write what the root is of, which --map 'a * a' verifies",
            quiet,
        )
    if sign and DTYPES[kernel.dtypes[0]].kind in ("int", "uint"):
        neutral, dtype = -1 if sign == "&" else 0, kernel.dtypes[0]
        say(
            f"{kernel.path}: {kernel.id} is no {OPERATORS[kernel.ops[0]].title}; if it combines "
            f"bits, --op-expr 'a {sign} b' --identity={neutral} --dtype {dtype} verifies that",
            quiet,
        )


def _apart(session: Session, choice: Choice, quiet: bool) -> list[Choice]:
    """Of a chain that is a guess, and wrong, its kernels as rows of their own if one is right."""
    kernel = choice.kernel
    refused = kernel.apart and _case(session, choice)[1] is not None
    if not kernel.apart or (not refused and _is_right(session, choice) is not False):
        return [choice]
    parts = [replace(choice, kernel=part) for part in kernel.apart]
    if not any(_may_be_right(session, part) for part in parts):
        return [choice]
    say(
        f"{kernel.path}: {kernel.id} is wrong as one row, and not all of its kernels are alone, so "
        "each is a row: --chain says otherwise",
        quiet,
    )
    return parts


def _may_be_right(session: Session, choice: Choice) -> bool:
    """Whether a kernel is right as it is taken for, or as what its text may be meant for."""
    right = _is_right(session, choice)
    second = _meant(session, choice, quiet=True) if right is False else choice
    return bool(right if second is choice else _is_right(session, second))


def _meant(session: Session, choice: Choice, *, quiet: bool) -> Choice:
    """Of a kernel that is wrong as a sum of elements in its block, even if its input is all that it
    may ask for, what its text may be meant for instead, if that is right."""
    for asking in (None, _asking_most):
        if asking and _is_right(session, choice, asking):
            return choice
        for second in islice(_others(session, choice), _MOST_OTHERS):
            if _is_right(session, second, asking):
                say(_changed(choice.kernel, second.kernel), quiet)
                return second
    return choice


def _asking_most(session: Session, case: Case) -> Case:
    """The case asking of its input all that it may ask: if it has one block, no more than that
    takes at once."""
    tile = case.block * case.items
    if _has_one_block(case.kernel) and not case.asks.sizes and not case.kernel.whole_tiles:
        asks = replace(case.kernel.asks, sizes=(tile,))
        return replace(case, kernel=replace(case.kernel, asks=asks))
    return asking_most(session, case)


def _has_one_block(kernel: Kernel) -> bool:
    return kernel.grid == "one" or (kernel.fixed_grid == 1 and kernel.exactly)


def _others(session: Session, choice: Choice) -> Iterator[Choice]:
    """A choice with another operator, map, block or number of items, as far as nobody has said
    them; what changes least comes first."""
    kernel = choice.kernel
    open_ = kernel.guessed or ()
    two = kernel.map.inputs if kernel.map else 1
    likely = likely_maps(kernel.other_maps, kernel.text, two)
    maps = likely if "map" in open_ and not _says_map(session) else []
    kernels = [kernel, *_as_others(kernel)]
    kernels += [_mapping(k, mapped) for mapped in maps for k in tuple(kernels)]
    yield from (replace(choice, kernel=other) for other in kernels[1:])
    for items in kernel.other_items:
        yield replace(choice, kernel=replace(kernel, items=items))
    for block in kernel.other_blocks:
        yield from (replace(choice, kernel=_in_block(other, block)) for other in kernels)


def _as_others(kernel: Kernel) -> list[Kernel]:
    """A kernel by each operator that its text has, where nobody has said which."""
    ops = ops_in(kernel.text) if len(kernel.ops) > 1 else ()
    return [replace(kernel, ops=(op,)) for op in ops]


def _in_block(kernel: Kernel, block: int) -> Kernel:
    """A kernel in another block, whose threads have as much dynamic shared memory each."""
    shared = kernel.dynamic_shared
    if "shared" in (kernel.guessed or ()) and isinstance(shared, int):
        shared = shared * block // kernel.block
    return replace(
        kernel, block=block, blocks=(block,), dynamic_shared=shared,
        asks=replace(kernel.asks, block=block),
    )  # fmt: skip


def _changed(old: Kernel, new: Kernel) -> str:
    """What a kernel is taken for instead of what was said before."""
    does, options = [], []
    if new.ops != old.ops:
        does, options = [f"as the {OPERATORS[new.ops[0]].title}"], ["--op"]
    if new.map != old.map and new.map:
        does, options = [*does, f"of {new.map.expression}"], [*options, "--map"]
    if new.block != old.block:
        does, options = [*does, f"in blocks of {new.block}"], [*options, "--block"]
    if new.items != old.items:
        does, options = [*does, f"with {new.items} elements a thread"], [*options, "--items"]
    return (
        f"{old.path}: its answers are wrong as was assumed, and {_TRY} right {' '.join(does)}, so "
        f"{old.id} is taken for that: {', '.join(options)} say{'s' * (len(options) == 1)} which"
    )


def _one_tile(session: Session, choice: Choice, *, quiet: bool) -> Choice:
    """Of a kernel that has one block, and is wrong unless that takes all elements at once, what
    takes no more than those, if it does not mean to."""
    kernel = choice.kernel
    if not kernel.guessed or not _has_one_block(kernel) or kernel.whole_tiles:
        return choice
    if goes_on(kernel.text):
        return choice
    block = session.settings.block or kernel.block
    most = block * (session.settings.items or kernel.items)
    asks = replace(kernel.asks, most=min(most, kernel.asks.most or most))
    second = replace(choice, kernel=replace(kernel, asks=asks))
    if not _is_right(session, second):
        return choice
    say(
        f"{kernel.path}: its one block is wrong about more than {most} elements, and {_TRY} right "
        "up to them, so it is given no more: --block and --items say how many",
        quiet,
    )
    return second


def _grid(session: Session, choice: Choice, *, quiet: bool) -> Choice:
    """Of a kernel that is wrong in its grid, and right in another one, the latter."""
    kernel = choice.kernel
    other = in_another_grid(kernel)
    second = choice if other is None else replace(choice, kernel=other)
    if other is None or not _is_right(session, second):
        return choice
    say(
        f"{kernel.path}: with grid {kernel.grid} its answers are wrong, with grid {other.grid} "
        f"they are {_TRY} right, so it is launched with that: --grid says which",
        quiet,
    )
    return second


def _case(session: Session, choice: Choice) -> tuple[Case, Verdict | None]:
    """The case of a choice, and why it cannot be launched, if it cannot."""
    return case(session, choice, next(iter(session.settings.shares([choice]))))


def _is_right(
    session: Session, choice: Choice, asking: Callable[[Session, Case], Case] | None = None
) -> bool | None:
    """Whether a launch on a few blocks gives right answers, of a case that is `asking` more of its
    input; None where that is not to be had."""
    found, refused = _case(session, choice)
    if refused is not None or session.jobs.emulator is None:
        return None
    found = asking(session, found) if asking else found
    verdict = session.tries.verdict(found, [launch_test_set(found)])
    if verdict is not None and is_undecided(found, verdict):
        found = decidable(found)
        verdict = session.tries.verdict(found, [launch_test_set(found)])
    return None if verdict is None or verdict.outcome == "skip" else verdict.outcome == "pass"
