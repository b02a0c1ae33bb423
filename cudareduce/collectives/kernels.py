"""Multi-GPU kernels: one file each in kernels/ranks.

Each file has front matter. Its arguments are `(const __grid_constant__ Ranks ranks, size_t in,
size_t out, size_t count, size_t flags, size_t mail, size_t call)`: the addresses of all windows,
offsets in a window, the number of 16-byte packs (or of elements, for the LL protocol), and the
number of the call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from cudareduce.backends.protocol import Source
from cudareduce.catalog.front_matter import OPENS, find_front_matter, read_source
from cudareduce.catalog.registry import EXCHANGES, kernels_folder
from cudareduce.collectives.names import COLLECTIVES, Collective
from cudareduce.collectives.windows import MOST_BLOCKS
from cudareduce.errors import UsageError
from cudareduce.launch.prelude import device_folder, prelude
from cudareduce.reduction.operators import Reduction

#: Bytes of a vector load.
PACK_BYTES = 16
#: The largest array in bytes for the LL protocol, in which half of the bytes sent are flags.
MOST_LL_BYTES = 2**18
#: The largest grid: blocks wait for each other, so all must be resident on any GPU and on the
#: emulator.
MOST_RESIDENT = 128
#: Blocks of a test launch in which each block sends and combines several tiles.
TEST_BLOCKS = 4
#: How a kernel sends data: `packets` by the LL protocol (flag and data in one 8-byte store), or
#: `shares`, tile by tile into slots for whole arrays.
Mail = Literal["packets", "shares"]
MAILS: tuple[Mail, ...] = get_args(Mail)
#: Fields that do not come from the front matter.
_OF_FILE = ("id", "path", "text")
#: The short name of the engine that selects a kernel.
AUTO = "auto"
#: How long a kernel waits for another rank: SM clocks, or ns on the emulator.
WAIT_LIMIT = 10_000_000_000
_DEVICE = Path(str(files("cudareduce.collectives"))) / "device"


@dataclass(frozen=True, slots=True)
class ExchangeKernel:
    """A kernel file: its front matter and text. `wrong` is the reason why a kernel kept as a bad
    example is wrong."""

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
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def short(self) -> str:
        """The name without the collective."""
        prefix = self.collective.replace("-", "_")
        return self.id.removeprefix(f"{prefix}_").removeprefix("reduce_")

    @property
    def engine(self) -> str:
        return f"peer:{self.short}"


def load_kernels(folders: Sequence[Path] = ()) -> dict[str, ExchangeKernel]:
    return kernels_in((kernels_folder() / EXCHANGES, *folders))


def kernels_in(folders: Sequence[Path]) -> dict[str, ExchangeKernel]:
    """The kernels of these folders, by name. Raises UsageError for invalid files and duplicate
    names."""
    kernels: dict[str, ExchangeKernel] = {}
    engines: dict[tuple[str, str], Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder of kernels")
        for path in sorted(folder.glob("*.cu")):
            if path.stem in kernels:
                raise UsageError(f"{path} and {kernels[path.stem].path} have the same name")
            kernel = _load(path)
            if kernel.short == AUTO:
                raise UsageError(
                    f"{path}: peer:{AUTO} is the engine that selects a kernel: rename the file"
                )
            other = engines.setdefault((kernel.collective, kernel.short), path)
            if other is not path:
                raise UsageError(
                    f"{path} and {other} are both called {kernel.engine}: give one another name"
                )
            kernels[path.stem] = kernel
    return kernels


def _load(path: Path) -> ExchangeKernel:
    text = read_source(path)
    header = find_front_matter(path, text)
    if header is None or text[: text.index(OPENS)].strip():
        raise UsageError(f"{path}: a multi-GPU kernel begins with front matter, {OPENS}")
    known = {f.name: f.default is MISSING for f in fields(ExchangeKernel) if f.name not in _OF_FILE}
    for key in header.values:
        if key not in known:
            raise UsageError(f"{path}: {key} is not a key of this front matter: {', '.join(known)}")
    for key, needed in known.items():
        if needed and key not in header.values:
            raise UsageError(f"{path}: the front matter lacks {key}")
    for key, value in header.values.items():
        problem = _problem(key, value)
        if problem:
            raise UsageError(f"{path}: {key}: {problem}")
    kernel = ExchangeKernel(path.stem, path, text, **header.values)
    if kernel.mail == "shares" and kernel.blocks < 2:
        raise UsageError(f"{path}: blocks: must be 2 or more, since half of the blocks send")
    return kernel


def _problem(key: str, value: Any) -> str | None:
    limits = {"block": (32, 1024, "threads"), "blocks": (1, MOST_RESIDENT, "blocks")}.get(key)
    if limits:  # a barrier needs a thread per rank; bool is an int to isinstance
        low, high, unit = limits
        good = type(value) is int and low <= value <= high
        return None if good else f"must be a whole number of {unit} from {low} to {high}"
    if not isinstance(value, str) or not value.strip():
        return "must be a string that is not empty"
    words: Mapping[str, Iterable[str]] = {"collective": COLLECTIVES, "mail": MAILS}
    if value not in words.get(key, (value,)):
        return f"one of {', '.join(words[key])}"
    return None


def kernels_of(
    exchanges: Mapping[str, ExchangeKernel], collective: Collective
) -> dict[str, ExchangeKernel]:
    """The kernels of a collective by short name, correct ones first."""
    kernels = [kernel for kernel in exchanges.values() if kernel.collective == collective]
    return {kernel.short: kernel for kernel in sorted(kernels, key=lambda k: k.wrong is not None)}


def vector_of(reduction: Reduction) -> int:
    """Elements per 16-byte pack."""
    return PACK_BYTES // reduction.dtype.size


def edge_sizes(kernel: ExchangeKernel, reduction: Reduction, ranks: int) -> dict[int, int]:
    """Sizes at which a kernel must be verified, each with the number of blocks to launch.

    At the first, each of TEST_BLOCKS blocks has several tiles (as `ranks.cuh` defines them) and the
    last tile is partial. At the second, all blocks are launched.
    """
    few, vector = min(TEST_BLOCKS, kernel.blocks), vector_of(reduction)
    if kernel.mail == "packets":  # a thread per element, so no tiles
        # thousands of waiting threads are slow on a CPU
        return {0: few, TEST_BLOCKS * kernel.block: kernel.blocks}
    tiles, loads = 2 * TEST_BLOCKS, 8 // ranks or 1
    packs = kernel.blocks * kernel.block
    if kernel.mail == "shares":  # half of the blocks combine
        packs = packs * ranks // 2
    return {tiles * loads * kernel.block * vector + 3: few, packs * vector: kernel.blocks}


def slots_bytes(ranks: int, array_bytes: int) -> int:
    """Bytes of a window's slots for arrays of `array_bytes`: a counter for each block of each rank,
    and two slots for each rank's slice."""
    share = -(-array_bytes // (PACK_BYTES * ranks)) * PACK_BYTES
    return 8 * ranks * MOST_BLOCKS + 2 * ranks * share


def kernel_source(
    kernel: ExchangeKernel, reduction: Reduction, ranks: int, delay_clocks: int = 0
) -> Source:
    """The translation unit of a kernel. With `delay_clocks`, the late rank pauses for that many
    clocks after each wait."""
    start = _prelude(reduction, kernel.block, ranks, delay_clocks)
    return Source(f'{start}#line 1 "{kernel.path}"\n{kernel.text}', kernel.id, kernel.path)


def helper_kernel(file: str, entry: str, reduction: Reduction, ranks: int) -> Source:
    return helper_source(_prelude(reduction, 32, ranks), file, entry)


def helper_source(start: str, file: str, entry: str) -> Source:
    """The translation unit of a helper kernel: the prelude `start`, then the device file."""
    return Source(start + device_text(file), entry, _DEVICE / file)


def _prelude(reduction: Reduction, block: int, ranks: int, delay_clocks: int = 0) -> str:
    vector = vector_of(reduction)
    words = prelude(reduction, "only", block, vector, vector)
    words += f"[[maybe_unused]] constexpr unsigned MOST_BLOCKS = {MOST_BLOCKS};\n"
    return words + shared_source(ranks, delay_clocks) + device_text("ranks.cuh")


def source_folders() -> tuple[Path, ...]:
    return _DEVICE, device_folder()


def shared_source(ranks: int, delay_clocks: int = 0) -> str:
    """Constants and device code for kernels among `ranks` ranks."""
    return (
        f"constexpr unsigned RANKS = {ranks};\n"
        f"constexpr long long WAIT_LIMIT = {WAIT_LIMIT}, DELAY_CLOCKS = {delay_clocks};\n"
        + device_text("windows.cuh")
    )


def device_text(file: str) -> str:
    """The text of a device file, after a #line directive with its path."""
    path = _DEVICE / file
    return f'#line 1 "{path}"\n{path.read_text(encoding="utf-8")}'
