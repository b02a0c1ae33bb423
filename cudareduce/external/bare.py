"""Kernels without host code: generate a main() for each kernel and record it as usual.

The launch is unknown, so likely launches are tried in turn. The first one under which the kernel
computes a known reduction is selected. Options override it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice, permutations, product
from math import lcm, prod
from pathlib import Path
from tempfile import TemporaryDirectory

from cudareduce.budget import Deadline
from cudareduce.catalog.condition import Condition
from cudareduce.catalog.program import Address, Program
from cudareduce.errors import CudareduceError, Undecided, UsageError
from cudareduce.external.adopt import Adopted, adopt, unwritten_parameters
from cudareduce.external.device_code import DeviceFile, Function
from cudareduce.external.options import Argument, LaunchOptions, Requested
from cudareduce.external.recorder import CompiledMain, HostFile
from cudareduce.external.recording import (
    CopyIn,
    CopyOut,
    DeviceBuffer,
    Fill,
    Launch,
    Pointer,
    Recording,
    Scalar,
)
from cudareduce.external.roles import element_type, scalar_size
from cudareduce.reduction.dtypes import DTYPES
from cudareduce.verify.test_sets import literals
from cudareduce.verify.verdict import is_synchronisation_fault

#: Sizes at which a launch is tried before it is recorded at all, and rows for the same.
_TRIED, _TRIED_ROWS = (1000, 4096, 96), ((33, 30), (500, 2), (10, 96))
#: Launches of one kernel that are tried, and instances of a template.
_MOST_LAUNCHES, _MOST_INSTANCES = 32, 8
#: The part of the time that is left for one launch, for all before faults of synchronisation are
#: looked for, and for both before the sizes are recorded.
_ONE_LAUNCH, _SEARCH, _ALL_LAUNCHES = 1 / 2, 3 / 4, 2 / 3
_DEFAULT_BLOCK = 256
#: Threads per block that are tried if a kernel is not recognised in any other block.
_OTHER_BLOCKS = (32, 1024, 64, 128, 512)
#: Threads that a block has at most.
_LARGEST_BLOCK = 1024
#: Constants in the code that may be a number of elements: the least, the largest, and how many.
_FEWEST_FIXED, _MOST_FIXED, _MOST_CONSTANTS = 16, 2**22, 4
#: Elements per row and rows.
Shape = tuple[int, int]
#: The device of the recorder: multiprocessors, and threads on each.
_SMS, _SM_THREADS = 132, 2048
#: Launches of one --finish relaunch.
_MOST_RELAUNCHES = 16
_HOST = """
#include <cstdlib>
#include <tuple>
#include <type_traits>
static char **cudareduce_words;
static void *cudareduce_buffers[64];
template <class... A> std::tuple<A...> cudareduce_types(void (*)(A...));
inline long long cudareduce_number() {{ return atoll(*cudareduce_words++); }}
template <class T> T cudareduce_argument(const char *word) {{
  if constexpr (std::is_pointer_v<T>) {{
    return *word ? (T)cudareduce_buffers[atoi(word)] : (T) nullptr;
  }} else if constexpr (std::is_floating_point_v<T>) {{
    return (T)atof(word);
  }} else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {{
    return (T)atoll(word);
  }} else {{
    return T();
  }}
}}
{kernels}
int main(int, char **words) {{
  cudareduce_words = words + 1;
  const int buffers = cudareduce_number();
  for (int k = 0; k < buffers; k++) cudaMalloc(&cudareduce_buffers[k], cudareduce_number());
  const int first = cudareduce_number();  // a recording numbers buffers in the order of their use
  if (first >= 0) cudaMemset(cudareduce_buffers[first], 0, 1);
  while (*cudareduce_words) {{
    switch (cudareduce_number()) {{
{cases}
    }}
    cudaDeviceSynchronize();
  }}{variables}
}}
"""
_LAUNCHER = """\
static auto *const cudareduce_kernel{index} = &{kernel};
static void cudareduce_launch{index}() {{
  using Types = decltype(cudareduce_types(cudareduce_kernel{index}));
  const long long n = cudareduce_number(), rows = cudareduce_number();
  const long long BLOCK = cudareduce_number(), ITEMS = cudareduce_number();
  dim3 gridDim, blockDim(BLOCK);
  gridDim.x = cudareduce_number();
  const size_t shared = cudareduce_number();
  char **words = cudareduce_words;
  cudareduce_words += {count};
  cudareduce_kernel{index}<<<gridDim, blockDim, shared>>>({arguments});
}}"""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A kernel parameter as the compiler resolves it. `kind` is pointer, integer, bool, float or
    other."""

    name: str
    kind: str
    read_only: bool
    element: str  # C++ type behind a pointer
    element_size: int

    @property
    def lanes(self) -> int:
        """Elements per value behind a pointer to a vector type: 4 for `float4`, else 1."""
        dtype = element_type(self.element) if self.element else None
        return max(1, self.element_size // DTYPES[dtype].size) if dtype else 1


@dataclass(frozen=True, slots=True)
class Guess:
    """One way to launch a kernel. `block` is threads per block, `grid` names a rule, and
    `integers` are expressions in n, rows and BLOCK for the integer parameters."""

    block: int
    grid: str
    integers: tuple[str, ...]
    items: int = 1
    shared: int = 0
    by_rows: bool = False
    flag: int = 0  # of each bool; each float gets 1 less this
    shape: Shape | None = None  # the only one, of a kernel that has its size in its code
    most_blocks: int = 2**31 - 1  # that a variable of the kernel has elements for

    def blocks(self, n: int, rows: int) -> int:
        """The number of blocks for `rows` rows of `n` elements."""
        cover = -(-n * rows // (self.block * self.items))
        grid = {
            "cover": cover, "one": 1, "rows": rows,
            "threads": -(-rows // self.block), "warps": -(-rows * 32 // self.block),
            "columns": n, "column threads": -(-n // self.block),
            "few": min(8, -(-n * rows // self.block)),
            "fill": min(cover, _SMS * max(1, _SM_THREADS // self.block)),
            "per_sm": min(cover, _SMS),
        }  # fmt: skip
        blocks = grid[self.grid] if self.grid in grid else int(self.grid)
        return max(1, min(blocks, self.most_blocks))

    def names(self, n: int, rows: int) -> dict[str, int]:
        """The values of the names that expressions may use."""
        return {"n": n, "rows": rows, "BLOCK": self.block, "ITEMS": self.items,
                "GRID": self.blocks(n, rows)}  # fmt: skip


_ENTRY = re.compile(r"[\w:]+\s*(?:<[^;{}\"'()]*>)?")
#: A template parameter that is a number.
_WHOLE_NUMBER = re.compile(
    r"(?:const\s+)?(?:std::)?(?:un)?(?:signed|int|long|short|char|auto|size_t|u?int\d+_t)\b"
)
_RACE = "data race"
_DYNAMIC_SHARED = re.compile(r"\bextern\b[^;\"]*\b__shared__")
#: What a kernel reads that is meant for several blocks.
_BLOCK_INDEX = re.compile(r"blockIdx|gridDim|this_grid|group_index|block_rank|block_index")
_GRIDS = {
    "cover": "cover", "fill": "fill", "per_sm": "per_sm", "block_per_row": "rows",
    "thread_per_row": "threads", "warp_per_row": "warps",
}  # fmt: skip


def _value(expression: str, names: Mapping[str, int]) -> int | None:
    """The value of an integer expression; None if it is any other C++ expression."""
    text = re.sub(r"(?<!/)/(?!/)", "//", expression.replace("gridDim.x", "GRID"))
    if not re.fullmatch(r"[\w\s+\-*/%()]*", text):
        return None
    with suppress(SyntaxError, NameError, TypeError, ZeroDivisionError, ValueError):
        return int(eval(text, {"__builtins__": {}}, dict(names)))
    return None


@dataclass(frozen=True, slots=True)
class BareKernel:
    """A kernel of a file. `name` is its C++ name with template arguments."""

    path: Path
    function: Function
    name: str
    parameters: tuple[Parameter, ...] = ()
    has_dynamic_shared: bool = False  # in its own body or in a function that it calls
    most_blocks: int = 2**31 - 1  # if it takes any number: as many as its variable has elements

    @property
    def is_cooperative(self) -> bool:
        """True if its blocks wait for each other."""
        return "this_grid" in self.function.body

    def said(self, launch: LaunchOptions) -> dict[str, Argument]:
        """The --arg values by parameter name."""
        own = self.function.name
        return {one.name: one for one in launch.arguments if one.applies_to(own)}

    def integers(self) -> list[str]:
        """The names of the integer parameters."""
        return [p.name for p in self.parameters if p.kind == "integer"]

    def tile(self, guess: Guess) -> int:
        """The divisor of all sizes: a kernel without integer parameters cannot know where its
        input ends."""
        known = self.integers() or guess.by_rows or guess.shape
        return 1 if known else guess.block * guess.items

    @property
    def lanes(self) -> int:
        """Elements of the widest vector type among its pointers."""
        return max((p.lanes for p in self.parameters), default=1)


@dataclass(frozen=True, slots=True)
class Stage:
    """One launch of a sequence, on `rows` rows of `n` elements. `reads` and `writes` are indices
    of shared buffers for its input and result; None stands for a buffer of its own."""

    kernel: BareKernel
    guess: Guess
    n: int
    rows: int
    reads: tuple[str, int] | None = None  # parameter and buffer
    writes: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class _Buffer:
    role: str  # in, in2, out, out2, zeroed, scratch, or unknown
    nbytes: int
    parameter: str


@dataclass(frozen=True, slots=True)
class BareFile:
    """The kernels of one file, launched by a generated main()."""

    path: Path
    device: DeviceFile
    options: LaunchOptions
    requested: Requested
    cache: Path | None
    multiple: int = 1  # that divides every size, as the user says
    only: Sequence[Shape] = ()  # the only shapes, if the user says so

    def functions(self) -> list[Function]:
        """The kernels of the file, or those named by --entry. Raises UsageError if there are
        none."""
        every = self.device.kernels()
        if not every:
            raise UsageError(
                f"{self.path} has no __global__ function: name a file with a kernel, or define "
                "what its #if lines ask for with -D"
            )
        names = [*self.options.entry, *(name for one in self.options.chains for name in one)]
        for name in names:
            if not _ENTRY.fullmatch(name):
                raise UsageError(f"--entry {name!r} is no kernel: write NAME or NAME<ARGUMENTS>")
            if not any(_is_named(function, name) for function in every):
                known = ", ".join(dict.fromkeys(function.name for function in every))
                raise UsageError(f"{self.path} has no kernel {name!r}; it has: {known}")
        chosen = [f for f in every if not names or any(_is_named(f, name) for name in names)]
        self._check_arguments(chosen)
        return chosen

    def _check_arguments(self, functions: Sequence[Function]) -> None:
        """Raise UsageError for an --arg whose parameter no kernel has."""
        for one in self.options.arguments:
            own = [f for f in functions if one.applies_to(f.name)]
            names = [_parameter_name(text) for f in own for text in f.parameters]
            if not own:
                known = ", ".join(dict.fromkeys(f.name for f in functions))
                raise UsageError(f"{self.path}: --arg: no kernel {one.kernel}; it has: {known}")
            if one.name not in names:
                known = ", ".join(dict.fromkeys(names))
                raise UsageError(f"{self.path}: --arg: no parameter {one.name}; there are: {known}")

    def _instances(
        self, function: Function, name: str | None
    ) -> Iterator[tuple[BareKernel, CompiledMain] | UsageError]:
        """The kernel, or likely instances of its template, the most likely first; an error for
        one that does not compile."""
        entries = [name] if name else self.options.entry
        named = [e for e in entries if "<" in e and _is_named(function, e)]
        for entry in named or islice(self._instance_names(function), _MOST_INSTANCES):
            base = function.name + ("<" + entry.partition("<")[2] if "<" in entry else "")
            probe = BareKernel(self.path, function, base)
            try:
                main = self._main([probe])
                parameters, extents = self._interface(probe, main)
                strides = "gridDim" in function.body and bool(extents)
                yield replace(
                    probe, parameters=parameters,
                    has_dynamic_shared=_DYNAMIC_SHARED.search(self._code([probe])) is not None,
                    most_blocks=min(extents) if strides else probe.most_blocks,
                ), main  # fmt: skip
            except UsageError as error:
                yield error

    def _instance_names(self, function: Function) -> Iterator[str]:
        """The kernel's name. For a template, names with likely arguments: those used in the
        file, then requested types or float and int, functors of the file, the block size, small
        numbers."""
        if not function.template:
            yield function.name
            return
        base = function.name.rpartition("::")[2]
        text = self.device.data.decode(errors="replace")
        used = re.findall(rf"\b{base}\s*<([^<>;(){{}}]+)>\s*(?:<<<|\()", text)
        names = set(function.template_names)
        for words in dict.fromkeys(used):
            if not set(re.findall(r"\w+", words)) & names:
                yield f"{function.name}<{words}>"
        types = [DTYPES[name].cpp for name in self.requested.dtype] or ["float", "int"]
        functors = list(_functors(text, types[0]))
        block = str(self.options.block or _DEFAULT_BLOCK)
        choices = []
        for k, parameter in enumerate(function.template):
            if "=" in parameter or "..." in parameter:
                break
            if parameter.startswith(("typename", "class")):
                choices.append([*functors, *types[:1]] if k and functors else [*types, *functors])
            elif parameter.startswith("bool"):
                choices.append(["true", "false"])
            elif _WHOLE_NUMBER.match(parameter):
                choices.append([block, "4", "1", "8", "32"])
            else:
                choices.append(types)  # of a concept
        if not choices:
            yield f"{function.name}<>"
            return
        for words in sorted(product(*choices), key=lambda w: _rank(w, choices)):
            yield f"{function.name}<{', '.join(words)}>"

    def _interface(
        self, kernel: BareKernel, main: CompiledMain
    ) -> tuple[tuple[Parameter, ...], list[int]]:
        """The parameters of a kernel, and the number of elements of each global array, from a
        launch with zeros."""
        count = len(kernel.function.parameters)
        made = main.record(["0", "-1", "0", "0", "0", "32", "1", "1", "0", *("",) * count])
        launch = next(step for step in made.steps if isinstance(step, Launch))
        found = []
        for (name, cpp), argument in zip(launch.parameters, launch.arguments, strict=True):
            if isinstance(argument, Pointer):
                read_only = "const" in cpp.partition("*")[0].split()
                size = argument.element_size
                found.append(Parameter(name, "pointer", read_only, argument.element, size))
            else:
                found.append(Parameter(name, _kind(argument), False, "", 0))
        types = [(buffer.nbytes, element_type(buffer.element)) for buffer in made.buffers]
        extents = [nbytes // scalar_size(dtype) for nbytes, dtype in types if dtype]
        return tuple(found), [extent for extent in extents if extent > 1]

    def _main(self, kernels: Sequence[BareKernel]) -> CompiledMain:
        """A compiled main() that launches these kernels with the arguments that it receives.
        Raises UsageError if they do not compile."""
        options = self.options
        text = self._code(kernels)
        launchers, cases = [], []
        for index, kernel in enumerate(kernels):
            said = kernel.said(options)
            arguments = [
                self._argument(k, said.get(_parameter_name(parameter)))
                for k, parameter in enumerate(kernel.function.parameters)
            ]
            launchers.append(_LAUNCHER.format(
                index=index, kernel=kernel.name, arguments=", ".join(arguments),
                count=len(arguments),
            ))  # fmt: skip
            cases.append(f"      case {index}: cudareduce_launch{index}(); break;")
        reads = [
            f"\n  static char copy_{k}[sizeof({name})]; "
            f"cudaMemcpyFromSymbol(copy_{k}, {name}, sizeof({name}));"
            for k, name in enumerate(self.device.variables())
            if re.search(rf"\b{name.rpartition('::')[2]}\b", text)
        ]
        host = _HOST.format(
            kernels="\n".join(launchers), cases="\n".join(cases), variables="".join(reads)
        )
        with TemporaryDirectory(prefix="cudareduce-bare-") as folder:
            path = Path(folder, "host.cu")
            path.write_text(f'{text}\n#line 1 "host.cu"\n{host}')
            include = (*options.headers, self.path.resolve().parent)
            return HostFile(path, include, options.defined, self.cache).compiled_main()

    def _code(self, kernels: Sequence[BareKernel]) -> str:
        words = [kernel.name for kernel in kernels]
        words += [argument.what for argument in self.options.arguments]
        named = {word for one in words for word in re.findall(r"\w+", one)}
        return self.device.code({k.function.name.rpartition("::")[2] for k in kernels}, named)

    @staticmethod
    def _argument(index: int, said: Argument | None) -> str:
        """The C++ text of an argument: word `index` of the command line, or the expression of
        --arg."""
        if said is not None and not said.is_memory:
            zeros = {"n": 1, "rows": 1, "BLOCK": 1, "ITEMS": 1, "GRID": 1}
            if _value(said.what, zeros) is None:
                return said.what
        return f"cudareduce_argument<std::tuple_element_t<{index}, Types>>(words[{index}])"

    def _record(
        self, main: CompiledMain, kernels: Sequence[BareKernel], stages: Sequence[Stage],
        result: str | None = None,
    ) -> Recording:  # fmt: skip
        """The recording of launches in sequence. The parameter `result` of the last launch gets
        buffer 0. Raises UsageError."""
        first = stages[0]
        buffers: list[_Buffer] = []
        shared: dict[int, int] = {}  # buffers of the sequence, by their numbers in stages
        launches: list[str] = []
        for stage in stages:
            words = self._words(stage, buffers, shared)
            launches += [str(kernels.index(stage.kernel)), *words]
        sizes = [str(buffer.nbytes) for buffer in buffers]
        named = [k for k, buffer in enumerate(buffers) if buffer.parameter == result]
        own = named[-1] if named else -1
        made = main.record([str(len(buffers)), *sizes, str(own), *launches])
        if named:
            buffers.insert(0, buffers.pop(own))
        return self._described(made, buffers, stages, first.n * first.rows)

    def _words(
        self, stage: Stage, buffers: list[_Buffer], shared: dict[int, int]
    ) -> Iterator[str]:  # fmt: skip
        """The command-line words of one launch. Appends the buffers that it needs."""
        guess, n, rows = stage.guess, stage.n, stage.rows
        blocks = guess.blocks(n, rows)
        yield from map(str, (n, rows, guess.block, guess.items, blocks, guess.shared))
        said, names = stage.kernel.said(self.options), guess.names(n, rows)
        integers = iter(guess.integers)
        for parameter in stage.kernel.parameters:
            argument = said.get(parameter.name)
            if parameter.kind == "pointer":
                yield str(self._buffer(stage, parameter, argument, buffers, shared))
                continue
            likely = next(integers) if parameter.kind == "integer" else ""
            if argument is not None:
                yield str(_value(argument.what, names) or 0)
            elif parameter.kind == "integer":
                yield str(_value(likely, names) or 0)
            else:
                yield str(guess.flag if parameter.kind == "bool" else 1 - guess.flag)

    def _buffer(
        self, stage: Stage, parameter: Parameter, said: Argument | None, buffers: list[_Buffer],
        shared: dict[int, int],
    ) -> int:  # fmt: skip
        """The index of the buffer for a pointer."""
        for place in (stage.reads, stage.writes):
            if place is not None and place[0] == parameter.name and place[1] in shared:
                return shared[place[1]]
        elements = stage.n * stage.rows
        size = max(1, parameter.element_size // parameter.lanes)
        blocks = stage.guess.blocks(stage.n, stage.rows)
        role, nbytes = "unknown", elements * size
        if said is not None:
            role = said.kind
            if role in ("zeroed", "scratch"):
                nbytes = said.memory_bytes(size, blocks, blocks * stage.guess.block, elements)
            elif role.startswith("out"):
                nbytes = size * max(1024, stage.rows, blocks * stage.guess.block)
        own = len(buffers)
        for place in (stage.reads, stage.writes):
            if place is not None and place[0] == parameter.name:
                shared[place[1]] = own
                role = "scratch" if place is stage.writes else role
        buffers.append(_Buffer(role, nbytes, parameter.name))
        return own

    def _described(
        self, made: Recording, buffers: Sequence[_Buffer], stages: Sequence[Stage], size: int
    ) -> Recording:
        """The recording with the copies of a caller added: inputs and results as --arg says. All
        other buffers belong to an unknown caller."""
        launched = [step for step in made.steps if isinstance(step, Launch)]
        known: list[DeviceBuffer] = []
        before: list[CopyIn | Fill] = []
        results: list[CopyOut] = []
        for buffer in made.buffers:
            own = None if buffer.symbol is not None else buffers[buffer.id]
            role = own.role if own else "variable"
            if role in ("in", "in2"):
                before.append(CopyIn(buffer.id, 0, buffer.nbytes, None))
            elif role == "zeroed":
                before.append(Fill(buffer.id, 0, buffer.nbytes, 0))
            elif role == "out":
                results.append(CopyOut(buffer.id, 0, buffer.nbytes))
            named = own.parameter if own and role in ("unknown", "out") else None
            known.append(replace(buffer, parameter=named))
        variables = [step for step in made.steps if isinstance(step, CopyOut)]
        pointers = [p for stage in stages for p in stage.kernel.parameters if p.kind == "pointer"]
        if not results and all(p.read_only for p in pointers):
            results = variables
        cooperative = any(stage.kernel.is_cooperative for stage in stages)
        launches = [replace(step, cooperative=cooperative) for step in launched]
        return replace(
            made, path=self.path, entry="", size=size, buffers=tuple(known), source=None,
            steps=(*before, *launches, *results), include=self.options.headers,
            define=self.options.defined,
        )  # fmt: skip

    def kernel(
        self, function: Function, sizes: Sequence[int], shapes: Sequence[Shape], deadline: Deadline
    ) -> Adopted:
        """The kernel of a function, in the first launch under which it is identified."""
        found = self._recognised(function, deadline.share(1 / _ALL_LAUNCHES))
        if not isinstance(found, Recognised):
            return Adopted((), (found,))
        finish = self.options.finish
        again = () if finish is None or not finish.startswith("relaunch") else (found,)
        return self._at_all([found], again, sizes, shapes, deadline)

    def chain(
        self, names: Sequence[str], sizes: Sequence[int], shapes: Sequence[Shape],
        deadline: Deadline,
    ) -> Adopted:  # fmt: skip
        """The kernels of these names in sequence, each reading the result of the one before.
        Raises UsageError."""
        links: list[Recognised] = []
        for name in names:
            function = next(f for f in self.device.kernels() if _is_named(f, name))
            first = replace(self, options=replace(self.options, block=None, items=None, grid=None,
                            shared=None)) if links else self  # fmt: skip
            share = deadline.share((len(names) - len(links)) / _ALL_LAUNCHES)
            found = first._recognised(function, share, name)
            if not isinstance(found, Recognised):
                return Adopted((), (found,))
            links.append(found)
        return self._at_all(links, (), sizes, shapes, deadline)

    def _recognised(
        self, function: Function, deadline: Deadline, name: str | None = None
    ) -> Recognised | CudareduceError:
        """The instance and launch with the best fit to a reduction, or the error for which the
        function is left out."""
        best: Recognised | None = None
        first: Recognised | None = None
        launched: dict[int, tuple[BareKernel, Guess, list[Recording]]] = {}  # by block
        diverges = True  # in every launch
        is_complete = True  # every likely launch was tried
        refused: CudareduceError | None = None
        search = deadline.share(1 / _SEARCH)
        shown, error = BareKernel(self.path, function, function.name), ""
        for instance in self._instances(function, name):
            if isinstance(instance, UsageError):
                error = error or _first_error(str(instance))
                continue
            kernel, main = instance
            shown = shown if shown.parameters else kernel
            usual = tuple(_blocks_of(kernel))
            launches = islice(guesses(kernel, self.options, usual), _MOST_LAUNCHES)
            others = islice(guesses(kernel, self.options, _OTHER_BLOCKS), _MOST_LAUNCHES)
            fixed = self._fixed(kernel, usual)
            is_large = max(literals(self._code([kernel])), default=0) > _LARGEST_BLOCK
            order = (fixed, launches, others) if is_large else (launches, others, fixed)
            for guess in chain(*order):
                again = guess.block in _OTHER_BLOCKS and not guess.shape
                if search.passed:
                    is_complete = False
                    break
                if best is not None and again:
                    continue
                made = self._recorded(main, kernel, guess)
                if not made:
                    continue
                own = search.share(1 / _ONE_LAUNCH)  # another launch may be quicker
                adopted = adopt(made, self.cache, self.requested, own, nearest=False)
                late = [why for why in adopted.refused if isinstance(why, Undecided)]
                refused = refused if late and refused else next(iter(adopted.refused), refused)
                diverges &= any(is_synchronisation_fault(str(why)) for why in adopted.refused)
                launched.setdefault(guess.block, (kernel, guess, made))
                if "does not compile" in str(refused):
                    error = error or _first_error(str(refused))
                    break
                if guess.shape and adopted.kernels:
                    double = replace(guess, shape=(2 * guess.shape[0], guess.shape[1]))
                    if self._fits(main, kernel, double, own):
                        continue  # its code does not fix the number of elements
                for program in (one.program for one in adopted.kernels if one.program):
                    if best is None or program.fit > best.program.fit:
                        best = Recognised(kernel, guess, program)
                if best is not None and best.program.fit == 1:
                    few = replace(guess, grid="few")
                    strides = guess.grid == "cover" and "gridDim" in function.body
                    if strides and not self.options.grid and self._fits(main, kernel, few, own):
                        return replace(best, guess=replace(guess, grid="fill"))
                    return best
                if first is None and self.options.arg and not adopted.kernels:
                    near = adopt(made, self.cache, self.requested, own)
                    programs = [one.program for one in near.kernels if one.program]
                    first = Recognised(kernel, guess, programs[0]) if programs else None
        if best is None:
            faulty = self._common_fault(list(launched.values())[: 1 if diverges else 2], deadline)
            # The right launch may be among those not tried, but no launch excuses a data race.
            if faulty and (is_complete or _RACE in faulty.program.wrong):
                first = faulty
            elif faulty:
                refused = Undecided(f"{function.name}: not all likely launches were tried in time")
        if best is not None and not self.options.arg and not best.is_likely:
            fault = best.program.fault
            refused = UsageError(
                f"{best.kernel.name} cannot be run at every size: {fault}" if fault else
                f"{best.kernel.name} is not recognised as a reduction at every size"
            )  # fmt: skip
            best = None  # the launch may be wrong, and not the kernel
        chosen = best or first
        if chosen is not None:
            return chosen
        if refused is None and deadline.passed:
            refused = Undecided(f"{function.name} was not tried: the time was over before")
        why = refused or UsageError(
            f"{function.name} does not compile: {error}" if error else
            f"{function.name} launches nothing"
        )  # fmt: skip
        recordings = next((made for _, _, made in launched.values()), ())
        unwritten = unwritten_parameters(recordings, self.cache, deadline)
        return _with_command(why, command_to_copy(shown, self.options, error, unwritten))

    def _common_fault(
        self, launches: Sequence[tuple[BareKernel, Guess, list[Recording]]], deadline: Deadline
    ) -> Recognised | None:
        """The first of these launches, if every launch has a synchronisation fault such as a
        data race. The fault is then the kernel's and not one of an unlikely launch."""
        found = []
        for kernel, guess, made in launches:
            near = adopt(made, self.cache, self.requested, deadline)
            programs = [one.program for one in near.kernels if one.program]
            wrong = [p for p in programs if is_synchronisation_fault(p.wrong)]
            if not wrong:
                return None
            found.append(Recognised(kernel, guess, wrong[0]))
        return found[0] if found else None

    def _fits(
        self, main: CompiledMain, kernel: BareKernel, guess: Guess, deadline: Deadline
    ) -> bool:
        """True if the results of a launch fit a reduction on every input."""
        made = self._recorded(main, kernel, guess)
        if not made:
            return False
        found = adopt(made, self.cache, self.requested, deadline, nearest=False)
        return any(one.program and one.program.fit == 1 for one in found.kernels)

    def _fixed(self, kernel: BareKernel, blocks: Sequence[int]) -> Iterator[Guess]:
        """Launches of a kernel without integer parameters: as many elements as constants in its
        code say, also as rows if two constants are extents."""
        if kernel.integers() or self.only:
            return
        constants = sorted(literals(self._code([kernel])), reverse=True)
        sizes = [n for n in constants if _FEWEST_FIXED <= n <= _MOST_FIXED][:_MOST_CONSTANTS]
        wholes = [(n, 1) for n in sizes]
        matrices = [pair for pair in permutations(sizes, 2) if prod(pair) <= _MOST_FIXED]
        for shape in (*wholes, *matrices):
            for guess in guesses(kernel, self.options, blocks):
                if guess.by_rows == (shape[1] > 1) and guess.items == 1:
                    yield replace(guess, shape=shape)

    def _recorded(self, main: CompiledMain, kernel: BareKernel, guess: Guess) -> list[Recording]:
        """The recordings of one launch at small sizes."""
        found = []
        usual = tried_shapes(guess, lcm(kernel.tile(guess), self.multiple))
        tried = self.only or ((guess.shape,) if guess.shape else usual)
        for n, rows in tried:
            with suppress(UsageError):
                found.append(self._record(main, [kernel], [Stage(kernel, guess, n, rows)]))
        return found

    def _at_all(
        self, links: Sequence[Recognised], again: Sequence[Recognised], sizes: Sequence[int],
        shapes: Sequence[Shape], deadline: Deadline,
    ) -> Adopted:  # fmt: skip
        """The recordings of the kernels in sequence, at all sizes. Kernels in `again` are
        launched on their own partial results until one result is left."""
        guess, tile = links[0].guess, links[0].kernel.tile(links[0].guess)
        own = [shape for shape in shapes if guess.by_rows or shape[1] == 1]
        own = [(n, rows) for n, rows in own if n % tile == 0]
        kernels = list(dict.fromkeys(link.kernel for link in links))
        main, made = self._main(kernels), list[Recording]()
        usual = [] if self.only else shapes_of(guess, sizes, lcm(tile, self.multiple))
        if guess.shape:
            own, usual = [], [guess.shape]
        shown = max(own or usual, key=prod, default=(1, 1))
        for n, rows in dict.fromkeys((shown, *usual, *own)):
            with suppress(UsageError):
                stages = self._stages(links, again, n, rows)
                result = again[0].writes if again else None
                made.append(self._record(main, kernels, stages, result))
        if not made:
            name = links[0].kernel.name
            why = UsageError(f"{name} leaves an unknown number of partial results")
            return Adopted((), (why,))
        known = bool(self.options.arg or self.requested.op or self.requested.op_expr)
        known |= any(link.program.wrong for link in links)
        found = adopt(made, self.cache, self.requested, deadline, nearest=known)
        command = command_to_copy(links[0].kernel, self.options)
        refused = tuple(_with_command(why, command) for why in found.refused)
        alone = links[0].program.computes if len(links) == 1 else None
        for one in found.kernels:
            computes = one.program.computes if one.program else None
            if alone is not None and computes is not None and computes.op != alone.op:
                name = links[0].kernel.name
                why = UsageError(f"{name} is recognised at small sizes only")
                return Adopted((), (_with_command(why, command),))
        precondition = Condition(multiple=tile)
        whole = tuple(
            replace(
                one, precondition=precondition if tile > 1 else one.precondition,
                program=one.program and replace(
                    one.program, inferred=not self.options.sets_launch
                ),
            )
            for one in found.kernels
        )  # fmt: skip
        finish = self.options.finish
        if finish in ("none", "atomic") and any(one.finish == "host" for one in whole):
            raise UsageError(
                f"{self.path}: {links[0].kernel.name} leaves partial results, so --finish {finish} "
                "does not apply: give --finish host or relaunch"
            )
        return Adopted(whole, refused)

    def _stages(
        self, links: Sequence[Recognised], again: Sequence[Recognised], n: int, rows: int
    ) -> list[Stage]:
        """The launches for `rows` rows of `n` elements. Raises UsageError if the number of
        partial results of a launch is unknown."""
        queue, stages = list(links), list[Stage]()
        one_block = self.options.finish == "relaunch_one_block"
        while queue:
            link = queue.pop(0)
            reads = (link.reads, len(stages) - 1) if stages else None
            stages.append(Stage(link.kernel, link.guess, n, rows, reads, None))
            if queue or again:
                is_last = one_block and len(stages) > len(links)
                n, rows = 1 if is_last else link.partials(n, rows), 1
            if again and not queue and n > 1 and len(stages) < _MOST_RELAUNCHES:
                guess = replace(again[0].guess, grid="one") if one_block else again[0].guess
                queue.append(replace(again[0], guess=guess))
            if queue:
                stages[-1] = replace(stages[-1], writes=(link.writes, len(stages) - 1))
        return stages


@dataclass(frozen=True, slots=True)
class Recognised:
    """A kernel with the launch under which it was identified, and its program at small sizes."""

    kernel: BareKernel
    guess: Guess
    program: Program

    @property
    def is_likely(self) -> bool:
        """True if a wrong result is more likely the kernel's fault than that of an unlikely
        launch. A minimum or maximum that fits only some inputs may be coincidence."""
        program = self.program
        assert program.computes is not None
        by_chance = program.computes.op.name not in ("sum", "mean")
        return program.fit == 1 or not (program.fault or by_chance)

    def partials(self, n: int, rows: int) -> int:
        """The number of results that the launch writes. Raises UsageError if unknown."""
        counts = {(run.n, run.rows): run.count for run in self.program.runs}
        if all(count == 1 for count in counts.values()):
            return 1
        if all(count == self.guess.blocks(*shape) for shape, count in counts.items()):
            return self.guess.blocks(n, rows)
        raise UsageError(f"{self.kernel.name} does not leave one partial result per block")

    @property
    def reads(self) -> str:
        """The input parameter."""
        return self._parameter("in")

    @property
    def writes(self) -> str:
        """The result parameter. Raises UsageError if the result is not a parameter."""
        return self._parameter(self.program.runs[0].result.buffer)

    def _parameter(self, buffer: str) -> str:
        arguments = self.program.runs[0].launches[0].arguments
        for parameter, argument in zip(self.kernel.parameters, arguments, strict=True):
            if isinstance(argument, Address) and argument.buffer == buffer:
                return parameter.name
        raise UsageError(f"{self.kernel.name} leaves its result in no parameter")


def _parameter_name(text: str) -> str:
    """The name in a parameter declaration, such as `x` in `const float *x`."""
    found = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", text, re.DOTALL)
    return found[1] if found else ""


def _as_written(text: str) -> Parameter:
    """A parameter of a kernel that does not compile, from its text alone."""
    kinds = {
        "pointer": r"[*\[]", "float": r"\b(?:float|double)\b",
        "integer": r"\b(?:int|unsigned|long|short|size_t|u?int\d+_t)\b",
    }  # fmt: skip
    kind = next((kind for kind, words in kinds.items() if re.search(words, text)), "other")
    return Parameter(_parameter_name(text), kind, "const" in text.split("*")[0].split(), "", 0)


def _functors(text: str, element: str) -> Iterator[str]:
    """The types in a text that have device functions. Templates get the element type as
    argument."""
    pattern = r"(template\s*<[^<>]*>\s*)?\b(?:struct|class)\s+(\w+)[^;{()]*\{(.{0,400})"
    for template, name, body in re.findall(pattern, text, re.DOTALL):
        if "__device__" in body:
            yield f"{name}<{element}>" if template else name


def _rank(words: Sequence[str], choices: Sequence[Sequence[str]]) -> int:
    """Sort key of template arguments: the sum of their positions in the lists of choices, 0 is
    the most likely."""
    return sum(choice.index(word) for word, choice in zip(words, choices, strict=True))


def _kind(scalar: Scalar) -> str:
    if scalar.type == "bool":
        return "bool"
    kinds = {int: "integer", float: "float"}
    return kinds.get(type(scalar.value), "other")


def _is_named(function: Function, entry: str) -> bool:
    base = entry.partition("<")[0].strip()
    return base in (function.name, function.name.rpartition("::")[2])


def guesses(kernel: BareKernel, launch: LaunchOptions, blocks: Sequence[int]) -> Iterator[Guess]:
    """Likely launches of a kernel with these block sizes. Options fix what they name."""
    said = kernel.said(launch)
    integers = kernel.integers()
    free = [name for name in integers if name not in said]
    body = kernel.function.body
    blocks = (launch.block,) if launch.block else blocks
    row_grids: tuple[str, ...] = ("rows", "threads", "warps", "columns", "column threads")
    grids: tuple[str, ...] = ("few",) if kernel.is_cooperative else ("cover", "few")
    if not _BLOCK_INDEX.search(body):
        grids = row_grids = ("one",)
    if launch.grid is not None:
        grids = row_grids = (_GRIDS.get(str(launch.grid), str(launch.grid)),)
    flags = (0, 1) if any(p.kind in ("bool", "float") for p in kernel.parameters) else (0,)
    named_rows = any("rows" in one.what for one in said.values())
    for by_rows, values in _values(len(free), kernel.lanes):
        if named_rows and not by_rows:
            continue
        given = dict(zip(free, values, strict=True))
        words = tuple(given.get(name, "1") for name in integers)
        for grid, block, flag in product(row_grids if by_rows else grids, blocks, flags):
            shared = launch.shared
            if shared is None:
                shared = 8 * block if kernel.has_dynamic_shared else 0
            for items in (
                (launch.items,) if launch.items else (1, 2, 4) if grid == "cover" else (1,)
            ):
                most = kernel.most_blocks
                yield Guess(block, grid, words, items, shared, by_rows, flag, most_blocks=most)


def _blocks_of(kernel: BareKernel) -> Iterator[int]:
    """Likely block sizes: from launch bounds, then extents of shared arrays, then template
    arguments, then 256."""
    function, bounds = kernel.function, kernel.function.most_threads
    if bounds is not None:
        yield bounds
        return
    extents = re.findall(r"__shared__[^;\[]*\[\s*(\d+)\s*\]", function.body)
    extents += re.findall(r"\b(\d+)u?\b", kernel.name.partition("<")[2])
    likely = [int(extent) for extent in extents if 32 <= int(extent) <= 1024]
    yield from dict.fromkeys((*likely, _DEFAULT_BLOCK))


def _values(count: int, lanes: int) -> Iterator[tuple[bool, tuple[str, ...]]]:
    """Pairs of (reduces rows?, expressions for the integer parameters), the most likely first.
    `lanes` is the number of elements of the kernel's vector type."""
    if count == 0:
        yield False, ()
        yield True, ()
    elif count == 1:
        if lanes > 1:
            yield False, (f"n / {lanes}",)
        yield False, ("n",)
        yield True, ("n",)
        yield from ((False, (value,)) for value in ("GRID", "n / 2", "1"))
    elif count == 2:
        yield True, ("rows", "n")
        yield True, ("n", "rows")
        yield from ((False, pair) for pair in (("n", "1"), ("1", "n"), ("n", "BLOCK"),
                                               ("n", "GRID"), ("n", "0"), ("0", "n")))  # fmt: skip
    else:
        ones = ("1",) * (count - 2)
        yield True, ("rows", "n", *ones)
        yield True, (*ones, "rows", "n")
        yield False, ("n", "1", *ones)
        yield False, ("1", *ones, "n")


def tried_shapes(guess: Guess, tile: int) -> list[Shape]:
    """The shapes (elements per row, rows) at which a launch is tried, multiples of the tile."""
    if guess.by_rows:
        return list(_TRIED_ROWS)
    return list(dict.fromkeys((-(-n // tile) * tile, 1) for n in _TRIED))


def shapes_of(guess: Guess, sizes: Sequence[int], tile: int) -> list[Shape]:
    """The shapes (elements per row, rows) at which a launch is recorded, multiples of the tile."""
    if not guess.by_rows:
        return list(dict.fromkeys((-(-n // tile) * tile, 1) for n in sizes))
    rows = (1, 3, 7, 33, 300, 1000)
    lengths = (1, 2, 31, 32, 33, 100, 257, 1000, 1025, 4096)
    shapes = {(n, rows[k % len(rows)]) for k, n in enumerate(lengths)}
    shapes |= {(64, 64), (33, 257), (257, 33), (1, 1)}
    return sorted(shapes, key=prod)


def _with_command(why: CudareduceError, command: str) -> CudareduceError:
    """The error, followed by a complete command in which the user can correct the launch."""
    return type(why)(f"{why}. To launch it as it is meant: {command}")


def _first_error(messages: str) -> str:
    """The first error in a compiler's output."""
    lines = [line.strip(" |") for line in messages.splitlines()]
    first = next((line for line in lines if " error: " in line), lines[0])
    return first.replace("the host code does not compile here: ", "")


#: What g++ says of an unknown name: it was not declared where a value is needed.
_UNKNOWN_NAME = re.compile(
    r"'(\w+)' (does not name a type|was not declared|has not been declared|is not a type)"
)


def _roles(parameters: Sequence[Parameter], unwritten: Collection[str]) -> dict[str, str]:
    """The --arg value of each pointer. Pointers that the kernel never writes, by its signature
    or in a run, are inputs; the last other pointer is the result."""
    pointers = [p for p in parameters if p.kind == "pointer"]
    inputs = [p.name for p in pointers if p.read_only or p.name in unwritten]
    written = [p.name for p in pointers if p.name not in inputs]
    if not inputs:
        inputs, written = written[:1], written[1:]
    if not written:
        inputs, written = inputs[:-1] or inputs, inputs[1:][-1:]
    roles = dict(zip(inputs, ("in", "in2"), strict=False))
    roles |= dict.fromkeys(written[-1:], "out")
    return {p.name: roles.get(p.name, "zeroed:n") for p in pointers}


def _missing(error: str, block: str, defined: Sequence[str]) -> Iterator[str]:
    """Definitions for names that the compiler does not know: types, and constants, which get the
    block size."""
    known = {one.partition("=")[0] for one in defined}
    for k, (name, what) in enumerate(dict(_UNKNOWN_NAME.findall(error)).items()):
        if name not in known and (k == 0 or name.isupper()):
            yield f"{name}={block if what.startswith('was') else 'float'}"


def command_to_copy(
    kernel: BareKernel, launch: LaunchOptions, error: str = "", unwritten: Collection[str] = ()
) -> str:
    """A complete command that launches a kernel, with a value for each parameter and a -D for an
    unknown type. `unwritten` are pointers that the kernel only reads."""
    said = kernel.said(launch)
    parameters = kernel.parameters or tuple(map(_as_written, kernel.function.parameters))
    block = str(launch.block or next(_blocks_of(kernel)))
    grid = str(launch.grid or "cover")
    words = ["cudareduce", "verify", str(kernel.path), "--entry", kernel.name]
    words += ["--block", block, "--grid", grid]
    roles, extents = _roles(parameters, unwritten), ["n", "rows"]
    for parameter in parameters:
        usual = {"float": "1.0", "bool": "false", "integer": "1", "other": "{}"}
        value = roles.get(parameter.name) or usual[parameter.kind]
        if parameter.kind == "integer" and extents:
            value = extents.pop(0)
        given = said.get(parameter.name)
        words += ["--arg", f"{parameter.name}={given.what if given else value}"]
    for definition in (*launch.defined, *_missing(error, block, launch.defined)):
        words += ["-D", definition]
    for folder in launch.headers:
        words += ["-I", str(folder)]
    return shlex.join(words)
