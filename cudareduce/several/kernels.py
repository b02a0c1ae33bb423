"""The kernels that several GPUs run together: one file each, below kernels/ranks.

Each has a header, as other kernels do, and the arguments `(const __grid_constant__ Ranks ranks,
size_t in, size_t out, size_t count, size_t flags, size_t mail, size_t call)`: what a kernel knows
of all ranks, places in a window that each of them has, how many packs or, of one that sends
packets, elements there are, and the number of the call, which grows by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from cudareduce.backend import Source
from cudareduce.errors import UsageError
from cudareduce.launch.prelude import device_folder, prelude
from cudareduce.library.front import OPENS, find_header
from cudareduce.library.reading import read_source
from cudareduce.library.registry import EXCHANGES, kernels_folder
from cudareduce.problem.operators import Reduction
from cudareduce.several.collectives import COLLECTIVES, Collective
from cudareduce.several.windows import MOST_BLOCKS

#: Bytes of a load.
PACK_BYTES = 16
#: Bytes of an array that travels in packets at most: half of what travels are numbers.
MOST_MAIL = 2**18
#: Blocks of a launch at most: all of them must be under way, on any GPU and on the emulator.
MOST_AT_ONCE = 128
#: Blocks of a launch that is to show what becomes of a block with several tiles: who sends and who
#: adds.
FEW = 4
#: What a kernel sends to the mail of other ranks: values with the number of their call, or, to
#: boxes for whole arrays, what the others' shares need.
Mail = Literal["packets", "shares"]
MAILS: tuple[Mail, ...] = get_args(Mail)
#: What of a kernel its header does not say.
_OF_FILE = ("id", "path", "text")
#: The name of what picks among kernels of ours.
AUTO = "auto"
#: How long a rank waits on the device, in clocks of an SM, or ns of the emulator.
PATIENCE = 10_000_000_000
_DEVICE = Path(str(files("cudareduce.several"))) / "device"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One kernel file: what its header says, and its text. `wrong` says why it is not right, where
    it is kept for that."""

    id: str
    path: Path
    text: str = field(repr=False)
    title: str
    change: str
    expect: str
    collective: Collective
    block: int
    blocks: int = 64
    after: str | None = None
    mail: Mail | None = None
    wrong: str | None = None

    @property
    def sha(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def short(self) -> str:
        """Its name among those of its collective."""
        prefix = self.collective.replace("-", "_")
        return self.id.removeprefix(f"{prefix}_").removeprefix("reduce_")


def load_exchanges(folders: Sequence[Path] = ()) -> dict[str, Exchange]:
    """Those of the package and of more folders, by name. A header that cannot be read, and a name
    that is there twice, are UsageErrors."""
    return exchanges_of((kernels_folder() / EXCHANGES, *folders))


def exchanges_of(folders: Sequence[Path]) -> dict[str, Exchange]:
    """Those of folders, by name. Raises as `load_exchanges` does."""
    found: dict[str, Exchange] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of kernels")
        for path in sorted(folder.glob("*.cu")):
            if path.stem in found:
                raise UsageError(f"{path} and {found[path.stem].path} have the same name")
            new = _load(path)
            if new.short == AUTO:
                raise UsageError(
                    f"{path}: peer:{AUTO} is what picks a kernel: give it another name"
                )
            for old in found.values():
                if (old.collective, old.short) == (new.collective, new.short):
                    raise UsageError(
                        f"{path} and {old.path} are both called peer:{new.short}: give one "
                        "another name"
                    )
            found[path.stem] = new
    return found


def _load(path: Path) -> Exchange:
    text = read_source(path)
    header = find_header(path, text)
    if header is None or text[: text.index(OPENS)].strip():
        raise UsageError(f"{path}: a kernel of several GPUs begins with a header, {OPENS}")
    known = {f.name: f.default is MISSING for f in fields(Exchange) if f.name not in _OF_FILE}
    for key in header.values:
        if key not in known:
            raise UsageError(f"{path}: {key}: no word of such a header: {', '.join(known)}")
    for key, needed in known.items():
        if needed and key not in header.values:
            raise UsageError(f"{path}: the header does not say {key}")
    found = Exchange(path.stem, path, text, **header.values)
    for key, value in header.values.items():
        problem = _problem(key, value)
        if problem:
            raise UsageError(f"{path}: {key}: {problem}")
    if found.mail == "shares" and found.blocks < 2:
        raise UsageError(f"{path}: blocks: half of those that send shares add: 2 or more")
    return found


def _problem(key: str, value: Any) -> str | None:
    """Why a value is not allowed under its key, or None if it is."""
    if key == "block":  # to isinstance true is a number; a barrier takes a thread for each rank
        good = type(value) is int and 32 <= value <= 1024
        return None if good else "must be a whole number of threads from 32 to 1024"
    if key == "blocks":
        good = type(value) is int and 1 <= value <= MOST_AT_ONCE
        return None if good else f"must be a whole number of blocks from 1 to {MOST_AT_ONCE}"
    if not isinstance(value, str) or not value.strip():
        return "must be a text, not empty"
    if key == "collective" and value not in COLLECTIVES:
        return f"one of {', '.join(COLLECTIVES)}"
    if key == "mail" and value not in MAILS:
        return f"one of {', '.join(MAILS)}"
    return None


def of_collective(exchanges: Mapping[str, Exchange], collective: Collective) -> dict[str, Exchange]:
    """Those of a collective by their short names, the right ones first."""
    some = [kernel for kernel in exchanges.values() if kernel.collective == collective]
    return {kernel.short: kernel for kernel in sorted(some, key=lambda k: k.wrong is not None)}


def vector_of(reduction: Reduction) -> int:
    """Elements of a pack."""
    return PACK_BYTES // reduction.dtype.size


def edges(kernel: Exchange, reduction: Reduction, ranks: int) -> dict[int, int]:
    """Elements that a kernel must be tried with, whatever is asked for, each number with the blocks
    that they go to."""
    few, every = (some(kernel, reduction, ranks) for some in (_edge, _full))
    return {few: min(FEW, kernel.blocks), every: kernel.blocks}


def _edge(kernel: Exchange, reduction: Reduction, ranks: int) -> int:
    """Elements of which each of FEW blocks has several tiles, as `ranks.cuh` has them, and the last
    is not whole; none of what sends packets, which may have a thread for each."""
    tiles = 0 if kernel.mail == "packets" else 2 * FEW
    loads = 8 // ranks or 1
    return tiles * loads * kernel.block * vector_of(reduction) + 3 * (tiles > 0)


def _full(kernel: Exchange, reduction: Reduction, ranks: int) -> int:
    """Elements for which all blocks of a kernel are launched; of what sends packets few, since
    thousands of threads that wait for each other are slow on a CPU."""
    if kernel.mail == "packets":
        return FEW * kernel.block
    threads = kernel.blocks * kernel.block
    packs = threads * ranks // 2 if kernel.mail == "shares" else threads  # half of which add
    return packs * vector_of(reduction)


def boxes_bytes(ranks: int, array_bytes: int) -> int:
    """Bytes of a window that kernels need which send shares of such arrays: words that tell how
    many tiles have come, and boxes of two calls, a share's for each rank."""
    share = -(-array_bytes // (PACK_BYTES * ranks)) * PACK_BYTES
    return 8 * ranks * MOST_BLOCKS + 2 * ranks * share


def source(kernel: Exchange, reduction: Reduction, ranks: int, stumble: int = 0) -> Source:
    """The translation unit of a kernel among so many ranks. With `stumble` the rank that
    is `late` stops for so many clocks wherever it has waited for others."""
    start = _start(reduction, kernel.block, ranks, stumble)
    return Source(f'{start}#line 1 "{kernel.path}"\n{kernel.text}', kernel.id, kernel.path)


def helper(file: str, entry: str, reduction: Reduction, ranks: int) -> Source:
    """The translation unit of a kernel that exchanges nothing, and is there to measure."""
    return helper_source(_start(reduction, 32, ranks), file, entry)


def helper_source(start: str, file: str, entry: str) -> Source:
    """The translation unit of a kernel of the package behind such a `start`."""
    return Source(start + device_text(file), entry, _DEVICE / file)


def _start(reduction: Reduction, block: int, ranks: int, stumble: int = 0) -> str:
    """What stands before each kernel's text."""
    vector = vector_of(reduction)
    words = prelude(reduction, "only", block, vector, vector)
    words += f"[[maybe_unused]] constexpr unsigned MOST_BLOCKS = {MOST_BLOCKS};\n"
    return words + shared(ranks, stumble) + device_text("ranks.cuh")


def shared_folders() -> tuple[Path, ...]:
    """Where the texts lie that stand before each kernel's."""
    return _DEVICE, device_folder()


def shared(ranks: int, stumble: int = 0) -> str:
    """What every text needs that runs on so many ranks."""
    return (
        f"constexpr unsigned RANKS = {ranks};\n"
        f"constexpr long long PATIENCE = {PATIENCE}, STUMBLE = {stumble};\n"
        + device_text("windows.cuh")
    )


def device_text(file: str) -> str:
    """A text of the package, whose lines compilers find."""
    path = _DEVICE / file
    return f'#line 1 "{path}"\n{path.read_text(encoding="utf-8")}'
