"""External kernel files as kernels: their host code is recorded, or bare kernels are launched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.external.adopt import SIZES, adopt
from cudareduce.external.bare import BareFile
from cudareduce.external.build import RecordingError
from cudareduce.external.device_code import read_device_file
from cudareduce.external.options import NOTHING_REQUESTED, LaunchOptions, Requested
from cudareduce.external.recorder import HostFile
from cudareduce.external.recording import Recording
from cudareduce.library.kernel import Kernel

#: Kernels that are left out are listed up to here.
_MOST_REFUSED = 5


@dataclass(frozen=True, slots=True)
class ExternalFiles:
    """Makes kernels of external files. `shapes` are requested elements per row and rows, `sizes`
    the numbers of elements at which launches are recorded; `tell` prints a sentence."""

    options: LaunchOptions
    tell: Callable[[str], None]
    shapes: Sequence[tuple[int, int]] = ()
    cache: Path | None = None
    requested: Requested = NOTHING_REQUESTED
    sizes: Sequence[int] = SIZES
    multiple: int = 1  # that divides every size, as the user says
    only: bool = False  # no shapes but the requested ones

    def __call__(self, path: Path, text: str) -> Sequence[Kernel]:
        """The kernels of a file. Raises UsageError if there are none."""
        options = self.options
        found: Sequence[Kernel] = ()
        if not options.sets_launch and options.finish is None:
            found = self._recorded(path)
        return found or self._bare(path, text)

    def _recorded(self, path: Path) -> Sequence[Kernel]:
        """The kernels that the file's host code launches; none if it cannot be recorded."""
        options = self.options
        host = HostFile(path, options.headers, options.defined, self.cache)
        try:
            first = host.record()
        except RecordingError:
            return ()
        if not any(b.symbol is None for recording in first for b in recording.buffers):
            return ()  # it launches with pointers that it never sets
        kernels: list[Kernel] = []
        refused: list[str] = []
        for recording in first:
            found = adopt((recording, *self._sized(host, recording)), self.cache, self.requested)
            kernels += found.kernels
            refused += found.refused
        unlike = any("not recognised" in words for words in refused)
        if not kernels and not unlike and all(one.entry != "main" for one in first):
            return ()  # the arguments of a host function are ours, and may be wrong
        named = [kernel for kernel in kernels if self._is_named(kernel)]
        if not named and (options.entry or options.chain):
            return ()
        return self._kept(path, named, refused)

    def _kept(
        self, path: Path, kernels: Sequence[Kernel], refused: Sequence[str]
    ) -> Sequence[Kernel]:
        """The kernels, after the others were reported. Raises UsageError if there are none."""
        if not kernels:
            raise UsageError(f"{path}: {'; '.join(refused)}")
        if len(kernels) == 1 and path.stem.isidentifier():
            kernels = [replace(kernels[0], id=path.stem)]
        numbers = Counter(kernel.id for kernel in kernels)
        kernels = [
            kernel if numbers[kernel.id] == 1 else replace(kernel, id=f"{kernel.id}#{k + 1}")
            for k, kernel in enumerate(kernels)
        ]
        for words in refused[:_MOST_REFUSED]:
            self.tell(f"{path}: {words}: left out")
        if len(refused) > _MOST_REFUSED:
            self.tell(f"{path}: {len(refused) - _MOST_REFUSED} more kernels are left out")
        return kernels

    def _is_named(self, kernel: Kernel) -> bool:
        """True if --entry or --chain names a recorded kernel, or neither is given."""
        assert kernel.program is not None
        launched = {name for own in kernel.program.kernels for name in _names(own)}
        entries = {kernel.id, *_names(kernel.entry)}
        options = self.options
        if options.chain:
            return any({*chain} <= launched for chain in options.chains)
        return not options.entry or any(
            entry in entries or entry.rpartition("::")[2] in entries for entry in options.entry
        )

    def _sized(self, host: HostFile, recording: Recording) -> Sequence[Recording]:
        """The recordings at other sizes; none if n cannot be varied."""
        entry = re.split(r"[^\w:]", recording.entry)[0]
        sizes = sorted({*self.sizes, *(n * rows for n, rows in self.shapes)})
        with suppress(UsageError):
            found = host.record_sizes(sizes, None if entry == "main" else entry)
            called = recording.entry.rpartition("(")[0]
            return [one for one in found if one.entry.rpartition("(")[0] == called]
        return ()

    def _bare(self, path: Path, text: str) -> Sequence[Kernel]:
        """The kernels of a file, each in the first launch under which it is recognised."""
        options = self.options
        device = read_device_file(path, text, options.headers, options.defined)
        only = self.shapes if self.only else ()
        file = BareFile(path, device, options, self.requested, self.cache, self.multiple, only)
        kernels: list[Kernel] = []
        refused: list[str] = []
        functions = file.functions()
        if options.chain:
            made = [file.chain(names, self.sizes, self.shapes) for names in options.chains]
        else:
            made = [file.kernel(function, self.sizes, self.shapes) for function in functions]
        for one in made:
            kernels += one.kernels
            refused += one.refused
        return self._kept(path, kernels, refused)


def _names(kernel: str) -> tuple[str, ...]:
    """A kernel's C++ name, and the same without template arguments and namespaces."""
    plain = kernel.partition("<")[0]
    return kernel, plain, plain.rpartition("::")[2]
