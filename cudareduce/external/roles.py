"""Split a recording into programs and find the role of each buffer by observation, not by name.

A host often launches several kernels or versions in turn. A segment is what it launches between two
reads of results: the unit that is verified and timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from cudareduce.external.recording import (
    CopyIn,
    CopyOut,
    CopyWithin,
    DeviceBuffer,
    Fill,
    Launch,
    Pointer,
    Recording,
    Scalar,
    Step,
)

#: A host that repeats its launches to time them repeats at most so many steps at a time.
_LONGEST_PERIOD = 24
#: Steps that are divided into programs.
_MOST_STEPS = 1000
#: Launches of earlier programs that may have written what a program reads.
_MOST_BEFORE = 64
#: Values that an unknown caller makes room for in each of its buffers.
_LEAST_ROOM = 1024
#: The names of DTYPES by the C++ names of types, as the compiler resolves them.
_TYPES = {
    "float": "float32", "double": "float64", "__half": "float16", "half": "float16",
    "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16", "char": "int8", "signed char": "int8",
    "unsigned char": "uint8", "int": "int32", "unsigned int": "uint32", "unsigned": "uint32",
    "long": "int64", "long int": "int64", "long long": "int64", "long long int": "int64",
    "unsigned long": "uint64", "long unsigned int": "uint64", "unsigned long long": "uint64",
    "long long unsigned int": "uint64",
}  # fmt: skip
_QUALIFIERS = re.compile(r"\b(?:const|volatile|__restrict__|__restrict|struct)\b|\*|&")
_VECTOR = re.compile(r"(u?char|u?int|u?long|u?longlong|float|double)([1234])")
_PACKED = {"__half2": "float16", "half2": "float16", "__nv_bfloat162": "bfloat16"}


def element_type(cpp: str) -> str | None:
    """The name in DTYPES of a C++ type, or of the components of a vector type; None if there is
    none."""
    name = " ".join(_QUALIFIERS.sub(" ", cpp).split())
    vector = _VECTOR.fullmatch(name)
    if vector:
        scalar = vector[1].replace("longlong", "long long")
        name = f"unsigned {scalar[1:]}" if scalar.startswith("u") else scalar
        name = "signed char" if name == "char" else name
    return _PACKED.get(name) or _TYPES.get(name)


def scalar_size(dtype: str) -> int:
    """The bytes of a type in DTYPES."""
    return int(re.sub(r"\D", "", dtype)) // 8


#: Further buffers that are tried as the second input.
_MOST_UNSURE = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """One program of a recording: its steps up to the last launch, and the host's reads after
    it. `repeated` are the steps of a second run, if the host reads several results."""

    recording: Recording
    steps: tuple[Step, ...]
    reads: tuple[CopyOut, ...]
    repeated: tuple[Step, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches, in order."""
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels that it launches, each once."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    def pointers(self) -> Iterator[tuple[Pointer, bool]]:
        """Every pointer argument of its launches, with True for a pointer to const."""
        for launch in self.launches:
            yield from _pointers(launch)

    def buffer(self, number: int) -> DeviceBuffer:
        """The buffer of this number."""
        return next(one for one in self.recording.buffers if one.id == number)

    def capacity(self, number: int) -> int:
        """The size of a buffer in bytes. For a parameter of a host function: at least one value
        per thread, since its caller is unknown."""
        buffer, width = self.buffer(number), max(8, self.elements(number)[1])
        if buffer.parameter is None:
            return buffer.nbytes
        threads = max(prod(launch.grid) * prod(launch.block) for launch in self.launches)
        return max(buffer.nbytes, width * max(threads, _LEAST_ROOM))

    def elements(self, number: int) -> tuple[str, int]:
        """The C++ type and size in bytes that kernels use for a buffer or variable; 0 bytes if
        unknown."""
        typed = [p for p, _ in self.pointers() if p.buffer == number and p.element_size]
        if typed:
            return typed[0].element, typed[0].element_size
        dtype = element_type(self.buffer(number).element)
        return (self.buffer(number).element, scalar_size(dtype)) if dtype else ("", 0)

    def scalars(self) -> tuple[float, ...]:
        """The numeric arguments of its kernels."""
        arguments = (a for launch in self.launches for a in launch.arguments)
        values = (a.value for a in arguments if isinstance(a, Scalar))
        return tuple(dict.fromkeys(float(v) for v in values if v is not None))

    def integers(self) -> tuple[int, ...]:
        """The integer arguments of its kernels."""
        arguments = (a for launch in self.launches for a in launch.arguments)
        values = (a.value for a in arguments if isinstance(a, Scalar))
        return tuple(dict.fromkeys(v for v in values if isinstance(v, int)))


def segments(recording: Recording) -> list[Segment]:
    """The programs of a recording in order. Repeated launches of one program count once."""
    found: list[Segment] = []
    prepared: list[Step] = []  # fills and copies of the host so far
    launched: list[Step] = []  # since the last read, with the preparations between
    before: list[Launch] = []  # of programs that have ended

    def end(reads: Sequence[CopyOut]) -> None:
        own = [s for s in launched if isinstance(s, Launch)]
        own = _with_writers(own, before[-_MOST_BEFORE:])
        used = {p.buffer for launch in own for p, _ in _pointers(launch)}
        used |= {b.id for b in recording.buffers if b.symbol is not None}
        first = [s for s in prepared if _target(s) in used]
        earlier = [s for s in own if s not in launched]
        steps = (*_latest(first), *earlier, *launched)
        is_repeated = all(launch.kernel in repeated for launch in own)
        further = _ending_with(own[-1], repeated[own[-1].kernel]) if is_repeated else ()
        found.append(Segment(recording, steps, tuple(reads), further))
        before.extend(s for s in launched if isinstance(s, Launch))
        prepared.extend(s for s in launched if not isinstance(s, Launch))
        launched.clear()

    reads: list[CopyOut] = []
    repeated: dict[str, Sequence[Step]] = {}
    steps = _first_programs(_without_repeats(recording.steps, repeated))
    for k, step in enumerate(steps):
        if isinstance(step, CopyOut):
            reads.append(step)
            continue
        known = [s for s in launched if isinstance(s, Launch)]
        if not (reads and _is_chunk(steps[k:], known)):
            if reads and known:
                end(reads)
            reads = []
        if isinstance(step, Launch):
            known = [s for s in launched if isinstance(s, Launch)]
            if any(_is_version(step, other) for other in known):
                last = max(k for k, s in enumerate(launched) if isinstance(s, Launch))
                ready, launched[last + 1 :] = launched[last + 1 :], []
                end(())
                launched.extend(ready)
            launched.append(step)
        elif any(isinstance(s, Launch) for s in launched):
            launched.append(step)
        else:
            prepared.append(step)
    if any(isinstance(s, Launch) for s in launched):
        end(reads)
    return _with_shared_reads(found)


def _first_programs(steps: list[Step]) -> list[Step]:
    """The steps up to a result that the host reads, if there are very many steps: an endless
    loop that allocates memory for each launch."""
    if len(steps) <= _MOST_STEPS:
        return steps
    reads = [k for k, step in enumerate(steps[:_MOST_STEPS]) if isinstance(step, CopyOut)]
    return steps[: reads[-1] + 1] if reads else steps


def _with_shared_reads(found: list[Segment]) -> list[Segment]:
    """Segments of versions that run one after another with only the last one read: the earlier
    ones get the same read."""
    for k in range(len(found) - 2, -1, -1):
        later, own = found[k + 1].reads, {p.buffer for p, _ in found[k].pointers()}
        if not found[k].reads and later and {read.buffer for read in later} <= own:
            found[k] = replace(found[k], reads=later)
    return found


def _pointers(launch: Launch) -> Iterator[tuple[Pointer, bool]]:
    """The buffer pointers among the arguments of a launch, also in structs, each with True if it
    is a pointer to const."""
    types = [cpp for _, cpp in launch.parameters] + [""] * len(launch.arguments)
    for argument, cpp in zip(launch.arguments, types, strict=False):
        inner = argument.pointers if isinstance(argument, Scalar) else ((0, argument),)
        read_only = isinstance(argument, Pointer) and "const" in cpp.partition("*")[0].split()
        for _, pointer in inner:
            if pointer.buffer is not None:
                yield pointer, read_only
    for pointer in launch.held:
        yield pointer, False


def _written(launch: Launch) -> set[int | None]:
    """The buffers that a launch may write."""
    return {pointer.buffer for pointer, read_only in _pointers(launch) if not read_only}


def _read_only(launch: Launch) -> set[int | None]:
    return {pointer.buffer for pointer, read_only in _pointers(launch) if read_only}


def _target(step: Step) -> int | None:
    if isinstance(step, (Fill, CopyIn)):
        return step.buffer
    return step.target if isinstance(step, CopyWithin) else None


def _latest(steps: Sequence[Step]) -> Iterator[Step]:
    """The preparation steps without those that a later one on the same range replaces."""
    ranges = [
        (s.buffer, s.offset, s.offset + s.nbytes) if isinstance(s, (Fill, CopyIn)) else None
        for s in steps
    ]
    for k, step in enumerate(steps):
        own, later = ranges[k], ranges[k + 1 :]
        if own is None or not any(
            other and other[0] == own[0] and other[1] <= own[1] and own[2] <= other[2]
            for other in later
        ):
            yield step


def _with_writers(launches: list[Launch], before: Sequence[Launch]) -> list[Launch]:
    """The launches, preceded by those of earlier programs whose results they read through const
    pointers."""
    needed = {buffer for launch in launches for buffer in _read_only(launch)}
    own = {buffer for launch in launches for buffer in _written(launch)}
    for launch in reversed(before):
        if (_written(launch) - own) & needed and launch not in launches:
            launches = [launch, *launches]
            needed |= _read_only(launch)
    return launches


def _is_version(launch: Launch, other: Launch) -> bool:
    """True if another kernel is launched on the same data as an earlier one: a version of it."""
    return launch.kernel != other.kernel and launch.arguments == other.arguments


def _is_chunk(steps: Sequence[Step], known: Sequence[Launch]) -> bool:
    """True if the next launch does the same on another part of the same arrays, and its result
    is read from another address."""
    following = next((step for step in steps if isinstance(step, Launch)), None)
    if following is None or not known:
        return False
    own = [pointer for pointer, _ in _pointers(following)]
    for launch in known:
        others = [pointer for pointer, _ in _pointers(launch)]
        same = [pointer.buffer for pointer in own] == [pointer.buffer for pointer in others]
        apart = all(a.offset != b.offset for a, b in zip(own, others, strict=False))
        if following.kernel != launch.kernel or not (same and apart and own):
            return False
    return True


def _ending_with(launch: Launch, group: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a repeated group, from after a launch to its next repetition."""
    last = max(
        k for k, s in enumerate(group) if isinstance(s, Launch) and s.kernel == launch.kernel
    )
    return tuple(s for s in (*group[last + 1 :], *group[: last + 1]) if not isinstance(s, CopyOut))


def _without_repeats(steps: Sequence[Step], repeated: dict[str, Sequence[Step]]) -> list[Step]:
    """The steps with immediately repeated groups reduced to one, as in timing loops. Groups in
    which the host reads a result are added to `repeated`, by their kernels."""
    kept: list[Step] = []
    for step in steps:
        kept.append(step)
        for period in range(1, min(_LONGEST_PERIOD, len(kept) // 2) + 1):
            last, previous = kept[-period:], kept[-2 * period : -period]
            if last == previous and any(isinstance(s, Launch) for s in last):
                if any(isinstance(s, CopyOut) for s in last):
                    repeated |= {s.kernel: last for s in last if isinstance(s, Launch)}
                del kept[-period:]
                break
    return kept


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of the buffers of a segment, as buffer numbers; all other buffers are scratch.

    The input starts at `offset` and has `nbytes` bytes. `other` is a second input of the same type.
    The result is read from offset `at` on, up to `most` values of C++ type `stores`. The first
    `skip` launches only generate the input. No launch writes the buffers in `unwritten`, so no
    caller initialises them.
    """

    input: int
    offset: int
    nbytes: int
    dtype: str
    result: int
    at: int
    most: int
    stores: str
    other: int | None = None
    other_bytes: int = 0
    skip: int = 0
    unwritten: frozenset[int] = frozenset()

    @property
    def inputs(self) -> tuple[int, int | None]:
        """The buffers of both inputs."""
        return self.input, self.other


def possible_roles(segment: Segment) -> Iterator[Roles]:
    """Possible assignments of roles, the most likely first. Which one is right is decided by
    running the program on known inputs. Last come floats whose bits the kernel stores as
    integers."""
    found = list(_possible_roles(segment))
    yield from found
    for roles in found:
        if roles.dtype == "float32" and roles.stores in ("uint32", "int32"):
            yield replace(roles, stores=roles.dtype)


def _possible_roles(segment: Segment) -> Iterator[Roles]:
    for skip in _makers(segment):
        own = replace(segment, steps=_without_launches(segment.steps, skip))
        inputs = _inputs(own)
        for given in inputs:
            offset, nbytes = _extent(own, given)
            dtype = element_type(own.elements(given)[0])
            if dtype is None or not nbytes:
                continue
            others = [o for o in inputs if o != given and _may_be_second(own, given, o)]
            unsure = [
                o
                for o in inputs
                if o not in (given, *others) and _may_be_second(own, given, o, may_be_written=True)
            ]
            for result, at, size in _results(own, given):
                cpp, _width = own.elements(result)
                stores = element_type(cpp)
                if stores is None:
                    continue
                second = next((o for o in others if o != result), None)
                roles = Roles(
                    given, offset, nbytes, dtype, result, at, size // max(1, scalar_size(stores)),
                    stores, skip=skip,
                )  # fmt: skip
                if second is not None:
                    more = _extent(own, second)[1]
                    yield replace(roles, other=second, other_bytes=more)
                yield roles
                for second in (o for o in unsure[:_MOST_UNSURE] if o != result):
                    more = _extent(own, second)[1]
                    if more == nbytes:
                        yield replace(roles, other=second, other_bytes=more)


def _makers(segment: Segment) -> Iterator[int]:
    """Possible numbers of initial launches that only generate the input: none, unless no launch
    reads host data."""
    launches = segment.launches
    copied = {s.buffer for s in segment.steps if isinstance(s, CopyIn)}
    read = {p.buffer for p, _ in segment.pointers()}
    given = any(segment.buffer(b).parameter for b in read if b is not None)
    if not (copied & read) and not given and len(launches) > 1:
        yield 1
    yield 0


def _without_launches(steps: Sequence[Step], count: int) -> tuple[Step, ...]:
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Launch) and count:
            count -= 1
        else:
            kept.append(step)
    return tuple(kept)


def _inputs(segment: Segment) -> list[int]:
    """Buffers that may be the input: those with host data first, then const ones, then larger
    ones."""
    copied: dict[int, int] = {}
    for step in segment.steps:
        if isinstance(step, CopyIn):
            copied[step.buffer] = copied.get(step.buffer, 0) + step.nbytes
    read_only: dict[int, bool] = {}
    for pointer, const in segment.pointers():
        assert pointer.buffer is not None
        read_only[pointer.buffer] = const and read_only.get(pointer.buffer, True)
    first = list(read_only)

    def order(number: int) -> tuple[bool, bool, int, int]:
        buffer = segment.buffer(number)
        given = copied.get(number, 0) or buffer.parameter
        return (not given, not read_only[number], -_extent(segment, number)[1], first.index(number))

    plain = [number for number in read_only if segment.buffer(number).symbol is None]
    return sorted(plain or read_only, key=order)


def _extent(segment: Segment, number: int) -> tuple[int, int]:
    """Offset and size in bytes of what the host copies to a buffer; the whole buffer if it
    copies nothing."""
    parts = [s for s in segment.steps if isinstance(s, CopyIn) and s.buffer == number]
    if not parts:
        return 0, _used(segment, number)
    start = min(part.offset for part in parts)
    return start, max(part.offset + part.nbytes for part in parts) - start


def _used(segment: Segment, number: int) -> int:
    """The bytes of a buffer that hold elements: as many as integer arguments say, if these cover
    more than half of it. Callers of a host function get more memory than needed."""
    buffer, (cpp, size) = segment.buffer(number), segment.elements(number)
    dtype = element_type(cpp)
    extents = [value for value in segment.integers() if value > 1]
    if buffer.parameter is None or dtype is None or not extents:
        return buffer.nbytes
    width = scalar_size(dtype)
    capacity, lanes = buffer.nbytes // width, size // width
    blocks = [size for launch in segment.launches for size in launch.grid if size > 1]
    own = {*extents, *(extent * lanes for extent in extents)}
    products = {a * b for k, a in enumerate(extents) for b in (*extents[k:], *blocks)}
    for counts in (own, products | {prod(extents)}):
        fitting = [n for n in counts if capacity // 2 < n <= capacity]
        if fitting:
            return max(fitting) * width
    return capacity * width


def _may_be_second(
    segment: Segment, given: int, other: int, *, may_be_written: bool = False
) -> bool:
    """True if a buffer may be a second input: same type, more than one value, and not written by
    a kernel according to its parameters. `may_be_written` drops the last requirement."""
    size = segment.elements(other)[1]
    same = segment.elements(other) == segment.elements(given)
    const = all(read_only for p, read_only in segment.pointers() if p.buffer == other)
    copied = any(isinstance(s, CopyIn) and s.buffer == other for s in segment.steps)
    named = segment.buffer(other).parameter is not None
    read = {r.buffer for r in segment.reads}
    many = _extent(segment, other)[1] > size
    return (
        same and many and other not in read and (may_be_written or const or (copied and not named))
    )


def _joined(reads: Sequence[CopyOut]) -> Iterator[CopyOut]:
    """Adjacent reads of one buffer joined to one read."""
    ordered = sorted(reads, key=lambda read: read.offset)
    ends = [read.offset + read.nbytes for read in ordered[:-1]]
    is_one = len({read.buffer for read in reads}) == 1
    if ends and is_one and ends == [read.offset for read in ordered[1:]]:
        yield replace(ordered[0], nbytes=sum(read.nbytes for read in ordered))


def _results(segment: Segment, given: int) -> Iterator[tuple[int, int, int]]:
    """Buffers that may hold the result, with offset and bytes: the last read, else the buffer
    that the last launch may write."""
    whole = _joined(segment.reads)
    for read in (*whole, *reversed(segment.reads)):
        yield read.buffer, read.offset, read.nbytes
    if segment.reads:
        return
    seen: set[int] = set()
    by_launch = (
        [p for p, const in _pointers(launch) if not const and p.buffer != given]
        for launch in reversed(segment.launches)
    )
    written = next((pointers for pointers in by_launch if pointers), [])
    for pointer in sorted(written, key=lambda p: segment.buffer(p.buffer or 0).parameter is None):
        assert pointer.buffer is not None
        if pointer.buffer not in seen:
            seen.add(pointer.buffer)
            nbytes = segment.capacity(pointer.buffer) - pointer.offset
            yield pointer.buffer, pointer.offset, nbytes
    for buffer in segment.recording.buffers:
        if buffer.symbol is not None and buffer.used and buffer.id not in seen:
            yield buffer.id, 0, buffer.nbytes
    yield given, 0, segment.buffer(given).nbytes
