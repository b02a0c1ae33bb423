"""Run the host code of an external kernel file and record what it launches.

The program runs in a child process: files are read anywhere and written in a temporary folder only,
there is no network, no other program and a limit on time, memory and file size. Where the kernel
has no Landlock or seccomp, the limits on files and network do not hold.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from cudareduce.backends.emulator.cache import Cache
from cudareduce.backends.selection import default_cache
from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.external.build import Executable, RecordingError, build
from cudareduce.external.recording import Launch, Recording, Scalar
from cudareduce.external.rewrite import HostFunction
from cudareduce.external.sizes import Constant, Scale, constants, largest_buffer, scale_of
from cudareduce.external.trace import Trace, parse_trace

#: Elements that a host function without a main() is called with: the first that it can launch.
DEFAULT_SIZES = (1 << 20, 1 << 16, 1 << 12, 1 << 10, 64)
#: Arguments and typed lines for a main() that launches nothing without.
_GUESSED_INPUT: tuple[tuple[tuple[str, ...], str], ...] = (
    (("1048576",), ""),
    ((), "1048576\n" * 4),
    (("1048576", "256"), ""),
    (("1", "1"), ""),
    (("1", "1", "1"), ""),
)
_OUTPUT_LINES = 20
#: Bytes of dynamic shared memory that a launch gets without an attribute of its kernel.
_LARGEST_SHARED = 48 << 10
#: Whole-number parameters of a host function that are looked at one by one.
_MOST_PROBED = 4
_POLL_S = 0.02
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a recorded program: time, memory, file size, steps."""

    wall_s: float = 10.0
    cpu_s: int = 5
    memory_bytes: int = 8 << 30
    file_bytes: int = 64 << 20
    steps: int = 10_000
    copy_bytes: int = 1 << 20  # contents of a longer copy are not kept
    all_copy_bytes: int = 8 << 20  # of a whole recording


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class HostRun:
    """One run of an executable."""

    trace: Trace
    output: tuple[str, ...]
    errors: tuple[str, ...]
    ended: str | None

    @property
    def out_of_time(self) -> bool:
        return self.ended is not None and self.ended.endswith((" s", "time"))


def run_host(
    executable: Path,
    arguments: Sequence[str],
    limits: Limits,
    knobs: Mapping[int, int] | None = None,
    stdin: str = "",
) -> HostRun:
    """Run a recorded program until it ends or reaches a limit."""
    with TemporaryDirectory(prefix="cudareduce-host-") as folder:
        names = ("recorder.log", "stdout", "stdin", "stderr")
        log, output, typed, complaints = (Path(folder, name) for name in names)
        typed.write_text(stdin)
        environment = {
            "PATH": os.defpath,
            "LC_ALL": "C",
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # large arrays are touched in less time
            "RECORDER_LOG": str(log),
            "RECORDER_CPU_S": str(limits.cpu_s),
            "RECORDER_FILE_BYTES": str(limits.file_bytes),
            "RECORDER_STEPS": str(limits.steps),
            "RECORDER_COPY_BYTES": str(limits.copy_bytes),
            "RECORDER_ALL_COPY_BYTES": str(limits.all_copy_bytes),
            **{f"RECORDER_KNOB_{index}": str(value) for index, value in (knobs or {}).items()},
        }
        with output.open("wb") as out, typed.open("rb") as keyboard, complaints.open("wb") as err:
            process = subprocess.Popen(
                ["./program", *arguments], executable=executable, cwd=folder, env=environment,
                stdin=keyboard, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            ended = _wait(process, limits)
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        trace = parse_trace(lines)
        return HostRun(trace, _first_lines(output), _first_lines(complaints), trace.ended or ended)


def _first_lines(path: Path) -> tuple[str, ...]:
    with path.open(errors="replace") as file:
        return tuple(line.rstrip("\n") for line in islice(file, _OUTPUT_LINES))


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> str | None:
    """Why the process ended without returning 0, in words."""
    deadline, ended = time.monotonic() + limits.wall_s, None
    while process.poll() is None:
        if time.monotonic() > deadline:
            ended = f"it ran longer than {limits.wall_s:g} s"
        elif _resident_bytes(process.pid) > limits.memory_bytes:
            ended = f"it used more than {limits.memory_bytes >> 30} GiB of memory"
        if ended:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return ended
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
    code = process.returncode
    if code == -signal.SIGXCPU or code == -signal.SIGKILL:
        return f"it used more than {limits.cpu_s} s of processor time"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it exited with code {code}" if code else None


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


@dataclass(frozen=True, slots=True)
class CompiledMain:
    """A main() that is compiled once and recorded with different arguments."""

    file: HostFile
    executable: Executable

    def record(self, arguments: Sequence[str]) -> Recording:
        """The recording with these arguments. Raises RecordingError if nothing is launched."""
        run = run_host(self.executable.path, arguments, self.file.limits)
        if not _launches(run):
            raise RecordingError(_no_launch(self.file.path.name, "main()", run))
        return self.file.recording(run, "main", None)


@dataclass(frozen=True, slots=True)
class HostFile:
    """A file whose host code is run. `define` are macros as NAME=VALUE."""

    path: Path
    include: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()
    cache: Path | None = None
    limits: Limits = DEFAULT_LIMITS
    deadline: Deadline = field(default_factory=Deadline, compare=False, repr=False)
    _built: dict[tuple[bytes, tuple[str, ...] | None], Executable] = field(
        default_factory=dict, compare=False, repr=False
    )

    def record(self) -> tuple[Recording, ...]:
        """Record the host code: main(), or without main() each host function that launches.
        Raises RecordingError if nothing can be recorded."""
        executable = self._main()
        return self._functions() if executable is None else self._record_main(executable)

    def record_sizes(
        self, sizes: Sequence[int], function: str | None = None
    ) -> tuple[Recording, ...]:
        """Record the same program at other sizes, as close to `sizes` as possible; () if nothing
        sets the number of elements.

        `function` is a host function to call instead of main(). For a main(), the size is set by a
        program argument, standard input or a constant of the file. `Recording.varied` says which,
        and `Recording.size` is the number of elements.
        """
        executable = self._main() if function is None else None
        if executable is not None:
            return self._main_sizes(executable, sizes)
        return self._function_sizes(() if function is None else (function,), sizes)

    def compiled_main(self) -> CompiledMain:
        """The compiled main(). Raises RecordingError if it does not compile."""
        return CompiledMain(self, self.build(self.text(), None))

    def build(self, text: bytes, call: Sequence[str] | None) -> Executable:
        """Compile a text of the file that calls main() or these host functions."""
        key = text, None if call is None else tuple(call)
        if key not in self._built:
            with TemporaryDirectory(prefix="cudareduce-build-") as folder:
                self._built[key] = build(
                    self.path, text, include=self.include, define=self.define, call=call,
                    cache=Cache(self.cache or default_cache()), folder=Path(folder),
                )  # fmt: skip
        return self._built[key]

    def text(self) -> bytes:
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise RecordingError(f"{self.path} cannot be read: {error.strerror}.") from None

    def _main(self) -> Executable | None:
        """The executable with the file's own main(); None if it has none."""
        text = self.text()
        if not re.search(rb"\bmain\s*\(", text):
            return None
        executable = self.build(text, None)
        return executable if executable.has_main else None

    def _record_main(self, executable: Executable) -> tuple[Recording, ...]:
        run = run_host(executable.path, (), self.limits)
        if _launches(run) and not run.out_of_time:
            return (self.recording(run, "main", None),)
        if run.out_of_time:  # at its own size: a smaller one may do
            smaller = self._main_sizes(executable, (DEFAULT_SIZES[0],), run)
            if smaller:
                return smaller
            if _launches(run):
                return (self.recording(run, "main", None),)
            raise RecordingError(_no_launch(self.path.name, "main()", run))
        for words, typed in _GUESSED_INPUT:
            tried = run_host(executable.path, words, self.limits, stdin=typed)
            if _launches(tried):
                entry = " ".join(["main", *words]) if words else "main with typed input"
                return (self.recording(tried, entry, None),)
        if executable.problem and run.ended and "SIGILL" in run.ended:
            raise RecordingError(executable.problem)
        with suppress(UsageError):
            return self._functions()
        raise RecordingError(_no_launch(self.path.name, "main()", run))

    def _functions(self) -> tuple[Recording, ...]:
        executable = self.build(self.text(), ())
        if not executable.called:
            raise RecordingError(f"{self.path.name} has no host code that launches a kernel.")
        recorded = [self._function(one, DEFAULT_SIZES) for one in self._called(executable)]
        recordings = tuple(one for one in recorded if isinstance(one, Recording))
        if not recordings:
            raise RecordingError(str(recorded[0]))
        return recordings

    def _called(self, executable: Executable) -> list[_Called]:
        """The host functions that an executable offers to call."""
        found = []
        for number, function in enumerate(executable.called):
            described = run_host(executable.path, [str(number)], self.limits).trace.parameters
            launches = self._of_the_launch(executable, number, described)
            found.append(_Called(executable.path, number, function, described, launches))
        return found

    def _function(self, called: _Called, sizes: Sequence[int]) -> Recording | str:
        """The first call of a function that launches, or why none does."""
        failure = ""
        for size in sizes:
            for values in argument_choices(called.described, size, called.launches):
                run = run_host(called.executable, [str(called.number), *values], self.limits)
                if _launches(run) and not run.trace.refused:
                    words = _call_in_words(called.function, called.described, values)
                    return self.recording(run, words, size)
                entry = f"{called.function.name}()"
                failure = failure or _no_launch(self.path.name, entry, run)
        return failure

    def _of_the_launch(
        self, executable: Executable, number: int, described: Sequence[tuple[str, str]]
    ) -> set[str]:
        """The integer parameters of a host function that set its block size and reach no kernel."""
        integers = [k for k, (_, kind) in enumerate(described) if kind == "i"]
        if not 1 < len(integers) <= _MOST_PROBED:
            return set()
        found = set()
        base = ["4096" if kind in "pci" else "1" if kind == "f" else "0" for _, kind in described]
        for k in integers:
            threads = []
            for value in ("128", "256"):
                values = [*base[:k], value, *base[k + 1 :]]
                run = run_host(executable.path, [str(number), *values], self.limits)
                made = [step for step in run.trace.steps if isinstance(step, Launch)]
                given = {a.value for one in made for a in one.arguments if isinstance(a, Scalar)}
                if not made or run.trace.refused or int(value) in given:
                    break
                threads.append(prod(made[0].block))
            if len(set(threads)) > 1:
                found.add(described[k][0])
        return found if len(found) < len(integers) else set()

    def _function_sizes(self, names: Sequence[str], sizes: Sequence[int]) -> tuple[Recording, ...]:
        deadline = self.deadline.share(2)
        functions = self._called(self.build(self.text(), names))
        recorded = [
            self._function(one, (size,))
            for size in sizes for one in functions if not deadline.passed
        ]  # fmt: skip
        return tuple(one for one in recorded if isinstance(one, Recording))

    def _main_sizes(
        self, executable: Executable, sizes: Sequence[int], base: HostRun | None = None
    ) -> tuple[Recording, ...]:
        code = self.text()
        found = self._find_knob(
            code, executable, base or run_host(executable.path, (), self.limits)
        )
        if found is None:
            return ()
        knob, scale = found
        recordings: list[Recording] = []
        deadline = self.deadline.share(2)
        largest = 0
        for number in sorted({scale.number(size) for size in sizes}):
            if deadline.passed:
                break
            run = self._run_knob(knob, number, code)
            if run is not None and _launches(run):
                recordings.append(self._knob_recording(knob, number, scale, run, code))
                largest = number
            elif run is not None and largest and _lacks_shared(run):
                last = self._last_launched(knob, largest, number, scale, code)
                if last is None:
                    recordings[-1] = replace(recordings[-1], is_largest=True)
                return (*recordings, last) if last else tuple(recordings)
        return tuple(recordings)

    def _last_launched(
        self, knob: _Knob, least: int, refused: int, scale: Scale, code: bytes
    ) -> Recording | None:
        """The recording at the largest number whose launches fit in shared memory, by bisection
        between one that fits and one that is refused; None if that is the former."""
        found: HostRun | None = None
        while refused - least > 1:
            middle = (least + refused) // 2
            run = self._run_knob(knob, middle, code)
            if run is None or not (_launches(run) or _lacks_shared(run)):
                return None
            if _launches(run):
                least, found = middle, run
            else:
                refused = middle
        if found is None:
            return None
        return replace(self._knob_recording(knob, least, scale, found, code), is_largest=True)

    def _knob_recording(
        self, knob: _Knob, number: int, scale: Scale, run: HostRun, code: bytes
    ) -> Recording:
        entry = " ".join(["main", *(word.format(number) for word in knob.arguments)])
        recording = self.recording(run, entry, scale.elements(number))
        source = None
        if knob.constant is not None:
            source = knob.constant.replaced(code, str(number)).decode(errors="replace")
        return replace(recording, varied=knob.words, source=source)

    def _find_knob(
        self, code: bytes, executable: Executable, base: HostRun
    ) -> tuple[_Knob, Scale] | None:
        """The first knob to which the size of the largest buffer is proportional."""
        deadline = self.deadline.share(2)
        for knob in self._knobs(code, executable, base):
            if deadline.passed:
                return None
            if knob.constant is None:
                numbers = (4096, 8192)
            else:
                value = knob.constant.value
                least = 2 * value if value < 1 << 12 else max(256, value >> 12)
                numbers = (least, 2 * least)
            samples = []
            for number in numbers:
                samples.append(self.sample(knob, number, code))
                if samples[-1][1] == 0:
                    break
            if knob.constant is not None and not base.out_of_time:
                samples.append((knob.constant.value, _elements(base)))
            scale = scale_of(samples)
            if scale is not None:
                return knob, scale
        return None

    def sample(self, knob: _Knob, number: int, code: bytes) -> tuple[int, int]:
        """A number with the elements of the largest buffer at it, 0 if nothing is launched."""
        limits = replace(self.limits, wall_s=self.limits.wall_s / 2, cpu_s=2)
        run = replace(self, limits=limits)._run_knob(knob, number, code)
        return number, _elements(run) if run is not None and not run.out_of_time else 0

    def _knobs(self, code: bytes, executable: Executable, base: HostRun) -> Iterator[_Knob]:
        if base.out_of_time:
            yield from self._constant_knobs(code, executable)
        if b"argv" in code or re.search(rb"main\s*\(\s*int\s+\w+\s*,", code):
            for option in base.trace.options:
                yield _Knob(f"--{option}", (f"--{option}={{}}",), executable=executable.path)
            for words in (("{}",), ("{}", "{}"), ("256", "{}"), ("1", "{}"), ("-n", "{}")):
                place = f"argument {len(words)} of main()"
                yield _Knob(place, words, executable=executable.path)
        if re.search(rb"\bcin\b|\bscanf\b|\bgetline\b|\bfgets\b", code):
            yield _Knob("standard input", stdin="{0}\n{0}\n{0}\n", executable=executable.path)
        if not base.out_of_time:
            yield from self._constant_knobs(code, executable)

    def _constant_knobs(self, code: bytes, executable: Executable) -> Iterator[_Knob]:
        for constant in constants(code):
            changed = constant.replaced(code, f"::recorder::knob(0, ({constant.text}))")
            runtime: Path | None = None
            with suppress(UsageError):
                built = self.build(changed, None)
                if built.problem == executable.problem:
                    runtime = built.path
            yield _Knob(constant.words, constant=constant, executable=runtime)

    def _run_knob(self, knob: _Knob, number: int, code: bytes) -> HostRun | None:
        path, values = knob.executable, {0: number}
        if path is None and knob.constant is not None:
            try:
                path = self.build(knob.constant.replaced(code, str(number)), None).path
            except UsageError:
                return None
        if path is None:
            return None
        arguments = [word.format(number) for word in knob.arguments]
        return run_host(path, arguments, self.limits, values, knob.stdin.format(number))

    def recording(self, run: HostRun, entry: str, size: int | None) -> Recording:
        return Recording(
            path=self.path,
            entry=entry,
            size=size,
            buffers=run.trace.buffers,
            steps=run.trace.steps,
            again=run.trace.again,
            ended=run.ended,
            include=self.include,
            define=self.define,
        )


@dataclass(frozen=True, slots=True)
class _Called:
    """A host function: its number in the executable, its parameters with their kinds, and the
    parameters that only set the launch configuration."""

    executable: Path
    number: int
    function: HostFunction
    described: tuple[tuple[str, str], ...]
    launches: set[str]


@dataclass(frozen=True, slots=True)
class _Knob:
    """Something that sets the size: `{}` stands for it in program arguments or standard input;
    or a constant of the file."""

    words: str
    arguments: tuple[str, ...] = ()
    stdin: str = ""
    constant: Constant | None = None
    executable: Path | None = None  # None: the constant is needed by the compiler


def _launches(run: HostRun) -> bool:
    return any(isinstance(step, Launch) for step in run.trace.steps)


def _lacks_shared(run: HostRun) -> bool:
    """True if nothing was launched because a launch requested more shared memory than exists."""
    return not _launches(run) and any(
        int(bytes_) > _LARGEST_SHARED
        for text in run.trace.refused for bytes_ in re.findall(r"(\d+) bytes of shared", text)
    )  # fmt: skip


def _elements(run: HostRun) -> int:
    return largest_buffer(run.trace.steps, {b.id: b.nbytes for b in run.trace.buffers})[0]


def _no_launch(file: str, entry: str, run: HostRun) -> str:
    if run.trace.refused:
        return (
            f"{file}: a device would refuse the launch that {entry} makes: {run.trace.refused[0]}."
        )
    if run.ended:
        printed = next((line.strip() for line in (*run.errors, *run.output) if line.strip()), "")
        said = f" and printed {printed[:80]!r}" if printed else ""
        return f"{file}: {entry} launches nothing before {run.ended}{said}."
    return f"{file}: {entry} launches no kernel."


def _call_in_words(
    function: HostFunction, described: Sequence[tuple[str, str]], values: Sequence[str]
) -> str:
    shown = [
        f"{name}={value}" if kind in "ibf" else name
        for (name, kind), value in zip(described, values, strict=True)
    ]
    return f"{function.call}({', '.join(shown)})"


_THREADS = re.compile(r"(?i)thread|block_?(?:size|dim)|tpb|^bs$|^block_?x?$|^local")
_BLOCKS = re.compile(r"(?i)block|grid")
_ONE = re.compile(r"(?i)iter|repeat|times|loop|warm|runs|trials|stride|inc[xy]?$|radius|step")
_SOUGHT = re.compile(
    r"(?i)^(?:wanted|target|needle|key|threshold|sought|k|value|val)$|^(?:search|look)_?"
)
_MOST_THREADS = 1024
#: Rows of sizes that this divides, and elements a row of these sizes: as many as the others have
#: rows.
_FEW_ROWS, _OF_SHORT_ROWS = 3, (1025, 4097, 10007)
_ZERO = re.compile(
    r"(?i)^dev|device|gpu|rank|axis|kernel|which|mode|^op|type|verbos|flag|seed|debug"
)


def argument_choices(
    parameters: Sequence[tuple[str, str]], size: int, launches: Collection[str] = ()
) -> list[list[str]]:
    """Likely values for the parameters of a host function, the most likely first: `size`
    elements behind each pointer, and integers that agree with it. Parameters named in `launches`
    only set the launch configuration."""
    choices: list[list[str]] = []
    counts = [
        name
        for name, kind in parameters
        if kind == "i"
        and name not in launches
        and not any(p.search(name) for p in (_THREADS, _BLOCKS, _ONE, _ZERO, _SOUGHT))
    ]
    threads = [name for name, kind in parameters if kind == "i" and _THREADS.search(name)]
    one_block = not counts and len(threads) == 1
    if one_block:  # as many elements as threads
        size = 1 << (min(size, _MOST_THREADS).bit_length() - 1)
    for dims in _dimensions(len(counts), size):
        elements, left, values = prod(dims) if dims else size, list(dims), []
        for name, kind in parameters:
            if kind in "pc":
                values.append(str(max(elements, size)))
            elif kind == "i" and name in counts:
                values.append(str(left.pop(0)))
            elif kind == "i" and one_block and name in threads:
                values.append(str(size))
            elif kind == "i":
                values.append("256" if name in launches else str(_launch_value(name, elements)))
            else:
                values.append("1" if kind == "f" else "0")
        choices.append(values)
    return choices


def _launch_value(name: str, elements: int) -> int:
    if _THREADS.search(name):
        return 256
    if _BLOCKS.search(name):
        return max(1, -(-elements // 256))
    if _SOUGHT.search(name):
        return 3
    return 1 if _ONE.search(name) else 0


def _dimensions(count: int, size: int) -> list[tuple[int, ...]]:
    """Likely extents of a `count`-dimensional array of about `size` elements."""
    if count < 2:
        return [(size,) * count]
    rows = 1 << max(0, (size.bit_length() - 1) // 2)
    if size % _FEW_ROWS == 0 and size >> 8:  # the number of rows and their length vary apart
        rows = _FEW_ROWS
    elif size in _OF_SHORT_ROWS:
        rows = size // _FEW_ROWS
    matrix = (*(1,) * (count - 2), rows, max(1, size // rows))
    if count == 2:
        return [matrix, (size, size)]
    side = max(1, round(size ** (1 / count)))
    cube = (*(side,) * (count - 1), max(1, size // side ** (count - 1)))
    return [matrix, cube, (*(1,) * (count - 1), size)]
