"""External files on the command line: recorded where they have host code that runs here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cudareduce.budget import Deadline
from cudareduce.errors import UsageError
from cudareduce.external.adopt import SIZES, adopt
from cudareduce.external.bare import (
    MOST_LAUNCHES,
    BareKernel,
    Guess,
    bare_kernels,
    command_to_copy,
    guesses,
    shapes_of,
    tried_shapes,
)
from cudareduce.external.build import RecordingError
from cudareduce.external.recorder import record, record_sizes
from cudareduce.external.recording import Recording
from cudareduce.library.foreign import adopting
from cudareduce.library.guesses import Guesses
from cudareduce.library.kernel import Kernel

#: Seconds for which launches of a kernel without host code are tried.
_LAUNCHES_S = 15.0


@dataclass(frozen=True, slots=True)
class ExternalFiles:
    """Makes kernels of external files: `says` are the options, `shapes` are requested elements a
    row and rows; `tell` prints a sentence."""

    says: Guesses
    tell: Callable[[str], None]
    shapes: Sequence[tuple[int, int]] = ()
    cache: Path | None = None
    dtypes: Sequence[str] = ()  # requested: of a template the static reading makes instances
    sizes: Sequence[int] = SIZES  # at which what the host code launches is recorded

    def __call__(self, path: Path, text: str) -> Sequence[Kernel]:
        """The kernels of a file. Raises UsageError if there are none."""
        says = self.says
        instances = self.dtypes if re.search(r"\btemplate\b", text) else ()
        static = (says.chains, says.finish, instances)
        if any(part not in (None, ()) for part in static):
            return adopting(says, self.tell)(path, text)
        launch = (says.block, says.grid, says.arguments, says.items, says.shared)
        kernels: Sequence[Kernel] = ()
        if not any(part not in (None, ()) for part in launch):
            kernels = self._recorded(path)
        kernels = kernels or self._bare(path, text)
        if kernels:
            return kernels
        try:
            return adopting(says, self.tell)(path, text)
        except UsageError as error:
            command = command_to_copy(path, text, says)
            if command is None or "cannot be called" not in str(error):
                raise
            raise UsageError(f"{error}; a whole command is: {command}") from None

    def _recorded(self, path: Path) -> Sequence[Kernel]:
        """Kernels from what the file's host code launches; none if it cannot be recorded."""
        include, define = self.says.headers, [f"{k}={v}" for k, v in self.says.defined]
        try:
            first = record(path, include=include, define=define, cache=self.cache)
        except RecordingError:
            return ()
        if not any(b.symbol is None for recording in first for b in recording.buffers):
            return ()  # it launches with pointers that it never sets
        kernels: list[Kernel] = []
        refused: list[str] = []
        for recording in first:
            found = adopt((recording, *self._sized(path, recording)), self.cache)
            kernels += found.kernels
            refused += found.refused
        unlike = any("not recognised" in words for words in refused)
        if not kernels and not unlike and all(one.entry != "main" for one in first):
            return ()  # the arguments of a host function are ours, and may be wrong
        return self._named(path, kernels, refused)

    def _named(
        self, path: Path, kernels: Sequence[Kernel], refused: Sequence[str]
    ) -> Sequence[Kernel]:
        """The kernels that --entry names, all without it. Raises UsageError if there are none."""
        named = [k for k in kernels if not self.says.entries or _is_named(k, self.says.entries)]
        if not named:
            raise UsageError(f"{path}: {'; '.join(refused) or 'no kernel has that name'}")
        for words in refused:
            self.tell(f"{path}: {words}: left out")
        return named

    def _sized(self, path: Path, recording: Recording) -> Sequence[Recording]:
        """The recordings at other sizes; none if n cannot be varied."""
        with suppress(UsageError):
            found = record_sizes(
                path, sorted({*self.sizes, *(n * rows for n, rows in self.shapes)}),
                entry=re.split(r"[^\w:]", recording.entry)[0], include=self.says.headers,
                define=[f"{k}={v}" for k, v in self.says.defined], cache=self.cache,
            )  # fmt: skip
            called = recording.entry.rpartition("(")[0]
            return [one for one in found if one.entry.rpartition("(")[0] == called]
        return ()

    def _bare(self, path: Path, text: str) -> Sequence[Kernel]:
        """Kernels without host code, each in the first launch under which it is recognised; none
        if one is not, or if it is not always the same reduction then. Templates, and requested
        sizes, are left to the static reading, which knows instances and rows."""
        kernels: list[Kernel] = []
        if self.shapes or re.search(r"\btemplate\b", text):
            return ()
        for one in bare_kernels(path, text, self.says, self.cache):
            kernel = self._launched(one)
            if kernel is None or kernel.program is None or kernel.program.fit < 1:
                return ()
            kernels.append(kernel)
        return kernels

    def _launched(self, kernel: BareKernel) -> Kernel | None:
        best: tuple[float, Guess] | None = None
        first: Guess | None = None
        deadline = Deadline(_LAUNCHES_S)
        for guess in islice(guesses(kernel, self.says), MOST_LAUNCHES):
            if deadline.passed:
                break
            made = list(kernel.record(guess, tried_shapes(guess), self.says, self.cache))
            first = first or (guess if made else None)
            for one in adopt(made, self.cache, nearest=False).kernels if made else ():
                fit = one.program.fit if one.program is not None else 0.0
                if best is None or fit > best[0]:
                    best = fit, guess
            if best is not None and best[0] == 1:
                break
        chosen = best[1] if best is not None else first
        return self._at_all_sizes(kernel, chosen) if chosen is not None else None

    def _at_all_sizes(self, kernel: BareKernel, guess: Guess) -> Kernel | None:
        shapes = dict.fromkeys((*shapes_of(guess, self.sizes), *self.shapes))
        made = list(kernel.record(guess, tuple(shapes), self.says, self.cache))
        return next(iter(adopt(made, self.cache).kernels), None) if made else None


def _is_named(kernel: Kernel, entries: Sequence[str]) -> bool:
    names = {kernel.id, kernel.entry, kernel.entry.partition("<")[0]}
    return any(entry in names or entry.rpartition("::")[2] in names for entry in entries)
