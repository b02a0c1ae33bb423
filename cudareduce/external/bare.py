"""Kernels without host code: a main() is written for each and recorded like an author's.

Nothing says how such a kernel is launched. So likely launches are tried in turn; the first under
which it computes a known reduction is taken, and options name another.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

from cudareduce.errors import UsageError
from cudareduce.external.recorder import record
from cudareduce.external.recording import Recording
from cudareduce.library.guesses import Guesses
from cudareduce.library.parameters import read_parameter
from cudareduce.library.siblings import read_file
from cudareduce.library.syntax import Function
from cudareduce.library.values import is_whole

#: Sizes at which a launch is tried before it is recorded at all, and rows for the same.
_TRIED, _TRIED_ROWS = (1000, 4096, 96), ((33, 30), (64, 64), (10, 96))
#: Launches of one kernel that are tried.
MOST_LAUNCHES = 24
_DEFAULT_BLOCK = 256
_HOST = """\
#include "{path}"
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <type_traits>
template <class... A> std::tuple<A...> cudareduce_types(void (*)(A...));
template <class T> T cudareduce_argument(const char *word) {{
  if constexpr (std::is_pointer_v<T>) {{
    using Pointed = std::remove_cv_t<std::remove_pointer_t<T>>;
    void *memory = nullptr;
    size_t width = sizeof(std::conditional_t<std::is_void_v<Pointed>, char, Pointed>);
    if (atoll(word)) cudaMalloc(&memory, atoll(word) * width);
    return (T)memory;
  }} else if constexpr (std::is_floating_point_v<T>) {{
    return (T)atof(word);
  }} else if constexpr (std::is_arithmetic_v<T>) {{
    return (T)atoll(word);
  }} else {{
    return T();
  }}
}}
template <class... A> void cudareduce_kinds(void (*)(A...)) {{
  (putchar(std::is_pointer_v<A>          ? 'p'
           : std::is_floating_point_v<A> ? 'f'
           : std::is_arithmetic_v<A>     ? 'i'
                                         : '?'),
   ...);
  putchar('\\n');
}}
int main(int, char **words) {{
  cudareduce_kinds(&{kernel});
  using Types = decltype(cudareduce_types(&{kernel}));
  dim3 grid(atoi(words[1]), atoi(words[2]), atoi(words[3]));
  dim3 block(atoi(words[4]), atoi(words[5]), atoi(words[6]));
  {kernel}<<<grid, block, atoi(words[7])>>>({arguments});
  cudaDeviceSynchronize();
}}
"""


@dataclass(frozen=True, slots=True)
class Guess:
    """One way to launch a kernel: `block` threads; `grid` is a rule; whole numbers get what the
    expressions in `integers` say, in n, rows and BLOCK."""

    block: int
    grid: str
    integers: tuple[str, ...]
    items: int = 1
    shared: int = 0
    by_rows: bool = False

    def words(self, kinds: Sequence[str], n: int, rows: int) -> list[str]:
        """The arguments of the main() that launches `rows` rows of `n` elements."""
        names = {"n": n, "rows": rows, "BLOCK": self.block, "ITEMS": self.items}
        integers = iter(self.integers)
        values = []
        for kind in kinds:
            if kind == "pointer":
                values.append(str(n * rows))
            elif kind != "integer":
                values.append("1")
            else:
                values.append(str(evaluated(next(integers), names)))
        grid = {
            "cover": -(-n * rows // (self.block * self.items)), "one": 1, "rows": rows,
            "threads": -(-rows // self.block), "warps": -(-rows * 32 // self.block),
            "few": min(8, -(-n * rows // self.block)),
        }  # fmt: skip
        blocks = grid[self.grid] if self.grid in grid else int(self.grid)
        return [*map(str, (max(1, blocks), 1, 1, self.block, 1, 1, self.shared)), *values]


def evaluated(expression: str, names: dict[str, int]) -> int:
    """The value of a whole-number expression; a UsageError if it is none."""
    text = re.sub(r"(?<!/)/(?!/)", "//", expression)
    if not re.fullmatch(r"[\w\s+\-*/%()]*", text):
        raise UsageError(f"{expression!r} is no whole number: use n, rows, BLOCK, + - * / % and ()")
    try:
        return int(eval(text, {"__builtins__": {}}, dict(names)))
    except (SyntaxError, NameError, TypeError, ZeroDivisionError, ValueError):
        raise UsageError(f"{expression!r} is no whole number in n, rows and BLOCK") from None


@dataclass(frozen=True, slots=True)
class BareKernel:
    """A kernel of a file with a main() of ours; `name` is its C++ name with template arguments."""

    path: Path
    function: Function
    name: str
    kinds: tuple[str, ...]  # of parameters: pointer, float, integer
    names: tuple[str, ...]

    def record(
        self, guess: Guess, shapes: Sequence[tuple[int, int]], says: Guesses, cache: Path | None
    ) -> Iterator[Recording]:
        """The recording of each launch of `rows` rows of `n` elements that can be made."""
        arguments = ", ".join(
            f"cudareduce_argument<std::tuple_element_t<{k}, Types>>(words[{8 + k}])"
            for k in range(len(self.kinds))
        )
        text = _HOST.format(path=self.path.resolve(), kernel=self.name, arguments=arguments)
        defined = [f"{name}={value}" for name, value in says.defined]
        with TemporaryDirectory(prefix="cudareduce-bare-") as folder:
            host = Path(folder, "host.cu")
            host.write_text(text)
            include = (*says.headers, self.path.resolve().parent)
            for n, rows in shapes:
                words = guess.words(self.kinds, n, rows)
                with suppress(UsageError):
                    [made] = record(
                        host, entry="main", arguments=words, include=include, define=defined,
                        cache=cache,
                    )  # fmt: skip
                    yield self._as_called(made, n, rows, guess)

    def _as_called(self, recording: Recording, n: int, rows: int, guess: Guess) -> Recording:
        """The recording as of a function with the kernel's parameters, whose caller is unknown."""
        pointers = [name for name, kind in zip(self.names, self.kinds, strict=True)
                    if kind == "pointer"]  # fmt: skip
        named = dict(zip((b.id for b in recording.buffers), pointers, strict=False))
        buffers = tuple(replace(b, parameter=named.get(b.id)) for b in recording.buffers)
        return replace(
            recording, path=self.path, entry="", size=n * rows, buffers=buffers, source=None,
            include=(), define=(),
        )  # fmt: skip


def bare_kernels(path: Path, text: str, says: Guesses, cache: Path | None) -> list[BareKernel]:
    """The kernels of a file, or those of them that are named; kinds of parameters are those that
    the compiler resolves. A kernel that does not compile is left out."""
    unit = read_file(path, text, says.headers, dict(says.defined), says.block)
    found = []
    for function in unit.kernels():
        if says.entries and not any(_is_named(function, entry) for entry in says.entries):
            continue
        named = next((e for e in says.entries if "<" in e), None)
        name = named or function.name + _template_arguments(function, says.block)
        names = tuple(read_parameter(word).name for word in function.parameters)
        unknown = ("integer",) * len(names)
        probe = BareKernel(path, function, name, unknown, names)
        once = Guess(32, "one", ("n",) * len(names))
        made = next(probe.record(once, [(2**12, 1)], says, cache), None)
        kinds = [_KINDS.get(sign, "other") for sign in made.output[0]] if made else []
        if len(kinds) == len(names):
            found.append(replace(probe, kinds=tuple(kinds)))
    return found


_KINDS = {"p": "pointer", "f": "float", "i": "integer"}


def command_to_copy(path: Path, text: str, says: Guesses) -> str | None:
    """A complete command that launches the first kernel of a file that is meant, with what each of
    its parameters may get; None if there is no kernel."""
    unit = read_file(path, text, says.headers, dict(says.defined), says.block)
    meant = (
        function for function in unit.kernels()
        if not says.entries or any(_is_named(function, entry) for entry in says.entries)
    )  # fmt: skip
    function = next(meant, None)
    if function is None:
        return None
    said = {one.name: one.what for one in says.arguments}
    name = next((e for e in says.entries if "<" in e), None)
    entry = name or function.name + _template_arguments(function, says.block)
    block = str(says.block or next(_blocks_of(function)))
    grid = str(says.grid or "cover")
    words = ["cudareduce", "verify", str(path), "--entry", entry, "--block", block, "--grid", grid]
    left = {"in": ["in", "in2"], "out": ["out", "scratch:n"], "count": ["n", "rows"]}
    for parameter in map(read_parameter, function.parameters):
        if parameter.points or parameter.refers:
            kind = "out" if parameter.writes else "in"
        else:
            kind = "count"
        if kind == "count" and not is_whole(parameter):
            likely = "1.0" if parameter.type in ("float", "double") else "{}"
        elif left[kind]:
            likely = left[kind].pop(0)
        else:
            likely = "1" if kind == "count" else "scratch:n"
        words += ["--arg", f"{parameter.name}={said.get(parameter.name, likely)}"]
    for key, value in says.defined:
        words += ["-D", f"{key}={value}"]
    for folder in says.headers:
        words += ["-I", str(folder)]
    return shlex.join(words)


def _is_named(function: Function, entry: str) -> bool:
    base = entry.partition("<")[0]
    return base in (function.name, function.label, function.name.rpartition("::")[2])


def _template_arguments(function: Function, block: int | None) -> str:
    """Template arguments that are likely: float for types, the block for numbers."""
    if not function.template:
        return ""
    words = []
    for parameter in function.template:
        if "=" in parameter:
            break
        if parameter.startswith(("typename", "class")):
            words.append("float")
        else:
            words.append("true" if parameter.startswith("bool") else str(block or _DEFAULT_BLOCK))
    return f"<{', '.join(words)}>"


def guesses(kernel: BareKernel, says: Guesses) -> Iterator[Guess]:
    """Likely launches of a kernel, as far as the options leave them open."""
    count = kernel.kinds.count("integer")
    integers = [n for n, kind in zip(kernel.names, kernel.kinds, strict=True) if kind == "integer"]
    said = {a.name: a.what for a in says.arguments}
    body = kernel.function.body
    shared = says.shared if says.shared is not None else (8 * 1024 if "extern" in body else 0)
    blocks = (says.block,) if says.block else tuple(_blocks_of(kernel.function))
    if says.grid is not None:
        grids: tuple[str, ...] = (_GRIDS.get(str(says.grid), str(says.grid)),)
    else:
        grids = ("cover", "few", "one")
    row_grids = grids if says.grid is not None else ("rows", "threads", "warps", "one")
    many = (says.items,) if says.items else (1, 2, 4)
    values = list(dict.fromkeys(_values(count)))
    kinds = ((False, grids), (True, row_grids))
    for by_rows, chosen in reversed(kinds) if count > 1 else kinds:
        for block in blocks:
            for items in many if not by_rows else (1,):
                for grid in chosen:
                    for pattern in values:
                        rows_said = any("rows" in word for word in pattern)
                        if rows_said != by_rows and count:
                            continue
                        own = tuple(
                            said.get(name, word)
                            for name, word in zip(integers, pattern, strict=True)
                        )
                        yield Guess(block, grid, own, items, min(shared, 8 * block), by_rows)


_GRIDS = {
    "cover": "cover", "fill": "few", "one": "one", "per_sm": "few", "block_per_row": "rows",
    "thread_per_row": "threads", "warp_per_row": "warps",
}  # fmt: skip


def _blocks_of(function: Function) -> Iterator[int]:
    """Threads a block: launch bounds, extents of shared arrays, then 256."""
    bounds = function.most_threads
    if bounds is not None and (bounds.text or b"").isdigit():
        yield int(bounds.text or b"0")
    seen = {_DEFAULT_BLOCK}
    for extent in re.findall(r"__shared__[^;\[]*\[\s*(\d+)\s*\]", function.body):
        if 32 <= int(extent) <= 1024 and int(extent) not in seen:
            seen.add(int(extent))
            yield int(extent)
    yield _DEFAULT_BLOCK


def _values(count: int) -> Iterator[tuple[str, ...]]:
    """What whole-number parameters may get."""
    if count == 0:
        yield ()
    elif count == 1:
        yield ("n",)
        yield ("n * rows / rows",)
    elif count == 2:
        yield from (("rows", "n"), ("n", "rows"), ("n", "1"), ("1", "n"))
    else:
        rest = count - 2
        yield ("rows", "n", *("1",) * rest)
        yield ("1",) * rest + ("rows", "n")
        yield ("n", *("1",) * (count - 1))


def tried_shapes(guess: Guess) -> list[tuple[int, int]]:
    """Elements a row and rows at which a launch is tried."""
    return list(_TRIED_ROWS) if guess.by_rows else [(n, 1) for n in _TRIED]


def shapes_of(guess: Guess, sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Elements a row and rows at which a launch is recorded."""
    if not guess.by_rows:
        return [(n, 1) for n in sizes]
    rows = (1, 3, 7, 33, 300, 1000)
    lengths = (1, 2, 31, 32, 33, 100, 257, 1000, 1025, 4096)
    shapes = {(n, rows[k % len(rows)]) for k, n in enumerate(lengths)}
    shapes |= {(64, 64), (33, 257), (257, 33), (1, 1)}
    return sorted(shapes, key=prod)
