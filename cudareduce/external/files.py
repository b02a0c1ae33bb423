"""Load external kernel files: record their host code, or launch kernels that have none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cudareduce.budget import Deadline
from cudareduce.catalog.kernel import Kernel
from cudareduce.errors import CudareduceError, EnvironmentProblem, Undecided, UsageError
from cudareduce.external.adopt import SIZES, Adopted, adopt
from cudareduce.external.bare import BareFile
from cudareduce.external.build import RecordingError
from cudareduce.external.device_code import read_device_file
from cudareduce.external.options import NOTHING_REQUESTED, LaunchOptions, Requested
from cudareduce.external.recorder import HostFile
from cudareduce.external.recording import Recording
from cudareduce.external.trial import budget, build_runtimes, next_deadline
from cudareduce.workers import fork_server

#: Seconds for one file on an idle machine: to record, identify and verify it and to find the
#: precondition under which it is right.
FILE_S = 25.0
#: The part of them that is left for verification.
_VERIFIED = 0.4


@dataclass(frozen=True, slots=True)
class ExternalFiles:
    """Loads the kernels of external files. `shapes` are the requested (elements per row, rows),
    `sizes` the numbers of elements at which launches are recorded, `tell` prints a sentence.
    `limit_s` is the time limit per file, if the user set one. Reasons for kernels that are left
    out are collected in `left_out`."""

    options: LaunchOptions
    tell: Callable[[str], None]
    shapes: Sequence[tuple[int, int]] = ()
    cache: Path | None = None
    requested: Requested = NOTHING_REQUESTED
    sizes: Sequence[int] = SIZES
    multiple: int = 1  # that divides every size, as the user says
    only: bool = False  # no shapes but the requested ones
    limit_s: float | None = None
    left_out: list[CudareduceError] = field(default_factory=list, compare=False)

    def __call__(self, path: Path, text: str) -> Sequence[Kernel]:
        """The kernels of a file. Raises UsageError if there are none."""
        if self.cache is None:
            with TemporaryDirectory(prefix="cudareduce-external-") as folder:
                return replace(self, cache=Path(folder))(path, text)
        options = self.options
        found: Sequence[Kernel] = ()
        fork_server()  # it imports what verification needs while the file is recorded
        with suppress(EnvironmentProblem):  # reported where it is used
            build_runtimes(self.cache)  # once for each installation: not of this file's time
        part = 1 - _VERIFIED
        deadline = budget(part * FILE_S) if self.limit_s is None else Deadline(part * self.limit_s)
        if not options.sets_launch and options.finish is None:
            found = self._recorded(path, deadline)
        return found or self._bare(path, text, deadline)

    def _recorded(self, path: Path, deadline: Deadline) -> Sequence[Kernel]:
        """The kernels that the file's host code launches; none if it cannot be recorded."""
        options = self.options
        host = HostFile(path, options.headers, options.defined, self.cache, deadline=deadline)
        try:
            first = host.record()
        except RecordingError:
            return ()
        if not any(b.symbol is None for recording in first for b in recording.buffers):
            return ()  # it launches with pointers that it never sets
        made = []
        for k, recording in enumerate(first):
            share = next_deadline(deadline, len(first) - k)
            recordings = recording, *self._sized(host, recording)
            made.append(adopt(recordings, self.cache, self.requested, share))
        kernels = [kernel for one in made for kernel in one.kernels]
        unlike = any("not recognised" in str(why) for one in made for why in one.refused)
        if not kernels and not unlike and all(one.entry != "main" for one in first):
            return ()  # the arguments of a host function are ours, and may be wrong
        if options.entry or options.chain:
            named = tuple(kernel for kernel in kernels if self._is_named(kernel))
            return self._kept(path, [Adopted(named)]) if named else ()
        return self._kept(path, made)

    def _kept(self, path: Path, made: Sequence[Adopted]) -> Sequence[Kernel]:
        """The kernels. Reports those that were left out; raises UsageError or Undecided if no
        kernel remains."""
        kernels = [kernel for one in made for kernel in one.kernels]
        refused = [why for one in made for why in one.refused]
        if not kernels:
            error = Undecided if all(isinstance(why, Undecided) for why in refused) else UsageError
            raise error(f"{path}: {'; '.join(map(str, refused))}")
        if len(kernels) == 1 and not refused and path.stem.isidentifier():
            kernels = [replace(kernels[0], id=path.stem)]
        numbers = Counter(kernel.id for kernel in kernels)
        kernels = [
            kernel if numbers[kernel.id] == 1 else replace(kernel, id=f"{kernel.id}#{k + 1}")
            for k, kernel in enumerate(kernels)
        ]
        for why in refused:
            self.tell(f"{path}: not judged: {why}")
        self.left_out.extend(refused)
        return kernels

    def _is_named(self, kernel: Kernel) -> bool:
        """True if --entry and --chain are not given, or name this kernel."""
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

    def _bare(self, path: Path, text: str, deadline: Deadline) -> Sequence[Kernel]:
        """The kernels of a file without host code, each in the first launch under which it is
        identified."""
        options = self.options
        device = read_device_file(path, text, options.headers, options.defined)
        only = self.shapes if self.only else ()
        file = BareFile(path, device, options, self.requested, self.cache, self.multiple, only)
        functions, chains = file.functions(), options.chains
        left = len(chains or functions)
        made: list[Adopted] = []
        for chain in chains:
            own = next_deadline(deadline, left - len(made))
            made.append(file.chain(chain, self.sizes, self.shapes, own))
        for function in () if chains else functions:
            own = next_deadline(deadline, left - len(made))
            made.append(file.kernel(function, self.sizes, self.shapes, own))
        return self._kept(path, made)


def _names(kernel: str) -> tuple[str, ...]:
    """A kernel's C++ name, with and without template arguments and namespaces."""
    plain = kernel.partition("<")[0]
    return kernel, plain, plain.rpartition("::")[2]
