"""Make kernels from an external file: record its host code, find the roles of its buffers,
identify its operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Condition
from cudareduce.catalog.front_matter import Finish
from cudareduce.catalog.kernel import Kernel
from cudareduce.catalog.program import Program, Run
from cudareduce.errors import CudareduceError, Undecided, UsageError
from cudareduce.external.identify import Identification, Identity
from cudareduce.external.options import NOTHING_REQUESTED, Requested
from cudareduce.external.program import (
    INITIAL,
    device_text,
    has_caller,
    has_scratch,
    limit_initial,
    program_of,
)
from cudareduce.external.recording import CopyIn, Fill, Launch, Pointer, Recording, Scalar, Step
from cudareduce.external.roles import Roles, Segment, possible_roles, segments
from cudareduce.external.trial import Trials, next_deadline
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.verify.verdict import is_outside_shared, is_synchronisation_fault

#: Sizes that hurt reductions: around warps and blocks, odd ones, multiples of each power of two.
SIZES = (
    1, 2, 3, 31, 32, 33, 96, 255, 256, 257, 512, 513, 700, 768, 1000, 1023, 1024, 1025, 1536, 2047,
    2049, 3072, 4096, 4097, 6144, 10007, 12288, 65536, 65537, 1000003,
)  # fmt: skip
#: Sizes that are kept of a file whose device code differs between sizes: each is compiled.
_COMPILED = (1000, 4096, 1025, 256, 65537)
#: Assignments of roles that are tried for one program.
_MOST_ROLES = 8
#: Assignments that are looked at, and fewer than these are all tried.
_MOST_ASSIGNMENTS, _FEW_ROLES = 24, 4
#: The largest number that elements are compared with.
_COMPARED = 100
#: Bytes of an element in shared memory.
_WORD = 4
#: Why a program is left out whose runs take too long.
_TOO_SLOW = (
    "cannot be identified in time: its launches take too long on the emulator, so let the file use "
    "fewer elements or blocks, or give a longer --max-time"
)
#: More results than this are not counted by running a size.
_COUNTED = 2**17


@dataclass(frozen=True, slots=True)
class Adopted:
    """The kernels of a file, and an error for each program that is left out: UsageError, or
    Undecided if time ran out."""

    kernels: tuple[Kernel, ...] = ()
    refused: tuple[CudareduceError, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sized:
    """One program of a file, recorded at all sizes. `shown` is the recording at the size in the
    file."""

    shown: Segment
    segments: tuple[Segment, ...]


def adopt(
    recordings: Sequence[Recording], cache: Path | None, requested: Requested, deadline: Deadline,
    *, nearest: bool = True,
) -> Adopted:  # fmt: skip
    """The kernels of one entry (main() or a host function) from its recordings; the first
    recording has the size in the file. A program that computes no known reduction is left out.
    With `nearest` it becomes a wrong kernel of the nearest operator instead."""
    kernels: list[Kernel] = []
    refused: list[CudareduceError] = []
    programs = list(_sized([recordings[0], *filter(_has_room(recordings[0]), recordings[1:])]))
    path = recordings[0].path
    with Trials(path, cache, deadline) as trials:
        for k, sized in enumerate(programs):
            trials.deadline = next_deadline(deadline, len(programs) - k)
            try:
                found = _Search(sized, trials, requested).kernel(cache, nearest=nearest)
            except Undecided:
                refused.append(Undecided(f"{_name(sized.shown)} {_TOO_SLOW}"))
            except UsageError as error:
                refused.append(UsageError(f"{_name(sized.shown)} does not compile: {error}"))
            else:
                if isinstance(found, Kernel):
                    kernels.append(found)
                else:
                    refused.append(found)
    return Adopted(tuple(kernels), tuple(refused))


def unwritten_parameters(
    recordings: Sequence[Recording], cache: Path | None, deadline: Deadline
) -> set[str]:
    """The pointer parameters to which a small run of the first program writes nothing; none if
    it does not run."""
    found: set[str] = set()
    for sized in islice(_sized(recordings), 1) if recordings else ():
        with Trials(recordings[0].path, cache, deadline) as trials, suppress(CudareduceError):
            left = _Search(sized, trials, NOTHING_REQUESTED).untouched()
            found = {b.parameter or "" for b in sized.shown.recording.buffers if b.id in left}
    return found


def _has_room(own: Recording) -> Callable[[Recording], bool]:
    """A filter for the recordings of a main(). If all its launches get at least a word of
    dynamic shared memory per thread at the size in the file, recordings with less are dropped:
    such a main() derives the shared memory from n and is not meant for a smaller n."""

    def least(recording: Recording) -> float:
        launches = [step for step in recording.steps if isinstance(step, Launch) and step.shared]
        return min((one.shared / prod(one.block) for one in launches), default=_WORD)

    needed = own.is_main and least(own) >= _WORD
    return lambda recording: not needed or least(recording) >= _WORD


def _sized(recordings: Sequence[Recording]) -> Iterator[_Sized]:
    """Each program of a file with its recordings at all sizes. Recordings with another number of
    programs are dropped."""
    found = [segments(recording) for recording in recordings]
    seen: set[tuple[tuple[str, ...], tuple[object, ...]]] = set()
    for k, own in enumerate(found[0]):
        alike = [some[k] for some in found if len(some) == len(found[0])]
        key = own.kernels, _arguments(own)
        if key not in seen:
            seen.add(key)
            yield _Sized(own, tuple(alike))


def _arguments(segment: Segment) -> tuple[object, ...]:
    """The arguments of all launches, with buffers numbered in order of use. Used to recognise a
    timing loop that allocates new buffers for each launch as one program."""
    numbers: dict[int, int] = {}
    return tuple(
        replace(argument, buffer=numbers.setdefault(argument.buffer, len(numbers)))
        if isinstance(argument, Pointer) and argument.buffer is not None else argument
        for launch in segment.launches for argument in launch.arguments
    )  # fmt: skip


def _name(segment: Segment) -> str:
    return ", ".join(segment.kernels)


@dataclass(frozen=True, slots=True)
class _Search:
    """Tries assignments of roles to the buffers of one program until its results fit a
    reduction. `texts` and `possible` cache device code and roles by segment."""

    sized: _Sized
    trials: Trials
    requested: Requested
    texts: dict[int, str] = field(default_factory=dict)
    possible: dict[int, list[Roles]] = field(default_factory=dict)

    @property
    def reference(self) -> Segment:
        """The program at a size near 1000. Its roles are used for all sizes."""
        return min(self.sized.segments, key=lambda s: abs((s.recording.size or 2**40) - 1000))

    def kernel(self, cache: Path | None, *, nearest: bool) -> Kernel | CudareduceError:
        """The kernel of the program, or the error for which it is left out.

        A program whose results fit no reduction is left out. With `nearest` it becomes a wrong
        kernel instead, for the first reason that applies: it is right only if its result was 0
        before; it has a fault that does not depend on the operator; its results are close to those
        of an operator.
        """
        if any(map(_takes_unknown_function, self.reference.launches)):
            why = "gets a device function that no variable holds, so it cannot be replayed"
            return UsageError(f"{_name(self.sized.shown)} {why}")
        tried: list[_Attempt] = []
        best = self._best(tried)
        if best is not None:
            attempt, identity = best
            return attempt.kernel(identity, self._second_call(attempt, identity))
        if nearest and tried:
            kernel = next(filter(None, map(self._if_set, tried)), None)
            if kernel is not None:
                return kernel
            fault = self._fault(tried[0], cache)
            for attempt in tried:
                found = attempt.identification
                near = found.requested() or found.nearest()
                if near is not None:
                    return attempt.kernel(near, fault)
            if fault:
                return tried[0].kernel(tried[0].identification.supposed(), fault)
        return self._refusal(tried)

    def _best(self, tried: list[_Attempt]) -> tuple[_Attempt, Identity] | None:
        """The attempt with the best fit; None if no results fit. All attempts are appended to
        `tried`."""
        best: tuple[_Attempt, Identity] | None = None
        reference = self.reference
        for roles in self._likely_roles():
            # Only another parameter may hold the result of partial results that were found.
            if best is not None and best[0].roles.inputs != roles.inputs:
                continue
            unknown = has_caller(reference, roles) and roles.result != roles.input
            hung = any("no end" in fault for one in tried for fault in one.identification.faults)
            initials = [initial for initial in INITIAL if initial or not hung] if unknown else [""]
            for initial in initials:
                if self.trials.deadline.passed:
                    break
                attempt = self._attempt(roles, initial)
                if attempt is None:
                    continue
                try:
                    identity = attempt.identification.identify(attempt.integers)
                except Undecided:
                    if best is None:
                        raise
                    break
                if identity is not None and (best is None or _rank(identity) > _rank(best[1])):
                    best = attempt, identity
                tried.append(attempt)
                # A counter that its caller clears may turn partial results into one.
                counted = initial == "" and has_scratch(reference, roles)
                if best is not None and _rank(best[1]) == (1, True):
                    break
                if identity is not None and identity.fit == 1 and not counted:
                    break
            # Another buffer that an unknown caller gives may hold the finished result.
            others = has_scratch(reference, roles) and not reference.reads
            if best is not None and (_rank(best[1]) == (1, True) or not others):
                break
        return best

    def _refusal(self, tried: Sequence[_Attempt]) -> CudareduceError:
        name = _name(self.sized.shown)
        if self.trials.deadline.passed:
            return Undecided(f"{name} {_TOO_SLOW}")
        if not tried:
            types = sorted({p.element for p, _ in self.reference.pointers()} - {""})
            memory = f"reads and writes {', '.join(types)}" if types else "gets no pointer"
            return UsageError(f"{name} {memory}, so its input is not known")
        faults = [one.identification.faults[:1] for one in tried]
        if all(faults):
            return UsageError(f"{name} cannot be run: {faults[0][0]}")
        return UsageError(
            f"{name} is not recognised as a reduction: its results are those of no "
            "operator that is known (--op, --map or --op-expr name one)"
        )

    def _second_call(self, attempt: _Attempt, identity: Identity) -> str:
        """Why a second call on the same buffers gives a wrong result; "" if it does not. The
        first call may leave memory that the next call relies on. Only tried if the recorded
        calls differ."""
        run = next(iter(attempt.identification.chosen()), None)
        if run is None or identity.changes_input or attempt.initial not in ("", "0"):
            return ""
        segment = attempt.segments[run]
        again = segment.recording.again or segment.repeated
        if not again or _renumbered(again) == _renumbered(segment.recording.steps):
            return ""
        roles = next(r for r in self._possible(segment) if _alike(r, attempt.roles))
        stores, count = DTYPES[roles.stores], identity.layout == "one" or attempt.counts.get(run, 1)
        nbytes = int(count) * stores.size
        steps = [*segment.steps]
        if segment.buffer(roles.result).parameter is not None:  # the caller sets it, too
            steps.append(Fill(roles.result, roles.at, nbytes, 0 if attempt.initial else 0xFF))
        twice = replace(segment, steps=(*steps, *again))
        text = attempt.program.texts[run.source]
        shape = twice, roles, run.n, run.rows
        program = program_of([shape], [text], [0], "", attempt.initial)
        once = attempt.identification.results(attempt.program, run, nbytes)
        both = attempt.identification.results(program, program.runs[0], nbytes, run)
        if once is None or both is None or np.allclose(once, both, rtol=1e-2, equal_nan=True):
            return ""
        return (
            f"its second call at n = {run.n} gives {both[0]:.9g}, its first {once[0]:.9g}: "
            "it depends on memory that the first call has left"
        )

    def _if_set(self, attempt: _Attempt) -> Kernel | None:
        """The kernel of a main() that is right only if its result was 0 before, although nothing
        in the file sets it; None otherwise."""
        deadline = self.trials.deadline
        if attempt.initial or not self.sized.shown.recording.is_main or deadline.passed:
            return None
        cleared = self._attempt(attempt.roles, "0")
        identity = cleared.identification.identify(cleared.integers) if cleared else None
        if identity is None or identity.fit < 1:
            return None
        wrong = f"nothing sets its result before: it is the {identity.words} only if that was 0"
        return attempt.kernel(identity, wrong)

    def _fault(self, attempt: _Attempt, cache: Path | None) -> str:
        """Why the program is wrong for every operator: a small run has a data race, reads
        uninitialised shared memory, or gives results that depend on the initial content of
        memory. "" if none applies."""
        recording = self.reference.recording
        if recording.ended and not self.reference.reads:
            return ""  # the recording may lack what is needed
        identification, own_data = attempt.identification, attempt.own_data()
        ours = recording.entry.count("=")  # arguments of a host function that may be wrong
        if ours <= 1 and (fault := identification.fault_of_all(own=not ours, data=own_data)):
            return fault
        with Trials(recording.path, cache, self.trials.deadline, watched=True) as trials:
            fault = identification.fault_in(trials)
            if is_synchronisation_fault(fault):
                return fault
            fault = identification.fault_in(trials, zeros=True)
            if not ours and own_data is not None:  # an index may depend on the elements
                fault = identification.fault_in(trials, data=own_data)
            return fault if ours <= 1 and is_outside_shared(fault) else ""

    def _likely_roles(self) -> Sequence[Roles]:
        """Assignments of roles to try, the most likely first: those whose result is the buffer
        that a run writes. Assignments whose second input is written by a run are dropped."""
        reference = self.reference
        found = self._possible(reference)[:_MOST_ASSIGNMENTS]
        if len(found) < _FEW_ROLES and not any(has_scratch(reference, roles) for roles in found):
            return found
        kept = self.untouched()
        if not kept:
            return found[:_MOST_ROLES]
        left = [
            replace(roles, unwritten=frozenset(kept - {roles.result}))
            for roles in found if roles.other is None or roles.other in kept
        ]  # fmt: skip
        return sorted(left, key=lambda roles: roles.result in kept)[:_MOST_ROLES]

    def _possible(self, segment: Segment) -> Sequence[Roles]:
        if id(segment) not in self.possible:
            self.possible[id(segment)] = list(possible_roles(segment))
        return self.possible[id(segment)]

    def untouched(self) -> set[int]:
        """The buffers to which a small run writes nothing; empty if it faults."""
        roles = next(iter(self._possible(self.reference)), None)
        attempt = self._attempt(replace(roles, other=None, other_bytes=0), "") if roles else None
        names = attempt.identification.untouched() if attempt is not None else set()
        kept = {int(name[1:]) for name in names if name[1:].isdigit()}
        return kept | ({roles.input} if roles and "in" in names else set())

    def _attempt(self, roles: Roles, initial: str) -> _Attempt | None:
        """The program with these roles; None if they fit no recording."""
        width, texts = DTYPES[roles.dtype].size, self.texts
        found: list[tuple[Segment, Roles, int, int]] = []
        for segment in self.sized.segments:
            same = next((r for r in self._possible(segment) if _alike(r, roles)), None)
            if same is not None and same.nbytes % width == 0:
                same = replace(same, unwritten=roles.unwritten)
                found.append((segment, same, same.nbytes // width, 1))
        if not found:
            return None
        for segment, *_ in found:
            key = hash((segment.recording.source, segment.kernels))
            if key not in texts:
                texts[key] = device_text(segment)
        if len(set(texts.values())) > len(_COMPILED):
            counts = [count for *_, count, _ in found]
            near = {size: min(abs(count - size) for count in counts) for size in _COMPILED}
            found = [  # and sizes that were requested
                f for f in found
                if f[2] not in SIZES or any(abs(f[2] - size) == near[size] for size in near)
            ]  # fmt: skip
        own = [texts[hash((f[0].recording.source, f[0].kernels))] for f in found]
        distinct = list(dict.fromkeys(own))
        program = program_of(
            found, distinct, list(map(distinct.index, own)), _summary(self.sized.shown, roles),
            initial,
        )  # fmt: skip
        by_run = dict(zip(program.runs, found, strict=True))
        sizes = {
            run: (n, None if same.other is None else same.other_bytes // width)
            for run, (_, same, n, _) in by_run.items()
        }
        values = set.intersection(*(set(segment.scalars()) for segment, *_ in found))
        compared = [v for v in sorted(values) if abs(v) <= _COMPARED][:2] if len(found) > 1 else []
        named = self.requested.of(DTYPES[roles.dtype])
        identification = Identification(self.trials, program, roles.dtype, sizes, compared, named)
        segments_of = {run: segment for run, (segment, *_) in by_run.items()}
        return _Attempt(self.sized.shown, roles, initial, program, segments_of, identification)


def _takes_unknown_function(launch: Launch) -> bool:
    scalars = (argument for argument in launch.arguments if isinstance(argument, Scalar))
    return any(held.buffer is None for scalar in scalars for _, held in scalar.functions)


def _rank(identity: Identity) -> tuple[float, bool]:
    """Sort key of an identified program: how well it fits, then complete results before partial
    ones."""
    return identity.fit, identity.layout != "partials"


def _renumbered(steps: Sequence[Step]) -> list[Step]:
    """The launches, fills and copies of a call, with buffers numbered in order of first use."""
    numbers: dict[int, int] = {}

    def pointer(one: Pointer) -> Pointer:
        buffer = None if one.buffer is None else numbers.setdefault(one.buffer, len(numbers))
        return replace(one, buffer=buffer)

    found: list[Step] = []
    for step in steps:
        if isinstance(step, Launch):
            arguments = [pointer(a) if isinstance(a, Pointer) else a for a in step.arguments]
            found.append(replace(step, arguments=tuple(arguments)))
        elif isinstance(step, (Fill, CopyIn)):
            found.append(replace(step, buffer=numbers.setdefault(step.buffer, len(numbers))))
    return found


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A program with one assignment of roles, to be identified."""

    shown: Segment
    roles: Roles
    initial: str  # what an unrecorded caller sets results to, a key of INITIAL
    program: Program
    segments: dict[Run, Segment]
    identification: Identification

    def own_data(self) -> bytes | None:
        """The bytes that the host code copies to its input; None if they were not kept."""
        roles, steps = self.roles, self.shown.steps
        parts = [s for s in steps if isinstance(s, CopyIn) and s.buffer == roles.input]
        return parts[-1].data if len(parts) == 1 and roles.other is None else None

    def is_largest(self, run: Run) -> bool:
        """True if larger inputs need more shared memory than a block can have."""
        return any(
            segment.recording.is_largest
            for known, segment in self.segments.items() if known.n == run.n
        )  # fmt: skip

    @property
    def counts(self) -> dict[Run, int]:
        """The number of results written by each run of the identification."""
        return self.identification.counts

    @property
    def integers(self) -> dict[Run, tuple[int, ...]]:
        """The integer arguments of the kernels in each run."""
        return {run: segment.integers() for run, segment in self.segments.items()}

    def kernel(self, identity: Identity, wrong: str = "") -> Kernel:
        """The kernel of the identified reduction. `wrong` is the reason if it is wrong for every
        operator."""
        runs = tuple(_shaped(self.program, identity, self.segments, self.identification))
        if self.initial:
            width = DTYPES[self.program.result].size
            runs = tuple(limit_initial(run, width) for run in runs)
        fault = next(iter(self.identification.faults), "")
        recording = self.shown.recording
        elements = next((r.n for r, s in self.segments.items() if s is self.shown), 0)
        own = next(((r.n, r.rows) for r in runs if r.n * r.rows == elements), None)
        if not recording.is_main or recording.varied:
            own = None  # the size is ours
        program = replace(
            self.program, runs=runs, computes=identity.reduction, fit=identity.fit,
            fault=fault, root=identity.root, wrong=wrong, own=own,
            most=next((r.n for r in runs if r.rows == 1 and self.is_largest(r)), 0),
            called=bool(self.shown.repeated) or (bool(recording.entry) and not recording.is_main),
        )  # fmt: skip
        program = replace(program, summary=_identified(program, identity, self.initial))
        return _kernel(self.shown, program, identity)


def _alike(roles: Roles, other: Roles) -> bool:
    """True if both assign the same roles."""
    return (
        roles.input == other.input and roles.other == other.other and roles.skip == other.skip
        and roles.result == other.result and roles.stores == other.stores
    )  # fmt: skip


def _shaped(
    program: Program, identity: Identity, segments_of: dict[Run, Segment],
    identification: Identification,
) -> Iterator[Run]:  # fmt: skip
    """The runs with elements per row, rows and number of results set as the identified reduction
    implies. Runs for which these are unknown are left out."""
    if identity.layout == "one":
        for run in program.runs:
            yield replace(run, count=1)
        return
    index = _counting(identification.counts, segments_of)
    for run in program.runs:
        count = identification.counts.get(run)
        if index is not None:
            count = next(iter(_numbers(segments_of[run])[index : index + 1]), None)
        if count is None and run.n <= _COUNTED:
            count = identification.count(run)
        if not count or (count > run.count and identity.layout != "partials"):
            continue
        if identity.layout == "partials":  # some may lie beyond the memory that the host gives them
            yield replace(run, count=min(count, run.count))
        elif run.n % count == 0:
            yield replace(run, n=run.n // count, rows=count, count=count)


def _numbers(segment: Segment) -> list[int]:
    """Numbers in a recording that may equal the number of results: grid and block sizes, integer
    arguments, bytes read. The order is the same at every size."""
    launch = segment.launches[-1]
    numbers = [prod(launch.grid), *launch.grid, prod(launch.grid) * prod(launch.block)]
    numbers += [prod(launch.block), *launch.block]
    for one in (launch, segment.launches[0]):
        numbers.append(prod(one.grid))
        numbers += [
            a.value for a in one.arguments if isinstance(a, Scalar) and isinstance(a.value, int)
        ]
    reads = [read.nbytes // size for read in segment.reads for size in (1, 2, 4, 8)]
    return [*numbers, *reads]


def _counting(counts: dict[Run, int], segments_of: dict[Run, Segment]) -> int | None:
    """The index in `_numbers` of the value that equals the number of results at all sizes; None
    if there is none."""
    known = [(_numbers(segments_of[run]), count) for run, count in counts.items()]
    indices = range(min((len(numbers) for numbers, _ in known), default=0))
    return next((k for k in indices if all(numbers[k] == count for numbers, count in known)), None)


def _kernel(segment: Segment, program: Program, identity: Identity) -> Kernel:
    launch = max(segment.launches, key=lambda x: prod(x.grid) * prod(x.block))
    block = prod(launch.block)
    reduction, partials = identity.reduction, identity.layout == "partials"
    largest = max(program.runs, key=lambda run: run.n * run.rows)
    first = largest.launches[0]
    items = largest.n * largest.rows // (prod(first.grid) * prod(first.block))
    finish: Finish = "host" if partials else "none"
    name = segment.kernels[0]
    return Kernel(
        id=name, path=segment.recording.path, family="user", text=program.texts[0],
        title=f"{_name(segment)} of {segment.recording.path.name}", change="",
        scope="rows" if identity.layout in ("rows", "columns") else "grid", grid="one",
        walk="element", finish=finish, block=block, blocks=(block,),
        items=max(1, items), dtypes=(reduction.dtype.name,), ops=(reduction.op.name,),
        symbol=name, map=reduction.map, in_place=identity.changes_input,
        columns=identity.layout == "columns", program=program,
        precondition=Condition(sizes=(largest.n,), of_file=True)
        if program.fixed else Condition(most=program.most),
    )  # fmt: skip


def _identified(program: Program, identity: Identity, initial: str) -> str:
    """A sentence for the user: what was recorded, which reduction was identified, and the
    options that override it."""
    kind = identity.reduction.dtype.name
    host = {"partials": f", then the host combines {program.runs[0].count} partial results"}
    how = "are those of" if identity.fit else "are nearest to"
    if program.wrong and not identity.words:
        return f"{program.summary}. Its operator is not known."
    if not identity.words:
        return (
            f"{program.summary}. Its threads race or read what none of them has set, so its "
            "results do not tell its operator."
        )
    caller = f" The caller sets the result to {initial} before." if initial else ""
    return (
        f"{program.summary}{host.get(identity.layout, '')}.{caller} Its results on small inputs "
        f"{how} the {identity.words} of {kind}; --op, --map and --dtype override that."
    )


def _summary(segment: Segment, roles: Roles) -> str:
    """The recorded launches in one line."""
    entry = segment.recording.entry
    called = f"Recorded from {entry}()" if entry == "main" else f"Recorded from {entry}"
    called = called if entry else "Launched as"
    shown = [_launch_words(launch, roles) for launch in segment.launches[:3]]
    more = len(segment.launches) - len(shown)
    text = ", then ".join(shown) + (f", and {more} more" if more > 0 else "")
    return f"{called}: {text}"


def _launch_words(launch: Launch, roles: Roles) -> str:
    def shape(numbers: tuple[int, int, int]) -> str:
        kept = list(numbers)
        while len(kept) > 1 and kept[-1] == 1:
            kept.pop()
        return str(kept[0]) if len(kept) == 1 else f"({', '.join(map(str, kept))})"

    words = []
    for (name, _), argument in zip(launch.parameters, launch.arguments, strict=False):
        if isinstance(argument, Pointer):
            role = {roles.result: "output", roles.other: "second input", roles.input: "input"}
            if roles.input == roles.result:
                role[roles.input] = "input and output"
            words.append(f"{name}: {role.get(argument.buffer, 'scratch')}")
        elif argument.value is not None:
            words.append(f"{name}: {argument.value:g}" if isinstance(argument.value, float)
                         else f"{name}: {argument.value}")  # fmt: skip
        else:
            words.append(name)
    shared = f", {launch.shared}" if launch.shared else ""
    configuration = f"{shape(launch.grid)}, {shape(launch.block)}{shared}"
    return f"{launch.kernel}<<<{configuration}>>>({', '.join(words)})"
