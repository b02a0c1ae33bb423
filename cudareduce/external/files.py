"""External files on the command line: recorded where they have host code that runs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cudareduce.errors import UsageError
from cudareduce.external.adopt import SIZES, adopt
from cudareduce.external.bare import (
    MOST_LAUNCHES,
    BareKernel,
    Guess,
    bare_kernels,
    guesses,
    shapes_of,
    tried_shapes,
)
from cudareduce.external.build import RecordingError
from cudareduce.external.recorder import record
from cudareduce.external.recording import Recording
from cudareduce.library.foreign import adopting
from cudareduce.library.guesses import Guesses
from cudareduce.library.kernel import Kernel


@dataclass(frozen=True, slots=True)
class ExternalFiles:
    """Makes kernels of external files: `says` are the options, `sizes` those asked for, none the
    usual ones; `tell` prints a sentence."""

    says: Guesses
    tell: Callable[[str], None]
    sizes: Sequence[int] = ()
    cache: Path | None = None

    def __call__(self, path: Path, text: str) -> Sequence[Kernel]:
        """The kernels of a file. Raises UsageError if there are none."""
        says = self.says
        static = (says.chains, says.finish)
        if any(part not in (None, ()) for part in static):
            return adopting(says, self.tell)(path, text)
        launch = (says.block, says.grid, says.arguments, says.items, says.shared)
        kernels: Sequence[Kernel] = ()
        if not any(part not in (None, ()) for part in launch):
            kernels = self._recorded(path)
        return kernels or self._bare(path, text)

    def _recorded(self, path: Path) -> Sequence[Kernel]:
        """Kernels from what the file's host code launches; none if it cannot be recorded."""
        include, define = self.says.headers, [f"{k}={v}" for k, v in self.says.defined]
        try:
            first = record(path, include=include, define=define, cache=self.cache)
        except RecordingError:
            return ()
        kernels: list[Kernel] = []
        refused: list[str] = []
        for recording in first:
            found = adopt((recording, *self._sized(path, recording)), self.cache)
            kernels += found.kernels
            refused += found.refused
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

    def _sized(self, path: Path, recording: Recording) -> list[Recording]:
        """The recordings at other sizes; none if n cannot be varied."""
        entry = recording.entry.partition("(")[0]
        found: list[Recording] = []
        if entry == "main":
            return found
        for size in dict.fromkeys((*SIZES, *self.sizes)):
            try:
                found += record(path, entry=entry, size=size, cache=self.cache)
            except UsageError:
                continue
        return found

    def _bare(self, path: Path, text: str) -> Sequence[Kernel]:
        """Kernels without host code, each in the first launch under which it is recognised."""
        kernels: list[Kernel] = []
        refused: list[str] = []
        found = bare_kernels(path, text, self.says, self.cache)
        if not found:
            raise UsageError(f"{path}: no kernel that compiles; -I and -D name what is missing")
        for one in found:
            kernel = self._launched(one)
            if kernel is not None:
                kernels.append(kernel)
            else:
                refused.append(f"{one.name} is not recognised as a reduction; {self._command(one)}")
        return self._named(path, kernels, refused)

    def _launched(self, kernel: BareKernel) -> Kernel | None:
        nearest: tuple[Guess, Kernel] | None = None
        for guess in islice(guesses(kernel, self.says), MOST_LAUNCHES):
            made = list(kernel.record(guess, tried_shapes(guess), self.says, self.cache))
            found = adopt(made, self.cache).kernels if made else ()
            for one in found:
                if one.program is not None and not one.program.nearest:
                    return self._at_all_sizes(kernel, guess) or one
                nearest = nearest or (guess, one)
        if nearest is None:
            return None
        return self._at_all_sizes(kernel, nearest[0]) or nearest[1]

    def _at_all_sizes(self, kernel: BareKernel, guess: Guess) -> Kernel | None:
        shapes = shapes_of(guess, (*SIZES, *self.sizes))
        made = list(kernel.record(guess, shapes, self.says, self.cache))
        return next(iter(adopt(made, self.cache).kernels), None) if made else None

    def _command(self, kernel: BareKernel) -> str:
        """A complete command that says how a kernel is launched."""
        integers = [
            f"--arg {name}={'n' if k == 0 else '1'}"
            for k, name in enumerate(
                name
                for name, kind in zip(kernel.names, kernel.kinds, strict=True)
                if kind == "integer"
            )
        ]
        words = [f"--entry {kernel.name!r}", *integers, "--block 256", "--grid cover", "--op sum"]
        return f"say how it is launched: cudareduce verify {kernel.path} {' '.join(words)}"


def _is_named(kernel: Kernel, entries: Sequence[str]) -> bool:
    names = {kernel.id, kernel.entry, kernel.entry.partition("<")[0]}
    return any(entry in names or entry.rpartition("::")[2] in names for entry in entries)
